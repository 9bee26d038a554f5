//! The Firefox Profiler's processed profile: every sample with its stack and time, gzipped JSON.
//!
//! Samples are kept as 16 bytes each until the end, as the format lists them thread by thread.
//! Functions are named here, so that the file shows without the images at hand; addresses and
//! build ids are in it as well.

use super::grown::Grown;
use super::stacks::ROOT;
use super::symbols::{Detail, FrameInfo as Found};
use super::task::{Consumer, Taken, Task};
use crate::names::file_name;
use flate2::{Compression, write::GzEncoder};
use fxprof_processed_profile::debugid::DebugId;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, LibraryHandle,
    LibraryInfo, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, Symbol,
    SymbolTable, ThreadHandle, Timestamp,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;
use unwind_sim_unwind::image::Image;

/// The compression level: above it files are little smaller, and take much longer.
const LEVEL: u32 = 1;

/// A sample, thread by its number.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: u64,
    node: u32,
    thread: u32,
}

/// A thread.
#[derive(Clone, Debug)]
struct Thread {
    pid: u32,
    tid: u32,
    /// Its name in its last part.
    name: Arc<str>,
    last_part: u64,
}

/// Keeps the samples of some parts of a recording.
#[derive(Debug)]
pub(super) struct Firefox {
    grown: Grown,
    threads: Vec<Thread>,
    numbers: HashMap<(u32, u32), u32>,
    /// The thread of the last sample of this part.
    current: Option<u32>,
    samples: Vec<Sample>,
    /// Number of each part, and where its samples begin.
    parts: Vec<(u64, usize)>,
}

impl Firefox {
    pub(super) fn new() -> Firefox {
        Firefox {
            grown: Grown::new(Detail::Address, false),
            threads: Vec::new(),
            numbers: HashMap::new(),
            current: None,
            samples: Vec::new(),
            parts: Vec::new(),
        }
    }

    fn thread(&mut self, task: &Task) -> u32 {
        if let Some(current) = self.current {
            let thread = &self.threads[current as usize];
            let same = (thread.pid, thread.tid) == (task.pid, task.tid);
            if same && Arc::ptr_eq(&thread.name, &task.name) {
                return current;
            }
        }
        let last_part = self.parts.last().map_or(0, |part| part.0);
        let Task {
            pid, tid, ref name, ..
        } = *task;
        let number = self.add_thread(Thread {
            pid,
            tid,
            name: name.clone(),
            last_part,
        });
        self.current = Some(number);
        number
    }

    fn add_thread(&mut self, thread: Thread) -> u32 {
        let next = self.threads.len() as u32;
        let number = *self.numbers.entry((thread.pid, thread.tid)).or_insert(next);
        match self.threads.get_mut(number as usize) {
            None => self.threads.push(thread),
            Some(known) if known.last_part <= thread.last_part => *known = thread,
            Some(_) => {}
        }
        number
    }

    /// Puts together what several threads kept.
    pub(super) fn join(mut all: Vec<Firefox>) -> Firefox {
        if all.len() == 1 {
            return all.remove(0);
        }
        let mut whole = Firefox::new();
        let nodes: Vec<Vec<u32>> = all
            .iter()
            .map(|one| whole.grown.merge(&one.grown))
            .collect();
        let threads: Vec<Vec<u32>> = all
            .iter()
            .map(|one| {
                one.threads
                    .iter()
                    .map(|t| whole.add_thread(t.clone()))
                    .collect()
            })
            .collect();
        let mut parts: Vec<(u64, usize, std::ops::Range<usize>)> = Vec::new();
        for (of, one) in all.iter().enumerate() {
            let ends = one
                .parts
                .iter()
                .skip(1)
                .map(|part| part.1)
                .chain([one.samples.len()]);
            parts.extend(
                one.parts
                    .iter()
                    .zip(ends)
                    .map(|(part, end)| (part.0, of, part.1..end)),
            );
        }
        parts.sort_unstable_by_key(|part| part.0);
        whole
            .samples
            .reserve(all.iter().map(|one| one.samples.len()).sum());
        for (_, of, range) in parts {
            let (one, nodes) = (&all[of], &nodes[of]);
            for sample in &one.samples[range] {
                let thread = threads[of][sample.thread as usize];
                let node = nodes.get(sample.node as usize).copied().unwrap_or(ROOT);
                whole.samples.push(Sample {
                    node,
                    thread,
                    ..*sample
                });
            }
        }
        whole
    }

