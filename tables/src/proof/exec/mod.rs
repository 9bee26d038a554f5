//! What each instruction does to a [`State`].
//!
//! Source of the instructions' effects: Intel SDM, volume 2. Only stack addresses, values at entry,
//! small numbers and indices of jump tables are followed; everything else is [`Value::Computed`].

mod address;
mod moves;
mod refine;

pub use refine::{refine, tells};

use super::access::{Accesses, general};
use super::jump_table::{ENTRIES_MAX, JumpTable};
use super::state::{Comparison, Place, State};
use super::swizzle::Swizzle;
use super::value::{Anchor, Value, is_callee_saved};
use crate::file::File;
use address::{Address, is_direct};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of anchors and of tables in the functions that are followed together.
const THINGS_MAX: usize = 1 << 12;

/// What the analysis of one function needs beside the state.
pub struct Machine<'f> {
    /// The file.
    pub file: &'f File,
    /// What [`Value::Below`] refers to.
    pub anchors: Vec<Anchor>,
    /// What [`Value::TableEntry`] refers to.
    pub tables: Vec<JumpTable>,
    /// What instructions write.
    pub accesses: Accesses,
    /// Whether the instruction belongs to a loop.
    pub is_in_loop: bool,
    /// Whether a store was met whose place in memory is not known.
    pub stored_anywhere: bool,
}

impl<'f> Machine<'f> {
    /// A machine that knows nothing yet.
    pub fn new(file: &'f File) -> Machine<'f> {
        Machine {
            file,
            anchors: Vec::new(),
            tables: Vec::new(),
            accesses: Accesses::new(),
            is_in_loop: false,
            stored_anywhere: false,
        }
    }

    /// Prepares for the next function.
    pub fn reset(&mut self) {
        self.anchors.clear();
        self.tables.clear();
        self.stored_anywhere = false;
    }

    /// The address `of & -align`.
    fn aligned(&mut self, of: Value, align: u32) -> Value {
        self.below(Anchor::Aligned { of, align })
    }

    /// A stack address moved by an unknown size at `at` (svma).
    pub fn lowered(&mut self, at: u64) -> Value {
        self.below(Anchor::Lowered { at })
    }

    fn below(&mut self, anchor: Anchor) -> Value {
        match intern(&mut self.anchors, anchor) {
            Some(anchor) => Value::Below { anchor, offset: 0 },
            None => Value::Unknown,
        }
    }

    fn table(&mut self, table: JumpTable) -> Value {
        match intern(&mut self.tables, table) {
            Some(table) => Value::TableEntry { table },
            None => Value::Computed,
        }
    }

    /// Where an indirect jump or call goes.
    pub fn target(&mut self, insn: &Instruction, state: &State) -> Value {
        match insn.op0_kind() {
            OpKind::Register => read(state, insn.op0_register()),
            _ => self.load(insn, state, 8),
        }
    }

    /// The name of the function of another file that an indirect jump or call goes to.
    pub fn import(&self, insn: &Instruction, state: &State) -> Option<&'f str> {
        match self.address(insn, state) {
            Address::File(at) if insn.op0_kind() == OpKind::Memory => self.file.import(at),
            _ => None,
        }
    }

