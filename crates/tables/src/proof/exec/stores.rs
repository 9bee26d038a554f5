//! Stores: which of them are followed, and those whose place or size no operand says.

use super::address::{Address, is_direct};
use super::other::{Inputs, is_repeated};
use super::strings::StringRun;
use super::{Machine, general};
use crate::proof::access::WrittenMemory;
use crate::proof::state::State;
use crate::proof::swizzle::Swizzle;
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::Reg;

/// The size of a cache line, bytes: the largest that a processor clears at once (AMD APM volume 3,
/// CLZERO).
const LINE: u32 = 64;

/// What a store to an address in the frame does to what is known.
enum StoreEffect {
    /// It is executed, and its address is what it is known to be.
    Sure,
    /// It would overwrite a saved register or the return address, on a way that may not exist.
    Guessed,
    /// So it would, if its pointer were what it is known to be. It is taken to hit something else.
    Elsewhere,
}

/// A store over a saved register or the return address, on a way that may not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuessedStore {
    /// The instruction (svma).
    pc: u64,
    at: Value,
    /// Size of the store, bytes.
    size: u32,
}

impl GuessedStore {
    /// Whether it is the instruction at `pc` (svma), and may overwrite the word at `slot`, an offset from rsp
    /// at entry, if that is known.
    pub fn may_be(&self, pc: u64, slot: Option<i32>) -> bool {
        let overlaps = |slot: i32| match self.at {
            Value::Entry {
                reg: Reg::Rsp,
                offset,
            } => {
                let (start, slot) = (i64::from(offset), i64::from(slot));
                start < slot + 8 && slot < start + i64::from(self.size)
            }
            _ => true,
        };
        self.pc == pc && slot.is_none_or(overlaps)
    }
}

