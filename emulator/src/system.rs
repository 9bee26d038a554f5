//! System mode: the machine as the processor of a kernel that is executed, too.
//!
//! [`System`] is a [`Machine`] whose memory goes through page tables, with the registers of ring 0
//! (`registers`), descriptor tables, exceptions and interrupts (`deliver`), the instructions that only
//! a kernel executes (`privileged`), and the devices of a small computer without buses (`devices`).
//! [`boot`] loads a Linux as a boot loader does. All other instructions are those of the machine: there
//! is one set of semantics.
//!
//! Time is counted in executed instructions: one is a tick of the time stamp counter, and a nanosecond.
//! `hlt` skips to the next event of a device. A run depends on nothing else.
//!
//! Source: Intel SDM volume 3; AMD APM volume 2. Not modelled: protected and compatibility mode, so no
//! 32-bit programs; task switches; breakpoints of ports; process-context identifiers, which `cpuid` does
//! not claim; machine checks; system management mode; virtualization.

mod alignment;
pub mod boot;
mod breakpoints;
mod controls;
mod counted;
mod counters;
mod cpuid;
mod deliver;
mod descriptor;
pub mod devices;
pub mod initramfs;
mod last_branches;
mod ports;
mod privileged;
mod registers;
mod segments;
mod snapshot;
mod transfers;

use crate::address_space::{AddressSpace, Controls};
use crate::core::Core;
use crate::flags;
use crate::machine::{Exit, Machine, Observer};
use crate::processor::{Gates, Processor, Vendor};
use crate::state::{Preserved, reg};
use crate::stop::{Call, Exception};
use boot::Entry;
pub use counted::NoCounters;
use devices::{Devices, Reset};
use registers::{Registers, cr0, cr4, efer, msr};
pub use snapshot::{SystemSnapshot, SystemState};
use std::fmt;

/// Selectors with which 64-bit code starts (`Documentation/arch/x86/boot.rst`): `__BOOT_CS`, and
/// `__BOOT_DS`.
const BOOT_CODE: u16 = 0x10;
const BOOT_DATA: u16 = 0x18;

/// Numbers of segments in the state.
const ES: usize = 0;
const CS: usize = 1;
const SS: usize = 2;
const DS: usize = 3;
const FS: usize = 4;
const GS: usize = 5;

/// How often the devices may do something while the processor waits, and not interrupt it: a timer
/// whose interrupt is masked goes on for ever.
const EVENTS_MAX: u32 = 1 << 20;

/// How often exceptions and interrupts may be delivered before an instruction is executed: no kernel's
/// stack has room for so many frames, so all are at the same place.
const DELIVERIES_MAX: u32 = 1 << 16;

/// A revision with which Linux uses the TSC deadline of a Skylake's timer (`deadline_match` in
/// arch/x86/kernel/apic/apic.c).
const MICROCODE: u32 = 0xf0;

/// Vectors of exceptions.
mod vector {
    pub(super) const DIVIDE: u8 = 0;
    pub(super) const DEBUG: u8 = 1;
    pub(super) const NMI: u8 = 2;
    pub(super) const BREAKPOINT: u8 = 3;
    pub(super) const INVALID_OPCODE: u8 = 6;
    pub(super) const NOT_AVAILABLE: u8 = 7;
    pub(super) const DOUBLE_FAULT: u8 = 8;
    pub(super) const INVALID_TASK: u8 = 10;
    pub(super) const NOT_PRESENT: u8 = 11;
    pub(super) const STACK: u8 = 12;
    pub(super) const GENERAL_PROTECTION: u8 = 13;
    pub(super) const PAGE_FAULT: u8 = 14;
    pub(super) const X87: u8 = 16;
    pub(super) const ALIGNMENT: u8 = 17;
    pub(super) const SIMD: u8 = 19;
}

