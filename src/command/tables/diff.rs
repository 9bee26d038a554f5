//! `tables diff`: where two tables disagree.

use super::super::output::{self, tell};
use super::super::status::Status;
use super::super::stdin;
use super::{TableName, open, tell_empty};
use anyhow::{Result, bail};
use clap::ValueEnum as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::diff::builds::{self, Builds};
use unwind_sim_tables::diff::{self, Input};
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{KINDS, Table};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::tables::{Compared, write_differences, write_differences_json};

/// Show where two tables of a file, or of two builds of a program, disagree about the CFA, the
/// return address or a callee-saved register.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
With one file, its tables are compared with its .eh_frame, or with TABLE. With two files, \
functions are matched by name and compared if their code is the same. What a format cannot \
express is counted as a loss. TABLE is eh_frame, debug_frame, sframe or orc.

Examples:
  unwind-sim tables diff corpus/sframe/t_2.46
  unwind-sim tables diff corpus/sframe/t_2.46:eh_frame \\
      corpus/sframe/t_2.46:sframe
  unwind-sim tables diff corpus/sframe/t_2.40:sframe corpus/sframe/t_2.46:sframe")]
pub(crate) struct Args {
    /// The file, and its first table; - for standard input.
    #[arg(value_name = "ELF[:TABLE]")]
    first: PathBuf,
    /// The second table, of the same file or of another.
    #[arg(value_name = "ELF[:TABLE]")]
    second: Option<PathBuf>,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
}

/// Takes the table off `ELF:TABLE`.
fn split(argument: &Path) -> (PathBuf, Option<TableKind>) {
    let name = argument.to_str().and_then(|text| text.rsplit_once(':'));
    let table = name.and_then(|(path, table)| {
        let table = TableName::from_str(table, false).ok()?;
        Some((PathBuf::from(path), table.kind()))
    });
    match table {
        Some((path, kind)) => (path, Some(kind)),
        None => (argument.to_owned(), None),
    }
}

fn has(file: &File, kind: TableKind) -> bool {
    let section = kind.section();
    section.is_some_and(|section| file.image().section(section).is_some())
}

/// The pairs of tables to compare.
fn pairs(
    files: [&File; 2],
    asked: [Option<TableKind>; 2],
    is_builds: bool,
) -> Vec<(TableKind, TableKind)> {
    let present = |i: usize| KINDS.into_iter().filter(move |kind| has(files[i], *kind));
    match asked {
        [Some(a), Some(b)] => vec![(a, b)],
        [Some(kind), None] | [None, Some(kind)] if is_builds => vec![(kind, kind)],
        [None, None] if is_builds => {
            let both = present(0).filter(|kind| has(files[1], *kind));
            both.map(|kind| (kind, kind)).collect()
        }
        [Some(kind), None] | [None, Some(kind)] => {
            let others = present(0).filter(|other| *other != kind);
            others.take(1).map(|other| (other, kind)).collect()
        }
        [None, None] => {
            let first = present(0).next();
            let others = present(0).skip(1);
            others.filter_map(|other| Some((first?, other))).collect()
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let (path, first) = split(&args.first);
    let path = stdin::named(path.into())?;
    let (other, second) = match &args.second {
        Some(second) => {
            let (other, second) = split(second);
            (stdin::named(other.into())?, second)
        }
        // One name: the tables of one file are compared with each other.
        None => (path.clone(), None),
    };

    let file = open(&path)?;
    // A file of two names is one build; the functions of two builds are matched by name.
    let found = (path.canonicalize(), other.canonicalize());
    let is_same = path == other || matches!(found, (Ok(path), Ok(other)) if path == other);
    let other = if is_same { None } else { Some(open(&other)?) };

    let files = [&file, other.as_ref().unwrap_or(&file)];
    let pairs = pairs(files, [first, second], other.is_some());
    let mut out = output::stdout();
    let mut status = Status::NothingJudged;
    let mut problems = 0;

    for (i, kinds) in pairs.iter().enumerate() {
        let tables = [
            read(files[0], kinds.0, &mut problems)?,
            read(files[1], kinds.1, &mut problems)?,
        ];
        let inputs = [0, 1].map(|i| Input {
            file: files[i],
            table: &tables[i],
        });

        let found = if other.is_some() {
            builds::diff(inputs[0], inputs[1])
        } else {
            Builds {
                diff: diff::diff(inputs[0], inputs[1]),
                ..Builds::default()
            }
        };

        if found.diff.contradicts() {
            status = Status::Difference.known();
        } else if found.diff.rows > 0 && status == Status::NothingJudged {
            status = Status::AsExpected;
        }

        let compared = Compared {
            inputs,
            found: &found,
            is_builds: other.is_some(),
        };
        if args.json {
            write_differences_json(&compared, &output::command_line(), &mut out)?;
        } else {
            if i > 0 {
                writeln!(out)?;
            }
            write_differences(&compared, &mut out)?;
        }
    }

    if !args.json && !pairs.is_empty() {
        writeln!(out, "\n{}", output::command_line())?;
    }

    out.flush()?;
    // An empty section is there but has no rows: without a word about it, the message would look
    // wrong.
    if pairs.is_empty() {
        tell!("{}: no two tables to compare", path.printable());
        for file in [Some(&file), other.as_ref()].into_iter().flatten() {
            tell_empty(file, |_| true);
        }
    }

    // Malformed parts are an error, but one that must not hide a difference that was found.
    if problems > 0 && status != Status::Difference {
        let parts = if problems == 1 { "part" } else { "parts" };
        bail!("{problems} {parts} of the tables cannot be read");
    }
    Ok(status)
}

/// Reads a table, and reports what is wrong with it.
fn read(file: &File, kind: TableKind, problems: &mut usize) -> Result<Table> {
    let Some(table) = Table::read(file, kind) else {
        bail!("{} has no {}", file.name(), kind.as_str());
    };
    for problem in table.problems() {
        tell!("{}: {problem}", file.name());
    }
    *problems += table.problems().len();
    Ok(table)
}
