//! Converts rules to rows, the inverse of `row`, and rows to bytes, the inverse of `fre`.

use super::row::{Location, SframeRow, Track};
use crate::derived::Loss;
use crate::regs::Reg;
use crate::rule::{Base, Rule, RuleKind, Value};
use arrayvec::ArrayVec;

/// The data words of a row: at most three pairs of four bytes.
pub type WordBytes = ArrayVec<u8, 24>;

impl SframeRow {
    /// The flexible V3 row with the CFA, return address and rbp of `rule`, if there is one. Assumes
    /// a header with the return address fixed at -8.
    pub fn from_rule(rule: &Rule) -> Result<SframeRow, Loss> {
        // A frame whose registers are all saved has no form in SFrame.
        match rule.kind {
            RuleKind::Outermost => return Ok(SframeRow::RaUndefined),
            RuleKind::Call | RuleKind::Signal => {}
            RuleKind::PtRegs | RuleKind::Iret => return Err(Loss::SignalFrame),
        }

        let cfa = match rule.cfa {
            Value::Undefined | Value::Unspecified | Value::Same => return Err(Loss::CfaUndefined),
            Value::Expression(_) => return Err(Loss::CfaExpression),
            value => location(value).ok_or(Loss::CfaLoad)?,
        };
        // Without a register, a location is relative to the CFA itself.
        if cfa.reg.is_none() {
            return Err(Loss::CfaExpression);
        }

        let ra = match rule.ra {
            Value::Undefined => return Ok(SframeRow::RaUndefined),
            Value::Expression(_) => return Err(Loss::RaExpression),
            // The header says this for all rows, so it needs no words.
            value if value == Value::at_cfa(-8) => Track::Absent,
            value => Track::At(location(value).ok_or(Loss::RaRegister)?),
        };

        // The caller's rsp is the CFA in every row; nothing else can be said.
        if rule.sp != Value::Unspecified {
            return Err(Loss::SpRule);
        }

        let fp = match rule.saved(Reg::Rbp) {
            Value::Same | Value::Unspecified => Track::Absent,
            Value::Undefined => return Err(Loss::RbpUndefined),
            Value::Expression(_) => return Err(Loss::RbpExpression),
            value => Track::At(location(value).ok_or(Loss::RbpRule)?),
        };

        Ok(SframeRow::Tracked { cfa, ra, fp })
    }

    /// Whether the row fits a default FDE. If not, it needs a flexible one.
    pub fn is_default(&self) -> bool {
        let SframeRow::Tracked { cfa, ra, fp } = self else {
            return true;
        };
        let plain = !cfa.deref && matches!(cfa.reg, Some(Reg::Rsp | Reg::Rbp));
        let fp = match fp {
            Track::At(l) => l.reg.is_none() && l.deref,
            _ => true,
        };
        plain && !matches!(ra, Track::At(_)) && fp
    }

    /// The info byte and the data words, in the smallest size that fits them all, for a flexible
    /// FDE or, if [`SframeRow::is_default`], a default one.
    pub fn encode(&self, flex: bool) -> (u8, WordBytes) {
        let SframeRow::Tracked { cfa, ra, fp } = self else {
            return (0, WordBytes::new());
        };

        let mut words: ArrayVec<i64, 6> = ArrayVec::new();
        let mut base_is_sp = false;

        // Flexible rows have a control word in front of each offset, and so their own rule of size.
        if flex {
            push(&mut words, Some(cfa));
            let at = |track: &Track| match *track {
                Track::At(location) => Some(location),
                _ => None,
            };

            // A return address at the header's fixed offset needs no words of its own.
            let (ra, fp) = (at(ra), at(fp));
            // The words of rbp come last, so a missing return address leaves padding before them.
            if ra.is_some() || fp.is_some() {
                push(&mut words, ra.as_ref());
            }
            if fp.is_some() {
                push(&mut words, fp.as_ref());
            }
        // A default row has no register numbers: its base is rsp or rbp, by a bit.
        } else {
            base_is_sp = cfa.reg == Some(Reg::Rsp);
            words.push(cfa.offset.into());
            if let Track::At(fp) = fp {
                words.push(fp.offset.into());
            }
        }

        let size = if flex {
            flex_size(&words)
        } else {
            words.iter().map(|w| signed_size(*w)).max().unwrap_or(0)
        };
        // Bit 0 is the base of the CFA, bits 1 to 4 the count of words, bits 5 and 6 their size.
        let fields = [u8::from(base_is_sp), (words.len() as u8) << 1, size << 5];

        // One size for all words of a row, even if only one of them needs it.
        let mut bytes = WordBytes::new();
        for word in words {
            match size {
                0 => bytes.push(word as u8),
                1 => bytes.extend((word as u16).to_le_bytes()),
                _ => bytes.extend((word as u32).to_le_bytes()),
            }
        }

        (fields.into_iter().sum(), bytes)
    }
}

/// Adds a control word and its offset, or a padding word.
fn push(words: &mut ArrayVec<i64, 6>, location: Option<&Location>) {
    let Some(l) = location else {
        words.push(0);
        return;
    };
    let number = l.reg.map_or(0, |reg| reg as i64);
    let fields = [
        i64::from(l.reg.is_some()),
        i64::from(l.deref) << 1,
        number << 3,
    ];
    words.push(fields.into_iter().sum());
    words.push(l.offset.into());
}

/// The size code that fits the control words, which are below 256, and the offsets.
fn flex_size(words: &[i64]) -> u8 {
    // A control word is at most 0x83 and always fits unsigned; as a signed word it would need two
    // bytes. Offsets follow non-zero control words.
    let mut size = 0;
    let mut at = 0;
    while at < words.len() {
        let control = words[at];
        at += 1;
        if control != 0 {
            size = size.max(words.get(at).map_or(0, |w| signed_size(*w)));
            at += 1;
        }
    }
    size
}

/// The size code (0: 1 byte, 1: 2, 2: 4) that fits the signed `word`.
fn signed_size(word: i64) -> u8 {
    match word {
        -0x80..=0x7f => 0,
        -0x8000..=0x7fff => 1,
        _ => 2,
    }
}

/// The value as a location, if the format can express it. It has no addends, and a plain CFA +
/// offset would be the padding word.
fn location(value: Value) -> Option<Location> {
    let (base, deref, offset) = match value {
        Value::Offset { base, offset } => (base, false, offset),
        Value::Load {
            base,
            offset,
            addend: 0,
        } => (base, true, offset),
        _ => return None,
    };
    let reg = match base {
        Base::Cfa if !deref => return None,
        Base::Cfa => None,
        Base::Reg(reg) => Some(Reg::from_dwarf(reg as u16)?),
    };
    Some(Location { reg, deref, offset })
}

#[cfg(test)]
mod tests;
