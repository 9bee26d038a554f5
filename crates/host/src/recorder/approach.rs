//! Reaches the place where recording starts: the program's entry, or the one named by
//! [`crate::Plan::from`].

use super::options::Target;
use super::places::MAIN;
use super::session::Session;
use super::task::{Phase, Role, cpu};
use crate::error::HostError;
use unwind_sim_emulator_native::ptrace::{self, Registers};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Tracker;

impl Session<'_> {
    /// The phase in which a process starts.
    pub(crate) fn first_phase(&self) -> Phase {
        match (
            &self.options.plan.from,
            self.options.plan.truth,
            &self.options.target,
        ) {
            (None, _, _) => Phase::Record,
            (Some(_), true, Target::Run(_)) => Phase::ToEntry(0),
            // The `main` of a stripped program is found after its entry.
            (Some(from), false, Target::Run(_)) if from == MAIN => Phase::ToEntry(0),
            (Some(_), _, _) => Phase::Seek,
        }
    }

    /// Handles a stop of `tid` at one of our breakpoints.
    pub(crate) fn at_breakpoint(&mut self, tid: i32, regs: &Registers) -> Result<(), HostError> {
        let Some(pid) = self.threads.get(&tid).map(|t| t.pid) else {
            return Ok(());
        };
        // The program may have mapped libraries on its way.
        self.refresh_maps(pid, tid)?;
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };

        match process.phase {
            Phase::ToEntry(_) => {
                process.phase = Phase::Approach;
                // Nothing has been called yet, so the chain is complete from here on.
                let tracker = Tracker::root(&cpu(regs), process.stack_end(regs.rsp));
                if let (true, Some(thread)) = (self.options.plan.truth, self.threads.get_mut(&tid))
                {
                    thread.tracker = Some(tracker);
                }
                self.sync_breakpoints(pid, tid)?;
                self.maybe_from(tid, regs)
            }
            Phase::Seek => self.maybe_from(tid, regs),
            Phase::Record | Phase::Approach => {
                // Back from a signal handler that ran instead of the step: the place is sampled.
                let thread = self.threads.get_mut(&tid);
                let came_back = thread.is_some_and(|t| {
                    let place = std::mem::take(&mut t.last_place);
                    place == (regs.rip, regs.rsp)
                });

                if came_back {
                    return Ok(());
                }
                self.at_place(tid, regs)
            }
        }
    }

    /// Starts recording if `regs.rip` is the place to record from.
    fn maybe_from(&mut self, tid: i32, regs: &Registers) -> Result<(), HostError> {
        let Some(pid) = self.threads.get(&tid).map(|t| t.pid) else {
            return Ok(());
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };

        let here = process.places.get(&regs.rip);
        if !here.is_some_and(|roles| roles.contains(&Role::From)) {
            return Ok(());
        }

        // The program ran here at full speed, so the shadow stack starts with this function.
        if process.phase == Phase::Seek
            && self.options.plan.truth
            && let (Some(thread), Some(back)) =
                (self.threads.get_mut(&tid), process.memory.word(regs.rsp))
        {
            let high = process.stack_end(regs.rsp);
            thread.tracker = Some(Tracker::function_entry(&cpu(regs), back, high));
        }

        // Breakpoints depend on the phase, so they are changed only now.
        process.phase = Phase::Record;
        self.summary.from_reached = true;
        self.sync_breakpoints(pid, tid)?;
        self.halt_others(pid, tid);
        self.at_place(tid, regs)
    }

    /// Stops the other threads of `pid`, so that they resume in its new phase.
    pub(crate) fn halt_others(&mut self, pid: i32, tid: i32) {
        for (&other, thread) in &mut self.threads {
            if thread.pid == pid && other != tid && !thread.stopped {
                // `wait` reports a thread that is gone.
                let _ = ptrace::interrupt(other);
            }
        }
    }

    /// Handles one more instruction before recording starts.
    pub(crate) fn approach(
        &mut self,
        pid: i32,
        tid: i32,
        insn: Insn,
        regs: &Registers,
    ) -> Result<(), HostError> {
        self.summary.approach += 1;

        let is_call = matches!(insn, Insn::Call { .. });
        if is_call && self.processes.get(&pid).is_some_and(|p| !p.entered) {
            // `_start` passes main as the first argument of its first call (psABI 3.2.3).
            self.locate_main(pid, regs.rdi);
        }

        // The place may be so far away that stepping to it takes too long.
        let is_too_far = self.summary.approach >= self.options.approach_max;
        // Without a truth, the steps only served to find main.
        let no_need = !self.options.plan.truth && is_call;
        if is_too_far || no_need {
            // Continue at full speed; the frames outside of the starting point stay unknown.
            for process in self.processes.values_mut() {
                process.phase = Phase::Seek;
            }
            for thread in self.threads.values_mut() {
                thread.tracker = None;
            }
            self.sync_breakpoints(pid, tid)?;
        }

        self.maybe_from(tid, regs)
    }
}
