//! What a call of a function does to its caller: whether it returns, and what it leaves changed.

use super::state::State;
use super::value::Value;
use unwind_sim_unwind::regs::Reg;

/// What is known of a function's return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// It may return.
    Maybe,
    /// It never returns.
    Never,
    /// It surely may return.
    Surely,
    /// It ends with a jump to what this register holds at entry, and returns if that does.
    As(Reg),
}

impl Returns {
    /// It as a number; the register's is behind those of the others.
    const AS: u8 = 3;

    pub(super) fn number(self) -> u8 {
        match self {
            Returns::Maybe => 0,
            Returns::Never => 1,
            Returns::Surely => 2,
            Returns::As(reg) => Self::AS + reg as u8,
        }
    }

    pub(super) fn of_number(number: u8) -> Returns {
        match number {
            0 => Returns::Maybe,
            1 => Returns::Never,
            2 => Returns::Surely,
            _ => match Reg::ALL.get(usize::from(number - Self::AS)) {
                Some(&reg) => Returns::As(reg),
                None => Returns::Maybe,
            },
        }
    }
}

/// What a function leaves changed for its caller, against the psABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effect {
    /// How many bytes above its return address it leaves rsp: what it pops of its arguments. `None`
    /// if that is not always the same.
    pub pops: Pops,
    /// Bit n: register n of [`Reg::CALLEE_SAVED`] may be changed.
    pub changed: u8,
}

/// How far above its return address a function leaves rsp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pops {
    /// This many bytes; negative if it leaves something on the stack.
    Bytes(i32),
    /// Not always the same.
    Varies,
}

impl Default for Pops {
    fn default() -> Pops {
        Pops::Bytes(0)
    }
}

impl Effect {
    /// Bit of the number for [`Pops::Varies`], above a register's bits and below those of bytes.
    const VARIES: u64 = 1 << 8;

    pub(super) fn number(self) -> u64 {
        let pops = match self.pops {
            Pops::Bytes(bytes) => u64::from(bytes.cast_unsigned()) << 32,
            Pops::Varies => Self::VARIES,
        };
        pops | u64::from(self.changed)
    }

    pub(super) fn of_number(number: u64) -> Effect {
        let pops = match number & Self::VARIES {
            0 => Pops::Bytes(((number >> 32) as u32).cast_signed()),
            _ => Pops::Varies,
        };
        Effect {
            pops,
            changed: number as u8,
        }
    }

    /// What a return leaves changed in `state`, with rsp at `sp` behind it.
    pub fn of(state: &State, sp: Value) -> Effect {
        Effect {
            pops: match sp {
                Value::Entry {
                    reg: Reg::Rsp,
                    offset,
                } => Pops::Bytes(offset),
                _ => Pops::Varies,
            },
            changed: changed(state),
        }
    }

    /// Does to a caller's `state` what a call does beside what the psABI allows.
    pub fn apply(self, state: &mut State) {
        match self.pops {
            Pops::Bytes(0) => {}
            Pops::Bytes(bytes) => {
                let sp = state.reg(Reg::Rsp).plus(bytes.into());
                state.set(Reg::Rsp, sp);
            }
            Pops::Varies => state.set(Reg::Rsp, Value::ByCallee),
        }
        for (number, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            if self.changed & 1 << number != 0 {
                state.set(reg, Value::ByCallee);
            }
        }
    }

    /// What holds if it is this or `other`.
    #[must_use]
    pub fn or(self, other: Effect) -> Effect {
        Effect {
            pops: if self.pops == other.pops {
                self.pops
            } else {
                Pops::Varies
            },
            changed: self.changed | other.changed,
        }
    }
}

/// How the ways through a function end, together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Endings {
    /// What its returns leave changed.
    effect: Option<Effect>,
    /// Whether a way ends with a jump to code that leaves nothing changed, as far as is known.
    passes_on: bool,
}

impl Endings {
    /// A way ends with this effect.
    pub(super) fn add(&mut self, effect: Effect) {
        self.effect = Some(self.effect.map_or(effect, |known| known.or(effect)));
    }

    /// A way ends with a jump to code that leaves nothing changed, as far as is known.
    pub(super) fn pass_on(&mut self) {
        self.passes_on = true;
    }

    /// Whether no way ends with a return.
    pub(super) fn is_none(&self) -> bool {
        self.effect.is_none()
    }

    /// What the function leaves changed.
    pub(super) fn effect(&self) -> Effect {
        match self.effect {
            Some(effect) if self.passes_on => effect.or(Effect::default()),
            effect => effect.unwrap_or_default(),
        }
    }
}

/// The registers that the function's convention keeps, and that surely do not have their values at
/// entry, or that its callees may have changed: bit n for register n of [`Reg::CALLEE_SAVED`].
pub(super) fn changed(state: &State) -> u8 {
    let mut changed = 0;
    for (number, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
        let value = state.reg(reg);
        let is_known = !matches!(value, Value::Unknown | Value::Guessed);
        let is_changed = state.keeps(reg) && is_known && value != Value::entry(reg);
        changed |= u8::from(is_changed) << number;
    }
    changed
}
