//! `--baseline`: an earlier comparison or verification, whose findings are known.
//!
//! A baseline belongs to a program and to the options of its run. It is rejected for any other.

use crate::compare::GroupKey;
use crate::input::Input;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::names::file_name;
use unwind_sim_recordings::printable::PrintableName as _;

/// Maximum size of an earlier output, bytes.
const BYTES_MAX: u64 = 4 << 30;

/// The command that made a baseline with `--json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// `compare`.
    Compare,
    /// `verify`.
    Verify,
}

impl Source {
    /// The command line that makes a baseline.
    const fn command(self) -> &'static str {
        match self {
            Source::Compare => "unwind-sim compare ... --json",
            Source::Verify => "unwind-sim verify --json ...",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Source::Compare => "compare",
            Source::Verify => "verify",
        }
    }

    /// The `type` of the lines that hold a finding.
    const fn finding(self) -> &'static str {
        match self {
            Source::Compare => "divergence",
            Source::Verify => "contradiction",
        }
    }

    /// The `type` of the lines that hold the counts of an unwinder. There is at least one.
    const fn tally(self) -> &'static str {
        match self {
            Source::Compare => "column",
            Source::Verify => "verified",
        }
    }

    fn unreadable(self, path: &Path, source: std::io::Error) -> BaselineError {
        BaselineError::Unreadable {
            path: path.into(),
            command: self.command(),
            source,
        }
    }

    const fn other(self) -> Source {
        match self {
            Source::Compare => Source::Verify,
            Source::Verify => Source::Compare,
        }
    }
}

/// The program and options that a run's findings belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The program's file, without its folder.
    pub program: String,
    /// The options that determine what is found.
    pub options: Vec<String>,
}

/// Why a baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The file cannot be read.
    #[error(
        "--baseline {path}: {source}; make one with `{command} > {path}`",
        path = path.printable()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The command that makes a baseline.
        command: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not the output of the command.
    #[error("--baseline {}: line {line}: {what}; make one with `{command} > FILE`", path.printable())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The command that makes a baseline.
        command: &'static str,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The file does not name its program and options.
    #[error(
        "--baseline {path} does not name its program and options: it was cut short, or made by an \
         earlier version; make it again with `{command}`",
        path = path.printable()
    )]
    NoOrigin {
        /// The file.
        path: PathBuf,
        /// The command that makes a baseline.
        command: &'static str,
    },
    /// The baseline belongs to another program.
    #[error(
        "--baseline {path} belongs to the program `{its}`, and this {run} is of `{this}`; make one \
         for this program",
        path = path.printable()
    )]
    OtherProgram {
        /// The file.
        path: PathBuf,
        /// The baseline's program.
        its: String,
        /// The kind of input: a recording or a run.
        run: &'static str,
        /// The program of this input.
        this: String,
    },
    /// The baseline was made with other options.
    #[error(
        "--baseline {path} was made with other options: there {its}, here {this}; use the \
         same options, or make a baseline with these",
        path = path.printable()
    )]
    OtherOptions {
        /// The file.
        path: PathBuf,
        /// The options that only the baseline has.
        its: String,
        /// The options that only this run has.
        this: String,
    },
}

/// The recorded program: the file that is mapped lowest at the first sample.
pub fn program(input: &Input) -> String {
    let lowest = input.first(|view| {
        let names = view.space.mappings().iter().map(|m| file_name(&m.name));
        let mut files = names.filter(|name| !name.is_empty() && !name.starts_with('['));
        files.next().map(str::to_owned)
    });
    lowest.flatten().unwrap_or_default()
}

/// The identity of a finding across runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The unwinder, with its start if there are several.
    pub unwinder: String,
    /// The result: the verdict's letter, or the check and the register.
    pub what: String,
    /// The reason code.
    pub code: String,
    /// The place; may be empty.
    pub place: String,
    /// The class; `None` in the output of an earlier version, which did not write it.
    pub class: Option<String>,
}

impl Key {
    /// The key of a group of `column`.
    pub fn of_group(column: &str, group: &GroupKey) -> Key {
        Key {
            unwinder: column.to_owned(),
            what: group.letter.to_string(),
            code: group.code.to_string(),
            place: group.place.clone().unwrap_or_default(),
            class: Some(group.class.as_str().to_owned()),
        }
    }
}

