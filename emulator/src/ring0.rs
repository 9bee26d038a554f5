//! A minimal ring 0: the machine without a Linux around it, so that a kernel's own entry code,
//! interrupts and stacks run in it.
//!
//! [`Ring0`] does what the processor does between user mode and ring 0: `syscall`, `sysretq`,
//! `iretq`, `swapgs`, `cli`, `sti`, `popfq`, and an interrupt or an NMI, delivered when the caller
//! asks for it through a descriptor table of two gates ([`Gates`]). A [`Ring0Observer`] follows what it
//! does, as a shadow stack must.
//!
//! Source: Intel SDM volume 2 (SYSCALL, SYSRET, IRET, SWAPGS) and volume 3, "masking
//! interrupts" and "exception and interrupt handling in 64-bit mode". Not modelled: paging and
//! protection of ring 0's memory, segments beyond their selectors, exceptions with handlers, error
//! codes, control and debug registers, model-specific registers except those in [`Gates`].

#[cfg(test)]
mod tests;

use crate::address_space::Fault;
use crate::core::Core;
use crate::flags;
use crate::machine::{Exit, Machine};
use crate::state::{Preserved, reg};
use crate::stop::{Call, Exception};

/// Length of the longest instruction, bytes.
const INSTRUCTION_MAX: usize = 15;
/// Linux' selectors (`arch/x86/include/asm/segment.h`): the kernel's code and stack.
const KERNEL: (u16, u16) = (0x10, 0x18);
/// The user's code and stack.
const USER: (u16, u16) = (0x33, 0x2b);
/// Index of cs and of ss in the selectors.
const CS: usize = 1;
const SS: usize = 2;
/// The privilege level in a selector.
const RPL: u16 = 3;
/// Flags that are clear when a handler starts.
const CLEARED: u64 = flags::TF | flags::IF | flags::NT | flags::RF;

/// The entry points of ring 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gates {
    /// The target of `syscall` (`IA32_LSTAR`).
    pub syscall: u64,
    /// The flags that `syscall` clears (`IA32_FMASK`).
    pub flags_cleared: u64,
    /// The interrupt handler. It runs on the current stack; from user mode, on `stack`.
    pub interrupt: u64,
    /// The end of the stack for interrupts from user mode (`RSP0` of the task state segment).
    pub stack: u64,
    /// The NMI handler.
    pub nmi: u64,
    /// The end of the NMI stack (an `IST` of the task state segment), on which the NMI handler
    /// always runs.
    pub nmi_stack: u64,
}

/// An external event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An interrupt, which IF masks.
    Interrupt,
    /// An NMI, which only another NMI masks, until the next `iretq`.
    Nmi,
}

/// The result of executing an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepResult {
    /// It was executed.
    Done,
    /// It is `hlt`, which ends a run, in user mode too; rip is after it.
    Halted,
    /// It raised an exception, or is not modelled.
    Stopped(Exit),
}

/// The user's registers when user mode was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserContext {
    /// The address at which user mode goes on.
    pub rip: u64,
    /// The user's stack pointer.
    pub rsp: u64,
    /// Where the processor pushed the frame that `iretq` pops; `None` for a system call, which pushes
    /// nothing.
    pub frame: Option<u64>,
}

/// Follows what ring 0 does.
pub trait Ring0Observer {
    /// User mode was left, and the entry code is at `entry`.
    fn entered(&mut self, entry: &Preserved, left: UserContext);

    /// An event was delivered in ring 0: `interrupted` is what its handler returns to, `handler` the
    /// state at its first instruction.
    fn trapped(&mut self, interrupted: &Preserved, handler: &Preserved);

    /// An instruction of ring 0 was executed that neither enters nor leaves it. `bytes` begin with
    /// it; `before` is the state before it, `core` the one behind it.
    fn executed(&mut self, bytes: &[u8], before: &Preserved, core: &Core);

    /// `iretq` has returned to ring 0.
    fn returned(&mut self, before: &Preserved, core: &Core);

    /// User mode goes on.
    fn left(&mut self);
}

/// Nobody follows.
impl Ring0Observer for () {
    fn entered(&mut self, _: &Preserved, _: UserContext) {}
    fn trapped(&mut self, _: &Preserved, _: &Preserved) {}
    fn executed(&mut self, _: &[u8], _: &Preserved, _: &Core) {}
    fn returned(&mut self, _: &Preserved, _: &Core) {}
    fn left(&mut self) {}
}

