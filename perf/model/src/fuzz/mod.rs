//! Random schedules: a seed determines a setup and a list of actions, the oracle judges the run,
//! and a failing schedule is shrunk.

mod vary;

use crate::action::Action;
use crate::mutant::Mutant;
use crate::oracle::Violation;
use crate::oracle::join;
use crate::programs::{ObjectRequest, built_in};
use crate::random::Random;
use crate::sampling::{Constant, UserOnly};
use crate::setup::{CgroupSetup, EventSetup, Form, Kind, PMU_PERIOD_MIN, RfcBuffer, Setup};
use crate::stack::{Leaf, Numbered, Scripted, StackId, StackSource};
use crate::world::World;
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_lbr::{Depth, Mutation, Storage};

/// A reproducible run: its setup and its actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The setup.
    pub setup: Setup,
    /// The events.
    pub events: Vec<EventSetup>,
    /// The tasks at the start: thread and stack, or no stack for a kernel thread.
    pub tasks: Vec<(i32, Option<StackId>)>,
    /// The stacks; `None` for [`Numbered`] ones.
    pub stacks: Option<Scripted>,
    /// The handlers from object files, numbered after the built-in ones.
    pub programs: Vec<ObjectRequest>,
    /// The actions. Actions that are refused do nothing.
    pub actions: Vec<Action>,
}

/// Attempts per action, as actions may be refused.
const TRIES_PER_ACTION: usize = 20;
/// The number of stacks of a task; no two tasks share one.
const STACKS_PER_TASK: u32 = Numbered::OF_TASK;

impl Schedule {
    /// The schedule of a seed, with this many actions.
    pub fn random(seed: u64, actions: usize, mutant: Option<Mutant>) -> Self {
        Self::grow(seed, actions, mutant).0
    }

    /// The schedule of a seed, and the violations that the oracle finds in its run.
    pub fn random_judged(
        seed: u64,
        actions: usize,
        mutant: Option<Mutant>,
    ) -> (Self, Vec<Violation>) {
        let (schedule, world) = Self::grow(seed, actions, mutant);
        let violations = world.map(|world| violations(&world)).unwrap_or_default();
        (schedule, violations)
    }

