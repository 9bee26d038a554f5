//! What the format of a table can express.

use crate::file::File;
use crate::table::Table;
use unwind_sim_unwind::derived::{Format as _, Loss};
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::orc::derived::OrcEntry;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};
use unwind_sim_unwind::sframe::derived::SframeV3;
use unwind_sim_unwind::sframe::{Header, Version};

/// A format, as far as two tables can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `.eh_frame` and `.debug_frame`: everything.
    Dwarf,
    /// SFrame of this version.
    Sframe(Version),
    /// ORC.
    Orc,
}

impl Format {
    /// The format of `table`, a table of `file`.
    pub fn of(file: &File, table: &Table) -> Format {
        match table.kind() {
            TableKind::Sframe => {
                let section = file.image().section(SectionKind::Sframe);
                let header = section.and_then(|s| Header::parse(&s.data).ok());
                Format::Sframe(header.map_or(Version::V3, |header| header.version))
            }
            TableKind::Orc => Format::Orc,
            _ => Format::Dwarf,
        }
    }

    /// Whether it has a word for this callee-saved register.
    pub const fn describes(self, reg: Reg) -> bool {
        matches!(self, Format::Dwarf) || matches!(reg, Reg::Rbp)
    }

    /// Whether it can mark signal frames of user space.
    pub const fn marks_signals(self) -> bool {
        matches!(
            self,
            Format::Dwarf | Format::Sframe(Version::V3) | Format::Orc
        )
    }

    /// What the format cannot express of a (simplified) rule; `None` if nothing that it describes
    /// is lost.
    pub fn loss(self, rule: &Rule) -> Option<Loss> {
        match self {
            Format::Dwarf => None,
            Format::Orc => OrcEntry::transcribe(rule).err(),
            Format::Sframe(Version::V3) => SframeV3::transcribe(rule).err(),
            Format::Sframe(Version::V1 | Version::V2) => {
                let loss = SframeV3::transcribe(rule).err();
                loss.or_else(|| not_in_v2(rule))
            }
        }
    }
}

/// What V3 can express and V1 and V2 cannot: no control words, and no row without a word (the
/// second errata of V2, which has one, was never released).
fn not_in_v2(rule: &Rule) -> Option<Loss> {
    // In the order in which a reader would ask: kind of frame, CFA, return address, rbp.
    match rule.kind {
        RuleKind::Outermost => return Some(Loss::RaUndefined),
        RuleKind::Call => {}
        _ => return Some(Loss::SignalFrame),
    }

    match rule.cfa {
        Value::Offset {
            base: Base::Reg(Reg::Rsp | Reg::Rbp),
            ..
        } => {}
        Value::Load { .. } => return Some(Loss::CfaLoad),
        _ => return Some(Loss::CfaRegister),
    }

    // The header of V1 and V2 has the return address's offset from the CFA, and no row has one.
    match rule.ra {
        ra if ra == Value::at_cfa(-8) => {}
        Value::Load { .. } => return Some(Loss::RaSlot),
        _ => return Some(Loss::RaRegister),
    }

    // rbp is the only callee-saved register that these versions have.
    match rule.saved(Reg::Rbp) {
        Value::Same | Value::Unspecified => None,
        Value::Load {
            base: Base::Cfa,
            addend: 0,
            ..
        } => None,
        _ => Some(Loss::RbpRule),
    }
}