/// Why a run ended, or has stopped for now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The requested number of instructions was executed.
    Limit,
    /// `hlt` with interrupts disabled: nothing can happen any longer. This is how a kernel without
    /// power management ends after "reboot: Power down".
    Halted,
    /// The power was switched off.
    PoweredOff,
    /// A device was asked to reset the computer.
    Reset(Reset),
    /// An exception while a double fault was delivered: a processor resets itself.
    TripleFault {
        /// The address of the instruction at which it began.
        rip: u64,
    },
    /// An instruction, or a form of it, that the machine does not model.
    Unmodelled {
        /// Its address.
        rip: u64,
        /// Its bytes, as many as can be fetched.
        bytes: Vec<u8>,
        /// What of it is not modelled.
        what: &'static str,
    },
    /// `hlt` that no event ends.
    WaitsForEver,
    /// Exceptions follow each other, and no instruction is executed any longer.
    ExceptionLoop {
        /// The address of the instruction that raises them.
        rip: u64,
    },
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Limit => f.write_str("the limit of instructions was reached"),
            Stopped::Halted => f.write_str("the processor was halted with interrupts disabled"),
            Stopped::PoweredOff => f.write_str("the power was switched off"),
            Stopped::Reset(reset) => {
                write!(f, "the kernel reset the computer ({})", reset.as_str())
            }
            Stopped::TripleFault { rip } => write!(f, "triple fault at {rip:#x}"),
            Stopped::Unmodelled { rip, bytes, what } => {
                write!(f, "{what} is not modelled: at {rip:#x},")?;
                bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
            }
            Stopped::WaitsForEver => f.write_str("the processor waits, and nothing will happen"),
            Stopped::ExceptionLoop { rip } => {
                write!(
                    f,
                    "exceptions for ever: the handler raises one, too, at {rip:#x}"
                )
            }
        }
    }
}

/// How ring 0 was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemEntry {
    /// What goes on when the handler returns.
    pub interrupted: Preserved,
    /// Whether that is user mode.
    pub from_user: bool,
    /// Where the processor pushed the frame that `iret` pops: the address of the saved rip. `None` for a
    /// system call, which pushes nothing.
    pub frame: Option<u64>,
    /// The vector of the exception or interrupt.
    pub vector: Option<u8>,
    /// Whether an instruction did it, which was executed: `syscall`, `int n`, `int3`.
    pub is_by_instruction: bool,
}

/// Observes a kernel: its instructions, and what the processor does between them. User mode is not
/// observed.
pub trait SystemObserver: Observer {
    /// Something entered ring 0, or interrupted it. `core` is at the first instruction of the handler.
    fn entered(&mut self, entry: &SystemEntry, core: &Core);

    /// `iret`, at which the state was `before`, has returned to ring 0.
    fn returned(&mut self, before: &Preserved, core: &Core);

    /// User mode goes on.
    fn left(&mut self, core: &Core);
}

/// Nobody follows.
impl SystemObserver for () {
    fn entered(&mut self, _: &SystemEntry, _: &Core) {}
    fn returned(&mut self, _: &Preserved, _: &Core) {}
    fn left(&mut self, _: &Core) {}
}

/// What happened that an observer is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passage {
    Entered(SystemEntry),
    Returned { before: Preserved },
    Left,
}

/// What the last instruction delays until the next one is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Shadow {
    #[default]
    Nothing,
    /// Interrupts: by `sti`.
    Interrupts,
    /// Interrupts and traps: by loading ss. Another load of ss then delays nothing.
    InterruptsAndTraps,
}

/// What comes after an instruction that started with TF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// A trap, although the instruction may have cleared TF.
    Trap,
    /// A trap if TF is set now: after `syscall` and `sysret`.
    TrapIfStill,
    /// A handler, whose frame has TF: after an exception or `int n`.
    Handler,
}

/// A computer: a processor in system mode, its memory and its devices.
#[derive(Clone, Debug)]
pub struct System {
    /// The processor with its memory.
    pub machine: Machine,
    registers: Registers,
    shadow: Shadow,
    /// Whether an NMI is being handled: until the next `iret`.
    nmi_blocked: bool,
    /// Bits of DR6: of breakpoints whose memory was accessed, for which no #DB was raised yet.
    pending_breakpoints: u64,
    /// What an observer has not been told yet.
    passage: Option<Passage>,
    /// Whether the last instruction was `hlt`.
    halts: bool,
    /// Why it can no longer run.
    ended: Option<Stopped>,
}

