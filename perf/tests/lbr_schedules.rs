//! Branch records under random schedules: of no other task, of no other moment, and in memory
//! that is there while it is used and gone at the end.
//!
//! Each task's true calls are kept beside the kernel, which knows nothing of them. What a check
//! must find is in [`Mutation`]; each must be found within a few hundred seeds.

use std::collections::BTreeMap;

use unwind_sim_perf::lbr::{Branch, Depth, Dying, Kernel, Kind, Layout, Mutation, Storage, Tid};

const CPUS: usize = 2;
const STEPS: u64 = 300;
/// Deeper than this the ring would lose calls, and a chain could not be whole.
const DEPTH_MAX: usize = 7;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

struct World {
    kernel: Kernel,
    storage: Storage,
    random: Random,
    /// The calls of each task that have not returned, innermost last.
    tasks: BTreeMap<Tid, Vec<u64>>,
    running: [Tid; CPUS],
    next_tid: Tid,
    next_call: u64,
    system: u32,
    /// The whole system is recorded from the beginning to the end.
    always: bool,
    dying: Vec<Dying>,
    samples: u64,
}

/// What was found to be wrong.
type Wrong = &'static str;

impl World {
    fn new(seed: u64, storage: Storage, mutation: Mutation) -> Self {
        let mut world = Self {
            kernel: Kernel::new(CPUS, Depth::Eight, storage, Layout::V6_18, mutation),
            storage,
            random: Random(seed),
            tasks: BTreeMap::new(),
            running: [0; CPUS],
            next_tid: 1,
            next_call: 1,
            system: 0,
            always: seed.is_multiple_of(2),
            dying: Vec::new(),
            samples: 0,
        };
        for _ in 0..3 {
            world.fork(0);
        }
        if world.always {
            world.system(true);
        }
        world
    }

    fn any_task(&mut self) -> Tid {
        let n = self.random.below(self.tasks.len() as u64) as usize;
        self.tasks.keys().nth(n).copied().unwrap_or(0)
    }

    fn fork(&mut self, parent: Tid) {
        if self.tasks.len() < 8 {
            let inherit = self.random.below(2) == 0;
            self.kernel.fork(parent, self.next_tid, inherit);
            self.tasks.insert(self.next_tid, Vec::new());
            self.next_tid += 1;
        }
    }

    fn system(&mut self, on: bool) {
        if on {
            self.kernel.attach_system();
            self.system += 1;
        } else {
            self.kernel.detach_system();
            self.system -= 1;
        }
    }

    /// Something that changes who is recorded, on whatever CPU.
    fn change(&mut self) {
        let tid = self.any_task();
        match self.random.below(8) {
            0 | 1 => self.kernel.attach(tid),
            2 => self.kernel.detach(tid),
            3 => self.dying.extend(self.kernel.begin_detach(tid)),
            4 => self.fork(tid),
            5 if !self.always && self.system < 2 => self.system(true),
            6 if !self.always && self.system > 0 => self.system(false),
            _ => {
                if let Some(dying) = self.dying.pop() {
                    self.kernel.finish_detach(dying);
                }
            }
        }
    }

    /// Goes to another task, while others change who is recorded.
    fn switch(&mut self, cpu: usize) {
        let saving = self.kernel.begin_switch(cpu).expect("a CPU");
        if self.random.below(3) == 0 {
            self.change();
        }
        let other = self.running[1 - cpu];
        let free = self.tasks.keys().copied().filter(|&tid| tid != other);
        let mut free: Vec<Tid> = free.collect();
        free.push(0);
        let next = free[self.random.below(free.len() as u64) as usize];
        self.kernel.finish_switch(saving, next);
        self.running[cpu] = next;
    }

    fn run_on(&mut self, cpu: usize) {
        let tid = self.running[cpu];
        let Some(calls) = self.tasks.get_mut(&tid) else {
            return;
        };
        let is_call = calls.len() < DEPTH_MAX && self.random.below(5) < 3;
        let from = 0x400000 + 0x20 * self.next_call;
        let kind = if is_call {
            calls.push(from);
            self.next_call += 1;
            Kind::Call
        } else if calls.pop().is_some() {
            Kind::Return
        } else {
            return;
        };
        let branch = Branch {
            from,
            to: from + 0x100,
            kind,
            task: tid,
        };
        self.kernel.branch(cpu, branch);
    }

    fn sample(&mut self, cpu: usize) -> Result<(), Wrong> {
        let tid = self.running[cpu];
        let sample = self.kernel.sample(cpu);
        if sample.iter().any(|branch| branch.task != tid) {
            return Err("an entry of another task");
        }
        let Some(calls) = self.tasks.get(&tid) else {
            return Ok(());
        };
        self.samples += u64::from(!sample.is_empty());
        let found = sample.iter().map(|branch| branch.from);
        if !calls.iter().rev().copied().take(sample.len()).eq(found) {
            return Err("not the leaf side of the truth");
        }
        if self.always && self.storage == Storage::PerTask && sample.len() != calls.len() {
            return Err("cut though the task has memory");
        }
        Ok(())
    }

