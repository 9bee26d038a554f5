//! Code with the rule in force beside each instruction, for any unwinders, and what is true there.
//!
//! `tables dump --listing`, `explain`, `step` and `report` show it. What was observed (`observed.rs`) at
//! instructions, where the true chain is known, says which rules are wrong.

mod observed;
mod text;

pub use observed::Observed;

use crate::source_lines::{SourceLines, SourceTexts};
use std::fmt::Write as _;
use unwind_sim_judge::check::Contradiction;
use unwind_sim_recordings::names::file_name;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::{RowSource, TableKind};
use unwind_sim_unwind::rule::{Base, Expression, Rule, RuleKind, Value};
use unwind_sim_unwind::step::find_row;

/// An unwinder whose rules are shown.
pub struct RuleColumn<'a> {
    /// What the column is called.
    pub name: String,
    /// Finds the rules.
    pub finder: &'a dyn Finder,
    /// Its cache.
    pub cache: &'a mut Cache,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleInsn {
    /// Its address in the process.
    pub address: u64,
    /// The address behind it.
    pub end: u64,
    /// Its text.
    pub text: String,
}

/// The rule of an unwinder at an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleCell {
    /// The rule as [`rule_text`] writes it, or why there is none, in parentheses.
    pub text: String,
    /// Whether another row holds here than at the instruction before, or the listing starts here.
    pub starts: bool,
    /// What is wrong with it, if that is known: `cfa`, `ra`, a register, or `row` if there is none.
    pub wrong: Vec<&'static str>,
}

impl RuleCell {
    /// The rule, with the names of what is wrong: `cfa=rsp+8 ra=[cfa-8] !cfa`.
    pub fn marked(&self) -> String {
        let mut text = self.text.clone();
        for name in &self.wrong {
            let _ = write!(text, " !{name}");
        }
        text
    }
}

/// A line of source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// The file, without folders.
    pub file: String,
    /// The number of the line, from 1.
    pub number: u32,
    /// Its text, if the file is at its path.
    pub text: Option<String>,
}

impl std::fmt::Display for SourceLine {
    /// `fib.c:12: return fib(n - 1)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.number)?;
        match &self.text {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

/// An instruction with the rules in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleLine {
    /// The instruction.
    pub insn: RuleInsn,
    /// The source line, if another one starts here.
    pub source: Option<SourceLine>,
    /// The rules, in the order of the columns.
    pub cells: Vec<RuleCell>,
    /// What is true, in the form of a rule, if it is known.
    pub truth: Option<String>,
}

/// Code with rules.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CodeRules {
    /// The names of the unwinders.
    pub columns: Vec<String>,
    /// What stands above their rules: the names, with `(derived)` where the rows come from another table.
    pub titles: Vec<String>,
    /// The instructions, by address.
    pub lines: Vec<RuleLine>,
}

