//! The instructions of an FDE: from the state of one row to the next.
//!
//! Source: DWARF 5, sections 6.4.2 and 7.24, and 7.7 for expressions.

use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Expression, Rule, RuleKind, Value};

const ADVANCE_LOC: u8 = 0x40;
const OFFSET: u8 = 0x80;
const RESTORE: u8 = 0xc0;
const ADVANCE_LOC1: u8 = 0x02;
const ADVANCE_LOC2: u8 = 0x03;
const ADVANCE_LOC4: u8 = 0x04;
const UNDEFINED: u8 = 0x07;
const SAME_VALUE: u8 = 0x08;
const REGISTER: u8 = 0x09;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_REGISTER: u8 = 0x0d;
const DEF_CFA_OFFSET: u8 = 0x0e;
const DEF_CFA_EXPRESSION: u8 = 0x0f;
const EXPRESSION: u8 = 0x10;
const OFFSET_EXTENDED_SF: u8 = 0x11;
const DEF_CFA_SF: u8 = 0x12;
const VAL_OFFSET_SF: u8 = 0x15;
const VAL_EXPRESSION: u8 = 0x16;

const OP_DEREF: u8 = 0x06;
const OP_PLUS_UCONST: u8 = 0x23;
const OP_BREG0: u8 = 0x70;

/// The maximum magnitude of an offset in an expression: what four LEB128 bytes hold, which is what
/// readers of simple expressions accept.
const EXPRESSION_OFFSET_MAX: i32 = (1 << 27) - 1;

/// LEB128 numbers (DWARF 5, section 7.6).
pub(super) mod leb {
    /// Appends an unsigned number.
    pub(crate) fn unsigned(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// Appends a signed number.
    pub(crate) fn signed(mut value: i64, out: &mut Vec<u8>) {
        while !(-0x40..0x40).contains(&value) {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push((value & 0x7f) as u8);
    }
}

/// The bytes of an expression in `source`.
fn bytes(source: &[u8], e: Expression) -> &[u8] {
    let start = e.start as usize;
    let range = start..start.saturating_add(e.len.into());
    source.get(range).unwrap_or_default()
}

/// The columns, and the values in them: the callee-saved registers, rsp, the return address.
fn columns(rule: &Rule) -> [(Reg, Value); 8] {
    let [rbx, rbp, r12, r13, r14, r15] = rule.saved;
    [
        (Reg::Rbx, rbx),
        (Reg::Rbp, rbp),
        (Reg::R12, r12),
        (Reg::R13, r13),
        (Reg::R14, r14),
        (Reg::R15, r15),
        (Reg::Rsp, rule.sp),
        (Reg::Rip, rule.ra),
    ]
}

fn is_small(offset: i32) -> bool {
    offset.unsigned_abs() <= EXPRESSION_OFFSET_MAX.unsigned_abs()
}

/// Whether an instruction can set a column to `value`.
fn is_plain(value: Value, source: &[u8]) -> bool {
    match value {
        Value::Undefined | Value::Same | Value::Unspecified => true,
        Value::Offset { base, offset } => base == Base::Cfa || is_small(offset),
        Value::Load {
            base: Base::Cfa,
            addend,
            ..
        } => addend == 0,
        Value::Load { offset, addend, .. } => {
            is_small(offset) && (0..=EXPRESSION_OFFSET_MAX).contains(&addend)
        }
        Value::Expression(e) => e.len != 0 && bytes(source, e).len() == usize::from(e.len),
    }
}

/// Whether the instructions can express `rule`.
pub(super) fn check(rule: &Rule, source: &[u8]) -> Result<(), Loss> {
    match rule.cfa {
        Value::Undefined | Value::Same | Value::Unspecified => return Err(Loss::CfaUndefined),
        Value::Offset {
            base: Base::Reg(_), ..
        } => {}
        Value::Offset { .. }
        | Value::Load {
            base: Base::Cfa, ..
        } => {
            return Err(Loss::CfaExpression);
        }
        Value::Load { .. } if !is_plain(rule.cfa, source) => return Err(Loss::CfaLoad),
        Value::Expression(_) if !is_plain(rule.cfa, source) => return Err(Loss::CfaExpression),
        Value::Load { .. } | Value::Expression(_) => {}
    }

    // Without a rule for the return address, there is no caller to be found.
    if matches!(rule.ra, Value::Same | Value::Unspecified) || !is_plain(rule.ra, source) {
        return Err(Loss::RaExpression);
    }
    if !is_plain(rule.sp, source) {
        return Err(Loss::SpRule);
    }

    if rule.saved.iter().all(|value| is_plain(*value, source)) {
        Ok(())
    } else {
        Err(Loss::RbpRule)
    }
}

/// Whether the rule has an offset that is not a multiple of 8 in a field that is divided by the data
/// alignment.
pub(super) fn is_fine(rule: &Rule) -> bool {
    let cfa = match rule.cfa {
        Value::Offset { offset, .. } => offset < 0 && offset % 8 != 0,
        _ => false,
    };
    cfa || columns(rule).iter().any(|(_, value)| match *value {
        Value::Offset {
            base: Base::Cfa,
            offset,
        }
        | Value::Load {
            base: Base::Cfa,
            offset,
            ..
        } => offset % 8 != 0,
        _ => false,
    })
}

/// Instructions being written.
pub(super) struct Program<'a> {
    source: &'a [u8],
    align: i64,
    out: &'a mut Vec<u8>,
    /// The rule after the instructions so far; the initial one is that of a function's entry.
    state: Rule,
    at: u32,
}

impl<'a> Program<'a> {
    /// The instructions of a CIE: the state at a function's entry.
    pub(super) fn initial(align: i64, out: &mut Vec<u8>) {
        out.extend([DEF_CFA, Reg::Rsp as u8, 8, OFFSET | Reg::Rip as u8]);
        leb::unsigned((-8 / align).unsigned_abs(), out);
    }

