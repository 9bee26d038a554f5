//! `record PROG` without `--`: the program starts at the first word that is not an option.

use clap::Command;
use std::ffi::{OsStr, OsString};

/// Inserts a missing `--` before the program of `record`. With `--engine gdb` nothing is inserted,
/// since options may follow the stub.
pub(crate) fn with_dashes(tool: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let Some(start) = after_record(tool, &words) else {
        return words;
    };
    let record = tool.find_subcommand("record");
    let (Some(record), false) = (record, names_gdb(&words[start..])) else {
        return words;
    };
    let Some(program) = first_plain(record, &words, start) else {
        return words;
    };
    let mut words = words;
    words.insert(program, "--".into());
    words
}

/// The index after the word `record`, if that is the subcommand.
fn after_record(tool: &Command, words: &[OsString]) -> Option<usize> {
    let at = first_plain(tool, words, 1)?;
    (words[at] == "record").then_some(at + 1)
}

fn names_gdb(words: &[OsString]) -> bool {
    let own = words.iter().take_while(|word| *word != "--");
    let own: Vec<&OsString> = own.collect();
    let pair = |pair: &[&OsString]| pair[0] == "--engine" && pair[1] == "gdb";
    own.iter().any(|word| *word == "--engine=gdb") || own.windows(2).any(pair)
}

/// The index of the first word from `start` on that is neither an option nor an option's value.
/// `None` if there is none, or if `--` comes first.
fn first_plain(command: &Command, words: &[OsString], start: usize) -> Option<usize> {
    let mut at = start;
    while let Some(word) = words.get(at) {
        let bytes = word.as_encoded_bytes();
        match bytes {
            b"--" => return None,
            [b'-', _, ..] => at += 1 + usize::from(takes_next(command, word)),
            _ => return Some(at),
        }
    }
    None
}

/// Whether the word after this option is its value.
fn takes_next(command: &Command, option: &OsStr) -> bool {
    let Some(option) = option.to_str() else {
        return false;
    };
    let found = command
        .get_arguments()
        .find(|arg| match option.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            // `-oFILE` includes its value.
            None => arg
                .get_short()
                .is_some_and(|short| option == format!("-{short}")),
        });
    found.is_some_and(|arg| arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_program_begins_at_the_first_word_that_is_no_option() {
        let mut tool = super::super::Cli::command();
        tool.build();

        let check = |line: &str, wanted: &str| {
            let words = line.split_whitespace().map(OsString::from).collect();
            let words = with_dashes(&tool, words);
            let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
            assert_eq!(words.join(" "), wanted);
        };

        check("t record ls", "t record -- ls");
        check(
            "t --color never record -o x --at every:9 --truth ls -o y",
            "t --color never record -o x --at every:9 --truth -- ls -o y",
        );
        check("t record -ox ls", "t record -ox -- ls");
        check("t record --at=call ls -l", "t record --at=call -- ls -l");

        // Nothing is inserted: there is a `--` already, there is no program, or the word is the
        // stub of gdb.
        for same in [
            "t record -o x -- ls a",
            "t record -o x -p 77",
            "t record --engine gdb host:1 --kernel v --at f",
            "t record host:1 --engine=gdb --kernel v",
            "t compare record ls",
            "t",
            "t record",
        ] {
            check(same, same);
        }
    }
}
