//! `tables`: unwind tables without running the program. Each of its subcommands is a file.

mod check;
mod convert;
mod diff;
mod dump;
mod generate;
mod merge;
mod sweep;
mod written;

use super::status::Status;
use crate::command::output::tell;
use anyhow::Result;
use unwind_sim_tables::file::File;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::tables::open::open;

/// Unwind tables, without running the program: show, compare, prove, convert, generate and
/// merge them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim tables dump ./prog --function main
  unwind-sim tables dump /usr/bin/git --as readelf
  unwind-sim tables diff corpus/sframe/t_2.46
  unwind-sim tables check /usr/bin/git
  unwind-sim tables convert /usr/bin/git --to sframe-v3 -o git
  unwind-sim tables generate module.ko --to orc:6.4 -o new.ko
  unwind-sim tables merge program -o merged")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Dump(dump::Args),
    Diff(diff::Args),
    Check(check::Args),
    Convert(convert::Args),
    Generate(generate::Args),
    Merge(merge::Args),
}

/// `--table`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum TableName {
    EhFrame,
    DebugFrame,
    Sframe,
    Orc,
}

impl TableName {
    fn kind(self) -> TableKind {
        match self {
            TableName::EhFrame => TableKind::EhFrame,
            TableName::DebugFrame => TableKind::DebugFrame,
            TableName::Sframe => TableKind::Sframe,
            TableName::Orc => TableKind::Orc,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    match &args.command {
        Command::Dump(args) => dump::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Check(args) => check::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Merge(args) => merge::run(args),
    }
}

/// Says which of the tables that are `asked` for have no bytes, and returns their number. They are
/// not malformed.
fn tell_empty(file: &File, asked: impl Fn(SectionKind) -> bool) -> usize {
    let empty = file.empty_tables().iter();
    let empty: Vec<SectionKind> = empty.copied().filter(|kind| asked(*kind)).collect();
    for section in &empty {
        let (name, section) = (file.name(), section.as_str());
        tell!("{name}: {section} is empty: a table of no function");
    }
    empty.len()
}
