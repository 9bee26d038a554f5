//! Instructions without a rule of their own: what the decoder says that they write is computed, or
//! not known if it may be what it was computed from.

use super::address::Address;
use super::strings::StringRun;
use super::{Machine, changes_nothing, constant, is_from_vector, operand_size, read, set};
use crate::proof::access::{InsnUses, general};
use crate::proof::join::either;
use crate::proof::state::{Direction, State, registers};
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind, Register, RflagsBits};
use unwind_sim_unwind::regs::Reg;

impl Machine<'_> {
    pub(super) fn other(&mut self, insn: &Instruction, state: &mut State) {
        if changes_nothing(insn) || shifts_by_zero(insn, state) {
            state.comparison = None;
            return;
        }

        // What is read and written is the decoder's knowledge, kept for each instruction code.
        let mut used = self.accesses.of(insn);
        if is_repeated(insn) {
            // Not even once, perhaps.
            used.reads |= used.regs;
        }

        let is_written = used.memory || used.regs != 0;
        // What is put elsewhere is not followed further.
        let matters = is_written || !state.is_elsewhere;
        let inputs = if matters && (used.regs != 0 || used.reads != 0 || used.loads) {
            self.inputs(insn, state, &used)
        } else {
            Inputs::default()
        };

        // Where it goes is not followed: a vector register, mostly.
        if !is_written && !used.is_special {
            state.is_elsewhere |= inputs.of_caller || inputs.loads_unknown;
        } else if insn.op0_register().is_vector_register() {
            state.is_elsewhere |= inputs.of_caller;
        }

        // Where a string is, and how often it is repeated, is in registers that change below.
        let run = if insn.is_string_instruction() {
            StringRun::of(insn, state)
        } else {
            None
        };
        let strings = [Reg::Rsi, Reg::Rdi].map(|reg| state.reg(reg));

        // The store comes before registers change: its address is computed from the old ones.
        if used.is_special {
            self.store_specially(insn, state, inputs);
        } else if used.memory {
            let size = insn.memory_size().size().max(1);
            self.store_other(insn, state, size as u32, inputs);
        }

        // Every register that is written gets what may come out, also those that no operand names.
        for reg in registers(used.regs) {
            let is_exchanged = insn.mnemonic() == Mnemonic::Xadd
                && insn.op0_register() != insn.op1_register()
                && general(insn.op1_register()) == Some(reg);
            // What was in the other operand, of an exchange.
            let may_be_exchanged = is_exchanged && (inputs.vague || inputs.of_caller);
            let value = if state.is_elsewhere && is_from_vector(insn) || may_be_exchanged {
                Value::Unknown
            } else {
                inputs.result(insn, size_of(insn, reg))
            };
            state.set(reg, value);
        }

        // rsi and rdi end where the repeated instruction has moved them to.
        if let Some(run) = run {
            run.advance(insn, strings, state);
        }

        // Flags that were compared are gone, and the direction of strings may be another.
        let flags = insn.rflags_modified();
        if flags != 0 {
            state.comparison = None;
        }
        if flags & RflagsBits::DF != 0 {
            state.direction = match insn.mnemonic() {
                Mnemonic::Cld => Direction::Up,
                Mnemonic::Std => Direction::Down,
                _ => Direction::Unknown,
            };
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
            _ => self.load_part(insn, state, size as u32),
        };
        let value = match size {
            4 if old == new => old.low_half(),
            4 => Value::Computed,
            1 | 2 if old == new && old.is_exact() => return,
            _ => either(old, new),
        };
        set(state, register, value);
    }

    /// What the instruction computes with.
    fn inputs(&mut self, insn: &Instruction, state: &State, used: &InsnUses) -> Inputs {
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
                // Half of a word is extended by zeros where it goes.
                Address::Stack(at) if size != 4 => state.may_hold(at, size),
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
        let value = if state.is_elsewhere && (is_vector || insn.op_count() == 1) {
            Value::Unknown
        } else {
            inputs.result(insn, size as usize)
        };
        if value == Value::Unknown && size > 8 {
            // Some of its words.
            state.is_lossy = true;
        }
        self.store_changed(insn, state, size, value);
    }
}

/// Whether the instruction may be executed several times, or not at all.
pub(super) fn is_repeated(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
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
    pub(super) of_caller: bool,
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
        // A number may be one that changes nothing.
        let is_number = matches!(value, Value::Const(_) | Value::Index { .. });
        self.varying |= !value.is_vague() && !value.is_of_caller() && !is_number;
    }

    /// What comes out, of `size` bytes.
    pub(super) fn result(self, insn: &Instruction, size: usize) -> Value {
        // Instructions that may leave their destination as it was, depending on their operands.
        let may_be_kept = matches!(
            insn.mnemonic(),
            // With a large index, it leaves all bits.
            Mnemonic::Bzhi
                | Mnemonic::Bsf
                | Mnemonic::Bsr
                | Mnemonic::Div
                | Mnemonic::Idiv
                | Mnemonic::Cmpxchg
                | Mnemonic::Cmpxchg8b
                | Mnemonic::Cmpxchg16b
                | Mnemonic::Rdsspd
                | Mnemonic::Rdsspq
        );

        match self {
            _ if (may_be_kept || is_repeated(insn)) && (self.vague || self.of_caller) => {
                Value::Unknown
            }
            // The upper half is zero.
            _ if size == 4 => Value::Computed,
            Inputs { stack: false, .. } if is_scrambled(insn) => Value::Computed,
            Inputs { vague: false, .. } if surely_changes(insn) => Value::Computed,
            // It may be one of them.
            _ if self.vague || self.of_caller && !self.varying => Value::Unknown,
            _ => Value::Computed,
        }
    }
}

/// Whether it shifts by what is in cl, and that is zero: it then leaves the operand as it is.
fn shifts_by_zero(insn: &Instruction, state: &State) -> bool {
    use Mnemonic as M;
    let is_shift = matches!(
        insn.mnemonic(),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd
    );
    let last = insn.op_count().saturating_sub(1);
    if !is_shift || insn.op_register(last) != Register::CL {
        return false;
    }
    // What has 32 bits is extended by zeros.
    let bits = match operand_size(insn) {
        8 => 63,
        4 => return false,
        _ => 31,
    };
    matches!(state.reg(Reg::Rcx), Value::Const(n) if n & bits == 0)
}

/// Whether the instruction makes something else of an address.
fn is_scrambled(insn: &Instruction) -> bool {
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
        M::Mul | M::Imul => false,
        // `sete %bl`
        _ => insn.op_count() == 1,
    }
}

/// Whether the instruction gives another value than the one it is given, which may be as good an address.
fn surely_changes(insn: &Instruction) -> bool {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Adc | M::Sbb => match insn.op1_kind() {
            OpKind::Register => insn.op0_register() == insn.op1_register(),
            // The carry may cancel an operand whose bits are all set.
            _ => match constant(insn, 1) {
                Value::Const(n) => {
                    let unused = 64 - 8 * u32::from(operand_size(insn).clamp(1, 8));
                    !matches!((i64::from(n) << unused) >> unused, 0 | -1)
                }
                _ => false,
            },
        },
        M::Xor => matches!(constant(insn, 1), Value::Const(_)),
        M::Btc => insn.op1_kind() == OpKind::Immediate8,
        _ => false,
    }
}
