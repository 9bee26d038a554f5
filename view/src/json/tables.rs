//! The lines of `tables`.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{Row, Table};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};

/// A row of a table, from `tables dump`.
#[derive(Serialize, JsonSchema)]
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
#[derive(Serialize, JsonSchema)]
pub struct SectionPlaceLine {
    /// The section's name.
    section: String,
    /// The offset in it.
    offset: String,
}

/// A rule: how to compute the caller's registers.
#[derive(Serialize, JsonSchema)]
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
