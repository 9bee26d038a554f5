//! The normal form that every table compiles to.
//!
//! ```text
//! rule  = kind, cfa, ra, sp, rbx, rbp, r12..r15
//! kind  = call | signal | pt_regs | iret | outermost
//! value = undefined | same | unspecified | base + offset | *(base + offset) + addend | expression
//! base  = cfa | register            (cfa itself: register base only)
//! ```
//!
//! `undefined` (the table says that the value is lost), `same` (the table says that it is
//! unchanged) and `unspecified` (the format cannot describe the register) are distinct. In pt_regs
//! and iret rules, the cfa is the address of the saved registers, and the caller's sp is the saved
//! one. An expression stays a range of the section's bytes; it is rare and slow.
//!
//! Because of the one form, two tables can be compared row by row, one format can be transcribed
//! into another, and one fast path serves all.

mod key;

pub(crate) use key::{COLUMNS, CfaCode, Codes, Packed, RA, RuleKey, SP, Shape};

use crate::regs::{Reg, Regs};
use core::fmt;

/// What kind of frame the rule describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RuleKind {
    /// An ordinary frame: the caller's pc is a return address.
    Call,
    /// A signal frame: the caller was interrupted, so its pc is exact.
    Signal,
    /// The kernel's full `struct pt_regs` at the computed address.
    PtRegs,
    /// Only the hardware's iret frame (ip, cs, flags, sp, ss) at the computed address.
    Iret,
    /// The outermost frame, which has no caller: the root.
    Outermost,
}

impl RuleKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            RuleKind::Call => "call",
            RuleKind::Signal => "signal",
            RuleKind::PtRegs => "pt_regs",
            RuleKind::Iret => "iret",
            RuleKind::Outermost => "outermost",
        }
    }
}

/// The base of an offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Base {
    /// The canonical frame address of this rule.
    Cfa,
    /// A register of the frame.
    Reg(Reg),
}

/// A DWARF expression: a range of bytes in the section that the row came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Expression {
    /// Offset of the first operation in its section, bytes.
    pub start: u32,
    /// Length, bytes. A `u16` keeps [`Value`] at 12 bytes, and a cache holds many.
    pub len: u16,
    /// Whether the value is loaded from the resulting address (`DW_CFA_expression`) or is the
    /// result itself (`DW_CFA_val_expression` and `DW_CFA_def_cfa_expression`).
    pub load: bool,
}

/// How to compute one value of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// The table says that the value is lost.
    Undefined,
    /// The table says that the value is unchanged.
    Same,
    /// The format cannot describe the register. An unwinder that carries the register keeps its
    /// value, although the table does not vouch for it.
    Unspecified,
    /// `base + offset`.
    Offset {
        /// The base of the offset.
        base: Base,
        /// Offset, bytes.
        offset: i32,
    },
    /// `*(base + offset) + addend`.
    Load {
        /// The base of the offset.
        base: Base,
        /// Offset, bytes.
        offset: i32,
        /// Added to the loaded word, bytes.
        addend: i32,
    },
    /// A DWARF expression in the row's section.
    Expression(Expression),
}

impl Value {
    /// `*(cfa + offset)`.
    pub const fn at_cfa(offset: i32) -> Value {
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        }
    }

    /// `reg + offset`.
    pub const fn reg(reg: Reg, offset: i32) -> Value {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        }
    }

    /// The register that the value depends on, if any.
    pub const fn base_reg(self) -> Option<Reg> {
        match self {
            Value::Offset {
                base: Base::Reg(r), ..
            }
            | Value::Load {
                base: Base::Reg(r), ..
            } => Some(r),
            _ => None,
        }
    }
}

const _: () = assert!(size_of::<Value>() == 12);

/// A rule: how to compute the caller's registers from those of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// The kind of frame.
    pub kind: RuleKind,
    /// Whether the rule comes from the frame-pointer convention rather than a table. If so, an rbp
    /// of zero marks the root (psABI, "Initial Stack and Register State").
    pub by_frame_pointer: bool,
    /// The canonical frame address; never based on itself.
    pub cfa: Value,
    /// The caller's pc.
    pub ra: Value,
    /// The caller's sp. `Unspecified` means the cfa, as in nearly every rule.
    pub sp: Value,
    /// The callee-saved registers, in the order of [`Reg::CALLEE_SAVED`].
    pub saved: [Value; 6],
}

