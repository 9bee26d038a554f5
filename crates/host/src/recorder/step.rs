//! Single-steps one instruction.

use super::session::Session;
use super::task::{Process, Surroundings, Thread, cpu};
use crate::error::HostError;
use unwind_sim_emulator_native::pin;
use unwind_sim_emulator_native::ptrace::{self, Registers};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Cpu, Tracker};

/// Offsets of the saved rsp and rip from rsp at the entry of a signal handler (Linux
/// `arch/x86/include/uapi/asm/sigcontext.h`, `struct rt_sigframe`).
const SIGNAL_FRAME_RSP: u64 = 168;
const SIGNAL_FRAME_RIP: u64 = 176;
/// Length of `syscall`, by which rip moves back when a call is restarted.
const SYSCALL_LEN: u64 = 2;
/// ERESTARTSYS to ERESTART_RESTARTBLOCK (Linux `include/linux/errno.h`), as rax shows them.
const RESTARTS: [u64; 4] = [
    (-512i64) as u64,
    (-513i64) as u64,
    (-514i64) as u64,
    (-516i64) as u64,
];
const TRAP_FLAG: u64 = 1 << 8;

/// System calls that change mappings: mmap, mprotect, munmap, brk, mremap, shmat, shmdt,
/// remap_file_pages, pkey_mprotect.
const MAPPING_CALLS: [u64; 9] = [9, 10, 11, 12, 25, 30, 67, 216, 329];

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepOutcome {
    /// An instruction was executed.
    Instruction(Insn),
    /// A signal handler was entered; no instruction.
    Handler,
    /// Nothing: the thread only left a stop.
    Nothing,
}

/// If the thread is at the first instruction of a signal handler: the interrupted state, and the
/// restorer.
pub(crate) fn handler_entry(
    process: &Process,
    before: &Registers,
    after: &Registers,
) -> Option<(Cpu, u64)> {
    let word = |offset: u64| process.memory.word(after.rsp.wrapping_add(offset));
    let (rsp, rip) = (word(SIGNAL_FRAME_RSP)?, word(SIGNAL_FRAME_RIP)?);
    let restarted = rip == before.rip.wrapping_sub(SYSCALL_LEN);
    if rsp != before.rsp || !(rip == before.rip || restarted) || after.rip == before.rip {
        return None;
    }
    let interrupted = Cpu {
        rip,
        rsp,
        saved: cpu(before).saved,
    };
    Some((interrupted, word(0)?))
}

/// Whether an instruction completed between two stops of a thread that was resumed for one. After
/// an exec or a signal there may be a stop at which nothing happened. A repeated string instruction
/// stays at its address, but decrements rcx.
fn was_executed(before: &Registers, after: &Registers, insn: Insn) -> bool {
    let moved = before.rip != after.rip || before.rsp != after.rsp;
    let jumps = matches!(insn, Insn::Jump | Insn::JumpLinked { .. });
    moved || before.rcx != after.rcx || jumps
}

impl Session<'_> {
    /// Prepares the stopped thread `tid` for single-stepping.
    pub(crate) fn begin_stepping(&mut self, tid: i32, regs: &Registers) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if let (Some(pinned), None) = (&self.pinned, thread.affinity) {
            thread.affinity = pinned.bring(tid);
        }
        let process = self.processes.get(&thread.pid);
        if let (true, None, Some(process)) = (self.options.plan.truth, &thread.tracker, process) {
            let high = process.stack_end(regs.rsp);
            thread.tracker = Some(Tracker::middle(&cpu(regs), high));
        }
    }

    /// Inspects the next instruction of `tid` before it is stepped.
    pub(crate) fn prepare_step(&mut self, tid: i32, regs: &Registers) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(process) = self.processes.get_mut(&thread.pid) else {
            return;
        };
        thread.insn = process.classify(regs.rip);
        if thread.insn == Insn::Syscall
            && pin::SYSCALLS.contains(&regs.rax)
            && let Some(affinity) = thread.affinity.take()
        {
            affinity.give(tid);
        }
    }

    /// Handles the stop, with registers `after`, of a thread that was resumed for one instruction.
    pub(crate) fn stepped(
        &mut self,
        tid: i32,
        after: &Registers,
    ) -> Result<StepOutcome, HostError> {
        let Session {
            threads,
            processes,
            pinned,
            ..
        } = self;

        // The thread may have ended since, or the process with it.
        let Some(thread) = threads.get_mut(&tid) else {
            return Ok(StepOutcome::Nothing);
        };
        let Some(process) = processes.get_mut(&thread.pid) else {
            return Ok(StepOutcome::Nothing);
        };
        let Some(before) = thread.regs.replace(*after) else {
            return Ok(StepOutcome::Nothing);
        };

        // A handler is entered only for a signal that was passed on with the step.
        if thread.injected != 0
            && let Some((interrupted, restorer)) = handler_entry(process, &before, after)
        {
            if let Some(tracker) = &mut thread.tracker {
                tracker.signal(&interrupted, &cpu(after), restorer);
            }
            return Ok(StepOutcome::Handler);
        }

        // A system call that the kernel restarts has not been executed yet.
        let restarted = before.rip == after.rip && RESTARTS.contains(&before.rax);
        if restarted || !was_executed(&before, after, thread.insn) {
            return Ok(StepOutcome::Nothing);
        }

        if thread.insn == Insn::Pushf {
            // The program must not see the flag that makes it stop after each instruction.
            hide_trap_flag(process, tid, after.rsp)?;
        }
        track(thread, process, &before, after);

        // `prepare_step` gave back the thread's processors for a call that sees them.
        if thread.insn == Insn::Syscall
            && thread.affinity.is_none()
            && let Some(pinned) = pinned
        {
            thread.affinity = pinned.bring(tid);
        }

        let insn = thread.insn;
        let pid = process.pid;
        if insn == Insn::Syscall && MAPPING_CALLS.contains(&before.rax) {
            self.refresh_maps(pid, tid)?;
        }
        Ok(StepOutcome::Instruction(insn))
    }
}

fn track(thread: &mut Thread, process: &mut Process, before: &Registers, after: &Registers) {
    let Some(tracker) = &mut thread.tracker else {
        return;
    };
    let mut world = Surroundings {
        memory: process.memory,
        maps: &process.maps,
        registers: after,
    };
    tracker.step(
        thread.insn,
        &cpu(before),
        before.rax,
        &cpu(after),
        &mut process.suspended,
        &mut world,
    );
}

/// Under single-stepping, `pushf` pushes a trap flag that the program did not set, and a later
/// `popf` would really set it. Clears it in the pushed word.
fn hide_trap_flag(process: &Process, tid: i32, slot: u64) -> Result<(), HostError> {
    match process.memory.word(slot) {
        Some(flags) if flags & TRAP_FLAG != 0 => Ok(ptrace::poke(tid, slot, flags & !TRAP_FLAG)?),
        _ => Ok(()),
    }
}
