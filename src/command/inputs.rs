//! Refuses a command line whose output is one of its inputs, before anything is read or written.
//!
//! Inputs that only the run finds, such as image files, are refused by
//! `unwind_sim_recordings::output_file`.

use anyhow::{Result, bail};
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::printable::PrintableName as _;

/// Options that name an output.
const OUTPUTS: [&str; 3] = ["output", "out", "print_schedule"];
/// What a program and its arguments are called; the first word is the program.
const PROGRAMS: [&str; 2] = ["program", "command"];
/// Commands that may write to the file that they read, as their help says.
const IN_PLACE: [&str; 3] = ["convert", "generate", "merge"];

/// # Errors
/// If a path of the command line is that of an output and of an input: the same file, by whatever name.
pub(crate) fn check(command: &Command, given: &ArgMatches) -> Result<()> {
    let (outputs, inputs): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|arg| {
            given
                .try_contains_id(arg.get_id().as_str())
                .unwrap_or(false)
        })
        .partition(|arg| OUTPUTS.contains(&arg.get_id().as_str()));

    for output in outputs.iter().flat_map(|arg| words(arg, given)) {
        // A terminal or a pipe can be both.
        let Some(written) = regular(Path::new(&output)) else {
            continue;
        };

        for arg in &inputs {
            // These commands read their input whole before they write.
            let is_in_place = IN_PLACE.contains(&command.get_name()) && arg.get_id() == "path";
            let mut paths = paths(arg, given).into_iter();
            // By device and inode: links and other spellings of a path are the same file.
            let same = |path: &PathBuf| regular(path).is_some_and(|read| id(&read) == id(&written));
            if !is_in_place && let Some(input) = paths.find(same) {
                let names = if input.as_os_str() == output {
                    String::new()
                } else {
                    format!(", as {}", input.printable())
                };
                bail!(
                    "{} is an input of this command{names}; name another file to write",
                    Path::new(&output).printable()
                );
            }
        }
    }
    Ok(())
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn regular(path: &Path) -> Option<Metadata> {
    std::fs::metadata(path).ok().filter(Metadata::is_file)
}

fn words(arg: &Arg, given: &ArgMatches) -> Vec<OsString> {
    let words = given.try_get_raw(arg.get_id().as_str()).ok().flatten();
    words.into_iter().flatten().map(OsStr::to_owned).collect()
}

/// The paths that an argument names; none if it names something else.
fn paths(arg: &Arg, given: &ArgMatches) -> Vec<PathBuf> {
    let is_path = arg.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    let words = words(arg, given);
    match PROGRAMS.contains(&arg.get_id().as_str()) {
        true => words
            .first()
            .and_then(|word| program(word))
            .into_iter()
            .collect(),
        false if is_path => words.into_iter().map(PathBuf::from).collect(),
        false => Vec::new(),
    }
}

/// The file of a program, as a shell finds it.
fn program(word: &OsStr) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().nth(1).is_some() {
        return Some(path.into());
    }
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(path));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every option that names a file to write is known here: they all have the letter `o`, or one of
    /// the names.
    #[test]
    fn outputs_are_known() {
        fn walk(command: &Command) {
            for arg in command.get_arguments() {
                if arg.get_short() == Some('o') {
                    assert!(OUTPUTS.contains(&arg.get_id().as_str()), "{arg:?}");
                }
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&crate::command::Cli::command());
    }
}
