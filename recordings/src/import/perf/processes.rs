//! Converts the process records of a perf.data to events.

use crate::files::MappingRequest;
use crate::model::{Event, ImageIndex};
use std::collections::HashMap;
use std::ops::ControlFlow;
use unwind_sim_perf_data::{self as perf, MmapIdentity, PerfError, PerfFile, Record, misc};

/// `PROT_EXEC`
const PROT_EXEC: u32 = 4;

/// Receives the events.
pub trait EventSink {
    /// Finds the image of a mapping; returns its index and bias.
    fn find(&mut self, request: &MappingRequest<'_>) -> ControlFlow<(), (Option<ImageIndex>, u64)>;

    /// Receives the next event.
    fn event(&mut self, event: Event) -> ControlFlow<()>;

    /// The recorder lost `count` samples.
    fn lost(&mut self, count: u64);
}

/// Reads process records, and remembers build IDs by path.
#[derive(Debug, Default)]
pub struct Processes {
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
}

impl Processes {
    /// Loads the build IDs in the feature section of `file`. Errors are passed to `problem`.
    pub fn new(file: &PerfFile<'_>, mut problem: impl FnMut(PerfError)) -> Processes {
        let mut processes = Processes::default();
        for build_id in file.build_ids() {
            match build_id {
                Ok(build_id) => processes.build_id(&build_id),
                Err(error) => problem(error),
            }
        }
        processes
    }

    fn build_id(&mut self, build_id: &perf::BuildId<'_>) {
        if !build_id.kernel {
            let path = build_id.path.to_vec();
            self.build_ids
                .entry(path)
                .or_insert_with(|| build_id.id.to_vec());
        }
    }

    /// Converts a record that is not a sample to events.
    pub fn record(
        &mut self,
        event: &perf::Event<'_>,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        match event.record {
            Record::Mmap(mmap) => return self.mmap(&mmap, event.raw.misc, sink),
            Record::Comm(comm) => {
                if let Some((pid, tid)) = ids(comm.pid, comm.tid) {
                    if comm.exec {
                        sink.event(Event::Exec { pid })?;
                    }
                    let name = text(comm.name);
                    return sink.event(Event::Comm { pid, tid, name });
                }
            }
            Record::Fork(task) => {
                let parent = ids(task.ppid, task.ptid);
                if let (Some((pid, tid)), Some((parent_pid, _))) = (ids(task.pid, task.tid), parent)
                {
                    return sink.event(Event::Fork {
                        pid,
                        tid,
                        parent_pid,
                    });
                }
            }
            Record::Exit(task) => {
                if let Some((pid, tid)) = ids(task.pid, task.tid) {
                    return sink.event(Event::Exit { pid, tid });
                }
            }
            Record::Lost { lost, .. } | Record::LostSamples { lost } => sink.lost(lost),
            Record::HeaderBuildId(build_id) => self.build_id(&build_id),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn mmap(&self, mmap: &perf::Mmap<'_>, misc: u16, sink: &mut impl EventSink) -> ControlFlow<()> {
        let mode = misc & misc::CPUMODE_MASK;
        let user = matches!(mode, misc::CPUMODE_USER | 0);
        let Some((pid, _)) = ids(mmap.pid, mmap.tid).filter(|_| user) else {
            return ControlFlow::Continue(());
        };
        let range = mmap.address..mmap.address.saturating_add(mmap.length);
        let executable = misc & misc::MMAP_DATA == 0
            && (mmap.identity == MmapIdentity::Path || mmap.protection & PROT_EXEC != 0);
        if !executable {
            // Whatever was mapped there is no longer executable.
            return sink.event(Event::Unmap { pid, range });
        }
        let name = text(mmap.path);
        let build_id = match mmap.identity {
            MmapIdentity::BuildId(id) => id,
            _ => self.build_ids.get(mmap.path).map_or(&[][..], Vec::as_slice),
        };
        let (image, bias) = sink.find(&MappingRequest {
            pid,
            name: &name,
            range: range.clone(),
            file_offset: mmap.file_offset,
            executable,
            build_id,
        })?;
        sink.event(Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        })
    }
}

/// Process and thread IDs; `None` if either is the kernel's -1.
pub fn ids(pid: i32, tid: i32) -> Option<(u32, u32)> {
    Some((u32::try_from(pid).ok()?, u32::try_from(tid).ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
