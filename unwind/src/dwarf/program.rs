//! Runs the instructions of an FDE to produce rows (DWARF 5, sections 6.4.2 and 6.4.3; LSB 5.0 for
//! the GNU instructions).
//!
//! A [`Rule`] has the columns that a walk needs: the CFA, the return address, rsp and the
//! callee-saved registers. Rules for other columns are decoded and dropped.

use super::read::{Cie, Fde, Input, Table, Wrong, uleb};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::rule::{Base, COLUMNS, Codes, Expression, Key, RA, Rule, RuleKind, SP, Value};
use alloc::vec::Vec;
use core::ops::Range;
use gimli::{DwCfa, Reader as _, constants as dw};

/// The maximum number of remembered states; compilers use one or two.
pub const STATES_MAX: usize = 1024;

/// The current rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    cfa: Value,
    /// The callee-saved registers, then rsp, then the return address.
    columns: [Value; COLUMNS],
    /// The columns' short forms.
    codes: Codes,
}

impl State {
    const NONE: State = State {
        cfa: Value::Undefined,
        columns: [Value::Unspecified; COLUMNS],
        codes: Codes::NONE,
    };

    fn set(&mut self, slot: usize, value: Value) {
        self.columns[slot] = value;
        self.codes.set(slot, value);
    }
}

/// A CIE, and the rules after its initial instructions.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(super) cie: Cie,
    initial: State,
}

/// A complete row: its first address, the first address after it, and the offset of what made it.
pub(super) struct Complete {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
}

/// The rows of an FDE, in order. [`CfaProgram::next_row`] returns a row, and [`CfaProgram::rule`]
/// its rule. After the last one, [`CfaProgram::error`] says whether the program is malformed.
///
/// One program serves all FDEs of a CIE, one after the other ([`CfaProgram::begin`]).
pub(super) struct CfaProgram<'a> {
    table: Table<'a>,
    cie: Cie,
    /// The state after the CIE's instructions, which `DW_CFA_restore` restores.
    initial: State,
    /// The offset of the FDE, and the addresses (svma) that it covers.
    fde: usize,
    range: Range<u64>,
    input: Input<'a>,
    /// The offset in the section where `input` ends.
    end: usize,
    state: State,
    remembered: Vec<State>,
    /// The first address of the unfinished row, and the offset of what made it.
    start: u64,
    row_offset: usize,
    done: bool,
    error: Option<(u64, Reason)>,
}

/// The effect of an instruction.
enum Step {
    /// The row continues.
    Same,
    /// The next row starts at this address.
    Advance(u64),
}

