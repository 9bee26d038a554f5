//! Reads a perf.data in the order of time: keeps the world, and gathers samples into batches.
//!
//! What the records say about processes is taken as the importer takes it
//! (`unwind_sim_recordings::import::perf`); a test holds the two equal. Samples are not looked into
//! here.

use super::batch::Batch;
use super::task::Task;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{MmapIdentity, Record, Sample, misc};
use unwind_sim_recordings::files::{FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_recordings::import::Skip;
use unwind_sim_recordings::model::{Event, ImageIndex};
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageId};

/// `PROT_EXEC`
const PROT_EXEC: u32 = 4;

/// Places of the memory for tasks of a batch.
const MEMO: usize = 64;

/// What reads the recording.
pub(super) struct Leader<F> {
    filter: Filter,
    world: World,
    pub(super) finder: ImageFinder,
    images: Vec<Arc<Image>>,
    indexes: HashMap<ImageId, ImageIndex>,
    /// Path to build id, as noted at the end of the recording.
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
    names: HashMap<String, Arc<str>>,
    batch: Batch,
    /// Index of the task with this pid and tid.
    memo: [(u32, u32, u32); MEMO],
    /// Takes a batch and gives it back, or another.
    send: F,
    /// Is a batch to be sent before the world changes?
    eager: bool,
    pub(super) skipped: BTreeMap<Skip, u64>,
}

