//! Names, paths and words that control a terminal go through every command and view. None reaches a
//! person.

mod files;
mod views;

use crate::cli::help::{commands, values};
use crate::cli::tool;
use crate::common::skip::skip;
use crate::common::tools::{has_no_terminals, is_missing};
use files::Files;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use unwind_sim_judge::shell::quoted;
use unwind_sim_unwind::printable::is_printable;
use views::{FOR_PROGRAMS, FORMS, VIEWS};

/// OSC, SGR, C1, bidi, invisible, a line separator, DEL, and a line that is not ours.
const WORD: &str = "\x1b]0;x\x07\x1b[31m\u{9b}1m\u{202e}\u{200b}\u{2028}\x7f\r\nFORGED\t";
/// The start of a line that only a name can have made.
const FORGED: &str = "FORGED";

/// What is wrong with an output.
fn fault(output: &[u8], may_be_coloured: bool) -> Option<String> {
    let mut text = match std::str::from_utf8(output) {
        Ok(text) => text.to_owned(),
        Err(error) => return Some(excerpt(output, error.valid_up_to())),
    };

    // Colours of our own are none of the text's.
    if may_be_coloured {
        for colour in 0..100 {
            text = text.replace(&format!("\x1b[{colour}m"), "");
        }
    }

    let is_json = |at: usize| {
        text[..at]
            .rsplit('\n')
            .next()
            .unwrap_or(&text)
            .starts_with('{')
    };

    let bad = |&(at, c): &(usize, char)| match c {
        // A line break of the hostile text, or a tab of it, stands beside its last word.
        '\n' => text[at + 1..].starts_with(FORGED),
        '\t' => text[..at].ends_with(FORGED),
        // What JSON does not need to escape is escaped where a person reads it.
        c => !is_printable(c) && !is_json(at),
    };

    let (at, _) = text.char_indices().find(bad)?;
    Some(excerpt(text.as_bytes(), at))
}

/// The bytes around a place, so that a person can read them.
fn excerpt(bytes: &[u8], at: usize) -> String {
    let part = &bytes[at.saturating_sub(60)..bytes.len().min(at + 30)];
    part.escape_ascii().to_string()
}

/// Runs a command with these words, and adds what is wrong with its output.
fn check(files: &Files, words: &[&str], color: &str, faults: &mut Vec<String>) {
    let args: Vec<OsString> = words.iter().map(|word| files.argument(word)).collect();
    // The title is printed by this test, so it must not be hostile itself.
    let title = words.join(" ").escape_debug().to_string();

    let mut command = tool(&[]);
    if !words.contains(&"--color") {
        // Colour needs escape sequences of our own, which must be told from those of the input.
        command.args(["--color", color]);
    }
    let output = command.args(&args).stdin(Stdio::null()).output();
    let output = output.expect("the tool runs");

    // Above 100, or none, is a panic or a signal.
    let status = output.status.code();
    if status.is_none_or(|status| status > 100) && !words.contains(&"@gone") {
        faults.push(format!("{title}: {:?}", output.status));
    }

    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if let Some(fault) = fault(bytes, color == "always") {
            faults.push(format!("{title} ({color}), {name}: {fault}"));
        }
    }

    for line in output.stdout.split(|&byte| byte == b'\n') {
        // Hostile text may not break out of a string.
        let is_json = words.contains(&"--json") && !line.is_empty();
        if is_json && serde_json::from_slice::<serde_json::Value>(line).is_err() {
            faults.push(format!("{title}: not JSON: {}", line.escape_ascii()));
        }
    }
}