    /// Executes an instruction that does not leave the function: everything but jumps, calls and
    /// returns.
    pub fn execute(&mut self, insn: &Instruction, state: &mut State) {
        use Mnemonic as M;
        match insn.mnemonic() {
            M::Nop | M::Endbr64 | M::Fnop | M::Pause => {}
            M::Test => state.comparison = None,
            M::Mov => self.mov(insn, state),
            M::Lea => {
                let value = match insn.op0_register().size() {
                    8 => self.lea(insn, state),
                    4 => self.lea(insn, state).low_half(),
                    _ => Value::Computed,
                };
                set(state, insn.op0_register(), value);
            }
            M::Push => {
                let value = match insn.op0_kind() {
                    OpKind::Register if insn.op0_register().size() == 8 => {
                        read(state, insn.op0_register())
                    }
                    OpKind::Memory if insn.memory_size().size() == 8 => self.load(insn, state, 8),
                    _ => Value::Computed,
                };
                push(state, operand_size(insn), value);
            }
            M::Pop => {
                let size = operand_size(insn);
                let sp = state.reg(Reg::Rsp);
                let value = load(state, sp, size);
                state.set(Reg::Rsp, sp.plus(size.into()));
                match insn.op0_kind() {
                    OpKind::Register => set(state, insn.op0_register(), value),
                    _ => self.store(insn, state, size.into(), value),
                }
            }
            M::Pushfq | M::Pushf => push(state, operand_size(insn), Value::Computed),
            M::Popfq | M::Popf => {
                let sp = state.reg(Reg::Rsp);
                state.set(Reg::Rsp, sp.plus(operand_size(insn).into()));
                state.comparison = None;
            }
            M::Leave => {
                let sp = state.reg(Reg::Rbp);
                state.set(Reg::Rbp, load(state, sp, 8));
                state.set(Reg::Rsp, sp.plus(8));
            }
            M::Enter => enter(insn, state),
            M::Add | M::Sub | M::And if changes_nothing(insn) => state.comparison = None,
            M::Add => self.add(insn, state, 1),
            M::Sub => self.add(insn, state, -1),
            M::Inc | M::Dec => {
                let by = if insn.mnemonic() == M::Inc { 1 } else { -1 };
                self.change(insn, state, |value, width| match width {
                    8 => value.plus(by),
                    _ => Value::Computed,
                });
            }
            M::And => self.and(insn, state),
            M::Xor if is_zeroing(insn) => {
                set(state, insn.op0_register(), Value::Const(0));
                state.comparison = None;
            }
            M::Movzx => {
                let value = self.zero_extended(insn, state);
                set(state, insn.op0_register(), value);
            }
            M::Movsxd | M::Movsx => {
                let value = self.sign_extended(insn, state);
                set(state, insn.op0_register(), value);
            }
            M::Cdqe => match state.reg(Reg::Rax) {
                Value::TableEntry { .. } => {}
                other => {
                    let value = match other.low_half() {
                        index @ Value::Index { .. } => index,
                        _ => Value::Computed,
                    };
                    state.set(Reg::Rax, value);
                }
            },
            M::Xchg => self.xchg(insn, state),
            M::Cmp => state.comparison = self.comparison(insn, state),
            M::Syscall => {
                for reg in [Reg::Rax, Reg::Rcx, Reg::R11] {
                    state.set(reg, Value::Computed);
                }
            }
            _ => self.other(insn, state),
        }
    }

    fn other(&mut self, insn: &Instruction, state: &mut State) {
        if changes_nothing(insn) {
            state.comparison = None;
            return;
        }
        if is_to_vector(insn) {
            state.is_elsewhere |= is_saved_value(read(state, insn.op1_register()));
        }
        let written = self.accesses.of(insn);
        if written.memory {
            let size = insn.memory_size().size().max(1);
            self.store(insn, state, size as u32, Value::Computed);
        }
        if written.regs != 0 {
            let condition = insn.condition_code() != ConditionCode::None;
            for reg in Reg::ALL.into_iter().take(16) {
                if written.regs & 1 << reg as u16 == 0 {
                    continue;
                }
                // A conditional move may leave the value alone.
                if state.is_elsewhere && is_from_vector(insn) {
                    state.set(reg, Value::Unknown);
                    continue;
                }
                let moved = condition && insn.op1_kind() == OpKind::Register;
                if moved && read(state, insn.op1_register()) == state.reg(reg) {
                    continue;
                }
                state.set(reg, Value::Computed);
            }
        }
        if insn.rflags_modified() != 0 {
            state.comparison = None;
        }
    }

    /// The value of the memory operand, of `size` bytes.
    fn load(&mut self, insn: &Instruction, state: &State, size: u8) -> Value {
        match self.address(insn, state) {
            Address::Stack(at) => state.load(at, size),
            Address::Table { at, stride, max } => self.table(JumpTable {
                at,
                stride,
                size,
                count: max.and_then(|max| max.checked_add(1)),
            }),
            Address::Frame => Value::Unknown,
            // A table, at an index that is known on this way.
            Address::File(at) if size == 4 && !self.file.is_writable(at) => self.table(JumpTable {
                at,
                stride: 4,
                size,
                count: Some(1),
            }),
            Address::File(_) | Address::Unknown if state.is_elsewhere && size == 8 => {
                Value::Unknown
            }
            Address::File(_) | Address::Unknown => Value::Computed,
        }
    }

