//! An ORC entry: six bytes, decoded and encoded, and converted to and from a [`Rule`].
//!
//! The format is `struct orc_entry` (Linux `arch/x86/include/asm/orc_types.h`); the meaning of the
//! fields is defined by `unwind_next_frame` (`arch/x86/kernel/unwind_orc.c`).

use super::layout::{Encoding, Layout, OrcReg, SpIndirect};
use crate::derived::Loss;
use crate::regs::Reg;
use crate::rule::{Base, Rule, RuleKind, Value};
use core::fmt;

/// Size of an entry, bytes.
pub const ENTRY_LEN: usize = 6;

/// What is at the computed address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryType {
    /// Nothing is known: the walk ends with an error.
    Undefined,
    /// The root: the walk ends without an error.
    EndOfStack,
    /// The end of a call frame: the return address is just below.
    Call,
    /// A `struct pt_regs`.
    Regs,
    /// Only the iret frame.
    RegsPartial,
}

/// An ORC entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The base of `sp_offset`.
    pub sp_reg: OrcReg,
    /// Offset from `sp_reg` to what `kind` says, bytes.
    pub sp_offset: i16,
    /// The base of `bp_offset`.
    pub bp_reg: OrcReg,
    /// Offset from `bp_reg` to the saved rbp, bytes.
    pub bp_offset: i16,
    /// What is at the computed address.
    pub kind: EntryType,
    /// Whether the frame was interrupted, so that its caller's ip is exact.
    pub signal: bool,
}

impl Entry {
    /// The entry that says that nothing is known.
    pub const UNDEFINED: Entry = Entry {
        sp_reg: OrcReg::Undefined,
        sp_offset: 0,
        bp_reg: OrcReg::Undefined,
        bp_offset: 0,
        kind: EntryType::Undefined,
        signal: false,
    };

    /// `null_orc_entry`, for ip 0: a call through a null pointer.
    pub const NULL: Entry = Entry {
        sp_reg: OrcReg::Sp,
        sp_offset: 8,
        kind: EntryType::Call,
        ..Entry::UNDEFINED
    };

    /// `orc_fp_entry`, with which Linux continues where there is no entry; the walk is then
    /// unreliable.
    pub const FRAME_POINTER: Entry = Entry {
        sp_reg: OrcReg::Bp,
        sp_offset: 16,
        bp_reg: OrcReg::PrevSp,
        bp_offset: -16,
        ..Entry::NULL
    };

    /// Decodes an entry. The error says what is wrong with it.
    pub fn decode(bytes: [u8; ENTRY_LEN], layout: Layout) -> Result<Entry, &'static str> {
        let [a, b, c, d, e, f] = bytes;
        let flags = u16::from_le_bytes([e, f]);

        // Set bits mean another layout or damage; both would be misread.
        if flags & layout.unused_bits() != 0 {
            return Err("unused bits are set");
        }

        // The numbers of registers changed in 7.1.
        let reg = |number: u16| layout.reg(number as u8 & 0xf);
        let sp_reg = reg(flags).ok_or("unknown sp_reg")?;
        let bp_reg = reg(flags >> 4).ok_or("unknown bp_reg")?;

        let bit = |n: u16| flags >> n & 1 != 0;

        // The type grew from two bits to three in 6.4.
        let (kind, signal) = match layout {
            // Before 6.3 there was no bit `signal`: saved registers meant an interruption.
            Layout::V4_14 => (
                old_type(flags >> 8 & 3, sp_reg, bit(10))?,
                flags >> 8 & 3 != 0,
            ),
            Layout::V6_3 => (old_type(flags >> 8 & 3, sp_reg, bit(11))?, bit(10)),
            // Since 6.4 the end of a stack is a type, not a bit.
            Layout::V6_4 | Layout::V7_1 => {
                let kind = match flags >> 8 & 7 {
                    0 => EntryType::Undefined,
                    1 => EntryType::EndOfStack,
                    2 => EntryType::Call,
                    3 => EntryType::Regs,
                    4 => EntryType::RegsPartial,
                    _ => return Err("unknown type"),
                };
                (kind, bit(11))
            }
        };

