//! How threads and processes start and end.

use super::places::{AT_ENTRY, AT_RANDOM, auxiliary};
use super::session::Session;
use super::task::{Mode, Phase, Thread, cpu};
use super::{End, Event, ProgramEnd};
use crate::error::HostError;
use nix::libc;
use unwind_sim_emulator_native::pin::Affinity;
use unwind_sim_emulator_native::ptrace::{self, Registers, Resume, Status, Waited};
use unwind_sim_unwind::truth::Tracker;

/// `cs` of a thread in 32-bit mode (Linux `arch/x86/include/asm/segment.h`, `__USER32_CS`).
const USER32_CS: u64 = 0x23;

fn comm(pid: i32, tid: i32) -> String {
    let text = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .trim_end_matches('\n')
        .to_owned()
}

impl Session<'_> {
    pub(crate) fn event(&mut self, tid: i32, event: i32, signal: i32) -> Result<(), HostError> {
        match event {
            libc::PTRACE_EVENT_EXEC => self.exec(tid),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.made(tid, event)?;
                self.resume(tid, 0)
            }
            libc::PTRACE_EVENT_VFORK_DONE => {
                let thread = self.threads.get_mut(&tid);
                if let Some(pid) = thread.map(|t| {
                    t.in_vfork = false;
                    t.pid
                }) {
                    self.sync_breakpoints(pid, tid)?;
                }
                self.resume(tid, 0)
            }
            libc::PTRACE_EVENT_STOP => self.event_stop(tid, signal),
            _ => self.resume(tid, 0),
        }
    }

    /// Handles the first stop of a new thread, a stop that we requested, or a group stop.
    fn event_stop(&mut self, tid: i32, signal: i32) -> Result<(), HostError> {
        // PTRACE_EVENT_STOP reports a group stop with the signal that caused it (ptrace(2)).
        let is_group_stop = matches!(
            signal,
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
        );
        let regs = ptrace::registers(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };

        // PTRACE_LISTEN keeps the thread in its group stop (ptrace(2), "Group-stop").
        if is_group_stop && thread.mode != Mode::New {
            thread.stopped = false;
            return Ok(ptrace::listen(tid)?);
        }

        if thread.mode == Mode::Step {
            // Its step has not happened yet, or is done and reported next.
            thread.stopped = false;
            return Ok(ptrace::resume(tid, Resume::Step, 0)?);
        }

        let asked = std::mem::take(&mut thread.asked);
        let (pid, is_new) = (thread.pid, thread.mode == Mode::New);
        thread.regs = Some(regs);
        if is_new {
            self.begin(pid, tid, &regs)?;
        } else if asked && self.is_recording(pid) {
            self.refresh_maps(pid, tid)?;
            self.sample(tid, &regs, super::sample::hardware(&regs), None)?;
        }

        self.resume(tid, 0)
    }

    /// Handles a thread at its first instruction.
    fn begin(&mut self, pid: i32, tid: i32, regs: &Registers) -> Result<(), HostError> {
        self.summary.threads += 1;
        self.report_comm(pid, tid)?;
        let Some(process) = self.processes.get(&pid) else {
            return Ok(());
        };
        let follows = matches!(process.phase, Phase::Approach | Phase::Record);
        let high = process.stack_end(regs.rsp);
        if let Some(thread) = self.threads.get_mut(&tid)
            && self.options.plan.truth
            && follows
            && (thread.tracker.is_none() || thread.maker_sp != regs.rsp)
        {
            thread.tracker = Some(Tracker::root(&cpu(regs), high));
        }
        Ok(())
    }

    /// Handles the creation of a thread or process by `tid`.
    fn made(&mut self, tid: i32, event: i32) -> Result<(), HostError> {
        let new = ptrace::event_message(tid)?;
        let maker_sp = ptrace::registers(tid)?.rsp;
        let Some(maker) = self.threads.get_mut(&tid) else {
            return Ok(());
        };

        // It waits until the child ends or executes another program (vfork(2)).
        maker.in_vfork = event == libc::PTRACE_EVENT_VFORK;
        let shares_memory = maker.in_vfork;
        let parent_pid = maker.pid;

        // The event does not tell threads from processes: clone(2) makes both.
        let pid = process_of(new).unwrap_or(if event == libc::PTRACE_EVENT_CLONE {
            parent_pid
        } else {
            new
        });

        let mut thread = Thread::new(pid);
        // Inherited from the maker (sched_setaffinity(2)).
        thread.affinity = maker.affinity;
        thread.maker_sp = maker_sp;

        if pid != parent_pid {
            if !self.options.children {
                let affinity = maker.affinity;
                if shares_memory && let Some(process) = self.processes.get_mut(&parent_pid) {
                    // Until the child executes another program, it would run into these
                    // breakpoints.
                    process.breakpoints.set_to(tid, &[])?;
                }
                return self.release_child(parent_pid, new, affinity);
            }
            // A child continues in a copy of its parent's frames or, after vfork, in the same
            // frames.
            thread.tracker = maker.tracker.as_ref().map(Tracker::fork);
            let child = self.processes.get(&parent_pid).map(|p| p.fork(pid));
            self.processes.extend(child.map(|c| (pid, c)));
        }

        self.threads.insert(new, thread);
        let (pid, tid, parent_pid) = (pid as u32, new as u32, parent_pid as u32);
        let event = Event::Fork {
            pid,
            tid,
            parent_pid,
        };
        self.recorder.event(&event).map_err(HostError::Recorder)?;

        // Its first stop came before this event.
        if let Some(index) = self.early.iter().position(|&t| t == new) {
            self.early.swap_remove(index);
            if let Some(thread) = self.threads.get_mut(&new) {
                thread.stopped = true;
            }
            return self.event_stop(new, 0);
        }

        Ok(())
    }

    /// Detaches a child that is not followed, without our breakpoints.
    fn release_child(
        &mut self,
        parent: i32,
        child: i32,
        affinity: Option<Affinity>,
    ) -> Result<(), HostError> {
        let has_stopped = self.early.contains(&child);
        self.early.retain(|&t| t != child);
        if !has_stopped && !has_stop(ptrace::wait_until(child)?) {
            return Ok(());
        }
        if let Some(process) = self.processes.get(&parent) {
            let mut copied = process.breakpoints.clone();
            copied.set_to(child, &[])?;
        }
        if let Some(affinity) = affinity {
            affinity.give(child);
        }
        Ok(ptrace::detach(child, 0)?)
    }

    fn exec(&mut self, tid: i32) -> Result<(), HostError> {
        let regs = ptrace::registers(tid)?;
        // The event's message is the former number of the thread that called exec (ptrace(2)).
        let former = ptrace::event_message(tid)?;
        if regs.cs == USER32_CS {
            return Err(HostError::NotX86_64 { pid: tid });
        }

        let mut affinity = None;
        // All other threads are gone, and the caller of exec has taken over the leader's id.
        let gone: Vec<i32> = self.threads_of(tid).collect();
        for other in gone {
            if let Some(thread) = self.threads.remove(&other) {
                self.retire(&thread);
                // The thread that called exec keeps its affinity, but not its number.
                if other == former {
                    affinity = thread.affinity;
                }
            }
        }

        let mut thread = Thread::new(tid);
        thread.affinity = affinity;
        thread.stopped = true;
        thread.regs = Some(regs);
        if !self.options.randomize {
            fix_random_bytes(tid)?;
        }

        let phase = match self.processes.get(&tid).map(|p| p.phase) {
            Some(Phase::Record) => Phase::Record,
            _ => match self.first_phase() {
                // The dynamic linker runs first.
                Phase::ToEntry(_) => Phase::ToEntry(auxiliary(tid, AT_ENTRY).unwrap_or(regs.rip)),
                other => other,
            },
        };

        // The breakpoints are gone with the old memory.
        if let Some(process) = self.processes.get_mut(&tid) {
            process.breakpoints.forget();
        }
        self.add_process(tid, phase);
        self.threads.insert(tid, thread);
        // A program that we start counts from its first exec on.
        if self.summary.threads == 0 {
            self.summary.threads = 1;
        }

        let pid = tid as u32;
        self.recorder
            .event(&Event::Exec { pid })
            .map_err(HostError::Recorder)?;
        // Exec names the thread after the file.
        self.report_comm(tid, tid)?;
        self.refresh_maps(tid, tid)?;

        if let (true, Phase::Record, Some(process), Some(thread)) = (
            self.options.plan.truth,
            phase,
            self.processes.get(&tid),
            self.threads.get_mut(&tid),
        ) {
            thread.tracker = Some(Tracker::root(&cpu(&regs), process.stack_end(regs.rsp)));
        }

        self.resume(tid, 0)
    }

    fn report_comm(&mut self, pid: i32, tid: i32) -> Result<(), HostError> {
        let name = comm(pid, tid);
        let event = Event::Comm {
            pid: pid as u32,
            tid: tid as u32,
            name: &name,
        };
        self.recorder.event(&event).map_err(HostError::Recorder)
    }

    fn threads_of(&self, pid: i32) -> impl Iterator<Item = i32> + '_ {
        let of = move |(&tid, thread): (&i32, &Thread)| (thread.pid == pid).then_some(tid);
        self.threads.iter().filter_map(of)
    }

    /// Adds the statistics of a thread's tracker to the summary.
    pub(crate) fn retire(&mut self, thread: &Thread) {
        if let Some(tracker) = &thread.tracker {
            self.summary.tracker = self.summary.tracker.plus(tracker.stats());
        }
    }

    /// Handles the end of a thread or process.
    pub(crate) fn ended(&mut self, tid: i32, status: Status) -> Result<(), HostError> {
        let Some(thread) = self.threads.remove(&tid) else {
            return Ok(());
        };

        self.retire(&thread);
        let event = Event::Exit {
            pid: thread.pid as u32,
            tid: tid as u32,
        };
        self.recorder.event(&event).map_err(HostError::Recorder)?;

        if self.threads_of(thread.pid).next().is_none() {
            self.processes.remove(&thread.pid);
        }

        if tid == self.target {
            self.summary.program = match status {
                Status::Killed(signal) => ProgramEnd::Killed(signal),
                Status::Exited(code) => ProgramEnd::Exited(code),
                _ => ProgramEnd::RunsOn,
            };
            // If the time is over, the watchdog has killed it.
            let end = if self.is_too_late() {
                End::Timeout
            } else {
                End::Program
            };
            // Its number may be another process' from here on.
            self.watchdog = None;
            self.has_target_ended = true;
            self.end = Some(self.end.unwrap_or(end));
        }
        Ok(())
    }

    /// Traces all threads of a running process.
    pub(crate) fn attach(&mut self, pid: i32) -> Result<(), HostError> {
        self.add_process(pid, self.first_phase());
        let directory = format!("/proc/{pid}/task");
        loop {
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(_) => return Err(HostError::NoProcess { pid }),
            };
            let tids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
            let new: Vec<i32> = tids.filter(|t| !self.threads.contains_key(t)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.attach_thread(pid, tid)?;
            }
        }
        self.refresh_maps(pid, pid)?;
        let stopped: Vec<(i32, i32)> = self.threads.iter().map(|(&t, s)| (t, s.pending)).collect();
        for (tid, signal) in stopped {
            self.resume(tid, signal)?;
        }
        Ok(())
    }

    fn attach_thread(&mut self, pid: i32, tid: i32) -> Result<(), HostError> {
        match ptrace::seize(tid, ptrace::OPTIONS).map_err(HostError::from) {
            // Threads may end while they are listed.
            Err(error) if error.is_gone() => return Ok(()),
            Err(HostError::System { error, .. }) => return Err(HostError::Denied { pid, error }),
            other => other?,
        }

        // PTRACE_SEIZE does not stop the thread (ptrace(2)).
        ptrace::interrupt(tid)?;
        self.threads.insert(tid, Thread::new(pid));

        let waited = ptrace::wait_until(tid)?;
        if let Waited::Stopped(_, Status::Exited(_) | Status::Killed(_)) = waited {
            self.threads.remove(&tid);
            return Ok(());
        }

        let regs = ptrace::registers(tid)?;
        if regs.cs == USER32_CS {
            return Err(HostError::NotX86_64 { pid });
        }

        self.report_comm(pid, tid)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.stopped = true;
            thread.regs = Some(regs);
            // A signal arrived before our stop; the thread gets it when it resumes.
            if let Waited::Stopped(_, Status::Signal(signal)) = waited {
                thread.pending = signal;
            }
        }

        self.summary.threads += 1;
        Ok(())
    }
}

/// Sets the 16 random bytes that the kernel passes to a program to the same value in every
/// recording.
fn fix_random_bytes(pid: i32) -> Result<(), HostError> {
    const BYTES: u64 = 0x5341_4d45_4557_4552;
    if let Some(address) = auxiliary(pid, AT_RANDOM) {
        ptrace::poke(pid, address, BYTES)?;
        ptrace::poke(pid, address.wrapping_add(8), !BYTES)?;
    }
    Ok(())
}

const fn has_stop(waited: Waited) -> bool {
    matches!(
        waited,
        Waited::Stopped(
            _,
            Status::Signal(_) | Status::Event { .. } | Status::Syscall
        )
    )
}

/// The process that a thread belongs to.
fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
