//! Records a program in the emulated machine. Every sample has its truth, and the same options give
//! the same trace, byte for byte.
//!
//! Samples are taken at the same points as with ptrace: after the instruction that is counted, that
//! reaches a place, or that makes the system call.

mod events;
mod generated;
mod places;

pub(crate) use events::comm;

pub use super::rings::Lbr;
use super::rings::Rings;
use super::shadow::Shadow;
use super::state::{RBP, RDI, RSP, live, stacks};
use super::{At, FetchFrame, MAIN, Plan, TraceRecorder};
use generated::Generated;
use places::{ProcessPlaces, Progress, SuspendedTasks};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Kernel, Notice, Outcome, ScheduleOutcome, StartError, Task};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::model;
use unwind_sim_recordings::trace::WriteError;
use unwind_sim_unwind::elf::ReadOptions;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{SampleRegs, fetch_caller_regs};
use unwind_sim_unwind::truth::{Stats, Truth};

/// Number of instructions between checks of the clock and of the recording's end.
const SLICE: u64 = 1 << 16;

/// What to record.
#[derive(Clone, Debug)]
pub struct EmulatorOptions {
    /// When to take samples, except [`At::Freq`], and when the recording ends. The truth is always
    /// known.
    pub plan: Plan,
    /// The rings of branch records to keep.
    pub lbr: Lbr,
    /// Maximum time.
    pub timeout: Option<Duration>,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Summary {
    /// How the run ended.
    pub end: End,
    /// Number of samples taken.
    pub samples: u64,
    /// Number of instructions executed since the recording started.
    pub instructions: u64,
    /// Was [`Plan::from`] set, and did execution reach it?
    pub from_reached: bool,
    /// Names that are in no image.
    pub not_located: Vec<String>,
    /// Statistics of the shadow stack since the program started.
    pub truth: Stats,
    /// Number of instructions since the recording started at which the truth was unknown.
    pub unknown: u64,
    /// Features that are not modelled and that the program got an error for.
    pub notices: Vec<Notice>,
    /// What became of the schedule.
    pub followed: ScheduleOutcome,
    /// The kernel, as the run left it.
    pub process: Kernel,
    /// If all threads wait for what cannot happen: the true chains of those that are observed.
    pub waiting: Vec<(Task, Truth)>,
}

/// Why a recording failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Where to find the files of a program whose root directory is `root`.
pub fn finder_options(root: &Path) -> FinderOptions {
    FinderOptions {
        symfs: (root != Path::new("/")).then(|| PathBuf::from(root)),
        // JIT maps on this machine belong to its own processes.
        jit_dir: None,
        elf: ReadOptions {
            producers: true,
            ..ReadOptions::default()
        },
        ..FinderOptions::system()
    }
}

/// Runs and records `program`.
///
/// # Errors
/// If it cannot be started or the trace cannot be written.
pub fn record<W: Write>(
    program: RunningProgram,
    options: &EmulatorOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, RecordError> {
    let begin = Instant::now();
    let mut machine = program.options;
    machine.deadline = options.timeout.and_then(|most| begin.checked_add(most));
    let mut process = Kernel::start(&program.path, machine)?;
    let mut session = Session::new(options, recorder);

    // In slices: between them the recording can be stopped, and the time is checked.
    let end = loop {
        // Instructions before the starting point do not count.
        let left = if session.recording {
            options.plan.instructions_left(session.instructions)
        } else {
            u64::MAX
        };
        let outcome = process.run(left.min(SLICE), &mut session);
        if let Some(error) = session.error.take() {
            return Err(error.into());
        }

        let enough = session.is_over();
        if options.plan.is_stopped() {
            break match outcome {
                Outcome::Limit | Outcome::StreamTimeout { .. } => End::Stopped,
                // The program ended by itself.
                outcome => End::Outcome(outcome),
            };
        }
        if outcome != Outcome::Limit || enough {
            break End::Outcome(outcome);
        }
        if options.timeout.is_some_and(|most| begin.elapsed() >= most) {
            break End::Timeout;
        }
    };

    // If all threads wait, the end is explained by what they wait for.
    let waiting = match end {
        End::Outcome(Outcome::Blocked { .. }) => session.waiting(&mut process),
        _ => Vec::new(),
    };

    // At the end, because programs add to their perf maps while they run.
    session.name_generated(&mut |path| process.file(path));
    if let Some(error) = session.error.take() {
        return Err(error.into());
    }

    let truth = session.shadow.stats();
    let names = session.names.iter().zip(&session.located);
    Ok(Summary {
        end,
        samples: session.samples,
        instructions: session.instructions,
        from_reached: options.plan.from.is_some() && session.recording,
        not_located: names
            .filter(|&(_, &located)| !located)
            .map(|(name, _)| name.text.clone())
            .collect(),
        // What was unknown before the starting point does not count either.
        unknown: truth.unknown - session.unknown_before,
        truth,
        notices: process.notices().to_vec(),
        followed: process.followed(),
        waiting,
        process,
    })
}

/// The purpose of a place, with the index of its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sample(usize),
    Own(usize),
    From,
}

struct PointName {
    text: String,
    role: Role,
}

fn names(options: &EmulatorOptions) -> Vec<PointName> {
    let name = |text: &str, role| PointName {
        text: text.to_owned(),
        role,
    };
    let from = options.plan.from.as_deref();
    let mut out: Vec<PointName> = from.map(|f| name(f, Role::From)).into_iter().collect();
    for (index, point) in options.plan.at.points().iter().enumerate() {
        out.push(name(&point.name, Role::Sample(index)));
        out.extend(point.own.as_deref().map(|own| name(own, Role::Own(index))));
    }
    out
}

/// Progress towards `main`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StartupPhase {
    /// The dynamic linker is running; the program's entry point is here.
    At(u64),
    /// The code at the entry point is running.
    Inside,
    /// That code has made its first call.
    Left,
}

