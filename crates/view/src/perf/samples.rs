//! Collects the samples of `perf script` in a profile.

use crate::profile::gathered::{Clock, GatherKind, Profile, Series};
use crate::profile::symbols::bracketed;
use crate::profile::table::{Frame, Image};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use unwind_sim_perf_data::{EventAttr, Object, PerfFile, RecordId, sample_type as st};
use unwind_sim_perf_script::symbols::Symbols;
use unwind_sim_perf_script::{Address, Head, Output, Tasks};

/// An address of a process in an object. Equal places have equal frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FrameKey {
    address: u64,
    is_return: bool,
    bias: u64,
    /// `None` without an object.
    object: Option<u32>,
    in_chain: bool,
}

/// A sample whose frames follow those of the previous one.
#[derive(Clone, Copy, Debug)]
struct PendingSample {
    /// The number of its thread, and the node that its stack is added to.
    thread: (u32, u32),
    time: u64,
    events: u64,
    /// Index of its first frame.
    frames: usize,
}

/// Samples with their frames, innermost first.
#[derive(Debug, Default)]
pub(super) struct SampleBatch {
    samples: Vec<PendingSample>,
    frames: Vec<u32>,
}

/// Collects samples in a profile. Its series are the recording's events.
#[derive(Debug)]
pub(super) struct Samples {
    profile: Profile,
    /// For each event, whether it has an address or a chain.
    placed: Vec<bool>,
    /// The frames of each place, innermost first: more than one if functions were inlined there.
    frames: HashMap<FrameKey, Vec<u32>>,
    /// Whether inlined functions are frames.
    inline: bool,
    /// The last name of each thread.
    names: HashMap<i32, Arc<str>>,
}

impl Samples {
    /// No samples of `file`, which was last written at `written`.
    pub(super) fn new(
        file: &PerfFile<'_>,
        kind: GatherKind,
        written: Option<SystemTime>,
        inline: bool,
    ) -> Self {
        let attrs = file.attrs();
        let is_placed = |attr: &EventAttr| attr.sample_type & (st::IP | st::CALLCHAIN) != 0;
        let mut profile = Profile::new(kind, attrs.iter().map(Series::of_event).collect());
        profile.clock = Some(Clock::of(file, written));
        Self {
            profile,
            placed: attrs.iter().map(is_placed).collect(),
            frames: HashMap::new(),
            inline,
            names: HashMap::new(),
        }
    }

    /// Adds samples to the profile.
    pub(super) fn take(&mut self, piece: &mut SampleBatch) {
        let begins = piece.samples.iter().map(|sample| sample.frames);
        let ends = begins.skip(1).chain([piece.frames.len()]);
        for (sample, end) in piece.samples.iter().zip(ends) {
            let (thread, mut node) = sample.thread;
            for &frame in piece.frames[sample.frames..end].iter().rev() {
                node = self.profile.tree.child(node, frame);
            }
            self.profile.add(thread, node, sample.time, sample.events);
        }
        piece.samples.clear();
        piece.frames.clear();
    }

    pub(super) fn finish(mut self) -> Profile {
        // Samples that waited for their user frames came late.
        self.profile.samples.sort_by_key(|sample| sample.time);
        self.profile
    }

    fn name(&mut self, tasks: &Tasks, tid: i32) -> Arc<str> {
        let name = tasks.name(tid).map(String::from_utf8_lossy);
        let name = name.unwrap_or_else(|| format!(":{tid}").into());
        match self.names.get(&tid) {
            Some(known) if **known == *name => known.clone(),
            _ => {
                let made: Arc<str> = (*name).into();
                self.names.insert(tid, made.clone());
                made
            }
        }
    }

    /// The frames of an address. `in_chain`: inlined functions are only shown there.
    fn find(
        &mut self,
        at: &Address<'_>,
        in_chain: bool,
        symbols: &mut dyn Symbols,
        out: &mut Vec<u32>,
    ) {
        let place = FrameKey {
            address: at.value,
            is_return: at.is_return,
            bias: at.map.map_or(0, |map| map.bias),
            object: at.map.map(|map| map.object),
            in_chain,
        };
        if let Some(frames) = self.frames.get(&place) {
            return out.extend_from_slice(frames);
        }
        let frames = self.look(at, in_chain && self.inline, symbols);
        let table = &mut self.profile.table;
        let frames: Vec<u32> = frames.into_iter().map(|frame| table.add(frame)).collect();
        out.extend_from_slice(&frames);
        self.frames.insert(place, frames);
    }

