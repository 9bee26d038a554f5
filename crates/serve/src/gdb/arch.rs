//! The registers as gdb numbers them, and the target description that says so.

use gdbstub::arch::{Arch, RegId, Registers};
use gdbstub_arch::x86::reg::X86_64CoreRegs;
use gdbstub_arch::x86::reg::id::X86_64CoreRegId;
use std::num::NonZeroUsize;
use unwind_sim_unwind::regs::Reg;

use crate::debuggee;

/// The target description: gdb's own files `64bit-core.xml`, `64bit-sse.xml`, `64bit-linux.xml` and
/// `64bit-segments.xml`, in one.
pub(super) const DESCRIPTION: &str = include_str!("target.xml");

/// The general registers in gdb's order.
const GENERAL: [Reg; 16] = [
    Reg::Rax,
    Reg::Rbx,
    Reg::Rcx,
    Reg::Rdx,
    Reg::Rsi,
    Reg::Rdi,
    Reg::Rbp,
    Reg::Rsp,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

/// The selectors of a 64-bit process on Linux.
const CS: u32 = 0x33;
const SS: u32 = 0x2b;

/// The number of rip.
const RIP: usize = 16;
/// The number of eflags.
const EFLAGS: usize = 17;
/// The numbers of cs and ss.
const SELECTORS: [usize; 2] = [18, 19];
/// The number of the first segment register, and the number behind the last.
const SEGMENTS: std::ops::Range<usize> = 18..24;
/// The numbers of xmm0 to xmm15, and mxcsr.
const SSE: std::ops::Range<usize> = 40..57;
/// The number of the system call that was interrupted, which gdb needs to take this for Linux.
const ORIG_RAX: usize = 57;
/// orig_rax where no system call was.
const NO_CALL: u64 = u64::MAX;
/// The number of fs_base; gs_base follows.
const FS_BASE: usize = 58;
/// The number of registers.
const COUNT: usize = 60;
/// The size of the registers behind those of SSE, bytes.
const OTHER_BYTES: usize = 8;

/// x86-64 with SSE.
pub(super) enum Amd64 {}

impl Arch for Amd64 {
    type Usize = u64;
    type Registers = AllRegisters;
    type RegId = Number;
    type BreakpointKind = usize;

    fn target_description_xml() -> Option<&'static str> {
        Some(DESCRIPTION)
    }
}

/// A register's number in the target description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number(pub(super) usize);

impl RegId for Number {
    fn from_raw_id(id: usize) -> Option<(Number, Option<NonZeroUsize>)> {
        let size = match id {
            ORIG_RAX..COUNT => NonZeroUsize::new(OTHER_BYTES),
            _ => X86_64CoreRegId::from_raw_id(id)?.1,
        };
        Some((Number(id), size))
    }
}

/// All registers, as far as they are known.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct AllRegisters {
    core: X86_64CoreRegs,
    fs_base: u64,
    gs_base: u64,
    /// A bit for each register whose value is known.
    known: u64,
}

impl AllRegisters {
    pub(super) fn of(registers: &debuggee::Registers) -> AllRegisters {
        let mut all = AllRegisters::default();
        let general = &registers.general;
        for (number, reg) in GENERAL.into_iter().enumerate() {
            all.core.regs[number] = general.get_or_zero(reg);
            all.know(number, general.get(reg).is_some());
        }
        all.core.rip = general.rip();
        all.know(RIP, general.get(Reg::Rip).is_some());

        // The upper half of rflags is reserved (Intel SDM), and gdb has no room for it.
        all.core.eflags = general.get_or_zero(Reg::Rflags) as u32;
        all.know(EFLAGS, general.get(Reg::Rflags).is_some());

        // gdb needs no others to unwind; the segments of a process are always the same.
        all.core.segments.cs = CS;
        all.core.segments.ss = SS;
        for number in SELECTORS.into_iter().chain([ORIG_RAX]) {
            all.know(number, true);
        }

        // Only of a program is more known than unwinders need.
        if let Some(processor) = &registers.processor {
            all.core.xmm = processor.xmm;
            all.core.mxcsr = processor.mxcsr;
            all.fs_base = processor.fs_base;
            all.gs_base = processor.gs_base;
            for number in SEGMENTS.chain(SSE).chain(FS_BASE..COUNT) {
                all.know(number, true);
            }
        }
        all
    }

    fn know(&mut self, number: usize, is_known: bool) {
        self.known |= u64::from(is_known) << number;
    }

    fn is_known(&self, number: usize) -> bool {
        self.known >> number & 1 != 0
    }

    /// The bytes of a register, if it is known.
    pub(super) fn bytes(&self, wanted: Number) -> Option<Vec<u8>> {
        let mut at = 0;
        let mut all = Vec::new();
        self.write(|byte| all.push(byte));
        for number in 0..COUNT {
            let (_, size) = Number::from_raw_id(number)?;
            let end = at + size?.get();
            if number == wanted.0 && self.is_known(number) {
                return Some(all.get(at..end)?.to_vec());
            }
            at = end;
        }
        None
    }

    /// All bytes, in the order of the numbers.
    fn write(&self, mut write: impl FnMut(u8)) {
        self.core.gdb_serialize(|byte| write(byte.unwrap_or(0)));
        for value in [NO_CALL, self.fs_base, self.gs_base] {
            value.to_le_bytes().into_iter().for_each(&mut write);
        }
    }
}

impl Registers for AllRegisters {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.core.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        let mut number = 0;
        let mut left = 0;
        self.write(|byte| {
            while left == 0 {
                let size = Number::from_raw_id(number).and_then(|(_, size)| size);
                left = size.map_or(1, NonZeroUsize::get);
                number += 1;
            }
            left -= 1;
            write_byte(Some(byte).filter(|_| self.is_known(number - 1)));
        });
    }

    // Registers cannot be written: what they would become is not kept.
    fn gdb_deserialize(&mut self, _: &[u8]) -> Result<(), ()> {
        Ok(())
    }
}
