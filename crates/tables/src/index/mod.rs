//! The indexes through which unwinders find rows, and what of a section no reader reaches. A row that
//! is right helps nobody if the search for it ends elsewhere.
//!
//! `hdr` is `.eh_frame_hdr`, `entries` the FDEs of `.eh_frame` and `.debug_frame` themselves, `orc`
//! and `sframe` the order of those tables. What the rows say is not checked here.

mod entries;
mod hdr;
mod orc;
mod sframe;

pub(crate) use entries::is_dead;

use crate::file::File;
use crate::table::{Function, Table};
use std::ops::Range;

/// The maximum number of findings of one kind in a file; the sums count all.
const FINDINGS_MAX: usize = 1 << 12;

/// What is wrong with an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// `.eh_frame_hdr` has a version or encodings that no reader knows, or is cut.
    HdrUnreadable,
    /// `.eh_frame_hdr` has no table that can be searched.
    HdrNoTable,
    /// The table is shorter than its count.
    HdrCut,
    /// The pointer to `.eh_frame` leads elsewhere.
    HdrPointer,
    /// `PT_GNU_EH_FRAME` and the section `.eh_frame_hdr` are at different places.
    HdrSegment,
    /// There is the section, but no `PT_GNU_EH_FRAME`.
    HdrNoSegment,
    /// The table is not sorted by address.
    HdrUnsorted,
    /// An entry leads to no FDE that starts at its address.
    HdrEntry,
    /// No entry leads to an FDE that has code.
    HdrMissing,
    /// A search ends at an entry whose FDE does not have the address that was searched.
    HdrHidden,
    /// A terminator with FDEs behind it.
    Terminator,
    /// An FDE that goes on behind the end of the section with its code.
    FdeOverrun,
    /// FDEs with absolute addresses, without relocations, in a file that is loaded anywhere.
    AbsoluteFde,
    /// All FDEs are at addresses without code.
    NoCode,
    /// As [`Flaw::NoCode`], because the references to CIEs are 8 bytes wide behind lengths of 4.
    WideCieReference,
    /// `.orc_unwind_ip` is not sorted by address in a linked kernel.
    OrcUnsorted,
    /// `.orc_unwind_ip` and `.orc_unwind` do not have the same number of entries.
    OrcCount,
    /// `.orc_lookup` is too small for the kernel's code, or leads elsewhere.
    OrcLookup,
    /// `.sframe` says that its FDEs are sorted, and they are not.
    SframeUnsorted,
    /// A search ends at an FDE that does not have the address that was searched.
    SframeHidden,
    /// Two FDEs of `.sframe` begin at the same address and do not say the same.
    SframeDouble,
    /// An FDE of `.sframe` behind those that the header counts.
    SframeUncounted,
    /// A relocation of `.sframe` that is not at the address of an FDE.
    SframeMisplaced,
    /// An FDE of an object without a relocation of its address.
    SframeUnrelocated,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Flaw; 24] = [
        Flaw::HdrUnreadable,
        Flaw::HdrNoTable,
        Flaw::HdrCut,
        Flaw::HdrPointer,
        Flaw::HdrSegment,
        Flaw::HdrNoSegment,
        Flaw::HdrUnsorted,
        Flaw::HdrEntry,
        Flaw::HdrMissing,
        Flaw::HdrHidden,
        Flaw::Terminator,
        Flaw::FdeOverrun,
        Flaw::AbsoluteFde,
        Flaw::NoCode,
        Flaw::WideCieReference,
        Flaw::OrcUnsorted,
        Flaw::OrcCount,
        Flaw::OrcLookup,
        Flaw::SframeUnsorted,
        Flaw::SframeHidden,
        Flaw::SframeDouble,
        Flaw::SframeUncounted,
        Flaw::SframeMisplaced,
        Flaw::SframeUnrelocated,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Flaw::HdrUnreadable => "hdr-unreadable",
            Flaw::HdrNoTable => "hdr-no-table",
            Flaw::HdrCut => "hdr-cut",
            Flaw::HdrPointer => "hdr-pointer",
            Flaw::HdrSegment => "hdr-segment",
            Flaw::HdrNoSegment => "hdr-no-segment",
            Flaw::HdrUnsorted => "hdr-unsorted",
            Flaw::HdrEntry => "hdr-entry",
            Flaw::HdrMissing => "hdr-missing",
            Flaw::HdrHidden => "hdr-hidden",
            Flaw::Terminator => "terminator",
            Flaw::FdeOverrun => "fde-overrun",
            Flaw::AbsoluteFde => "absolute-fde",
            Flaw::NoCode => "no-code",
            Flaw::WideCieReference => "wide-cie-reference",
            Flaw::OrcUnsorted => "orc-unsorted",
            Flaw::OrcCount => "orc-count",
            Flaw::OrcLookup => "orc-lookup",
            Flaw::SframeUnsorted => "sframe-unsorted",
            Flaw::SframeHidden => "sframe-hidden",
            Flaw::SframeDouble => "sframe-double",
            Flaw::SframeUncounted => "sframe-uncounted",
            Flaw::SframeMisplaced => "sframe-misplaced-relocation",
            Flaw::SframeUnrelocated => "sframe-no-relocation",
        }
    }

    /// What is wrong, and whom it hits.
    pub const fn description(self) -> &'static str {
        match self {
            Flaw::HdrUnreadable => {
                "the header has a version or an encoding that no reader knows, or is cut: libgcc \
                 finds no FDE"
            }
            Flaw::HdrNoTable => {
                "the header has no search table: perf and others that only search find no FDE, \
                 libgcc reads the whole section for each frame"
            }
            Flaw::HdrCut => "the search table is shorter than its count: a search reads behind it",
            Flaw::HdrPointer => "the header's pointer does not lead to the start of .eh_frame",
            Flaw::HdrSegment => {
                "PT_GNU_EH_FRAME is not where the section is: an unwinder in the process reads \
                 other bytes than tools that read the file"
            }
            Flaw::HdrNoSegment => {
                "no PT_GNU_EH_FRAME leads to the section: an unwinder in the process finds no FDE"
            }
            Flaw::HdrUnsorted => {
                "the search table is not sorted by address: a binary search misses functions"
            }
            Flaw::HdrEntry => "an entry of the search table leads to no FDE with its address",
            Flaw::HdrMissing => {
                "no entry of the search table leads to this FDE: libgcc, libunwind and perf find no \
                 row for its code"
            }
            Flaw::HdrHidden => {
                "a search for this code ends at another FDE, which does not have it: libgcc, \
                 libunwind and perf find no row"
            }
            Flaw::Terminator => {
                "a terminator in the middle: readers that go through the section, as libgcc \
                 without a search table and elfutils do, do not reach the FDEs behind it"
            }
            Flaw::FdeOverrun => {
                "an FDE goes on behind the end of the section with its code: its rows are taken for \
                 what lies there"
            }
            Flaw::AbsoluteFde => {
                "absolute addresses without a relocation in a file that is loaded anywhere: in a \
                 process these FDEs have no code, unless it is loaded at 0"
            }
            Flaw::NoCode => "no FDE has code of this file: the table is of no use",
            Flaw::WideCieReference => {
                "no FDE has code of this file: references to CIEs are 8 bytes wide behind lengths \
                 of 4 bytes, so that all readers take the next bytes for the address"
            }
            Flaw::OrcUnsorted => {
                "the addresses are not sorted: the kernel's binary search misses entries"
            }
            Flaw::OrcCount => {
                "the number of addresses is not that of entries: the kernel does not use the table"
            }
            Flaw::OrcLookup => {
                "the lookup table does not fit the code: the kernel's search starts at the wrong \
                 entries"
            }
            Flaw::SframeUnsorted => {
                "the section says that its FDEs are sorted, but they are not: a binary search \
                 misses functions"
            }
            Flaw::SframeHidden => {
                "a search for this code ends at another FDE, which does not have it"
            }
            Flaw::SframeDouble => {
                "two FDEs for this address, which do not say the same: which one is used depends \
                 on how a reader searches"
            }
            Flaw::SframeUncounted => {
                "an FDE behind those that the header counts: readers find no row for its code"
            }
            Flaw::SframeMisplaced => {
                "a relocation that is not at the address of an FDE: linking changes something else"
            }
            Flaw::SframeUnrelocated => {
                "the address of an FDE has no relocation: after linking it is that of other code"
            }
        }
    }
}

