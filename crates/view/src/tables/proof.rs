//! What `tables check` proved, as text and JSON Lines.

use super::code;
use super::guess;
use super::index;
use super::known::hash;
use super::names::{Names, address};
use crate::json::{CheckLine, FunctionLine, IndexLine, Line, OfFile, WrongRowLine};
use std::io::{self, Write};
use unwind_sim_judge::blame::{Blame, Group, Judge};
use unwind_sim_recordings::counted::counted;
use unwind_sim_tables::blame::{CodeContext, is_apx, shape};
use unwind_sim_tables::check::{Checked, Count, Hole, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::value::Value;
use unwind_sim_tables::proof::verdict::{Contradiction, Doubt, Verdict};
use unwind_sim_unwind::printable::{Printable, printable};
use unwind_sim_unwind::regs::Reg;

/// How much of a report to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProofDetail {
    /// The maximum number of groups of contradicted functions.
    pub groups: usize,
    /// Whether to show every contradicted function.
    pub all: bool,
    /// Whether to list every unproven function.
    pub unproven: bool,
    /// Whether to show the way to each contradiction.
    pub explain: bool,
}

/// The maximum number of functions of a group that are named.
const NAMED_MAX: usize = 8;

/// Writes the text for people: contradictions by cause, then the sums.
///
/// # Errors
/// Those of `out`.
pub fn write_text(
    file: &File,
    report: &Report,
    shown: ProofDetail,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Contradictions are grouped by what is to blame, since one fault of a compiler or an assembler
    // is in many functions.
    let groups = Judge::new(file).groups(report);
    for group in groups.iter().take(shown.groups) {
        write_group(file, group, shown, out)?;
    }

    // What the limit leaves out is counted, so that it is not taken for all.
    if groups.len() > shown.groups {
        let more = groups.len() - shown.groups;
        let left = groups[shown.groups..].iter();
        let functions: usize = left.map(|group| group.functions.len()).sum();
        writeln!(
            out,
            "and {} with {} (--limit)\n",
            counted(more, "more cause"),
            counted(functions, "function")
        )?;
    }

    // The index is told apart from the rows: its flaws hide right rows.
    let mut names = Names::new(file);
    index::write_text(file, &mut names, &report.index, shown.groups, out)?;
    if shown.unproven {
        write_unproven(file, &mut names, report, out)?;
    }

    write_sums(file, report, out)
}

/// Writes what the functions of a group have in common, and the first or all of them.
fn write_group(
    file: &File,
    group: &Group<'_>,
    shown: ProofDetail,
    out: &mut dyn Write,
) -> io::Result<()> {
    // All functions of a group share these, so they are told once.
    let Blame {
        code,
        cause,
        writer,
        known,
    } = &group.blame;

    writeln!(
        out,
        "{code} {}: {}, {}",
        cause.description(),
        counted(group.functions.len(), "function"),
        counted(group.contradictions, "wrong claim")
    )?;

    // The writer is named by one of its files, and the others are counted.
    let files = match group.sources.len() {
        0 | 1 => String::new(),
        n => format!(", and {}", counted(n - 1, "more file")),
    };
    writeln!(out, "  written {}{files}", printable(&writer.to_string()))?;
    match known {
        Some(known) => writeln!(
            out,
            "  looks like {} (docs/findings.md): {}: {}",
            known.id, known.who, known.what
        )?,
        None => writeln!(out, "  like no class in docs/findings.md")?,
    }

    // A table of names is large, so it is made once for the group.
    let mut names = Names::new(file);
    let functions = group.functions.iter().copied();

    if shown.all {
        for checked in functions {
            heading(file, &mut names, checked, out)?;
            for contradiction in &checked.verdict.contradictions {
                write_contradiction(file, checked, contradiction, shown.explain, out)?;
            }
        }
        return writeln!(out);
    }

    // Functions of a group have one cause, so the first one shows it and the others are only named.
    for checked in functions.clone().take(1) {
        heading(file, &mut names, checked, out)?;
        for contradiction in checked.verdict.contradictions.iter().take(1) {
            write_contradiction(file, checked, contradiction, shown.explain, out)?;
        }
    }

    let mut named = Vec::new();
    for checked in functions.skip(1).take(NAMED_MAX) {
        named.push(place(file, &mut names, checked));
    }
    let more = group.functions.len().saturating_sub(1 + named.len());
    for name in &named {
        writeln!(out, "  also {name}")?;
    }
    if more > 0 {
        writeln!(out, "  and {} (--all)", counted(more, "more function"))?;
    }
    writeln!(out)
}

/// A function's name and address.
fn place(file: &File, names: &mut Names<'_>, checked: &Checked) -> String {
    let name = names.function(checked.range.start).map(|(name, _)| name);
    let mut text = format!("{} at ", Printable::new(name.unwrap_or("a function")));
    address(file, checked.range.start, &mut text);
    text
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
    let name = Printable::new(name.unwrap_or("function"));
    writeln!(out, "  {name}: {} at {place}", counted(size, "byte"))
}

