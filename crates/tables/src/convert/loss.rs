//! What a conversion loses, by function and reason.

use crate::file::File;
use crate::table::{KINDS, Table};
use hashbrown::HashSet;
use std::collections::BTreeMap;
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::row::TableKind;

/// A part of the source that the format cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum LossReason {
    /// A part of a rule.
    Rule(Loss),
    /// The format cannot say that a frame is the outermost.
    Outermost,
    /// The format cannot mark a signal frame, whose caller's pc is exact.
    SignalMark,
    /// The function has language-specific data (exception handlers), which only `.eh_frame` has.
    Lsda,
    /// Another function starts inside this one; readers find only that one from there on.
    Overlap,
    /// The source cannot be read from here to the end of the function.
    Unreadable,
    /// Another table of the file has the function, which the one that was read lacks.
    OtherTable,
}

impl LossReason {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            LossReason::Rule(loss) => loss.as_str(),
            LossReason::Outermost => "outermost",
            LossReason::SignalMark => "signal-mark",
            LossReason::Lsda => "lsda",
            LossReason::Overlap => "overlap",
            LossReason::Unreadable => "unreadable",
            LossReason::OtherTable => "other-table",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            LossReason::Rule(Loss::SignalFrame) => {
                "the registers are in a struct that the format lacks"
            }
            LossReason::Rule(loss) => loss.description(),
            LossReason::Outermost => "the format cannot say that a frame is the outermost",
            LossReason::SignalMark => "the format cannot mark a signal frame",
            LossReason::Lsda => "the format has no exception handlers; the rows are kept",
            LossReason::Overlap => "hidden by a function that starts inside",
            LossReason::Unreadable => "the source cannot be read here",
            LossReason::OtherTable => "only another table of the file has it (--from)",
        }
    }

    /// Whether a row of the source is missing from the new table; if not, only a part of it is, or it
    /// is another table's.
    pub const fn costs_rows(self) -> bool {
        !matches!(
            self,
            LossReason::Rule(Loss::CalleeSaved) | LossReason::Lsda | LossReason::OtherTable
        )
    }
}

/// What a function lost for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionLoss {
    /// The function's addresses (svma), as in the source.
    pub function: Range<u64>,
    /// Why they were lost.
    pub lost: LossReason,
    /// The number of rows concerned; 0 if the whole function is.
    pub rows: u64,
    /// The addresses that they cover.
    pub bytes: u64,
    /// The first address (svma) concerned.
    pub first: u64,
}

/// What was read, written and lost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Functions in the source.
    pub functions_read: u64,
    /// Rows in the source.
    pub rows_read: u64,
    /// Functions written; one that was divided counts more than once.
    pub functions_written: u64,
    /// Rows written.
    pub rows_written: u64,
    /// The losses, by function.
    pub losses: Vec<FunctionLoss>,
    /// Addresses (svma) left out because a limit of this program or of a field was reached
    /// ([`Loss::TooManyRows`], [`Loss::TooLarge`]), although the format can express their rules; by
    /// address.
    pub limited: Vec<Range<u64>>,
}

impl Report {
    /// Counts a loss of `function` at the addresses `range`, with this number of rows.
    pub(crate) fn lose(
        &mut self,
        function: &Range<u64>,
        lost: LossReason,
        rows: u64,
        range: Range<u64>,
    ) {
        let bytes = range.end.saturating_sub(range.start);
        if matches!(lost, LossReason::Rule(Loss::TooManyRows | Loss::TooLarge)) {
            self.limited.push(range.clone());
        }
        // A function has few reasons, and its losses come together.
        let recent = self.losses.iter_mut().rev();
        let mut same = recent.take_while(|loss| loss.function == *function);
        if let Some(known) = same.find(|loss| loss.lost == lost) {
            known.rows += rows;
            known.bytes = known.bytes.saturating_add(bytes);
            return;
        }

        self.losses.push(FunctionLoss {
            function: function.clone(),
            lost,
            rows,
            bytes,
            first: range.start,
        });
    }

    /// Counts the functions of the other tables of `file` that `source` does not have.
    pub(super) fn lose_others(&mut self, file: &File, source: &Table) {
        if source.kind() == TableKind::Orc {
            return;
        }
        let others = KINDS
            .into_iter()
            .filter(|&kind| kind != source.kind() && kind != TableKind::Orc);
        let mut seen = HashSet::new();
        for table in others.filter_map(|kind| Table::read(file, kind)) {
            for function in table.functions() {
                let range = &function.range;
                let has_code = !range.is_empty() && file.code_at(range.start).is_some();
                let is_lost = has_code && source.function_at(range.start).is_none();
                if is_lost && seen.insert(range.start) {
                    let rows = table.rows(function).len() as u64;
                    self.lose(range, LossReason::OtherTable, rows, range.clone());
                }
            }
        }
    }

    /// Functions, rows and bytes lost for each reason.
    pub fn by_reason(&self) -> BTreeMap<LossReason, (u64, u64, u64)> {
        let mut sums = BTreeMap::new();
        for loss in &self.losses {
            let (functions, rows, bytes): &mut (u64, u64, u64) = sums.entry(loss.lost).or_default();
            *functions += 1;
            *rows += loss.rows;
            *bytes = bytes.saturating_add(loss.bytes);
        }
        sums
    }
}
