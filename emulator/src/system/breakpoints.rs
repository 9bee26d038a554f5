//! Breakpoints in debug registers: DR0 to DR3, as DR7 says. While one is enabled, each instruction is
//! looked at before it is executed, on its own; without any, nothing is.
//!
//! Source: Intel SDM volume 3, "debug exceptions". Not modelled: breakpoints of ports; accesses of the
//! processor itself, such as of the stack where an exception is delivered.

use super::System;
use crate::operands;
use crate::state::reg;
use iced_x86::{Decoder, InstructionInfoFactory, OpAccess, Register};

/// DR7: those of L0, G0 to L3, G3 that enable a breakpoint each.
const ENABLED: u64 = 0xff;
/// How many there are.
const COUNT: usize = 4;

/// What a breakpoint is for, in DR7.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Execute,
    Write,
    /// A port. With CR4.DE clear, nothing that is defined.
    Port,
    Access,
}

/// An enabled breakpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Breakpoint {
    /// Its bit in DR6.
    bit: u64,
    kind: Kind,
    address: u64,
    len: u64,
}

impl System {
    /// Whether a breakpoint is enabled.
    pub(super) fn has_breakpoints(&self) -> bool {
        self.registers.debug[7] & ENABLED != 0
    }

    fn breakpoints(&self) -> impl Iterator<Item = Breakpoint> {
        let debug = &self.registers.debug;
        let control = debug[7];
        let enabled = (0..COUNT).filter(move |number| control >> (2 * number) & 3 != 0);
        enabled.map(move |number| {
            let field = control >> (16 + 4 * number);
            let len = [1, 2, 8, 4][(field >> 2 & 3) as usize];
            Breakpoint {
                bit: 1 << number,
                kind: [Kind::Execute, Kind::Write, Kind::Port, Kind::Access][(field & 3) as usize],
                address: debug[number] & !(len - 1),
                len,
            }
        })
    }

    /// The bits in DR6 of the breakpoints at the next instruction.
    pub(super) fn instruction_breakpoints(&self) -> u64 {
        let rip = self.machine.core.state.rip;
        let here = self
            .breakpoints()
            .filter(|point| point.kind == Kind::Execute && point.address == rip);
        here.fold(0, |bits, point| bits | point.bit)
    }

    /// The bits in DR6 of the breakpoints at memory that the next instruction, or its next iteration,
    /// accesses.
    pub(super) fn data_breakpoints(&self) -> u64 {
        if !self.breakpoints().any(|point| point.kind != Kind::Execute) {
            return 0;
        }
        let state = &self.machine.core.state;
        let bytes = self.instruction_bytes();
        let options = self.machine.core.processor.decoder_options();
        let insn = Decoder::with_ip(64, &bytes, state.rip, options).decode();
        let value = |register: Register, _, _| {
            Some(match register {
                Register::FS => state.gpr(reg::FS),
                Register::GS => state.gpr(reg::GS),
                register if register.is_segment_register() => 0,
                register if register.is_gpr() => {
                    let number = operands::register(register);
                    let bits = 8 * register.size() as u32;
                    state.gpr(number.into()) & u64::MAX >> (64 - bits)
                }
                _ => return None,
            })
        };
        let mut factory = InstructionInfoFactory::new();
        let mut bits = 0;
        for used in factory.info(&insn).used_memory() {
            let writes = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            let accesses = writes || matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let Some(address) = used.virtual_address(0, value).filter(|_| accesses) else {
                continue;
            };
            let len = used.memory_size().size().max(1) as u64;
            for point in self.breakpoints() {
                let is_hit = match point.kind {
                    Kind::Write => writes,
                    Kind::Access => true,
                    Kind::Execute | Kind::Port => false,
                };
                let overlaps = address.wrapping_sub(point.address) < point.len
                    || point.address.wrapping_sub(address) < len;
                if is_hit && overlaps {
                    bits |= point.bit;
                }
            }
        }
        bits
    }
}