impl CodeRules {
    /// The rules beside `code`, which lies in `mapping`. What is known to be true there comes from
    /// `observed`, source lines from `lines`, which has the addresses of the image.
    pub fn new(
        mapping: &Mapping,
        code: Vec<RuleInsn>,
        columns: &mut [RuleColumn<'_>],
        observed: Option<&Observed>,
        (sources, texts): (&SourceLines, &mut SourceTexts),
    ) -> CodeRules {
        let mut before: Vec<Option<Result<RowSource, Reason>>> = vec![None; columns.len()];
        let mut source = None;
        let mut derived = vec![false; columns.len()];

        let line = |insn: RuleInsn| {
            let cells = columns.iter_mut().zip(before.iter_mut().zip(&mut derived));
            let cells = cells.map(|(column, (before, derived))| {
                let row = find_row(column.finder, mapping, insn.address, column.cache);
                let place = row.as_ref().map(|row| RowSource {
                    fallback: None,
                    ..row.source
                });
                let place = place.map_err(|why| *why);
                *derived |= place.is_ok_and(|place| {
                    matches!(
                        place.table,
                        TableKind::SframeDerived | TableKind::OrcDerived
                    )
                });

                // The same row is in force as long as its place is the same. Reasons name the address,
                // so those why there is no row, or why it is a fallback's, differ.
                let is_same = match (before.as_ref(), &place) {
                    (Some(Ok(last)), Ok(place)) => last == place,
                    (Some(Err(last)), Err(why)) => last.code() == why.code(),
                    _ => false,
                };
                *before = Some(place);

                let wrong = observed.map_or(Vec::new(), |all| all.wrong(&column.name, &insn));
                RuleCell {
                    text: match &row {
                        Ok(row) => rule_text(&row.rule),
                        Err(why) => format!("({})", why.code().description()),
                    },
                    starts: !is_same,
                    wrong,
                }
            });
            let cells = cells.collect();

            let here = sources.at(mapping.svma(insn.address));
            let is_new = here.is_some() && here != source;
            source = here.or(source);
            RuleLine {
                source: here.filter(|_| is_new).map(|(path, number)| SourceLine {
                    file: file_name(path).to_owned(),
                    number,
                    text: texts.line(path, number).map(str::to_owned),
                }),
                cells,
                truth: observed.and_then(|all| all.truth(&insn)),
                insn,
            }
        };

        let lines = code.into_iter().map(line).collect();
        let names = columns.iter().map(|column| column.name.clone());
        let columns: Vec<String> = names.collect();
        let titles = columns.iter().zip(derived).map(|(name, derived)| {
            if derived {
                format!("{name}(derived)")
            } else {
                name.clone()
            }
        });
        CodeRules {
            titles: titles.collect(),
            columns,
            lines,
        }
    }

    /// The index of the line with the instruction that has a byte at `address`.
    pub fn line(&self, address: u64) -> Option<usize> {
        let after = self.lines.partition_point(|l| l.insn.address <= address);
        let index = after.checked_sub(1)?;
        (address < self.lines[index].insn.end).then_some(index)
    }
}

/// What a contradiction is about: `cfa`, `ra`, a register, or `row` if there is none.
fn subject(contradiction: &Contradiction) -> &'static str {
    match contradiction.reg {
        _ if contradiction.row.is_none() => "row",
        Reg::Rsp => "cfa",
        Reg::Rip => "ra",
        reg => reg.as_str(),
    }
}

/// A rule in the form that listings have: `cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]`, where `[..]` is the word
/// at an address. Registers that keep their value, and those that the format cannot describe, are left
/// out; the kind is named if it is not a call's.
pub fn rule_text(rule: &Rule) -> String {
    if rule.kind == RuleKind::Outermost {
        return rule.kind.as_str().to_owned();
    }
    let mut text = match rule.kind {
        RuleKind::Call => String::new(),
        kind => format!("{} ", kind.as_str()),
    };
    let _ = write!(text, "cfa={} ra={}", value(rule.cfa), value(rule.ra));
    if !rule.sp_is_cfa() {
        let _ = write!(text, " sp={}", value(rule.sp));
    }
    for (reg, saved) in Reg::CALLEE_SAVED.iter().zip(rule.saved) {
        if !matches!(saved, Value::Same | Value::Unspecified) {
            let _ = write!(text, " {reg}={}", value(saved));
        }
    }
    text
}

fn value(value: Value) -> String {
    match value {
        Value::Load {
            base,
            offset,
            addend,
        } => format!("[{}]{}", sum(base, offset), signed(addend)),
        Value::Offset { base, offset } => sum(base, offset),
        Value::Expression(Expression { load: true, .. }) => "[expression]".to_owned(),
        Value::Expression(_) => "expression".to_owned(),
        other => other.to_string(),
    }
}

fn sum(base: Base, offset: i32) -> String {
    format!("{base}{}", signed(offset))
}

/// `+8`, `-16`, nothing for 0.
fn signed(number: i32) -> String {
    match number {
        0 => String::new(),
        _ => format!("{number:+}"),
    }
}

#[cfg(test)]
mod tests;
