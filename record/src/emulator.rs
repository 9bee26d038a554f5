//! Recording in the emulated machine: every sample has its truth, and the same options give the
//! same trace, byte for byte.
//!
//! Samples are taken where those under ptrace are: behind the instruction that is counted, the
//! one that goes to a place, or the system call.

use super::rings::Rings;
use super::shadow::Shadow;
use super::state::{RBP, RDI, RSP, live, piece, program_entry};
use super::{At, FetchFrame, MAIN, Plan, TraceRecorder, locate};
use crate::program::{End, RunningProgram};
use hashbrown::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{
    MappedFile, Notice, Outcome, Process, ProcessObserver, StartError, SystemCall,
};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Access, Observer, Permissions, State};
use unwind_sim_perf_model::lbr::Depth;
use unwind_sim_recordings::files::{FinderOptions, MappingRequest};
use unwind_sim_recordings::model::{self, Region, RegionRole};
use unwind_sim_recordings::trace::WriteError;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{SampleRegs, fetch_caller_regs};
use unwind_sim_unwind::truth::{Cpu, Stats};

/// The process, and its thread.
const PID: u32 = 1000;
/// Instructions between looks at the clock, and at whether enough was seen.
const SLICE: u64 = 1 << 16;
/// The longest name of a thread, bytes (Linux `TASK_COMM_LEN` - 1).
const NAME_MAX: usize = 15;

/// What is recorded.
#[derive(Clone, Debug)]
pub struct EmulatorOptions {
    /// When samples are taken, not [`At::Freq`], and when the recording ends. The truth is always
    /// known.
    pub plan: Plan,
    /// Keep branch records, in rings of these depths.
    pub lbr: Vec<Depth>,
    /// Most time.
    pub timeout: Option<Duration>,
}

/// What a recording was.
#[derive(Debug)]
pub struct Summary {
    /// How it ended.
    pub end: End,
    /// Samples taken.
    pub samples: u64,
    /// Instructions executed since the recording began.
    pub instructions: u64,
    /// Whether [`Plan::from`] was set and execution reached it.
    pub from_reached: bool,
    /// Names that no image had.
    pub not_located: Vec<String>,
    /// What the shadow stack saw since the program began.
    pub truth: Stats,
    /// Instructions since the recording began at which the truth was not known.
    pub unknown: u64,
    /// What is not modelled and the program was told by an error.
    pub notices: Vec<Notice>,
}

/// Why nothing, or not all, was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Where the files of a program are whose `/` is `root`.
pub fn finder_options(root: &Path) -> FinderOptions {
    FinderOptions {
        symfs: (root != Path::new("/")).then(|| PathBuf::from(root)),
        // Whatever lies there is of processes of this machine.
        jit_dir: None,
        ..FinderOptions::system()
    }
}

/// Runs `program` and records it.
///
/// # Errors
/// If it cannot be started, or the trace cannot be written.
pub fn record<W: Write>(
    program: RunningProgram,
    options: &EmulatorOptions,
    recorder: &mut TraceRecorder<'_, W>,
) -> Result<Summary, RecordError> {
    let mut process = Process::start(&program.path, program.options)?;
    let mut session = Session::new(options, recorder);
    let begin = Instant::now();
    let end = loop {
        let left = match session.recording {
            true => options.plan.instructions_left(session.instructions),
            false => u64::MAX,
        };
        let outcome = process.run(left.min(SLICE), &mut session);
        if let Some(error) = session.error.take() {
            return Err(error.into());
        }
        let enough = session.is_over();
        if options.plan.is_stopped() {
            break match outcome {
                Outcome::Limit | Outcome::StreamTimeout { .. } => End::Stopped,
                // It had come to its end by itself.
                outcome => End::Outcome(outcome),
            };
        }
        if outcome != Outcome::Limit || enough {
            break End::Outcome(outcome);
        }
        if options.timeout.is_some_and(|most| begin.elapsed() > most) {
            break End::Timeout;
        }
    };
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
        unknown: truth.unknown - session.unknown_before,
        truth,
        notices: process.notices().to_vec(),
    })
}