/// The machine with ring 0.
#[derive(Clone, Debug)]
pub struct Ring0 {
    /// Registers and memory.
    pub machine: Machine,
    gates: Gates,
    /// The base of gs that `swapgs` exchanges (`IA32_KERNEL_GS_BASE`).
    other_gs: u64,
    /// Whether an NMI is being handled: until the next `iretq`.
    nmi_blocked: bool,
    /// Whether the last instruction was `sti`, which delays interrupts by an instruction.
    after_sti: bool,
}

impl Ring0 {
    /// A machine in user mode with this state.
    pub fn new(mut core: Core, gates: Gates) -> Ring0 {
        (core.state.segments[CS], core.state.segments[SS]) = USER;
        Ring0 {
            machine: Machine::new(core),
            gates,
            other_gs: 0,
            nmi_blocked: false,
            after_sti: false,
        }
    }

    /// The selector of the running code.
    pub fn cs(&self) -> u16 {
        self.machine.core.state.segments[CS]
    }

    /// Whether user mode runs.
    pub fn in_user(&self) -> bool {
        self.cs() & RPL != 0
    }

    /// Whether the processor would accept an event before the next instruction.
    pub fn accepts(&self, event: Event) -> bool {
        match event {
            Event::Interrupt => {
                self.machine.core.state.rflags() & flags::IF != 0
                    && !self.after_sti
                    && !self.nmi_blocked
            }
            Event::Nmi => !self.nmi_blocked,
        }
    }

    /// Delivers an event before the next instruction. Returns false if the processor does not
    /// accept it.
    ///
    /// # Errors
    /// If the frame cannot be written: a double fault on hardware.
    pub fn deliver(
        &mut self,
        event: Event,
        observer: &mut impl Ring0Observer,
    ) -> Result<bool, Fault> {
        if !self.accepts(event) {
            return Ok(false);
        }
        let from_user = self.in_user();
        let core = &mut self.machine.core;
        let interrupted = core.state.preserved_at(core.state.rip);
        // An NMI always has its own stack; an interrupt in ring 0 stays on the current one.
        let (handler, stack) = match event {
            Event::Nmi => (self.gates.nmi, self.gates.nmi_stack),
            Event::Interrupt if from_user => (self.gates.interrupt, self.gates.stack),
            Event::Interrupt => (self.gates.interrupt, interrupted.rsp),
        };
        // In 64-bit mode, ss and rsp are always pushed, and rsp is aligned first (SDM volume 3,
        // interrupts in 64-bit mode).
        let frame = [
            interrupted.rip,
            core.state.segments[CS].into(),
            core.state.rflags(),
            interrupted.rsp,
            core.state.segments[SS].into(),
        ];
        let at = (stack & !0xf).wrapping_sub(size_of_val(&frame) as u64);
        // Before any register changes: on failure, the caller sees the interrupted state.
        for (i, word) in frame.into_iter().enumerate() {
            let place = at.wrapping_add(8 * i as u64);
            core.memory.write(place, &word.to_le_bytes())?;
        }
        let flags = core.state.rflags() & !CLEARED;
        set_flags(core, flags);
        core.state.set_gpr(reg::RSP, at);
        core.state.rip = handler;
        core.state.segments[CS] = KERNEL.0;
        // On a change of level, ss becomes a null selector (SDM volume 3).
        if from_user {
            core.state.segments[SS] = 0;
        }
        let entry = core.state.preserved_at(handler);
        self.nmi_blocked |= event == Event::Nmi;
        self.after_sti = false;

        if from_user {
            observer.entered(
                &entry,
                UserContext {
                    rip: interrupted.rip,
                    rsp: interrupted.rsp,
                    frame: Some(at),
                },
            )
        } else {
            observer.trapped(&interrupted, &entry)
        }
        Ok(true)
    }

    /// Executes one instruction.
    pub fn step(&mut self, observer: &mut impl Ring0Observer) -> StepResult {
        let mut bytes = [0; INSTRUCTION_MAX];
        let core = &self.machine.core;
        let before = core.state.preserved_at(core.state.rip);
        // An instruction before the end of memory has fewer than 15 bytes.
        let readable = (1..=bytes.len()).rev();
        for len in readable {
            if core.memory.peek(before.rip, &mut bytes[..len]).is_ok() {
                break;
            }
        }
        let after_sti = std::mem::take(&mut self.after_sti);
        let step = match bytes {
            [0xf4, ..] => {
                self.skip(1);
                return StepResult::Halted;
            }
            // The others are privileged, or do more in ring 0.
            _ if self.in_user() => return self.execute(observer),
            [0xfa, ..] => self.set_if(false),
            [0xfb, ..] => {
                // `sti` takes effect after the next instruction, if IF was clear; a second `sti`
                // does not delay it again (SDM volume 2, STI).
                self.after_sti = self.machine.core.state.rflags() & flags::IF == 0 && !after_sti;
                self.set_if(true)
            }
            // swapgs
            [0x0f, 0x01, 0xf8, ..] => {
                let core = &mut self.machine.core;
                let base = core.state.gpr(reg::GS);
                core.state
                    .set_gpr(reg::GS, std::mem::replace(&mut self.other_gs, base));
                self.skip(3)
            }
            [0x9d, ..] => self.popf(),
            [0x48, 0xcf, ..] => return self.iret(&before, observer),
            [0x48, 0x0f, 0x07, ..] => return self.sysret(observer),
            _ => self.execute(observer),
        };

        if step == StepResult::Done {
            observer.executed(&bytes, &before, &self.machine.core);
        }
        step
    }

