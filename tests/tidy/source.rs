//! Rust files: their length, their headers, and forbidden words.

use crate::none;
use crate::repository::{File, files};

/// Files with more lines of code than this fail the test.
const LINES_MAX: usize = 600;
/// Files with more lines of code than this are only reported.
const LINES_AIM: usize = 300;
/// How many lines above an `unsafe` its reason may start.
const SAFETY_LINES_MAX: usize = 8;
/// Where `unsafe` is allowed: code that touches the machine, and mapped files.
const UNSAFE: [&str; 7] = [
    "emulator/native/",
    "crates/host/",
    "crates/recordings/src/mapped.rs",
    "crates/recordings/src/shrunk.rs",
    "benches/",
    "unwind/examples/",
    "tests/field/src/naked.rs",
];

/// Where bytes are written to standard output and standard error. All else goes through these, which
/// escape what is not printable.
const WRITES: [&str; 7] = [
    "emulator/src/linux/streams.rs",
    "crates/judge/src/own.rs",
    "crates/recordings/src/progress.rs",
    "crates/show/src/stepper/terminal.rs",
    "src/command/error_text.rs",
    "src/command/output.rs",
    "src/command/step/terminal.rs",
];
const STREAMS: [&str; 4] = ["print!(", "println!(", "io::stdout(", "io::stderr("];

/// Words that mark unfinished work. Split, because this file is checked, too.
const UNDONE: [&str; 6] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
    concat!("should_", "panic"),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
];

/// The lines of code in a file: neither blank nor a comment, which make it longer and easier to read.
fn lines_of_code(text: &str) -> usize {
    let lines = text.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[test]
fn files_are_short() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        let lines = lines_of_code(&text);
        if lines > LINES_MAX {
            faults.push(format!(
                "{path}: {lines} lines of code, more than {LINES_MAX}; divide it"
            ));
        } else if lines > LINES_AIM {
            println!("{path}: {lines} lines of code, more than the {LINES_AIM} we aim at");
        }
    }
    none(&faults);
}

#[test]
fn blank_lines_and_comments_are_not_code() {
    let text =
        "//! What it does.\n\nfn f() {\n    // A reason.\n    g();\n\n    h(); // and why\n}\n";
    assert_eq!(lines_of_code(text), 4);
}

#[test]
fn every_file_says_what_it_is_responsible_for() {
    let silent = files(".rs")
        .into_iter()
        .filter(|file| !file.text.starts_with("//!"));
    let faults = silent.map(|file| format!("{}: begins without `//!`", file.path));
    none(&faults.collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_undone() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        for (index, line) in text.lines().enumerate() {
            for word in UNDONE.iter().filter(|word| line.contains(**word)) {
                faults.push(format!("{path}:{}: `{word}`", index + 1));
            }
        }
    }
    none(&faults);
}

#[test]
fn the_program_writes_in_few_places() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        let is_program = path.starts_with("src/") || path.contains("/src/");
        let other = ["tests/", "fuzz/", "benches/"];
        let is_other = other.iter().any(|room| path.starts_with(room));
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        if !is_program || is_other || is_test || WRITES.contains(&path.as_str()) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (index, line) in code.lines().enumerate() {
            let is_code = !line.trim_start().starts_with("//");
            if is_code && STREAMS.iter().any(|stream| line.contains(stream)) {
                faults.push(format!(
                    "{path}:{}: writes by itself; use `tell!`",
                    index + 1
                ));
            }
        }
    }
    none(&faults);
}

/// The fields of `PathBuf` that a derived error shows as they are, by `Path::display`, which puts one character
/// in the place of bytes that are no UTF-8. `text` is the source of errors.
fn shown_paths(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for error in text.split("#[error(").skip(1) {
        let (message, fields) = error.split_once(")]").unwrap_or((error, ""));
        // Up to the end of the struct or variant.
        let fields = fields.split('}').next().unwrap_or_default();
        let shown = message.split('{').skip(1);
        for name in shown.filter_map(|rest| rest.split(['}', ':']).next()) {
            let is_path = fields.contains(&format!(" {name}: PathBuf"));
            if is_path && !name.is_empty() && !message.contains(&format!("{name} = ")) {
                found.push(name);
            }
        }
    }
    found
}

#[test]
fn errors_show_the_bytes_of_paths() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        for name in shown_paths(&text) {
            faults.push(format!(
                "{path}: `{{{name}}}` of an error is a path; use `printable()`"
            ));
        }
    }
    none(&faults);
}

#[test]
fn a_path_that_an_error_shows_is_found() {
    let error = |message: &str| {
        format!("#[error({message})]\nOne {{\n    /// The file.\n    path: PathBuf,\n}},")
    };
    assert_eq!(shown_paths(&error("\"{path}: bad\"")), ["path"]);
    let none: [&str; 0] = [];
    let written = "\"{path}: bad\",\n path = path.printable()\n";
    assert_eq!(shown_paths(&error(written)), none);
    assert_eq!(shown_paths(&error("\"{}: bad\", path.printable()")), none);
}

#[test]
fn unsafe_stands_where_it_may_and_says_why() {
    let mut faults = Vec::new();
    for File { path, text } in files(".rs") {
        let lines: Vec<&str> = text.lines().collect();
        let places = (0..lines.len()).filter(|&index| has_unsafe(lines[index]));
        for index in places {
            let place = format!("{path}:{}", index + 1);
            if !UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
                faults.push(format!("{place}: `unsafe` is only allowed in {UNSAFE:?}"));
            }
            let above = &lines[index.saturating_sub(SAFETY_LINES_MAX)..=index];
            if !above
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
            {
                faults.push(format!(
                    "{place}: `unsafe` without a `// SAFETY:` line above it"
                ));
            }
        }
    }
    none(&faults);
}

/// Whether the code of `line` contains the keyword, outside of comments, quotes and longer words.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let outside: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
    outside.split(|c| !is_word(c)).any(|word| word == "unsafe")
}

#[test]
fn the_keyword_is_found_in_code_only() {
    for line in [
        "unsafe {",
        "let a = unsafe { f() };",
        "pub unsafe fn f() {",
        "(unsafe{a})",
    ] {
        assert!(has_unsafe(line), "{line}");
    }
    let quoted = format!("f({:?})", "unsafe");
    for line in [
        "// unsafe",
        "a(); // unsafe",
        "#![forbid(unsafe_code)]",
        &quoted,
    ] {
        assert!(!has_unsafe(line), "{line}");
    }
}
