//! Converts the process records of a perf.data to events.

use super::generated::Generated;
use crate::files::{MappingRequest, may_be_jit};
use crate::jitdump::{self, Clock, Layout};
use crate::model::{Event, ImageIndex};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_perf_data::{self as perf, MmapIdentity, PerfError, PerfFile, Record, flag, misc};
use unwind_sim_unwind::image::Image;

/// `PROT_EXEC`
const PROT_EXEC: u32 = 4;

/// Receives the events.
pub trait EventSink {
    /// Finds the image of a mapping; returns its index and bias.
    fn find(&mut self, request: &MappingRequest<'_>) -> ControlFlow<(), (Option<ImageIndex>, u64)>;

    /// The code in the jitdump file of a mapping. `has_times` says which clocks the times of the
    /// samples can be compared with.
    fn jitdump(
        &mut self,
        request: &MappingRequest<'_>,
        has_times: &dyn Fn(Clock) -> bool,
    ) -> Option<Arc<Layout>>;

    /// The index of an image.
    fn image(&mut self, image: &Arc<Image>) -> ControlFlow<(), ImageIndex>;

    /// Receives the next event.
    fn event(&mut self, event: Event) -> ControlFlow<()>;

    /// The recorder lost `count` samples.
    fn lost(&mut self, count: u64);
}

/// Reads process records, and remembers build IDs by path.
#[derive(Debug, Default)]
pub struct Processes {
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
    generated: Generated,
    /// Are the times of all events those of `CLOCK_MONOTONIC`?
    is_monotonic: bool,
}

impl Processes {
    /// Loads the build IDs in the feature section of `file`. Errors are passed to `problem`.
    pub fn new(file: &PerfFile<'_>, mut problem: impl FnMut(PerfError)) -> Processes {
        /// `CLOCK_MONOTONIC` of `linux/time.h`.
        const CLOCK_MONOTONIC: i32 = 1;
        let is_monotonic = |attr: &perf::EventAttr| {
            attr.flags & flag::USE_CLOCKID != 0 && attr.clock_id == CLOCK_MONOTONIC
        };
        let mut processes = Processes {
            is_monotonic: file.attrs().iter().all(is_monotonic),
            ..Processes::default()
        };
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

    /// Maps the generated code that was written up to the time of `event`. To be called before the
    /// event is used, also if it is a sample.
    #[inline]
    pub fn before(
        &mut self,
        event: &perf::Event<'_>,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        if self.generated.is_waiting() {
            self.generated.before(event.time().unwrap_or(0), sink)
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Converts a record that is not a sample to events.
    pub fn record(
        &mut self,
        event: &perf::Event<'_>,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        match event.record {
            Record::Mmap(mmap) => {
                let time = event.time().unwrap_or(0);
                return self.mmap(&mmap, event.raw.misc, time, sink);
            }
            Record::Comm(comm) => {
                if let Some((pid, tid)) = ids(comm.pid, comm.tid) {
                    // The name comes from execve, which has replaced the address space
                    // (perf_event_open(2)).
                    if comm.exec {
                        self.generated.exec(pid);
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
                    // The child has a copy of its parent's memory, and so of the generated code.
                    self.generated.fork(pid, parent_pid);
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

    fn mmap(
        &mut self,
        mmap: &perf::Mmap<'_>,
        misc: u16,
        time: u64,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        let mode = misc & misc::CPUMODE_MASK;
        // The kernel and its modules are mapped by such records, too.
        let user = matches!(mode, misc::CPUMODE_USER | 0);
        let Some((pid, _)) = ids(mmap.pid, mmap.tid).filter(|_| user) else {
            return ControlFlow::Continue(());
        };

        let range = mmap.address..mmap.address.saturating_add(mmap.length);
        // A MMAP record has no protection; MMAP_DATA marks what is not executable
        // (perf_event_open(2)).
        let executable = misc & misc::MMAP_DATA == 0
            && (mmap.identity == MmapIdentity::Path || mmap.protection & PROT_EXEC != 0);
        if !executable {
            // Whatever was mapped there is no longer executable.
            return sink.event(Event::Unmap { pid, range });
        }

        let name = text(mmap.path);
        // Without `--buildid-mmap`, build IDs are in a table of the file's header.
        let build_id = match mmap.identity {
            MmapIdentity::BuildId(id) => id,
            _ => self.build_ids.get(mmap.path).map_or(&[][..], Vec::as_slice),
        };
        let request = MappingRequest {
            pid,
            name: &name,
            range: range.clone(),
            file_offset: mmap.file_offset,
            executable,
            build_id,
        };

        let (image, bias) = sink.find(&request)?;
        let is_jitdump = jitdump::is_name(&name);
        if is_jitdump {
            let is_monotonic = self.is_monotonic;
            let has_times = |clock| clock == Clock::Monotonic && is_monotonic;
            if let Some(layout) = sink.jitdump(&request, &has_times) {
                self.generated.dump(pid, layout);
            }
        }

        let is_generated = may_be_jit(&name);
        sink.event(Event::Map {
            pid,
            range: range.clone(),
            bias,
            image,
            name,
        })?;
        if is_generated {
            // The program may only have changed the protection of its generated code.
            self.generated.mapped(pid, &range, sink)?;
        }

        if is_jitdump {
            self.generated.before(time, sink)
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Process and thread IDs; `None` if either is the kernel's -1.
pub fn ids(pid: i32, tid: i32) -> Option<(u32, u32)> {
    Some((u32::try_from(pid).ok()?, u32::try_from(tid).ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