    /// Starts the instructions of an FDE whose CIE has this data alignment.
    pub(super) fn new(source: &'a [u8], align: i64, out: &'a mut Vec<u8>) -> Self {
        Program {
            source,
            align,
            out,
            state: Rule::call(Value::reg(Reg::Rsp, 8)),
            at: 0,
        }
    }

    /// Adds the row at `offset` from the function's start.
    pub(super) fn row(&mut self, offset: u32, rule: &Rule) {
        self.advance(offset.saturating_sub(self.at));
        self.at = offset;
        if rule.kind == RuleKind::Outermost {
            // The other columns mean nothing in an outermost frame.
            self.column(Reg::Rip, Value::Undefined);
            self.state.ra = Value::Undefined;
            return;
        }
        self.cfa(rule.cfa);
        let before = columns(&self.state);
        for ((reg, value), (_, old)) in columns(rule).into_iter().zip(before) {
            if value != old {
                self.column(reg, value);
            }
        }
        self.state = *rule;
    }

    fn advance(&mut self, delta: u32) {
        match delta {
            0 => {}
            1..0x40 => self.out.push(ADVANCE_LOC | delta as u8),
            0x40..0x100 => self.out.extend([ADVANCE_LOC1, delta as u8]),
            0x100..0x1_0000 => {
                self.out.push(ADVANCE_LOC2);
                self.out.extend((delta as u16).to_le_bytes());
            }
            _ => {
                self.out.push(ADVANCE_LOC4);
                self.out.extend(delta.to_le_bytes());
            }
        }
    }

