//! Executes one instruction of call frame information, whichever it is; `program` executes the
//! common ones itself.

use super::program::{CfaProgram, Step, WRAPS};
use super::read::{ParseError, uleb};
use super::state::column_of;
use crate::reason::Reason;
use crate::regs::Reg;
use crate::rule::{Base, CfaCode, Expression, Value};
use gimli::{DwCfa, Reader as _, constants as dw};

impl CfaProgram<'_> {
    /// Executes one instruction.
    #[inline(never)]
    pub(super) fn step(&mut self) -> Result<Step, Reason> {
        let at = self.offset();
        self.execute()
            .map_err(|wrong| self.table().malformed(at, wrong.0))
    }

    #[inline]
    fn execute(&mut self) -> Result<Step, ParseError> {
        let opcode = self.input.read_u8()?;
        let low = opcode & 0x3f;

        // Three instructions have their opcode in the high two bits and an operand in the low six
        // (DWARF 5, 7.24).
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

        // For all others the high two bits are zero.
        match DwCfa(opcode) {
            dw::DW_CFA_nop => {}
            // The new location is encoded like the addresses of the CIE's FDEs.
            dw::DW_CFA_set_loc => {
                let function = Some(self.range.start);
                let pointer =
                    self.table()
                        .pointer(&mut self.input, self.common.cie.encoding, function);
                return pointer.map(Step::Advance);
            }
            // Deltas are unsigned: rows only ascend, except by `DW_CFA_set_loc`.
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
            // The remembered states are a stack, limited because its depth comes from the input.
            dw::DW_CFA_remember_state => self.remembered.push(&self.state)?,
            dw::DW_CFA_restore_state => self.remembered.pop(&mut self.state)?,
            // Arguments pushed for a call: the CFA's rule takes them into account already.
            dw::DW_CFA_GNU_args_size => _ = uleb(&mut self.input)?,
            opcode if is_cfa(opcode) => self.cfa(opcode)?,
            opcode => self.column(opcode)?,
        }

        Ok(Step::Same)
    }

    fn moved_by(&self, delta: u64) -> Result<Step, ParseError> {
        let to = self.moved(delta);
        to.map(Step::Advance).ok_or(ParseError(WRAPS))
    }

    /// Executes an instruction that defines the CFA.
    fn cfa(&mut self, opcode: DwCfa) -> Result<(), ParseError> {
        let old = match self.state.short.cfa {
            old if old.is_other() => Err(ParseError(
                "the CFA is not a register plus offset, so it cannot be changed",
            )),
            old => Ok(old),
        };

        // The old rule must be a register plus offset only where a part of it is kept (DWARF 5,
        // 6.4.2.2).
        self.state.short.cfa = match opcode {
            dw::DW_CFA_def_cfa => {
                let reg = self.general()?;
                CfaCode::reg(reg, fit(uleb(&mut self.input)?)?)
            }
            dw::DW_CFA_def_cfa_sf => {
                let reg = self.general()?;
                CfaCode::reg(reg, self.factored_signed()?)
            }
            dw::DW_CFA_def_cfa_register => {
                let reg = self.general()?;
                CfaCode::reg(reg, old?.offset())
            }
            dw::DW_CFA_def_cfa_offset => {
                let offset = fit(uleb(&mut self.input)?)?;
                old?.with_offset(offset)
            }
            dw::DW_CFA_def_cfa_offset_sf => {
                let offset = self.factored_signed()?;
                old?.with_offset(offset)
            }
            _ => {
                let value = self.expression(false)?;
                self.state.set_cfa_other(value);
                return Ok(());
            }
        };

        Ok(())
    }

    /// Executes an instruction that defines one register's rule.
    fn column(&mut self, opcode: DwCfa) -> Result<(), ParseError> {
        let known = (dw::DW_CFA_offset_extended.0..=dw::DW_CFA_register.0).contains(&opcode.0)
            || (dw::DW_CFA_expression.0..=dw::DW_CFA_val_expression.0).contains(&opcode.0)
            || opcode == dw::DW_CFA_GNU_negative_offset_extended;
        if !known {
            return Err(ParseError("unknown instruction"));
        }

        // All of these begin with the column's number (DWARF 5, 6.4.2.3).
        let column = uleb(&mut self.input)?;

        // The forms with `_sf` have a signed offset; all are multiplied by the data alignment
        // factor.
        let value = match opcode {
            dw::DW_CFA_offset_extended => self.at_cfa()?,
            dw::DW_CFA_offset_extended_sf => Value::at_cfa(self.factored_signed()?),
            dw::DW_CFA_GNU_negative_offset_extended => {
                let offset = self.factored()?;
                let negative = offset.checked_neg().ok_or(TOO_LARGE)?;
                Value::at_cfa(negative)
            }
            // Back to the rule that the CIE's instructions gave this register.
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

    fn set(&mut self, number: u64, value: Value) {
        if let Some(column) = column_of(number, self.common.cie.ra) {
            self.state.set(column, value);
        }
    }

    fn restore(&mut self, number: u64) {
        if let Some(column) = column_of(number, self.common.cie.ra) {
            self.state.restore(column, &self.common.initial);
        }
    }

    /// Reads a general register, for use as the CFA's base.
    fn general(&mut self) -> Result<Reg, ParseError> {
        let number = uleb(&mut self.input)?;
        let reg = u16::try_from(number).ok().and_then(Reg::from_dwarf);
        reg.ok_or(ParseError("the CFA's base is not a general register"))
    }

    fn at_cfa(&mut self) -> Result<Value, ParseError> {
        self.factored().map(Value::at_cfa)
    }

    /// Reads an unsigned operand and multiplies it by the data alignment, bytes.
    fn factored(&mut self) -> Result<i32, ParseError> {
        let operand = i64::try_from(uleb(&mut self.input)?);
        let product = operand
            .ok()
            .and_then(|o| o.checked_mul(self.common.cie.data_align));
        product.and_then(|p| i32::try_from(p).ok()).ok_or(TOO_LARGE)
    }

    /// Reads a signed operand and multiplies it by the data alignment, bytes.
    fn factored_signed(&mut self) -> Result<i32, ParseError> {
        let product = self
            .input
            .read_sleb128()?
            .checked_mul(self.common.cie.data_align);
        product.and_then(|p| i32::try_from(p).ok()).ok_or(TOO_LARGE)
    }

    fn expression(&mut self, load: bool) -> Result<Value, ParseError> {
        let len = uleb(&mut self.input)?;
        let start = u32::try_from(self.offset());
        // Skip the bytes first, so that a length beyond the entry is reported as such.
        self.input
            .skip(usize::try_from(len).unwrap_or(usize::MAX))?;
        let (Ok(start), Ok(len)) = (start, u16::try_from(len)) else {
            return Err(ParseError(
                "expression is longer than 64 KiB or starts beyond 4 GiB",
            ));
        };
        Ok(Value::Expression(Expression { start, len, load }))
    }
}

const TOO_LARGE: ParseError = ParseError("offset does not fit in 32 bits");

const fn cfa_plus(offset: i32) -> Value {
    Value::Offset {
        base: Base::Cfa,
        offset,
    }
}

fn fit(offset: u64) -> Result<i32, ParseError> {
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
