//! Records the kernel's own unwinder: `struct unwind_state` before and after every step of an
//! unwind that the kernel does, whether for `/proc/PID/stack`, sysrq or perf.

use super::{GdbRecordError, Session, machine};
use crate::kernel::state::{StateLayout, is_last};
use crate::kernel::world::copy_more;
use crate::kernel::{KernelMachine as _, LayoutError};
use std::io::Write;
use std::time::Duration;
use unwind_sim_host::gdb::{GdbError, OtherThreads, Registers};
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::kernel::State;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;

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
        let layout = layout.ok_or(LayoutError::Member {
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
                let regs = machine::regs(&registers);
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

        Ok(Some(self.sample_of(stopped, regs, self.summary.samples)))
    }
}
