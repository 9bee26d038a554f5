//! What `tables check` proved, as text and JSON Lines.

use super::code;
use super::names::{Names, address};
use crate::json::{CheckLine, FunctionLine, Line, OfFile, WrongRowLine};
use std::fmt::Write as _;
use std::io::{self, Write};
use unwind_sim_recordings::counted::counted;
use unwind_sim_tables::check::{Checked, Count, Hole, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::value::Value;
use unwind_sim_tables::proof::verdict::{Contradiction, Verdict};

/// How much of a report to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The maximum number of contradicted functions.
    pub functions: usize,
    /// Whether to list every unproven function.
    pub unproven: bool,
    /// Whether to show the way to each contradiction.
    pub explain: bool,
}

/// Writes the text for people: contradictions, then the sums.
///
/// # Errors
/// Those of `out`.
pub fn write_text(
    file: &File,
    report: &Report,
    shown: Shown,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut names = Names::new(file);
    let verdict = |checked: &&Checked| checked.verdict.verdict();
    let wrong = report.functions.iter();
    let wrong: Vec<&Checked> = wrong
        .filter(|c| verdict(c) == Verdict::Contradicted)
        .collect();
    for checked in wrong.iter().take(shown.functions) {
        heading(file, &mut names, checked, out)?;
        for contradiction in &checked.verdict.contradictions {
            write_contradiction(file, checked, contradiction, shown.explain, out)?;
        }
        writeln!(out)?;
    }
    if wrong.len() > shown.functions {
        let more = wrong.len() - shown.functions;
        writeln!(
            out,
            "and {} with wrong rows (--limit)\n",
            counted(more, "more function")
        )?;
    }
    if shown.unproven {
        write_unproven(file, &mut names, report, out)?;
    }
    write_sums(file, report, out)
}

fn heading(
    file: &File,
    names: &mut Names<'_>,
    checked: &Checked,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut place = String::new();
    address(file, checked.range.start, &mut place);
    let size = checked.range.end - checked.range.start;
    let name = names.function(checked.range.start).map(|(name, _)| name);
    let name = name.unwrap_or("function");
    writeln!(out, "{name}: {} at {place}", counted(size, "byte"))
}

fn write_contradiction(
    file: &File,
    checked: &Checked,
    wrong: &Contradiction,
    explain: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let code = wrong.code();
    let section = wrong.table.section().map_or("", |s| s.as_str());
    writeln!(
        out,
        "  {code} {}, {section}+{:#x}",
        code.description(),
        wrong.row_offset
    )?;
    for shown in code::around(file, checked.range.start, wrong.pc) {
        let is_it = shown.address == wrong.pc;
        let mark = if is_it { '>' } else { ' ' };
        let mut place = String::new();
        address(file, shown.address, &mut place);
        writeln!(out, "   {mark} {place}: {}", shown.text)?;
        if is_it {
            let width = place.len() + 2;
            writeln!(out, "     {:width$}^ {}", "", what(wrong))?;
        }
    }
    writeln!(out, "    row:   {}", wrong.rule)?;
    if let Some(right) = &wrong.right {
        writeln!(out, "    right: {right}")?;
    }
    if let (Some((from, to)), Some(own)) = (wrong.fits, wrong.path.last()) {
        let own = own.0;
        writeln!(
            out,
            "    two frames: a jump at {own:#x} brings this one, a jump at {from:#x} to {to:#x} the row's"
        )?;
    }
    if explain {
        let mut text = String::from("    way:   entry");
        for (from, to) in &wrong.path {
            let _ = write!(text, ", {from:#x} -> {to:#x}");
        }
        writeln!(out, "{text}, {:#x}", wrong.pc)?;
    }
    Ok(())
}

/// What the row says, and what the code has done.
pub(super) fn what(wrong: &Contradiction) -> String {
    let found = wrong.found;
    match wrong.subject {
        Subject::Cfa => match found {
            Value::Entry { .. } if found.is_stack() => {
                format!("the row's CFA is {found}, as rsp is {} here", wrong.sp)
            }
            found => format!("the row's CFA is {found}"),
        },
        Subject::Sp => format!("the row's rsp is {found}"),
        Subject::ReturnAddress => format!("the row's return address is {found}"),
        Subject::Register(reg) => format!("the row's {reg} is {found}"),
    }
}

