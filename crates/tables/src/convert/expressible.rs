//! What each format can express, from its specification alone.
//!
//! Nothing here uses the writers or the encoders: a test converts tables and expects a row wherever
//! [`expressible`] says so, and none elsewhere.
//!
//! # SFrame on x86-64
//!
//! ("The SFrame format", binutils 2.40 for V1, 2.45 for V2 with its two errata, 2.46 for V3.)
//!
//! | | V1 | V2 | V3 |
//! |---|---|---|---|
//! | CFA = rsp or rbp + offset | yes | yes | yes |
//! | CFA = another register + offset | no | no | yes (flexible) |
//! | CFA = \*(register + offset) | no | no | yes (flexible) |
//! | CFA = another expression | no | no | no; the PLT's formula by `PCMASK` (V2 too) |
//! | return address at CFA - 8 | yes | yes | yes |
//! | at another offset from the CFA, at \*(register + offset), in a register | no | no | yes |
//! | return address undefined: the outermost frame | no | yes (errata 2) | yes |
//! | rbp unchanged, or at \*(CFA + offset) | yes | yes | yes |
//! | rbp = register + offset, \*(register + offset) | no | no | yes (flexible) |
//! | rbp = CFA + offset, rbp undefined | no | no | no |
//! | caller's sp other than the CFA | no | no | no |
//! | signal frame | no | no | yes |
//!
//! Offsets have 32 bits. Other registers are never expressed.
//!
//! # ORC
//!
//! (Linux `arch/x86/include/asm/orc_types.h`, `arch/x86/kernel/unwind_orc.c`.)
//!
//! | | |
//! |---|---|
//! | CFA = rsp or rbp + offset (16 bits) | yes |
//! | CFA = r10, r13, rdi, rdx | yes, without offset |
//! | CFA = rax | since 7.1, without offset |
//! | CFA = \*(rbp + offset) | yes |
//! | CFA = \*(rsp) + offset | since 5.12 |
//! | CFA = \*(rsp + offset) | before 5.12 |
//! | return address | at CFA - 8 |
//! | rbp | unchanged, \*(CFA + offset), \*(rbp + offset) |
//! | outermost frame | yes |
//! | signal frame (with the return address at CFA - 8) | since 6.3 |
//! | `struct pt_regs` and the iret frame | yes |
//!
//! # `.eh_frame`
//!
//! Everything but `struct pt_regs` and the iret frame, for which [`Rule`] has kinds of their own,
//! and a value loaded with a negative addend.

use super::target::Target;
use unwind_sim_unwind::orc::{Encoding, Layout, SpIndirect};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};
use unwind_sim_unwind::sframe::Version;

/// Whether a table of format `target` can say what `rule` says of the columns that the format has.
/// The rule is in simple terms ([`unwind_sim_unwind::derived::simplify`]), and not a PLT's formula,
/// which [`unwind_sim_unwind::derived::repeated_cfa`] takes apart.
pub fn expressible(rule: &Rule, target: Target) -> bool {
    if is_outermost(rule) {
        return target != Target::Sframe(Version::V1);
    }
    match target {
        Target::Sframe(Version::V1 | Version::V2) => sframe_default(rule),
        Target::Sframe(Version::V3) => sframe_flexible(rule),
        Target::Orc(encoding) => orc(rule, encoding),
        Target::EhFrame => eh_frame(rule),
    }
}

/// What `rule` says of the columns that `target` has: two rules that are equal after this mean the
/// same there.
pub fn projected(rule: &Rule, target: Target) -> Rule {
    if is_outermost(rule) {
        return Rule::OUTERMOST;
    }
    let mut out = *rule;
    if target != Target::EhFrame {
        out.saved = [Value::Unspecified; 6];
        out = out.with_saved(Reg::Rbp, rule.saved(Reg::Rbp));
    }
    // A register without a rule is unchanged: by convention in DWARF, by definition elsewhere.
    for value in &mut out.saved {
        if *value == Value::Unspecified {
            *value = Value::Same;
        }
    }
    out
}

fn is_outermost(rule: &Rule) -> bool {
    let is_call = matches!(rule.kind, RuleKind::Call | RuleKind::Signal);
    rule.kind == RuleKind::Outermost || is_call && rule.ra == Value::Undefined
}

const CALL_RA: Value = Value::Load {
    base: Base::Cfa,
    offset: -8,
    addend: 0,
};