/// The findings of an earlier run, and how often each was met.
#[derive(Debug, Default)]
pub struct Baseline(BTreeMap<Key, u64>);

impl Baseline {
    /// Reads the `--json` output of an earlier run of the same command with the same origin.
    ///
    /// # Errors
    /// If the file cannot be read, is not such an output, or has another origin.
    pub fn read(path: &Path, source: Source, origin: &Origin) -> Result<Baseline, BaselineError> {
        let file = InputFile::open(path).map_err(|error| source.unreadable(path, error))?;
        Baseline::of(&file, source, origin)
    }

    /// [`Baseline::read`] of a file that is open.
    ///
    /// # Errors
    /// See [`Baseline::read`].
    pub fn of(
        file: &InputFile,
        source: Source,
        origin: &Origin,
    ) -> Result<Baseline, BaselineError> {
        let path = file.path();
        let text = file.text(BYTES_MAX);
        let text = text.map_err(|error| source.unreadable(path, error))?;
        Self::parse(&text, path, source, origin)
    }

    fn parse(
        text: &str,
        path: &Path,
        source: Source,
        origin: &Origin,
    ) -> Result<Baseline, BaselineError> {
        let command = source.command();
        let mut known = BTreeMap::new();

        let mut its = None;
        for (i, line) in text.lines().enumerate() {
            let fail = |what: String| BaselineError::Malformed {
                path: path.into(),
                command,
                line: i + 1,
                what,
            };
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| fail(e.to_string()))?;

            let other = source.other();
            match value["type"].as_str() {
                Some(kind) if kind == source.finding() => {
                    let (key, count) = finding(&value, source).map_err(fail)?;
                    *known.entry(key).or_insert(0) += count;
                }

                Some(KERNEL_WALK) if source == Source::Verify => {
                    let (key, count) = kernel_walk(&value).map_err(fail)?;
                    *known.entry(key).or_insert(0) += count;
                }

                // Without a finding, only its tally shows that the file is from the other command.
                Some(kind) if [other.finding(), other.tally()].contains(&kind) => {
                    let (its, wanted) = (other.as_str(), source.as_str());
                    return Err(fail(format!("it is the output of {its}, not of {wanted}")));
                }
                Some("summary") => its = origin_of(&value),
                _ => {}
            }
        }

        let path = path.to_path_buf();

        // The summary is the last line: without it, the output was cut, and findings may be
        // missing.
        let Some(its) = its else {
            return Err(BaselineError::NoOrigin { path, command });
        };

        // Counts of another program, or of a run with other options, say nothing about this one.
        if its.program != origin.program {
            return Err(BaselineError::OtherProgram {
                path,
                its: its.program,
                run: match source {
                    Source::Compare => "recording",
                    Source::Verify => "run",
                },
                this: origin.program.clone(),
            });
        }

        if its.options != origin.options {
            return Err(BaselineError::OtherOptions {
                path,
                its: only_in(&its.options, &origin.options),
                this: only_in(&origin.options, &its.options),
            });
        }

        Ok(Baseline(known))
    }

    /// Whether it holds this finding, at least `count` times.
    pub fn holds(&self, key: &Key, count: u64) -> bool {
        let known = self.0.get(key).copied();
        let of_any_class = || {
            let key = Key {
                class: None,
                ..key.clone()
            };
            self.0.get(&key).copied()
        };
        known.or_else(of_any_class).is_some_and(|n| count <= n)
    }
}

/// The `type` of the lines that hold a wrong chain of a kernel's own unwinder.
const KERNEL_WALK: &str = "kernel_walk";

/// What a wrong chain of a kernel's own unwinder is, by the word of its verdict.
pub(crate) fn walk_key(verdict: &str, is_reliable: bool) -> String {
    let reliable = if is_reliable { "reliable" } else { "refused" };
    format!("{verdict} {reliable}")
}

/// Reads a line that holds a wrong chain of a kernel's own unwinder.
fn kernel_walk(value: &serde_json::Value) -> Result<(Key, u64), String> {
    let lacks = |name: &str| format!("a {KERNEL_WALK} without `{name}`");
    let field = |name: &str| {
        let text = value[name].as_str().map(str::to_owned);
        text.ok_or_else(|| lacks(name))
    };
    let reliable = value["reliable"].as_bool();
    let reliable = reliable.ok_or_else(|| lacks("reliable"))?;
    let count = value["count"].as_u64().ok_or_else(|| lacks("count"))?;
    let key = Key {
        unwinder: field("unwinder")?,
        what: walk_key(&field("verdict")?, reliable),
        code: field("code")?,
        place: field("place")?,
        class: None,
    };
    Ok((key, count))
}