    fn cfa(&mut self, cfa: Value) {
        if cfa == self.state.cfa {
            return;
        }

        // The CFA so far, if it is a register plus a number, of which one can be changed by itself.
        let known = match self.state.cfa {
            Value::Offset {
                base: Base::Reg(reg),
                offset,
            } => Some((reg, offset)),
            _ => None,
        };

        // The shortest instruction that leads from the old CFA to the new one.
        match cfa {
            Value::Offset {
                base: Base::Reg(reg),
                offset,
            } => match known {
                Some((old, _)) if old == reg && offset >= 0 => {
                    self.out.push(DEF_CFA_OFFSET);
                    self.unsigned(offset);
                }
                Some((_, old)) if old == offset => {
                    self.out.extend([DEF_CFA_REGISTER, reg as u8]);
                }
                _ if offset >= 0 => {
                    self.out.extend([DEF_CFA, reg as u8]);
                    self.unsigned(offset);
                }
                _ => {
                    // Only the signed forms take a negative offset, and factor it (DWARF 5,
                    // 6.4.2.2).
                    self.out.extend([DEF_CFA_SF, reg as u8]);
                    self.factored(offset);
                }
            },
            Value::Load {
                base: Base::Reg(reg),
                offset,
                addend,
            } => {
                self.out.push(DEF_CFA_EXPRESSION);
                self.block(&loaded(reg, offset, addend));
            }
            Value::Expression(e) => {
                self.out.push(DEF_CFA_EXPRESSION);
                self.block(bytes(self.source, e));
            }
            // `check` lets no other CFA through.
            _ => {}
        }

        self.state.cfa = cfa;
    }

    fn column(&mut self, reg: Reg, value: Value) {
        let number = reg as u8;
        match value {
            Value::Undefined => self.out.extend([UNDEFINED, number]),
            Value::Same => self.out.extend([SAME_VALUE, number]),
            // Back to the CIE's state, in which the column has no rule.
            Value::Unspecified => self.out.push(RESTORE | number),
            Value::Load {
                base: Base::Cfa,
                offset,
                ..
            } => {
                let factored = i64::from(offset) / self.align;
                // `DW_CFA_offset` has no sign. The alignment is negative, so that slots below the
                // CFA need none.
                if factored >= 0 {
                    self.out.push(OFFSET | number);
                    leb::unsigned(factored.unsigned_abs(), self.out);
                } else {
                    self.out.extend([OFFSET_EXTENDED_SF, number]);
                    leb::signed(factored, self.out);
                }
            }
            Value::Offset {
                base: Base::Cfa,
                offset,
            } => {
                self.out.extend([VAL_OFFSET_SF, number]);
                self.factored(offset);
            }
            Value::Offset {
                base: Base::Reg(base),
                offset: 0,
            } => self.out.extend([REGISTER, number, base as u8]),
            // A register plus a number has no instruction of its own.
            Value::Offset {
                base: Base::Reg(base),
                offset,
            } => {
                self.out.extend([VAL_EXPRESSION, number]);
                self.block(&based(base, offset));
            }

            // `DW_CFA_expression` gives the address of the slot, `DW_CFA_val_expression` the value
            // itself.
            Value::Load {
                base: Base::Reg(base),
                offset,
                addend: 0,
            } => {
                self.out.extend([EXPRESSION, number]);
                self.block(&based(base, offset));
            }
            Value::Load {
                base: Base::Reg(base),
                offset,
                addend,
            } => {
                self.out.extend([VAL_EXPRESSION, number]);
                self.block(&loaded(base, offset, addend));
            }
            Value::Expression(e) => {
                let kind = if e.load { EXPRESSION } else { VAL_EXPRESSION };
                self.out.extend([kind, number]);
                self.block(bytes(self.source, e));
            }
        }
    }

    fn unsigned(&mut self, value: i32) {
        leb::unsigned(value.unsigned_abs().into(), self.out);
    }

    fn factored(&mut self, offset: i32) {
        leb::signed(i64::from(offset) / self.align, self.out);
    }

    fn block(&mut self, bytes: &[u8]) {
        leb::unsigned(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }
}

/// `reg + offset` as an expression.
fn based(reg: Reg, offset: i32) -> Vec<u8> {
    let mut out = vec![OP_BREG0 + reg as u8];
    leb::signed(offset.into(), &mut out);
    out
}

/// `*(reg + offset) + addend` as an expression; the addend is not negative.
fn loaded(reg: Reg, offset: i32, addend: i32) -> Vec<u8> {
    let mut out = based(reg, offset);
    out.push(OP_DEREF);
    if addend != 0 {
        out.push(OP_PLUS_UCONST);
        leb::unsigned(addend.unsigned_abs().into(), &mut out);
    }
    out
}