fn write_contradiction(
    file: &File,
    checked: &Checked,
    wrong: &Contradiction,
    explain: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let code = wrong.code();

    // The place of the row lets a reader find it with `tables dump`.
    let section = wrong.table.section().map_or("", |s| s.as_str());
    writeln!(
        out,
        "    {code} {}, {section}+{:#x}",
        code.description(),
        wrong.row_offset
    )?;

    for shown in code::around(file, checked.range.start, wrong.pc) {
        let is_it = shown.address == wrong.pc;
        let mark = if is_it { '>' } else { ' ' };
        let mut place = String::new();
        address(file, shown.address, &mut place);
        writeln!(out, "     {mark} {place}: {}", shown.text)?;

        // The mark stands below the instruction, behind the width of its address.
        if is_it {
            let width = place.len() + 2;
            writeln!(
                out,
                "       {:width$}^ {}",
                "",
                what(file, checked.range.start, wrong)
            )?;
        }
    }

    // Where no row covers the address, there is no rule to print.
    match wrong.subject {
        Subject::Row => writeln!(out, "      row:   none")?,
        _ => writeln!(out, "      row:   {}", wrong.rule)?,
    }

    // There is a right row only where one can be derived from the code.
    if let Some(right) = right(wrong) {
        writeln!(out, "      right: {right}")?;
    }

    // Two frames meet at one place: no single row can be right for both.
    if let (Some((from, to)), Some(own)) = (wrong.fits, wrong.path.last()) {
        let own = own.0;
        writeln!(
            out,
            "    two frames: a jump at {own:#x} brings this one, a jump at {from:#x} to {to:#x} the row's"
        )?;
    }

    if explain {
        let text = way(file, &wrong.path, &[wrong.pc]);
        writeln!(out, "      way:   {text}")?;
    }
    Ok(())
}

/// The way from the entry along jumps to instructions behind them.
pub(super) fn way(file: &File, jumps: &[(u64, u64)], behind: &[u64]) -> String {
    let mut text = String::from("entry");
    for (from, to) in jumps {
        for (before, at) in [(", ", from), (" -> ", to)] {
            text.push_str(before);
            address(file, *at, &mut text);
        }
    }
    for &at in behind {
        text.push_str(", ");
        address(file, at, &mut text);
    }
    text
}

/// What is right instead of the claim that is wrong. The other rules of the row are not repeated.
pub(crate) fn right(wrong: &Contradiction) -> Option<String> {
    let right = wrong.right.as_ref()?;
    let (name, value) = match wrong.subject {
        Subject::Cfa => ("cfa", right.cfa),
        Subject::Sp => ("sp", right.sp),
        Subject::ReturnAddress => ("ra", right.ra),
        Subject::Register(reg) => {
            let index = Reg::CALLEE_SAVED.iter().position(|&r| r == reg)?;
            (reg.as_str(), right.saved[index])
        }
        // There is no row, so all of it is new.
        Subject::Row => return Some(right.to_string()),
    };
    Some(format!("{name}={value}"))
}

/// What the row says, and what the code has done.
pub(super) fn what(file: &File, start: u64, wrong: &Contradiction) -> String {
    let found = wrong.found;

    // In a relocatable object, numbers that are addresses have no meaning until it is linked.
    if let (Value::Const(number), Subject::Register(reg), true) =
        (found, wrong.subject, file.is_relocatable())
    {
        // The number may be an address, which is made up.
        let number = i64::from(number).cast_unsigned();
        let before = CodeContext::of(file, start, wrong).before;
        let is_address = before.is_some_and(|insn| {
            insn.is_ip_rel_memory_operand() && insn.ip_rel_memory_address() == number
        });

        if is_address {
            let mut text = format!("the row's {reg} is ");
            address(file, number, &mut text);
            return text;
        }
    }

    // Code without a row is no claim of a row.
    let subject = match wrong.subject {
        Subject::Row => {
            let size = counted(wrong.row.end - wrong.row.start, "byte");
            return format!("{size} of this function that no row of its table covers");
        }
        subject => claimed(subject),
    };

    // What a CFA is off by is seen only together with rsp.
    match found {
        Value::Entry { .. } if wrong.subject == Subject::Cfa && found.is_stack() => {
            format!(
                "the row's {subject} is {found}, as rsp is {} here",
                wrong.sp
            )
        }
        found => format!("the row's {subject} is {found}"),
    }
}

/// What of the caller's a claim is about.
pub(super) const fn claimed(subject: Subject) -> &'static str {
    match subject {
        Subject::Cfa => "CFA",
        Subject::Sp => "rsp",
        Subject::ReturnAddress => "return address",
        Subject::Register(reg) => reg.as_str(),
        Subject::Row => "row",
    }
}

fn write_unproven(
    file: &File,
    names: &mut Names<'_>,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    for checked in &report.functions {
        // Contradicted functions were told above, also if they have doubts.
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

            // A guess has a way on which it would be wrong, and the reader can judge whether it
            // exists.
            if *doubt == Doubt::Guessed {
                for guess in &checked.verdict.guesses {
                    guess::write(file, guess, out)?;
                }
            }
        }
    }
    Ok(())
}