    /// Stores `size` bytes at the memory operand.
    fn store(&mut self, insn: &Instruction, state: &mut State, size: u32, value: Value) {
        match self.address(insn, state) {
            // A loop over an array in the frame, followed further than it ever runs, or a pointer to one
            // that has moved on the ways that are taken.
            Address::Stack(at)
                if (self.is_in_loop || is_through_loaded(insn, state))
                    && !is_direct(insn)
                    && state.is_saved(at, size) =>
            {
                self.stored_anywhere = true;
            }
            Address::Stack(at) => state.store(at, size, value),
            address => {
                state.swizzle = Swizzle::begin(insn, value);
                state.is_elsewhere |= is_saved_value(value);
                self.stored_anywhere |= !matches!(address, Address::File(_));
            }
        }
    }

    /// Changes the first operand from the value that it has.
    fn change(
        &mut self,
        insn: &Instruction,
        state: &mut State,
        change: impl FnOnce(Value, usize) -> Value,
    ) {
        match insn.op0_kind() {
            OpKind::Register => {
                let register = insn.op0_register();
                let value = change(read(state, register), register.size());
                set(state, register, value);
            }
            _ => {
                let size = insn.memory_size().size();
                let value = match size {
                    8 => change(self.load(insn, state, 8), 8),
                    _ => Value::Computed,
                };
                self.store(insn, state, size as u32, value);
            }
        }
        state.comparison = None;
    }

    fn add(&mut self, insn: &Instruction, state: &mut State, sign: i64) {
        let by = match insn.op1_kind() {
            OpKind::Register => read(state, insn.op1_register()),
            OpKind::Memory => Value::Computed,
            _ => constant(insn, 1),
        };
        let mut lowered = false;
        self.change(insn, state, |value, width| match (value, by) {
            _ if width != 8 => Value::Computed,
            (Value::TableEntry { table }, Value::Const(base))
            | (Value::Const(base), Value::TableEntry { table })
                if sign > 0 =>
            {
                Value::TableTarget { table, base }
            }
            (value, Value::Const(n)) => value.plus(sign * i64::from(n)),
            (Value::Const(n), other) if sign > 0 => other.plus(n.into()),
            // An address minus an unknown size, or plus a negative one.
            (value, by) => {
                lowered = value.is_stack() && !by.is_stack();
                Value::Computed
            }
        });
        if lowered && insn.op0_kind() == OpKind::Register {
            let value = self.lowered(insn.ip());
            set(state, insn.op0_register(), value);
            // Slots are at unknown distances from there.
            state.is_lossy |= general(insn.op0_register()) == Some(Reg::Rsp);
        }
    }

    fn and(&mut self, insn: &Instruction, state: &mut State) {
        let mask = match insn.op1_kind() {
            OpKind::Register => read(state, insn.op1_register()),
            OpKind::Memory => Value::Computed,
            _ => constant(insn, 1),
        };
        let mut align = None;
        self.change(insn, state, |value, width| match mask {
            Value::Const(n) if n < 0 && width == 8 && value.is_stack() => {
                let size = n.unsigned_abs();
                if size.is_power_of_two() {
                    align = Some((value, size));
                }
                Value::Computed
            }
            Value::Const(n @ 0..) if width >= 4 => index_up_to(n.unsigned_abs(), 8),
            _ if matches!(value, Value::Unknown | Value::Varies) && width == 8 => Value::Unknown,
            _ => Value::Computed,
        });
        if let Some((of, size)) = align
            && insn.op0_kind() == OpKind::Register
        {
            let value = self.aligned(of, size);
            set(state, insn.op0_register(), value);
        }
    }

    /// What the flags say after `cmp` or `sub`.
    fn comparison(&self, insn: &Instruction, state: &State) -> Option<Comparison> {
        let place = match insn.op0_kind() {
            OpKind::Register => Place::Reg(general(insn.op0_register())?),
            OpKind::Memory => match self.address(insn, state) {
                Address::Stack(at) => Place::Memory(at),
                _ => return None,
            },
            _ => return None,
        };
        let with = match insn.op1_kind() {
            OpKind::Register => read(state, insn.op1_register()),
            OpKind::Memory => return None,
            _ => constant(insn, 1),
        };
        Some(Comparison {
            place,
            width: operand_size(insn),
            with,
        })
    }
}

fn index_up_to(max: u32, width: u8) -> Value {
    if max >= ENTRIES_MAX {
        return Value::Computed;
    }
    Value::Index {
        shift: 0,
        width,
        max,
    }
}

/// An address (svma) as a number, if it is small enough to be followed.
fn address_value(at: u64) -> Value {
    i32::try_from(at.cast_signed()).map_or(Value::Computed, Value::Const)
}

/// Whether an instruction accesses memory through a pointer that was loaded from memory.
fn is_through_loaded(insn: &Instruction, state: &State) -> bool {
    general(insn.memory_base()).is_some_and(|base| state.is_loaded(base))
}