impl Rule {
    /// The rule of an ordinary frame with its return address at cfa - 8 and unspecified
    /// callee-saved registers.
    pub const fn call(cfa: Value) -> Rule {
        Rule {
            kind: RuleKind::Call,
            by_frame_pointer: false,
            cfa,
            ra: Value::at_cfa(-8),
            sp: Value::Unspecified,
            saved: [Value::Unspecified; 6],
        }
    }

    /// The rule of the outermost frame.
    pub const OUTERMOST: Rule = Rule {
        kind: RuleKind::Outermost,
        by_frame_pointer: false,
        cfa: Value::Undefined,
        ra: Value::Undefined,
        sp: Value::Undefined,
        saved: [Value::Undefined; 6],
    };

    /// The frame-pointer convention, `push rbp; mov rbp, rsp`: cfa = rbp + 16, ra and rbp below it.
    pub const FRAME_POINTER: Rule = Rule {
        by_frame_pointer: true,
        ..Rule::call(Value::reg(Reg::Rbp, 16)).with_saved(Reg::Rbp, Value::at_cfa(-16))
    };

    /// Whether the caller's sp is the CFA: because nothing else is said of it, or because the table
    /// says that it is lost. The CFA is rsp at the call by definition (psABI 3.6.2), which no rule
    /// of the register can take back; gdb and elfutils walk on, too.
    pub const fn sp_is_cfa(&self) -> bool {
        matches!(self.sp, Value::Unspecified | Value::Undefined)
    }

    /// Whether a frame with this rule and these registers is the root.
    pub fn is_root(&self, regs: &Regs) -> bool {
        self.kind == RuleKind::Outermost || self.by_frame_pointer && regs.get(Reg::Rbp) == Some(0)
    }

    /// The index of `reg` in [`Rule::saved`], if it is callee-saved.
    pub const fn saved_index(reg: Reg) -> Option<usize> {
        match reg {
            Reg::Rbx => Some(0),
            Reg::Rbp => Some(1),
            Reg::R12 => Some(2),
            Reg::R13 => Some(3),
            Reg::R14 => Some(4),
            Reg::R15 => Some(5),
            _ => None,
        }
    }

    /// The value of `reg` if it is callee-saved, otherwise `Unspecified`.
    pub const fn saved(&self, reg: Reg) -> Value {
        match Self::saved_index(reg) {
            Some(i) => self.saved[i],
            None => Value::Unspecified,
        }
    }

    /// A copy of the rule with `value` for `reg`, if that is callee-saved.
    #[must_use]
    pub const fn with_saved(mut self, reg: Reg, value: Value) -> Rule {
        if let Some(i) = Self::saved_index(reg) {
            self.saved[i] = value;
        }
        self
    }
}

/// An offset displayed with its sign: `+8`, `-16`, nothing for 0.
struct Signed(i32);

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            Ok(())
        } else {
            write!(f, "{:+}", self.0)
        }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Base::Cfa => f.write_str("cfa"),
            Base::Reg(r) => f.write_str(r.as_str()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Undefined => f.write_str("undefined"),
            Value::Same => f.write_str("same"),
            Value::Unspecified => f.write_str("unspecified"),
            Value::Offset { base, offset } => write!(f, "{base}{}", Signed(offset)),
            Value::Load {
                base,
                offset,
                addend,
            } => {
                write!(f, "*({base}{}){}", Signed(offset), Signed(addend))
            }
            Value::Expression(e) => {
                write!(
                    f,
                    "{}expr@{:#x}+{}",
                    if e.load { "*" } else { "" },
                    e.start,
                    e.len
                )
            }
        }
    }
}

