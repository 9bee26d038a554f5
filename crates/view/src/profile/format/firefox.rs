//! The Firefox Profiler's processed profile: every sample with its stack and time, gzipped JSON.
//!
//! Functions are symbolized here, so that the file can be viewed without the images; addresses and
//! build ids are included too. If there are several unwinders or events, a thread is listed once
//! for each.

use super::no_cpu::NoCpu;
use crate::profile::gathered::{NodePlace, Profile, Sample};
use crate::profile::table::{Image, Table};
use crate::profile::tree::ROOT;
use flate2::{Compression, write::GzEncoder};
use fxprof_processed_profile as fxprof;
use fxprof_processed_profile::debugid::DebugId;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, LibraryHandle,
    LibraryInfo, ProcessHandle, ReferenceTimestamp, SamplingInterval, StackHandle, Symbol,
    SymbolTable, ThreadHandle, Timestamp,
};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use unwind_sim_recordings::names::file_name;

/// The compression level. Higher levels take much longer and make the file only slightly smaller.
const LEVEL: u32 = 1;

/// Writes a profile of kind [`GatherKind::Times`](crate::profile::gathered::GatherKind::Times).
/// `product` is the name of the recording.
pub(super) fn write(profile: &Profile, product: &str, out: &mut dyn Write) -> io::Result<()> {
    let made = Writer::new(profile, product).write();
    let gzip = GzEncoder::new(out, Compression::new(LEVEL));
    let packed = io::BufWriter::with_capacity(1 << 16, gzip);
    let mut json = io::BufWriter::with_capacity(1 << 12, NoCpu::new(packed));
    serde_json::to_writer(&mut json, &made)?;
    json.into_inner()?.into_inner()?.into_inner()?.finish()?;
    Ok(())
}

/// Builds the profile.
struct Writer<'a> {
    from: &'a Profile,
    profile: fxprof::Profile,
    start: u64,
    libraries: Vec<LibraryHandle>,
    /// The stack of each node. A node belongs to one thread.
    stacks: Vec<Option<StackHandle>>,
    /// By frame number: the frame, with the number of the thread that it was made for.
    frames: Vec<(u32, Option<FrameHandle>)>,
}

