//! The code of jitdump files, mapped when it was written.

use super::processes::EventSink;
use crate::jitdump::{Entry, Layout};
use crate::model::Event;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Maximum number of jitdump files of a process that are remembered.
const DUMPS_MAX: usize = 64;

/// The jitdump files of all processes, and how much of each was mapped.
#[derive(Debug, Default)]
pub(super) struct Generated {
    processes: BTreeMap<u32, Vec<Dump>>,
    /// The time of the next entry of any process.
    next: Option<u64>,
}

/// A jitdump file of a process.
#[derive(Clone, Debug)]
struct Dump {
    layout: Arc<Layout>,
    /// The number of its entries that are mapped.
    done: usize,
    /// Whether the process goes on writing it. A child has only what was there at the fork.
    grows: bool,
}

impl Dump {
    /// The next entry, if there will be one.
    fn next(&self) -> Option<&Entry> {
        self.layout.entries.get(self.done).filter(|_| self.grows)
    }
}

impl Generated {
    /// A process has mapped a jitdump file.
    pub(super) fn dump(&mut self, pid: u32, layout: Arc<Layout>) {
        let dumps = self.processes.entry(pid).or_default();
        // A recorder that is attached lists what it may also see later.
        let is_known = |dump: &Dump| Arc::ptr_eq(&dump.layout, &layout) && dump.grows;
        if !dumps.iter().any(is_known) && dumps.len() < DUMPS_MAX {
            dumps.push(Dump {
                layout,
                done: 0,
                grows: true,
            });
        }
        self.find_next();
    }

    /// A process has started another program.
    pub(super) fn exec(&mut self, pid: u32) {
        if self.processes.remove(&pid).is_some() {
            self.find_next();
        }
    }

    /// A process was forked; for a thread, `pid` is `parent_pid`.
    pub(super) fn fork(&mut self, pid: u32, parent_pid: u32) {
        if pid == parent_pid {
            return;
        }
        let inherited = self.processes.get(&parent_pid).cloned();
        self.exec(pid);
        if let Some(mut dumps) = inherited {
            dumps.iter_mut().for_each(|dump| dump.grows = false);
            self.processes.insert(pid, dumps);
        }
    }

    /// Is there code that was not mapped yet?
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.next.is_some()
    }

    fn find_next(&mut self) {
        let dumps = self.processes.values().flatten();
        self.next = dumps.filter_map(Dump::next).map(|entry| entry.time).min();
    }

    /// Maps what was written up to `time`.
    pub(super) fn before(&mut self, time: u64, sink: &mut impl EventSink) -> ControlFlow<()> {
        if self.next.is_none_or(|next| next > time) {
            return ControlFlow::Continue(());
        }
        for (pid, dumps) in &mut self.processes {
            for dump in dumps {
                while let Some(entry) = dump.next().filter(|entry| entry.time <= time) {
                    let entry = entry.clone();
                    dump.done += 1;
                    map(*pid, &entry, entry.range.clone(), sink)?;
                }
            }
        }
        self.find_next();
        ControlFlow::Continue(())
    }

    /// Memory for generated code was mapped over what was there: maps again what was written there
    /// so far. Programs change the protection of such memory, and perf records that as a mapping.
    pub(super) fn mapped(
        &self,
        pid: u32,
        range: &Range<u64>,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        let dumps = self.processes.get(&pid).into_iter().flatten();
        let written = dumps.flat_map(|dump| &dump.layout.entries[..dump.done]);
        for entry in written {
            let start = entry.range.start.max(range.start);
            let part = start..entry.range.end.min(range.end);
            if !part.is_empty() {
                map(pid, entry, part, sink)?;
            }
        }
        ControlFlow::Continue(())
    }
}

fn map(pid: u32, entry: &Entry, range: Range<u64>, sink: &mut impl EventSink) -> ControlFlow<()> {
    let image = sink.image(&entry.image)?;
    sink.event(Event::Map {
        pid,
        range,
        bias: entry.bias,
        image: Some(image),
        name: entry.image.name().to_owned(),
    })
}