/// The registers of a fetching function, until the place where the unwinder starts is reached.
#[derive(Clone)]
struct FetchedRegs {
    point: usize,
    sampled: Regs,
    fetch: Regs,
}

struct Session<'a, 'w, W: Write> {
    options: &'a EmulatorOptions,
    recorder: &'a mut TraceRecorder<'w, W>,
    shadow: Shadow,
    rings: Rings,
    generated: Generated,
    names: Vec<PointName>,
    /// For each name, was it found in an image?
    located: Vec<bool>,
    /// The places of the running process, and how far the running thread is.
    places: ProcessPlaces,
    progress: Progress,
    parked: SuspendedTasks,
    /// Whether the running process is recorded.
    observed: bool,
    recording: bool,
    instructions: u64,
    unknown_before: u64,
    samples: u64,
    error: Option<WriteError>,
}

impl<'a, 'w, W: Write> Session<'a, 'w, W> {
    fn new(options: &'a EmulatorOptions, recorder: &'a mut TraceRecorder<'w, W>) -> Self {
        let names = names(options);
        Session {
            recorder,
            shadow: Shadow::default(),
            rings: Rings::new(&options.lbr),
            generated: Generated::default(),
            located: vec![false; names.len()],
            places: ProcessPlaces::new(names.len()),
            progress: Progress::default(),
            parked: SuspendedTasks::default(),
            observed: true,
            names,
            recording: options.plan.from.is_none(),
            instructions: 0,
            unknown_before: 0,
            samples: 0,
            error: None,
            options,
        }
    }

    /// Is the recording complete, or can nothing more be written?
    fn is_over(&self) -> bool {
        self.error.is_some()
            || self
                .options
                .plan
                .is_complete(self.samples, self.instructions)
    }

    /// Keeps the first error only.
    fn check(&mut self, result: Result<(), WriteError>) {
        if let (Err(error), None) = (result, &self.error) {
            self.error = Some(error);
        }
    }

    fn event(&mut self, event: &model::Event) {
        let written = self.recorder.event(event);
        self.check(written);
    }

    /// An instruction was executed; the next one is at `next`.
    #[inline]
    fn stepped(&mut self, core: &Core, insn: Insn, next: u64) {
        // The first call after the entry point tells where main is.
        if self.places.entry != StartupPhase::Left {
            self.until_main(core, insn, next);
        }

        // Until the starting point is reached, nothing is counted.
        if !self.recording {
            if !self.places.at.is_empty() {
                self.maybe_from(core, next);
            }
            return;
        }

        self.instructions += 1;

        // Points are places, and are met before the instruction there is executed.
        let due = match &self.options.plan.at {
            At::Every(n) => self.instructions.is_multiple_of((*n).max(1)),
            At::Call => matches!(insn, Insn::Call { .. }),
            At::Syscall => insn == Insn::Syscall,
            At::Freq(_) => false,
            At::Points(_) => {
                if self.places.at.contains_key(&next) {
                    self.until_place(core, insn, next);
                }
                false
            }
        };

        if due {
            let regs = SampleRegs::hardware(live(core, next));
            self.sample(core, next, regs, None);
        }
    }

    /// Finds `main` if no symbol gives its address.
    #[cold]
    fn until_main(&mut self, core: &Core, insn: Insn, next: u64) {
        match self.places.entry {
            StartupPhase::At(entry) if entry == next => self.places.entry = StartupPhase::Inside,
            StartupPhase::Inside if matches!(insn, Insn::Call { .. }) => {
                self.places.entry = StartupPhase::Left;
                let argument = core.state.gpr(RDI);
                if core.memory.fetch(argument, &mut [0]).is_ok() {
                    self.place_missing(|name| {
                        if name == MAIN {
                            vec![argument]
                        } else {
                            Vec::new()
                        }
                    });
                }
            }
            _ => {}
        }
    }

    /// Looks up the names that are still missing.
    fn place_missing(&mut self, mut find: impl FnMut(&str) -> Vec<u64>) {
        let Session {
            names,
            places: ProcessPlaces { missing, at, .. },
            located,
            ..
        } = self;
        missing.retain(|&index| {
            let addresses = find(&names[index].text);
            for &address in &addresses {
                at.entry(address).or_default().push(names[index].role);
            }
            located[index] |= !addresses.is_empty();
            addresses.is_empty()
        });
    }

