//! `generate`: manual pages, shell completions, JSON schema.

use super::status::Status;
use super::{man, output};
use anyhow::{Context, Result, bail};
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_recordings::printable::PrintableName as _;

/// The program, as shells know it.
const NAME: &str = "unwind-sim";

/// What to generate.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// The manual page, in roff; with --folder, one for each subcommand, too.
    Man,
    /// Completions for a shell.
    Completions,
    /// The JSON schema of the lines that --json writes.
    JsonSchema,
}

/// Generate the manual pages, shell completions or the JSON schema.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim generate man > unwind-sim.1
  unwind-sim generate man --folder man1
  unwind-sim generate completions --shell zsh > _unwind-sim
  unwind-sim generate json-schema")]
pub(crate) struct Args {
    /// What to generate.
    #[arg(value_enum)]
    what: What,
    /// For completions: the shell.
    #[arg(long, value_enum, default_value = "bash")]
    shell: Shell,
    /// For man: write the pages of the program and of all its subcommands to files in this folder,
    /// which is made if it is not there.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// `command` is the whole command line, without what is added to its help.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<Status> {
    if let Some(folder) = &args.folder {
        if !matches!(args.what, What::Man) {
            bail!("--folder is for `generate man`");
        }
        std::fs::create_dir_all(folder).with_context(|| folder.printable().to_string())?;
        for page in man::pages(command) {
            output::write_file(&folder.join(&page.file), &page.roff)?;
        }
        return Ok(Status::AsExpected);
    }

    // All of these are read by other programs, so bytes pass as they are.
    let mut out = output::raw_stdout();
    match args.what {
        What::Man => {
            let pages = man::pages(command);
            // Standard output takes one page, that of the program; --folder takes all.
            let first = pages.first().context("no page")?;
            out.write_all(&first.roff)?;
        }
        What::Completions => {
            out.write_all(&completions(args.shell, &mut command))?;
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
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match shell {
        Shell::Bash => for_bash(&script),
        Shell::Zsh => for_zsh(&script, command),
        Shell::Fish => for_fish(script, command),
        _ => script,
    };
    script.into_bytes()
}

/// clap_complete 4.6 names the state of a subcommand in two ways if the program's name has a dash,
/// and completes nothing behind it.
fn for_bash(script: &str) -> String {
    let dash = format!("{}__subcmd__", NAME.replace('-', "__subcmd__"));
    let underscores = format!("{}__subcmd__", NAME.replace('-', "__"));
    script.replace(&dash, &underscores)
}

/// An argument that is not an option, and for which names are offered.
struct Named {
    command: String,
    id: String,
    names: Vec<String>,
    /// Whether it may be a path, too.
    is_path: bool,
}

/// Those of the subcommands; nested subcommands have none.
fn named(command: &clap::Command) -> Vec<Named> {
    let mut found = Vec::new();
    for sub in command.get_subcommands() {
        for arg in sub.get_positionals() {
            let values = arg.get_possible_values();
            if !values.is_empty() {
                let path = std::any::TypeId::of::<PathBuf>();
                found.push(Named {
                    command: sub.get_name().to_owned(),
                    id: arg.get_id().to_string(),
                    names: values.iter().map(|v| v.get_name().to_owned()).collect(),
                    is_path: arg.get_value_parser().type_id() == path,
                });
            }
        }
    }
    found
}

/// clap_complete 4.6 offers either names or files.
fn for_zsh(script: &str, command: &clap::Command) -> String {
    let paths: Vec<Named> = named(command).into_iter().filter(|n| n.is_path).collect();
    let line = |line: &str| {
        for named in &paths {
            let names = format!(":({})'", named.names.join(" "));
            let starts = [
                format!("'::{} -- ", named.id),
                format!("':{} -- ", named.id),
            ];
            if starts.iter().any(|start| line.starts_with(start)) && line.contains(&names) {
                let both = format!(
                    ":{{_alternative \"names:name:({})\" \"files:file:_files\"}}'",
                    named.names.join(" ")
                );
                return line.replace(&names, &both) + "\n";
            }
        }
        format!("{line}\n")
    };
    script.lines().map(line).collect()
}

/// clap_complete 4.6 offers no names for arguments that are not options.
fn for_fish(mut script: String, command: &clap::Command) -> String {
    let function = NAME.replace('-', "_");
    for named in named(command) {
        let no_files = if named.is_path { "" } else { " -f" };
        script += &format!(
            "complete -c {NAME} -n \"__fish_{function}_using_subcommand {}\"{no_files} -a \"{}\"\n",
            named.command,
            named.names.join(" ")
        );
    }
    script
}