/// Reads a line that holds a finding.
fn finding(value: &serde_json::Value, source: Source) -> Result<(Key, u64), String> {
    let lacks = |name: &str| format!("a {} without `{name}`", source.finding());
    let field = |name: &str| {
        let text = value[name].as_str().map(str::to_owned);
        text.ok_or_else(|| lacks(name))
    };

    let (unwinder, what, place) = match source {
        Source::Compare => {
            // Only the letter: the rest of a group's verdict is that of its first sample.
            let letter = field("verdict")?.chars().next();
            let letter = letter.ok_or_else(|| lacks("verdict"))?;
            // By cause alone, a group has no place.
            let place = field("group").unwrap_or_default();
            (field("column")?, letter.to_string(), place)
        }
        Source::Verify => {
            let what = format!("{} {}", field("check")?, field("register")?);
            let image = field("image").unwrap_or_default();
            (
                field("unwinder")?,
                what,
                format!("{image} {}", field("place")?),
            )
        }
    };

    // Without a count, a group that grew could not be distinguished from a known one.
    let count = value["count"].as_u64().ok_or_else(|| lacks("count"))?;
    let key = Key {
        unwinder,
        what,
        code: field("code")?,
        place,
        class: field("class").ok(),
    };

    Ok((key, count))
}

/// The origin that the last line states.
fn origin_of(value: &serde_json::Value) -> Option<Origin> {
    let options = value["options"].as_array()?.iter();
    Some(Origin {
        program: value["program"].as_str()?.to_owned(),
        options: options
            .map(|o| Some(o.as_str()?.to_owned()))
            .collect::<Option<_>>()?,
    })
}

