//! Runs the instructions of an FDE to produce rows (DWARF 5, sections 6.4.2 and 6.4.3; LSB 5.0 for
//! the GNU instructions).
//!
//! A [`Rule`] has the columns that a walk needs: the CFA, the return address, rsp and the
//! callee-saved registers. Rules for other columns are decoded and dropped.
//!
//! The instructions that make up nearly all programs are executed here, in their usual short
//! encoding. `instruction` executes every instruction in every encoding.

use super::read::{Cie, Fde, Input, Table};
use super::state::{CompactState, State, StateStack, column_of};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::rule::{RA, Rule, RuleKey, RuleKind, SP, Value};
use alloc::sync::Arc;
use core::ops::Range;
use gimli::{EndianSlice, LittleEndian, constants as dw};

/// A CIE, and the rules after its initial instructions.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(super) cie: Cie,
    /// The state after the CIE's instructions, which `DW_CFA_restore` restores.
    pub(super) initial: State,
}

impl Common {
    /// Runs the instructions of `cie`; fails if they are malformed.
    pub(super) fn new(table: Table<'_>, cie: Cie) -> Result<Common, Reason> {
        let initial = State::NONE;
        let mut program = CfaProgram::new(table, Arc::new(Common { cie, initial }));
        while !program.input.is_empty() {
            let at = program.offset();
            if let Step::Advance(_) = program.step()? {
                return Err(table.malformed(at, "a CIE must not advance the location"));
            }
        }
        Ok(Common {
            cie: program.common.cie.clone(),
            initial: program.state,
        })
    }
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
    pub(super) common: Arc<Common>,
    /// The addresses (svma) that the FDE covers.
    pub(super) range: Range<u64>,
    pub(super) input: Input<'a>,
    /// The offset in the section where `input` ends.
    end: usize,
    pub(super) state: State,
    pub(super) remembered: StateStack,
    /// The first address of the unfinished row, and the offset of what made it.
    pub(super) start: u64,
    row_offset: usize,
    done: bool,
    error: Option<(u64, Reason)>,
}

/// The effect of an instruction.
pub(super) enum Step {
    /// The row continues.
    Same,
    /// The next row starts at this address.
    Advance(u64),
}

impl<'a> CfaProgram<'a> {
    /// A program for the FDEs of a CIE, which starts with the CIE's own instructions.
    #[inline]
    pub(super) fn new(table: Table<'a>, common: Arc<Common>) -> CfaProgram<'a> {
        CfaProgram {
            table,
            range: 0..0,
            input: table.input(common.cie.program.clone()),
            end: common.cie.program.end,
            state: State::NONE,
            remembered: StateStack::default(),
            start: 0,
            row_offset: common.cie.offset,
            done: true,
            error: None,
            common,
        }
    }

    /// Ends the program and returns what its CIE's FDEs share.
    pub(super) fn into_common(self) -> Arc<Common> {
        self.common
    }

    /// The CIE of the FDEs.
    pub(super) fn cie(&self) -> &Cie {
        &self.common.cie
    }

    /// The section.
    pub(super) fn table(&self) -> Table<'a> {
        self.table
    }

    /// Resets the program to the first row of `fde`.
    #[inline(always)]
    pub(super) fn begin(&mut self, fde: &Fde) {
        self.range = fde.range.clone();
        self.input = self.table.input(fde.program.clone());
        self.end = fde.program.end;
        self.state.reset(&self.common.initial);
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
    pub(super) fn offset(&self) -> usize {
        self.end - self.input.len()
    }

    /// The short form of [`CfaProgram::rule`], if there is one.
    #[inline]
    pub(super) fn key(&self) -> Option<RuleKey> {
        if self.common.cie.ra != Reg::Rip as u64 {
            return None;
        }
        let CompactState { cfa, codes } = self.state.short;
        RuleKey::new(self.kind(codes.is_undefined(RA)), cfa, codes)
    }

    /// The kind of a row whose return address is lost or not.
    #[inline]
    fn kind(&self, ra_undefined: bool) -> RuleKind {
        if ra_undefined {
            RuleKind::Outermost
        } else if self.common.cie.signal {
            RuleKind::Signal
        } else {
            RuleKind::Call
        }
    }

    /// The rule of the row just returned. Call it before asking for the next row.
    pub(super) fn rule(&self) -> Rule {
        let mut saved = self.state.saved();
        let mut ra = self.state.column(RA);
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
            kind: self.kind(ra == Value::Undefined),
            by_frame_pointer: false,
            cfa: self.state.cfa(),
            ra,
            sp: self.state.column(SP),
            saved,
        }
    }