    /// Grows a schedule while it runs, from actions that are not refused.
    fn grow(seed: u64, actions: usize, mutant: Option<Mutant>) -> (Self, Option<World>) {
        let mut rng = Random::new(seed);
        let form = match mutant {
            // The defects of cookies and of the cache only exist in this form.
            Some(Mutant::CookieReused | Mutant::StaleCache) => Form::Upstream,
            _ if rng.chance(1, 4) => Form::Rfc2023,
            _ => Form::Upstream,
        };

        // Defects of branch records need branch records, and each one its kind of memory.
        let of_branches = mutant.and_then(Mutant::of_branches);
        let has_cgroup = of_branches == Some(Mutation::SaveAtCgroupSwitch) || seed % 5 == 1;
        let lbr_storage = match (of_branches, rng.chance(1, 3)) {
            (Some(Mutation::SwapWithoutData), _) | (None, true) => Storage::PerContext,
            _ if has_cgroup && seed.is_multiple_of(2) => Storage::PerCgroup,
            _ => Storage::PerTask,
        };
        let has_branches = of_branches.is_some() || rng.chance(1, 2);

        let setup = Setup {
            form,
            mutant,
            // Two CPUs have to use the memory of one task.
            cpus: 1 + u16::from(has_branches) + rng.below(3 - usize::from(has_branches)) as u16,
            // The low limit makes the kernel throttle events.
            samples_per_tick: if rng.chance(1, 4) { 4 } else { 100 },
            rfc_buffer: if rng.chance(1, 2) {
                RfcBuffer::Allocated
            } else {
                RfcBuffer::OnStack
            },
            timer_tracepoint: rng.chance(1, 4),
            lbr_storage,
            lbr_depth: Depth::ALL[rng.below(3)],
            software_branches: seed.is_multiple_of(3),
            cgroups: if has_cgroup {
                vec![CgroupSetup {
                    name: "group".to_owned(),
                    tids: vec![1, 2],
                }]
            } else {
                Vec::new()
            },
            ..Setup::default()
        };

        // Every task has stacks of its own, so that one can tell whose a frame is.
        let mut tasks: Vec<(i32, Option<StackId>)> = (0..2 + rng.below(3))
            .map(|task| {
                (
                    task as i32 + 1,
                    Some(StackId(task as u32 * STACKS_PER_TASK)),
                )
            })
            .collect();

        // A kernel thread.
        if rng.chance(1, 3) {
            tasks.push((100, None));
        }

        let kinds = [
            Kind::Pmu,
            Kind::Timer,
            Kind::Tracepoint,
            Kind::Uprobe,
            Kind::Pmu,
            Kind::Software,
        ];
        let few = if has_branches { 3 } else { 1 };
        let count = few + rng.below(kinds.len() + 1 - few);
        // The first event, which takes the records of others, can be of every kind.
        let rotate = rng.below(kinds.len());
        let is_late = |rng: &mut Random| has_branches && rng.chance(1, 4);

        let events = (0..count).map(|index| {
            let kind = kinds[(index + rotate) % kinds.len()];
            // At least one event takes the records of user frames.
            let defer_output = form == Form::Upstream && (index == 0 || rng.chance(1, 6));
            let part = if has_branches { 2 } else { 5 };
            let only = (index > 0 && rng.chance(1, part)).then(|| 1 + rng.below(2) as i32);
            let hertz = 20_000 + rng.below(300_000) as u64;
            let is_rate = kind == Kind::Pmu && rng.chance(1, 8);
            let period = 2_000 + rng.below(60_000) as u64;
            EventSetup {
                name: format!("{}{index}", kind.as_str()),
                kind,
                period: if is_rate { PMU_PERIOD_MIN } else { period },
                frequency: is_rate.then_some(hertz),
                tid: only,
                cgroup: (has_cgroup && index > 0 && only.is_none()).then_some(0),
                inherit: rng.chance(1, 2),
                has_callchain: !rng.chance(1, 6),
                defer_callchain: !rng.chance(1, 6),
                defer_output,
                branch_stack: match kind {
                    Kind::Pmu => has_branches && !rng.chance(1, 4),
                    _ => has_branches && setup.software_branches && seed >> index & 1 != 0,
                },
                is_opened_later: index > 0 && !defer_output && is_late(&mut rng),
                exclude_user: rng.chance(1, 12),
                exclude_kernel: rng.chance(1, 12),
                exclude_idle: rng.chance(1, 3),
                regs_intr: seed.is_multiple_of(4),
                // `report`, which the oracle knows.
                program: match kind {
                    Kind::Pmu | Kind::Timer | Kind::Software if seed % 7 == 2 => Some(5),
                    _ => None,
                },
                max_stack: if rng.chance(1, 8) { 8 } else { 127 },
                // A small ring loses records.
                ring_bytes: if rng.chance(1, 3) {
                    600 + rng.below(2000) as u32
                } else {
                    1 << 20
                },
                ..EventSetup::default()
            }
        });

        // An event without samples of its own, which takes what programs write.
        let mut events: Vec<_> = events.collect();
        if rng.chance(1, 2) {
            events.push(EventSetup {
                name: "outputs".to_owned(),
                kind: Kind::BpfOutput,
                defer_callchain: false,
                defer_output: false,
                ring_bytes: 600 + 600 * rng.below(20) as u32,
                ..EventSetup::default()
            });
        }

        // The same source of numbers goes on: one seed gives the whole schedule.
        let mut maker = Maker {
            cpus: usize::from(setup.cpus),
            events: events.len(),
            tasks: tasks.len(),
            has_branches,
            closed: None,
            next: 101,
            rng,
        };

        let mut schedule = Self {
            setup,
            events,
            tasks,
            stacks: None,
            programs: Vec::new(),
            actions: Vec::with_capacity(actions),
        };

        // An action is tried in the world itself, which knows best what is possible.
        let mut world = schedule.world();
        // Many actions are refused where they fall.
        let mut tries = actions * TRIES_PER_ACTION;
        while let Ok(world) = &mut world
            && schedule.actions.len() < actions
            && tries > 0
        {
            tries -= 1;
            let action = maker.action();
            if world.apply(action).is_ok() {
                schedule.actions.push(action);
            }
        }

        if let Ok(world) = &mut world {
            world.finish();
        }

        (schedule, world.ok())
    }

