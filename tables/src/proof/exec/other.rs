//! Instructions without a rule of their own: what the decoder says that they write is computed, or
//! not known if it may be what it was computed from.

use super::address::Address;
use super::{Machine, changes_nothing, is_from_vector, read, set};
use crate::proof::access::{Used, Written, general};
use crate::proof::state::{State, registers};
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::Reg;

/// The size of a cache line, bytes: the largest that a processor clears at once (AMD APM volume 3,
/// CLZERO).
const LINE: u32 = 64;

impl Machine<'_> {
    pub(super) fn other(&mut self, insn: &Instruction, state: &mut State) {
        if changes_nothing(insn) {
            state.comparison = None;
            return;
        }
        let mut used = self.accesses.of(insn);
        if is_repeated(insn) {
            // Not even once, perhaps.
            used.reads |= used.regs;
        }
        let is_written = used.memory || used.regs != 0;
        // What is put elsewhere is not followed further.
        let matters = is_written || !state.is_elsewhere;
        let inputs = match matters && (used.regs != 0 || used.reads != 0 || used.loads) {
            true => self.inputs(insn, state, &used),
            false => Inputs::default(),
        };
        // Where it goes is not followed: a vector register, mostly.
        if !is_written && !used.is_special {
            state.is_elsewhere |= inputs.of_caller || inputs.loads_unknown;
        } else if insn.op0_register().is_vector_register() {
            state.is_elsewhere |= inputs.of_caller;
        }
        if used.is_special {
            self.store_specially(insn, state, inputs);
        } else if used.memory {
            let size = insn.memory_size().size().max(1);
            self.store_other(insn, state, size as u32, inputs);
        }
        for reg in registers(used.regs) {
            let is_exchanged = insn.mnemonic() == Mnemonic::Xadd
                && insn.op0_register() != insn.op1_register()
                && general(insn.op1_register()) == Some(reg);
            let value = match state.is_elsewhere && is_from_vector(insn) {
                true => Value::Unknown,
                // What was in the other operand.
                false if is_exchanged && (inputs.vague || inputs.of_caller) => Value::Unknown,
                false => inputs.result(insn, size_of(insn, reg)),
            };
            state.set(reg, value);
        }
        if insn.rflags_modified() != 0 {
            state.comparison = None;
        }
    }

    /// `cmovcc`: the register may be left alone.
    pub(super) fn conditional_move(&mut self, insn: &Instruction, state: &mut State) {
        let register = insn.op0_register();
        let old = read(state, register);
        let size = register.size();
        let new = match insn.op1_kind() {
            OpKind::Register => read(state, insn.op1_register()),
            _ if size == 8 => self.load(insn, state, 8),
            _ => match self.address(insn, state) {
                Address::Stack(at) => state.may_hold(at, size as u32),
                _ => Value::Computed,
            },
        };
        let value = match size {
            8 => crate::proof::state::either(old, new),
            4 if old == new => old.low_half(),
            4 => Value::Computed,
            _ if old == new && old.is_exact() => return,
            _ if new.is_vague() => Value::Unknown,
            _ => Value::Computed,
        };
        set(state, register, value);
    }

    /// What the instruction computes with.
    fn inputs(&mut self, insn: &Instruction, state: &State, used: &Used) -> Inputs {
        let mut inputs = Inputs::default();
        for reg in registers(used.reads) {
            inputs.add(state.reg(reg));
        }
        if used.loads {
            let size = insn.memory_size().size().max(1) as u32;
            let is_string = insn.op_kinds().all(|kind| kind != OpKind::Memory);
            let held = match self.address(insn, state) {
                // Strings have other addresses.
                _ if is_string => Value::Unknown,
                Address::Stack(at) if size >= 8 => state.may_hold(at, size),
                Address::Stack(_) => Value::Computed,
                Address::Frame => Value::Unknown,
                _ if state.is_elsewhere => Value::Unknown,
                _ => Value::Computed,
            };
            inputs.loads_unknown = matches!(held, Value::Unknown) && !is_string;
            inputs.add(held);
        }
        inputs
    }

    fn store_other(&mut self, insn: &Instruction, state: &mut State, size: u32, inputs: Inputs) {
        let is_vector = (1..insn.op_count()).any(|n| insn.op_register(n).is_vector_register());
        let value = match state.is_elsewhere && (is_vector || insn.op_count() == 1) {
            true => Value::Unknown,
            false => inputs.result(insn, size as usize),
        };
        if value == Value::Unknown && size > 8 {
            // Some of its words.
            state.is_lossy = true;
        }
        self.store(insn, state, size, value);
    }

    /// Whether the `size` bytes that are copied from rsi on may be something of the caller's.
    fn copies_unknown(&self, state: &State, size: u32) -> bool {
        match state.reg(Reg::Rsi) {
            from if from.is_stack() => {
                state.may_hold(from, size).is_vague() || state.is_saved(from, size)
            }
            Value::Unknown | Value::Varies => true,
            _ => state.is_elsewhere,
        }
    }

    /// Stores to memory that no operand with a known size says.
    #[cold]
    fn store_specially(&mut self, insn: &Instruction, state: &mut State, inputs: Inputs) {
        for place in self.accesses.places(insn) {
            let all = if is_repeated(insn) {
                i32::MAX.unsigned_abs()
            } else {
                8
            };
            let is_copy = is_copy(insn) && self.copies_unknown(state, all);
            let at = match self.place(&place, state) {
                Address::Stack(at) if !is_beside(insn) => at,
                address => {
                    state.is_elsewhere |= is_copy;
                    self.stored_anywhere |= !matches!(address, Address::File(_));
                    continue;
                }
            };
            self.stored_anywhere |= state.has_other_base(at);
            if self.is_in_loop && place.size.is_some_and(|size| state.is_saved(at, size)) {
                self.stored_anywhere = true;
                continue;
            }
            self.store_at(insn, state, at, &place, inputs);
        }
        state.is_lossy |= state.is_elsewhere;
    }

    fn store_at(
        &mut self,
        insn: &Instruction,
        state: &mut State,
        at: Value,
        place: &Written,
        inputs: Inputs,
    ) {
        // Of repeated ones, the decoder does not say it.
        let size = match is_repeated(insn) {
            true => u32::try_from(insn.memory_size().size()).ok(),
            false => place.size,
        };
        match size {
            _ if insn.mnemonic() == Mnemonic::Clzero => {
                state.may_store(at.plus(1 - i64::from(LINE)), 2 * LINE - 1);
            }
            // Everything from there on.
            None => state.may_store(at, i32::MAX.unsigned_abs()),
            Some(size) if is_repeated(insn) => {
                let count = match state.reg(Reg::Rcx) {
                    Value::Const(count) => size.saturating_mul(count.unsigned_abs()),
                    _ => i32::MAX.unsigned_abs(),
                };
                state.is_lossy |= match is_copy(insn) {
                    true => self.copies_unknown(state, count),
                    false => state.reg(Reg::Rax).is_vague() || state.reg(Reg::Rax).is_of_caller(),
                };
                // Upwards or downwards.
                match state.reg(Reg::Rcx) {
                    Value::Const(0) => {}
                    Value::Const(count @ 1..) => {
                        let all = size.saturating_mul(count.unsigned_abs());
                        let start = at.plus(i64::from(size) - i64::from(all));
                        state.may_store(start, all.saturating_mul(2).saturating_sub(size));
                    }
                    _ => {
                        self.stored_anywhere = true;
                        state.may_store(at, size);
                    }
                }
            }
            Some(size) if place.is_partial => state.may_store(at, size),
            Some(size) => {
                let value = match insn.mnemonic() {
                    Mnemonic::Stosq => state.reg(Reg::Rax),
                    Mnemonic::Movsq if state.reg(Reg::Rsi).is_stack() => {
                        state.load(state.reg(Reg::Rsi), 8)
                    }
                    _ => inputs.result(insn, size as usize),
                };
                state.is_lossy |= value == Value::Unknown && size > 8;
                state.store(at, size, value);
            }
        }
    }

    /// Where a place in memory is.
    fn place(&self, place: &Written, state: &State) -> Address {
        match place.segment {
            Register::FS | Register::GS => Address::Unknown,
            _ => self.address_of(
                (place.base, place.index, place.scale),
                place.displacement,
                state,
            ),
        }
    }
}