/// Whether it matters to an instruction that it belongs to a loop: to stores through pointers.
pub fn asks_for_loop(insn: &Instruction) -> bool {
    insn.op0_kind() == OpKind::Memory && !is_direct(insn)
}

/// The index of `thing`, which is added if it is new; `None` if there are too many.
fn intern<T: PartialEq + Copy>(things: &mut Vec<T>, thing: T) -> Option<u16> {
    let known = things.iter().rposition(|t| *t == thing);
    let index = match known {
        Some(index) => index,
        None if things.len() < THINGS_MAX => {
            things.push(thing);
            things.len() - 1
        }
        None => return None,
    };
    u16::try_from(index).ok()
}

fn read(state: &State, register: Register) -> Value {
    match general(register) {
        Some(reg) => state.reg(reg),
        None => Value::Computed,
    }
}

/// Writes `value`, of the whole register, to `register`. A part of 8 or 16 bits leaves the rest.
fn set(state: &mut State, register: Register, value: Value) {
    let Some(reg) = general(register) else {
        return;
    };
    let value = match register.size() {
        8 => value,
        4 => value.low_half(),
        _ => Value::Computed,
    };
    state.set(reg, value);
}

/// The immediate operand.
fn constant(insn: &Instruction, operand: u32) -> Value {
    let number = insn
        .try_immediate(operand)
        .unwrap_or(u64::MAX >> 1)
        .cast_signed();
    i32::try_from(number).map_or(Value::Computed, Value::Const)
}

/// The size of what an instruction works on, bytes.
fn operand_size(insn: &Instruction) -> u8 {
    let size = match insn.op0_kind() {
        // `pushf` and `popf` have no operand, which the decoder calls a register.
        _ if insn.op_count() == 0 => insn.stack_pointer_increment().unsigned_abs() as usize,
        OpKind::Register => insn.op0_register().size(),
        OpKind::Memory => insn.memory_size().size(),
        _ => insn.stack_pointer_increment().unsigned_abs() as usize,
    };
    u8::try_from(size).unwrap_or(8)
}

/// Whether a value is a callee-saved register's at entry.
fn is_saved_value(value: Value) -> bool {
    matches!(value, Value::Entry { reg, offset: 0 } if is_callee_saved(reg))
}

/// `movq %rbx, %xmm0` and its like.
fn is_to_vector(insn: &Instruction) -> bool {
    insn.op1_kind() == OpKind::Register
        && insn.op0_kind() == OpKind::Register
        && insn.op1_register().is_gpr64()
        && insn.op0_register().is_vector_register()
}

/// `movq %xmm0, %rbx` and its like.
fn is_from_vector(insn: &Instruction) -> bool {
    insn.op1_kind() == OpKind::Register
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().is_gpr64()
        && insn.op1_register().is_vector_register()
}

/// Whether an instruction leaves its memory operand as it is: `lock orq $0, (%rsp)` is a barrier, or
/// touches a page of the stack.
fn changes_nothing(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let neutral = match insn.mnemonic() {
        M::Or | M::Add | M::Sub | M::Xor => 0,
        M::And => -1,
        _ => return false,
    };
    insn.op0_kind() == OpKind::Memory && constant(insn, 1) == Value::Const(neutral)
}

fn is_zeroing(insn: &Instruction) -> bool {
    insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register()
        && insn.op0_register().size() >= 4
}

fn load(state: &State, at: Value, size: u8) -> Value {
    match at.is_stack() {
        true => state.load(at, size),
        false => Value::Unknown,
    }
}

/// Lowers rsp by `size` bytes and stores `value` there.
pub fn push(state: &mut State, size: u8, value: Value) {
    let sp = state.reg(Reg::Rsp).plus(-i64::from(size));
    state.set(Reg::Rsp, sp);
    if sp.is_stack() {
        state.store(sp, size.into(), value);
    }
}

/// `enter size, 0`; deeper nesting copies frames, which no compiler uses.
fn enter(insn: &Instruction, state: &mut State) {
    push(state, 8, state.reg(Reg::Rbp));
    let sp = state.reg(Reg::Rsp);
    state.set(Reg::Rbp, sp);
    let size = insn.try_immediate(0).unwrap_or(0) as i64;
    state.set(Reg::Rsp, sp.plus(-size));
    if insn.try_immediate(1).unwrap_or(0) != 0 {
        state.set(Reg::Rsp, Value::Unknown);
    }
}
