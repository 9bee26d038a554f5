//! The JSON Lines of `verify` and `tables check` as a stream of findings.

use serde_json::Value;
use std::io::{self, BufRead, Read};
use unwind_sim_judge::SCHEMA;

/// The length of a line, at most, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 24;

/// Why lines cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line is not a line of this tool.
    #[error(
        "line {line}: {what}; a page is made of the output of `verify --json` or `tables check --json`"
    )]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The last line is missing.
    #[error("it was cut short behind line {line}: the last line of {command} is missing")]
    Cut {
        /// The number of the last line.
        line: u64,
        /// The command that wrote it.
        command: &'static str,
    },
}

/// The command that wrote the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Verify,
    Check,
}

impl Command {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Command::Verify => "verify --json",
            Command::Check => "tables check --json",
        }
    }

    /// The command that writes lines of this type, unless both do.
    fn of(kind: &str) -> Option<Command> {
        match kind {
            "verified" | "contradiction" | "slot_store" | "jit" | "deadlock" => {
                Some(Command::Verify)
            }
            "wrong_row" | "index" | "unproven" | "function" | "unreadable" | "check" | "sweep" => {
                Some(Command::Check)
            }
            _ => None,
        }
    }
}

/// Calls `take` with the type and content of each line. Returns the command that wrote them.
///
/// # Errors
/// If the lines are of another command, or not whole.
pub(super) fn lines(
    input: &mut dyn BufRead,
    take: &mut dyn FnMut(&str, &Value),
) -> Result<Command, LinesError> {
    let mut command = None;
    let mut is_whole = false;
    let mut number = 0;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        // A line without end must not fill the memory.
        let mut limited = (&mut *input).take(LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }

        number += 1;
        let fail = |what: String| LinesError::Line { line: number, what };
        if bytes.len() as u64 == LINE_BYTES_MAX {
            return Err(fail("it is too long".to_owned()));
        }

        // The first error decides: a line that ends early is a cut file only if lines before it
        // were read.
        let value: Value = match (serde_json::from_slice(&bytes), command) {
            (Ok(value), _) => value,
            // The piece of a line at the end of a file.
            (Err(error), Some(command)) if error.is_eof() => return Err(cut(number - 1, command)),
            (Err(error), _) => return Err(fail(format!("it is not JSON: {error}"))),
        };

        // Lines of another schema could have the same names with other meanings.
        if value["schema"].as_str() != Some(SCHEMA) {
            return Err(fail(format!("it is not a line of {SCHEMA}")));
        }

        let Some(kind) = value["type"].as_str() else {
            return Err(fail("it has no type".to_owned()));
        };

        // Summaries are lines of both commands.
        // The command is not stated anywhere: the types of the lines tell it.
        let its = match (Command::of(kind), kind) {
            (Some(its), _) => Some(its),
            (None, "summary") if is_summary_of_either(&value) => command.or(summary_of(&value)),
            _ => None,
        };

        let Some(its) = its else {
            return Err(fail(format!("it is of another command (`{kind}`)")));
        };

        // Two outputs in one file would be counted together, although their findings mean different
        // things.
        if command.is_some_and(|command| command != its) {
            return Err(fail(
                "it is of another command than the lines before".to_owned(),
            ));
        }

        command = Some(its);
        // The sums come last; of `tables check`, each file's sums are the end of its lines.
        is_whole = matches!(kind, "summary") || its == Command::Check && kind == "check";
        take(kind, &value);
    }

    // Without its sums a file may lack any number of findings, so it is refused, not shown in part.
    match command {
        None => Err(LinesError::Line {
            line: 1,
            what: "the file is empty".to_owned(),
        }),
        Some(command) if !is_whole => Err(cut(number, command)),
        Some(command) => Ok(command),
    }
}

fn cut(line: u64, command: Command) -> LinesError {
    LinesError::Cut {
        line,
        command: command.as_str(),
    }
}

/// The command that a summary is of.
fn summary_of(value: &Value) -> Option<Command> {
    if value.get("self_check_failures").is_some() {
        return Some(Command::Verify);
    }
    value.get("unreadable").map(|_| Command::Check)
}

fn is_summary_of_either(value: &Value) -> bool {
    summary_of(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Command, Vec<String>), String> {
        let mut kinds = Vec::new();
        let mut take = |kind: &str, _: &Value| kinds.push(kind.to_owned());
        let command = lines(&mut text.as_bytes(), &mut take).map_err(|e| e.to_string())?;
        Ok((command, kinds))
    }

    const TALLY: &str = "{\"type\":\"verified\",\"schema\":\"unwind-sim.v1\"}\n";
    const END: &str =
        "{\"type\":\"summary\",\"schema\":\"unwind-sim.v1\",\"self_check_failures\":0}\n";
    const CHECK: &str = "{\"type\":\"check\",\"schema\":\"unwind-sim.v1\",\"file\":\"a\"}\n";

    #[test]
    fn whole_outputs_are_read() {
        let (command, kinds) = read(&format!("{TALLY}{END}")).expect("verify");
        assert_eq!((command, kinds.len()), (Command::Verify, 2));
        let (command, _) = read(&format!("{CHECK}{CHECK}")).expect("tables check");
        assert_eq!(command, Command::Check);
    }

    #[test]
    fn other_and_cut_files_are_refused() {
        // Each text is a way in which a real file is damaged: empty, cut, mixed up, or of another
        // command.
        let both = format!("{TALLY}{END}");
        for (text, what) in [
            (String::new(), "line 1: the file is empty"),
            ("hello\n".to_owned(), "line 1: it is not JSON"),
            (
                "{}\n".to_owned(),
                "line 1: it is not a line of unwind-sim.v1",
            ),
            (TALLY.to_owned(), "it was cut short behind line 1"),
            (
                both[..both.len() - 20].to_owned(),
                "it was cut short behind line 1: the last line of verify --json is missing",
            ),
            (
                format!("{TALLY}{CHECK}"),
                "line 2: it is of another command",
            ),
            (
                TALLY.replace("verified", "chain"),
                "line 1: it is of another command (`chain`)",
            ),
            (
                END.replace("self_check_failures", "lost"),
                "line 1: it is of another command (`summary`)",
            ),
        ] {
            let told = read(&text).expect_err(what);
            assert!(told.starts_with(what), "{told}");
        }
    }
}
