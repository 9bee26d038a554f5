//! Runs a case in the emulated machine, and reports the result as the processor would.

use unwind_sim_emulator::single::Single;
use unwind_sim_emulator::{
    Access, AddressSpace, Core, Exception, Exit, Fault, FaultKind, Machine, Permissions, Processor,
};
use unwind_sim_emulator_native::single::{
    CODE_RANGE, MIDDLE_PAGES, MIDDLE_WINDOW, Mode, NativeCase, NativeState, Outcome, WINDOW,
    WINDOW_PAGE, WINDOW_SIZE,
};

pub(super) const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGSYS: i32 = 31;
/// End of the addresses that a process can use.
const TASK_END: u64 = 0x7fff_ffff_f000;

/// The machine, with memory mapped where the native child has it.
#[derive(Debug)]
pub struct Emulated {
    machine: Machine,
    single: Single,
}

/// How a case ended in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaseEnd {
    /// With this outcome; the state after is written.
    As(Outcome),
    /// The instruction is not modelled.
    Unsupported,
}

impl Emulated {
    /// A machine with the code range and the window's page mapped.
    pub fn new(processor: Processor) -> Emulated {
        let mut memory = AddressSpace::default();
        let code = CODE_RANGE.start..CODE_RANGE.end.next_multiple_of(0x1000);
        let mapped = memory
            .map(code, Permissions::READ_EXECUTE)
            .and_then(|()| memory.map(WINDOW_PAGE, Permissions::READ_WRITE))
            .and_then(|()| memory.map(MIDDLE_PAGES, Permissions::READ_WRITE));
        assert_eq!(mapped, Ok(()), "the ranges are pages of user space");
        Emulated {
            machine: Machine::new(Core::with_processor(memory, processor)),
            single: Single::default(),
        }
    }

    /// The emulated processor.
    pub fn processor(&self) -> Processor {
        self.machine.core.processor()
    }

    /// Executes a case, and writes the state after it.
    pub fn run(&mut self, case: &NativeCase, after: &mut NativeState) -> CaseEnd {
        let before = &case.state;
        let core = &mut self.machine.core;
        for (number, value) in before.gpr.iter().enumerate() {
            core.state.set_gpr(number, *value);
        }

        core.state.rip = before.rip;
        core.state.set_rflags(before.rflags);

        // A plain case does not use x87 and SSE, so they are not copied.
        let fx = case.mode != Mode::Plain;
        if fx {
            let set = core.set_fx_image(&before.fx.legacy);
            debug_assert!(set.is_some(), "MXCSR is valid");
            let avx = case.mode != Mode::Fx;
            for (number, upper) in before.fx.upper.iter().enumerate() {
                let vectors = &mut core.state.vectors;
                vectors.set_ymm(number, [vectors.xmm(number), if avx { *upper } else { 0 }]);
            }

            // x87 records the opcode from memory.
            let placed = core.memory.poke(before.rip, &case.code);
            debug_assert_eq!(placed, Ok(()), "code is mapped there");
        }

        if case.memory {
            set_window(&mut core.memory, case, &before.window);
        }

        // With TF, a processor traps after each iteration of a repeated string instruction.
        core.state.single_iteration = case.mode == Mode::Step;
        let processor = core.processor();
        self.single.decode(&case.code, before.rip, &processor);
        let exit = self.machine.execute(&self.single);

        let core = &mut self.machine.core;
        let Some(outcome) = outcome(exit, before, core.state.rip) else {
            return CaseEnd::Unsupported;
        };

        for (number, value) in after.gpr.iter_mut().enumerate() {
            *value = core.state.gpr(number);
        }
        // A process may not execute `hlt`: it raises #GP at the instruction.
        after.rip = if exit == Exit::Halt {
            before.rip
        } else {
            core.state.rip
        };

        after.rflags = core.state.rflags();
        if fx {
            after.fx.legacy = core.fx_image();
            let vectors = &core.state.vectors;
            after.fx.upper = std::array::from_fn(|number| vectors.ymm(number)[1]);
        }

        if case.memory {
            get_window(&mut core.memory, case, &mut after.window);
        }

        CaseEnd::As(outcome)
    }