fn write_unproven(
    file: &File,
    names: &mut Names<'_>,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    for checked in &report.functions {
        if checked.verdict.verdict() != Verdict::Unproven {
            continue;
        }
        heading(file, names, checked, out)?;
        for (doubt, at) in &checked.verdict.doubts {
            let mut place = String::new();
            address(file, *at, &mut place);
            writeln!(
                out,
                "  unproven ({}) at {place}: {}",
                doubt.as_str(),
                doubt.description()
            )?;
        }
    }
    Ok(())
}

fn write_sums(file: &File, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let totals = report.totals();
    let tables: Vec<&str> = report.tables.iter().map(|t| t.as_str()).collect();
    let Count {
        functions,
        rows,
        bytes,
    } = totals.all;
    writeln!(
        out,
        "{}: {}: {}, {}, {}",
        file.name(),
        tables.join(", "),
        counted(functions, "function"),
        counted(rows, "row"),
        counted(bytes, "byte")
    )?;
    for (name, count) in [
        ("proven", totals.proven),
        ("contradicted", totals.contradicted),
        ("unproven", totals.unproven),
    ] {
        writeln!(
            out,
            "  {name:<13}{:>9} functions {:>8}   {:>8} of the bytes",
            count.functions,
            share(count.functions, functions),
            share(count.bytes, bytes)
        )?;
    }
    writeln!(
        out,
        "  rows proven  {:>9}           {:>8}",
        totals.rows_proven,
        share(totals.rows_proven, rows)
    )?;
    let plt = totals.plt;
    if plt.functions > 0 {
        writeln!(
            out,
            "  of the functions, {} are procedure linkage tables",
            plt.functions
        )?;
    }
    for (doubt, count) in &totals.doubts {
        writeln!(
            out,
            "  unproven ({}): {count}: {}",
            doubt.as_str(),
            doubt.description()
        )?;
    }
    let rests = totals.assumptions.iter();
    let rests: Vec<String> = rests
        .map(|(a, count)| format!("{} {count}", a.as_str()))
        .collect();
    if !rests.is_empty() {
        writeln!(out, "  the proofs rest on: {}", rests.join(", "))?;
    }
    if totals.below_sp > 0 {
        let code = "US203";
        writeln!(
            out,
            "  {code} at {}: a register's slot lies below rsp",
            counted(totals.below_sp, "address")
        )?;
    }
    for hole in [Hole::NoRow, Hole::NoCode, Hole::Overlap] {
        let gaps = report.gaps.iter().filter(|g| g.hole == hole);
        let bytes: u64 = gaps.clone().map(|g| g.range.end - g.range.start).sum();
        let count = gaps.count();
        if count > 0 {
            writeln!(
                out,
                "  {}: {}, {}",
                hole.description(),
                counted(count, "range"),
                counted(bytes, "byte")
            )?;
        }
    }
    for problem in &report.problems {
        writeln!(out, "  {problem}")?;
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => String::from("-"),
        whole => {
            // Rounded down: 100.00 % is all of it.
            let hundredths = u128::from(part) * 10_000 / u128::from(whole);
            format!("{}.{:02} %", hundredths / 100, hundredths % 100)
        }
    }
}

/// Writes JSON Lines: a line for each contradiction and each unproven function, then a summary.
///
/// # Errors
/// Those of `out`.
pub fn write_json(file: &File, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    lines(&OfFile::of(file), file, report, Functions::Unproven, out)
}

/// The functions that have a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Functions {
    /// Those that are unproven.
    Unproven,
    /// All, as in a sweep.
    All,
}

/// Writes the lines of one file; the last one is its sums.
pub(crate) fn lines(
    of: &OfFile,
    file: &File,
    report: &Report,
    functions: Functions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut names = Names::new(file);
    for checked in &report.functions {
        let name = names.function(checked.range.start).map(|(name, _)| name);
        for wrong in &checked.verdict.contradictions {
            let wrong = WrongRowLine::new(of, file, checked, wrong, name);
            Line::WrongRow(Box::new(wrong)).write(out)?;
        }
        let function = || Box::new(FunctionLine::new(of, file, report, checked, name));
        match functions {
            Functions::All => Line::Function(function()).write(out)?,
            Functions::Unproven if checked.verdict.verdict() == Verdict::Unproven => {
                Line::Unproven(function()).write(out)?;
            }
            Functions::Unproven => {}
        }
    }
    let sums = CheckLine::new(of.clone(), report, &report.totals());
    Line::Check(Box::new(sums)).write(out)
}