#[test]
fn hostile_text_reaches_nobody() {
    let files = match Files::make() {
        Ok(files) => files,
        Err(_) => return skip("hostile_text_reaches_nobody", "no C compiler that links"),
    };

    let mut faults = Vec::new();
    // Colour adds escape sequences, between which hostile ones could pass.
    for color in ["never", "always"] {
        for view in VIEWS {
            let words: Vec<&str> = view.split(' ').collect();
            check(&files, &words, color, &mut faults);
        }

        // Every form of the output, except those that only programs read.
        for (command, option, file) in FORMS {
            for value in values(command, option) {
                if !FOR_PROGRAMS.contains(&value.as_str()) {
                    let words = [command, &[option, value.as_str(), file][..]].concat();
                    check(&files, &words, color, &mut faults);
                }
            }
        }

        // An unwinder that is a process: its words, what it answers, and its standard error.
        let script = files.path("unwinder");
        let plain = files.folder.parent().expect("a folder").join("unwinder");
        fs::copy(script, &plain).expect("a script");
        let cmd = format!("cmd:{} '{WORD}'", plain.display());
        let gone = format!("cmd:/{WORD}");
        for cmd in [&cmd, &gone] {
            for command in ["replay", "compare", "explain", "doctor"] {
                check(&files, &[command, "@trace", "-u", cmd], color, &mut faults);
            }
        }
    }

    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// JSON has every name as it is, on a pipe and where it is escaped.
#[test]
fn json_has_the_exact_names() {
    let Ok(files) = Files::make() else {
        return skip("json_has_the_exact_names", "no C compiler that links");
    };
    let words = ["--json", "@program"].map(|word| files.argument(word));
    for command in ["dump", "check"] {
        let mut tool = tool(&["tables", command]);
        let output = tool.args(&words).output().expect("the tool runs");
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let names: Vec<String> = lines
            .filter_map(|line: serde_json::Value| Some(line["function"].as_str()?.to_owned()))
            .collect();
        let exact = format!("{WORD}\u{fffd}");
        assert!(names.contains(&exact), "{command}: {names:?}");
    }
}

/// A terminal has a person in front of it, whatever the format is for.
#[test]
fn on_a_terminal_no_format_passes_hostile_text() {
    const NAME: &str = "on_a_terminal_no_format_passes_hostile_text";
    if has_no_terminals(NAME) || is_missing(NAME, "script") {
        return;
    }
    let Ok(files) = Files::make() else {
        return skip(NAME, "no C compiler that links");
    };

    let views = [
        "perf script -i @perf.data",
        "perf script -i @perf.data --header --ns",
        "perf script -i @perf.data --format folded",
        "perf script -i @perf.data --format speedscope",
        "perf script -i @perf.data --format pprof",
        "replay @perf.data --format folded",
        "replay @perf.data --json",
        "tables dump @program --json",
        "tables check @program --sarif",
        "verify --json -- @program",
        "step @perf.data --json",
    ];

    let mut faults = Vec::new();
    for view in views {
        let args = view.split(' ').map(|word| files.argument(word));
        let words = std::iter::once(env!("CARGO_BIN_EXE_unwind-sim").into()).chain(args);
        let command: Vec<String> = words.map(quoted).collect();

        let mut script = Command::new("script");
        // The command is read by the user's shell.
        script.env("SHELL", "/bin/bash").env("NO_COLOR", "1");
        let args = ["-q", "-e", "-c", &command.join(" "), "/dev/null"];
        let output = script.args(args).stdin(Stdio::null()).output();
        let output = output.expect("script runs").stdout;
        // A command that fails at once would print nothing that is hostile, and pass.
        assert!(output.len() > 20, "{view}: {}", output.escape_ascii());

        // The terminal ends lines with both; progress is ours.
        let text = String::from_utf8_lossy(&output).replace("\r\n", "\n");
        let text = text.replace("\r\x1b[K", "").replace("\x1b[K", "");
        let bad = |c: char| !is_printable(c) && !matches!(c, '\n' | '\t');
        if let Some(at) = text.find(bad) {
            faults.push(format!("{view}: {}", excerpt(text.as_bytes(), at)));
        }
    }

    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_command_is_given_hostile_text() {
    let all = commands();
    let is_group = |command: &Vec<String>| {
        all.iter()
            .any(|other| other.len() > command.len() && other.starts_with(command))
    };
    let leaves = all.iter().filter(|command| !is_group(command));
    let given: BTreeSet<Vec<&str>> = VIEWS.iter().map(|view| view.split(' ').collect()).collect();
    let missing: Vec<_> = leaves
        .filter(|command| {
            let is_it = |words: &Vec<&str>| {
                words.len() >= command.len() && command.iter().zip(words).all(|(a, b)| a == b)
            };
            !given.iter().any(is_it)
        })
        .collect();
    assert!(missing.is_empty(), "give them hostile text: {missing:?}");
}

/// A message that loses a byte of a name does not say which file is meant.
#[test]
fn no_byte_of_a_name_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(OsStr::from_bytes(b"a\xffb"));
    fs::write(&path, b"\x7fELF\x01\x01\x01").expect("the folder is writable");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    for words in [
        "tables dump",
        "tables check",
        "tables diff",
        "tables merge -o /dev/null",
        "tables convert --to sframe-v3 -o /dev/null",
        "emulate --",
        "verify --",
        "record --engine emulator -o /dev/null --",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = tool(&words).arg(&path).output().expect("the tool runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(r"/a\xffb"), "{words:?}: {said}");
    }
}