impl<'a> CfaProgram<'a> {
    /// A program for the FDEs of `cie`. Runs the CIE's instructions; fails if they are malformed.
    pub(super) fn new(table: Table<'a>, cie: Cie) -> Result<CfaProgram<'a>, Reason> {
        let initial = State::NONE;
        let mut program = CfaProgram::of(table, Common { cie, initial });
        while !program.input.is_empty() {
            let at = program.offset();
            if let Step::Advance(_) = program.step()? {
                return Err(table.malformed(at, "a CIE must not advance the location"));
            }
        }
        program.initial = program.state;
        Ok(program)
    }

    /// A program for the FDEs of a CIE whose instructions were run before.
    #[inline]
    pub(super) fn of(table: Table<'a>, common: Common) -> CfaProgram<'a> {
        let Common { cie, initial } = common;
        CfaProgram {
            table,
            initial,
            fde: cie.offset,
            range: 0..0,
            input: table.input(cie.program.clone()),
            end: cie.program.end,
            state: State::NONE,
            remembered: Vec::new(),
            start: 0,
            row_offset: cie.offset,
            done: true,
            error: None,
            cie,
        }
    }

    /// What [`CfaProgram::of`] needs to resume with the same CIE.
    pub(super) fn common(&self) -> Common {
        Common {
            cie: self.cie.clone(),
            initial: self.initial,
        }
    }

    /// The CIE of the FDEs.
    pub(super) fn cie(&self) -> &Cie {
        &self.cie
    }

    /// Resets the program to the first row of `fde`.
    pub(super) fn begin(&mut self, fde: &Fde) {
        self.fde = fde.offset;
        self.range = fde.range.clone();
        self.input = self.table.input(fde.program.clone());
        self.end = fde.program.end;
        self.state = self.initial;
        self.remembered.clear();
        self.start = fde.range.start;
        self.row_offset = fde.offset;
        self.done = false;
        self.error = None;
    }

    /// The first malformed address and the reason.
    pub(super) fn error(&self) -> Option<(u64, Reason)> {
        self.error
    }

    /// The offset in the section of the next instruction.
    fn offset(&self) -> usize {
        self.end - self.input.len()
    }

    /// The short form of [`CfaProgram::rule`], if there is one.
    #[inline]
    pub(super) fn key(&self) -> Option<Key> {
        if self.cie.ra != Reg::Rip as u64 {
            return None;
        }
        Key::new(
            self.kind(self.state.columns[RA]),
            self.state.cfa,
            self.state.codes,
        )
    }

    fn kind(&self, ra: Value) -> RuleKind {
        match ra {
            Value::Undefined => RuleKind::Outermost,
            _ if self.cie.signal => RuleKind::Signal,
            _ => RuleKind::Call,
        }
    }

    /// The rule of the row just returned. Call it before asking for the next row.
    pub(super) fn rule(&self) -> Rule {
        let columns = &self.state.columns;
        let mut saved = [Value::Unspecified; 6];
        saved.copy_from_slice(&columns[..6]);
        let mut ra = columns[RA];
        // If the return-address column is a general register's, an address without a rule is in
        // that register.
        if let Some(reg) = self.ra_register() {
            if matches!(ra, Value::Unspecified | Value::Same) {
                ra = Value::reg(reg, 0);
            } else if let Some(i) = Rule::saved_index(reg) {
                saved[i] = ra;
            }
        }
        Rule {
            kind: self.kind(ra),
            by_frame_pointer: false,
            cfa: self.state.cfa,
            ra,
            sp: columns[SP],
            saved,
        }
    }

    /// The general register whose column holds the return address, if it is not rip.
    fn ra_register(&self) -> Option<Reg> {
        let reg = u16::try_from(self.cie.ra).ok().and_then(Reg::from_dwarf)?;
        (reg != Reg::Rip).then_some(reg)
    }

    /// The next row. `None` at the end, or where the table is malformed.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Complete> {
        if self.done {
            return None;
        }
        let row = self.advance().unwrap_or_else(|reason| {
            // The unfinished row is unknown, too: more instructions may have applied to it.
            self.error = Some((self.start, reason));
            None
        });
        self.done |= row.is_none();
        row
    }

    /// Executes instructions until the current row is complete.
    #[inline]
    fn advance(&mut self) -> Result<Option<Complete>, Reason> {
        while !self.input.is_empty() {
            let at = self.offset();
            let Step::Advance(to) = self.step()? else {
                continue;
            };
            if to < self.start {
                return Err(self.table.malformed(at, "the address goes backwards"));
            }
            if to - self.range.start > u32::MAX.into() {
                return Err(self
                    .table
                    .malformed(at, "row starts more than 4 GiB into its function"));
            }
            let complete = self.complete(to);
            self.start = to;
            self.row_offset = at;
            self.done = to >= self.range.end;
            if to > complete.start {
                return Ok(Some(complete));
            }
        }
        self.done = true;
        Ok(Some(self.complete(self.range.end)))
    }

    fn complete(&self, end: u64) -> Complete {
        Complete {
            start: self.start,
            end,
            offset: self.row_offset as u64,
        }
    }

    /// Executes one instruction.
    #[inline]
    fn step(&mut self) -> Result<Step, Reason> {
        let at = self.offset();
        self.execute()
            .map_err(|wrong| self.table.malformed(at, wrong.0))
    }

    #[inline(always)]
    fn execute(&mut self) -> Result<Step, Wrong> {
        let opcode = self.input.read_u8()?;
        let low = opcode & 0x3f;
        match DwCfa(opcode & 0xc0) {
            dw::DW_CFA_advance_loc => return self.moved_by(low.into()),
            dw::DW_CFA_offset => {
                let value = self.at_cfa()?;
                self.set(low.into(), value);
                return Ok(Step::Same);
            }
            dw::DW_CFA_restore => {
                self.restore(low.into());
                return Ok(Step::Same);
            }
            _ => {}
        }
        match DwCfa(opcode) {
            dw::DW_CFA_nop => {}
            dw::DW_CFA_set_loc => {
                let function = Some(self.range.start);
                let pointer = self
                    .table
                    .pointer(&mut self.input, self.cie.encoding, function);
                return pointer.map(Step::Advance);
            }
            dw::DW_CFA_advance_loc1 => {
                let delta = self.input.read_u8()?;
                return self.moved_by(delta.into());
            }
            dw::DW_CFA_advance_loc2 => {
                let delta = self.input.read_u16()?;
                return self.moved_by(delta.into());
            }
            dw::DW_CFA_advance_loc4 => {
                let delta = self.input.read_u32()?;
                return self.moved_by(delta.into());
            }
            dw::DW_CFA_MIPS_advance_loc8 => {
                let delta = self.input.read_u64()?;
                return self.moved_by(delta);
            }
            dw::DW_CFA_remember_state => {
                if self.remembered.len() >= STATES_MAX {
                    return Err(Wrong("too many remembered states"));
                }
                self.remembered.push(self.state);
            }
            dw::DW_CFA_restore_state => {
                let state = self.remembered.pop();
                self.state = state.ok_or(Wrong("no remembered state to restore"))?;
            }
            // Arguments pushed for a call: the CFA's rule takes them into account already.
            dw::DW_CFA_GNU_args_size => _ = uleb(&mut self.input)?,
            opcode if is_cfa(opcode) => self.state.cfa = self.cfa(opcode)?,
            opcode => self.column(opcode)?,
        }
        Ok(Step::Same)
    }

    fn moved_by(&self, delta: u64) -> Result<Step, Wrong> {
        let to = delta.checked_mul(self.cie.code_align);
        let to = to.and_then(|d| self.start.checked_add(d));
        to.map(Step::Advance)
            .ok_or(Wrong("the address wraps around"))
    }

    /// Executes an instruction that defines the CFA.
    fn cfa(&mut self, opcode: DwCfa) -> Result<Value, Wrong> {
        let old = match self.state.cfa {
            Value::Offset {
                base: Base::Reg(reg),
                offset,
            } => Ok((reg, offset)),
            _ => Err(Wrong(
                "the CFA is not a register plus offset, so it cannot be changed",
            )),
        };
        Ok(match opcode {
            dw::DW_CFA_def_cfa => {
                let reg = self.general()?;
                Value::reg(reg, fit(uleb(&mut self.input)?)?)
            }
            dw::DW_CFA_def_cfa_sf => {
                let reg = self.general()?;
                Value::reg(reg, self.factored_signed()?)
            }
            dw::DW_CFA_def_cfa_register => {
                let reg = self.general()?;
                Value::reg(reg, old?.1)
            }
            dw::DW_CFA_def_cfa_offset => {
                let offset = fit(uleb(&mut self.input)?)?;
                Value::reg(old?.0, offset)
            }
            dw::DW_CFA_def_cfa_offset_sf => {
                let offset = self.factored_signed()?;
                Value::reg(old?.0, offset)
            }
            _ => self.expression(false)?,
        })
    }

    /// Executes an instruction that defines one register's rule.
    fn column(&mut self, opcode: DwCfa) -> Result<(), Wrong> {
        let known = (dw::DW_CFA_offset_extended.0..=dw::DW_CFA_register.0).contains(&opcode.0)
            || (dw::DW_CFA_expression.0..=dw::DW_CFA_val_expression.0).contains(&opcode.0)
            || opcode == dw::DW_CFA_GNU_negative_offset_extended;
        if !known {
            return Err(Wrong("unknown instruction"));
        }
        let column = uleb(&mut self.input)?;
        let value = match opcode {
            dw::DW_CFA_offset_extended => self.at_cfa()?,
            dw::DW_CFA_offset_extended_sf => Value::at_cfa(self.factored_signed()?),
            dw::DW_CFA_GNU_negative_offset_extended => {
                let offset = self.factored()?;
                let negative = offset.checked_neg().ok_or(TOO_LARGE)?;
                Value::at_cfa(negative)
            }
            dw::DW_CFA_restore_extended => {
                self.restore(column);
                return Ok(());
            }
            dw::DW_CFA_undefined => Value::Undefined,
            dw::DW_CFA_same_value => Value::Same,
            dw::DW_CFA_register => {
                let source = uleb(&mut self.input)?;
                let reg = u16::try_from(source).ok().and_then(Reg::from_dwarf);
                // In a vector register, for example: not lost, but not available either.
                reg.map_or(Value::Undefined, |reg| Value::reg(reg, 0))
            }
            dw::DW_CFA_val_offset => cfa_plus(self.factored()?),
            dw::DW_CFA_val_offset_sf => cfa_plus(self.factored_signed()?),
            dw::DW_CFA_expression => self.expression(true)?,
            _ => self.expression(false)?,
        };
        self.set(column, value);
        Ok(())
    }

    fn slot(&self, column: u64) -> Option<usize> {
        if column == self.cie.ra {
            return Some(RA);
        }
        match u16::try_from(column).ok().and_then(Reg::from_dwarf)? {
            Reg::Rsp => Some(SP),
            reg => Rule::saved_index(reg),
        }
    }

    fn set(&mut self, column: u64, value: Value) {
        if let Some(slot) = self.slot(column) {
            self.state.set(slot, value);
        }
    }

    fn restore(&mut self, column: u64) {
        if let Some(slot) = self.slot(column) {
            self.state.set(slot, self.initial.columns[slot]);
        }
    }

    /// Reads a general register, for use as the CFA's base.
    fn general(&mut self) -> Result<Reg, Wrong> {
        let number = uleb(&mut self.input)?;
        let reg = u16::try_from(number).ok().and_then(Reg::from_dwarf);
        reg.ok_or(Wrong("the CFA's base is not a general register"))
    }

    fn at_cfa(&mut self) -> Result<Value, Wrong> {
        self.factored().map(Value::at_cfa)
    }

    /// Reads an unsigned operand and multiplies it by the data alignment, bytes.
    fn factored(&mut self) -> Result<i32, Wrong> {
        let operand = i64::try_from(uleb(&mut self.input)?);
        let product = operand
            .ok()
            .and_then(|o| o.checked_mul(self.cie.data_align));
        product.and_then(|p| i32::try_from(p).ok()).ok_or(TOO_LARGE)
    }

    /// Reads a signed operand and multiplies it by the data alignment, bytes.
    fn factored_signed(&mut self) -> Result<i32, Wrong> {
        let product = self.input.read_sleb128()?.checked_mul(self.cie.data_align);
        product.and_then(|p| i32::try_from(p).ok()).ok_or(TOO_LARGE)
    }

    fn expression(&mut self, load: bool) -> Result<Value, Wrong> {
        let len = uleb(&mut self.input)?;
        let start = u32::try_from(self.offset());
        // Skip the bytes first, so that a length beyond the entry is reported as such.
        self.input
            .skip(usize::try_from(len).unwrap_or(usize::MAX))?;
        let (Ok(start), Ok(len)) = (start, u16::try_from(len)) else {
            return Err(Wrong(
                "expression is longer than 64 KiB or starts beyond 4 GiB",
            ));
        };
        Ok(Value::Expression(Expression { start, len, load }))
    }
}

const TOO_LARGE: Wrong = Wrong("offset does not fit in 32 bits");

const fn cfa_plus(offset: i32) -> Value {
    Value::Offset {
        base: Base::Cfa,
        offset,
    }
}

fn fit(offset: u64) -> Result<i32, Wrong> {
    i32::try_from(offset).map_err(|_| TOO_LARGE)
}

fn is_cfa(opcode: DwCfa) -> bool {
    matches!(
        opcode,
        dw::DW_CFA_def_cfa
            | dw::DW_CFA_def_cfa_sf
            | dw::DW_CFA_def_cfa_register
            | dw::DW_CFA_def_cfa_offset
            | dw::DW_CFA_def_cfa_offset_sf
            | dw::DW_CFA_def_cfa_expression
    )
}
