//! Help texts, and the output of `generate`.

use crate::cli::{ends_with, root, run, snapshot, stderr};
use unwind_sim_unwind::verdict::Verdict;

/// The subcommands listed by the help of `path`, which is empty for the program.
fn subcommands_of(path: &[&str]) -> Vec<String> {
    let help = ends_with(0, &[path, &["--help"]].concat());
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
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

fn subcommands() -> Vec<String> {
    subcommands_of(&[])
}

/// The words of every command: none for the program, `compare`, `tables check`.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for name in subcommands() {
        let nested = subcommands_of(&[&name]);
        let nested = nested.into_iter().map(|below| vec![name.clone(), below]);
        all.extend(std::iter::once(vec![name.clone()]).chain(nested));
    }
    assert!(all.len() >= 36, "{all:?}");
    all
}

/// The possible values of an option, as the help of its command lists them.
pub(crate) fn values(command: &[&str], option: &str) -> Vec<String> {
    let help = ends_with(0, &[command, &["--help"]].concat());
    let text = help
        .split(&format!("\n      {option} <"))
        .nth(1)
        .unwrap_or_default();

    // Up to the next option.
    let own = text
        .lines()
        .skip(1)
        .take_while(|line| !line.trim_start().starts_with("--"));
    let own: Vec<&str> = own.map(str::trim_start).collect();

    // Values with a description have a line each, others are in one list.
    let list = own.iter().filter_map(|line| line.strip_prefix("- "));
    let mut values: Vec<String> = list
        .filter_map(|line| Some(line.split([':', ' ']).next()?.to_owned()))
        .collect();

    // A list that is longer than a line is broken anywhere between two values.
    let own = own.join(" ");
    let short = own
        .split_once("[possible values: ")
        .and_then(|(_, list)| list.split_once(']'));
    values.extend(
        short
            .into_iter()
            .flat_map(|(list, _)| list.split(", "))
            .map(str::to_owned),
    );

    assert!(values.len() > 1, "{command:?} {option}: {help}");
    values
}

/// The meanings of the exit statuses that a help text names.
fn statuses(help: &str) -> Vec<(&str, &str)> {
    let list = help.split("\nExit status:\n").nth(1).unwrap_or_default();
    let lines = list.lines().map(str::trim_start);
    let pairs = lines.map_while(|line| line.split_once(' '));
    pairs
        .map(|(status, of)| (status, of.trim_start()))
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

/// 80 columns, also on a wider terminal.
#[test]
fn every_help_fits_a_narrow_terminal_and_names_its_exit_statuses() {
    let mut faults = Vec::new();
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for option in ["--help", "-h"] {
            let help = ends_with(0, &[&words[..], &[option]].concat());
            let long = help.lines().filter(|line| line.chars().count() > 80);
            faults.extend(long.map(|line| format!("{words:?} {option}: {line}")));
            let named: Vec<&str> = statuses(&help).iter().map(|(status, _)| *status).collect();
            if !named.starts_with(&["0"]) || !named.contains(&"2") {
                faults.push(format!(
                    "{words:?} {option} names the exit statuses {named:?}"
                ));
            }
            let examples = help.split("\nExamples:\n").nth(1).unwrap_or_default();
            let examples = examples.lines().take_while(|line| !line.is_empty());
            // A line that was too long goes on at the margin.
            let broken = examples.filter(|line| !line.starts_with("  "));
            faults.extend(broken.map(|line| format!("{words:?}: a broken example: {line}")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_readme_has_the_exit_statuses_of_the_help() {
    let readme = std::fs::read_to_string(root("README.md")).expect("a page");
    let table = readme.split("\n| status | meaning |\n|---|---|\n").nth(1);
    let rows = table
        .expect("a table")
        .lines()
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<(&str, &str)> = rows
        .map(|row| {
            let row = row.trim_matches(['|', ' ']);
            row.split_once(" | ").expect("two cells")
        })
        .collect();
    assert_eq!(rows, statuses(&ends_with(0, &["--help"])));
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

/// Each page has its sections, refers to the pages next to it, and says what the help says.
#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().expect("a folder");
    // A folder that is not there yet.
    let folder = folder.path().join("share/man1");
    ends_with(
        0,
        &["generate", "man", "--folder", &folder.to_string_lossy()],
    );

    let page = |words: &[String]| {
        let name = [&["unwind-sim".to_owned()], words].concat().join("-");
        let text = std::fs::read_to_string(folder.join(format!("{name}.1")));
        (text.unwrap_or_else(|e| panic!("{name}: {e}")), name)
    };

    // In man pages a hyphen is escaped, or it may be typeset as a dash (man-pages(7)).
    let reference = |name: &str| format!("\n\\fB{}\\fR(1)", name.replace('-', "\\-"));

    let commands = commands();
    for words in &commands {
        let (text, name) = page(words);
        assert!(text.contains(&format!(".TH {name} 1")), "{name}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"] {
            assert!(
                text.contains(&format!(".SH {section}\n")),
                "{name}: {section}"
            );
        }

        let also = text.split(".SH \"SEE ALSO\"").nth(1).expect("a section");

        // A command and its subcommands refer to each other.
        if let Some((_, above)) = words.split_last() {
            let above = page(above);
            assert!(also.contains(&reference(&above.1)), "{name}: {also}");
            let see = above.0.split(".SH \"SEE ALSO\"").nth(1).expect("a section");
            assert!(see.contains(&reference(&name)), "{name}: {see}");
        }

        let shown: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();

        // Statuses are those of the help, in the same words.
        let help = ends_with(0, &shown);
        for (status, meaning) in statuses(&help) {
            let meaning = meaning.replace('-', "\\-").replace('\'', "\\*(Aq");
            let wanted = format!("\n\\fB{status}\\fR\n{meaning}\n");
            assert!(text.contains(&wanted), "{name}: {wanted}");
        }
    }

    // No page that belongs to no command.
    let files = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(files, commands.len());

    let refused = ["generate", "json-schema", "--folder", "x"];
    assert!(stderr(&run(&refused)).contains("--folder is for `generate man`"));
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