/// Whether the address that the operand says is only the start of where the instruction may store.
fn is_beside(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) || insn.is_vsib()
}

/// Whether the instruction may be executed several times, or not at all.
fn is_repeated(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
}

/// Whether it copies memory.
fn is_copy(insn: &Instruction) -> bool {
    insn.is_string_instruction() && insn.op_kinds().all(|kind| kind != OpKind::Register)
}

/// How many bytes of `reg` an instruction writes.
fn size_of(insn: &Instruction, reg: Reg) -> usize {
    let operands = (0..insn.op_count()).map(|operand| insn.op_register(operand));
    let mut own = operands.filter(|r| general(*r) == Some(reg));
    own.next().map_or(8, Register::size)
}

/// What an instruction computes with.
#[derive(Clone, Copy, Default)]
pub(super) struct Inputs {
    /// An address on the stack, or a value of which nothing is known.
    vague: bool,
    /// An address on the stack.
    stack: bool,
    /// Something that the caller relies on.
    of_caller: bool,
    /// Something that differs from call to call.
    varying: bool,
    /// Whether memory was read of which nothing is known.
    loads_unknown: bool,
}

impl Inputs {
    fn add(&mut self, value: Value) {
        self.vague |= value.is_vague();
        self.stack |= value.is_stack();
        self.of_caller |= value.is_of_caller();
        self.varying |=
            !value.is_vague() && !value.is_of_caller() && !matches!(value, Value::Const(_));
    }

