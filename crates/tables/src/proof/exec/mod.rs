//! What each instruction does to a [`State`].
//!
//! Source of the instructions' effects: Intel SDM, volume 2. Only stack addresses, values at entry,
//! small numbers and indices of jump tables are followed; everything else is [`Value::Computed`].

mod address;
mod kinds;
mod moves;
mod other;
mod refine;
mod stores;
mod strings;

pub use kinds::asks_for_loop;
pub use refine::{refine, tells};
pub use stores::GuessedStore;

use super::access::{Accesses, general};
use super::jump_table::{ENTRIES_MAX, JumpTable};
use super::state::{ComparedPlace, Comparison, Direction, State};
use super::value::{Anchor, Value};
use crate::file::File;
use address::{Address, is_direct};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use kinds::{
    changes_nothing, is_conditional_move, is_from_vector, is_high, is_setting, is_zeroing,
    operand_size, stack_size,
};
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
    /// Whether a stack address was put into memory that is not followed: somebody may switch back to it.
    pub stored_stack: bool,
    /// The stores over saved registers or the return address on ways that may not exist.
    pub guessed_stores: Vec<GuessedStore>,
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
            stored_stack: false,
            guessed_stores: Vec::new(),
        }
    }

    /// Prepares for the next function.
    pub fn reset(&mut self) {
        self.anchors.clear();
        self.tables.clear();
        self.guessed_stores.clear();
        (self.stored_anywhere, self.stored_stack) = (false, false);
    }

    /// The address `of & -align`.
    fn aligned(&mut self, of: Value, align: u32) -> Value {
        self.below(Anchor::Aligned { of, align })
    }

    /// A stack address moved by an unknown size at `at` (svma).
    pub fn lowered(&mut self, at: u64) -> Value {
        self.below(Anchor::Lowered { at })
    }

    /// A stack address moved by an unknown size by the instruction at `at` (svma), which may have been
    /// executed before: what is said in terms of the address that it gave then is forgotten.
    pub(super) fn lower(&mut self, at: u64, state: &mut State) -> Value {
        let known = self.anchors.len();
        let value = self.lowered(at);
        if let Value::Below { anchor, .. } = value
            && usize::from(anchor) < known
        {
            let mut gone = vec![false; known];
            gone[usize::from(anchor)] = true;
            for number in usize::from(anchor) + 1..known {
                if let Anchor::Aligned { of, .. } = self.anchors[number]
                    && let Value::Below { anchor: of, .. } = of
                {
                    gone[number] = gone[usize::from(of)];
                }
            }
            state.forget_anchors(|anchor| gone.get(usize::from(anchor)) == Some(&true));
        }
        value
    }

    /// Lowers rsp by `size` bytes and stores `value` there.
    fn push(&mut self, state: &mut State, size: u8, value: Value) {
        push(state, size, value);
        let sp = state.reg(Reg::Rsp);
        self.stored_anywhere = self.stored_anywhere || !sp.is_stack() || state.has_other_base(sp);
        state.is_elsewhere |= !sp.is_stack() && value.is_of_caller();
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

        // The usual instructions have their own rules; of all others the decoder knows what they
        // write.
        match insn.mnemonic() {
            M::Nop | M::Endbr64 | M::Fnop | M::Pause => {}

            // It only sets flags, so what was compared before cannot be told from them any more.
            M::Test => state.comparison = None,
            M::Mov | M::Movnti => self.mov(insn, state),
            M::Lea => {
                let value = self.lea(insn, state);
                set_from(state, insn.op0_register(), value, insn.memory_base());
            }
            M::Push => {
                // Read before rsp moves: `push %rsp` stores the old one (SDM, PUSH).
                let value = match insn.op0_kind() {
                    OpKind::Register if insn.op0_register().size() == 8 => {
                        read(state, insn.op0_register())
                    }
                    OpKind::Memory if insn.memory_size().size() == 8 => self.load(insn, state, 8),
                    _ => Value::Computed,
                };
                self.push(state, stack_size(insn), value);
            }
            M::Pop => {
                let size = stack_size(insn);
                let sp = state.reg(Reg::Rsp);
                let value = match size {
                    8 => load(state, sp, size),
                    _ if sp.is_stack() => state.may_hold(sp, size.into()),
                    _ => Value::Unknown,
                };
                // rsp moves first: a destination in memory is found by the new one (SDM, POP).
                state.set(Reg::Rsp, sp.plus(size.into()));
                match insn.op0_kind() {
                    OpKind::Register => set(state, insn.op0_register(), value),
                    _ => self.store(insn, state, size.into(), value),
                }
            }
            M::Pushfq | M::Pushf => self.push(state, stack_size(insn), Value::Computed),
            // Only rsp moves by a known number; what is popped are flags.
            M::Popfq | M::Popf => {
                let sp = state.reg(Reg::Rsp);
                state.set(Reg::Rsp, sp.plus(stack_size(insn).into()));
                // The flags come from the stack, with DF among them.
                (state.comparison, state.direction) = (None, Direction::Unknown);
            }

            // `leave` is `mov %rbp, %rsp; pop %rbp`.
            M::Leave if insn.code() == Code::Leaveq => {
                let sp = state.reg(Reg::Rbp);
                state.set(Reg::Rbp, load(state, sp, 8));
                state.set(Reg::Rsp, sp.plus(8));
            }
            M::Leave => {
                // With 16-bit operands, only bp is loaded, from two bytes (SDM, LEAVE).
                let sp = state.reg(Reg::Rbp);
                state.set(Reg::Rbp, Value::Unknown);
                state.set(Reg::Rsp, sp.plus(2));
            }
            M::Enter => self.enter(insn, state),
            // These come before the general rules: an alignment by nothing or an added 0 must not
            // lose what is known.
            M::Add | M::Sub | M::And if changes_nothing(insn) => state.comparison = None,
            M::Xor | M::Sub if is_zeroing(insn) => {
                set(state, insn.op0_register(), Value::Const(0));
                state.comparison = None;
            }
            M::Add => self.add(insn, state, 1),
            M::Sub => self.add(insn, state, -1),
            M::Inc | M::Dec => {
                let by = if insn.mnemonic() == M::Inc { 1 } else { -1 };
                self.change(insn, state, |value, width| match width {
                    8 => value.plus(by),
                    _ if value.is_vague() => Value::Unknown,
                    _ => Value::Computed,
                });
            }
            M::And => self.and(insn, state),
            M::Or if is_setting(insn) => {
                set(state, insn.op0_register(), Value::Const(-1));
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

            // It extends eax by its sign, as entries of a jump table are.
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
                // The result of the call; the instruction itself puts rip and rflags into rcx and
                // r11 (SDM).
                for reg in [Reg::Rax, Reg::Rcx, Reg::R11] {
                    state.set(reg, Value::Computed);
                }
            }
            _ if is_conditional_move(insn) => self.conditional_move(insn, state),
            _ => self.other(insn, state),
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
                set_from(state, register, value, register);
            }
            _ => {
                let size = insn.memory_size().size();
                let value = match size {
                    8 => change(self.load(insn, state, 8), 8),
                    _ => Value::Computed,
                };
                self.store_changed(insn, state, size as u32, value);
            }
        }
        state.comparison = None;
    }

    /// `enter size, level`: a level copies the addresses of that many frames.
    fn enter(&mut self, insn: &Instruction, state: &mut State) {
        // The processor takes the level modulo 32 (SDM, ENTER).
        let level = insn.try_immediate(1).unwrap_or(0) & 31;
        if insn.code() != Code::Enterq_imm16_imm8 {
            // No more than this is pushed.
            let sp = state.reg(Reg::Rsp);
            self.stored_anywhere |= !sp.is_stack() || state.has_other_base(sp);
            if sp.is_stack() {
                state.may_store(sp.plus(-256), 256);
            }
            // Words that rbp points at are copied.
            state.is_lossy |= level > 1;
            state.set(Reg::Rbp, Value::Unknown);
            return state.set(Reg::Rsp, Value::Unknown);
        }

        // `enter` is `push %rbp; mov %rsp, %rbp; sub $size, %rsp` if the level is 0.
        self.push(state, 8, state.reg(Reg::Rbp));
        let frame = state.reg(Reg::Rsp);
        for _ in 1..level {
            self.push(state, 8, Value::Unknown);
        }
        if level != 0 {
            self.push(state, 8, frame);
        }

        state.set(Reg::Rbp, frame);
        let size = insn.try_immediate(0).unwrap_or(0) as i64;
        state.set(Reg::Rsp, state.reg(Reg::Rsp).plus(-size));
    }

    fn add(&mut self, insn: &Instruction, state: &mut State, sign: i64) {
        // The second operand is read first: it may be the register that changes.
        let by = self.second(insn, state);
        // A sum of 32 bits clears the upper half, even if 0 is added.
        if by == Value::Const(0) && insn.op0_register().size() != 4 {
            state.comparison = None;
            return;
        }

        let mut lowered = false;

        // What the sum of two known things is: an entry added to its table is where a jump goes.
        self.change(insn, state, |value, width| match (value, by) {
            _ if width == 4 => Value::Computed,
            _ if width != 8 => combined(value, by),
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
                combined(value, by)
            }
        });

        // rsp is then below where it was, at a distance that is not known: `sub %rax, %rsp` for an
        // array of variable size.
        if lowered && insn.op0_kind() == OpKind::Register {
            let value = self.lower(insn.ip(), state);
            set(state, insn.op0_register(), value);
            // Slots are at unknown distances from there.
            state.is_lossy |= general(insn.op0_register()) == Some(Reg::Rsp);
        }
    }

    /// The second operand.
    fn second(&mut self, insn: &Instruction, state: &State) -> Value {
        match insn.op1_kind() {
            OpKind::Register => read(state, insn.op1_register()),
            OpKind::Memory => match insn.memory_size().size() {
                8 => self.load(insn, state, 8),
                size => uncertain(&[self.load_part(insn, state, size as u32)]),
            },
            _ => constant(insn, 1),
        }
    }

    fn and(&mut self, insn: &Instruction, state: &mut State) {
        // Read before the first operand changes, as both may be one register.
        let mask = self.second(insn, state);
        // `and %rbx, %rbx`, in any size.
        let (to, size) = (insn.op0_register(), insn.op0_register().size());
        let is_same = mask == read(state, to) && mask.is_exact();
        if insn.op0_kind() == OpKind::Register && size <= 2 && (is_same || is_all_ones(mask, size))
        {
            state.comparison = None;
            return;
        }

        let mut align = None;
        self.change(insn, state, |value, width| match mask {
            // `and $-32, %rsp` lowers rsp by a distance that is not known, but bounded.
            Value::Const(n) if n < 0 && width == 8 && value.is_stack() => {
                let size = n.unsigned_abs();
                if size.is_power_of_two() {
                    align = Some((value, size));
                }
                Value::Unknown
            }
            // A mask bounds what comes out, which may be the index of a jump table.
            Value::Const(n @ 0..) if width >= 4 => index_up_to(n.unsigned_abs(), 8),
            _ if width == 4 => Value::Computed,
            _ if width == 8 && mask == value && value.is_exact() => value,
            Value::Const(-1) if width == 8 => value,
            _ => combined(value, mask),
        });

        // The aligned address gets an anchor of its own: slots are found by their distance from it.
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
            OpKind::Register if !is_high(insn.op0_register()) => {
                ComparedPlace::Reg(general(insn.op0_register())?)
            }
            OpKind::Memory => match self.address(insn, state) {
                Address::Stack(at) => ComparedPlace::Memory(at),
                _ => return None,
            },
            _ => return None,
        };
        let with = match insn.op1_kind() {
            OpKind::Register if is_high(insn.op1_register()) => return None,
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
        Some(reg) if is_high(register) => match state.reg(reg) {
            Value::Const(n) => Value::Const(n >> 8 & 0xff),
            whole @ (Value::Computed | Value::Varies) => whole,
            _ => Value::Unknown,
        },
        Some(reg) => state.reg(reg),
        None => Value::Computed,
    }
}

