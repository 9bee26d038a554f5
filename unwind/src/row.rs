//! A row of an unwind table: a rule and its source.

use crate::image::{ImageId, SectionKind};
use crate::reason::Reason;
use crate::rule::Rule;

/// What kind of table a row came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableKind {
    /// No table: the convention `push rbp; mov rbp, rsp`.
    FramePointer,
    /// `.eh_frame`
    EhFrame,
    /// `.debug_frame`
    DebugFrame,
    /// `.sframe`
    Sframe,
    /// `.orc_unwind`
    Orc,
    /// SFrame rows derived from `.eh_frame`. They are not independent evidence.
    SframeDerived,
    /// ORC rows derived from `.eh_frame`. They are not independent evidence.
    OrcDerived,
}

impl TableKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            TableKind::FramePointer => "frame-pointer",
            TableKind::EhFrame => "eh_frame",
            TableKind::DebugFrame => "debug_frame",
            TableKind::Sframe => "sframe",
            TableKind::Orc => "orc",
            TableKind::SframeDerived => "sframe(derived)",
            TableKind::OrcDerived => "orc(derived)",
        }
    }

    /// Whether its rows are DWARF's, which tell an unchanged register from one without a rule.
    pub const fn is_dwarf(self) -> bool {
        matches!(self, TableKind::EhFrame | TableKind::DebugFrame)
    }

    /// The section that the offsets of these rows refer to.
    pub const fn section(self) -> Option<SectionKind> {
        match self {
            TableKind::FramePointer => None,
            TableKind::EhFrame | TableKind::SframeDerived | TableKind::OrcDerived => {
                Some(SectionKind::EhFrame)
            }
            TableKind::DebugFrame => Some(SectionKind::DebugFrame),
            TableKind::Sframe => Some(SectionKind::Sframe),
            TableKind::Orc => Some(SectionKind::OrcUnwind),
        }
    }
}

/// Where a row comes from: the table, the image, and the position in both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowSource {
    /// The kind of table.
    pub table: TableKind,
    /// The image that contains the table; `None` if the rule needs no table.
    pub image: Option<ImageId>,
    /// Offset of the unit (FDE, function descriptor) in its section, bytes.
    pub unit_offset: u64,
    /// Offset in the section of the item that made this row (CFI instruction, FRE, ORC entry),
    /// bytes.
    pub row_offset: u64,
    /// The first address (svma) of the row.
    pub start: u64,
    /// The first address (svma) after the row.
    pub end: u64,
    /// Why the first table had no rule, if this row is the fallback's.
    pub fallback: Option<Reason>,
}

/// A rule and its source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row {
    /// The rule.
    pub rule: Rule,
    /// The table and row that gave it.
    pub source: RowSource,
}