    /// What comes out, of `size` bytes.
    fn result(self, insn: &Instruction, size: usize) -> Value {
        let is_conditional = matches!(
            insn.mnemonic(),
            Mnemonic::Bsf
                | Mnemonic::Bsr
                | Mnemonic::Cmpxchg
                | Mnemonic::Cmpxchg8b
                | Mnemonic::Cmpxchg16b
                | Mnemonic::Rdsspd
                | Mnemonic::Rdsspq
        );
        match self {
            _ if (is_conditional || is_repeated(insn)) && (self.vague || self.of_caller) => {
                Value::Unknown
            }
            // The upper half is zero.
            _ if size == 4 => Value::Computed,
            Inputs { stack: false, .. } if surely_changes(insn) => Value::Computed,
            Inputs { vague: true, .. } => Value::Unknown,
            Inputs {
                of_caller: true,
                varying: false,
                ..
            } => Value::Unknown,
            _ => Value::Computed,
        }
    }
}

/// Whether the instruction gives another value than the one it is given, in general.
fn surely_changes(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let count = || insn.try_immediate(1).unwrap_or(0);
    match insn.mnemonic() {
        M::Not | M::Neg | M::Bswap => true,
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => {
            let bits = insn.op0_register().size().max(insn.memory_size().size()) as u64 * 8;
            let through_carry = matches!(insn.mnemonic(), M::Rcl | M::Rcr);
            let is_small = through_carry && bits < 32;
            !is_small && insn.op1_kind() == OpKind::Immediate8 && count() % bits.max(8) != 0
        }
        M::Imul if insn.op_count() == 3 => insn.try_immediate(2).is_ok_and(|n| n != 1),
        M::Adc | M::Sbb if insn.op1_kind() == OpKind::Register => {
            insn.op0_register() == insn.op1_register()
        }
        M::Or | M::Xor | M::Adc | M::Sbb => {
            !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory)
        }
        M::Btc => insn.op1_kind() == OpKind::Immediate8,
        // `sete %bl`
        _ => insn.op_count() == 1,
    }
}
