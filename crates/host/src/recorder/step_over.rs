//! Steps over a breakpoint without letting another thread run past it.

use super::session::Session;
use super::step::handler_entry;
use super::task::Mode;
use crate::error::HostError;
use nix::libc;
use unwind_sim_emulator_native::ptrace::{self, Registers, Resume, Status, Waited};
use unwind_sim_unwind::insn::Insn;

/// A stop caused by PTRACE_INTERRUPT.
const ASKED: Status = Status::Event {
    event: libc::PTRACE_EVENT_STOP,
    signal: libc::SIGTRAP,
};

impl Session<'_> {
    /// Executes the instruction under a breakpoint with all other threads stopped, since they could
    /// run past it.
    pub(crate) fn step_over(
        &mut self,
        tid: i32,
        regs: &Registers,
        signal: i32,
    ) -> Result<(), HostError> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };

        let pid = thread.pid;
        thread.handled = None;
        self.halt(pid, tid)?;
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        process.breakpoints.lift(tid, regs.rip)?;

        // A system call may wait for another thread, so go no further than its entry.
        let how = match process.classify(regs.rip) {
            Insn::Syscall => Resume::RunToSyscall,
            _ => Resume::Step,
        };
        ptrace::resume(tid, how, signal)?;

        let status = loop {
            match ptrace::wait_until(tid)? {
                // The stop requested for another thread's step: this step has not happened yet.
                Waited::Stopped(_, ASKED) => ptrace::resume(tid, how, 0)?,
                Waited::Stopped(_, status) => break status,
                _ => return Ok(()),
            }
        };

        if let Status::Exited(_) | Status::Killed(_) = status {
            self.deferred.push_back((tid, status));
            return Ok(());
        }

        process.breakpoints.restore(tid, regs.rip)?;
        let after = ptrace::registers(tid)?;

        // Not the end of the step. The stop is handled in turn, and the thread may still be at the
        // breakpoint.
        if status != Status::Signal(libc::SIGTRAP) || how != Resume::Step {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.handled = (after.rip == regs.rip).then_some(regs.rip);
            }
            self.deferred.push_back((tid, status));
            return Ok(());
        }

        let came_to_handler = handler_entry(process, regs, &after).is_some();
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.regs = Some(after);
            if came_to_handler {
                // The handler will return to the same breakpoint.
                thread.last_place = (regs.rip, regs.rsp);
            }
        }

        self.resume(tid, 0)
    }

    /// Stops the other threads of `pid`. Their stop events are handled later.
    fn halt(&mut self, pid: i32, tid: i32) -> Result<(), HostError> {
        for (&other, thread) in &mut self.threads {
            let runs = !thread.stopped && !thread.in_vfork && thread.mode == Mode::Run;
            if thread.pid != pid || other == tid || !runs || ptrace::interrupt(other).is_err() {
                continue;
            }
            thread.stopped = true;
            if let Waited::Stopped(_, status) = ptrace::wait_until(other)? {
                self.deferred.push_back((other, status));
            }
        }
        Ok(())
    }
}