    /// Starts recording, if this is the place to record from.
    #[inline]
    fn maybe_from(&mut self, core: &Core, rip: u64) {
        let here = self.places.at.get(&rip);
        if here.is_some_and(|roles| roles.contains(&Role::From)) {
            self.recording = true;
            self.unknown_before = self.shadow.stats().unknown;
            self.at_place(core, rip);
        }
    }

    /// The next instruction is at a place, perhaps because a handler returned to it.
    fn until_place(&mut self, core: &Core, insn: Insn, rip: u64) {
        let here = (rip, core.state.gpr(RSP));
        if insn == Insn::Syscall && self.progress.last_place == here {
            return;
        }
        self.progress.last_place = here;
        self.at_place(core, rip);
    }

    fn at_place(&mut self, core: &Core, rip: u64) {
        for role in self.places.at.get(&rip).cloned().unwrap_or_default() {
            match role {
                Role::From => {}
                Role::Sample(index) => self.at_point(core, rip, index),
                Role::Own(index) => self.at_own_point(core, rip, index),
            }
        }
    }

    fn at_point(&mut self, core: &Core, rip: u64, index: usize) {
        let point = &self.options.plan.at.points()[index];
        let live = live(core, rip);
        let Some(frame) = point.fetch else {
            return self.sample(core, rip, SampleRegs::hardware(live), Some(index));
        };

        // The return address is just below the CFA (psABI 3.2.2): at rsp on entry, and above the
        // saved rbp once the frame is set up.
        let cfa = match frame {
            FetchFrame::Entry => core.state.gpr(RSP).wrapping_add(8),
            FetchFrame::Rbp => core.state.gpr(RBP).wrapping_add(16),
        };
        let Ok(caller) = core.memory.read_u64(cfa.wrapping_sub(8)) else {
            return;
        };
        // As `perf_arch_fetch_caller_regs` makes them from the caller's frame.
        let sampled = fetch_caller_regs(caller, cfa);

        // The sample is taken where the unwinder itself starts.
        if point.own.is_some() {
            self.progress.armed.retain(|a| a.point != index);
            self.progress.armed.push(FetchedRegs {
                point: index,
                sampled,
                fetch: live,
            });
            return;
        }

        let regs = SampleRegs {
            sampled,
            fetch: Some(live),
            own: Some(live),
        };
        self.sample(core, rip, regs, Some(index));
    }

    fn at_own_point(&mut self, core: &Core, rip: u64, index: usize) {
        let Some(at) = self.progress.armed.iter().position(|a| a.point == index) else {
            return;
        };
        let armed = self.progress.armed.remove(at);
        let regs = SampleRegs {
            sampled: armed.sampled,
            fetch: Some(armed.fetch),
            own: Some(live(core, rip)),
        };
        self.sample(core, rip, regs, Some(index));
    }

    #[inline(never)]
    fn sample(&mut self, core: &Core, rip: u64, regs: SampleRegs, point: Option<usize>) {
        if self.options.plan.has_samples(self.samples) || self.error.is_some() {
            return;
        }
        self.samples += 1;
        let sample = model::Sample {
            pid: self.pid(),
            tid: self.shadow.task().thread,
            time: self.instructions,
            regs,
            regions: stacks(core, &self.shadow, self.options.plan.stack_bytes),
            truth: self.shadow.truth(core, rip),
            recorded: Vec::new(),
            branches: self.rings.read(),
            kernel: None,
            process_memory: None,
        };
        let written = self.recorder.sample(&sample, point);
        self.check(written);
    }

    /// The true chains of the threads that wait, as far as they are observed.
    fn waiting(&mut self, process: &mut Kernel) -> Vec<(Task, Truth)> {
        let mut all = Vec::new();
        process.visit_waiting(&mut |waiting, process| {
            let core = &process.machine.core;
            self.shadow.switched(waiting.task, core);
            if process.is_observed() {
                all.push((waiting.task, self.shadow.truth(core, waiting.state.rip)));
            }
        });
        all
    }

    /// The process that runs.
    fn pid(&self) -> u32 {
        self.shadow.task().process
    }
}

impl<W: Write> Observer for Session<'_, '_, W> {
    #[inline]
    fn enter(&mut self, _: &Core, block: Option<BlockId>, operations: usize, _: u64) -> usize {
        self.shadow.enter(block, operations);
        0
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        if self.progress.begins {
            self.progress.begins = false;
            if self.recording {
                self.at_place(core, insn.rip)
            } else {
                self.maybe_from(core, insn.rip)
            }
        }
        if insn.index == 0 {
            self.maybe_hook(core, insn.rip);
        }
        self.shadow.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        let insn = self.shadow.after(core, next);
        self.rings.branch(insn, self.shadow.rip_before(), next);
        if insn != Insn::Syscall && !self.is_over() {
            self.stepped(core, insn, next);
        }
    }
}
