//! An earlier comparison, whose divergences are known: `--baseline`.
//!
//! It belongs to a program and to the options of the comparison; for any other it says nothing,
//! and is refused.

use crate::compare::GroupKey;
use crate::input::Input;
use crate::names::file_name;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a comparison's groups belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The program's file, without its folder.
    pub program: String,
    /// The options that decide what is in a comparison.
    pub options: Vec<String>,
}

/// A baseline that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// It cannot be read.
    #[error("--baseline {path}: {source}; make one with `unwind-sim compare ... --json > {path}`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not the output of a comparison.
    #[error(
        "--baseline {path}: line {line}: {what}; make one with `unwind-sim compare ... --json > FILE`"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// It does not say what it belongs to.
    #[error(
        "--baseline {path}: it does not say to which program and options it belongs: it was cut \
         short, or made by an earlier version; make it again with `unwind-sim compare ... --json`"
    )]
    NoOrigin {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another program.
    #[error(
        "--baseline {path} belongs to the program `{its}`, and this recording is of `{this}`; make \
         one of this program"
    )]
    OtherProgram {
        /// The file.
        path: PathBuf,
        /// The program that it belongs to.
        its: String,
        /// The program compared.
        this: String,
    },
    /// It was made with other options.
    #[error(
        "--baseline {path} was made with other options: there {its}, here {this}; use the same, or \
         make one with these"
    )]
    OtherOptions {
        /// The file.
        path: PathBuf,
        /// Those that only it has.
        its: String,
        /// Those that only this comparison has.
        this: String,
    },
}

/// The program that was recorded: the file mapped lowest where the first sample was taken.
pub fn program(input: &Input) -> String {
    let trace = input.trace();
    let first = trace
        .sample(0)
        .and_then(|s| Ok((s.pid, trace.world_at(0)?)));
    let Ok((pid, world)) = first else {
        return String::new();
    };
    let mappings = world.space(pid).mappings().iter();
    let names = mappings.map(|m| file_name(&m.name));
    let mut files = names.filter(|name| !name.is_empty() && !name.starts_with('['));
    files.next().unwrap_or_default().to_owned()
}

/// Column, letter, code, place.
type Key = (String, char, String, String);

/// The groups of an earlier comparison, and how many samples each had.
#[derive(Debug, Default)]
pub struct Baseline(BTreeMap<Key, u64>);

impl Baseline {
    /// Reads the `--json` output of an earlier comparison of the same origin.
    ///
    /// # Errors
    /// If it cannot be read, is no such output, or belongs to something else.
    pub fn read(path: &Path, origin: &Origin) -> Result<Baseline, BaselineError> {
        let text = std::fs::read_to_string(path).map_err(|source| BaselineError::Unreadable {
            path: path.into(),
            source,
        })?;
        Self::parse(&text, path, origin)
    }

    fn parse(text: &str, path: &Path, origin: &Origin) -> Result<Baseline, BaselineError> {
        let mut groups = BTreeMap::new();
        let mut its = None;
        for (i, line) in text.lines().enumerate() {
            let fail = |what: String| BaselineError::Malformed {
                path: path.into(),
                line: i + 1,
                what,
            };
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| fail(e.to_string()))?;
            match value["type"].as_str() {
                Some("divergence") => {
                    let (key, count) = group(&value).map_err(fail)?;
                    *groups.entry(key).or_insert(0) += count;
                }
                Some("summary") => its = origin_of(&value),
                _ => {}
            }
        }
        let path = path.to_path_buf();
        let Some(its) = its else {
            return Err(BaselineError::NoOrigin { path });
        };
        if its.program != origin.program {
            return Err(BaselineError::OtherProgram {
                path,
                its: its.program,
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
        Ok(Baseline(groups))
    }

    /// Does it hold this group of `column`, with at least `count` samples?
    pub fn holds(&self, column: &str, key: &GroupKey, count: u64) -> bool {
        let place = key.place.clone().unwrap_or_default();
        let key = (column.to_owned(), key.letter, key.code.to_string(), place);
        self.0.get(&key).is_some_and(|&known| count <= known)
    }
}

/// A line of type `divergence`.
fn group(value: &serde_json::Value) -> Result<(Key, u64), String> {
    let field = |name: &str| {
        let text = value[name].as_str().map(str::to_owned);
        text.ok_or_else(|| format!("a divergence without `{name}`"))
    };
    let letter = field("verdict")?.chars().next();
    let letter = letter.ok_or_else(|| "a divergence without `verdict`".to_owned())?;
    let count = value["count"].as_u64();
    let count = count.ok_or_else(|| "a divergence without `count`".to_owned())?;
    let place = field("group").unwrap_or_default();
    Ok(((field("column")?, letter, field("code")?, place), count))
}

/// What the last line says it belongs to.
fn origin_of(value: &serde_json::Value) -> Option<Origin> {
    let options = value["options"].as_array()?.iter();
    Some(Origin {
        program: value["program"].as_str()?.to_owned(),
        options: options
            .map(|o| Some(o.as_str()?.to_owned()))
            .collect::<Option<_>>()?,
    })
}

/// The options of `these` that `others` has not, as words.
fn only_in(these: &[String], others: &[String]) -> String {
    let only = these.iter().filter(|o| !others.contains(o));
    let only: Vec<String> = only.map(|o| format!("`{o}`")).collect();
    match only.is_empty() {
        true => "none of them".to_owned(),
        false => only.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let read = Baseline::parse(&lines.join("\n"), Path::new("known"), origin);
        read.map_err(|e| e.to_string())
    }

    #[test]
    fn a_group_that_grew_is_new() {
        let baseline = parse(&[GROUP, SUMMARY], &origin()).expect("a baseline");
        let key = GroupKey {
            column: 0,
            letter: 't',
            code: Code::NoRow,
            place: Some("f".into()),
        };
        assert!(baseline.holds("orc", &key, 6));
        assert!(baseline.holds("orc", &key, 7));
        assert!(!baseline.holds("orc", &key, 8));
        assert!(!baseline.holds("dwarf", &key, 7));
        let elsewhere = GroupKey { place: None, ..key };
        assert!(!baseline.holds("orc", &elsewhere, 1));
    }

    #[test]
    fn a_baseline_of_something_else_is_refused() {
        let told = |lines: &[&str], origin: &Origin| parse(lines, origin).expect_err("refused");
        let other = Origin {
            program: "other".into(),
            ..origin()
        };
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
        options.options.remove(0);
        let what = told(&[GROUP, SUMMARY], &options);
        assert!(
            what.contains("there `--view cpu`, here none of them"),
            "{what}"
        );
        for lines in [&[GROUP][..], &[], &[GROUP, r#"{"type":"summary"}"#]] {
            let what = told(lines, &origin());
            assert!(what.contains("does not say to which program"), "{what}");
        }
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