    fn exit(&mut self, tid: Tid) {
        self.kernel.exit(tid);
        self.tasks.remove(&tid);
        // It runs no further.
        for cpu in 0..CPUS {
            if self.running[cpu] == tid {
                self.switch(cpu);
            }
        }
    }

    fn run(mut self) -> Result<u64, Wrong> {
        for _ in 0..STEPS {
            let cpu = self.random.below(CPUS as u64) as usize;
            match self.random.below(16) {
                0..8 => self.run_on(cpu),
                8..11 => self.switch(cpu),
                11..14 => self.sample(cpu)?,
                14 => self.change(),
                _ => {
                    if self.random.below(3) == 0 {
                        let tid = self.any_task();
                        self.exit(tid);
                    }
                }
            }
            if self.kernel.ledger().used_after_free > 0 {
                return Err("used after it was freed");
            }
        }
        while self.system > 0 {
            self.system(false);
        }
        while let Some(tid) = self.tasks.keys().next().copied() {
            self.exit(tid);
        }
        for dying in self.dying.drain(..) {
            self.kernel.finish_detach(dying);
        }
        let ledger = self.kernel.ledger();
        if ledger.freed_twice > 0 {
            return Err("freed twice");
        }
        if ledger.bytes > 0 || ledger.allocated != ledger.freed {
            return Err("never freed");
        }
        Ok(self.samples)
    }
}

#[test]
fn no_schedule_mixes_tasks_or_loses_memory() {
    let mut samples = 0;
    for storage in [Storage::PerContext, Storage::PerTask] {
        for seed in 0..1500 {
            let world = World::new(seed, storage, Mutation::RestoreForgets);
            match world.run() {
                Ok(seen) => samples += seen,
                Err(wrong) => panic!("{storage:?}, seed {seed}: {wrong}"),
            }
        }
    }
    assert!(samples > 20_000, "{samples}");
}

/// The first seed that finds something, and what.
fn first_found(storage: Storage, mutation: Mutation) -> Option<(u64, Wrong)> {
    (0..400).find_map(|seed| {
        let wrong = World::new(seed, storage, mutation).run().err()?;
        Some((seed, wrong))
    })
}

#[test]
fn every_mutation_is_found() {
    for (storage, mutation, wrong) in [
        (
            Storage::PerTask,
            Mutation::WipeAtSwitch,
            "cut though the task has memory",
        ),
        (
            Storage::PerTask,
            Mutation::FreeAtOnce,
            "used after it was freed",
        ),
        (
            Storage::PerContext,
            Mutation::FreeAtOnce,
            "used after it was freed",
        ),
        (
            Storage::PerContext,
            Mutation::SwapWithoutData,
            "an entry of another task",
        ),
        (
            Storage::PerTask,
            Mutation::SkipWithoutLogId,
            "not the leaf side of the truth",
        ),
    ] {
        let found = first_found(storage, mutation);
        println!("{storage:?} {mutation:?}: {found:?}");
        let found = found.map(|(_, wrong)| wrong);
        assert_eq!(found, Some(wrong), "{storage:?} {mutation:?}");
    }
}

/// Linux as it is leaves records of a task that ended to the task before it; `tests/lbr.rs` has
/// the shortest way there.
#[test]
fn linux_as_it_is_leaks_where_a_task_ends() {
    let found = first_found(Storage::PerTask, Mutation::None);
    println!("{found:?}");
    assert_eq!(
        found.map(|(_, wrong)| wrong),
        Some("an entry of another task")
    );
}

/// Whatever a file says of its branch stacks: no panic, and chains within a bound.
#[test]
fn stitching_of_hostile_branch_stacks_is_bounded() {
    use unwind_sim_perf::lbr::stitch::{LbrStitcher, Stack};
    const LONGEST: usize = 1 + 40 + 1024;
    let mut longest = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let depth = [0, 1, 8, 32, u32::MAX][random.below(5) as usize];
        let mut stitcher: LbrStitcher<Branch> = LbrStitcher::new(depth);
        for _ in 0..200 {
            let hw_index = match random.below(8) {
                0 => u64::MAX - random.below(3),
                _ => random.below(u64::from(depth.min(40)) + 2),
            };
            let entry = |from| Branch {
                from,
                to: 0x400000,
                kind: Kind::Call,
                task: 1,
            };
            let len = random.below(41);
            let entries = (0..len).map(|_| entry(random.below(2))).collect();
            let chain = stitcher.chain(0x1, Stack { entries, hw_index });
            assert!(chain.len() <= LONGEST, "seed {seed}");
            longest = longest.max(chain.len());
        }
    }
    assert!(longest > 60, "nothing was stitched: {longest}");
}
