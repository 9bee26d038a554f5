//! Subcommands: parsing, output and exit status. Nothing here knows how to unwind.

mod absent;
mod again;
mod args;
#[cfg(feature = "machine")]
mod boot;
#[cfg(feature = "machine")]
mod carried;
mod case_limits;
#[cfg(feature = "machine")]
mod cases;
#[cfg(feature = "machine")]
mod children;
mod compare;
#[cfg(feature = "serve")]
mod dap;
mod dashes;
mod demo;
mod doctor;
#[cfg(feature = "machine")]
mod emulate;
mod error_text;
mod escape;
mod explain;
#[cfg(feature = "machine")]
mod extract;
#[cfg(feature = "serve")]
mod gdbserver;
mod generate;
mod import;
mod inputs;
mod inspect;
#[cfg(all(feature = "machine", target_os = "linux", target_arch = "x86_64"))]
mod lockstep;
#[cfg(feature = "machine")]
mod machine;
mod man;
mod output;
mod paint;
#[cfg(feature = "perf")]
mod perf;
#[cfg(feature = "machine")]
mod record;
mod replay;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "machine")]
mod schedule;
mod scrub;
#[cfg(feature = "machine")]
mod states;
mod status;
mod statuses;
mod stdin;
#[cfg(feature = "machine")]
mod step;
mod suggest;
mod tables;
mod unwinders;
#[cfg(feature = "machine")]
mod verify;
mod words;

use again::Given;
use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::{tell, tell_text};
use status::{FAILED, Status};
use std::ffi::OsString;
use unwind_sim_recordings::{mapped, open};

/// Compare stack unwinders with the true call chain, and explain where they are wrong.
#[derive(Parser)]
#[command(
    name = "unwind-sim",
    version,
    propagate_version = true,
    after_help = EXAMPLES,
    max_term_width = HELP_COLUMNS
)]
struct Cli {
    /// When to use colour.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: output::Color,
    #[command(subcommand)]
    command: Command,
}

/// Help is as wide as the terminal, but not wider than this.
const HELP_COLUMNS: usize = 80;

const EXAMPLES: &str = "\
Examples:
  unwind-sim demo seed-004
  unwind-sim record --truth --from main --at every:100 -o trace.bin -- /bin/ls
  unwind-sim replay trace.bin --unwinder orc
  unwind-sim compare trace.bin";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    #[cfg(feature = "machine")]
    Record(record::Args),
    Import(import::Args),
    #[cfg(feature = "machine")]
    Extract(extract::Args),
    Scrub(scrub::Args),
    Inspect(inspect::Args),
    Replay(replay::Args),
    Compare(compare::Args),
    Doctor(doctor::Args),
    #[cfg(feature = "machine")]
    Verify(verify::Args),
    #[cfg(feature = "machine")]
    Emulate(emulate::Args),
    #[cfg(all(feature = "machine", target_os = "linux", target_arch = "x86_64"))]
    Lockstep(lockstep::Args),
    #[cfg(feature = "machine")]
    Cases(cases::Args),
    #[cfg(feature = "perf")]
    Perf(perf::Args),
    #[cfg(feature = "machine")]
    Step(step::Args),
    #[cfg(feature = "report")]
    Report(report::Args),
    #[cfg(feature = "serve")]
    Gdbserver(gdbserver::Args),
    #[cfg(feature = "serve")]
    Dap(dap::Args),
    Explain(explain::Args),
    Tables(tables::Args),
    Unwinders(unwinders::Args),
    Generate(generate::Args),
}

/// The definition of the command line: all subcommands and options.
pub fn definition() -> clap::Command {
    let mut tool = statuses::described(absent::named(Cli::command()));
    // Propagates the global options to the subcommands.
    tool.build();
    tool
}

