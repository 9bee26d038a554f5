//! Collects the samples of `perf script` in a profile.

use hashbrown::HashMap;
use std::sync::Arc;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{EventAttr, RecordId, sample_type as st};
use unwind_sim_perf_script::{Address, Head, Output, Tasks, event_name};
use unwind_sim_recordings::symbols::{Object, Symbols};
use unwind_sim_view::profile::gathered::{GatherKind, Profile};
use unwind_sim_view::profile::symbols::bracketed;
use unwind_sim_view::profile::table::{Frame, Image};

/// An address of a process in an object. Equal places have equal frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    address: u64,
    bias: u64,
    /// `None` without an object.
    object: Option<u32>,
}

/// A sample whose frames follow those of the previous one.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// The number of its thread, and the node that its stack is added to.
    thread: (u32, u32),
    time: u64,
    events: u64,
    /// Index of its first frame.
    frames: usize,
}

/// Samples with their frames, innermost first.
#[derive(Debug, Default)]
pub(super) struct Piece {
    samples: Vec<Begun>,
    frames: Vec<u32>,
}

/// Collects samples in a profile. Its series are the recording's events.
#[derive(Debug)]
pub(super) struct Samples {
    profile: Profile,
    /// For each event, whether it has an address or a chain.
    placed: Vec<bool>,
    frames: HashMap<Place, u32>,
    /// The last name of each thread.
    names: HashMap<i32, Arc<str>>,
}

impl Samples {
    pub(super) fn new(file: &PerfFile<'_>, kind: GatherKind) -> Self {
        let attrs = file.attrs();
        let is_placed = |attr: &EventAttr| attr.sample_type & (st::IP | st::CALLCHAIN) != 0;
        Self {
            profile: Profile::new(kind, attrs.iter().map(event_name).collect()),
            placed: attrs.iter().map(is_placed).collect(),
            frames: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Adds samples to the profile.
    pub(super) fn take(&mut self, piece: &mut Piece) {
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

    fn find(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols) -> u32 {
        let place = Place {
            address: at.value,
            bias: at.map.map_or(0, |map| map.bias),
            object: at.map.map(|map| map.object),
        };
        if let Some(&frame) = self.frames.get(&place) {
            return frame;
        }
        let frame = self.look(at, symbols);
        let frame = self.profile.table.add(frame);
        self.frames.insert(place, frame);
        frame
    }

    fn look(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols) -> Frame {
        let Address {
            tasks,
            map,
            value: address,
            ..
        } = *at;
        let table = &mut self.profile.table;
        let object = map.and_then(|map| Some((map, tasks.object(map.object)?)));
        let Some((map, object)) = object else {
            return Frame {
                name: table.intern("[unknown]"),
                image: None,
                address,
                function: None,
            };
        };
        let path = String::from_utf8_lossy(&tasks.object_name(map.object)).into_owned();
        let address = address.wrapping_add(map.bias);
        let symbol = symbols.symbol(&object, address);
        let name = match &symbol {
            Some(symbol) => table.intern(&String::from_utf8_lossy(symbol.name)),
            None => table.intern(&bracketed(&path)),
        };
        // Kernel addresses are relative to its start, which differs from boot to boot.
        let base = match object {
            Object::Kernel(_) => map.start,
            _ => 0,
        };
        let build_id = match object {
            Object::File { build_id, .. } => build_id.to_vec(),
            _ => Vec::new(),
        };
        let function = symbol.map(|symbol| {
            let size = symbol.range.end.saturating_sub(symbol.range.start);
            (symbol.range.start.wrapping_sub(base), size)
        });
        Frame {
            name,
            image: Some(table.image(&Image { path, build_id })),
            address: address.wrapping_sub(base),
            function,
        }
    }
}

impl Output for Samples {
    type Piece = Piece;

    fn shows_places(&self, event: usize) -> bool {
        self.placed[event]
    }

    fn head(&mut self, head: &Head<'_>, tasks: &Tasks, _: &mut dyn Symbols, out: &mut Piece) {
        let number = |id: Option<i32>| id.and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        let name = self.name(tasks, head.id.tid().unwrap_or(-1));
        let (pid, tid) = (number(head.id.pid()), number(head.id.tid()));
        out.samples.push(Begun {
            thread: self.profile.thread(pid, tid, head.event as u32, &name),
            time: head.id.time().unwrap_or(0),
            events: head.period,
            frames: out.frames.len(),
        });
    }

    fn deferred(&mut self, _: &Tasks, _: &RecordId<'_>, _: usize, _: u64, _: &mut Piece) -> bool {
        // Frames without a sample were not counted.
        false
    }

    fn place(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Piece) {
        out.frames.push(self.find(at, symbols));
    }

    fn chain(&mut self, out: &mut Piece) -> usize {
        out.frames.len()
    }

    fn cut(&mut self, begin: usize, out: &mut Piece) {
        out.frames.truncate(begin);
    }

    fn frame(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Piece) {
        out.frames.push(self.find(at, symbols));
    }

    fn instead(&mut self, _: usize, _: u64, text: &str, out: &mut Piece) {
        out.frames.push(self.profile.table.label(text));
    }

    fn end(&mut self, _: &mut Piece) {}

    fn append(&mut self, part: &Piece, out: &mut Piece) {
        let begin = out.frames.len();
        let moved = part.samples.iter().map(|sample| Begun {
            frames: begin + sample.frames,
            ..*sample
        });
        out.samples.extend(moved);
        out.frames.extend_from_slice(&part.frames);
    }
}