    /// The world at the start.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn world(&self) -> Result<World, (usize, crate::setup::Refusal)> {
        let stacks: Box<dyn StackSource> = match &self.stacks {
            Some(stacks) => Box::new(stacks.clone()),
            None => Box::new(Numbered),
        };
        let mut world = World::new(self.setup.clone(), self.events.clone(), stacks)?;
        for &(tid, stack) in &self.tasks {
            world.add_task(tid, stack);
        }
        world.add_handler(Box::new(Constant(true)));
        world.add_handler(Box::new(Constant(false)));
        world.add_handler(Box::new(UserOnly(true)));
        world.add_handler(Box::new(UserOnly(false)));
        for program in built_in() {
            world.add_program(program);
        }
        for program in self.programs.iter().filter_map(|r| r.loaded.as_ref()) {
            world.add_program(program.clone());
        }
        world.check_programs()?;
        Ok(world)
    }

    /// Runs the schedule. Returns the actions that were not refused.
    pub fn run(&self, world: &mut World) -> Vec<Action> {
        let mut done = Vec::new();
        for &action in &self.actions {
            if world.apply(action).is_ok() {
                done.push(action);
            }
        }
        world.finish();
        done
    }

    /// Runs the schedule and returns the violations that the oracle finds. A schedule whose events
    /// are refused has none.
    pub fn judge(&self) -> Vec<Violation> {
        let Ok(mut world) = self.world() else {
            return Vec::new();
        };
        for &action in &self.actions {
            // Refused actions do nothing.
            let _ = world.apply(action);
        }
        world.finish();
        violations(&world)
    }

    /// A smaller schedule that breaks the same rule as the first violation of this one. Actions are
    /// removed by halves and then one by one.
    pub fn shrink(&self) -> Self {
        let Some(rule) = self.judge().first().map(|violation| violation.rule) else {
            return self.clone();
        };
        // The same rule, not the same violation: time and text change with the schedule.
        let fails = |schedule: &Self| schedule.judge().iter().any(|v| v.rule == rule);

        // Refused actions first: they have no effect, and would only be tried one by one.
        let mut best = self.clone();
        if let Ok(mut world) = best.world() {
            best.actions = best.run(&mut world);
        }

        let mut part = best.actions.len().div_ceil(2);
        while part > 0 {
            let (mut at, mut shorter) = (0, false);
            while at < best.actions.len() {
                let mut tried = best.clone();
                let end = (at + part).min(tried.actions.len());
                tried.actions.drain(at..end);
                if fails(&tried) {
                    best = tried;
                    shorter = true;
                } else {
                    at += part;
                }
            }

            // Removing one action may make another one needless, so single ones are tried until
            // none goes.
            if part == 1 && !shorter {
                break;
            }
            part = if part == 1 { 1 } else { part / 2 };
        }

        // A removal may have made later actions impossible.
        if let Ok(mut world) = best.world() {
            best.actions = best.run(&mut world);
        }
        best
    }
}

/// The violations of a finished run, including those of our own stitcher.
fn violations(world: &World) -> Vec<Violation> {
    join(world, Mode::Own).violations
}

