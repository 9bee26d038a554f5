//! Instructions that copy values: `mov`, `lea`, extensions, `xchg`.

use super::address::Address;
use super::{
    Machine, address_value, combined, constant, index_up_to, is_high, read, set, set_from,
};
use crate::proof::access::general;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;

impl Machine<'_> {
    pub(super) fn mov(&mut self, insn: &Instruction, state: &mut State) {
        // A vector or segment register has no value that is followed, so copies through one are
        // computed.
        match (insn.op0_kind(), insn.op1_kind()) {
            (OpKind::Register, OpKind::Register) => {
                // The second half of a change of stacks: the new one's top word leads back to the
                // old one.
                if let Some(swizzle) = state.swizzle.filter(|s| s.is_ended_by(insn)) {
                    let sp = self.lower(insn.ip(), state);
                    state.set(Reg::Rsp, sp);
                    if sp.is_stack() {
                        state.store(sp, 8, swizzle.back);
                    }
                    return;
                }

                let (to, from) = (insn.op0_register(), insn.op1_register());
                // `mov %eax, %eax` clears the upper half.
                if to == from && to.size() != 4 {
                    return;
                }

                let value = match (to.is_gpr(), from.is_gpr()) {
                    (true, true) => read(state, from),
                    _ => Value::Computed,
                };
                set_from(state, to, value, from);
            }
            (OpKind::Register, OpKind::Memory) => {
                // Words that are read as a whole may be saved registers; parts are at most indexes
                // of jump tables.
                let to = insn.op0_register();
                let value = match to.size() {
                    8 => self.load(insn, state, 8),
                    4 => self.load(insn, state, 4).low_half(),
                    size => self.load_part(insn, state, size as u32),
                };
                match general(to) {
                    Some(reg) if value.is_stack() => state.set_loaded(reg, value),
                    _ => set(state, to, value),
                }
            }
            (OpKind::Register, _) => {
                // An immediate number of 32 bits is extended; smaller ones change only a part of
                // the register.
                let to = insn.op0_register();
                let value = match to.size() {
                    4.. => constant(insn, 1),
                    _ => Value::Computed,
                };
                set(state, to, value);
            }
            (OpKind::Memory, OpKind::Register) => {
                let from = insn.op1_register();
                let value = match (from.is_gpr(), from.size()) {
                    (true, 8) => read(state, from),
                    (true, 4) => read(state, from).low_half(),
                    _ => Value::Computed,
                };
                self.store(insn, state, from.size() as u32, value);
            }
            _ => {
                let size = insn.memory_size().size() as u32;
                self.store(insn, state, size, Value::Computed);
            }
        }
    }

    pub(super) fn lea(&mut self, insn: &Instruction, state: &mut State) -> Value {
        let (base, index) = (general(insn.memory_base()), general(insn.memory_index()));
        // `lea 0(,%rax,4), %rdx`: an index, scaled.
        if let (None, Some(index), 0) = (base, index, insn.memory_displacement64())
            && let Value::Index { shift, width, max } = state.reg(index)
        {
            return Value::Index {
                shift: shift + insn.memory_index_scale().trailing_zeros() as u8,
                width,
                max,
            };
        }

        // `lea (%r11,%rcx), %rcx`: an entry, added to its table.
        if let (Some(base), Some(index), 0, 1) = (
            base.map(|reg| state.reg(reg)),
            index.map(|reg| state.reg(reg)),
            insn.memory_displacement64(),
            insn.memory_index_scale(),
        ) && let (Value::Const(base), Value::TableEntry { table })
        | (Value::TableEntry { table }, Value::Const(base)) = (base, index)
        {
            return Value::TableTarget { table, base };
        }

        // `lea` computes an address without using it, so what is known of the address is the value.
        match self.address(insn, state) {
            Address::Stack(value) => value,
            Address::File(at) => address_value(at),
            Address::Frame => self.lower(insn.ip(), state),
            Address::Table { .. } | Address::Unknown => self.sum(insn, state),
        }
    }

    /// The value of a base plus a number: it may be something of the caller's.
    fn sum(&self, insn: &Instruction, state: &State) -> Value {
        let is_short = insn.memory_base().size() == 4 || insn.memory_index().size() == 4;
        if is_short && insn.op0_register().size() != 2 {
            return Value::Computed;
        }
        let displacement = insn.memory_displacement64().cast_signed();
        let base = general(insn.memory_base()).map(|reg| state.reg(reg));
        let index = general(insn.memory_index()).map(|reg| state.reg(reg));
        let scale = i64::from(insn.memory_index_scale());
        match (base, index) {
            (Some(base), None) => base.plus(displacement),
            (None, Some(index)) if scale == 1 => index.plus(displacement),
            (Some(base), Some(Value::Const(n))) => {
                base.plus(i64::from(n) * scale).plus(displacement)
            }
            (Some(Value::Const(n)), Some(index)) if scale == 1 => {
                index.plus(n.into()).plus(displacement)
            }
            (base, index) => {
                let [a, b] = [base, index].map(|value| value.unwrap_or(Value::Computed));
                combined(a, b)
            }
        }
    }

    /// What a part of a register may hold after it was loaded, of `size` bytes.
    pub(super) fn load_part(&self, insn: &Instruction, state: &State, size: u32) -> Value {
        match self.address(insn, state) {
            Address::Stack(at) => state.may_hold(at, size),
            Address::Frame => Value::Unknown,
            _ => Value::Computed,
        }
    }

    pub(super) fn zero_extended(&mut self, insn: &Instruction, state: &State) -> Value {
        let (value, width) = match insn.op1_kind() {
            OpKind::Register => {
                let from = insn.op1_register();
                // `ah` and the like are the second byte of their register.
                let value = if is_high(from) {
                    Value::Computed
                } else {
                    read(state, from)
                };
                (value, from.size())
            }
            _ if insn.op0_register().size() == 2 && insn.memory_size().size() == 2 => {
                (self.load_part(insn, state, 2), 2)
            }
            _ => (Value::Computed, insn.memory_size().size()),
        };

        match value {
            // Only a part of the register is written.
            value if insn.op0_register().size() == 2 && width == 2 => value,
            Value::Index {
                shift,
                width: known,
                max,
            } if usize::from(known) >= width => Value::Index {
                shift,
                width: 8,
                max,
            },
            // What is extended by zeros has a bound, and may be the index of a jump table.
            _ if width == 1 => index_up_to(0xff, 8),
            _ => index_up_to(0xffff, 8),
        }
    }

    pub(super) fn sign_extended(&mut self, insn: &Instruction, state: &State) -> Value {
        let (to, from) = (insn.op0_register().size(), insn.op1_register().size());
        match insn.op1_kind() {
            // Only a part of the register is written.
            OpKind::Register if (to, from) == (2, 2) => return read(state, insn.op1_register()),
            OpKind::Memory if (to, insn.memory_size().size()) == (2, 2) => {
                return self.load_part(insn, state, 2);
            }
            _ => {}
        }
        if insn.op0_register().size() != 8 || insn.mnemonic() != Mnemonic::Movsxd {
            return Value::Computed;
        }
        match insn.op1_kind() {
            OpKind::Register => match read(state, insn.op1_register()).low_half() {
                value @ (Value::Index { .. } | Value::TableEntry { .. }) => value,
                _ => Value::Computed,
            },
            _ => match self.load(insn, state, 4) {
                value @ (Value::Index { .. } | Value::TableEntry { .. }) => value,
                _ => Value::Computed,
            },
        }
    }

    pub(super) fn xchg(&mut self, insn: &Instruction, state: &mut State) {
        match (insn.op0_kind(), insn.op1_kind()) {
            (OpKind::Register, OpKind::Register) => {
                let (a, b) = (insn.op0_register(), insn.op1_register());
                let (x, y) = (read(state, a), read(state, b));
                // `xchg %ax, %ax` is a `nop`.
                if a != b || a.size() == 4 {
                    set(state, a, y);
                    set(state, b, x);
                }
            }
            _ => {
                // `xchg` with memory is a load and a store of the same word.
                let register = match insn.op0_kind() {
                    OpKind::Register => insn.op0_register(),
                    _ => insn.op1_register(),
                };
                let whole = register.size() == 8;

                // Loaded before the store, which overwrites it.
                let (old, new) = if whole {
                    (self.load(insn, state, 8), read(state, register))
                } else {
                    let size = register.size() as u32;
                    (self.load_part(insn, state, size), Value::Computed)
                };
                self.store(insn, state, register.size() as u32, new);
                match general(register) {
                    Some(reg) if old.is_stack() => state.set_loaded(reg, old),
                    _ => set(state, register, old),
                }
            }
        }

        state.comparison = None;
    }
}
