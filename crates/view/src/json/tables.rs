//! The lines of `tables`.

use super::Line;
use crate::tables::InstructionText;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_tables::diff::builds::{Builds, ChangedFunction};
use unwind_sim_tables::diff::{Cause, Claim, Difference, Input, LossTotals};
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{Row, Table};
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};

/// A row of a table, from `tables dump`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableRowLine {
    schema: &'static str,
    /// The kind of table: `eh_frame`, `debug_frame`, `sframe`, `orc`.
    table: &'static str,
    /// The first address (svma). The addresses of a relocatable object are made up.
    start: String,
    /// The first address (svma) after the row.
    end: String,
    /// In a relocatable object: the section of `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<SectionPlaceLine>,
    /// The function that has `start`, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The offset of `start` in that function.
    #[serde(skip_serializing_if = "Option::is_none")]
    function_offset: Option<String>,
    /// The section of the table.
    section: &'static str,
    /// The offset in that section of what made the row.
    offset: String,
    rule: RuleLine,
}

/// A place in a relocatable object.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SectionPlaceLine {
    /// The section's name.
    section: String,
    /// The offset in it.
    offset: String,
}

/// A rule: how to compute the caller's registers.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RuleLine {
    /// `call`, `signal`, `pt_regs`, `iret` or `outermost`.
    kind: &'static str,
    /// The canonical frame address.
    cfa: String,
    /// The caller's pc.
    ra: String,
    /// The caller's sp, if it is not the CFA.
    #[serde(skip_serializing_if = "Option::is_none")]
    sp: Option<String>,
    /// The callee-saved registers that the table says something of.
    registers: BTreeMap<&'static str, String>,
}

impl RuleLine {
    pub(crate) fn new(rule: &Rule) -> RuleLine {
        let said = |value: Value| (value != Value::Unspecified).then(|| value.to_string());
        let is_root = rule.kind == RuleKind::Outermost;
        let saved = Reg::CALLEE_SAVED.iter().zip(rule.saved);
        let saved = saved.filter(|_| !is_root);
        RuleLine {
            kind: rule.kind.as_str(),
            cfa: rule.cfa.to_string(),
            ra: rule.ra.to_string(),
            sp: said(rule.sp).filter(|_| !is_root),
            registers: saved
                .filter_map(|(reg, value)| Some((reg.as_str(), said(value)?)))
                .collect(),
        }
    }
}

impl TableRowLine {
    pub(crate) fn new(
        file: &File,
        table: &Table,
        row: &Row<'_>,
        function: Option<(&str, u64)>,
    ) -> TableRowLine {
        TableRowLine {
            schema: SCHEMA,
            table: table.kind().as_str(),
            start: hex(row.start),
            end: hex(row.end),
            place: SectionPlaceLine::new(file, row.start),
            function: function.map(|(name, _)| name.to_owned()),
            function_offset: function.map(|(_, start)| hex(row.start.saturating_sub(start))),
            section: table.kind().section().map_or("", |s| s.as_str()),
            offset: hex(row.offset),
            rule: RuleLine::new(row.rule),
        }
    }
}

impl SectionPlaceLine {
    pub(crate) fn new(file: &File, address: u64) -> Option<SectionPlaceLine> {
        let (section, offset) = file.place(address)?;
        Some(SectionPlaceLine {
            section: section.to_owned(),
            offset: hex(offset),
        })
    }
}

/// The last line of `tables dump`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableDumpLine {
    schema: &'static str,
    file: String,
    rows: u64,
    /// Parts of the tables that cannot be read.
    problems: u64,
    /// The command that prints this.
    command: String,
}

impl Line {
    /// The last line of `tables dump`.
    pub fn table_dump(file: &File, rows: u64, problems: u64, command: String) -> Line {
        Line::TableDump(TableDumpLine {
            schema: SCHEMA,
            file: file.name().to_owned(),
            rows,
            problems,
            command,
        })
    }
}

/// A maximal range of addresses in which two tables disagree, from `tables diff`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableDifferenceLine {
    schema: &'static str,
    /// The first address (svma), in the first file.
    start: String,
    /// The first address (svma) after the range.
    end: String,
    /// The address (svma) of the start in the second file.
    other_start: String,
    /// In a relocatable object: the section of `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<SectionPlaceLine>,
    /// The function, demangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// Where the function starts (svma).
    function_start: String,
    /// `contradiction`, `missing` or `form`.
    gravity: &'static str,
    causes: Vec<&'static str>,
    /// The number of pairs of rows.
    rows: u64,
    /// What the two tables say at `start`.
    claims: Vec<ClaimLine>,
    /// The instructions around `start`.
    code: Vec<InstructionLine>,
}