/// A generator of actions.
struct Maker {
    cpus: usize,
    events: usize,
    tasks: usize,
    has_branches: bool,
    /// The last action, if it closed an event: its CPU and the event.
    closed: Option<(u16, u16)>,
    /// The next thread number for fork.
    next: i32,
    rng: Random,
}

impl Maker {
    fn stack(&mut self, tid: i32) -> StackId {
        // By thread, so that a frame identifies its thread. A forked task starts with its parent's
        // stack and goes on with its own.
        let of = tid.max(1) as u32 - 1;
        StackId(of * STACKS_PER_TASK + self.rng.below(STACKS_PER_TASK as usize) as u32)
    }

    fn tid(&mut self) -> i32 {
        let made = (self.next - 101) as usize;
        match self.rng.below(self.tasks + made + 1) {
            0 => 0,
            n if n <= self.tasks => n as i32,
            n => 100 + (n - self.tasks) as i32,
        }
    }

    fn action(&mut self) -> Action {
        let cpu = self.rng.below(self.cpus) as u16;
        let event = self.rng.below(self.events) as u16;

        if let Some((on, event)) = self.closed.take()
            && self.rng.chance(1, 2)
        {
            // Opened again on another CPU before its memory is freed.
            let cpu = (on + 1) % self.cpus as u16;
            return Action::Open { cpu, event };
        }

        match self.rng.below(100) {
            // Steps most of all: only by them goes on what was begun.
            0..38 => Action::Step { cpu },
            38..46 if !self.has_branches => Action::Step { cpu },
            38..40 => Action::Open { cpu, event },
            40..42 => {
                self.closed = Some((cpu, event));
                Action::Close { cpu, event }
            }
            42..46 => self.user(cpu),
            // Samples at chosen moments, besides those that come by themselves.
            46..54 => Action::Sample { cpu, event },
            54..59 => Action::Run {
                cpu,
                ns: 100 + self.rng.below(4_000) as u64,
            },
            59..66 => Action::Syscall { cpu },
            66..72 => Action::Leave { cpu },
            72..73 => Action::Kernel {
                cpu,
                address: crate::KERNEL_TEXT + 0x5000 + self.rng.below(0x1000) as u64,
            },
            73..77 => self.user(cpu),
            77..85 => {
                let tid = self.tid();
                // In two halves, so that something may come between them.
                if self.has_branches && self.rng.chance(1, 2) {
                    Action::SwitchBegin { cpu, tid }
                } else {
                    Action::Switch { cpu, tid }
                }
            }
            85..86 => Action::Irq { cpu },
            86..87 => Action::Expire { cpu, event },
            87..88 => Action::Softirq { cpu },
            88..91 => Action::Uprobe { cpu },
            91..93 => {
                let tid = self.tid();
                let stack = self.stack(tid);
                Action::Signal { tid, stack }
            }
            93..94 => Action::Finish { cpu },
            94..95 => Action::Read { cpu },
            95..96 => {
                let tid = self.tid();
                let stack = self.stack(tid);
                Action::Exec { cpu, stack }
            }
            // Seldom: a new task stays, and their number is limited.
            96..97 if self.rng.chance(1, 4) => {
                let child = self.next;
                self.next += 1;
                Action::Fork { cpu, child }
            }
            97..98 if self.rng.chance(1, 8) => {
                if self.has_branches && self.rng.chance(1, 2) {
                    Action::Oops { cpu }
                } else {
                    Action::Exit { cpu }
                }
            }
            // The next allocation of this task fails.
            98..99 => {
                let tid = self.tid();
                Action::NoMemory { tid }
            }
            _ => Action::Install {
                cpu,
                event,
                handler: self.rng.below(8) as u16,
            },
        }
    }

    fn user(&mut self, cpu: u16) -> Action {
        let tid = self.tid();
        let stack = self.stack(tid);
        let leaf = [Leaf::Body, Leaf::Body, Leaf::Entry][self.rng.below(3)];
        Action::Stack { cpu, stack, leaf }
    }
}
