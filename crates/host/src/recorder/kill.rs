//! How a recording kills the program and all that it has started. Not here: releasing them.

use super::ProgramEnd;
use super::session::Session;
use crate::error::HostError;
use nix::libc;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::time::Duration;
use unwind_sim_emulator_native::ptrace::{self, Resume, Status, Waited};

/// How long to sleep while nothing has ended yet.
const PAUSE: Duration = Duration::from_millis(1);

impl Session<'_> {
    /// Kills the program and all processes that it has started, and waits until they are gone.
    /// Nothing is released before: a process that starts others would go on with it.
    ///
    /// Other children of this thread, such as an unwinder's process, are neither killed nor waited
    /// for.
    pub(super) fn kill_all(&mut self) -> Result<(), HostError> {
        let early = std::mem::take(&mut self.early);
        let mut alive: BTreeSet<i32> = self.processes.keys().copied().chain(early).collect();
        for (_, thread) in std::mem::take(&mut self.threads) {
            self.retire(&thread);
        }
        alive.retain(|&pid| is_child_or_traced(pid));
        alive.iter().for_each(|&pid| kill(pid));

        while !alive.is_empty() {
            match ptrace::wait(-1, false)? {
                Waited::NoChildren => return Ok(()),
                Waited::Nothing => {
                    // A thread that calls execve takes its process' number: its own ends
                    // unreported.
                    alive.retain(|&pid| is_child_or_traced(pid));
                    if alive.is_empty() {
                        // A process that was killed in fork did not report its child.
                        alive = unreported();
                        alive.iter().for_each(|&pid| kill(pid));
                    } else {
                        std::thread::sleep(PAUSE);
                    }
                }
                Waited::Stopped(tid, status @ (Status::Exited(_) | Status::Killed(_))) => {
                    if tid == self.target && !self.has_target_ended {
                        self.has_target_ended = true;
                        self.summary.program = match status {
                            Status::Exited(code) => ProgramEnd::Exited(code),
                            Status::Killed(signal) => ProgramEnd::Killed(signal),
                            _ => ProgramEnd::RunsOn,
                        };
                    }
                }
                // A process whose start was not reported yet, or a stop on the way to the end.
                Waited::Stopped(tid, _) => {
                    alive.insert(tid);
                    kill(tid);
                    // It may be gone.
                    let _ = ptrace::resume(tid, Resume::Run, 0);
                }
            }
        }
        Ok(())
    }
}

/// Kills a traced process. It may have ended, but was not waited for, so that the number is its
/// own.
fn kill(pid: i32) {
    let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Whether this thread still has to wait for `pid`.
fn is_child_or_traced(pid: i32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: all bits zero are a siginfo_t, which the kernel writes.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the kernel to write.
    unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) == 0 }
}

/// The processes that this thread traces. Where there is no `/proc`, none are found.
fn unreported() -> BTreeSet<i32> {
    let ours = std::process::id().to_string();
    let is_traced_here = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mut tracers = status.lines().filter_map(|l| l.strip_prefix("TracerPid:"));
        // Another thread of this process may trace, too.
        tracers.any(|tracer| tracer.trim() == ours) && is_child_or_traced(*pid)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(is_traced_here).collect()
}