        Ok(Entry {
            sp_reg,
            sp_offset: i16::from_le_bytes([a, b]),
            bp_reg,
            bp_offset: i16::from_le_bytes([c, d]),
            kind,
            signal,
        })
    }

    /// The entry's bytes. (The layout of 4.14 has no `signal`: it follows from the type.)
    pub fn encode(&self, layout: Layout) -> [u8; ENTRY_LEN] {
        let old = match self.kind {
            EntryType::Regs => 1,
            EntryType::RegsPartial => 2,
            _ => 0,
        };
        let end = u16::from(self.kind == EntryType::EndOfStack);
        let signal = u16::from(self.signal);
        let (sp, bp) = (layout.number(self.sp_reg), layout.number(self.bp_reg));
        let fields = match layout {
            Layout::V4_14 => [sp, bp << 4, old << 8, end << 10, 0],
            Layout::V6_3 => [sp, bp << 4, old << 8, signal << 10, end << 11],
            Layout::V6_4 | Layout::V7_1 => [sp, bp << 4, (self.kind as u16) << 8, signal << 11, 0],
        };
        let flags: u16 = fields.into_iter().sum();
        let [a, b] = self.sp_offset.to_le_bytes();
        let [c, d] = self.bp_offset.to_le_bytes();
        let [e, f] = flags.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// The entry as a rule. Fails where `unwind_next_frame` reports "unknown SP base reg" or
    /// "unknown BP base reg".
    ///
    /// A rule cannot express that the registers of a `struct pt_regs` were saved by a breakpoint,
    /// where the caller's ip is not exact (type REGS without `signal`, since 6.3).
    pub fn rule(&self, sp_indirect: SpIndirect) -> Result<Rule, &'static str> {
        let kind = match self.kind {
            EntryType::EndOfStack => return Ok(Rule::OUTERMOST),
            EntryType::Undefined => return Ok(UNDEFINED),
            EntryType::Call if self.signal => RuleKind::Signal,
            EntryType::Call => RuleKind::Call,
            EntryType::Regs => RuleKind::PtRegs,
            EntryType::RegsPartial => RuleKind::Iret,
        };

        let offset = i32::from(self.sp_offset);
        let load = |reg, offset, addend| Value::Load {
            base: Base::Reg(reg),
            offset,
            addend,
        };

        let cfa = match self.sp_reg {
            OrcReg::Sp => Value::reg(Reg::Rsp, offset),
            OrcReg::Bp => Value::reg(Reg::Rbp, offset),
            // Since 5.12 `SP_INDIRECT` adds after the load; before, the load was at the offset.
            OrcReg::SpIndirect => match sp_indirect {
                SpIndirect::LoadAtOffset => load(Reg::Rsp, offset, 0),
                SpIndirect::LoadThenAdd => load(Reg::Rsp, 0, offset),
            },
            OrcReg::BpIndirect => load(Reg::Rbp, offset, 0),
            // `unwind_next_frame` does not add `sp_offset` to these registers.
            OrcReg::R10 => Value::reg(Reg::R10, 0),
            OrcReg::R13 => Value::reg(Reg::R13, 0),
            OrcReg::Di => Value::reg(Reg::Rdi, 0),
            OrcReg::Dx => Value::reg(Reg::Rdx, 0),
            OrcReg::Ax => Value::reg(Reg::Rax, 0),
            OrcReg::Undefined | OrcReg::PrevSp => return Err("unknown SP base reg"),
        };

        let offset = i32::from(self.bp_offset);
        let bp = match self.bp_reg {
            // `unwind_next_frame` leaves rbp as it is.
            OrcReg::Undefined => Value::Same,
            OrcReg::PrevSp => Value::at_cfa(offset),
            OrcReg::Bp => load(Reg::Rbp, offset, 0),
            _ => return Err("unknown BP base reg"),
        };

        // The return address is just below the CFA, except in the two types with saved registers.
        let mut rule = Rule::call(cfa).with_saved(Reg::Rbp, bp);
        rule.kind = kind;
        Ok(rule)
    }

    /// The entry with the CFA, return address and rbp of `rule`, as read by kernels since 5.12, or
    /// the first part of it that no entry can express.
    pub fn from_rule(rule: &Rule) -> Result<Entry, Loss> {
        let kind = match rule.kind {
            RuleKind::Outermost => {
                return Ok(Entry {
                    kind: EntryType::EndOfStack,
                    ..Entry::UNDEFINED
                });
            }
            RuleKind::Call | RuleKind::Signal => EntryType::Call,
            RuleKind::PtRegs => EntryType::Regs,
            RuleKind::Iret => EntryType::RegsPartial,
        };

        // An entry cannot say where the return address is, nor what the caller's rsp is.
        if kind == EntryType::Call {
            check_call(rule)?;
        }

        let (sp_reg, sp_offset) = cfa(rule.cfa)?;
        // Of the saved registers, ORC follows only rbp.
        let (bp_reg, bp_offset) = match rule.saved(Reg::Rbp) {
            Value::Same | Value::Unspecified => (OrcReg::Undefined, 0),
            Value::Undefined => return Err(Loss::RbpUndefined),
            Value::Expression(_) => return Err(Loss::RbpExpression),
            Value::Load {
                base,
                offset,
                addend: 0,
            } => {
                let reg = match base {
                    Base::Cfa => OrcReg::PrevSp,
                    Base::Reg(Reg::Rbp) => OrcReg::Bp,
                    Base::Reg(_) => return Err(Loss::RbpRule),
                };
                (reg, i16::try_from(offset).map_err(|_| Loss::RbpOffset)?)
            }
            _ => return Err(Loss::RbpRule),
        };

        // Everything but a call was interrupted at its exact ip.
        Ok(Entry {
            sp_reg,
            sp_offset,
            bp_reg,
            bp_offset,
            kind,
            signal: rule.kind != RuleKind::Call,
        })
    }

    /// Converts `rule` to an entry and back, through the bytes of `encoding`. The result is what an
    /// entry can express.
    pub(crate) fn transcribe(rule: &Rule, encoding: Encoding) -> Result<Rule, Loss> {
        let bytes = Entry::from_rule(rule)?.encode(encoding.layout);
        let back = Entry::decode(bytes, encoding.layout).and_then(|e| e.rule(encoding.sp_indirect));
        back.map_err(|_| Loss::CfaRegister)
    }
}