impl Machine<'_> {
    /// Stores `size` bytes at the memory operand.
    pub(super) fn store(&mut self, insn: &Instruction, state: &mut State, size: u32, value: Value) {
        match self.address(insn, state) {
            Address::Stack(at) => match self.hit(insn, state, at, size) {
                StoreEffect::Elsewhere => self.stored_anywhere = true,
                StoreEffect::Guessed => self.guess_store(insn, state, at, size),
                StoreEffect::Sure => {
                    state.store(at, size, value);
                    self.stored_anywhere = self.stored_anywhere || state.has_other_base(at);
                }
            },
            address => {
                state.swizzle = Swizzle::begin(insn, value);
                state.is_elsewhere |= value.is_of_caller();
                self.stored_stack |= value.is_stack();
                self.stored_anywhere |= !matches!(address, Address::File(_));
            }
        }
    }

    #[cold]
    fn guess_store(&mut self, insn: &Instruction, state: &mut State, at: Value, size: u32) {
        let pc = insn.ip();
        let store = GuessedStore { pc, at, size };
        if !self.guessed_stores.contains(&store) {
            self.guessed_stores.push(store);
        }
        state.guess_store(at, size);
    }

    /// Stores at the memory operand what may be computed from what was there. If that is a part of a slot, the
    /// slot may have become another address: a sum goes on in the bytes that follow.
    pub(super) fn store_changed(
        &mut self,
        insn: &Instruction,
        state: &mut State,
        size: u32,
        value: Value,
    ) {
        match self.address(insn, state) {
            Address::Stack(at)
                if state.has_part_of_slot(at, size)
                    && matches!(self.hit(insn, state, at, size), StoreEffect::Sure) =>
            {
                state.store(at, size, value);
                // What the rest of the slot is now.
                state.is_lossy = true;
                self.stored_anywhere |= state.has_other_base(at);
            }
            _ => self.store(insn, state, size, value),
        }
    }

    /// What a store of `size` bytes at the stack address `at` does.
    fn hit(&self, insn: &Instruction, state: &State, at: Value, size: u32) -> StoreEffect {
        if !state.is_saved(at, size) {
            return StoreEffect::Sure;
        }
        // A pointer in memory may have moved: a callee changes it, as where a string has grown.
        let may_have_moved = state.has_called && is_through_loaded(insn, state);
        match state.has_branched {
            false if !may_have_moved => StoreEffect::Sure,
            // A loop over an array in the frame, followed further than it ever runs.
            _ if (self.is_in_loop || may_have_moved) && !is_direct(insn) => StoreEffect::Elsewhere,
            // An array that is filled in steps, further than its length lets it be.
            _ => StoreEffect::Guessed,
        }
    }

    /// Stores to memory that no operand with a known size says.
    #[cold]
    pub(super) fn store_specially(
        &mut self,
        insn: &Instruction,
        state: &mut State,
        inputs: Inputs,
    ) {
        // If the number of repetitions and the direction are known, the store has a known extent.
        if insn.is_string_instruction()
            && let Some(run) = StringRun::of(insn, state)
        {
            return self.store_string(insn, state, run);
        }

        for place in self.accesses.places(insn) {
            let is_string = insn.is_string_instruction();
            let is_copy = is_string && StringRun::copies(insn) && copies_unknown(insn, state, None);
            let at = match self.place(&place, state) {
                // With its offset in a register, `bts` reaches bits far from the operand (SDM,
                // BTS).
                Address::Stack(at) if is_bit_string(insn) => match bits_at(insn, state, at) {
                    Some(at) => at,
                    None => {
                        self.stored_anywhere = true;
                        continue;
                    }
                },
                // Not a scatter, which stores at as many places as its vector has elements.
                Address::Stack(at) if !insn.is_vsib() => at,
                address => {
                    if is_string {
                        self.stored_elsewhere(insn, state, is_copy)
                    } else {
                        state.is_elsewhere |= inputs.of_caller
                    }
                    self.stored_anywhere |= !matches!(address, Address::File(_));
                    continue;
                }
            };

            // An address relative to another base may be anywhere in the frame.
            self.stored_anywhere |= state.has_other_base(at);

            // What is hit decides whether the store is believed: it may be on a way that does not
            // exist.
            if let Some(size) = place.size {
                match self.hit(insn, state, at, size) {
                    StoreEffect::Sure => {}
                    StoreEffect::Guessed => {
                        self.guess_store(insn, state, at, size);
                        continue;
                    }
                    StoreEffect::Elsewhere => {
                        self.stored_anywhere = true;
                        continue;
                    }
                }
            }

            self.store_at(insn, state, at, &place, (inputs, is_copy));
        }

        // What is stored may be a register's value that was put elsewhere: slots may hold more than
        // is known.
        state.is_lossy |= state.is_elsewhere;
    }

    fn store_at(
        &mut self,
        insn: &Instruction,
        state: &mut State,
        at: Value,
        place: &WrittenMemory,
        (inputs, is_copy): (Inputs, bool),
    ) {
        // Of repeated ones, the decoder does not say it.
        let size = if is_repeated(insn) {
            u32::try_from(insn.memory_size().size()).ok()
        } else {
            place.size
        };

        match size {
            _ if insn.mnemonic() == Mnemonic::Clzero => {
                // The byte may be anywhere in its line.
                state.may_store(at.plus(1 - i64::from(LINE)), 2 * LINE - 1);
            }
            // Everything from there on.
            None => state.may_store(at, i32::MAX.unsigned_abs()),
            Some(size) if insn.is_string_instruction() => {
                let stored = state.reg(Reg::Rax);
                state.is_lossy |= is_copy
                    || !StringRun::copies(insn) && (stored.is_vague() || stored.is_of_caller());
                // Upwards or downwards.
                match state.reg(Reg::Rcx) {
                    _ if !is_repeated(insn) => state.may_store(at, size),
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
            Some(size) if place.is_partial || is_bit_string(insn) => state.may_store(at, size),
            Some(size) => {
                let value = inputs.result(insn, size as usize);
                state.is_lossy |= value == Value::Unknown && size > 8;
                state.store(at, size, value);
            }
        }
    }

    /// `stos` and `movs`, of which is known how often they are executed, and in what direction.
    fn store_string(&mut self, insn: &Instruction, state: &mut State, run: StringRun) {
        let copies_unknown = StringRun::copies(insn) && copies_unknown(insn, state, Some(run));
        let to = state.reg(Reg::Rdi);

        // Repeated zero times, it stores nothing.
        if run.all == 0 {
            return;
        }

        // Without a known place it may hit anything that is not followed.
        let Some((at, size)) = run.extent(to) else {
            self.stored_elsewhere(insn, state, copies_unknown);
            self.stored_anywhere |= !matches!(to, Value::Const(_));
            state.is_lossy |= state.is_elsewhere;
            return;
        };

        self.stored_anywhere |= state.has_other_base(at);
        match self.hit(insn, state, at, size) {
            StoreEffect::Sure => {}
            StoreEffect::Guessed => return self.guess_store(insn, state, at, size),
            StoreEffect::Elsewhere => {
                self.stored_anywhere = true;
                return;
            }
        }

        let other = if copies_unknown {
            Value::Unknown
        } else {
            Value::Computed
        };

        let stored = state.reg(Reg::Rax);

        // Not by whole words: nothing of it can be followed in slots.
        if !run.is_by_words() {
            // Some of its words.
            state.is_lossy |= size >= 8
                && if StringRun::copies(insn) {
                    copies_unknown
                } else {
                    stored.is_vague() || stored.is_of_caller()
                };
            return state.store(at, size, Value::Computed);
        }

        let from = state.reg(Reg::Rsi);

        // Word by word, since slots are words.
        for moved in run.steps() {
            if StringRun::copies(insn) && state.is_parted(from.plus(moved)) {
                // Both parts arrive, in two words.
                state.is_lossy = true;
            }
            let value = if !StringRun::copies(insn) {
                stored
            } else if from.is_stack() && !is_elsewhere(insn) {
                state.load(from.plus(moved), 8)
            } else {
                other
            };
            state.store(to.plus(moved), 8, value);
        }
    }

    /// A string goes to memory that is not followed.
    fn stored_elsewhere(&mut self, insn: &Instruction, state: &mut State, copies_unknown: bool) {
        let stored = state.reg(Reg::Rax);
        let is_copy = StringRun::copies(insn);
        state.is_elsewhere |= copies_unknown || !is_copy && stored.is_of_caller();
        self.stored_stack |= !is_copy && stored.is_stack();
    }

    /// Where a place in memory is.
    fn place(&self, place: &WrittenMemory, state: &State) -> Address {
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

/// Whether an instruction accesses memory through a pointer that was loaded from memory.
fn is_through_loaded(insn: &Instruction, state: &State) -> bool {
    let base = if insn.is_string_instruction() {
        Some(Reg::Rdi)
    } else {
        general(insn.memory_base())
    };
    base.is_some_and(|base| state.is_loaded(base))
}

/// Whether what is copied from rsi on may be something of the caller's. How much that is, `run` says.
fn copies_unknown(insn: &Instruction, state: &State, run: Option<StringRun>) -> bool {
    match state.reg(Reg::Rsi) {
        _ if is_elsewhere(insn) => state.is_elsewhere,
        from if from.is_stack() => match run.and_then(|run| run.extent(from)) {
            Some((from, size)) => {
                state.may_hold(from, size).is_vague() || state.is_saved(from, size)
            }
            None => true,
        },
        Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee => true,
        _ => state.is_elsewhere,
    }
}

/// Whether its source is not where the address says.
fn is_elsewhere(insn: &Instruction) -> bool {
    matches!(insn.segment_prefix(), Register::FS | Register::GS)
}

/// Whether it changes a bit whose number, in a register, is added to the address.
fn is_bit_string(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && insn.op1_kind() == OpKind::Register
}

/// The word at or around the stack address `at` in which it changes a bit, if its number is known.
fn bits_at(insn: &Instruction, state: &State, at: Value) -> Option<Value> {
    let size = insn.op1_register().size() as i64;
    match super::read(state, insn.op1_register()) {
        Value::Const(number) if size >= 4 => {
            Some(at.plus(i64::from(number).div_euclid(size * 8) * size))
        }
        _ => None,
    }
}
