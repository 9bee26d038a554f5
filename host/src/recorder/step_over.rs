//! Stepping over a breakpoint, with no thread running past it meanwhile.

use super::session::Session;
use super::step::handler_entry;
use super::task::Mode;
use crate::error::HostError;
use crate::ptrace::{self, Registers, Resume, Status, Waited};
use nix::libc;
use unwind_sim_unwind::insn::Insn;

/// A stop that PTRACE_INTERRUPT made.
const ASKED: Status = Status::Event {
    event: libc::PTRACE_EVENT_STOP,
    signal: libc::SIGTRAP,
};

impl Session<'_> {
    /// Executes the one instruction under a breakpoint, while the other threads stand still: they
    /// would run past it.
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
        // A system call may wait for another thread: go no farther than to its entry.
        let how = match process.classify(regs.rip) {
            Insn::Syscall => Resume::RunToSyscall,
            _ => Resume::Step,
        };
        ptrace::resume(tid, how, signal)?;
        let status = loop {
            match ptrace::wait_until(tid)? {
                // The stop that another thread's step asked for: the step is still to come.
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
                // From which it comes back to the same breakpoint.
                thread.last_place = (regs.rip, regs.rsp);
            }
        }
        self.resume(tid, 0)
    }

    /// Stops the other threads of `pid`. What they stop with is handled later.
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