/// A place in an index at which something is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The section.
    pub section: &'static str,
    /// Offset in it, bytes.
    pub offset: u64,
    /// What is wrong.
    pub flaw: Flaw,
    /// The code (svma) whose rows are lost by it; the first function's, if there are several. None of an
    /// index that is not sorted: each function that a search does not find has a finding of its own.
    pub code: Option<Range<u64>>,
    /// The number of functions whose rows are lost by it.
    pub functions: u64,
}

/// Checks all indexes of `file`, whose tables are `tables`. By section and offset.
pub fn check(file: &File, tables: &[Table]) -> Vec<Finding> {
    let mut out = Findings::default();
    // Parts of an image, or a file without its code, say nothing of what is missing.
    if !file.is_whole() || file.facts().is_debug_file {
        return Vec::new();
    }
    for table in tables {
        entries::check(file, table, &mut out);
        entries::check_ends(file, table, &mut out);
        hdr::check(file, table, &mut out);
        sframe::check(file, table, &mut out);
    }
    orc::check(file, &mut out);
    let mut all = out.0;
    all.sort_by_key(|f| (f.section, f.offset, f.flaw));
    all
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, finding: Finding) {
        let same = self.0.iter().rev().take_while(|f| f.flaw == finding.flaw);
        if same.take(FINDINGS_MAX).count() < FINDINGS_MAX {
            self.0.push(finding);
        }
    }
}

/// Whether the FDE has code of this file.
fn is_live(file: &File, function: &Function) -> bool {
    !function.range.is_empty() && file.code_at(function.range.start).is_some()
}
