//! How a recording releases its threads and the program.

use super::options::{AfterLimit, Target};
use super::session::Session;
use super::{End, ProgramEnd};
use crate::error::HostError;
use nix::libc;
use std::time::{Duration, Instant};
use unwind_sim_emulator_native::ptrace::{self, Resume, Status, Waited};

/// Maximum number of stops of one thread to wait for before releasing it: each is for a signal that
/// was already pending.
const STOPS_MAX: usize = 64;

impl Session<'_> {
    /// Releases every thread, and waits for the end of the program if we started it and were not
    /// asked to end. Kills the program if the options say so, or if the recording `failed`.
    pub(crate) fn wind_up(&mut self, failed: bool) -> Result<(), HostError> {
        self.summary.end = self.end.unwrap_or(End::Interrupted);
        self.pinned = None;
        let is_ours = matches!(self.options.target, Target::Run(_));
        let is_killed =
            self.summary.end == End::Timeout || self.options.after_limit == AfterLimit::Kill;
        // Somebody else's program is never killed.
        if is_ours && (failed || is_killed) {
            return self.kill_all();
        }

        let mut tids: Vec<i32> = self.threads.keys().copied().collect();
        // A thread that waits for its vforked child can only be stopped once that child is gone.
        tids.sort_by_key(|tid| self.threads.get(tid).is_some_and(|t| t.in_vfork));
        let (waiting, free): (Vec<i32>, Vec<i32>) = tids
            .into_iter()
            .partition(|tid| self.threads.get(tid).is_some_and(|t| t.in_vfork));

        // Stop all before resuming the first: they share breakpoints.
        for group in [free, waiting] {
            let mut stopped = Vec::new();
            for tid in group {
                match self.stop(tid) {
                    Err(error) if error.is_gone() => {}
                    Err(error) => return Err(error),
                    Ok(signal) => stopped.extend(signal.map(|s| (tid, s))),
                }
            }
            for (tid, signal) in stopped {
                match self.release(tid, signal) {
                    Err(error) if error.is_gone() => {}
                    other => other?,
                }
            }
        }

        for tid in std::mem::take(&mut self.early) {
            // It may have ended.
            let _ = ptrace::detach(tid, 0);
        }

        if !is_ours || self.has_target_ended {
            return Ok(());
        }

        // The terminal may not have sent its signal to the program.
        if self.summary.end == End::Interrupted {
            self.summary.program = program_end_soon(self.target)?;
            return Ok(());
        }
        self.summary.program = program_end(self.target)?;
        Ok(())
    }

    /// Stops `tid` at an instruction of its own; returns the signal to resume it with, or `None` if
    /// it ended.
    fn stop(&mut self, tid: i32) -> Result<Option<i32>, HostError> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(None);
        };

        let mut status = if thread.stopped {
            // A stop that was waited for out of order is not reported a second time.
            let late = self.deferred.iter().find(|(t, _)| *t == tid);
            late.map_or(Status::Signal(thread.pending), |&(_, status)| status)
        } else {
            ptrace::interrupt(tid)?;
            match ptrace::wait_until(tid)? {
                Waited::Stopped(_, status) => status,
                _ => return Ok(None),
            }
        };

        for _ in 0..STOPS_MAX {
            match status {
                Status::Exited(_) | Status::Killed(_) => return Ok(None),
                Status::Signal(libc::SIGTRAP) => {
                    self.back_to_breakpoint(tid)?;
                    return Ok(Some(0));
                }
                // The program gets it when the thread is released.
                Status::Signal(signal) if signal != 0 => return Ok(Some(signal)),
                // The trap of a step or breakpoint may arrive after the stop we asked for, and
                // would kill the program once we are gone.
                _ if has_pending_trap(tid) => {
                    ptrace::resume(tid, Resume::Run, 0)?;
                    match ptrace::wait_until(tid)? {
                        Waited::Stopped(_, next) => status = next,
                        _ => return Ok(None),
                    }
                }
                _ => return Ok(Some(0)),
            }
        }
        Ok(Some(0))
    }

    /// Moves a thread that has executed one of our breakpoints back to it.
    fn back_to_breakpoint(&self, tid: i32) -> Result<(), HostError> {
        let process = self.threads.get(&tid).map(|t| t.pid);
        let Some(process) = process.and_then(|pid| self.processes.get(&pid)) else {
            return Ok(());
        };
        let mut regs = ptrace::registers(tid)?;
        let address = regs.rip.wrapping_sub(1);
        if process.breakpoints.contains(address) {
            regs.rip = address;
            ptrace::set_registers(tid, &regs)?;
        }
        Ok(())
    }

    fn release(&mut self, tid: i32, signal: i32) -> Result<(), HostError> {
        let Some(thread) = self.threads.remove(&tid) else {
            return Ok(());
        };
        self.retire(&thread);
        if let Some(affinity) = thread.affinity {
            affinity.give(tid);
        }
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.breakpoints.set_to(tid, &[])?;
        }
        Ok(ptrace::detach(tid, signal)?)
    }
}

/// Whether a SIGTRAP is pending for the thread (`SigPnd` in `/proc/PID/status`, one bit for each
/// signal).
fn has_pending_trap(tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|l| l.strip_prefix("SigPnd:"));
    let bits = pending.and_then(|p| u64::from_str_radix(p.trim(), 16).ok());
    bits.is_some_and(|bits| bits & 1 << (libc::SIGTRAP - 1) != 0)
}

/// A terminal sends its signal to the program as well as to us; the program has this long to end.
const SOON: Duration = Duration::from_millis(200);

/// How our child ended, if it ends soon.
fn program_end_soon(pid: i32) -> Result<ProgramEnd, HostError> {
    let began = Instant::now();
    loop {
        match ptrace::wait(pid, false)? {
            Waited::Stopped(_, Status::Exited(code)) => return Ok(ProgramEnd::Exited(code)),
            Waited::Stopped(_, Status::Killed(signal)) => return Ok(ProgramEnd::Killed(signal)),
            Waited::NoChildren => return Ok(ProgramEnd::RunsOn),
            _ if began.elapsed() > SOON => return Ok(ProgramEnd::RunsOn),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Waits for our child to end.
fn program_end(pid: i32) -> Result<ProgramEnd, HostError> {
    loop {
        match ptrace::wait_until(pid)? {
            Waited::Stopped(_, Status::Exited(code)) => return Ok(ProgramEnd::Exited(code)),
            Waited::Stopped(_, Status::Killed(signal)) => return Ok(ProgramEnd::Killed(signal)),
            Waited::NoChildren => return Ok(ProgramEnd::RunsOn),
            _ => {}
        }
    }
}
