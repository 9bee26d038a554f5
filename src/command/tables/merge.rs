//! `tables merge`: concatenated SFrame tables as one.

use super::super::output;
use super::super::status::Status;
use super::super::stdin;
use super::written;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::merge::{Merged, merge_in_file};
use unwind_sim_view::json::{self, MergeLine};

/// Write a copy of an ELF file whose .sframe section, in which a linker put several tables one
/// after the other, has one sorted table. Readers find only the first of several tables.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim tables merge program -o merged
  unwind-sim tables merge program -o program --json")]
pub(crate) struct Args {
    /// The executable or shared object; - for standard input.
    #[arg(value_name = "ELF", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The file to write; it may be the one that is read.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// How many conflicting functions are listed; the rest are counted.
const LISTED_MAX: usize = 10;

pub(crate) fn run(args: &Args) -> Result<Status> {
    let (file, data) = written::read(&written::open(&args.path)?)?;
    let (bytes, merged) = merge_in_file(&file, &data)?;
    written::write(&args.output, &bytes, &args.path)?;
    let status = if merged.conflicts.is_empty() {
        Status::AsExpected
    } else {
        Status::Difference
    }
    .known();
    if args.json {
        write_json(args, &merged)?
    } else {
        write_text(args, &merged)?
    }
    Ok(status)
}

fn write_json(args: &Args, merged: &Merged) -> Result<()> {
    let mut out = output::raw_stdout();
    let line = json::Line::Merge(MergeLine {
        schema: SCHEMA,
        file: args.path.display().to_string(),
        version: merged.version as u8,
        tables: merged.tables as u64,
        functions: merged.functions as u64,
        rows: merged.rows,
        functions_found_before: merged.functions_found_before as u64,
        duplicates: merged.duplicates,
        conflicts: merged.conflicts.iter().map(|start| hex(*start)).collect(),
        dead: merged.dead,
        clipped: merged.clipped,
        empty: merged.empty,
        sections: written::section_lines(std::slice::from_ref(&merged.section)),
        command: output::command_line(),
    });
    line.write(&mut out)?;
    out.flush()?;
    Ok(())
}

fn write_text(args: &Args, merged: &Merged) -> Result<()> {
    let mut out = output::stdout();
    let (path, tables) = (args.output.printable(), merged.tables);
    let version = merged.version as u8;
    writeln!(
        out,
        "{path}: {} as one, SFrame V{version}",
        counted(tables, "table")
    )?;

    // Of tables that a linker put one behind the other, readers find only the first.
    let (functions, rows) = (merged.functions, merged.rows);
    let before = merged.functions_found_before;
    writeln!(
        out,
        "  {}, {}; readers found {} before",
        counted(functions, "function"),
        counted(rows, "row"),
        counted(before, "function")
    )?;

    written::tell_sections(&mut out, std::slice::from_ref(&merged.section))?;

    for (count, what) in [
        (
            merged.duplicates,
            "functions described twice in the same way",
        ),
        (merged.dead, "functions left out: no code is there"),
        (merged.clipped, "functions end where the next one starts"),
        (merged.empty, "functions left out: no row at their start"),
    ] {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }

    // These make the exit status 1: which of the two is right cannot be seen here.
    for start in merged.conflicts.iter().take(LISTED_MAX) {
        writeln!(
            out,
            "  the function at {start:#x} is described in two ways; the first is kept"
        )?;
    }

    // A program may have thousands of them, with one cause.
    let more = merged.conflicts.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        writeln!(out, "  and {more} more such functions; --json lists all")?;
    }

    out.flush()?;
    Ok(())
}