    /// The general register whose column holds the return address, if it is not rip.
    fn ra_register(&self) -> Option<Reg> {
        let number = u16::try_from(self.common.cie.ra).ok();
        let reg = number.and_then(Reg::from_dwarf)?;
        (reg != Reg::Rip).then_some(reg)
    }

    /// The next row. `None` at the end, or where the table is malformed.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Complete> {
        self.row_past(0)
    }

    /// The next row that ends behind `svma`.
    #[inline]
    pub(super) fn row_past(&mut self, svma: u64) -> Option<Complete> {
        if self.done { None } else { self.advance(svma) }
    }

    /// Ends the program, because the instruction at `at` is malformed.
    #[cold]
    fn fail(&mut self, at: usize, what: &'static str) -> Option<Complete> {
        self.fail_with(self.table.malformed(at, what))
    }

    #[cold]
    fn fail_with(&mut self, reason: Reason) -> Option<Complete> {
        // The unfinished row is unknown, too: more instructions may have applied to it.
        self.error = Some((self.start, reason));
        self.done = true;
        None
    }

    /// Executes instructions until a row that ends behind `past` is complete.
    fn advance(&mut self, past: u64) -> Option<Complete> {
        // Kept in registers while the common instructions run.
        let (mut bytes, mut short) = (self.input.slice(), self.state.short);

        while let Some(&opcode) = bytes.first() {
            let at = self.end - bytes.len();
            let to = match self.common_instruction(&mut bytes, &mut short) {
                Some(0) => continue,
                Some(delta) => match self.moved(delta) {
                    Some(to) => to,
                    None => return self.fail(at, WRAPS),
                },
                None => {
                    self.input = EndianSlice::new(bytes, LittleEndian);
                    self.state.short = short;
                    let step = self.any_step(opcode);
                    (bytes, short) = (self.input.slice(), self.state.short);
                    match step {
                        Ok(Step::Same) => continue,
                        Ok(Step::Advance(to)) => to,
                        Err(reason) => return self.fail_with(reason),
                    }
                }
            };

            // Locations increase (DWARF 5, 6.4.2.1). An advance by zero is accepted and completes
            // no row.
            if to < self.start {
                return self.fail(at, "the address goes backwards");
            }
            if to - self.range.start > u32::MAX.into() {
                return self.fail(at, "row starts more than 4 GiB into its function");
            }

            let complete = self.complete(to);
            self.start = to;
            self.row_offset = at;
            self.done = to >= self.range.end;

            // Rows that end before `past` are executed, but nobody asked for them.
            if to > complete.start && (to > past || self.done) {
                self.input = EndianSlice::new(bytes, LittleEndian);
                self.state.short = short;
                return Some(complete);
            }
        }

        // The last row ends with the function.
        self.input = EndianSlice::new(bytes, LittleEndian);
        self.state.short = short;
        self.done = true;
        Some(self.complete(self.range.end))
    }

    fn complete(&self, end: u64) -> Complete {
        Complete {
            start: self.start,
            end,
            offset: self.row_offset as u64,
        }
    }

    /// The address `delta` code alignments after the current one.
    #[inline]
    pub(super) fn moved(&self, delta: u64) -> Option<u64> {
        let distance = delta.checked_mul(self.common.cie.code_align)?;
        self.start.checked_add(distance)
    }

    /// Executes the next instruction if it is a common one in its usual encoding. Returns by how
    /// many code alignments it advances, or `None`, without having changed anything, if it is
    /// another instruction.
    #[inline(always)]
    fn common_instruction(&self, bytes: &mut &'a [u8], short: &mut CompactState) -> Option<u64> {
        let (&opcode, rest) = bytes.split_first()?;

        // Whatever is not common returns `None` before `bytes` has moved, so that the full decoder
        // takes it.
        let (delta, rest) = match opcode {
            NOP => (0, rest),
            // 0 means here that no row ends, so an advance by 0 is left to the other way.
            0x41..=0x7f => (u64::from(opcode & LOW_BITS), rest),
            ADVANCE_1 => match rest {
                &[delta @ 1..=u8::MAX, ref rest @ ..] => (delta.into(), rest),
                _ => return None,
            },
            ADVANCE_2 => match rest {
                &[a, b, ref rest @ ..] if (a, b) != (0, 0) => {
                    (u16::from_le_bytes([a, b]).into(), rest)
                }
                _ => return None,
            },
            OFFSET_MIN..RESTORE_MIN => {
                let (&words, rest) = rest.split_first()?;
                // A bigger operand continues in the next byte.
                if words >= 0x80 || self.common.cie.data_align != -8 {
                    return None;
                }
                let number = u64::from(opcode & LOW_BITS);

                // A column that is not followed is skipped, like in the full decoder.
                if let Some(column) = column_of(number, self.common.cie.ra)
                    && !short.codes.set_slot(column, words)
                {
                    return None;
                }
                (0, rest)
            }
            // One or two bytes of ULEB128: nearly all frames are smaller than 16 KiB.
            DEF_CFA_OFFSET if !short.cfa.is_other() => {
                let (offset, rest) = match *rest {
                    [a @ ..0x80, ref rest @ ..] => (i32::from(a), rest),
                    [a, b @ ..0x80, ref rest @ ..] => {
                        (i32::from(a & 0x7f) | i32::from(b) << 7, rest)
                    }
                    _ => return None,
                };
                short.cfa = short.cfa.with_offset(offset);
                (0, rest)
            }
            _ => return None,
        };

        *bytes = rest;
        Some(delta)
    }

    /// Executes the next instruction, which has this opcode.
    // A second caller, which shows bytes, must not cost the first one, which compiles rows.
    #[inline(always)]
    pub(super) fn any_step(&mut self, opcode: u8) -> Result<Step, Reason> {
        match opcode {
            REMEMBER | RESTORE => self.remember_or_restore(opcode),
            _ => self.step(),
        }
    }

    /// Executes `DW_CFA_remember_state` or `DW_CFA_restore_state`.
    #[inline]
    fn remember_or_restore(&mut self, opcode: u8) -> Result<Step, Reason> {
        let at = self.offset();
        let done = match opcode {
            REMEMBER => self.remembered.push(&self.state),
            _ => self.remembered.pop(&mut self.state),
        };
        done.map_err(|wrong| self.table.malformed(at, wrong.0))?;
        let rest = self.input.slice().get(1..).unwrap_or(&[]);
        self.input = EndianSlice::new(rest, LittleEndian);
        Ok(Step::Same)
    }
}

pub(super) const WRAPS: &str = "the address wraps around";

const NOP: u8 = dw::DW_CFA_nop.0;
const ADVANCE_1: u8 = dw::DW_CFA_advance_loc1.0;
const ADVANCE_2: u8 = dw::DW_CFA_advance_loc2.0;
const OFFSET_MIN: u8 = dw::DW_CFA_offset.0;
const RESTORE_MIN: u8 = dw::DW_CFA_restore.0;
const DEF_CFA_OFFSET: u8 = dw::DW_CFA_def_cfa_offset.0;
const REMEMBER: u8 = dw::DW_CFA_remember_state.0;
const RESTORE: u8 = dw::DW_CFA_restore_state.0;

/// The operand in an opcode that has one.
const LOW_BITS: u8 = 0x3f;