/// Runs the command line `words`, of which the first is the program's name, and returns the exit
/// status.
///
/// It writes to standard output and standard error. Another one can be run afterwards, but not at the
/// same time.
pub fn run(words: Vec<OsString>) -> u8 {
    // Only a pointer is stored; the cases are loaded when a command first needs one.
    #[cfg(feature = "machine")]
    unwind_sim_judge::cases::carried::carry(carried::load);

    // What a command keeps is forgotten when the next one starts: tests run many in one process.
    words::begin(words.clone());
    unwind_sim_recordings::mapped::forget();

    status::begin();
    // Errors of the command line are told before what it says of colours is known.
    output::Color::Auto.apply();

    // The program that `record` runs may come without `--` before it.
    let tool = definition();
    let parsed = tool
        .clone()
        .try_get_matches_from(dashes::with_dashes(&tool, words.clone()));

    // The matches are kept beside the structs: commands that are printed for later repeat options
    // from them.
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Options that perf has and this command has not get a message of their own.
            #[cfg(feature = "perf")]
            if let Some(text) = perf::not_supported(&words, &error) {
                tell!("unwind-sim: {text}");
                return FAILED;
            }

            // Clap reports --help and --version as errors, too.
            if !error.use_stderr() {
                let _ = error.print();
                return Status::AsExpected.into();
            }

            let words = dashes::with_dashes(&tool, words);
            let parse = |words: Vec<String>| {
                let parsed = tool.try_get_matches_from(words);
                parsed.and_then(|matches| Cli::from_arg_matches(&matches))
            };
            error_text::tell_usage(&words, error, |words| parse(words).err());
            return FAILED;
        }
    };

    cli.color.apply();
    // From here on, no output may overwrite what the command opens.
    open::remember_inputs();

    // Subcommands are nested; the innermost has the arguments.
    let (mut inner, mut command) = (&matches, &tool);
    let mut path = Vec::new();
    while let Some((name, below)) = inner.subcommand() {
        inner = below;
        path.push(name);
        command = command.find_subcommand(name).unwrap_or(command);
    }

    let given = Given::new(&tool, inner);
    let result = inputs::check(command, inner).and_then(|()| cli.run(&given, &tool));
    // Whatever was found in a file that became shorter meanwhile means nothing.
    let result = mapped::check().map_err(Into::into).and(result);

    match result {
        // Status 3 looks like a failure to scripts, so it never comes without a reason.
        Ok(Status::NothingJudged) => {
            let why = statuses::nothing_judged(&path.join(" "));
            tell!("unwind-sim: exit status 3: {why}");
            Status::NothingJudged.into()
        }
        Ok(status) => status.into(),
        // As with `| head`: who stops reading has seen enough.
        Err(error) if output::is_closed_pipe(&error) => status::unread().into(),
        Err(error) => {
            tell_text(&format!("unwind-sim: {}\n", error_text::message(&error)));
            if let Err(error) = std::env::current_dir() {
                tell!(
                    "unwind-sim: the working folder cannot be found ({error}), so that no relative \
                     path leads anywhere; was it deleted? Change to one that exists"
                );
            }
            FAILED
        }
    }
}

impl Cli {
    /// Runs the subcommand.
    fn run(self, given: &Given<'_>, tool: &clap::Command) -> Result<Status> {
        match self.command {
            Command::Demo(args) => demo::run(args, tool),
            #[cfg(feature = "machine")]
            Command::Record(args) => record::run(&args),
            Command::Import(args) => import::run(&args, given),
            #[cfg(feature = "machine")]
            Command::Extract(args) => extract::run(&args),
            Command::Scrub(args) => scrub::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Compare(args) => compare::run(&args, given),
            Command::Doctor(args) => doctor::run(&args, given),
            #[cfg(feature = "machine")]
            Command::Verify(args) => verify::run(&args, given),
            #[cfg(feature = "machine")]
            Command::Emulate(args) => emulate::run(&args),
            #[cfg(all(feature = "machine", target_os = "linux", target_arch = "x86_64"))]
            Command::Lockstep(args) => lockstep::run(&args),
            #[cfg(feature = "machine")]
            Command::Cases(args) => cases::run(&args),
            #[cfg(feature = "perf")]
            Command::Perf(args) => perf::run(&args, given),
            #[cfg(feature = "machine")]
            Command::Step(args) => step::run(&args, given),
            #[cfg(feature = "report")]
            Command::Report(args) => report::run(&args),
            #[cfg(feature = "serve")]
            Command::Gdbserver(args) => gdbserver::run(&args),
            #[cfg(feature = "serve")]
            Command::Dap(args) => dap::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Tables(args) => tables::run(&args),
            Command::Unwinders(args) => unwinders::run(&args),
            Command::Generate(args) => generate::run(&args, Cli::command()),
        }
    }
}
