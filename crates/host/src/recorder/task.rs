//! The traced processes and threads.

use super::breakpoints::Breakpoints;
use super::code::CodeCache;
use crate::memory::ProcessMemory;
use std::collections::HashMap;
use unwind_sim_emulator_native::maps::Maps;
use unwind_sim_emulator_native::pin::Affinity;
use unwind_sim_emulator_native::ptrace::Registers;
use unwind_sim_unwind::insn::{Insn, classify_at};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{Cpu, Suspended, Tracker, World};

/// The phase of a process' recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Running at full speed to the program's entry, at this address.
    ToEntry(u64),
    /// Being single-stepped from the entry to the place to record from.
    Approach,
    /// Running at full speed to the place to record from.
    Seek,
    /// Being recorded.
    Record,
}

/// What a place in the program is for: sampling ([`crate::At::Points`] index), or starting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Sample(usize),
    Own(usize),
    From,
}

/// A name to locate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) role: Role,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) memory: ProcessMemory,
    pub(crate) maps: Maps,
    pub(crate) code: CodeCache,
    pub(crate) suspended: Suspended,
    pub(crate) phase: Phase,
    pub(crate) places: HashMap<u64, Vec<Role>>,
    /// Indices of the names that no mapping has contained yet.
    pub(crate) missing: Vec<usize>,
    pub(crate) breakpoints: Breakpoints,
    /// The code at the program's entry has made its first call.
    pub(crate) entered: bool,
}

impl Process {
    pub(crate) fn new(pid: i32, phase: Phase, names: usize) -> Process {
        Process {
            pid,
            memory: ProcessMemory::new(pid),
            maps: Maps::default(),
            code: CodeCache::default(),
            suspended: Suspended::new(),
            phase,
            places: HashMap::new(),
            missing: (0..names).collect(),
            breakpoints: Breakpoints::default(),
            entered: false,
        }
    }

    /// The copy for a forked child.
    pub(crate) fn fork(&self, pid: i32) -> Process {
        Process {
            pid,
            memory: ProcessMemory::new(pid),
            maps: self.maps.for_process(pid),
            code: CodeCache::default(),
            suspended: self.suspended.clone(),
            phase: self.phase,
            places: self.places.clone(),
            missing: self.missing.clone(),
            breakpoints: self.breakpoints.clone(),
            entered: self.entered,
        }
    }

    /// The class of the instruction at `address`.
    pub(crate) fn classify(&mut self, address: u64) -> Insn {
        let bytes = self.code.bytes(address, &self.maps, self.memory);
        let before = self.code.bytes_before(address, &self.maps, self.memory);
        classify_at(address, before, &bytes)
    }

    /// The end of the mapping that `sp` lies in.
    pub(crate) fn stack_end(&self, sp: u64) -> u64 {
        self.maps.find(sp).map_or(sp, |m| m.range.end)
    }
}

/// What a tracker may ask about its process.
pub(crate) struct Surroundings<'a> {
    pub(crate) memory: ProcessMemory,
    pub(crate) maps: &'a Maps,
    /// Those after the instruction.
    pub(crate) registers: &'a Registers,
}

impl World for Surroundings<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.memory.word(address)
    }

    fn is_code(&mut self, address: u64) -> bool {
        self.maps.find(address).is_some_and(|m| m.execute)
    }

    fn is_generated(&mut self, address: u64) -> bool {
        let found = self.maps.find(address);
        found.is_some_and(|m| m.execute && !m.is_of_file())
    }

    fn same_mapping(&mut self, a: u64, b: u64) -> bool {
        let found = self.maps.find(a);
        found.is_some_and(|m| m.range.contains(&b))
    }

    fn is_in_register(&mut self, value: u64) -> bool {
        let r = self.registers;
        let all = [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12,
            r.r13, r.r14, r.r15,
        ];
        all.contains(&value)
    }
}

/// How a thread was last resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Not resumed yet.
    New,
    /// For one instruction.
    Step,
    /// At full speed.
    Run,
}

/// The registers of a fetching function, until the unwinder's starting point is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchedRegs {
    pub(crate) point: usize,
    pub(crate) sampled: Regs,
    pub(crate) fetch: Regs,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) pid: i32,
    pub(crate) mode: Mode,
    /// It is in a ptrace stop.
    pub(crate) stopped: bool,
    /// Its registers when it last stopped.
    pub(crate) regs: Option<Registers>,
    pub(crate) tracker: Option<Tracker>,
    /// The class of the next instruction.
    pub(crate) insn: Insn,
    /// The signal it was last resumed with.
    pub(crate) injected: i32,
    /// The signal it will be resumed with.
    pub(crate) pending: i32,
    /// The rsp of the thread that created it, whose frames its tracker starts with.
    pub(crate) maker_sp: u64,
    /// The breakpoint it stopped at, already handled: it is stepped over next.
    pub(crate) handled: Option<u64>,
    /// It waits for its vforked child, and can neither run nor be stopped.
    pub(crate) in_vfork: bool,
    /// rip and rsp of the last place it stopped at, to which a signal handler may return.
    pub(crate) last_place: (u64, u64),
    /// We interrupted it to sample it.
    pub(crate) asked: bool,
    /// Fetched registers, for fake starts.
    pub(crate) armed: Vec<FetchedRegs>,
    /// Its own affinity, while it is pinned.
    pub(crate) affinity: Option<Affinity>,
}

impl Thread {
    pub(crate) fn new(pid: i32) -> Thread {
        Thread {
            pid,
            mode: Mode::New,
            stopped: false,
            regs: None,
            tracker: None,
            insn: Insn::Other,
            injected: 0,
            pending: 0,
            maker_sp: 0,
            handled: None,
            in_vfork: false,
            last_place: (0, 0),
            asked: false,
            armed: Vec::new(),
            affinity: None,
        }
    }
}

/// The registers that the tracker needs.
pub(crate) fn cpu(regs: &Registers) -> Cpu {
    Cpu {
        rip: regs.rip,
        rsp: regs.rsp,
        saved: [regs.rbx, regs.rbp, regs.r12, regs.r13, regs.r14, regs.r15],
    }
}

/// All registers that a sample holds.
pub(crate) fn sample_regs(regs: &Registers) -> Regs {
    /// Set in rflags by single-stepping, not by the program (Intel SDM volume 1, 3.4.3.3).
    const TRAP_FLAG: u64 = 1 << 8;
    let mut out = Regs::UNKNOWN;
    let values = [
        (Reg::Rax, regs.rax),
        (Reg::Rdx, regs.rdx),
        (Reg::Rcx, regs.rcx),
        (Reg::Rbx, regs.rbx),
        (Reg::Rsi, regs.rsi),
        (Reg::Rdi, regs.rdi),
        (Reg::Rbp, regs.rbp),
        (Reg::Rsp, regs.rsp),
        (Reg::R8, regs.r8),
        (Reg::R9, regs.r9),
        (Reg::R10, regs.r10),
        (Reg::R11, regs.r11),
        (Reg::R12, regs.r12),
        (Reg::R13, regs.r13),
        (Reg::R14, regs.r14),
        (Reg::R15, regs.r15),
        (Reg::Rip, regs.rip),
        (Reg::Rflags, regs.eflags & !TRAP_FLAG),
        (Reg::Cs, regs.cs),
    ];

    // What is not in the list stays unknown.
    for (reg, value) in values {
        out.set(reg, value);
    }
    out
}
