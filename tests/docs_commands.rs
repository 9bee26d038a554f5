//! Runs every command in the README and the pages as written.
//!
//! In a `sh` block each line is a command. In a `console` block commands start with `$ `, and the
//! lines below are exactly what they print to standard output; a line `...` matches any lines. A
//! command ends with status 0, or as a comment after it says: `# exit status 1`, `# exit status 0
//! or 1`. The blocks of one page run in order, in one copy of the repository.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands that are not run here. `.ci/run` or another test runs the first ones; the others would
/// rebuild everything or need the network.
const NOT_RUN: [&str; 11] = [
    ".ci/run",
    "cargo test",
    "cargo run --example frame_pointer",
    "cargo bench",
    "cargo build",
    "cargo install",
    "cargo mutants",
    "cargo +nightly fuzz",
    "git clone",
    "cd unwind-sim",
    "tests/mutants/draw.py",
];

/// How the pages call the release binary, before its arguments.
const BY_CARGO: &str = "cargo run --release -- ";

/// Commands that need ptrace.
const TRACES: [&str; 3] = [
    "unwind-sim record",
    "unwind-sim cases run",
    "unwind-sim lockstep",
];

#[derive(Debug, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    statuses: Vec<i32>,
    /// `None` in a `sh` block, which states no output.
    output: Option<Vec<String>>,
}

/// The commands of a page in order. A block may be indented, as in a list.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut block, mut inside, mut indent) = (None, false, 0);
    for (index, line) in page.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            block = Some(kind).filter(|kind| inside && ["sh", "console"].contains(kind));
            indent = line.len() - line.trim_start().len();
            continue;
        }
        let line = line.get(indent..).filter(|_| inside).unwrap_or_default();
        let command = match block {
            None => continue,
            Some("console") => line.strip_prefix("$ "),
            Some(_) => Some(line).filter(|line| !line.is_empty() && !line.starts_with('#')),
        };
        let console = block == Some("console");
        match (command, steps.last_mut()) {
            (Some(command), _) => {
                let (command, comment) = command.split_once(" # ").unwrap_or((command, ""));
                steps.push(Step {
                    line: index + 1,
                    command: command.trim().to_owned(),
                    statuses: statuses(comment.trim()),
                    output: console.then(Vec::new),
                });
            }
            (
                None,
                Some(Step {
                    output: Some(output),
                    ..
                }),
            ) if console => output.push(line.into()),
            (None, _) => {}
        }
    }
    steps
}

/// The statuses allowed by a comment: `exit status 1`, `exit status 0 or 1`.
fn statuses(comment: &str) -> Vec<i32> {
    match comment.strip_prefix("exit status ") {
        None => vec![0],
        Some(list) => list
            .split(" or ")
            .map(|n| n.parse().expect("an exit status"))
            .collect(),
    }
}

/// Whether `given` matches `stated`, in which `...` matches any lines.
fn matches(stated: &[String], given: &[&str]) -> bool {
    match stated.split_first() {
        None => given.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=given.len()).any(|skipped| matches(rest, &given[skipped..]))
        }
        Some((first, rest)) => match given.split_first() {
            Some((line, others)) => first.trim_end() == line.trim_end() && matches(rest, others),
            None => false,
        },
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder of the copy");
    for entry in std::fs::read_dir(from).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        if ["target", ".git", "fuzz"]
            .iter()
            .any(|skipped| name == *skipped)
        {
            continue;
        }
        if entry.file_type().expect("the kind of the entry").is_dir() {
            copy(&entry.path(), &to.join(&name));
        } else {
            std::fs::copy(entry.path(), to.join(&name)).expect("a file of the copy");
        }
    }
}

fn check_page(name: &str) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(top.join(name)).expect("the page");
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(top, directory.path());
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_unwind-sim"));
    let binaries = binary.parent().expect("the folder of the binary").display();
    let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());

    let mut faults = Vec::new();
    for step in steps(&page) {
        let command = step.command.replace(BY_CARGO, "unwind-sim ");
        if NOT_RUN.iter().any(|prefix| command.starts_with(prefix)) {
            continue;
        }
        let traces = TRACES.iter().any(|prefix| command.contains(prefix));
        if traces && let Some(reason) = common::no_ptrace() {
            common::skip::skip(&format!("docs_commands: {name}: {command}"), reason);
            continue;
        }
        let run = Command::new("bash")
            .args(["-c", &command])
            .current_dir(directory.path())
            .env("PATH", &path)
            .env("NO_COLOR", "1")
            .output()
            .expect("bash runs");
        let place = format!("{name}:{}: {}", step.line, step.command);
        if !run
            .status
            .code()
            .is_some_and(|code| step.statuses.contains(&code))
        {
            let errors = String::from_utf8_lossy(&run.stderr);
            faults.push(format!(
                "{place}\n{}, not {:?}\n{errors}",
                run.status, step.statuses
            ));
        }
        let printed = String::from_utf8_lossy(&run.stdout);
        let given: Vec<&str> = printed.trim_end().lines().collect();
        if let Some(mut stated) = step.output {
            while stated.last().is_some_and(|line| line.is_empty()) {
                stated.pop();
            }
            if !matches(&stated, &given) {
                faults.push(format!("{place}\nprints\n{printed}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

#[test]
fn readme() {
    check_page("README.md");
}

#[test]
fn contributing() {
    check_page("CONTRIBUTING.md");
    check_page("ARCHITECTURE.md");
}

#[test]
fn docs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let entries = std::fs::read_dir(folder).expect("docs").flatten();
    let mut names: Vec<_> = entries
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names.iter().filter(|name| name.ends_with(".md")) {
        check_page(&format!("docs/{name}"));
    }
}

#[test]
fn commands_are_found_with_what_they_print() {
    let page = "text\n```sh\na b # why\n\n# no command\nf # exit status 0 or 1\n```\n$ not\n\
                \x20 ```console\n  $ c\n  d\n  ...\n  $ e\n  ```\n```asm\n$ f\n```\n";
    let found = steps(page);
    let words: Vec<_> = found
        .iter()
        .map(|s| {
            (
                s.line,
                s.command.as_str(),
                s.statuses.as_slice(),
                s.output.as_deref(),
            )
        })
        .collect();
    let printed = ["d".to_owned(), "...".to_owned()];
    /// Line, command, statuses, output.
    type Stated<'a> = (usize, &'a str, &'a [i32], Option<&'a [String]>);
    let expected: [Stated<'_>; 4] = [
        (3, "a b", &[0], None),
        (6, "f", &[0, 1], None),
        (10, "c", &[0], Some(&printed)),
        (13, "e", &[0], Some(&[])),
    ];
    assert_eq!(words, expected);
}

#[test]
fn dots_stand_for_any_lines_and_nothing_else_does() {
    let stated = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&stated("a\n...\nd"), &["a", "b", "c", "d"]));
    assert!(matches(&stated("a\n...\nd"), &["a", "d"]));
    assert!(!matches(&stated("a\n...\nd"), &["a", "b"]));
    assert!(!matches(&stated("a"), &["a", "b"]));
    assert!(!matches(&stated("a\nb"), &["a"]));
    assert!(!matches(&stated(""), &["a"]));
}