/// What a place is for; indices are those of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sample(usize),
    Own(usize),
    From,
}

struct Name {
    text: String,
    role: Role,
}

fn names(options: &EmulatorOptions) -> Vec<Name> {
    let name = |text: &str, role| Name {
        text: text.to_owned(),
        role,
    };
    let from = options.plan.from.as_deref();
    let mut out: Vec<Name> = from.map(|f| name(f, Role::From)).into_iter().collect();
    for (index, point) in options.plan.at.points().iter().enumerate() {
        out.push(name(&point.name, Role::Sample(index)));
        out.extend(point.own.as_deref().map(|own| name(own, Role::Own(index))));
    }
    out
}

/// How far the program has come to its `main`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// The loader runs; the program begins here.
    At(u64),
    /// The code at its entry runs.
    Inside,
    /// It has called something.
    Left,
}

/// The registers of a fetching function, waiting for the place where the unwinder starts.
struct Armed {
    point: usize,
    sampled: Regs,
    fetch: Regs,
}

struct Session<'a, 'w, W: Write> {
    options: &'a EmulatorOptions,
    recorder: &'a mut TraceRecorder<'w, W>,
    shadow: Shadow,
    rings: Rings,
    names: Vec<Name>,
    /// Which of the names were found in some image.
    located: Vec<bool>,
    /// Which no mapping of this program has had yet.
    missing: Vec<usize>,
    places: HashMap<u64, Vec<Role>>,
    armed: Vec<Armed>,
    /// rip and rsp at the last place: a signal may bring the thread back there.
    last_place: (u64, u64),
    entry: Entry,
    /// A program, or a handler, begins with the next instruction.
    begins: bool,
    /// A program began that has no name yet.
    unnamed: bool,
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
            located: vec![false; names.len()],
            missing: (0..names.len()).collect(),
            names,
            places: HashMap::new(),
            armed: Vec::new(),
            last_place: (0, 0),
            entry: Entry::Left,
            begins: false,
            unnamed: false,
            recording: options.plan.from.is_none(),
            instructions: 0,
            unknown_before: 0,
            samples: 0,
            error: None,
            options,
        }
    }

    /// Was enough seen, or can nothing more be written?
    fn is_over(&self) -> bool {
        self.error.is_some()
            || self
                .options
                .plan
                .is_complete(self.samples, self.instructions)
    }

    /// Keeps the first error.
    fn check(&mut self, result: Result<(), WriteError>) {
        if let (Err(error), None) = (result, &self.error) {
            self.error = Some(error);
        }
    }

    fn event(&mut self, event: &model::Event) {
        let written = self.recorder.event(event);
        self.check(written);
    }

    /// An instruction was executed, and the next one is at `next`.
    #[inline]
    fn stepped(&mut self, state: &State, insn: Insn, next: u64) {
        if self.entry != Entry::Left {
            self.until_main(state, insn, next);
        }
        if !self.recording {
            if !self.places.is_empty() {
                self.maybe_from(state, next);
            }
            return;
        }
        self.instructions += 1;
        let due = match &self.options.plan.at {
            At::Every(n) => self.instructions.is_multiple_of((*n).max(1)),
            At::Call => matches!(insn, Insn::Call { .. }),
            At::Syscall => insn == Insn::Syscall,
            At::Freq(_) => false,
            At::Points(_) => {
                if self.places.contains_key(&next) {
                    self.until_place(state, insn, next);
                }
                false
            }
        };
        if due {
            let regs = SampleRegs::hardware(live(state, next));
            self.sample(state, next, regs, None);
        }
    }

    /// Looks for `main`, where no symbol says where it is.
    #[cold]
    fn until_main(&mut self, state: &State, insn: Insn, next: u64) {
        match self.entry {
            Entry::At(entry) if entry == next => self.entry = Entry::Inside,
            Entry::Inside if matches!(insn, Insn::Call { .. }) => {
                self.entry = Entry::Left;
                let argument = state.gpr(RDI);
                if state.memory.fetch(argument, &mut [0]).is_ok() {
                    self.place_missing(|name| match name == MAIN {
                        true => vec![argument],
                        false => Vec::new(),
                    });
                }
            }
            _ => {}
        }
    }

    /// Looks for the names that are still missing.
    fn place_missing(&mut self, mut find: impl FnMut(&str) -> Vec<u64>) {
        let Session {
            missing,
            names,
            places,
            located,
            ..
        } = self;
        missing.retain(|&index| {
            let addresses = find(&names[index].text);
            for &address in &addresses {
                places.entry(address).or_default().push(names[index].role);
            }
            located[index] |= !addresses.is_empty();
            addresses.is_empty()
        });
    }

    /// Begins to record, if that is the place to record from.
    #[inline]
    fn maybe_from(&mut self, state: &State, rip: u64) {
        let here = self.places.get(&rip);
        if here.is_some_and(|roles| roles.contains(&Role::From)) {
            self.recording = true;
            self.unknown_before = self.shadow.stats().unknown;
            self.at_place(state, rip);
        }
    }

    /// The next instruction is at a place; or a handler returned to it.
    fn until_place(&mut self, state: &State, insn: Insn, rip: u64) {
        let here = (rip, state.gpr(RSP));
        if insn == Insn::Syscall && self.last_place == here {
            return;
        }
        self.last_place = here;
        self.at_place(state, rip);
    }

    fn at_place(&mut self, state: &State, rip: u64) {
        for role in self.places.get(&rip).cloned().unwrap_or_default() {
            match role {
                Role::From => {}
                Role::Sample(index) => self.at_point(state, rip, index),
                Role::Own(index) => self.at_own_point(state, rip, index),
            }
        }
    }

    fn at_point(&mut self, state: &State, rip: u64, index: usize) {
        let point = &self.options.plan.at.points()[index];
        let live = live(state, rip);
        let Some(frame) = point.fetch else {
            return self.sample(state, rip, SampleRegs::hardware(live), Some(index));
        };
        let cfa = match frame {
            FetchFrame::Entry => state.gpr(RSP).wrapping_add(8),
            FetchFrame::Rbp => state.gpr(RBP).wrapping_add(16),
        };
        let Ok(caller) = state.memory.read_u64(cfa.wrapping_sub(8)) else {
            return;
        };
        let sampled = fetch_caller_regs(caller, cfa);
        if point.own.is_some() {
            self.armed.retain(|a| a.point != index);
            self.armed.push(Armed {
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
        self.sample(state, rip, regs, Some(index));
    }

    fn at_own_point(&mut self, state: &State, rip: u64, index: usize) {
        let Some(at) = self.armed.iter().position(|a| a.point == index) else {
            return;
        };
        let armed = self.armed.remove(at);
        let regs = SampleRegs {
            sampled: armed.sampled,
            fetch: Some(armed.fetch),
            own: Some(live(state, rip)),
        };
        self.sample(state, rip, regs, Some(index));
    }

    #[inline(never)]
    fn sample(&mut self, state: &State, rip: u64, regs: SampleRegs, point: Option<usize>) {
        if self.options.plan.has_samples(self.samples) || self.error.is_some() {
            return;
        }
        self.samples += 1;
        let sample = model::Sample {
            pid: PID,
            tid: PID,
            time: self.instructions,
            regs,
            regions: self.stacks(state),
            truth: self.shadow.truth(state, rip),
            recorded: Vec::new(),
            branches: self.rings.read(),
            kernel: None,
        };
        let written = self.recorder.sample(&sample, point);
        self.check(written);
    }

    /// The stacks of the thread, innermost first, none twice.
    fn stacks(&self, state: &State) -> Vec<Region<'static>> {
        let max = self.options.plan.stack_bytes;
        let first = piece(&state.memory, state.gpr(RSP), max, RegionRole::Stack);
        let mut out: Vec<Region<'static>> = first.into_iter().collect();
        for other in self.shadow.other_stacks() {
            let covered =
                |r: &Region<'_>| (r.address..r.address + r.bytes.len() as u64).contains(&other);
            if !out.iter().any(covered) {
                out.extend(piece(&state.memory, other, max, RegionRole::OtherStack));
            }
        }
        out
    }
}

impl<W: Write> Observer for Session<'_, '_, W> {
    #[inline]
    fn enter(&mut self, _: &State, block: Option<BlockId>, operations: usize) {
        self.shadow.enter(block, operations);
    }

    #[inline]
    fn before(&mut self, state: &State, insn: &Executed) {
        if self.begins {
            self.begins = false;
            match self.recording {
                true => self.at_place(state, insn.rip),
                false => self.maybe_from(state, insn.rip),
            }
        }
        self.shadow.before(state, insn);
    }

    #[inline]
    fn after(&mut self, state: &State, _: &Executed, next: u64) {
        let insn = self.shadow.after(state, next);
        self.rings.branch(insn, self.shadow.rip_before(), next);
        if insn != Insn::Syscall && !self.is_over() {
            self.stepped(state, insn, next);
        }
    }
}

impl<W: Write> ProcessObserver for Session<'_, '_, W> {
    fn started(&mut self, state: &State, stack_end: u64) {
        self.shadow.started(state, stack_end);
        self.rings.reset();
        self.places.clear();
        self.missing = (0..self.names.len()).collect();
        self.armed.clear();
        self.begins = true;
        self.unnamed = true;
        self.entry = match program_entry(state) {
            Some(entry) if entry == state.rip => Entry::Inside,
            Some(entry) => Entry::At(entry),
            None => Entry::Left,
        };
        self.event(&model::Event::Exec { pid: PID });
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        let path = file.map(|f| String::from_utf8_lossy(f.path).into_owned());
        if let (true, Some(path)) = (self.unnamed, &path) {
            self.unnamed = false;
            let name = unwind_sim_recordings::names::file_name(path);
            let end = (0..=NAME_MAX.min(name.len())).rfind(|&i| name.is_char_boundary(i));
            self.event(&model::Event::Comm {
                pid: PID,
                tid: PID,
                name: name[..end.unwrap_or(0)].to_owned(),
            });
        }
        if !permissions.allow(Access::Execute) {
            return self.unmapped(range);
        }
        let request = MappingRequest {
            pid: PID,
            name: path.as_deref().unwrap_or_default(),
            range: range.clone(),
            file_offset: file.map_or(0, |f| f.offset),
            executable: true,
            build_id: &[],
        };
        let (image, bias) = self.recorder.finder.mapping_for(&request);
        let written = self.recorder.map(&request, (image.clone(), bias));
        self.check(written);
        self.place_missing(|name| locate(image.as_deref(), bias, &range, name));
    }

    fn unmapped(&mut self, range: Range<u64>) {
        let space = self.recorder.world.space(PID);
        let touches = |m: &unwind_sim_unwind::image::Mapping| {
            m.range.start < range.end && range.start < m.range.end
        };
        if !space.mappings().iter().any(touches) {
            return;
        }
        self.places.retain(|address, _| !range.contains(address));
        self.event(&model::Event::Unmap { pid: PID, range });
    }

    fn signal(&mut self, _: u8, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        self.shadow.signal(interrupted, handler, restorer);
        self.begins = true;
    }

    fn system_call(&mut self, call: &SystemCall, state: &State) {
        self.shadow.system_call(call, state);
        // Behind a call that does not return there is no state to sample.
        if call.returns && !self.is_over() {
            self.stepped(state, Insn::Syscall, state.rip);
        }
    }
}