/// Whether the lower `size` bytes, 1 or 2, of a number have all bits set.
fn is_all_ones(value: Value, size: usize) -> bool {
    let bits = if size == 1 { 0xff } else { 0xffff };
    matches!(value, Value::Const(n) if n & bits == bits)
}

/// What is computed from these values.
fn uncertain(from: &[Value]) -> Value {
    if from.iter().any(|value| value.is_vague()) {
        Value::Unknown
    } else {
        Value::Computed
    }
}

/// The result of an operation on two values. It may equal one of them: if the other is a number, which may be
/// zero or a mask with all bits set, or if both are the caller's.
fn combined(a: Value, b: Value) -> Value {
    let may_be_neutral = |value: Value| {
        value.is_of_caller() || matches!(value, Value::Const(_) | Value::Index { .. })
    };
    let is_any = a.is_of_caller() || b.is_of_caller();
    if is_any && may_be_neutral(a) && may_be_neutral(b) {
        Value::Unknown
    } else {
        uncertain(&[a, b])
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
        // The same bytes.
        _ if value == state.reg(reg) && !is_high(register) => return state.set(reg, value),
        _ => uncertain(&[value, state.reg(reg)]),
    };
    state.set(reg, value);
}

/// Writes `value` to `register`, which is what `from` is, plus a number. A part of a pointer is not a pointer.
fn set_from(state: &mut State, register: Register, value: Value, from: Register) {
    let is_pointer = value.is_stack() && register.size() == 8;
    let is_loaded = is_pointer && general(from).is_some_and(|reg| state.is_loaded(reg));
    set(state, register, value);
    if is_loaded && let Some(reg) = general(register) {
        state.set_loaded(reg, value);
    }
}

/// The immediate operand.
fn constant(insn: &Instruction, operand: u32) -> Value {
    let number = insn
        .try_immediate(operand)
        .unwrap_or(u64::MAX >> 1)
        .cast_signed();
    i32::try_from(number).map_or(Value::Computed, Value::Const)
}

fn load(state: &State, at: Value, size: u8) -> Value {
    if at.is_stack() {
        state.load(at, size)
    } else {
        Value::Unknown
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
