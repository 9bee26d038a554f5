//! Where two tables disagree, as text and JSON Lines.

use super::code;
use super::names::{Names, address};
use crate::json::{ChangedLine, Line, TableDiffLine, TableDifferenceLine, TableLossLine};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Range;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::demangle;
use unwind_sim_tables::diff::builds::Builds;
use unwind_sim_tables::diff::{Cause, Claim, Diff, Difference, Gravity, Input, TableSide};
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::rule::{Rule, Value};

/// A comparison, and what was compared.
pub struct Compared<'a> {
    /// The two tables, the first and the second.
    pub inputs: [Input<'a>; 2],
    /// What was found. For two tables of one file, only its `diff` is filled.
    pub found: &'a Builds,
    /// Whether they are tables of two files.
    pub is_builds: bool,
}

impl Compared<'_> {
    /// The name of one of the tables, the shortest that tells them apart.
    fn name(&self, which: TableSide) -> &'static str {
        let kinds = self.inputs.map(|input| input.table.kind());
        match which {
            TableSide::First if kinds[0] == kinds[1] => "first",
            TableSide::Second if kinds[0] == kinds[1] => "second",
            TableSide::First => kinds[0].as_str(),
            TableSide::Second => kinds[1].as_str(),
        }
    }

    /// What stands for the missing function's name.
    fn function<'n>(&self, names: &'n mut Names<'_>, start: u64) -> Option<&'n str> {
        names.function(start).map(|(name, _)| name)
    }
}

/// Writes the text for people: each function with its differences, then the sums.
///
/// # Errors
/// Those of `out`.
pub fn write_text(compared: &Compared<'_>, out: &mut dyn Write) -> io::Result<()> {
    // Both tables may be of one file, so each line has the kind of the table as well.
    for (which, input) in ["first ", "second"].into_iter().zip(compared.inputs) {
        let kind = input.table.kind().as_str();
        writeln!(
            out,
            "{which}: {kind} of {}",
            Printable::new(input.file.name())
        )?;
    }

    let file = compared.inputs[0].file;
    let mut names = Names::new(file);

    // Differences come in the order of their functions, so a heading is written when the function
    // changes.
    let mut function: Option<&Range<u64>> = None;
    for difference in &compared.found.diff.differences {
        if function != Some(&difference.function) {
            function = Some(&difference.function);
            let mut text = String::new();
            address(file, difference.function.start, &mut text);
            let size = difference.function.end - difference.function.start;

            // Names are those of the first file.
            let name = compared.function(&mut names, difference.function.start);
            let name = name.unwrap_or("function");
            writeln!(out, "\n{name}: {} at {text}", counted(size, "byte"))?;
        }

        write_difference(compared, difference, out)?;
    }

    write_changed(compared, out)?;
    write_sums(compared, out)
}

fn write_difference(
    compared: &Compared<'_>,
    difference: &Difference,
    out: &mut dyn Write,
) -> io::Result<()> {
    let file = compared.inputs[0].file;
    let start = difference.range.start;
    let mut text = String::from("  ");
    address(file, start, &mut text);
    text.push_str("..");
    address(file, difference.range.end, &mut text);

    let causes: Vec<&str> = difference.causes.iter().map(Cause::as_str).collect();
    let gravity = difference.gravity().as_str();
    let _ = write!(text, "  {gravity}: {}", causes.join(", "));

    // Neighbouring rows that differ in the same way are one difference.
    if difference.rows > 1 {
        let _ = write!(text, " ({})", counted(difference.rows, "row"));
    }
    writeln!(out, "{text}")?;

    // Both claims below each other, so that what differs can be seen.
    for (which, claim) in [TableSide::First, TableSide::Second]
        .into_iter()
        .zip(&difference.claims)
    {
        let name = compared.name(which);
        match claim {
            Claim::Nothing => writeln!(out, "    {name:<11} no row")?,
            Claim::Malformed(reason) => writeln!(out, "    {name:<11} {reason}")?,
            // The offset is that of the row in its section, where a hex dump shows it.
            Claim::Row { rule, offset } => {
                let index = usize::from(which == TableSide::Second);
                let section = compared.inputs[index].table.kind().section();
                let section = section.map_or("", |section| section.as_str());
                let rule = without_unchanged(rule);
                writeln!(out, "    {name:<11} {rule}  ({section}+{offset:#x})")?;
            }
        }
    }

    // The instruction at which the rows start to differ mostly shows which of them is right.
    for shown in code::around(file, difference.function.start, start) {
        let mark = if shown.address == start { '>' } else { ' ' };
        let mut place = String::new();
        address(file, shown.address, &mut place);
        writeln!(out, "    {mark} {place}: {}", shown.text)?;
    }

    Ok(())
}

