//! The rules while an FDE's instructions run: short forms, and full values where there is no short
//! form.

use super::read::ParseError;
use crate::rule::{COLUMNS, CfaCode, Codes, Rule, Value};
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// The maximum number of remembered states; compilers use one or two.
pub const STATES_MAX: usize = 1024;

/// Remembered states that need no allocation.
const STATES_INLINE: usize = 4;

/// The values without a short form.
#[derive(Clone, Copy, Debug)]
struct FullState {
    cfa: Value,
    columns: [Value; COLUMNS],
}

impl FullState {
    const NONE: FullState = FullState {
        cfa: Value::Undefined,
        columns: [Value::Unspecified; COLUMNS],
    };
}

/// The short forms: the CFA, then the callee-saved registers, rsp and the return address.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactState {
    pub(super) cfa: CfaCode,
    pub(super) codes: Codes,
}

impl CompactState {
    const NONE: CompactState = CompactState {
        cfa: CfaCode::OTHER,
        codes: Codes::NONE,
    };

    /// Whether a value is not in the short form.
    #[inline]
    fn has_other(self) -> bool {
        self.cfa.is_other() || self.codes.has_other()
    }
}

/// The rules of one row.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) short: CompactState,
    /// Meaningful only where the short form is [`CfaCode::OTHER`] or has no code.
    others: Option<Box<FullState>>,
}

impl State {
    /// Nothing is specified.
    pub(super) const NONE: State = State {
        short: CompactState::NONE,
        others: None,
    };

    /// Copies `other`, whose full values are copied only if they are needed.
    #[inline]
    pub(super) fn reset(&mut self, other: &State) {
        self.short = other.short;
        if other.short.has_other() {
            self.others.clone_from(&other.others);
        }
    }

    fn others(&mut self) -> &mut FullState {
        self.others.get_or_insert_with(|| Box::new(FullState::NONE))
    }

    /// Sets the CFA to an expression.
    pub(super) fn set_cfa_other(&mut self, value: Value) {
        self.short.cfa = CfaCode::OTHER;
        self.others().cfa = value;
    }

    /// Sets the value of a column.
    pub(super) fn set(&mut self, column: usize, value: Value) {
        if !self.short.codes.set(column, value) {
            self.others().columns[column] = value;
        }
    }

    /// Copies a column from the initial rules.
    #[inline]
    pub(super) fn restore(&mut self, column: usize, initial: &State) {
        if !self.short.codes.copy(column, initial.short.codes) {
            self.others().columns[column] = initial.column(column);
        }
    }

    /// The CFA.
    pub(super) fn cfa(&self) -> Value {
        match (self.short.cfa.base(), &self.others) {
            (Some(base), _) => Value::reg(base, self.short.cfa.offset()),
            (None, Some(others)) => others.cfa,
            (None, None) => Value::Undefined,
        }
    }

    /// The value of a column.
    pub(super) fn column(&self, column: usize) -> Value {
        let other = || self.others.as_ref().map(|others| others.columns[column]);
        let value = self.short.codes.value(column).or_else(other);
        value.unwrap_or(Value::Unspecified)
    }

    /// The values of the callee-saved registers.
    pub(super) fn saved(&self) -> [Value; 6] {
        core::array::from_fn(|column| self.column(column))
    }
}

/// The stack of `DW_CFA_remember_state`.
#[derive(Debug, Default)]
pub(super) struct StateStack {
    first: ArrayVec<CompactState, STATES_INLINE>,
    more: Vec<CompactState>,
    /// The full values of those states that have any.
    others: Vec<Option<Box<FullState>>>,
}

impl StateStack {
    /// Remembers a state.
    #[inline]
    pub(super) fn push(&mut self, state: &State) -> Result<(), ParseError> {
        if self.first.try_push(state.short).is_err() {
            if self.first.len() + self.more.len() >= STATES_MAX {
                return Err(ParseError("too many remembered states"));
            }
            self.more.push(state.short);
        }
        if state.short.has_other() {
            self.others.push(state.others.clone());
        }
        Ok(())
    }

    /// Restores the state remembered last.
    #[inline]
    pub(super) fn pop(&mut self, state: &mut State) -> Result<(), ParseError> {
        let short = self.more.pop().or_else(|| self.first.pop());
        state.short = short.ok_or(ParseError("no remembered state to restore"))?;
        if state.short.has_other()
            && let Some(others) = self.others.pop()
        {
            state.others = others;
        }
        Ok(())
    }

    /// Forgets all states.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.more.clear();
        self.others.clear();
    }
}

/// The columns of the general registers; [`NO_COLUMN`] for a register without one.
const COLUMN_OF: [u8; 16] = {
    let mut columns = [NO_COLUMN; 16];
    let mut reg = 0;
    while reg < columns.len() {
        if let Some(r) = crate::regs::Reg::from_dwarf(reg as u16)
            && let Some(index) = Rule::saved_index(r)
        {
            columns[reg] = index as u8;
        }
        reg += 1;
    }
    columns[crate::regs::Reg::Rsp as usize] = crate::rule::SP as u8;
    columns
};
const NO_COLUMN: u8 = u8::MAX;

/// The column of the register or return address with this number; `ra` is the return address's.
#[inline]
pub(super) fn column_of(number: u64, ra: u64) -> Option<usize> {
    if number == ra {
        return Some(crate::rule::RA);
    }
    let column = *COLUMN_OF.get(usize::try_from(number).ok()?)?;
    (column != NO_COLUMN).then_some(usize::from(column))
}
