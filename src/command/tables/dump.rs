//! `tables dump`: the rows of a file's tables.

use super::super::output::{self, tell};
use super::super::status::Status;
use super::super::stdin;
use super::{TableName, open, tell_empty};
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::similar::question_among;
use unwind_sim_tables::dump::{self, DumpSummary, Filter, PROBLEMS_MAX};
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{KINDS, Table};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::json::Line;
use unwind_sim_view::tables::{self, Form, functions};

/// Show the rows of a file's unwind tables: as equations, beside the code, or as other tools print them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The file is a program, a shared object, a relocatable object or a kernel module.

Examples:
  unwind-sim tables dump ./prog --function main
  unwind-sim tables dump ./prog --function main --listing
  unwind-sim tables dump /usr/bin/git --as readelf
  unwind-sim tables dump corpus/sframe/t_2.46 --as objdump
  unwind-sim tables dump /usr/bin/git --table eh_frame --json")]
pub(crate) struct Args {
    /// The ELF file; - for standard input.
    #[arg(value_name = "ELF", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// Only this table. Can be given more than once.
    #[arg(long, value_name = "TABLE")]
    table: Vec<TableName>,
    /// Only the function with this name.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// The form of the text.
    #[arg(long = "as", value_name = "FORM", default_value = "equations")]
    form: As,
    /// The code, with the rule of each table in force at each instruction.
    #[arg(long, conflicts_with = "form")]
    listing: bool,
    /// JSON Lines instead of text.
    #[arg(long, conflicts_with_all = ["form", "listing"])]
    json: bool,
}

/// `--as`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum As {
    /// One line for each row: its address, function, place in the table, and rule.
    Equations,
    /// `readelf --debug-dump=frames-interp`: .eh_frame and .debug_frame.
    Readelf,
    /// `objdump --sframe` and `objtool --dump=orc`: SFrame and ORC.
    Objdump,
}

impl As {
    /// The tables that have this form.
    fn kinds(self) -> &'static [TableKind] {
        match self {
            As::Equations => &KINDS,
            As::Readelf => &[TableKind::EhFrame, TableKind::DebugFrame],
            As::Objdump => &[TableKind::Sframe, TableKind::Orc],
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            As::Equations => "equations",
            As::Readelf => "readelf",
            As::Objdump => "objdump",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let kinds = kinds(args)?;
    let file = open(&args.path)?;
    let filter = filter(args, &file)?;

    let present: Vec<TableKind> = kinds
        .iter()
        .copied()
        .filter(|kind| has(&file, *kind))
        .collect();

    // Before the check for absence: a table that cannot be unpacked looks absent.
    tell_damaged(&file, &kinds);
    let asked = |section| kinds.iter().any(|kind| kind.section() == Some(section));
    let empty = tell_empty(&file, asked);
    if present.is_empty() && empty == 0 {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        let path = args.path.printable();
        tell!("{path} has no table of this kind: {}", names.join(", "));
        return Ok(Status::NothingJudged);
    }

    let mut out = output::plain_stdout();
    if args.listing {
        return listing(args, &file, &present, &filter, &mut out);
    }

    let mut rows = 0;
    let mut problems: Vec<String> = Vec::new();
    let mut problem_count = 0;
    let mut take = |dumped: DumpSummary| {
        rows += dumped.rows;
        problem_count += dumped.problem_count;
        problems.extend(dumped.problems.iter().map(ToString::to_string));
    };

    match args.form {
        As::Readelf => take(dump::readelf::write(&file, &present, &filter, &mut out)?),
        As::Objdump => {
            if present.contains(&TableKind::Sframe) {
                take(dump::sframe::write(&file, &filter, &mut out)?);
            }
            if present.contains(&TableKind::Orc) {
                take(dump::orc::write(&file, None, &filter, &mut out)?);
            }
        }
        As::Equations => {
            let form = if args.json { Form::Json } else { Form::Text };
            for table in present.iter().filter_map(|kind| Table::read(&file, *kind)) {
                rows += tables::write(&file, &table, &filter, form, &mut out)?;
                let bad = table.functions().iter().filter_map(|f| f.error);
                // An error in a function that is not shown is not reported either.
                let shown = |address: u64| filter.shows(&(address..address.saturating_add(1)));
                let bad = bad
                    .filter(|(address, _)| shown(*address))
                    .map(|(address, reason)| format!("from {address:#x} on: {reason}"))
                    .chain(table.problems().iter().map(ToString::to_string));

                // All are counted, but a damaged table may have one for each of its functions.
                let room = problems.len() + PROBLEMS_MAX;
                for problem in bad {
                    problem_count += 1;
                    if problems.len() < room {
                        problems.push(problem);
                    }
                }
            }
        }
    }

    // The summary comes last, because only then the counts are known; it also shows that the output
    // is complete.
    if args.json {
        let line = Line::table_dump(&file, rows, problem_count, output::command_line());
        line.write(&mut out)?;
    }
    out.flush()?;

    // The rows that could be read are out before the command fails because of the others.
    for problem in &problems {
        tell!("{problem}");
    }

    // Tables that cannot be read in part are malformed input, which is an error.
    if problem_count > 0 {
        let parts = if problem_count == 1 { "part" } else { "parts" };
        bail!(
            "{}: {problem_count} {parts} of the tables cannot be read",
            args.path.printable()
        );
    }

    if rows == 0 && !filter.is_all() {
        tell!("no row for this function");
        return Ok(Status::NothingJudged);
    }
    Ok(Status::AsExpected)
}

/// Writes the code with the rules beside it.
fn listing(
    args: &Args,
    file: &File,
    present: &[TableKind],
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<Status> {
    // What of a table cannot be read is said beside its code.
    let instructions = tables::write_listing(file, present, filter, out)?;
    out.flush()?;
    if instructions == 0 {
        tell!("{} has no code of a function", args.path.printable());
        return Ok(Status::NothingJudged);
    }
    Ok(Status::AsExpected)
}

/// The tables that were asked for.
fn kinds(args: &Args) -> Result<Vec<TableKind>> {
    let known = args.form.kinds();
    if args.table.is_empty() {
        return Ok(known.to_vec());
    }
    let asked: Vec<TableKind> = args.table.iter().map(|t| t.kind()).collect();
    if let Some(kind) = asked.iter().find(|kind| !known.contains(kind)) {
        let (kind, form) = (kind.as_str(), args.form.as_str());
        let names: Vec<&str> = known.iter().map(|kind| kind.as_str()).collect();
        let names = names.join(" and ");
        bail!("--as {form} shows {names} only; leave it out for {kind}");
    }
    Ok(asked)
}

fn has(file: &File, kind: TableKind) -> bool {
    let section = kind.section();
    section.is_some_and(|section| file.image().section(section).is_some())
}

fn filter(args: &Args, file: &File) -> Result<Filter> {
    let Some(name) = &args.function else {
        return Ok(Filter::ALL);
    };
    match functions::ranges(file, name) {
        Ok(ranges) => Ok(Filter::ranges(ranges)),
        Err(similar) => {
            let path = args.path.printable();
            let hint = question_among(&similar);
            bail!("{path} has no function {name}{hint}")
        }
    }
}

/// Says which tables are left out because they cannot be unpacked.
fn tell_damaged(file: &File, kinds: &[TableKind]) {
    for error in file.unpack_errors() {
        if kinds.iter().any(|k| k.section() == Some(error.section)) {
            tell!("{}: {error}", file.name());
        }
    }
}