/// Displayed as by `objtool --dump=orc` since Linux 6.4: `type:call sp:sp+8 bp:prevsp-16 signal:0`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            EntryType::Undefined => return f.write_str("(und)"),
            EntryType::EndOfStack => return f.write_str("type:end"),
            EntryType::Call => "call",
            EntryType::Regs => "regs",
            EntryType::RegsPartial => "regs (partial)",
        };
        write!(f, "type:{kind} sp:")?;
        self.sp_reg.write(self.sp_offset, f)?;
        f.write_str(" bp:")?;
        self.bp_reg.write(self.bp_offset, f)?;
        write!(f, " signal:{}", u8::from(self.signal))
    }
}

impl OrcReg {
    fn write(self, offset: i16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrcReg::Undefined => f.write_str("(und)"),
            OrcReg::PrevSp => write!(f, "prevsp{offset:+}"),
            OrcReg::Bp => write!(f, "bp{offset:+}"),
            OrcReg::Sp => write!(f, "sp{offset:+}"),
            OrcReg::BpIndirect => write!(f, "(bp{offset:+})"),
            OrcReg::SpIndirect => write!(f, "(sp){offset:+}"),
            OrcReg::R10 => write!(f, "r10{offset:+}"),
            OrcReg::R13 => write!(f, "r13{offset:+}"),
            OrcReg::Di => write!(f, "di{offset:+}"),
            OrcReg::Dx => write!(f, "dx{offset:+}"),
            OrcReg::Ax => write!(f, "ax{offset:+}"),
        }
    }
}