impl fmt::Display for Rule {
    /// `call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)`; unspecified values are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if self.kind == RuleKind::Outermost {
            return Ok(());
        }
        write!(f, " cfa={} ra={}", self.cfa, self.ra)?;
        if self.sp != Value::Unspecified {
            write!(f, " sp={}", self.sp)?;
        }
        for (reg, value) in Reg::CALLEE_SAVED.iter().zip(self.saved) {
            if value != Value::Unspecified {
                write!(f, " {reg}={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_rule_is_shown_without_what_is_unspecified() {
        let shown = Rule::FRAME_POINTER.to_string();
        assert_eq!(shown, "call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)");
        assert_eq!(Rule::OUTERMOST.to_string(), "outermost");
        let signal = Rule {
            kind: RuleKind::Signal,
            sp: Value::reg(Reg::Rsp, 0),
            ..Rule::call(Value::reg(Reg::Rsp, 8)).with_saved(Reg::R12, Value::Same)
        };
        let shown = signal.to_string();
        assert_eq!(shown, "signal cfa=rsp+8 ra=*(cfa-8) sp=rsp r12=same");
    }

    #[test]
    fn every_value_is_shown_differently() {
        let (base, offset) = (Base::Reg(Reg::R10), 0);
        let expression = |load| {
            let (start, len) = (0x1f, 3);
            Value::Expression(Expression { start, len, load })
        };

        // No two values may look alike.
        for (value, want) in [
            (Value::Undefined, "undefined"),
            (Value::Same, "same"),
            (Value::Unspecified, "unspecified"),
            (Value::reg(Reg::Rsp, -8), "rsp-8"),
            (Value::at_cfa(16), "*(cfa+16)"),
            (
                Value::Load {
                    base,
                    offset,
                    addend: -8,
                },
                "*(r10)-8",
            ),
            (expression(false), "expr@0x1f+3"),
            (expression(true), "*expr@0x1f+3"),
        ] {
            assert_eq!(value.to_string(), want, "{value:?}");
        }
    }

    #[test]
    fn the_kinds_have_the_names_of_the_documentation() {
        let kinds = [
            RuleKind::Call,
            RuleKind::Signal,
            RuleKind::PtRegs,
            RuleKind::Iret,
            RuleKind::Outermost,
        ];
        let names = kinds.map(RuleKind::as_str);
        assert_eq!(names, ["call", "signal", "pt_regs", "iret", "outermost"]);
    }

    #[test]
    fn each_callee_saved_register_has_its_own_place() {
        for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            let rule = Rule::OUTERMOST.with_saved(reg, Value::Same);
            assert_eq!(
                (rule.saved(reg), rule.saved[index]),
                (Value::Same, Value::Same)
            );
            let others = rule.saved.iter().filter(|&&v| v == Value::Undefined);
            assert_eq!(others.count(), 5, "{reg}");
        }
        let rule = Rule::OUTERMOST.with_saved(Reg::Rax, Value::Same);
        assert_eq!(rule, Rule::OUTERMOST);
        assert_eq!(rule.saved(Reg::Rax), Value::Unspecified);
    }

    #[test]
    fn a_root_is_marked_by_its_kind_or_by_a_zero_frame_pointer() {
        let with = |rbp| Regs::frame(0x1000, 0x7000, rbp);
        let mut unknown = with(0);
        unknown.forget(Reg::Rbp);
        let by_table = Rule {
            by_frame_pointer: false,
            ..Rule::FRAME_POINTER
        };
        for (rule, expected) in [
            (Rule::OUTERMOST, [true; 3]),
            (Rule::FRAME_POINTER, [true, false, false]),
            (by_table, [false; 3]),
        ] {
            let is = [with(0), with(0x7010), unknown].map(|regs| rule.is_root(&regs));
            assert_eq!(is, expected, "{rule:?}");
        }
    }

    #[test]
    fn a_value_depends_on_a_register_only_through_its_base() {
        let loaded = Value::Load {
            base: Base::Reg(Reg::Rbp),
            offset: 8,
            addend: 0,
        };
        assert_eq!(loaded.base_reg(), Some(Reg::Rbp));
        assert_eq!(Value::reg(Reg::Rsp, 8).base_reg(), Some(Reg::Rsp));
        for value in [Value::at_cfa(-8), Value::Same, Value::Undefined] {
            assert_eq!(value.base_reg(), None);
        }
    }
}
