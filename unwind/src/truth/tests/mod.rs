//! The tracker, fed by a machine with a few instructions.

mod anew;
mod callbacks;
mod copies;
mod frames;
mod moved;
mod planted;
mod signals;
mod switches;
mod traced;
mod traps;

use super::*;
use crate::insn::{Insn, SYS_RT_SIGRETURN};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// The addresses of code.
const CODE: core::ops::Range<u64> = 0x1000..0x10_0000;
/// The part of it that shows no file.
const GENERATED: core::ops::Range<u64> = 0x8_0000..0x10_0000;
/// The code of tracers that functions return to instead.
const TRACERS: [u64; 2] = [0x7_0000, 0x7_1000];
/// Addresses that agree in all bits above these are in the same mapping.
const MAPPING_BITS: u32 = 20;

/// The words of memory, what a general register that no call keeps has, and whether it is a kernel's, in
/// which code addresses on the stack are data.
#[derive(Default, Clone)]
struct WordMap(BTreeMap<u64, u64>, Option<u64>, bool);

impl World for WordMap {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.0.get(&address).copied()
    }
    fn is_code(&mut self, address: u64) -> bool {
        CODE.contains(&address)
    }
    fn is_returned_to(&mut self, address: u64) -> bool {
        !self.2 && self.is_code(address)
    }
    fn is_trampoline(&mut self, address: u64) -> bool {
        TRACERS.contains(&address)
    }
    fn has_coroutines(&self) -> bool {
        !self.2
    }
    fn is_generated(&mut self, address: u64) -> bool {
        GENERATED.contains(&address)
    }
    fn same_mapping(&mut self, a: u64, b: u64) -> bool {
        a >> MAPPING_BITS == b >> MAPPING_BITS
    }
    fn is_in_register(&mut self, value: u64) -> bool {
        self.1 == Some(value)
    }
}

const STACK: u64 = 0x7fff_8000;
/// A stack in another mapping.
const OTHER: u64 = 0x6666_0000;
/// A stack farther up, in another mapping.
const HIGHER: u64 = 0x7fff_8000_0000;
const START: u64 = 0x2000;

struct Machine {
    cpu: Cpu,
    words: WordMap,
    tracker: Tracker,
    suspended: Suspended,
}

impl Machine {
    fn new() -> Machine {
        let cpu = Cpu {
            rip: START,
            rsp: STACK,
            saved: [1, 2, 3, 4, 5, 6],
        };
        Machine {
            cpu,
            words: WordMap::default(),
            tracker: Tracker::root(&cpu, STACK + 0x100),
            suspended: Suspended::new(),
        }
    }

    fn step_rax(&mut self, insn: Insn, rax: u64, rip: u64, rsp: u64) {
        let before = self.cpu;
        self.cpu.rip = rip;
        self.cpu.rsp = rsp;
        let after = self.cpu;
        let (suspended, words) = (&mut self.suspended, &mut self.words);
        self.tracker
            .step(insn, &before, rax, &after, suspended, words);
    }

    fn step(&mut self, insn: Insn, rip: u64, rsp: u64) {
        self.step_rax(insn, 0, rip, rsp);
    }

    /// A five-byte call; returns the return address.
    fn call(&mut self, target: u64) -> u64 {
        let back = self.cpu.rip + 5;
        let slot = self.cpu.rsp - 8;
        self.words.0.insert(slot, back);
        let indirect = false;
        self.step(Insn::Call { len: 5, indirect }, target, slot);
        back
    }

    fn ret(&mut self) {
        let target = self.words.0[&self.cpu.rsp];
        self.step(Insn::Ret, target, self.cpu.rsp + 8);
    }

    /// A push, which must do what was said of it if it is plain.
    fn push(&mut self, value: u64) {
        let slot = self.cpu.rsp - 8;
        let (saved, mut other) = (self.cpu.saved, self.tracker.clone());
        let is_plain = other.is_plain_push(slot, value, &saved, &mut self.words);
        self.words.0.insert(slot, value);
        self.step(Insn::Push, self.cpu.rip + 1, slot);
        if is_plain {
            other.pushed(slot);
            other.step_many(1);
            assert_eq!(format!("{other:?}"), format!("{:?}", self.tracker));
        }
    }

    fn pop(&mut self) {
        self.step(Insn::Pop, self.cpu.rip + 1, self.cpu.rsp + 8);
    }

    /// Moves rsp by an offset.
    fn add_sp(&mut self, offset: i64) {
        let rsp = self.cpu.rsp.wrapping_add_signed(offset);
        self.step(Insn::Other, self.cpu.rip + 4, rsp);
    }

    fn load_sp(&mut self, rsp: u64) {
        self.step(Insn::MoveSp, self.cpu.rip + 3, rsp);
    }

    fn store_top(&mut self, value: u64) {
        self.words.0.insert(self.cpu.rsp, value);
        self.step(Insn::StoreTop, self.cpu.rip + 4, self.cpu.rsp);
    }

    fn jump(&mut self, target: u64) {
        self.step(Insn::JumpIndirect, target, self.cpu.rsp);
    }

    /// Delivers a signal with its frame at `frame`.
    fn signal(&mut self, handler: u64, frame: u64) {
        let interrupted = self.cpu;
        self.words.0.insert(frame, RESTORER);
        self.words
            .0
            .insert(frame + 8 + SIGNAL_FRAME_RIP, interrupted.rip);
        self.cpu.rip = handler;
        self.cpu.rsp = frame;
        self.tracker.signal(&interrupted, &self.cpu, RESTORER);
    }

    fn sigreturn(&mut self, to: &Cpu) {
        self.step_rax(Insn::Syscall, SYS_RT_SIGRETURN, to.rip, to.rsp);
    }

    /// The pcs of the true chain except the innermost.
    fn callers(&self) -> Vec<u64> {
        let truth = self.tracker.truth(&self.cpu);
        assert!(truth.is_complete(), "{truth:?}");
        truth.frames()[1..].iter().map(|f| f.pc).collect()
    }

    fn stats(&self) -> Stats {
        *self.tracker.stats()
    }
}

const RESTORER: u64 = 0xf000;
const F: u64 = 0x3000;
const G: u64 = 0x4000;
const FAR: u64 = 0x8_0000;