    fn look(&mut self, at: &Address<'_>, inline: bool, symbols: &mut dyn Symbols) -> Vec<Frame> {
        let Address {
            tasks,
            map,
            value,
            is_return,
            ..
        } = *at;

        // What is done here is done once for each place: `look` is behind a map of places.
        let table = &mut self.profile.table;
        // The call is before a return address, which may be the next function's.
        let called = value.wrapping_sub(u64::from(is_return));
        let object = map.and_then(|map| Some((map, tasks.object(map.object)?)));
        let Some((map, object)) = object else {
            let name = table.intern("[unknown]");
            return vec![Frame {
                name,
                symbol: name,
                image: None,
                address: called,
                function: None,
            }];
        };

        let path = String::from_utf8_lossy(&tasks.object_name(map.object)).into_owned();

        // Maps of perf have a bias that is added, and addresses in an object are those of its file.
        let mut address = called.wrapping_add(map.bias);
        // A handler returns to the start of `__restore_rt`, which no call is before.
        if is_return && starts_trampoline(symbols, &object, address.wrapping_add(1)) {
            address = address.wrapping_add(1);
        }

        let symbol = symbols.symbol(&object, address);
        // Kernel addresses are relative to its start, which differs from boot to boot.
        let base = match object {
            Object::Kernel(_) => map.start,
            _ => 0,
        };

        // The size is needed by formats that have symbol tables.
        let function = symbol.as_ref().map(|symbol| {
            let size = symbol.range.end.saturating_sub(symbol.range.start);
            (symbol.range.start.wrapping_sub(base), size)
        });

        // Without a symbol, the frame is named by its object, as perf does.
        let name = match &symbol {
            Some(symbol) => table.intern(&String::from_utf8_lossy(symbol.name)),
            None => table.intern(&bracketed(&path)),
        };

        // Viewers that demangle themselves want the name as the linker has it.
        let mangled = symbols.mangled(&object, address);
        let symbol = mangled.map_or(name, |raw| table.intern(&String::from_utf8_lossy(raw)));

        // Without a symbol there is no function that others could be inlined into.
        let functions = if inline && function.is_some() {
            symbols.inlined(&object, address).to_vec()
        } else {
            Vec::new()
        };

        // A perf.data need not have the build ids of its files; then the files themselves do.
        let build_id = match object {
            Object::File { build_id: [], .. } => symbols.build_id(&object).unwrap_or_default(),
            Object::File { build_id, .. } => build_id.to_vec(),
            _ => tasks.kernel_build_id(map.object).to_vec(),
        };

        let own = Frame {
            name,
            symbol,
            image: Some(table.image(&Image { path, build_id })),
            address: address.wrapping_sub(base),
            function,
        };

        // The outermost of the inlined functions is the function itself.
        if functions.is_empty() {
            return vec![own];
        }

        let frame = |function: &Vec<u8>| {
            let name = table.intern(&String::from_utf8_lossy(function));
            if name == own.name {
                own
            } else {
                // The symbol at the address is that of the function that it was inlined into.
                Frame {
                    name,
                    symbol: name,
                    function: None,
                    ..own
                }
            }
        };
        functions.iter().map(frame).collect()
    }
}

/// Whether the function of the C library that a signal handler returns to starts at `address`. No
/// call is before it.
fn starts_trampoline(symbols: &mut dyn Symbols, object: &Object<'_>, address: u64) -> bool {
    let symbol = symbols.symbol(object, address);
    symbol.is_some_and(|symbol| {
        symbol.range.start == address && matches!(symbol.name, b"__restore_rt" | b"__restore")
    })
}

impl Output for Samples {
    type Piece = SampleBatch;

    fn shows_places(&self, event: usize) -> bool {
        self.placed[event]
    }

    fn head(&mut self, head: &Head<'_>, tasks: &Tasks, _: &mut dyn Symbols, out: &mut SampleBatch) {
        let number = |id: Option<i32>| id.and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        let name = self.name(tasks, head.id.tid().unwrap_or(-1));
        let (pid, tid) = (number(head.id.pid()), number(head.id.tid()));
        out.samples.push(PendingSample {
            thread: self.profile.thread(pid, tid, head.event as u32, &name),
            time: head.id.time().unwrap_or(0),
            events: head.period,
            frames: out.frames.len(),
        });
    }

    fn deferred(
        &mut self,
        _: &Tasks,
        _: &RecordId<'_>,
        _: usize,
        _: u64,
        _: &mut SampleBatch,
    ) -> bool {
        // Frames without a sample were not counted.
        false
    }

    fn place(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut SampleBatch) {
        self.find(at, false, symbols, &mut out.frames);
    }

    fn chain(&mut self, out: &mut SampleBatch) -> usize {
        out.frames.len()
    }

    fn cut(&mut self, begin: usize, out: &mut SampleBatch) {
        out.frames.truncate(begin);
    }

    fn frame(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut SampleBatch) {
        self.find(at, true, symbols, &mut out.frames);
    }

    fn instead(&mut self, _: usize, _: u64, text: &str, out: &mut SampleBatch) {
        out.frames.push(self.profile.table.label(text));
    }

    fn end(&mut self, _: &mut SampleBatch) {}

    fn append(&mut self, part: &SampleBatch, out: &mut SampleBatch) {
        let begin = out.frames.len();
        let moved = part.samples.iter().map(|sample| PendingSample {
            frames: begin + sample.frames,
            ..*sample
        });
        out.samples.extend(moved);
        out.frames.extend_from_slice(&part.frames);
    }
}