impl System {
    /// A computer with this much memory, in bytes, all zeros, whose clock says so many seconds since
    /// 1970. Its processor is in 64-bit mode, and its page tables are at 0.
    pub fn new(memory: usize, processor: Processor, seconds: u64) -> System {
        let space = AddressSpace::with_paging(memory, Devices::new(seconds));
        let mut core = Core::with_processor(space, processor);
        core.is_system = true;
        core.state.other_flags = flags::FIXED;
        core.state.segments = [BOOT_DATA; 6];
        core.state.segments[CS] = BOOT_CODE;
        let mut system = System {
            machine: Machine::new(core),
            registers: Registers::new(&processor),
            shadow: Shadow::Nothing,
            nmi_blocked: false,
            pending_breakpoints: 0,
            passage: None,
            halts: false,
            ended: None,
        };
        system.set_controls();
        system
    }

    /// Physical memory.
    pub fn memory(&self) -> &[u8] {
        self.machine.core.memory.physical()
    }

    /// Physical memory, to be filled before the first instruction.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        self.machine.core.memory.physical_mut()
    }

    /// Sets the seed of the numbers that `rdrand` and `rdseed` give.
    pub fn set_seed(&mut self, seed: u64) {
        self.machine.core.seed = seed;
    }

    /// Makes the devices those of a computer with ACPI, whose tables [`boot`] places: the local APIC is enabled,
    /// the power can be switched off, and firmware has loaded microcode.
    pub fn add_acpi(&mut self) {
        if self.machine.core.processor.vendor() == Vendor::Intel {
            self.registers.microcode = MICROCODE;
        }
        if let Some(devices) = self.devices() {
            devices.add_acpi();
        }
    }

    /// Puts the processor where a loaded kernel starts.
    pub fn start(&mut self, entry: &Entry) {
        let (base, limit) = entry.gdt;
        self.registers.gdt = registers::Table { base, limit };
        self.registers.cr3 = entry.cr3;
        let state = &mut self.machine.core.state;
        state.rip = entry.rip;
        state.set_gpr(reg::RSI, entry.boot_params);
        state.set_gpr(reg::RSP, entry.rsp);
        self.set_controls();
    }

    /// Instructions executed so far.
    pub fn executed(&self) -> u64 {
        self.machine.executed()
    }

    /// The time, nanoseconds.
    pub fn now(&self) -> u64 {
        self.machine.now()
    }

    /// The devices.
    pub fn devices(&mut self) -> Option<&mut Devices> {
        let paging = self.machine.core.memory.paging();
        paging.map(|paging| &mut paging.devices)
    }

    /// The model-specific registers that were asked for and do not exist, each with how often.
    pub fn unknown_registers(&self) -> Vec<(u32, u64)> {
        let unknown = &self.registers.unknown;
        let mut all: Vec<_> = unknown.iter().map(|(&msr, &count)| (msr, count)).collect();
        all.sort_unstable();
        all
    }

    /// The privilege level: 0 to 3.
    pub fn privilege(&self) -> u8 {
        (self.machine.core.state.segments[CS] & 3) as u8
    }

    /// Executes at most this number of instructions. Time that the processor waits does not count.
    pub fn run<O: SystemObserver>(&mut self, limit: u64, observer: &mut O) -> Stopped {
        let end = self.executed().saturating_add(limit);
        let mut last = self.executed();
        let mut deliveries = 0;
        loop {
            if let Some(ended) = &self.ended {
                return ended.clone();
            }

            // Each round executes an instruction, or delivers an exception or an interrupt.
            deliveries = if self.executed() == last {
                deliveries + 1
            } else {
                0
            };
            last = self.executed();
            if deliveries > DELIVERIES_MAX {
                let rip = self.machine.core.state.rip;
                self.ended = Some(Stopped::ExceptionLoop { rip });
                continue;
            }

            let left = end.saturating_sub(self.executed());
            if left == 0 {
                return Stopped::Limit;
            }
            if self.registers.counters.is_some() {
                self.advance_counted(left, observer);
            } else {
                self.advance(left, observer);
            }
            self.tell(observer);
            if O::STOPS && observer.has_stopped() {
                return Stopped::Limit;
            }
        }
    }

    /// Tells the observer what has happened since it was told last.
    fn tell<O: SystemObserver>(&mut self, observer: &mut O) {
        let Some(passage) = self.passage.take().filter(|_| O::WANTED) else {
            return;
        };
        let core = &self.machine.core;
        match passage {
            Passage::Entered(entry) => observer.entered(&entry, core),
            Passage::Returned { before } => observer.returned(&before, core),
            Passage::Left => observer.left(core),
        }
    }

    /// Executes at most this number of instructions, but stops where the system is needed.
    fn advance<O: SystemObserver>(&mut self, left: u64, observer: &mut O) {
        let now = self.now();
        let Some(devices) = self.devices() else {
            return;
        };
        devices.update(now);
        if devices.is_off() {
            self.ended = Some(Stopped::PoweredOff);
            return;
        }
        if let Some(reset) = devices.reset() {
            self.ended = Some(Stopped::Reset(reset));
            return;
        }
        let shadow = std::mem::take(&mut self.shadow);
        if shadow == Shadow::Nothing {
            if self.pending_breakpoints != 0 {
                return self.raise_debug_trap(self.machine.core.state.rip, false);
            }
            if self.take_interrupt() {
                return;
            }
        }

        let flags = self.machine.core.state.other_flags;
        let steps = flags & flags::TF != 0;
        let resumes = flags & flags::RF != 0;
        let checks = self.checks_alignment();
        let has_breakpoints = self.has_breakpoints();
        let mut accessed = 0;
        if has_breakpoints {
            let here = self.instruction_breakpoints();
            if here != 0 && !resumes && shadow != Shadow::InterruptsAndTraps {
                return self.raise_breakpoint(here);
            }
            accessed = self.data_breakpoints();
        }
        if checks && self.is_misaligned() {
            return self.raise_exception(Exception::Alignment);
        }
        let is_one = checks
            || shadow != Shadow::Nothing
            || steps
            || resumes
            || has_breakpoints
            || self.is_recording();
        let most = if is_one {
            1
        } else {
            left.min(self.until_event())
        };
        let (start, executed_before) = (self.machine.core.state.rip, self.executed());
        self.machine.core.state.single_iteration = steps || has_breakpoints;
        let privilege = self.privilege();
        let is_observed = O::WANTED && privilege == 0;
        let exit = if is_observed {
            self.machine.run_system(most, true, observer)
        } else {
            self.machine.run_system(most, O::WANTED, &mut ())
        };
        if exit == Exit::System {
            self.count_executed(privilege);
        }
        if O::STOPS && observer.has_stopped() && self.executed() == executed_before {
            // Nothing was executed, so what is delayed still is.
            self.shadow = shadow;
            return;
        }
        let goes_on = has_breakpoints && self.goes_on(start);
        if resumes && !goes_on {
            // RF holds for one instruction. If that faults, it is in the frame in any case.
            self.machine.core.state.other_flags &= !flags::RF;
        }

        let next = match exit {
            Exit::Limit => Next::Trap,
            Exit::System => {
                let insn = self.machine.stopped_at();
                let before = self.executed();
                let next = self.execute_privileged(shadow);
                let is_done = self.executed() != before;
                if is_observed && is_done && self.passage.is_none() {
                    let core = &self.machine.core;
                    observer.after(core, &insn, core.state.rip);
                }
                if self.halts {
                    self.halt();
                }
                next
            }
            Exit::Exception(exception) => {
                self.raise_exception(exception);
                Next::Handler
            }
            Exit::Kernel(Call::Syscall) => self.enter_syscall(),
            // In system mode these are instructions of the system.
            Exit::Kernel(Call::Int80) | Exit::Halt | Exit::Unsupported => {
                self.end_unmodelled("an instruction");
                Next::Handler
            }
        };
        let now_steps = self.machine.core.state.other_flags & flags::TF != 0;
        let steps_now = match next {
            Next::Trap => steps,
            Next::TrapIfStill => now_steps,
            Next::Handler => false,
        };
        if next != Next::Handler {
            self.pending_breakpoints |= accessed;
        }
        let traps = steps_now || self.pending_breakpoints != 0 && next != Next::Handler;
        if traps && self.shadow != Shadow::InterruptsAndTraps {
            self.raise_debug_trap(start, steps_now);
        }
    }

    /// How long until a device does something or a counter overflows, at least one instruction.
    fn until_event(&mut self) -> u64 {
        let now = self.now();
        let next = self.devices().and_then(|devices| devices.next_event(now));
        let next = next.map_or(u64::MAX, |next| next.saturating_sub(now).max(1));
        let privilege = self.privilege();
        let counters = self.registers.counters.as_ref();
        counters.map_or(next, |counters| {
            next.min(counters.until_overflow(privilege))
        })
    }

    /// Delivers an NMI or an interrupt, if there is one that the processor accepts.
    fn take_interrupt(&mut self) -> bool {
        let accepts = self.machine.core.state.other_flags & flags::IF != 0;
        let nmi_blocked = self.nmi_blocked;
        let Some(devices) = self.devices() else {
            return false;
        };
        if !nmi_blocked && devices.take_nmi() {
            self.nmi_blocked = true;
            self.raise_interrupt(vector::NMI);
            return true;
        }
        if accepts && devices.interrupt() {
            let vector = devices.acknowledge();
            self.raise_interrupt(vector);
            return true;
        }
        false
    }

    /// `hlt`: waits for the next event that ends it. rip is behind it.
    fn halt(&mut self) {
        self.halts = false;
        let accepts = self.machine.core.state.other_flags & flags::IF != 0;
        for _ in 0..EVENTS_MAX {
            let now = self.now();
            let Some(devices) = self.devices() else {
                return;
            };
            devices.update(now);
            if accepts && devices.interrupt() {
                return;
            }
            match devices.next_event(now) {
                _ if !accepts => {
                    self.ended = Some(Stopped::Halted);
                    return;
                }
                None => break,
                Some(next) => self.machine.wait(next.saturating_sub(now).max(1)),
            }
        }
        self.ended = Some(Stopped::WaitsForEver);
    }

    /// Ends the run at the next instruction.
    fn end_unmodelled(&mut self, what: &'static str) {
        let rip = self.machine.core.state.rip;
        let bytes = self.instruction_bytes();
        self.ended = Some(Stopped::Unmodelled { rip, bytes, what });
    }

    /// The bytes of the next instruction, as many as can be fetched, at most those of the longest one.
    fn instruction_bytes(&self) -> Vec<u8> {
        let core = &self.machine.core;
        let byte = |at: u64| {
            let mut byte = [0];
            let fetched = core
                .memory
                .fetch(core.state.rip.wrapping_add(at), &mut byte);
            fetched.ok().map(|()| byte[0])
        };
        (0..crate::length::INSN_MAX as u64)
            .map_while(byte)
            .collect()
    }

    /// Tells the memory what the control registers say, and forgets all translations.
    fn set_controls(&mut self) {
        let registers = &self.registers;
        let controls = Controls {
            root: registers.cr3,
            write_protect: registers.cr0 & cr0::WP != 0,
            no_execute: registers.efer & efer::NXE != 0,
            smep: registers.cr4 & cr4::SMEP != 0,
            smap: registers.cr4 & cr4::SMAP != 0,
        };
        self.machine.core.memory.set_paging(controls);
        let gates = Gates {
            emulates: registers.cr0 & cr0::EM != 0,
            switched: registers.cr0 & cr0::TS != 0,
            waits: registers.cr0 & cr0::MP != 0,
            no_sse: registers.cr4 & cr4::OSFXSR == 0,
            no_xsave: registers.cr4 & cr4::OSXSAVE == 0,
            no_bases: registers.cr4 & cr4::FSGSBASE == 0,
            no_time: registers.cr4 & cr4::TSD != 0,
            other_time: registers.tsc_offset != 0 || registers.kept(msr::TSC_AUX) != 0,
        };
        self.machine.set_gates(gates);
        self.mode_changed();
    }

    /// Tells the memory the privilege level and AC, which may have changed.
    fn mode_changed(&mut self) {
        let is_user = self.privilege() == 3;
        let core = &mut self.machine.core;
        let ac = core.state.other_flags & flags::AC != 0;
        core.memory.set_mode(is_user, ac);
    }
}
