//! `tables check`: proves every row of a file's tables from its code, or says why not.

mod cover;
pub(crate) mod rounds;
pub(crate) mod run;
mod unchecked;

pub use cover::{Gap, Hole, gaps};
pub(crate) use run::prove;
pub use run::{Options, check};
pub use unchecked::Unchecked;

use crate::index::Finding;
use crate::proof::program::Entry;
use crate::proof::verdict::{Assumption, Contradiction, Doubt, FunctionVerdict, Verdict};
use std::ops::Range;
use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::row::TableKind;

/// How one function turned out.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Its addresses (svma).
    pub range: Range<u64>,
    /// How it is entered.
    pub entry: Entry,
    /// The table that defines it.
    pub table: Option<TableKind>,
    /// The convention by which its rows were judged.
    pub convention: Convention,
    /// What says that it is of this convention.
    pub evidence: Evidence,
    /// How its rows turned out.
    pub verdict: FunctionVerdict,
}

/// How a file turned out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tables that the file has.
    pub tables: Vec<TableKind>,
    /// Its functions, by address.
    pub functions: Vec<Checked>,
    /// Code without a row, and rows without code.
    pub gaps: Vec<Gap>,
    /// What rows say of registers that are not callee-saved.
    pub unchecked: Unchecked,
    /// What is wrong with the indexes through which unwinders find the rows.
    pub index: Vec<Finding>,
    /// What of the tables could not be read, or is not here.
    pub problems: Vec<String>,
    /// Instructions executed.
    pub steps: u64,
}

/// Numbers of functions, rows and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Functions (FDEs).
    pub functions: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of code.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, checked: &Checked) {
        self.functions += 1;
        self.rows += u64::from(checked.verdict.rows);
        self.bytes += checked.range.end - checked.range.start;
    }
}

/// A report's numbers.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// All functions and rows.
    pub all: Count,
    /// Proven functions.
    pub proven: Count,
    /// Functions with a contradicted row.
    pub contradicted: Count,
    /// Functions that are neither proven nor contradicted.
    pub unproven: Count,
    /// Rows that are proven, in whatever functions.
    pub rows_proven: u64,
    /// Functions of the procedure linkage table, which are counted in the others, too.
    pub plt: Count,
    /// Unproven functions by doubt; one may have several.
    pub doubts: Vec<(Doubt, u64)>,
    /// Functions by what their proofs rest on.
    pub assumptions: Vec<(Assumption, u64)>,
    /// Functions by the convention by which they were judged, and what says that it is theirs.
    pub conventions: Vec<((Convention, Evidence), u64)>,
    /// Addresses at which a proven slot lies below rsp.
    pub below_sp: u64,
}

impl Report {
    /// Takes out the contradictions that `is_known`. A function that has no other is then unproven.
    pub fn take_out(&mut self, mut is_known: impl FnMut(&Checked, &Contradiction) -> bool) {
        for checked in &mut self.functions {
            let all = std::mem::take(&mut checked.verdict.contradictions);
            let (known, new): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|c| is_known(checked, c));
            checked.verdict.contradictions = new;
            if let Some(first) = known.first() {
                checked.verdict.doubt(Doubt::Known, first.pc);
            }
        }
    }

    /// The numbers of the report by verdict, doubt and assumption.
    pub fn totals(&self) -> Totals {
        // Every doubt and assumption has a place first, so that their order is fixed.
        let mut totals = Totals {
            doubts: Doubt::ALL.map(|d| (d, 0)).to_vec(),
            assumptions: Assumption::ALL.map(|a| (a, 0)).to_vec(),
            ..Totals::default()
        };

        for checked in &self.functions {
            totals.all.add(checked);
            let verdict = checked.verdict.verdict();
            match verdict {
                Verdict::Proven => totals.proven.add(checked),
                Verdict::Unproven => totals.unproven.add(checked),
                Verdict::Contradicted => totals.contradicted.add(checked),
            }

            // Tables of stubs are counted among the others, and once more by themselves.
            if checked.entry == Entry::Plt {
                totals.plt.add(checked);
            }

            // There are few conventions, so a list is enough.
            let by = (checked.convention, checked.evidence);
            match totals.conventions.iter_mut().find(|c| c.0 == by) {
                Some((_, count)) => *count += 1,
                None => totals.conventions.push((by, 1)),
            }

            totals.rows_proven += u64::from(checked.verdict.rows_proven);
            totals.below_sp += u64::from(checked.verdict.below_sp);

            for (doubt, count) in &mut totals.doubts {
                let doubted = checked.verdict.doubts.iter().any(|d| d.0 == *doubt);
                // In a contradicted function a doubt changes nothing, nor does an assumption in an
                // unproven one.
                *count += u64::from(doubted && verdict == Verdict::Unproven);
            }
            for (assumption, count) in &mut totals.assumptions {
                let used = checked.verdict.assumptions.has(*assumption);
                *count += u64::from(used && verdict == Verdict::Proven);
            }
        }

        // What did not occur is left out of the report.
        totals.doubts.retain(|d| d.1 != 0);
        totals.assumptions.retain(|a| a.1 != 0);
        totals.conventions.sort_unstable();
        totals
    }
}