/// What a table says.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ClaimLine {
    /// The kind of table.
    table: &'static str,
    section: &'static str,
    /// The offset in the section of what made the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    /// The rule in normal form; absent if there is no row.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleLine>,
    /// Why the row cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed: Option<String>,
}

/// An instruction of a listing.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct InstructionLine {
    /// Address: svma, in `verify` that in the process.
    address: String,
    /// In the syntax of GNU as.
    text: String,
    /// Whether it is the one concerned.
    is_marked: bool,
}

impl InstructionLine {
    pub(crate) fn new(address: u64, text: String, is_marked: bool) -> InstructionLine {
        InstructionLine {
            address: hex(address),
            text,
            is_marked,
        }
    }
}

impl TableDifferenceLine {
    pub(crate) fn new(
        inputs: &[Input<'_>; 2],
        difference: &Difference,
        function: Option<&str>,
        code: &[InstructionText],
    ) -> TableDifferenceLine {
        let start = difference.range.start;

        // The claims are in the order of the inputs, and each is written as its own table's format
        // has it.
        let claims = inputs.iter().zip(&difference.claims);
        TableDifferenceLine {
            schema: SCHEMA,
            start: hex(start),
            end: hex(difference.range.end),
            other_start: hex(difference.other),
            place: SectionPlaceLine::new(inputs[0].file, start),
            function: function.map(str::to_owned),
            function_start: hex(difference.function.start),
            gravity: difference.gravity().as_str(),
            causes: difference.causes.iter().map(Cause::as_str).collect(),
            rows: difference.rows,
            claims: claims
                .map(|(input, claim)| ClaimLine::new(input.table.kind(), claim))
                .collect(),
            code: code
                .iter()
                .map(|shown| {
                    // Where the difference starts; the other lines are the code around it.
                    let is_marked = shown.address == start;
                    InstructionLine::new(shown.address, shown.text.clone(), is_marked)
                })
                .collect(),
        }
    }
}

impl ClaimLine {
    fn new(kind: TableKind, claim: &Claim) -> ClaimLine {
        let mut line = ClaimLine {
            table: kind.as_str(),
            section: kind.section().map_or("", |s| s.as_str()),
            offset: None,
            rule: None,
            malformed: None,
        };
        match claim {
            Claim::Nothing => {}
            Claim::Malformed(reason) => line.malformed = Some(reason.to_string()),
            Claim::Row { rule, offset } => {
                line.offset = Some(hex(*offset));
                line.rule = Some(RuleLine::new(rule));
            }
        }
        line
    }
}

/// What the format of a table has no word for, from `tables diff`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableLossLine {
    schema: &'static str,
    /// Which of the two tables, 0 or 1.
    index: usize,
    table: &'static str,
    loss: &'static str,
    /// Pairs of rows.
    rows: u64,
    bytes: u64,
}

impl TableLossLine {
    pub(crate) fn new(
        index: usize,
        kind: TableKind,
        loss: Loss,
        lost: LossTotals,
    ) -> TableLossLine {
        TableLossLine {
            schema: SCHEMA,
            index,
            table: kind.as_str(),
            loss: loss.as_str(),
            rows: lost.rows,
            bytes: lost.bytes,
        }
    }
}

/// A function whose code differs between two builds, from `tables diff`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ChangedLine {
    schema: &'static str,
    /// The name as in the file.
    function: String,
    /// The first different instruction (svma) in each file.
    at: [String; 2],
}

impl ChangedLine {
    pub(crate) fn new(changed: &ChangedFunction) -> ChangedLine {
        ChangedLine {
            schema: SCHEMA,
            function: changed.name.clone(),
            at: changed.at.map(hex),
        }
    }
}

/// The last line of `tables diff`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableDiffLine {
    schema: &'static str,
    files: [String; 2],
    tables: [&'static str; 2],
    /// Pairs of rows compared.
    rows: u64,
    /// Bytes of code for which both tables have a row.
    bytes: u64,
    /// Ranges in which they disagree, by gravity.
    differences: BTreeMap<&'static str, u64>,
    /// For two builds: functions compared.
    functions: u64,
    /// For two builds: functions with other code.
    changed: usize,
    /// The command that prints this.
    command: String,
}

impl TableDiffLine {
    pub(crate) fn new(
        files: [String; 2],
        tables: [TableKind; 2],
        builds: &Builds,
        command: &str,
    ) -> TableDiffLine {
        let mut differences = BTreeMap::new();
        for difference in &builds.diff.differences {
            *differences
                .entry(difference.gravity().as_str())
                .or_insert(0) += 1;
        }
        TableDiffLine {
            schema: SCHEMA,
            files,
            tables: tables.map(TableKind::as_str),
            rows: builds.diff.rows,
            bytes: builds.diff.bytes,
            differences,
            functions: builds.functions,
            changed: builds.changed.len(),
            command: command.to_owned(),
        }
    }
}
