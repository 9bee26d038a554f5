//! Runs every command in the README and the pages as written.
//!
//! In a `sh` block each line is a command. In a `console` block commands start with `$ `, and the
//! lines below are exactly what they print to standard output; a line `...` matches any lines. A
//! command ends with status 0, or as a comment after it says: `# exit status 1`. Where the status depends
//! on the machine, a line `<!-- exit status 0 or 1 -->` right before the block says so, which readers do not
//! see. The blocks of one page run in order, in one copy of the repository.
//!
//! `INSTA_UPDATE=always cargo test --test suite docs_commands` writes into the pages what their commands
//! print now, except where a line `...` stands, and the names of the reason codes into the lists and headings
//! that have them.

mod codes;
mod drawings;
mod reader;
mod steps;

use crate::common::tools::is_missing;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use steps::{matches, steps, with_output};

/// Commands that are not run here. `.ci/run` or another test runs the first ones; the others would
/// rebuild everything or need the network.
const NOT_RUN: [&str; 12] = [
    ".ci/run",
    "cargo test",
    "cargo run --example frame_pointer",
    "cargo run --release -p unwind-sim-fuzz",
    "cargo bench",
    "cargo build",
    "cargo install",
    "cargo mutants",
    "cargo +nightly fuzz",
    "git clone",
    "cd unwind-sim",
    "tests/mutants/draw.py",
];

/// How the pages call the binary, before its arguments.
const BY_CARGO: &str = "cargo run -- ";

/// Commands that need ptrace.
const TRACES: [&str; 3] = [
    "unwind-sim record",
    "unwind-sim cases run",
    "unwind-sim lockstep",
];

/// The folders of the repository that commands use. Others would be most files of a copy.
const USED: [&str; 4] = ["corpus", "docs", "examples", "tests"];

/// Folders of these that commands only read: one link each in the copy of a page.
const ONLY_READ: [&str; 6] = [
    "corpus/errors",
    "corpus/field",
    "corpus/perfdata",
    "corpus/scenarios",
    "docs",
    "tests",
];

/// Parts of commands that need another program, and that program.
const NEEDS: [(&str, &str); 1] = [("cmd:examples/own-unwinders/fp.py", "python3")];

/// Gives each file of a folder, and of those of its folders that `is_wanted`, to `place`, with its
/// place below another folder.
fn each_file(
    from: &Path,
    to: &Path,
    is_wanted: &dyn Fn(&Path) -> bool,
    place: &dyn Fn(&Path, &Path) -> std::io::Result<()>,
) {
    std::fs::create_dir_all(to).expect("a folder of the copy");
    for entry in std::fs::read_dir(from).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("the kind of the entry");
        if kind.is_dir() && is_wanted(&path) {
            each_file(&path, &copied, is_wanted, place);
        } else if kind.is_file() {
            // Links are there for the archives of packages.
            place(&path, &copied).expect("a file of the copy");
        }
    }
}

/// The one copy of the repository that tests which run at the same time share: to make and delete
/// thousands of files for each page took longer than its commands.
fn shared_copy() -> Arc<tempfile::TempDir> {
    static SHARED: Mutex<Weak<tempfile::TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let directory = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let is_wanted = |folder: &Path| {
            let below = folder.strip_prefix(top).unwrap_or(folder);
            USED.iter().any(|used| below.starts_with(used))
        };
        each_file(top, directory.path(), &is_wanted, &|from, to| {
            std::fs::copy(from, to).map(drop)
        });
        *shared = Arc::downgrade(&directory);
        directory
    })
}

/// Whether pages are rewritten instead of compared.
fn is_updating() -> bool {
    std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always")
}

/// A copy of the repository.
struct Repository {
    directory: tempfile::TempDir,
    /// Whose files its files are.
    _shared: Arc<tempfile::TempDir>,
}

