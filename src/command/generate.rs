//! `generate`: man page, shell completions, JSON schema.

use super::output;
use super::status::Status;
use anyhow::Result;
use schemars::generate::SchemaSettings;
use std::io::Write;

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
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<Status> {
    let mut out = output::raw_stdout();
    match args.what {
        What::Man => clap_mangen::Man::new(command.clone()).render(&mut out)?,
        What::Completions => {
            clap_complete::generate(args.shell, command, "unwind-sim", &mut out);
        }
        What::JsonSchema => {
            // As lines are written: what may be left out is not required.
            let settings = SchemaSettings::draft2020_12().for_serialize();
            let generator = settings.into_generator();
            let schema = generator.into_root_schema_for::<unwind_sim_view::json::Line>();
            serde_json::to_writer_pretty(&mut out, &schema)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(Status::AsExpected)
}