/// Process and thread as numbers of our model; the kernel's -1 is none.
fn ids(pid: i32, tid: i32) -> Option<(u32, u32)> {
    Some((u32::try_from(pid).ok()?, u32::try_from(tid).ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl<F: FnMut(Batch) -> Batch> Leader<F> {
    /// A leader that sends batches to `send`; before every change of the world if `eager`.
    pub(super) fn new(
        file: &PerfFile<'_>,
        options: &FinderOptions,
        filter: Filter,
        eager: bool,
        send: F,
    ) -> Self {
        let mut leader = Leader {
            filter,
            world: World::new(),
            finder: ImageFinder::new(options.clone()),
            images: Vec::new(),
            indexes: HashMap::new(),
            build_ids: HashMap::new(),
            names: HashMap::new(),
            batch: Batch::default(),
            memo: [(0, 0, u32::MAX); MEMO],
            send,
            eager,
            skipped: BTreeMap::new(),
        };
        for build_id in file.build_ids().flatten() {
            leader.build_id(&build_id);
        }
        leader
    }

    /// What a process has mapped now.
    pub(super) fn space(&self, pid: u32) -> Arc<AddressSpace> {
        self.world.shared_space(pid)
    }

    fn skip(&mut self, why: Skip, count: u64) {
        *self.skipped.entry(why).or_default() += count;
    }

    fn build_id(&mut self, build_id: &unwind_sim_perf_data::BuildId<'_>) {
        if !build_id.kernel {
            let id = || build_id.id.to_vec();
            self.build_ids
                .entry(build_id.path.to_vec())
                .or_insert_with(id);
        }
    }

    /// Sends what is gathered.
    pub(super) fn flush(&mut self) {
        if !self.batch.entries.is_empty() {
            self.batch = (self.send)(std::mem::take(&mut self.batch));
        }
        self.memo = [(0, 0, u32::MAX); MEMO];
    }

    /// Takes the next record.
    #[inline]
    pub(super) fn event(&mut self, event: &unwind_sim_perf_data::Event<'_>) -> ControlFlow<()> {
        match &event.record {
            Record::Sample(sample) => self.sample(sample, event),
            _ => self.other(event),
        }
        ControlFlow::Continue(())
    }

    #[inline(never)]
    fn other(&mut self, event: &unwind_sim_perf_data::Event<'_>) {
        match event.record {
            Record::Mmap(mmap) => self.mmap(&mmap, event.raw.misc),
            Record::Comm(comm) => {
                let Some((pid, tid)) = ids(comm.pid, comm.tid) else {
                    return;
                };
                if comm.exec {
                    self.apply(&Event::Exec { pid });
                }
                self.apply(&Event::Comm {
                    pid,
                    tid,
                    name: text(comm.name),
                });
            }
            Record::Fork(task) => {
                let parent = ids(task.ppid, task.ptid);
                if let (Some((pid, tid)), Some((parent_pid, _))) = (ids(task.pid, task.tid), parent)
                {
                    self.apply(&Event::Fork {
                        pid,
                        tid,
                        parent_pid,
                    });
                }
            }
            Record::Exit(task) => {
                if let Some((pid, tid)) = ids(task.pid, task.tid) {
                    self.apply(&Event::Exit { pid, tid });
                }
            }
            Record::Lost { lost, .. } | Record::LostSamples { lost } => self.skip(Skip::Lost, lost),
            Record::HeaderBuildId(build_id) => self.build_id(&build_id),
            _ => {}
        }
    }

    fn apply(&mut self, event: &Event) {
        if self.eager {
            self.flush();
        }
        self.memo = [(0, 0, u32::MAX); MEMO];
        self.world.apply(event, &self.images);
    }

    fn mmap(&mut self, mmap: &unwind_sim_perf_data::Mmap<'_>, misc: u16) {
        let mode = misc & misc::CPUMODE_MASK;
        let user = matches!(mode, misc::CPUMODE_USER | 0);
        let Some((pid, _)) = ids(mmap.pid, mmap.tid).filter(|_| user) else {
            return;
        };
        let range = mmap.address..mmap.address.saturating_add(mmap.length);
        let executable = misc & misc::MMAP_DATA == 0
            && (mmap.identity == MmapIdentity::Path || mmap.protection & PROT_EXEC != 0);
        if !executable {
            let within = |m: &unwind_sim_unwind::image::Mapping| {
                m.range.start < range.end && range.start < m.range.end
            };
            if self.world.space(pid).mappings().iter().any(within) {
                self.apply(&Event::Unmap { pid, range });
            }
            return;
        }
        let name = text(mmap.path);
        let build_id = match mmap.identity {
            MmapIdentity::BuildId(id) => id,
            _ => self.build_ids.get(mmap.path).map_or(&[][..], Vec::as_slice),
        };
        let (image, bias) = self.finder.mapping_for(&MappingRequest {
            pid,
            name: &name,
            range: range.clone(),
            file_offset: mmap.file_offset,
            executable,
            build_id,
        });
        let image = image.map(|image| {
            let images = &mut self.images;
            *self.indexes.entry(image.id()).or_insert_with(|| {
                images.push(image);
                ImageIndex((images.len() - 1) as u32)
            })
        });
        self.apply(&Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        });
    }

    #[inline]
    fn sample(&mut self, sample: &Sample<'_>, event: &unwind_sim_perf_data::Event<'_>) {
        let (pid, tid) = (sample.pid().unwrap_or(-1), sample.tid().unwrap_or(-1));
        let Some((pid, tid)) = ids(pid, tid).filter(|ids| ids.0 != 0) else {
            return self.skip(Skip::NoProcess, 1);
        };
        let Filter {
            sample: only,
            tid: of,
            time: during,
            ..
        } = self.filter;
        let time = || sample.time().unwrap_or(0);
        if only.is_none()
            && (of.is_some_and(|of| of != tid)
                || during.is_some_and(|(a, b)| !(a..b).contains(&time())))
        {
            return;
        }
        let at = tid as usize % MEMO;
        let task = match self.memo[at] {
            (p, t, task) if (p, t) == (pid, tid) && task != u32::MAX => task,
            _ => {
                let task = self.task(pid, tid);
                self.memo[at] = (pid, tid, task);
                task
            }
        };
        self.batch.add(&event.raw, task);
        if self.batch.is_full() {
            self.flush();
        }
    }

    #[inline(never)]
    fn task(&mut self, pid: u32, tid: u32) -> u32 {
        let name = thread_name(&self.world, &mut self.names, pid, tid);
        let space = self.world.shared_space(pid);
        self.batch.tasks.push(Task {
            pid,
            tid,
            name,
            space,
        });
        (self.batch.tasks.len() - 1) as u32
    }
}

/// The name of a thread, each name made once.
pub(super) fn thread_name(
    world: &World,
    names: &mut HashMap<String, Arc<str>>,
    pid: u32,
    tid: u32,
) -> Arc<str> {
    let name = match world.name(pid, tid) {
        Some(name) => name,
        None => return format!(":{tid}").into(),
    };
    match names.get(name) {
        Some(known) => known.clone(),
        None => {
            let made: Arc<str> = name.into();
            names.insert(name.to_owned(), made.clone());
            made
        }
    }
}