impl<'a> Writer<'a> {
    fn new(from: &'a Profile, product: &str) -> Writer<'a> {
        let (table, samples) = (&from.table, &from.samples);
        let times = || samples.iter().map(|sample| sample.time);
        let start = times().min().unwrap_or(0);

        let asked = from.used_events().filter_map(|event| event.interval_ns);
        // Not every recording states the interval that was set.
        let interval = asked.min().unwrap_or_else(|| mean_interval(from)).max(1000);

        // Times of samples are relative to the start; the start itself is in milliseconds since
        // 1970.
        let began = from.started_ns().unwrap_or(0) as f64 / 1e6;
        let epoch = ReferenceTimestamp::from_millis_since_unix_epoch(began);
        let mut profile =
            fxprof::Profile::new(product, epoch, SamplingInterval::from_nanos(interval));

        // The names are in the file, so the viewer need not look for symbols.
        profile.set_symbolicated(true);
        profile.set_os_name("Linux");

        // Only symbols of functions in the profile are listed, as the tables of whole images are
        // large.
        let symbols = symbols(table);
        let images = table.images().iter().zip(&symbols);
        let libraries = images
            .map(|(image, symbols)| profile.add_lib(library(image, symbols)))
            .collect();

        Writer {
            from,
            profile,
            start,
            libraries,
            // What was made for a node or a frame is kept, since the crate makes a new one at each
            // call.
            stacks: vec![None; from.tree.nodes().len()],
            frames: vec![(u32::MAX, None); table.frames().len()],
        }
    }

    fn write(mut self) -> fxprof::Profile {
        let from = self.from;
        // Threads are ordered by process and number, with their samples in the order they came.
        // The rank is a thread's place in that order, as samples only have the number.
        let order = from.ordered_threads();
        let mut rank = vec![0u32; order.len()];
        for (place, &thread) in order.iter().enumerate() {
            rank[thread as usize] = place as u32;
        }

        let shown = from.shown();
        let several = from.used_series().len() > 1;
        let mut samples = from.samples.clone();

        // The sort is stable, so the samples of a thread stay in their order.
        samples.sort_by_key(|sample| rank[sample.thread as usize]);

        let mut last: Option<(u32, ProcessHandle)> = None;

        // After the sort, the samples of each thread are one run.
        for run in samples.chunk_by(|a, b| a.thread == b.thread) {
            let number = run[0].thread;
            let thread = &from.threads[number as usize];
            let (pid, tid, name) = (thread.pid, thread.tid, &shown[number as usize]);
            let first = Timestamp::from_nanos_since_reference(run[0].time - self.start);

            // In this order, the threads of a process are neighbours.
            let process = match last {
                Some((known, handle)) if known == pid => handle,
                _ => self.profile.add_process(&thread.name, pid, first),
            };
            last = Some((pid, process));
            // A main thread is shown with its process's name.
            let is_main = pid == tid && !several;

            let thread = self.profile.add_thread(process, tid, first, is_main);
            self.profile.set_thread_name(thread, name);
            self.thread(thread, number, run);
        }
        self.profile
    }

    fn thread(&mut self, handle: ThreadHandle, number: u32, samples: &[Sample]) {
        let series = self.from.threads[number as usize].series;
        let event = self.from.series.get(series as usize);
        let event = event.and_then(|series| series.event.as_ref());
        // The period of a clock is the CPU time since the last sample. Where the event is not a
        // clock, CPU time is not known.
        let is_clock = event.is_some_and(|event| event.is_clock);
        for sample in samples {
            let stack = self.stack(handle, number, sample.node);
            let time = Timestamp::from_nanos_since_reference(sample.time - self.start);
            let busy = if is_clock { sample.period } else { 0 };
            let busy = CpuDelta::from_nanos(busy);
            self.profile.add_sample(handle, time, stack, busy, 1);
        }
    }

    /// The stack that ends in `node`; `None` for the thread's own node.
    fn stack(&mut self, handle: ThreadHandle, number: u32, node: u32) -> Option<StackHandle> {
        // Up to the first known node, and back down.
        let nodes = self.from.tree.nodes();
        let mut new = Vec::new();
        let (mut at, mut found) = (node, None);
        while at != ROOT {
            let NodePlace::Frame(frame) = NodePlace::of(nodes[at as usize].frame) else {
                break;
            };
            found = self.stacks[at as usize];
            if found.is_some() {
                break;
            }
            new.push((at, frame));
            at = nodes[at as usize].parent;
        }
        for (at, frame) in new.into_iter().rev() {
            let frame = self.frame(handle, number, frame);
            let stack = self.profile.intern_stack(handle, found, frame);
            self.stacks[at as usize] = Some(stack);
            found = Some(stack);
        }
        found
    }

    fn frame(&mut self, handle: ThreadHandle, number: u32, frame: u32) -> FrameHandle {
        // Frames belong to a thread in this format, so what is kept is of one thread only.
        if let (of, Some(known)) = self.frames[frame as usize]
            && of == number
        {
            return known;
        }

        let found = self.from.table.frames()[frame as usize];
        let place = found.image.zip(u32::try_from(found.address).ok());
        // The symbol table has one name for an address; an inlined function is another one.
        let name = self.from.table.name(found.name);
        let is_inlined = found.function.is_none() && !name.starts_with('[');
        let place = place.filter(|_| !is_inlined);

        // A label is a frame without an image: a name is all that is known.
        let place = match place {
            Some((image, address)) => Frame::RelativeAddressFromAdjustedReturnAddress(
                self.libraries[image as usize],
                address,
            ),
            None => Frame::Label(self.profile.intern_string(name)),
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

/// The mean distance of a thread's samples, nanoseconds; 0 if no thread has several.
fn mean_interval(from: &Profile) -> u64 {
    let mut spans: Vec<Option<(u64, u64)>> = vec![None; from.threads.len()];
    for sample in &from.samples {
        let span = &mut spans[sample.thread as usize];
        let (first, last) = span.unwrap_or((sample.time, sample.time));
        *span = Some((first.min(sample.time), last.max(sample.time)));
    }
    let spans: Vec<u64> = spans.into_iter().flatten().map(|(a, b)| b - a).collect();
    let gaps = from.samples.len().saturating_sub(spans.len()) as u128;
    let length: u128 = spans.iter().map(|&span| u128::from(span)).sum();
    u64::try_from(length.checked_div(gaps).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// For each image, the functions in the profile by address, with size and name.
fn symbols(table: &Table) -> Vec<BTreeMap<u32, (u64, &str)>> {
    // A symbol table has the names of functions by their start, and a lookup takes the one before
    // an address.
    let mut symbols = vec![BTreeMap::new(); table.images().len()];
    // The format has only 32 bits for an address in an image.
    let places: Vec<(usize, u32, u64, u64, &str)> = table
        .frames()
        .iter()
        .filter_map(|frame| {
            let (begin, size) = frame.function?;
            let address = u32::try_from(frame.address).ok()?;
            Some((
                frame.image? as usize,
                address,
                begin,
                size,
                table.name(frame.name),
            ))
        })
        .collect();

    // First all functions by where they start.
    for &(image, _, begin, size, name) in &places {
        if let Ok(begin) = u32::try_from(begin) {
            symbols[image].insert(begin, (size, name));
        }
    }
    // If functions overlap or start at the same address, the last function that starts before an
    // address may be the wrong one. Then the name is assigned to the address itself.
    // Each round adds names, and an added name can hide another, so rounds go on until all
    // addresses are found.
    loop {
        let mut all_found = true;
        for &(image, address, _, _, name) in &places {
            let before = symbols[image].range(..=address).next_back();
            let is_found = before.is_some_and(|(&begin, &(size, found))| {
                let is_own = found == name && (size == 0 || u64::from(address - begin) < size);
                // Two files with the same path may name it differently.
                is_own || (begin == address && size == 1)
            });
            if !is_found {
                all_found = false;
                symbols[image].insert(address, (1, name));
            }
        }
        if all_found {
            return symbols;
        }
    }
}

/// An image, with its functions that are in the profile.
fn library(image: &Image, symbols: &BTreeMap<u32, (u64, &str)>) -> LibraryInfo {
    let symbol = |(&address, &(size, name)): (&u32, &(u64, &str))| Symbol {
        address,
        size: u32::try_from(size).ok().filter(|&size| size != 0),
        name: name.to_owned(),
    };

    let name = file_name(&image.path).to_owned();
    let path = image.path.clone();
    let id = &image.build_id;
    // A debug id has 16 bytes; a build id usually has 20.
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
