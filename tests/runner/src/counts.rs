//! What test programs print, passed on and counted.
//!
//! Not here: which programs there are to run.

use crate::skips::{Classes, Skip};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The results of all test programs so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    /// Names of the tests that passed, without their modules.
    passed_names: BTreeSet<String>,
    /// `PROGRAM: TEST`, or the program alone if it ended without a result.
    pub(crate) failed_tests: Vec<String>,
}

impl Counts {
    /// Runs one program, prints what it prints, and counts its tests.
    pub(crate) fn run(
        &mut self,
        name: &str,
        command: &mut Command,
        skips: &Path,
    ) -> Result<(), String> {
        let command = command.env(crate::SKIPS, skips).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
        let failed_before = self.failed_tests.len();

        // Bytes, because a test may print what is not UTF-8.
        let mut out = std::io::stdout().lock();
        for line in BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n') {
            let line = line.map_err(|e| format!("{name}: {e}"))?;
            // Whoever reads may leave; the tests go on for their exit status.
            let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
            self.line(name, &String::from_utf8_lossy(&line));
        }
        let status = child.wait().map_err(|e| format!("{name}: {e}"))?;

        // A program that was killed has no line for the test that it died in.
        if !status.success() && self.failed_tests.len() == failed_before {
            self.failed += 1;
            self.failed_tests.push(format!("{name}: {status}"));
        }
        Ok(())
    }

    /// Counts one line of a test program: `test NAME ... ok`, or `test result: ok. 5 passed; ..`.
    fn line(&mut self, program: &str, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed").unwrap_or(0);
            self.failed += number_before(result, " failed").unwrap_or(0);
            return;
        }
        let Some((test, outcome)) = line
            .strip_prefix("test ")
            .and_then(|l| l.rsplit_once(" ... "))
        else {
            return;
        };
        match outcome.split_whitespace().next() {
            Some("FAILED") => self.failed_tests.push(format!("{program}: {test}")),
            Some("ok") => {
                let name = test.rsplit("::").next().unwrap_or(test);
                self.passed_names.insert(name.to_owned());
            }
            _ => {}
        }
    }

    /// Whether tests ran and none failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && self.failed_tests.is_empty() && self.passed > 0
    }

    /// `2500 passed, 0 failed, 53 skipped (slow: 32, no perf events here: 14)`. A test that was
    /// skipped as a whole has passed for its program; here it has not.
    pub(crate) fn last_line(&self, classes: &Classes, skips: &[Skip]) -> String {
        let names: BTreeSet<&str> = skips.iter().map(|skip| skip.name.as_str()).collect();
        let whole = names
            .iter()
            .filter(|name| self.passed_names.contains(**name))
            .count() as u64;
        let why = match classes.sum_up(skips) {
            why if why.is_empty() => String::new(),
            why => format!(" ({why})"),
        };
        format!(
            "{} passed, {} failed, {} skipped{why}",
            self.passed.saturating_sub(whole),
            self.failed.max(self.failed_tests.len() as u64),
            names.len()
        )
    }
}

/// The number before `word`: 5 in `ok. 5 passed; 0 failed`.
fn number_before(text: &str, word: &str) -> Option<u64> {
    let (before, _) = text.split_once(word)?;
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// The package's folder and the path of a test program that Cargo built, from a line of its messages.
pub(crate) fn program(message: &str) -> Option<(String, String)> {
    // A program has `"test":true` as a target, too: it could be built as a test.
    let (_, profile) = message.split_once("\"profile\":{")?;
    let (profile, _) = profile.split_once('}')?;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let program = string(message, "executable")?;
    let manifest = string(message, "manifest_path")?;
    let folder = Path::new(&manifest).parent()?.to_str()?.to_owned();
    Some((folder, program))
}

/// The value of a string in a line of JSON, if it is a string.
fn string(json: &str, key: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{key}\":\""))?;
    let mut value = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.line("suite", line));
        counts
    }

    #[test]
    fn results_are_added_and_failures_named() {
        let counts = counts(&[
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "test result: ok. 41 passed; 0 failed; 0 ignored",
        ]);
        assert_eq!(counts.failed_tests, ["suite: a::c"]);
        assert!(!counts.is_good());
        let classes = Classes::parse("").expect("no classes");
        assert_eq!(
            counts.last_line(&classes, &[]),
            "42 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn a_test_that_was_skipped_has_not_passed_but_one_of_which_a_part_was_has() {
        let counts = counts(&["test a::b ... ok", "test result: ok. 2 passed; 0 failed"]);
        let skips = crate::skips::read("b: slow; set X\nd: part 2: slow; set X\n");
        let classes = Classes::parse("slow = slow;\n").expect("a class");
        let line = counts.last_line(&classes, &skips);
        assert_eq!(line, "1 passed, 0 failed, 2 skipped (slow: 2)");
    }

    #[test]
    fn nothing_that_ran_is_not_good() {
        assert!(!counts(&[]).is_good());
        assert!(counts(&["test result: ok. 1 passed; 0 failed"]).is_good());
    }

    #[test]
    fn a_program_that_dies_has_failed() {
        let mut counts = Counts::default();
        let mut dies = Command::new("sh");
        dies.args(["-c", "echo 'test result: ok. 1 passed; 0 failed'; exit 3"]);
        counts
            .run("dies", &mut dies, Path::new("/dev/null"))
            .expect("sh runs");
        assert!(!counts.is_good());
        assert_eq!(counts.failed_tests.len(), 1);
    }

    #[test]
    fn test_programs_are_found_in_messages() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/a b/x/Cargo.toml","target":{"name":"x","test":true},"profile":{"opt_level":"0","test":true},"executable":"/t/x-1"}"#;
        let found = Some(("/a b/x".to_owned(), "/t/x-1".to_owned()));
        assert_eq!(program(message), found);
        assert_eq!(
            program(&message.replace("\"0\",\"test\":true", "\"0\",\"test\":false")),
            None
        );
        assert_eq!(program(&message.replace("\"/t/x-1\"", "null")), None);
    }
}
