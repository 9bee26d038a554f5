//! Records the kernel's own unwinder: `struct unwind_state` before and after every step of an
//! unwind that the kernel does, whether for `/proc/PID/stack`, sysrq or perf.

use super::world::{self, Stopped, copy_more};
use super::{GdbRecordError, PID, Session};
use std::io::Write;
use std::time::Duration;
use unwind_sim_host::gdb::{GdbError, OtherThreads, Registers};
use unwind_sim_recordings::kernel::{Btf, MissingPlace};
use unwind_sim_recordings::model::{KernelSample, Sample};
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GuessState, OrcState, RegsPtr, StackInfo, StackType, State, UnwinderKind,
};
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// The function that starts an unwind. With `--at` this function, unwinds are recorded.
pub(super) const START: &str = "__unwind_start";
const NEXT: &str = "unwind_next_frame";
/// Maximum number of states of an unwind.
const STATES_MAX: usize = 256;
/// How long one processor runs while the others wait, so that the stack of another task does not
/// change while it is unwound. Limited, since the unwinding processor may wait for them.
const ALONE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of stops in unwinds other than the recorded one.
const STRAY_MAX: usize = 64;

/// Offsets of the members of `struct unwind_state`, for any unwinder.
pub(super) struct StateLayout {
    kind: UnwinderKind,
    /// Offsets of the [`SHARED`] members, followed by those of the unwinder's own.
    offsets: Vec<u64>,
}

const SHARED: [&str; 6] = [
    "stack_info.type",
    "stack_info.begin",
    "stack_info.end",
    "stack_info.next_sp",
    "stack_mask",
    "graph_idx",
];
const ORC: [&str; 8] = [
    "error",
    "signal",
    "full_regs",
    "sp",
    "bp",
    "ip",
    "regs",
    "prev_regs",
];
const FP: [&str; 7] = ["error", "got_irq", "bp", "orig_sp", "ip", "next_bp", "regs"];
const GUESS: [&str; 1] = ["sp"];

impl StateLayout {
    /// Detects the unwinder: a kernel is built with one, and the struct has only its members.
    pub(super) fn new(btf: &Btf) -> Option<StateLayout> {
        let kinds: [(UnwinderKind, &[&str]); 3] = [
            (UnwinderKind::Orc, &ORC),
            (UnwinderKind::Fp, &FP),
            (UnwinderKind::Guess, &GUESS),
        ];
        kinds.into_iter().find_map(|(kind, own)| {
            let members = SHARED.iter().chain(own);
            let offsets = members.map(|member| btf.offset("unwind_state", member));
            Some(StateLayout {
                kind,
                offsets: offsets.collect::<Option<_>>()?,
            })
        })
    }

    /// The unwinder that the kernel was built with.
    pub(super) const fn kind(&self) -> UnwinderKind {
        self.kind
    }

    fn state(&self, bytes: &[u8]) -> State {
        // Little-endian, so the last byte comes first.
        let part = |member: usize, len: usize| {
            let at = self.offsets[member] as usize;
            let bytes = bytes.get(at..at + len).unwrap_or_default().iter().rev();
            bytes.fold(0, |value, b| value << 8 | u64::from(*b))
        };

        // The bounds of the stack on which the unwinder is, as it has them.
        let stack = StackInfo {
            kind: StackType::from_number(part(0, 4)).unwrap_or_default(),
            begin: part(1, 8),
            end: part(2, 8),
            next_sp: part(3, 8),
        };
        let stack_mask = part(4, 8);
        let cursors = Cursors {
            graph_idx: part(5, 4) as u32,
            rethook: 0,
        };

        // The offsets of the unwinder's own members follow those of the shared ones.
        let own = |member| SHARED.len() + member;
        let flag = |member| part(own(member), 1) != 0;
        let word = |member| part(own(member), 8);
        let pointer = |member| match word(member) {
            0 => RegsPtr::None,
            address => RegsPtr::At(address),
        };

        // Each unwinder has its own members (`arch/x86/include/asm/unwind.h`).
        match self.kind {
            UnwinderKind::Orc => State::Orc(OrcState {
                stack,
                stack_mask,
                cursors,
                error: flag(0),
                signal: flag(1),
                full_regs: flag(2),
                sp: word(3),
                bp: word(4),
                ip: word(5),
                regs: pointer(6),
                prev_regs: pointer(7),
            }),
            UnwinderKind::Fp => State::Fp(FpState {
                stack,
                stack_mask,
                cursors,
                error: flag(0),
                got_irq: flag(1),
                bp: word(2),
                orig_sp: word(3),
                ip: word(4),
                next_bp: word(5),
                regs: pointer(6),
            }),
            UnwinderKind::Guess => State::Guess(GuessState {
                stack,
                stack_mask,
                sp: word(0),
            }),
        }
    }

