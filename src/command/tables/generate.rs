//! `tables generate`: a file with an unwind table made from its code.

use super::super::output;
use super::super::status::Status;
use super::written;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::compare::{Class, Comparison, compare};
use unwind_sim_tables::generate::write::{Written, write_in_file};
use unwind_sim_tables::generate::{Boundaries, Function, Gap, Generated, generate};
use unwind_sim_tables::table::Table;
use unwind_sim_view::json::{self, ConversionLine, ConversionLossLine, LossCountLine};

/// Write a copy of an ELF file with an unwind table made from its code alone. Functions with
/// addresses that get no row, because ways that lead there disagree or the frame is not known, are
/// listed with the reason.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Formats: orc:LAYOUT (4.14, 5.12, 6.3, 6.4 or 7.1, the first Linux that reads its entries so; orc \
alone is 6.4), sframe-v1, sframe-v2, sframe-v3, eh_frame. Relocatable objects and kernel modules \
get ORC only.

Examples:
  unwind-sim tables generate module.ko --to orc:6.4 -o new.ko
  unwind-sim tables generate module.ko --to orc:5.12 --compare -o new.ko
  unwind-sim tables generate /usr/bin/git --to sframe-v3 --functions table -o git")]
pub(crate) struct Args {
    /// The executable, shared object, relocatable object or kernel module.
    #[arg(value_name = "ELF")]
    path: PathBuf,
    /// The format to write.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Target,
    /// The file to write; it may be the one that is read.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Where the boundaries of functions come from: symbols with a size, or the FDEs of the table that
    /// the file has. By default symbols for objects, the table for programs.
    #[arg(long, value_name = "SOURCE")]
    functions: Option<Functions>,
    /// Compare with the table of this format that the file has, address by address.
    #[arg(long)]
    compare: bool,
    /// One JSON object per line: every function with a gap, then a summary.
    #[arg(long)]
    json: bool,
}

/// `--functions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Functions {
    Symbols,
    Table,
}

/// How many functions are listed for each reason; the rest are counted.
const LISTED_MAX: usize = 10;
/// The reasons, in the order of the report.
const GAPS: [Gap; 5] = [
    Gap::Disagree,
    Gap::Frame,
    Gap::Undecodable,
    Gap::IndirectJump,
    Gap::Limit,
];

fn target(name: &str) -> Result<Target, String> {
    let known = || Target::ALL.map(Target::as_str).join(", ");
    Target::from_name(name).ok_or_else(|| format!("not one of {}", known()))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let what = "an ELF program, library or object";
    FileKind::expect(&args.path, what, &[FileKind::Elf])?;
    let (file, data) = written::read(&args.path)?;
    let boundaries = match args.functions {
        Some(Functions::Symbols) => Boundaries::Symbols,
        Some(Functions::Table) => Boundaries::Table,
        None if file.is_relocatable() => Boundaries::Symbols,
        None => Boundaries::Table,
    };
    let (generated, comparison) = match args.compare {
        false => (generate(&file, boundaries), None),
        true => {
            let encoding = match args.to {
                Target::Orc(encoding) => Some(encoding),
                _ => None,
            };
            let Some(old) = Table::read_as(&file, args.to.kind(), encoding) else {
                bail!(
                    "{}: no {} to compare with",
                    file.name(),
                    args.to.kind().as_str()
                );
            };
            let (generated, comparison) = compare(&file, boundaries, &old, args.to);
            (generated, Some(comparison))
        }
    };
    let written = write_in_file(&file, &data, &generated, args.to)?;
    written::write(&args.output, &written.bytes, &args.path)?;
    match args.json {
        true => write_json(args, &generated, &written)?,
        false => write_text(args, &file, &generated, &written, comparison.as_ref())?,
    }
    Ok(Status::AsExpected)
}

/// The functions with a gap for this reason, and the first address (svma).
fn with_gap(generated: &Generated, gap: Gap) -> impl Iterator<Item = (&Function, u64)> {
    let functions = generated.functions.iter();
    functions.filter_map(move |f| Some((f, f.gaps.iter().find(|g| g.0 == gap)?.1)))
}

