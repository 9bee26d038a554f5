//! The lines of `tables check`.

use super::tables::{RuleLine, SectionPlaceLine};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_tables::check::{Checked, Count, Hole, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::verdict::Contradiction;

/// A row that the code contradicts, from `tables check`.
#[derive(Serialize, JsonSchema)]
pub struct WrongRowLine {
    schema: &'static str,
    file: String,
    /// The kind of table: `eh_frame`, `debug_frame`, `sframe`, `orc`.
    table: &'static str,
    /// The first address (svma) of the row.
    start: String,
    /// The first address (svma) after the row.
    end: String,
    /// The first instruction (svma) at which the row is wrong.
    address: String,
    /// In a relocatable object: the section of that instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<SectionPlaceLine>,
    /// The function, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// Where the function starts (svma).
    function_start: String,
    /// `US501`, `US502` or `US503`.
    code: &'static str,
    /// The register concerned: rsp for the CFA, rip for the return address.
    register: &'static str,
    /// What the row's rule evaluates to there.
    found: String,
    /// rsp there.
    sp: String,
    /// The section of the table, and the offset in it of what made the row.
    section: &'static str,
    offset: String,
    row: RuleLine,
    /// The row that would be right there.
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<RuleLine>,
    /// The jumps on the way from the function's entry: from and to.
    path: Vec<[String; 2]>,
}

/// A function that could not be proven, from `tables check`.
#[derive(Serialize, JsonSchema)]
pub struct UnprovenLine {
    schema: &'static str,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The first address (svma).
    start: String,
    /// The first address (svma) after it.
    end: String,
    /// Why not, and the first address (svma) of each reason.
    doubts: BTreeMap<&'static str, String>,
}

/// Numbers of functions, rows and bytes.
#[derive(Serialize, JsonSchema)]
pub struct CountLine {
    functions: u64,
    rows: u64,
    bytes: u64,
}

/// The sums of `tables check` for a file.
#[derive(Serialize, JsonSchema)]
pub struct CheckLine {
    schema: &'static str,
    file: String,
    tables: Vec<&'static str>,
    all: CountLine,
    proven: CountLine,
    contradicted: CountLine,
    unproven: CountLine,
    rows_proven: u64,
    /// Procedure linkage tables, which are counted in the others, too.
    plt: CountLine,
    /// Unproven functions by reason.
    doubts: BTreeMap<&'static str, u64>,
    /// Proven functions by what the proof rests on.
    assumptions: BTreeMap<&'static str, u64>,
    /// Addresses at which a proven slot lies below rsp (US203).
    below_sp: u64,
    /// Bytes by what is missing: `no-row`, `no-code`, `overlap`.
    gaps: BTreeMap<&'static str, u64>,
    problems: Vec<String>,
}

impl WrongRowLine {
    pub(crate) fn new(
        file: &File,
        checked: &Checked,
        wrong: &Contradiction,
        function: Option<&str>,
    ) -> WrongRowLine {
        WrongRowLine {
            schema: SCHEMA,
            file: file.name().to_owned(),
            table: wrong.table.as_str(),
            start: hex(wrong.row.start),
            end: hex(wrong.row.end),
            address: hex(wrong.pc),
            place: SectionPlaceLine::new(file, wrong.pc),
            function: function.map(str::to_owned),
            function_start: hex(checked.range.start),
            code: wrong.code().as_str(),
            register: match wrong.subject {
                Subject::Cfa | Subject::Sp => "rsp",
                Subject::ReturnAddress => "rip",
                Subject::Register(reg) => reg.as_str(),
            },
            found: wrong.found.to_string(),
            sp: wrong.sp.to_string(),
            section: wrong.table.section().map_or("", |s| s.as_str()),
            offset: hex(wrong.row_offset),
            row: RuleLine::new(&wrong.rule),
            right: wrong.right.as_ref().map(RuleLine::new),
            path: wrong.path.iter().map(|(a, b)| [hex(*a), hex(*b)]).collect(),
        }
    }
}

impl UnprovenLine {
    pub(crate) fn new(file: &File, checked: &Checked, function: Option<&str>) -> UnprovenLine {
        let doubts = checked.verdict.doubts.iter();
        UnprovenLine {
            schema: SCHEMA,
            file: file.name().to_owned(),
            function: function.map(str::to_owned),
            start: hex(checked.range.start),
            end: hex(checked.range.end),
            doubts: doubts.map(|(d, at)| (d.as_str(), hex(*at))).collect(),
        }
    }
}

impl From<Count> for CountLine {
    fn from(count: Count) -> CountLine {
        CountLine {
            functions: count.functions,
            rows: count.rows,
            bytes: count.bytes,
        }
    }
}

impl CheckLine {
    pub(crate) fn new(file: &File, report: &Report) -> CheckLine {
        let totals = report.totals();
        let gap = |hole: Hole| {
            let gaps = report.gaps.iter().filter(|g| g.hole == hole);
            let bytes: u64 = gaps.map(|g| g.range.end - g.range.start).sum();
            (hole.as_str(), bytes)
        };
        CheckLine {
            schema: SCHEMA,
            file: file.name().to_owned(),
            tables: report.tables.iter().map(|t| t.as_str()).collect(),
            all: totals.all.into(),
            proven: totals.proven.into(),
            contradicted: totals.contradicted.into(),
            unproven: totals.unproven.into(),
            rows_proven: totals.rows_proven,
            plt: totals.plt.into(),
            doubts: totals
                .doubts
                .iter()
                .map(|(d, n)| (d.as_str(), *n))
                .collect(),
            assumptions: totals
                .assumptions
                .iter()
                .map(|(a, n)| (a.as_str(), *n))
                .collect(),
            below_sp: totals.below_sp,
            gaps: [Hole::NoRow, Hole::NoCode, Hole::Overlap].map(gap).into(),
            problems: report.problems.clone(),
        }
    }
}
