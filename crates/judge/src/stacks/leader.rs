//! Reads a perf.data in the order of time, tracks the world, and gathers samples into batches.
//! Samples are not decoded here.

use super::batch::Batch;
use super::task::Task;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_perf_data::{self as perf, KernelCode, PerfFile, Record, Sample, misc};
use unwind_sim_recordings::files::{FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_recordings::import::Skip;
use unwind_sim_recordings::import::perf::{EventSink, Processes, ids};
use unwind_sim_recordings::jitdump::{Clock, Layout};
use unwind_sim_recordings::model::{Event, ImageIndex};
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageId, Mapping};

/// The size of the cache of task indices.
const MEMO: usize = 64;

/// The reader of the recording.
pub(super) struct Leader<F> {
    processes: Processes,
    gathering: Gathering<F>,
}

/// The world, and the samples gathered since it last changed.
struct Gathering<F> {
    filter: Filter,
    world: World,
    kernel: Arc<KernelCode>,
    finder: ImageFinder,
    images: Vec<Arc<Image>>,
    indexes: HashMap<ImageId, ImageIndex>,
    names: HashMap<String, Arc<str>>,
    batch: Batch,
    /// A cache of task indices, by pid and tid.
    memo: [(u32, u32, u32); MEMO],
    /// Takes a batch and returns it or another one.
    send: F,
    /// Whether to send a batch before every change of the world.
    eager: bool,
    skipped: BTreeMap<Skip, u64>,
}

impl<F: FnMut(Batch) -> Batch> Leader<F> {
    /// A leader that sends batches to `send`. If `eager`, it sends one before every change of the
    /// world.
    pub(super) fn new(
        file: &PerfFile<'_>,
        options: &FinderOptions,
        filter: Filter,
        eager: bool,
        send: F,
    ) -> Self {
        let mut kernel = KernelCode::default();
        for id in file.build_ids().filter_map(Result::ok) {
            kernel.build_id(&id);
        }

        Leader {
            // If build ids cannot be read, files are found by their paths.
            processes: Processes::new(file, |_| {}),
            gathering: Gathering {
                filter,
                world: World::new(),
                kernel: Arc::new(kernel),
                finder: ImageFinder::new(options.clone()),
                images: Vec::new(),
                indexes: HashMap::new(),
                names: HashMap::new(),
                batch: Batch::default(),
                // No task has the number `u32::MAX`: nothing is known yet.
                memo: [(0, 0, u32::MAX); MEMO],
                send,
                eager,
                skipped: BTreeMap::new(),
            },
        }
    }

    /// The current mappings of a process.
    pub(super) fn space(&self, pid: u32) -> Arc<AddressSpace> {
        self.gathering.world.shared_space(pid)
    }

    /// Takes the next record.
    #[inline]
    pub(super) fn event(&mut self, event: &perf::Event<'_>) {
        let _ = self.processes.before(event, &mut self.gathering);
        match &event.record {
            Record::Sample(sample) => self.gathering.sample(sample, event),
            _ => self.other(event),
        }
    }

    #[inline(never)]
    fn other(&mut self, event: &perf::Event<'_>) {
        self.gathering.kernel_code(event);
        let _ = self.processes.record(event, &mut self.gathering);
    }

    /// Sends the last batch. Returns the finder of image files, and the skipped samples.
    pub(super) fn finish(mut self) -> (ImageFinder, BTreeMap<Skip, u64>) {
        self.gathering.flush();
        (self.gathering.finder, self.gathering.skipped)
    }
}

impl<F: FnMut(Batch) -> Batch> EventSink for Gathering<F> {
    fn find(&mut self, request: &MappingRequest<'_>) -> ControlFlow<(), (Option<ImageIndex>, u64)> {
        let (image, bias) = self.finder.mapping_for(request);
        let image = image.map(|image| self.index(&image));
        ControlFlow::Continue((image, bias))
    }

    fn jitdump(
        &mut self,
        request: &MappingRequest<'_>,
        has_times: &dyn Fn(Clock) -> bool,
    ) -> Option<Arc<Layout>> {
        self.finder.jitdump(request, has_times)
    }

    fn image(&mut self, image: &Arc<Image>) -> ControlFlow<(), ImageIndex> {
        ControlFlow::Continue(self.index(image))
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        if let Event::Unmap { pid, range } = &event {
            let within = |m: &Mapping| m.range.start < range.end && range.start < m.range.end;
            if !self.world.space(*pid).mappings().iter().any(within) {
                return ControlFlow::Continue(());
            }
        }
        if self.eager {
            self.flush();
        }
        self.memo = [(0, 0, u32::MAX); MEMO];
        self.world.apply(&event, &self.images);
        ControlFlow::Continue(())
    }

    fn lost(&mut self, count: u64) {
        self.skip(Skip::Lost, count);
    }
}

impl<F: FnMut(Batch) -> Batch> Gathering<F> {
    fn index(&mut self, image: &Arc<Image>) -> ImageIndex {
        let images = &mut self.images;
        *self.indexes.entry(image.id()).or_insert_with(|| {
            images.push(image.clone());
            ImageIndex((images.len() - 1) as u32)
        })
    }

    fn skip(&mut self, why: Skip, count: u64) {
        *self.skipped.entry(why).or_default() += count;
    }

    /// Follows the kernel's code. Tasks that wait in a batch keep what was there at their time.
    fn kernel_code(&mut self, event: &perf::Event<'_>) {
        let of_kernel = event.raw.misc & misc::CPUMODE_MASK == misc::CPUMODE_KERNEL;
        match &event.record {
            Record::Mmap(mmap) if of_kernel => Arc::make_mut(&mut self.kernel).mmap(mmap),
            Record::Ksymbol(symbol) => Arc::make_mut(&mut self.kernel).ksymbol(symbol),
            Record::HeaderBuildId(id) => Arc::make_mut(&mut self.kernel).build_id(id),
            _ => return,
        }
        self.memo = [(0, 0, u32::MAX); MEMO];
    }

    /// Sends the gathered samples.
    fn flush(&mut self) {
        if !self.batch.entries.is_empty() {
            self.batch = (self.send)(std::mem::take(&mut self.batch));
        }
        self.memo = [(0, 0, u32::MAX); MEMO];
    }

    #[inline]
    fn sample(&mut self, sample: &Sample<'_>, event: &perf::Event<'_>) {
        let (pid, tid) = (sample.pid().unwrap_or(-1), sample.tid().unwrap_or(-1));

        // Process 0 is the idle task, which has no user space. perf writes -1 for a task that has
        // ended (`perf_event_pid_type` in `kernel/events/core.c`).
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

        // The number of a sample counts all of them, so if one is asked for, none is left out here.
        if only.is_none()
            && (of.is_some_and(|of| of != tid)
                || during.is_some_and(|(a, b)| !(a..b).contains(&time())))
        {
            return;
        }

        // Most samples are of a few threads, whose tasks are not looked up each time.
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
            kernel: self.kernel.clone(),
        });
        (self.batch.tasks.len() - 1) as u32
    }
}

/// The name of a thread; equal names share one allocation.
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