    /// Writes the profile of a recording of this name.
    pub(super) fn write(mut self, product: &str, out: &mut dyn Write) -> io::Result<()> {
        let samples = std::mem::take(&mut self.samples);
        let profile = Writer::new(&self, &samples, product).write(samples);
        let buffered = io::BufWriter::with_capacity(1 << 16, out);
        let gzip = GzEncoder::new(buffered, Compression::new(LEVEL));
        let mut json = io::BufWriter::with_capacity(1 << 16, gzip);
        serde_json::to_writer(&mut json, &profile)?;
        json.into_inner()?.finish()?.flush()
    }
}

impl Consumer for Firefox {
    fn part(&mut self, number: u64) {
        self.parts.push((number, self.samples.len()));
        self.current = None;
    }

    fn stack(&mut self, taken: &Taken<'_>) {
        let node = self.grown.node(taken);
        let thread = self.thread(taken.task);
        self.samples.push(Sample {
            time: taken.time,
            node,
            thread,
        });
    }
}

/// Makes the profile.
struct Writer<'a> {
    from: &'a Firefox,
    profile: Profile,
    start: u64,
    interval: u64,
    libraries: Vec<LibraryHandle>,
    /// Of the thread of that number.
    stacks: Vec<(u32, Option<StackHandle>)>,
    frames: Vec<(u32, Option<FrameHandle>)>,
}

