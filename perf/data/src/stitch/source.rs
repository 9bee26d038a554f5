//! Converts the events of a perf.data file to stitching items.

use std::ops::ControlFlow;

use super::{Item, ItemKind};
use crate::{Event, PerfFile, Record, Summary, flag, misc};

/// Numbers the events of a file and converts them to items.
///
/// The key of an item is the index of its event among all events, from 0.
#[derive(Debug, Default)]
pub struct Feed {
    next_key: u64,
}

impl Feed {
    /// The item of the next event; `None` if it is irrelevant for stitching. An unreadable
    /// callchain is treated as empty.
    pub fn item(&mut self, event: &Event<'_>) -> Option<Item> {
        // Counted for every event, so that a key is the event's place in the file.
        let key = self.next_key;
        self.next_key += 1;

        // Without `sample_id_all`, a record has no trailer; some name their thread in the body.
        let mut tid = event.id().tid().unwrap_or(-1);
        let what = match event.record {
            Record::Sample(sample) => {
                let chain = sample.callchain().ok().flatten().unwrap_or_default();
                ItemKind::Sample {
                    defer: sample.attr().flags & flag::DEFER_CALLCHAIN != 0,
                    chain: chain.words().collect(),
                    ip: sample
                        // Only in user mode is the sampled address one of user space.
                        .ip()
                        .filter(|_| sample.cpumode() == misc::CPUMODE_USER),
                }
            }
            Record::CallchainDeferred { cookie, chain } => ItemKind::Record {
                // The form of 2023 has none, which is read as 0.
                cookie: Some(cookie).filter(|&cookie| cookie != 0),
                frames: chain.words().collect(),
            },
            Record::Fork(task) => {
                tid = task.tid;
                ItemKind::Fork
            }
            Record::Exit(task) => {
                tid = task.tid;
                ItemKind::Exit
            }
            Record::Comm(comm) if comm.exec => {
                tid = comm.tid;
                ItemKind::Exec
            }
            Record::Mmap(mmap) if mmap.path == b"[vdso]" => {
                tid = mmap.tid;
                ItemKind::Vdso
            }
            Record::Lost { lost: count, .. } | Record::LostSamples { lost: count } => {
                ItemKind::Lost { count }
            }
            _ => return None,
        };

        Some(Item {
            key,
            time: event.time(),
            tid,
            event: event.id().id().unwrap_or(0),
            what,
        })
    }
}

/// Passes the items of a file, in time order, to a closure.
pub fn items(file: &PerfFile<'_>, mut take: impl FnMut(Item) -> ControlFlow<()>) -> Summary {
    let mut feed = Feed::default();
    file.for_each_ordered(|event| match feed.item(&event) {
        Some(item) => take(item),
        None => ControlFlow::Continue(()),
    })
}