impl Repository {
    fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// A copy of the repository, of links to the shared one: a command that changes a file in place
/// changes it for the pages that are checked at the same time, but not in the repository.
fn repository() -> Repository {
    let shared = shared_copy();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let only_read = ONLY_READ.map(|folder| shared.path().join(folder));
    let is_wanted = |folder: &Path| !only_read.iter().any(|other| other == folder);
    each_file(shared.path(), directory.path(), &is_wanted, &|from, to| {
        std::fs::hard_link(from, to)
    });
    for folder in ONLY_READ {
        let link = directory.path().join(folder);
        std::os::unix::fs::symlink(shared.path().join(folder), link).expect("a link");
    }
    Repository {
        directory,
        _shared: shared,
    }
}

/// Runs the commands of a page in a copy of the repository, which is made for the first of them.
/// Returns what differs.
#[must_use]
fn faults_of(name: &str, copy: &OnceCell<Repository>) -> Vec<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut page = std::fs::read_to_string(top.join(name)).expect("the page");
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_unwind-sim"));
    let binaries = binary.parent().expect("the folder of the binary").display();

    // The program that was built now comes first.
    let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());

    let mut faults = Vec::new();
    let mut printed_now = Vec::new();
    for step in steps(&page) {
        let command = step.command.replace(BY_CARGO, "unwind-sim ");
        if NOT_RUN.iter().any(|prefix| command.starts_with(prefix)) {
            continue;
        }

        let traces = TRACES.iter().any(|prefix| command.contains(prefix));
        if traces && let Some(reason) = crate::common::no_ptrace() {
            crate::common::skip::skip(&format!("docs_commands: {name}: {command}"), reason);
            continue;
        }

        let other = NEEDS.iter().find(|(text, _)| command.contains(text));
        if let Some((text, tool)) = other
            && is_missing(&format!("docs_commands: {name}: {text}"), tool)
        {
            continue;
        }

        let run = Command::new("bash")
            .args(["-c", &command])
            .current_dir(copy.get_or_init(repository).path())
            .env("PATH", &path)
            // Pages show the output without colours.
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

        let printed = String::from_utf8_lossy(&run.stdout).trim_end().to_owned();
        let given: Vec<&str> = printed.lines().collect();
        if let Some(output) = &step.output {
            let mut stated = output.clone();

            // Empty lines before the fence are none of the output.
            while stated.last().is_some_and(|line| line.is_empty()) {
                stated.pop();
            }

            // A page with `...` shows only parts, so its output cannot be replaced by what is
            // printed now.
            let is_whole = !stated.iter().any(|line| line == "...");
            if !matches(&stated, &given) && is_whole && is_updating() {
                printed_now.push((step, printed));
            } else if !matches(&stated, &given) {
                faults.push(format!("{place}\nprints\n{printed}"));
            }
        }
    }
    // From the last one, so that the lines of those above stay where they are.
    for (step, printed) in printed_now.iter().rev() {
        page = with_output(&page, step, &printed.lines().collect::<Vec<_>>());
    }
    if !printed_now.is_empty() {
        std::fs::write(top.join(name), page).expect("the page is written");
    }
    faults
}

/// The pages in `folder`, but not those below it.
fn pages(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let names = entries.expect(folder).flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no page in {folder}");
    names
}

/// Checks pages, each in a copy of the repository of its own.
fn check(pages: &[String]) {
    let faults: Vec<String> = pages
        .iter()
        .flat_map(|name| faults_of(name, &OnceCell::new()))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

/// Checks the pages of a part of the book. They share a copy of the repository, since there are many
/// and they write nothing that the others read.
fn check_chapters(folder: &str) {
    let copy = OnceCell::new();
    let faults: Vec<String> = pages(folder)
        .iter()
        .flat_map(|name| faults_of(name, &copy))
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

#[test]
fn readme() {
    check(&["README.md".into()]);
}

#[test]
fn contributing() {
    check(&["CONTRIBUTING.md".into(), "ARCHITECTURE.md".into()]);
}

/// Each part takes as long as the longest test elsewhere.
const DOCS_PARTS: usize = 4;

fn check_docs(part: usize) {
    let pages = pages("docs").into_iter();
    check(&pages.skip(part).step_by(DOCS_PARTS).collect::<Vec<_>>());
}

#[test]
fn docs_first() {
    check_docs(0);
}

#[test]
fn docs_second() {
    check_docs(1);
}

#[test]
fn docs_third() {
    check_docs(2);
}

#[test]
fn docs_fourth() {
    check_docs(3);
}

#[test]
fn book() {
    check_chapters("docs/book/src");
}

#[test]
fn reason_codes() {
    codes::check_headings();
    check_chapters("docs/book/src/codes");
}