    fn len(&self) -> usize {
        let last = self.offsets.iter().max().map_or(0, |last| *last);
        last as usize + 8
    }
}

/// The arguments of `__unwind_start`.
struct Arguments {
    state: u64,
    task: u64,
    regs: u64,
    first_frame: u64,
    /// rip and rsp at the first instruction of `__unwind_start`.
    own: (u64, u64),
}

impl<W: Write> Session<'_, '_, '_, W> {
    /// Records unwinds, each from its start to its last state.
    pub(super) fn unwinds(&mut self) -> Result<(), GdbRecordError> {
        let layout = self.image.btf.as_ref().and_then(StateLayout::new);
        let layout = layout.ok_or(MissingPlace::Member {
            structure: "unwind_state",
            path: "sp",
        })?;
        let start = self.locate(START)?;
        let next = self.locate(NEXT)?;
        let both: Vec<u64> = start.iter().chain(&next).copied().collect();
        let mut at_start = self.run_to(&start)?;
        while at_start && !self.is_over() {
            let registers = self.machine.registers()?;
            let get = |name: &str| registers.get(name).unwrap_or(0);
            let arguments = Arguments {
                state: get("rdi"),
                task: get("rsi"),
                regs: get("rdx"),
                first_frame: get("rcx"),
                own: (get("rip"), get("rsp")),
            };
            at_start = self.unwind(&layout, &arguments, &start, &both)?;
        }
        Ok(())
    }

    /// Records one unwind; true if the start of the next one was reached.
    fn unwind(
        &mut self,
        layout: &StateLayout,
        arguments: &Arguments,
        start: &[u64],
        both: &[u64],
    ) -> Result<bool, GdbRecordError> {
        let mut states = Vec::new();
        let mut sample = None;
        let (mut stray, mut at_start) = (0, false);

        let chosen = self.machine.thread().to_owned();
        while states.len() < STATES_MAX && stray < STRAY_MAX {
            // Other processors may unwind at the same time.
            let mut is_chosen = |thread: &str, _: &Registers| thread == chosen;
            if !self.run_until(both, OtherThreads::Wait, ALONE_MAX, &mut is_chosen)? {
                break;
            }

            let registers = self.machine.registers()?;
            let get = |name: &str| registers.get(name).unwrap_or(0);
            // The next unwind starts, so the kernel has left this one early.
            if start.contains(&get("rip")) {
                at_start = true;
                break;
            }

            // Another unwind: the first argument is its own `unwind_state`.
            if get("rdi") != arguments.state {
                stray += 1;
                continue;
            }

            states.push(self.state(layout, arguments.state)?);
            if sample.is_none() {
                let regs = world::regs(&registers);
                match self.unwind_sample(arguments, &regs, &states) {
                    Ok(taken) => sample = taken,
                    Err(GdbRecordError::Stub(error @ GdbError::Refused { .. })) => {
                        self.unreadable(&error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }

            // At its entry, a function's return address is at rsp (psABI 3.2.2).
            let (back, cfa) = (self.machine.word(get("rsp"))?, get("rsp").wrapping_add(8));
            let mut is_back = |thread: &str, registers: &Registers| {
                thread == chosen && registers.get("rsp") == Some(cfa)
            };
            if !self.run_until(&[back], OtherThreads::Wait, ALONE_MAX, &mut is_back)? {
                break;
            }

            let state = self.state(layout, arguments.state)?;
            // The kernel does not step a finished state again.
            if is_last(&state) {
                states.push(state);
                break;
            }
        }

        // The caller may stop early: `get_wchan` needs one frame only.
        let is_whole = states.last().is_some_and(is_last);
        if let Some((comm, mut sample)) = sample {
            if let Some(kernel) = &mut sample.kernel {
                kernel.states = states;
            }
            // Another processor may have run the task meanwhile.
            match (is_whole, self.is_unchanged(&sample)?) {
                (true, true) => self.put(comm, sample)?,
                (true, false) => self.summary.changed += 1,
                (false, _) => self.summary.left_early += 1,
            }
        }

        // The next unwind must not be missed if it has started already.
        if at_start || self.summary.ended.is_some() {
            Ok(at_start)
        } else {
            self.run_to(start)
        }
    }

    /// If the unwound task is not the current one, is its stack still as it was when the walk
    /// started? The unwinding task may be preempted, and the other task may run meanwhile.
    fn is_unchanged(&mut self, sample: &Sample<'_>) -> Result<bool, GdbError> {
        if sample.kernel.as_ref().is_none_or(|k| k.task.is_current) {
            return Ok(true);
        }
        for region in &sample.regions {
            match self.machine.read(region.address, region.bytes.len()) {
                Ok(bytes) if bytes == *region.bytes => {}
                Ok(_) | Err(GdbError::Refused { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn state(&mut self, layout: &StateLayout, at: u64) -> Result<State, GdbError> {
        let bytes = self.machine.read(at, layout.len())?;
        Ok(layout.state(&bytes))
    }

    /// The sample of the stack to be unwound, when the unwinder is about to take its first step.
    #[allow(clippy::type_complexity)]
    fn unwind_sample(
        &mut self,
        arguments: &Arguments,
        live: &Regs,
        states: &[State],
    ) -> Result<Option<(Option<String>, Sample<'static>)>, GdbRecordError> {
        let machine = &mut *self.machine;
        let mut stopped = self.kernel.stopped(machine, live)?;

        // As `unwind_start` chooses: by registers, by the own frame, or by the saved stack pointer.
        let regs = if arguments.regs != 0 {
            let regs = regs_from(&machine.read(arguments.regs, PT_REGS_LEN as usize)?);
            // The registers may be those of another stack.
            copy_more(machine, &mut stopped, regs.rsp())?;
            SampleRegs::hardware(regs)
        } else if arguments.task == stopped.address {
            // The task unwinds itself, and its first state says from where.
            let own = match states.first() {
                Some(State::Orc(first)) => Regs::frame(first.ip, first.sp, first.bp),
                // Its frame is where it pushes rbp. The guess unwinder only needs `first_frame`.
                Some(State::Fp(_) | State::Guess(_)) => {
                    let (rip, rsp) = arguments.own;
                    let frame = rsp.wrapping_sub(8);
                    Regs::frame(rip, frame, frame)
                }
                None => return Ok(None),
            };
            let mut mark = Regs::UNKNOWN;
            mark.set(Reg::Rip, own.rip());
            mark.set(Reg::Rsp, arguments.first_frame);
            // Without the bit that is always set, as in the registers that perf makes up.
            mark.set(Reg::Rflags, 0);
            SampleRegs {
                sampled: mark,
                fetch: None,
                own: Some(own),
            }
        } else {
            // Not running: the unwind starts at its saved stack pointer.
            stopped = self.kernel.inactive(machine, arguments.task)?;
            SampleRegs::hardware(Regs::frame(0, stopped.task.thread_sp, 0))
        };

        let Stopped {
            task,
            pid,
            comm,
            regions,
            user,
            ..
        } = stopped;

        let sample = Sample {
            pid: PID,
            tid: pid,
            time: self.summary.samples,
            regs,
            regions,
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: self.image.version.clone().unwrap_or_default(),
                unwinder: self.places.unwinder(),
                task,
                states: Vec::new(),
                boundary: None,
                user,
            })),
            process_memory: None,
        };

        Ok(Some((comm, sample)))
    }
}

/// Is the walk done, or at the user-space registers, where the kernel has no address and may not be
/// called again?
fn is_last(state: &State) -> bool {
    let is_user = |ip: u64| ip >> 63 == 0;
    match state {
        State::Orc(s) => state.is_done() || is_user(s.ip),
        State::Fp(s) => state.is_done() || is_user(s.ip),
        State::Guess(_) => state.is_done(),
    }
}