    /// Executes an instruction that is the same as in user mode, or `syscall`.
    fn execute(&mut self, observer: &mut impl Ring0Observer) -> StepResult {
        match self.machine.run(1, &mut ()) {
            Exit::Limit => StepResult::Done,
            Exit::Kernel(Call::Syscall) => {
                let core = &mut self.machine.core;
                let flags = core.state.rflags() & !self.gates.flags_cleared & !flags::RF;
                set_flags(core, flags);
                (core.state.segments[CS], core.state.segments[SS]) = KERNEL;
                core.state.rip = self.gates.syscall;
                let entry = core.state.preserved_at(core.state.rip);
                let left = UserContext {
                    rip: core.state.gpr(reg::RCX),
                    rsp: entry.rsp,
                    frame: None,
                };
                observer.entered(&entry, left);
                StepResult::Done
            }
            exit => StepResult::Stopped(exit),
        }
    }

    fn skip(&mut self, bytes: u64) -> StepResult {
        let core = &mut self.machine.core;
        core.state.rip = core.state.rip.wrapping_add(bytes);
        StepResult::Done
    }

    fn set_if(&mut self, on: bool) -> StepResult {
        let core = &mut self.machine.core;
        let flags = core.state.rflags() & !flags::IF;
        set_flags(core, flags | if on { flags::IF } else { 0 });
        self.skip(1)
    }

    fn popf(&mut self) -> StepResult {
        let core = &mut self.machine.core;
        let sp = core.state.gpr(reg::RSP);
        let Some([word]) = words(core, sp) else {
            return unreadable(core, sp);
        };
        set_flags(core, word);
        core.state.set_gpr(reg::RSP, sp.wrapping_add(8));
        self.skip(1)
    }

    fn iret(&mut self, before: &Preserved, observer: &mut impl Ring0Observer) -> StepResult {
        let core = &mut self.machine.core;
        let Some([rip, cs, flags, rsp, ss]) = words(core, before.rsp) else {
            return unreadable(core, before.rsp);
        };
        core.state.rip = rip;
        set_flags(core, flags);
        core.state.set_gpr(reg::RSP, rsp);
        (core.state.segments[CS], core.state.segments[SS]) = (cs as u16, ss as u16);
        self.nmi_blocked = false;

        if self.in_user() {
            observer.left()
        } else {
            observer.returned(before, &self.machine.core)
        }
        StepResult::Done
    }

    fn sysret(&mut self, observer: &mut impl Ring0Observer) -> StepResult {
        let core = &mut self.machine.core;
        core.state.rip = core.state.gpr(reg::RCX);
        let flags = core.state.gpr(reg::R11) & !flags::RF;
        set_flags(core, flags);
        (core.state.segments[CS], core.state.segments[SS]) = USER;
        observer.left();
        StepResult::Done
    }
}

/// Sets rflags with the rights of ring 0.
fn set_flags(core: &mut Core, bits: u64) {
    core.state.set_rflags(bits);
    core.state.other_flags = (core.state.other_flags & !flags::IF) | (bits & flags::IF);
}

/// The words at `address`.
fn words<const N: usize>(core: &Core, address: u64) -> Option<[u64; N]> {
    let mut words = [0; N];
    for (i, word) in words.iter_mut().enumerate() {
        let place = address.wrapping_add(8 * i as u64);
        *word = core.memory.read_u64(place).ok()?;
    }
    Some(words)
}

/// The exception for a stack that cannot be read.
fn unreadable(core: &Core, address: u64) -> StepResult {
    let fault = core.memory.read(address, &mut [0; 40]).err();
    let exception = fault.map_or(Exception::GeneralProtection, Exception::Memory);
    StepResult::Stopped(Exit::Exception(exception))
}