fn is_unchanged(value: Value) -> bool {
    matches!(value, Value::Same | Value::Unspecified)
}

fn at_cfa(value: Value) -> bool {
    matches!(
        value,
        Value::Load {
            base: Base::Cfa,
            addend: 0,
            ..
        }
    )
}

/// A register's value plus an offset, or the word there.
fn by_register(value: Value) -> bool {
    match value {
        Value::Offset { base, .. } => base != Base::Cfa,
        Value::Load { base, addend, .. } => base != Base::Cfa && addend == 0,
        _ => false,
    }
}

fn sframe_default(rule: &Rule) -> bool {
    let cfa = match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            ..
        } => reg == Reg::Rsp || reg == Reg::Rbp,
        _ => false,
    };
    let rbp = rule.saved(Reg::Rbp);
    cfa && rule.kind == RuleKind::Call
        && rule.ra == CALL_RA
        && rule.sp == Value::Unspecified
        && (is_unchanged(rbp) || at_cfa(rbp))
}

fn sframe_flexible(rule: &Rule) -> bool {
    let rbp = rule.saved(Reg::Rbp);
    by_register(rule.cfa)
        && matches!(rule.kind, RuleKind::Call | RuleKind::Signal)
        && (at_cfa(rule.ra) || by_register(rule.ra))
        && rule.sp == Value::Unspecified
        && (is_unchanged(rbp) || at_cfa(rbp) || by_register(rbp))
}

fn orc(rule: &Rule, encoding: Encoding) -> bool {
    let call = match rule.kind {
        RuleKind::Call => true,
        RuleKind::Signal => encoding.layout >= Layout::V6_3,
        _ => false,
    };
    let is_frame = call && rule.ra == CALL_RA && rule.sp == Value::Unspecified;
    let is_regs = matches!(rule.kind, RuleKind::PtRegs | RuleKind::Iret);
    (is_frame || is_regs) && orc_cfa(rule.cfa, encoding) && orc_rbp(rule.saved(Reg::Rbp))
}

fn is_16_bits(offset: i32) -> bool {
    (-0x8000..=0x7fff).contains(&offset)
}

fn orc_cfa(cfa: Value, encoding: Encoding) -> bool {
    match cfa {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        } => match reg {
            // These are the base registers of ORC (`arch/x86/include/asm/orc_types.h`); only rsp
            // and rbp have an offset of use.
            Reg::Rsp | Reg::Rbp => is_16_bits(offset),
            Reg::R10 | Reg::R13 | Reg::Rdi | Reg::Rdx => offset == 0,
            Reg::Rax => offset == 0 && encoding.layout == Layout::V7_1,
            _ => false,
        },
        Value::Load {
            base: Base::Reg(Reg::Rbp),
            offset,
            addend: 0,
        } => is_16_bits(offset),
        Value::Load {
            base: Base::Reg(Reg::Rsp),
            offset,
            addend,
        } => match encoding.sp_indirect {
            SpIndirect::LoadAtOffset => addend == 0 && is_16_bits(offset),
            SpIndirect::LoadThenAdd => offset == 0 && is_16_bits(addend),
        },
        _ => false,
    }
}

fn orc_rbp(rbp: Value) -> bool {
    match rbp {
        Value::Same | Value::Unspecified => true,
        Value::Load {
            base: Base::Cfa | Base::Reg(Reg::Rbp),
            offset,
            addend: 0,
        } => is_16_bits(offset),
        _ => false,
    }
}

fn eh_frame(rule: &Rule) -> bool {
    let loaded = |value| match value {
        Value::Load {
            base: Base::Cfa,
            addend,
            ..
        } => addend == 0,
        Value::Load { addend, .. } => addend >= 0,
        _ => true,
    };
    let cfa = match rule.cfa {
        Value::Undefined | Value::Same | Value::Unspecified => false,
        Value::Offset { base, .. } | Value::Load { base, .. } => base != Base::Cfa,
        Value::Expression(_) => true,
    };
    matches!(rule.kind, RuleKind::Call | RuleKind::Signal)
        && cfa
        && loaded(rule.cfa)
        && !is_unchanged(rule.ra)
        && loaded(rule.ra)
        && loaded(rule.sp)
        && rule.saved.iter().all(|value| loaded(*value))
}

#[cfg(test)]
mod tests;
