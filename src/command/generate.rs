//! `generate`: man page, shell completions, JSON schema.

use super::output;
use super::status::Status;
use anyhow::Result;
use clap_complete::Shell;
use std::io::Write;

/// The program, as shells know it.
const NAME: &str = "unwind-sim";

/// What to generate.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// The manual page, in roff.
    Man,
    /// Completions for a shell.
    Completions,
    /// The JSON schema of the lines that --json writes.
    JsonSchema,
}

/// Generate the man page, shell completions or the JSON schema.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim generate man > unwind-sim.1
  unwind-sim generate completions --shell zsh > _unwind-sim
  unwind-sim generate json-schema")]
pub(crate) struct Args {
    /// What to generate.
    #[arg(value_enum)]
    what: What,
    /// For completions: the shell.
    #[arg(long, value_enum, default_value = "bash")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<Status> {
    let mut out = output::raw_stdout();
    match args.what {
        What::Man => clap_mangen::Man::new(command.clone()).render(&mut out)?,
        What::Completions => {
            out.write_all(&completions(args.shell, command))?;
        }
        What::JsonSchema => {
            out.write_all(unwind_sim_view::json::JSON_SCHEMA.as_bytes())?;
        }
    }
    out.flush()?;
    Ok(Status::AsExpected)
}

fn completions(shell: Shell, command: &mut clap::Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, NAME, &mut script);
    if shell != Shell::Bash {
        return script;
    }
    // clap_complete 4.6 names the state of a subcommand in two ways if the program's name has a
    // dash, and completes nothing behind it.
    let dash = format!("{}__subcmd__", NAME.replace('-', "__subcmd__"));
    let underscores = format!("{}__subcmd__", NAME.replace('-', "__"));
    String::from_utf8_lossy(&script)
        .replace(&dash, &underscores)
        .into_bytes()
}
