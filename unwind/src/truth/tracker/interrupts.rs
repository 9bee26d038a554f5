//! Interruptions of a thread that return: signals, and in ring 0 the processor's interrupts and
//! exceptions.

use super::trapped::COPIED_MAX;
use super::{Arrival, Segment, Tracker};
use crate::insn::Insn;
use crate::truth::stacks::{Cpu, ShadowFrame, Suspended, World};
use crate::truth::{SIGNAL_FRAME_RIP, TrueKind};

/// How far down entry code moves the frame that `iret` pops, bytes: `int3` from the kernel leaves room for
/// a call that its handler emulates (Linux `idtentry`, `create_gap`).
const MOVED_MAX: u64 = 48;

impl Tracker {
    /// A signal was delivered. `interrupted` is what the kernel saved in the signal frame; `entry`
    /// is the state at the handler's first instruction, where rsp points to `restorer` (Linux
    /// `arch/x86/kernel/signal_64.c`, `x64_setup_rt_frame`).
    pub fn signal(&mut self, interrupted: &Cpu, entry: &Cpu, restorer: u64) {
        self.stats.signals += 1;

        // A first arrival that the signal interrupted continues after the handler.
        let arrival = core::mem::replace(&mut self.arrival, Arrival::Past);
        if arrival != Arrival::Past {
            self.interrupted.push((self.chain.segments.len(), arrival));
        }

        let cfa = entry.rsp.wrapping_add(8);
        // The `ucontext`, with the interrupted registers, is above the handler's return address.
        let slot = cfa.wrapping_add(SIGNAL_FRAME_RIP);

        // The handler has a segment of its own: it may run on the alternate signal stack.
        self.chain.last_mut().low = interrupted.rsp;
        self.chain.segments.push(Segment {
            first: self.chain.frames.len(),
            high: slot,
            low: entry.rsp,
            pending: None,
        });

        // The interrupted frame comes first: its pc is exact, since nothing was called.
        self.chain.frames.push(ShadowFrame {
            slot,
            cfa: interrupted.rsp,
            pc: interrupted.rip,
            saved: interrupted.saved,
            kind: TrueKind::Interrupted,
            rewritten: false,
            taken: false,
            thunk: false,
            in_register: false,
            planted: false,
            entry: entry.rip,
        });

        // The handler returns to the restorer, which calls `rt_sigreturn`.
        self.push(entry.rsp, cfa, restorer, entry);
    }

    /// The processor delivered an interrupt or exception in ring 0. `interrupted` is the state
    /// before it; `entry` is the state at the handler's first instruction, where rsp points to the
    /// saved rip.
    pub fn trap(&mut self, interrupted: &Cpu, entry: &Cpu) {
        self.chain.last_mut().low = interrupted.rsp;
        self.chain.segments.push(Segment {
            first: self.chain.frames.len(),
            high: entry.rsp,
            low: entry.rsp,
            pending: None,
        });
        self.chain.frames.push(ShadowFrame {
            slot: entry.rsp,
            cfa: interrupted.rsp,
            pc: interrupted.rip,
            saved: interrupted.saved,
            kind: TrueKind::Trapped,
            rewritten: false,
            taken: false,
            thunk: false,
            in_register: false,
            planted: false,
            entry: entry.rip,
        });
        self.settle();
    }

    /// An `iret` in ring 0, whose frame was at rsp of `before`. It ends the interrupt that pushed
    /// the frame, or is an ordinary transfer of control.
    pub fn iret<W: World>(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut W,
    ) {
        let chain = &mut self.chain;
        let is_it = |s: &Segment| {
            let held = chain.frames.get(s.first);
            let below = |f: &ShadowFrame| f.slot.wrapping_sub(before.rsp);
            held.is_some_and(|f| f.kind == TrueKind::Trapped && below(f) <= MOVED_MAX)
        };

        let Some(index) = chain.segments.iter().rposition(is_it) else {
            return self.step(Insn::Far, before, 0, after, suspended, world);
        };

        // Otherwise `step` counts it.
        self.stats.instructions += 1;
        self.stats.unknown += u64::from(self.doubt);

        let held = chain.frames[chain.segments[index].first];
        if held.cfa != after.rsp && held.slot.wrapping_sub(after.rsp).wrapping_sub(1) < COPIED_MAX {
            // An NMI in the handler of another one has let that begin again (Linux `repeat_nmi`).
            chain.cut_to_segment(index);
            chain.pop_below(after.rsp);
            return self.settle();
        }
        chain.cut_to_segment(index.saturating_sub(1));
        self.settle();

        // The handler changed the frame before it returned.
        if held.pc != after.rip || held.cfa != after.rsp {
            self.stats.redirected += 1;
            self.go_elsewhere(&held, before, after, suspended, world);
        } else {
            self.stats.redirected += u64::from(held.rewritten);
        }
    }

    /// The handler of `held` has changed what is interrupted: it goes on at `after`.
    fn go_elsewhere(
        &mut self,
        held: &ShadowFrame,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        let injected = world.word(after.rsp).filter(|&w| world.is_code(w));
        if let (true, Some(pc)) = (after.rsp == held.cfa.wrapping_sub(8), injected) {
            // The handler made the interrupted function call another one: Go's asyncPreempt, Linux's
            // `int3_emulate_call`.
            self.push(after.rsp, held.cfa, pc, after);
            return;
        }

        // As if the interrupted code had loaded rsp.
        let from = Cpu {
            rsp: held.cfa,
            ..*before
        };
        self.load_sp(&from, after, suspended, world);
    }

    /// The saved rip of an interrupted frame, at `slot`, was written: the handler will return to
    /// another address. Does nothing if there is no such frame.
    pub fn redirect(&mut self, slot: u64, pc: u64) {
        let frames = self.chain.frames.iter_mut().rev();
        let mut interrupted = frames.filter(|f| f.kind == TrueKind::Interrupted);
        if let Some(held) = interrupted.find(|f| f.slot == slot) {
            held.rewritten |= held.pc != pc;
            held.pc = pc;
        }
    }

    pub(super) fn sigreturn(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        let slot = before.rsp.wrapping_add(SIGNAL_FRAME_RIP);
        let chain = &mut self.chain;
        let is_it = |f: &&ShadowFrame| f.kind == TrueKind::Interrupted && f.slot == slot;

        // The interrupted frame is the first of the handler's segment.
        let found = chain.segments.iter().enumerate().rev().find_map(|(i, s)| {
            let held = chain.frames.get(s.first).filter(is_it)?;
            Some((i.checked_sub(1)?, *held))
        });

        let Some((interrupted, held)) = found else {
            self.load_sp(before, after, suspended, world);
            return;
        };

        chain.cut_to_segment(interrupted);
        self.settle();
        self.arrival = Arrival::Past;

        // The arrival that this signal interrupted; those of deeper segments ended with them.
        while let Some((segments, arrival)) = self.interrupted.pop_if(|i| i.0 > interrupted) {
            if segments == interrupted + 1 {
                self.arrival = arrival;
            }
        }

        if held.pc == after.rip && held.cfa == after.rsp {
            self.stats.redirected += u64::from(held.rewritten);
            return;
        }

        self.stats.redirected += 1;
        self.go_elsewhere(&held, before, after, suspended, world);
    }
}
