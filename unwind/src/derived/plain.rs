//! Simplifies rules: DWARF expressions that another format can express, too.

use crate::regs::Reg;
use crate::rule::{Base, Expression, Rule, Value};

pub(super) fn expression(bytes: &[u8], e: Expression) -> &[u8] {
    let start = e.start as usize;
    let end = start.saturating_add(e.len.into());
    bytes.get(start..end).unwrap_or(&[])
}

/// Recognizes `DW_OP_breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus`, which GNU ld and
/// lld write for a lazy PLT: 8 is added from the N-th byte of every 16. Returns N.
pub fn plt_threshold(bytes: &[u8]) -> Option<u8> {
    match *bytes {
        [
            0x77,
            8,
            0x80,
            0,
            0x3f,
            0x1a,
            lit @ 0x31..=0x3f,
            0x2a,
            0x33,
            0x24,
            0x22,
        ] => Some(lit - 0x30),
        _ => None,
    }
}

/// The threshold N of a rule whose CFA is the formula that linkers write for a lazy PLT: the CFA is
/// rsp + 8 in the first N bytes of every 16 (counted from addresses that are multiples of 16), and
/// rsp + 16 in the others. `bytes` is the section that the rule came from. `None` for other rules.
pub fn repeated_cfa(rule: &Rule, bytes: &[u8]) -> Option<u8> {
    match rule.cfa {
        Value::Expression(e) if !e.load => plt_threshold(expression(bytes, e)),
        _ => None,
    }
}

/// The same rule in simpler terms: an expression that is only a register, an offset and perhaps a
/// load becomes a plain value, and an sp equal to the CFA becomes unspecified.
pub fn simplify(rule: &Rule, bytes: &[u8]) -> Rule {
    let value = |value| match value {
        Value::Expression(e) => linear(expression(bytes, e), e.load).unwrap_or(value),
        _ => value,
    };
    let (cfa, sp) = (value(rule.cfa), value(rule.sp));
    let to_cfa = Value::Offset {
        base: Base::Cfa,
        offset: 0,
    };
    Rule {
        kind: rule.kind,
        by_frame_pointer: rule.by_frame_pointer,
        cfa,
        ra: value(rule.ra),
        sp: if sp == cfa || sp == to_cfa {
            Value::Unspecified
        } else {
            sp
        },
        saved: rule.saved.map(value),
    }
}

/// `DW_OP_bregN offset`, then any `DW_OP_plus_uconst` and at most one `DW_OP_deref`.
fn linear(bytes: &[u8], load: bool) -> Option<Value> {
    let (&first, mut rest) = bytes.split_first()?;
    // 0x70 is `DW_OP_breg0`.
    // Numbers 0 to 15 are the general registers, and 16 is the return address.
    let number = first.checked_sub(0x70).filter(|n| *n <= 16)?;
    let base = Base::Reg(Reg::from_dwarf(number.into())?);
    let mut offset = sleb(&mut rest)?;
    let mut addend: Option<i64> = None;

    while let Some((&op, tail)) = rest.split_first() {
        rest = tail;
        match op {
            // `DW_OP_deref`, then `DW_OP_plus_uconst`.
            0x06 if addend.is_none() => addend = Some(0),
            0x23 => {
                let sum = addend.as_mut().unwrap_or(&mut offset);
                *sum = sum.checked_add(uleb(&mut rest)?)?;
            }
            _ => return None,
        }
    }

    // A value beyond 32 bits has no place in a rule, so the expression stays an expression.
    let offset = i32::try_from(offset).ok()?;

    match (addend, load) {
        (None, false) => Some(Value::Offset { base, offset }),
        (None, true) => Some(Value::Load {
            base,
            offset,
            addend: 0,
        }),
        (Some(addend), false) => Some(Value::Load {
            base,
            offset,
            addend: i32::try_from(addend).ok()?,
        }),
        // Two loads: more than a rule can say.
        (Some(_), true) => None,
    }
}

/// Reads an LEB128 number of at most four bytes, enough for an offset. The sign is bit 6 of the
/// last byte.
fn leb(bytes: &mut &[u8]) -> Option<(i64, u32)> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, shift + 7));
        }
    }
    None
}

fn uleb(bytes: &mut &[u8]) -> Option<i64> {
    leb(bytes).map(|(value, _)| value)
}

fn sleb(bytes: &mut &[u8]) -> Option<i64> {
    let (value, bits) = leb(bytes)?;
    Some(value << (64 - bits) >> (64 - bits))
}

#[cfg(test)]
mod tests;