/// The rule without unchanged registers, to see the others.
fn without_unchanged(rule: &Rule) -> Rule {
    let saved = rule.saved.map(|value| match value {
        Value::Same => Value::Unspecified,
        value => value,
    });
    Rule { saved, ..*rule }
}

fn write_changed(compared: &Compared<'_>, out: &mut dyn Write) -> io::Result<()> {
    let changed = &compared.found.changed;
    if changed.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nthe code differs, so the rows are not compared")?;
    for function in changed {
        let mut places = [String::new(), String::new()];
        for (i, place) in places.iter_mut().enumerate() {
            address(compared.inputs[i].file, function.at[i], place);
        }
        let name = demangle(&function.name);
        let name = Printable::new(&name);
        writeln!(out, "  {name}: from {} and {}", places[0], places[1])?;
    }
    Ok(())
}

/// Ranges, functions and bytes of a cause.
#[derive(Default)]
struct CauseTotals {
    ranges: u64,
    functions: u64,
    bytes: u64,
    last: Option<u64>,
}

fn sums(diff: &Diff) -> BTreeMap<(std::cmp::Reverse<Gravity>, Cause), CauseTotals> {
    let mut sums: BTreeMap<_, CauseTotals> = BTreeMap::new();
    for difference in &diff.differences {
        for cause in difference.causes.iter() {
            let key = (std::cmp::Reverse(cause.gravity()), cause);
            let sum = sums.entry(key).or_default();
            sum.ranges += 1;
            sum.bytes += difference.range.end - difference.range.start;
            let function = Some(difference.function.start);
            sum.functions += u64::from(sum.last != function);
            sum.last = function;
        }
    }
    sums
}

fn write_sums(compared: &Compared<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Builds {
        diff,
        functions,
        changed,
        only,
        ambiguous,
    } = compared.found;

    writeln!(
        out,
        "\ncompared {} of {} bytes",
        counted(diff.rows, "row"),
        diff.bytes
    )?;

    // Only of two builds: tables of one file have the same functions.
    if compared.is_builds {
        let [first, second] = only;
        let changed = changed.len();
        writeln!(
            out,
            "{} compared, {changed} with other code, {first} only in the \
             first file, {second} only in the second, {ambiguous} names that are not unique",
            counted(functions, "function")
        )?;
    }

    for ((gravity, cause), sum) in sums(diff) {
        let (ranges, functions, bytes) = (sum.ranges, sum.functions, sum.bytes);
        let (gravity, cause, text) = (gravity.0.as_str(), cause.as_str(), cause.description());
        writeln!(
            out,
            "{gravity}: {cause}: {}, {}, {}: {text}",
            counted(ranges, "range"),
            counted(functions, "function"),
            counted(bytes, "byte")
        )?;
    }

    // What a format cannot express is not a difference, but must not be silent either.
    for ((which, loss), lost) in &diff.losses {
        let (name, loss, text) = (compared.name(*which), loss.as_str(), loss.description());
        let (rows, bytes) = (lost.rows, lost.bytes);
        writeln!(
            out,
            "loss of {name}: {loss}: {}, {}: {text}",
            counted(rows, "row"),
            counted(bytes, "byte")
        )?;
    }

    if diff.differences.is_empty() {
        writeln!(out, "no disagreement")?;
    }
    Ok(())
}

/// Writes JSON Lines: the differences, the losses, changed functions, a summary with `command`.
///
/// # Errors
/// Those of `out`.
pub fn write_json(compared: &Compared<'_>, command: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |line: Line| line.write(out);
    let mut names = Names::new(compared.inputs[0].file);
    let diff = &compared.found.diff;

    for difference in &diff.differences {
        let function = compared.function(&mut names, difference.function.start);
        let file = compared.inputs[0].file;
        let code = code::around(file, difference.function.start, difference.range.start);

        // The listing is of the first file; of two builds, the functions that are compared have the
        // same code.
        let inputs = &compared.inputs;
        let shown = TableDifferenceLine::new(inputs, difference, function, &code);
        line(Line::TableDifference(Box::new(shown)))?;
    }

    for ((which, loss), lost) in &diff.losses {
        // The table is told by its number, as both may be of the same kind.
        let index = usize::from(*which == TableSide::Second);
        let kind = compared.inputs[index].table.kind();
        line(Line::TableLoss(TableLossLine::new(
            index, kind, *loss, *lost,
        )))?;
    }

    for changed in &compared.found.changed {
        line(Line::CodeChanged(ChangedLine::new(changed)))?;
    }

    let (files, tables) = (
        compared.inputs.map(|input| input.file.name().to_owned()),
        compared.inputs.map(|input| input.table.kind()),
    );

    // The summary is the last line, so that a reader notices output that was cut short.
    let summary = TableDiffLine::new(files, tables, compared.found, command);
    line(Line::TableDiff(summary))
}