fn write_sums(file: &File, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    // Once for all lines below, since the sums go through all functions.
    let totals = report.totals();
    let tables: Vec<&str> = report.tables.iter().map(|t| t.as_str()).collect();
    let tables = if tables.is_empty() {
        "no unwind table".to_owned()
    } else {
        tables.join(", ")
    };

    let Count {
        functions,
        rows,
        bytes,
    } = totals.all;
    writeln!(
        out,
        "{}: {}: {}, {}, {}",
        printable(file.name()),
        tables,
        counted(functions, "function"),
        counted(rows, "row"),
        counted(bytes, "byte")
    )?;

    // The three verdicts share one denominator, so that their percentages add up to the whole file.
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

    // Rows claim what the convention of their function says, so the reader must know it.
    for ((convention, evidence), count) in &totals.conventions {
        writeln!(
            out,
            "  convention {}: {}: {}",
            convention.as_str(),
            counted(*count, "function"),
            evidence.description()
        )?;
    }

    // Each doubt is explained by its kind; the places are listed with `--unproven`.
    for (doubt, count) in &totals.doubts {
        writeln!(
            out,
            "  unproven ({}): {count}: {}",
            doubt.as_str(),
            doubt.description()
        )?;
    }

    // A decoder gap of ours must not look like damage in the file, so APX is named as such.
    let apx = report.functions.iter().filter(|checked| {
        let doubts = checked.verdict.doubts.iter();
        let mut undecodable = doubts.filter(|doubt| doubt.0 == Doubt::Undecodable);
        undecodable.any(|doubt| is_apx(file.bytes(doubt.1)))
    });
    let apx = apx.count();
    if apx > 0 {
        writeln!(
            out,
            "  of these, {} with instructions of Intel's APX, which are not decoded",
            counted(apx, "function")
        )?;
    }

    // A proof holds only as far as what it takes for granted.
    let rests = totals.assumptions.iter();
    let rests: Vec<String> = rests
        .map(|(a, count)| format!("{} {count}", a.as_str()))
        .collect();
    if !rests.is_empty() {
        writeln!(out, "  the proofs rest on: {}", rests.join(", "))?;
    }
    // Allowed in the red zone (psABI 3.2.2), but the stack copies that perf takes start at rsp.
    if totals.below_sp > 0 {
        let code = "US203";
        writeln!(
            out,
            "  {code} at {}: a register's slot lies below rsp",
            counted(totals.below_sp, "address")
        )?;
    }

    // Some claims of the table lie outside the proof; a reader must not take them as proven.
    if let Some(&first) = report.unchecked.functions.first() {
        let mut place = String::new();
        address(file, first, &mut place);
        writeln!(
            out,
            "  not checked: what {} of registers that are not callee-saved ({}), first at {place}",
            match report.unchecked.functions.len() {
                1 => "1 function says".to_owned(),
                count => format!("{count} functions say"),
            },
            report.unchecked.names().join(", ")
        )?;
    }

    // Holes are not contradictions: what the code without a row does is not known.
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

    // A right row is of no use if a search through the index ends elsewhere.
    let found = report.index.len();
    if found > 0 {
        let lost: u64 = report.index.iter().map(|f| f.functions).sum();
        writeln!(
            out,
            "  the index: {}, by which the rows of {} are lost",
            counted(found, "finding"),
            counted(lost, "function")
        )?;
    }

    // What could not be read of the file.
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
    lines(
        &OfFile::of(file),
        file,
        report,
        ListedFunctions::Unproven,
        out,
    )
}

/// The functions that have a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListedFunctions {
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
    functions: ListedFunctions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut names = Names::new(file);
    let mut judge = Judge::new(file);

    // A line for each contradiction first, then the line of its function.
    for checked in &report.functions {
        let name = names.function(checked.range.start).map(|(name, _)| name);
        let blame = judge.blame(checked);
        // The hash costs a pass over the code, and only the lines of wrong rows have it.
        let hash = blame.is_some().then(|| hash(shape(file, &checked.range)));
        let hash = hash.unwrap_or_default();

        for wrong in &checked.verdict.contradictions {
            let wrong = WrongRowLine::new(of, file, checked, wrong, name, blame.as_ref(), &hash);
            Line::WrongRow(Box::new(wrong)).write(out)?;
        }

        // Made only if it is written: a sweep has a line for every function, other output only for
        // few.
        let function = || Box::new(FunctionLine::new(of, file, checked, name));
        match functions {
            ListedFunctions::All => Line::Function(function()).write(out)?,
            ListedFunctions::Unproven if checked.verdict.verdict() == Verdict::Unproven => {
                Line::Unproven(function()).write(out)?;
            }
            ListedFunctions::Unproven => {}
        }
    }

    for finding in &report.index {
        Line::Index(IndexLine::new(of, file, finding, &mut names)).write(out)?;
    }

    // The sums end the lines of a file: a sweep that is continued counts on it.
    let sums = CheckLine::new(of.clone(), report, &report.totals());
    Line::Check(Box::new(sums)).write(out)
}
