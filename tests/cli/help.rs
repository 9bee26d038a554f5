//! Help texts, and the output of `generate`.

use crate::cli::{ends_with, snapshot};
use unwind_sim_unwind::verdict::Verdict;

/// The subcommands listed by `--help`.
fn subcommands() -> Vec<String> {
    let help = ends_with(0, &["--help"]);
    let list = help.split("\nCommands:\n").nth(1).expect("commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Continuation lines of descriptions are indented further.
    let first = lines.filter_map(|line| line.strip_prefix("  "));
    let first = first.filter(|line| !line.starts_with(' '));
    let names = first.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_help_text() {
    snapshot("help", &["--help"]);
    let subcommands = subcommands();
    assert!(subcommands.len() >= 10, "{subcommands:?}");
    for name in &subcommands {
        snapshot(&format!("help-{name}"), &[name, "--help"]);
    }
}

#[test]
fn every_help_has_an_example_that_names_its_command() {
    for name in subcommands() {
        let help = ends_with(0, &[&name, "--help"]);
        let examples = help.split("\nExamples:\n").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("unwind-sim {name}")), "{name}");
        let short = ends_with(0, &[&name, "-h"]);
        assert!(short.lines().count() <= help.lines().count());
    }
}

#[test]
fn the_letters_of_the_matrix_are_in_its_help() {
    let help = ends_with(0, &["compare", "--help"]);
    for (letter, word) in Verdict::WORDS {
        let named = |line: &str| {
            let mut words = line.split_whitespace();
            let first = words.next() == Some(word);
            first && words.next().is_some_and(|short| short.starts_with(letter))
        };
        assert!(help.lines().any(named), "{word} {letter}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let version = format!("unwind-sim {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(ends_with(0, &["--version"]), version);
}

#[test]
fn the_man_page_has_every_command() {
    let man = ends_with(0, &["generate", "man"]);
    assert!(man.contains(".TH unwind-sim"), "{man}");
    for name in subcommands() {
        let roff = name.replace('-', "\\-");
        assert!(man.contains(&format!("unwind\\-sim\\-{roff}(1)")), "{name}");
    }
}

#[test]
fn completions_have_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = ends_with(0, &["generate", "completions", "--shell", shell]);
        for name in subcommands() {
            assert!(text.contains(&name), "{shell}: {name}");
        }
    }
}