/// The options in `these` that are not in `others`, as text.
fn only_in(these: &[String], others: &[String]) -> String {
    let only = these.iter().filter(|o| !others.contains(o));
    let only: Vec<String> = only.map(|o| format!("`{o}`")).collect();
    if only.is_empty() {
        "none of them".to_owned()
    } else {
        only.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Class;
    use unwind_sim_unwind::reason::Code;

    fn origin() -> Origin {
        Origin {
            program: "prog".into(),
            options: vec!["--view cpu".into(), "--against truth".into()],
        }
    }

    const GROUP: &str = r#"{"type":"divergence","column":"orc","verdict":"t@1","code":"US103","count":7,"group":"f"}"#;
    const SUMMARY: &str =
        r#"{"type":"summary","program":"prog","options":["--view cpu","--against truth"]}"#;

    fn parse(lines: &[&str], origin: &Origin) -> Result<Baseline, String> {
        parse_of(Source::Compare, lines, origin)
    }

    fn parse_of(source: Source, lines: &[&str], origin: &Origin) -> Result<Baseline, String> {
        let read = Baseline::parse(&lines.join("\n"), Path::new("known"), source, origin);
        read.map_err(|e| e.to_string())
    }

    #[test]
    fn a_group_that_grew_is_new() {
        let key = GroupKey {
            column: 0,
            class: Class::Wrong,
            letter: 't',
            code: Code::NoRow,
            place: Some("f".into()),
        };
        let of_class = |class| GroupKey {
            class,
            ..key.clone()
        };

        // Without a class the line is from an earlier version, and matches any class.
        let [wrong, loss] = [Class::Wrong, Class::Loss].map(of_class);

        let named = GROUP.replace("\"count\"", "\"class\":\"wrong\",\"count\"");
        for (line, holds_loss) in [(GROUP, true), (&named, false)] {
            let baseline = parse(&[line, SUMMARY], &origin()).expect("a baseline");
            let holds = |column: &str, key: &GroupKey, n| {
                let key = Key::of_group(column, key);
                baseline.holds(&key, n)
            };
            assert!(holds("orc", &wrong, 6));
            assert!(holds("orc", &wrong, 7));
            assert!(!holds("orc", &wrong, 8));
            assert!(!holds("dwarf", &wrong, 7));
            assert_eq!(holds("orc", &loss, 7), holds_loss);
            assert!(!holds("orc", &loss, 8));

            // The same fault at another place is another group.
            let elsewhere = GroupKey {
                place: None,
                ..wrong.clone()
            };
            assert!(!holds("orc", &elsewhere, 1));
        }
    }

    const FOUND: &str = r#"{"type":"contradiction","unwinder":"orc","check":"walk","register":"rip","image":"libc.so","place":"f+0x1","class":"wrong","code":"US103","count":7}"#;

    #[test]
    fn what_verify_found_is_held_by_count() {
        let parse = |lines: &[&str]| parse_of(Source::Verify, lines, &origin());
        let baseline = parse(&[FOUND, SUMMARY]).expect("a baseline");

        let key = Key {
            unwinder: "orc".into(),
            what: "walk rip".into(),
            code: "US103".into(),
            place: "libc.so f+0x1".into(),
            class: Some("wrong".into()),
        };

        // Its count is 7: one more is new, though it looks the same.
        assert!(baseline.holds(&key, 7));
        assert!(!baseline.holds(&key, 8));

        // Every part of the key counts: one occurrence of something else is new.
        for key in [
            Key {
                unwinder: "dwarf".into(),
                ..key.clone()
            },
            Key {
                what: "walk rsp".into(),
                ..key.clone()
            },
            Key {
                code: "US104".into(),
                ..key.clone()
            },
            Key {
                place: " f+0x1".into(),
                ..key.clone()
            },
            Key {
                class: Some("loss".into()),
                ..key.clone()
            },
        ] {
            assert!(!baseline.holds(&key, 1), "{key:?}");
        }

        // Lines with the same key add up.
        let two = parse(&[FOUND, FOUND, SUMMARY]).expect("a baseline");
        assert!(two.holds(&key, 14) && !two.holds(&key, 15));
    }

    /// The message names both commands.
    #[test]
    fn the_output_of_the_other_command_is_refused() {
        // Both by a finding and, where there is none, by the tally.
        for (source, line, what) in [
            (
                Source::Verify,
                GROUP,
                "line 1: it is the output of compare, not of verify",
            ),
            (
                Source::Verify,
                r#"{"type":"column"}"#,
                "output of compare, not of verify",
            ),
            (
                Source::Compare,
                FOUND,
                "line 1: it is the output of verify, not of compare",
            ),
            (
                Source::Compare,
                r#"{"type":"verified"}"#,
                "output of verify, not of compare",
            ),
        ] {
            let told = parse_of(source, &[line, SUMMARY], &origin()).expect_err("refused");
            assert!(told.contains(what), "{told}");
            assert!(told.contains(source.command()), "{told}");
        }
    }

    #[test]
    fn a_baseline_of_something_else_is_refused() {
        let told = |lines: &[&str], origin: &Origin| parse(lines, origin).expect_err("refused");
        let other = Origin {
            program: "other".into(),
            ..origin()
        };

        // Both programs are named: either may be the wrong one.
        let what = told(&[GROUP, SUMMARY], &other);
        assert!(
            what.contains("`prog`") && what.contains("`other`"),
            "{what}"
        );

        let mut options = origin();
        options.options[0] = "--view copy:8192".into();
        let what = told(&[GROUP, SUMMARY], &options);
        assert!(
            what.contains("there `--view cpu`, here `--view copy:8192`"),
            "{what}"
        );

        // An option that only one of the two has is named as well.
        options.options.remove(0);
        let what = told(&[GROUP, SUMMARY], &options);
        assert!(
            what.contains("there `--view cpu`, here none of them"),
            "{what}"
        );

        // Output that was cut before its summary must not pass for one with fewer findings.
        for lines in [&[GROUP][..], &[], &[GROUP, r#"{"type":"summary"}"#]] {
            let what = told(lines, &origin());
            assert!(what.contains("does not name its program"), "{what}");
        }

        // The bad line is the second, and the error has its number.
        for (line, want) in [
            ("no JSON", "line 2: expected"),
            (
                r#"{"type":"divergence"}"#,
                "line 2: a divergence without `verdict`",
            ),
            (
                &GROUP.replace("count", "n"),
                "line 2: a divergence without `count`",
            ),
            (
                &GROUP.replace("t@1", ""),
                "line 2: a divergence without `verdict`",
            ),
        ] {
            let what = told(&[GROUP, line, SUMMARY], &origin());
            assert!(what.contains(want), "{what}");
        }
    }
}