/// The rule that says that nothing is known of the caller, not even its address.
const UNDEFINED: Rule = Rule {
    kind: RuleKind::Call,
    by_frame_pointer: false,
    cfa: Value::Undefined,
    ra: Value::Undefined,
    sp: Value::Undefined,
    saved: [Value::Undefined; 6],
};

/// Decodes `type` before 6.4, where END_OF_STACK and UNDEFINED are expressed by `end` and sp_reg.
fn old_type(kind: u16, sp_reg: OrcReg, end: bool) -> Result<EntryType, &'static str> {
    match (sp_reg, end, kind) {
        (_, _, 3) => Err("unknown type"),
        (OrcReg::Undefined, true, _) => Ok(EntryType::EndOfStack),
        (OrcReg::Undefined, false, _) => Ok(EntryType::Undefined),
        (_, true, _) => Err("end of stack, but sp_reg is set"),
        (_, _, 0) => Ok(EntryType::Call),
        (_, _, 1) => Ok(EntryType::Regs),
        _ => Ok(EntryType::RegsPartial),
    }
}

/// Checks that the return address is at CFA - 8 and the caller's sp is the CFA.
fn check_call(rule: &Rule) -> Result<(), Loss> {
    match rule.ra {
        _ if rule.ra == Value::at_cfa(-8) => {}
        _ if rule.kind == RuleKind::Signal => return Err(Loss::SignalFrame),
        Value::Load { .. } => return Err(Loss::RaSlot),
        Value::Expression(_) => return Err(Loss::RaExpression),
        _ => return Err(Loss::RaRegister),
    }
    if rule.sp == Value::Unspecified {
        Ok(())
    } else {
        Err(Loss::SpRule)
    }
}

/// `sp_reg` and `sp_offset` for a CFA.
fn cfa(value: Value) -> Result<(OrcReg, i16), Loss> {
    let (reg, offset) = match value {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        } => (plain(reg).ok_or(Loss::CfaRegister)?, offset),
        Value::Load {
            base: Base::Reg(Reg::Rsp),
            offset: 0,
            addend,
        } => (OrcReg::SpIndirect, addend),
        Value::Load {
            base: Base::Reg(Reg::Rbp),
            offset,
            addend: 0,
        } => (OrcReg::BpIndirect, offset),
        // An entry adds before it loads (rbp) or after it (rsp), from these two registers only.
        Value::Load { .. } => return Err(Loss::CfaLoad),
        Value::Expression(_) => return Err(Loss::CfaExpression),
        _ => return Err(Loss::CfaUndefined),
    };

    // `unwind_next_frame` adds `sp_offset` to these registers only.
    let takes_offset = matches!(
        reg,
        OrcReg::Sp | OrcReg::Bp | OrcReg::SpIndirect | OrcReg::BpIndirect
    );
    if offset != 0 && !takes_offset {
        return Err(Loss::CfaOffset);
    }

    let offset = i16::try_from(offset).map_err(|_| Loss::CfaOffset)?;
    Ok((reg, offset))
}

const fn plain(reg: Reg) -> Option<OrcReg> {
    Some(match reg {
        Reg::Rsp => OrcReg::Sp,
        Reg::Rbp => OrcReg::Bp,
        Reg::R10 => OrcReg::R10,
        Reg::R13 => OrcReg::R13,
        Reg::Rdi => OrcReg::Di,
        Reg::Rdx => OrcReg::Dx,
        Reg::Rax => OrcReg::Ax,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