impl<'a> Writer<'a> {
    fn new(from: &'a Firefox, samples: &[Sample], product: &str) -> Writer<'a> {
        let times = || samples.iter().map(|sample| sample.time);
        let start = times().min().unwrap_or(0);
        let length = times().max().unwrap_or(0) - start;
        // The recorder's own setting is not known for every kind of recording.
        let interval = (length / samples.len().max(1) as u64).max(1000);
        let epoch = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
        let mut profile = Profile::new(product, epoch, SamplingInterval::from_nanos(interval));
        profile.set_symbolicated(true);
        profile.set_os_name("Linux");
        let mut symbols = vec![BTreeMap::new(); from.grown.frames.images().len()];
        for frame in from.grown.frames.all() {
            if let Some(((begin, size), image)) = frame.function.zip(frame.image)
                && let Ok(address) = u32::try_from(begin)
            {
                let name = from.grown.frames.name(frame.name);
                symbols[image as usize].insert(address, (size, name));
            }
        }
        let images = from.grown.frames.images().iter().zip(&symbols);
        let libraries = images
            .map(|(image, symbols)| profile.add_lib(library(image, symbols)))
            .collect();
        Writer {
            from,
            profile,
            start,
            interval,
            libraries,
            stacks: vec![(u32::MAX, None); from.grown.tree.nodes().len()],
            frames: vec![(u32::MAX, None); from.grown.frames.all().len()],
        }
    }

    fn write(mut self, mut samples: Vec<Sample>) -> Profile {
        let from = self.from;
        // Threads in the order of process and number, each one's samples as they came.
        let mut order: Vec<u32> = (0..from.threads.len() as u32).collect();
        order.sort_unstable_by_key(|&t| {
            let thread = &from.threads[t as usize];
            (thread.pid, thread.tid)
        });
        let mut rank = vec![0u32; order.len()];
        for (place, &thread) in order.iter().enumerate() {
            rank[thread as usize] = place as u32;
        }
        samples.sort_by_key(|sample| rank[sample.thread as usize]);
        let mut last: Option<(u32, ProcessHandle)> = None;
        for run in samples.chunk_by(|a, b| a.thread == b.thread) {
            let number = run[0].thread;
            let Thread { pid, tid, name, .. } = &from.threads[number as usize];
            let first = Timestamp::from_nanos_since_reference(run[0].time - self.start);
            let process = match last {
                Some((known, handle)) if known == *pid => handle,
                _ => self.profile.add_process(name, *pid, first),
            };
            last = Some((*pid, process));
            let thread = self.profile.add_thread(process, *tid, first, pid == tid);
            self.profile.set_thread_name(thread, name);
            self.thread(thread, number, run);
        }
        self.profile
    }

    fn thread(&mut self, handle: ThreadHandle, number: u32, samples: &[Sample]) {
        let mut last = None;
        for sample in samples {
            let stack = match sample.node {
                ROOT => None,
                node => Some(self.stack(handle, number, node)),
            };
            let time = Timestamp::from_nanos_since_reference(sample.time - self.start);
            // A sample stands for no more than an interval of the processor's time.
            let since = sample
                .time
                .saturating_sub(last.replace(sample.time).unwrap_or(0));
            let busy = CpuDelta::from_nanos(since.min(self.interval));
            self.profile.add_sample(handle, time, stack, busy, 1);
        }
    }

    /// The stack that ends in `node`.
    fn stack(&mut self, handle: ThreadHandle, number: u32, node: u32) -> StackHandle {
        // Upwards to what this thread has, and back down.
        let nodes = self.from.grown.tree.nodes();
        let mut new = Vec::new();
        let (mut at, mut found) = (node, None);
        while at != ROOT {
            if let (of, Some(stack)) = self.stacks[at as usize]
                && of == number
            {
                found = Some(stack);
                break;
            }
            new.push(at);
            at = nodes[at as usize].parent;
        }
        for at in new.into_iter().rev() {
            let frame = self.frame(handle, number, nodes[at as usize].frame);
            let stack = self.profile.intern_stack(handle, found, frame);
            self.stacks[at as usize] = (number, Some(stack));
            found = Some(stack);
        }
        match found {
            Some(stack) => stack,
            None => unreachable!("a node that is not the root is a stack"),
        }
    }

    fn frame(&mut self, handle: ThreadHandle, number: u32, frame: u32) -> FrameHandle {
        if let (of, Some(known)) = self.frames[frame as usize]
            && of == number
        {
            return known;
        }
        let found: Found = self.from.grown.frames.all()[frame as usize];
        let place = found.image.zip(u32::try_from(found.address).ok());
        let place = match place {
            Some((image, address)) => Frame::RelativeAddressFromAdjustedReturnAddress(
                self.libraries[image as usize],
                address,
            ),
            None => {
                let name = self.from.grown.frames.name(found.name);
                Frame::Label(self.profile.intern_string(name))
            }
        };
        let made = self.profile.intern_frame(
            handle,
            FrameInfo {
                frame: place,
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            },
        );
        self.frames[frame as usize] = (number, Some(made));
        made
    }
}

/// An image, with those of its functions that are in the profile.
fn library(image: &Image, symbols: &BTreeMap<u32, (u64, &str)>) -> LibraryInfo {
    let symbol = |(&address, &(size, name)): (&u32, &(u64, &str))| Symbol {
        address,
        size: u32::try_from(size).ok().filter(|&size| size != 0),
        name: name.to_owned(),
    };
    let name = file_name(image.name()).to_owned();
    let path = image.name().to_owned();
    let id = image.build_id();
    let mut guid = [0; 16];
    let len = id.len().min(guid.len());
    guid[..len].copy_from_slice(&id[..len]);
    LibraryInfo {
        debug_name: name.clone(),
        debug_path: path.clone(),
        debug_id: DebugId::from_guid_age(&guid, 0).unwrap_or_default(),
        code_id: (!id.is_empty()).then(|| id.iter().map(|byte| format!("{byte:02x}")).collect()),
        arch: None,
        symbol_table: Some(Arc::new(SymbolTable::new(
            symbols.iter().map(symbol).collect(),
        ))),
        name,
        path,
    }
}