fn write_json(args: &Args, generated: &Generated, written: &Written) -> Result<()> {
    let mut out = output::raw_stdout();
    let mut losses = Vec::new();
    for gap in GAPS {
        let mut functions = 0;
        for (function, first) in with_gap(generated, gap) {
            functions += 1;
            let line = json::Line::ConversionLoss(ConversionLossLine {
                schema: SCHEMA,
                function: Some(function.name.clone()).filter(|name| !name.is_empty()),
                start: hex(function.range.start),
                end: hex(function.range.end),
                reason: gap.as_str(),
                costs_rows: true,
                rows: 0,
                bytes: 0,
                first: hex(first),
            });
            serde_json::to_writer(&mut out, &line)?;
            writeln!(out)?;
        }
        if functions > 0 {
            losses.push(LossCountLine {
                reason: gap.as_str(),
                costs_rows: true,
                functions,
                rows: 0,
                bytes: 0,
            });
        }
    }
    let report = &written.report;
    for (lost, (functions, rows, bytes)) in report.by_reason() {
        losses.push(LossCountLine {
            reason: lost.as_str(),
            costs_rows: lost.costs_rows(),
            functions,
            rows,
            bytes,
        });
    }
    let line = json::Line::Conversion(ConversionLine {
        schema: SCHEMA,
        file: args.path.display().to_string(),
        from: "code",
        to: args.to.as_str(),
        functions_read: report.functions_read,
        rows_read: report.rows_read,
        functions_written: report.functions_written,
        rows_written: report.rows_written,
        bytes_equal: written.equal,
        sections: written::section_lines(&written.sections),
        losses,
        command: output::command_line(),
    });
    serde_json::to_writer(&mut out, &line)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

fn write_text(
    args: &Args,
    file: &File,
    generated: &Generated,
    written: &Written,
    comparison: Option<&Comparison>,
) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: {} from the code",
        args.output.display(),
        args.to.as_str()
    )?;
    let (functions, rows) = (generated.functions.len(), generated.rows());
    writeln!(out, "  generated: {functions} functions, {rows} rows")?;
    let report = &written.report;
    let (functions, rows) = (report.functions_written, report.rows_written);
    writeln!(out, "  written: {functions} functions, {rows} rows")?;
    let equal = written.equal;
    writeln!(
        out,
        "  read back: the same rule at {equal} addresses, no other rule at any"
    )?;
    written::tell_sections(&mut out, &written.sections)?;
    for gap in GAPS {
        let mut these = with_gap(generated, gap);
        let mut told = false;
        for (function, first) in these.by_ref().take(LISTED_MAX) {
            if !told {
                writeln!(out, "no row: {}: {}", gap.as_str(), gap.description())?;
                told = true;
            }
            let (start, name) = (function.range.start, &function.name);
            writeln!(out, "  {start:#x} {name}, at {first:#x}")?;
        }
        let more = these.count();
        if more > 0 {
            writeln!(out, "  and {more} more; --json lists all")?;
        }
    }
    for (lost, (functions, rows, bytes)) in report.by_reason() {
        writeln!(out, "lost: {}: {}", lost.as_str(), lost.description())?;
        writeln!(
            out,
            "  {functions} functions, {rows} rows, {bytes} addresses"
        )?;
    }
    if let Some(comparison) = comparison {
        tell_comparison(&mut out, file, generated, comparison)?;
    }
    out.flush()?;
    Ok(())
}

fn tell_comparison(
    out: &mut dyn Write,
    file: &File,
    generated: &Generated,
    comparison: &Comparison,
) -> Result<()> {
    let total = comparison.total();
    writeln!(
        out,
        "compared with the table of the file: {total} addresses"
    )?;
    for (class, count) in &comparison.addresses {
        writeln!(out, "  {}: {count}", class.as_str())?;
        let listed = comparison.listed.iter().filter(|l| l.0 == *class);
        for (_, start, len) in listed.take(LISTED_MAX) {
            let name = generated.function_at(*start).map_or("", |f| &f.name);
            match (file.place(*start), class) {
                (_, Class::Equal | Class::EqualInMeaning) => {}
                (Some((section, offset)), _) => {
                    writeln!(out, "    {section}+{offset:#x}, {len} addresses {name}")?;
                }
                (None, _) => writeln!(out, "    {start:#x}, {len} addresses {name}")?,
            }
        }
    }
    Ok(())
}