    /// Clears the rest of the window's page, and the other two, which few instructions write.
    pub fn clean(&mut self) {
        for page in MIDDLE_PAGES.step_by(PAGE) {
            if let Some(bytes) = self.machine.core.memory.writable(page) {
                bytes.fill(0);
            }
        }
        let rest = (WINDOW - WINDOW_PAGE.start) as usize;
        let memory = &mut self.machine.core.memory;
        let is_zero = |bytes: &[u8]| {
            bytes[..rest]
                .as_chunks::<32>()
                .0
                .iter()
                .all(|part| *part == [0; 32])
        };
        if memory.readable(WINDOW_PAGE.start).is_some_and(is_zero) {
            return;
        }
        if let Some(bytes) = memory.writable(WINDOW_PAGE.start) {
            bytes[..rest].fill(0);
        }
    }
}

/// Half of a window.
const HALF: usize = WINDOW_SIZE / 2;
const PAGE: usize = 0x1000;

/// Fills the window of a case.
fn set_window(memory: &mut AddressSpace, case: &NativeCase, window: &[u8; WINDOW_SIZE]) {
    if !case.middle {
        if let Some(to) = memory.writable(WINDOW) {
            to.copy_from_slice(window);
        }
        return;
    }
    for (half, from) in (0..).zip(window.as_chunks::<HALF>().0) {
        if let Some(to) = memory.writable(MIDDLE_WINDOW + half * HALF as u64) {
            to[..HALF].copy_from_slice(from);
        }
    }
}

fn get_window(memory: &mut AddressSpace, case: &NativeCase, window: &mut [u8; WINDOW_SIZE]) {
    if !case.middle {
        if let Some(from) = memory.readable(WINDOW) {
            window.copy_from_slice(from);
        }
        return;
    }
    for (half, to) in (0..).zip(window.as_chunks_mut::<HALF>().0) {
        if let Some(from) = memory.readable(MIDDLE_WINDOW + half * HALF as u64) {
            to.copy_from_slice(&from[..HALF]);
        }
    }
}

/// How Linux reports an exit (arch/x86/kernel/traps.c and mm/fault.c, Linux 6.1).
fn outcome(exit: Exit, before: &NativeState, rip: u64) -> Option<Outcome> {
    let signal = |signal, trapno, error_code, address| {
        Some(Outcome::Signal {
            signal,
            code: 0,
            trapno,
            error_code,
            address,
        })
    };

    let place = before.rip;

    // The numbers are those of `X86_TRAP_*` (arch/x86/include/asm/trapnr.h).
    match exit {
        Exit::Limit => Some(Outcome::Done),
        // These programs have no kernel of their own.
        Exit::Unsupported | Exit::System => None,
        Exit::Halt => signal(SIGSEGV, 13, 0, 0),
        Exit::Kernel(_) => signal(SIGSYS, 0, 0, rip),
        Exit::Exception(exception) => match exception {
            Exception::Divide => signal(SIGFPE, 0, 0, place),
            Exception::Debug => signal(SIGTRAP, 1, 0, rip),
            Exception::Breakpoint => signal(SIGTRAP, 3, 0, 0),
            Exception::Overflow => signal(SIGSEGV, 4, 0, 0),
            // The error code names the entry of the IDT (SDM volume 3).
            Exception::Interrupt(vector) => signal(SIGSEGV, 13, u64::from(vector) * 8 + 2, 0),
            Exception::InvalidOpcode => signal(SIGILL, 6, 0, place),
            Exception::GeneralProtection => signal(SIGSEGV, 13, 0, 0),
            Exception::Memory(fault) => memory(fault),
            Exception::Alignment => signal(SIGBUS, 17, 0, 0),
            Exception::X87 => signal(SIGFPE, 16, 0, place),
            Exception::Simd => signal(SIGFPE, 19, 0, place),
        },
    }
}

/// How Linux reports a memory fault. The error code's bits are present, write, user and instruction
/// fetch (Intel SDM volume 3).
fn memory(fault: Fault) -> Option<Outcome> {
    let (trapno, present) = match fault.kind {
        FaultKind::Unmapped => (14, 0),
        FaultKind::Protected => (14, 1),
        FaultKind::NonCanonical => (13, 0),
        FaultKind::OutOfPages | FaultKind::Gone | FaultKind::Reserved => return None,
    };

    // Bits of the error code: 4 is user mode, 2 a write, 16 a fetch (SDM volume 3).
    let access = match fault.access {
        Access::Read => 4,
        Access::Write => 6,
        Access::Execute => 0x14,
    };

    // Linux does not reveal which kernel addresses are mapped.
    let present = if fault.address >= TASK_END {
        1
    } else {
        present
    };

    let page_fault = trapno == 14;
    Some(Outcome::Signal {
        signal: SIGSEGV,
        code: 0,
        trapno,
        error_code: if page_fault { access | present } else { 0 },
        address: if page_fault { fault.address } else { 0 },
    })
}
