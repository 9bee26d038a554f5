//! Compares the runs of a command line.

use crate::fields;
use crate::run::RunResult;
use std::fmt;

/// What is said of a command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Output, status and files are equal.
    Equal,
    /// They differ, and the machine says what it does not model.
    Reported,
    /// They differ, and the machine says nothing.
    Silent,
    /// The machine did not end within the time limit.
    Slow,
    /// Two runs on this computer differ, or do not end.
    Dropped,
    /// A program is not installed.
    Skipped,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Equal,
        Kind::Reported,
        Kind::Silent,
        Kind::Slow,
        Kind::Dropped,
        Kind::Skipped,
    ];

    /// The name, for files.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Equal => "equal",
            Kind::Reported => "reported",
            Kind::Silent => "silent",
            Kind::Slow => "slow",
            Kind::Dropped => "dropped",
            Kind::Skipped => "skipped",
        }
    }
}

/// A kind, and the reason.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

impl Verdict {
    pub(crate) fn new(kind: Kind, why: impl Into<String>) -> Verdict {
        let why = why.into().replace(['\n', '\t'], " ");
        Verdict { kind, why }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.why)
    }
}

/// The bytes around the first that differs.
fn first_difference(here: &[u8], there: &[u8]) -> String {
    const BEFORE: usize = 20;
    const AFTER: usize = 40;
    let at = here.iter().zip(there).take_while(|(a, b)| a == b).count();
    let part = |bytes: &[u8]| {
        let end = (at + AFTER).min(bytes.len());
        let start = at.saturating_sub(BEFORE).min(end);
        bytes[start..end].escape_ascii().to_string()
    };
    format!("byte {at}: here `{}`, there `{}`", part(here), part(there))
}

/// The first difference between two runs, and the fields that were not compared.
pub(crate) fn compare(here: &RunResult, there: &RunResult) -> (Option<String>, Vec<&'static str>) {
    let mut ignored = Vec::new();

    // Standard error first: it usually says why something else differs.
    let outputs = [
        ("stderr", &here.stderr, &there.stderr),
        ("stdout", &here.stdout, &there.stdout),
    ];
    for (name, here, there) in outputs {
        if here != there {
            let text = first_difference(here, there);
            return (Some(format!("{name}, {text}")), ignored);
        }
    }

    if here.status != there.status {
        return (
            Some(format!(
                "status, here {:?}, there {:?}",
                here.status, there.status
            )),
            ignored,
        );
    }

    // Of both sides, so that a file of one side only is seen.
    let mut names: Vec<&String> = here.files.keys().chain(there.files.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let text = match (here.files.get(name), there.files.get(name)) {
            (Some(a), Some(b)) if a == b => continue,
            (Some(a), Some(b)) if a.0 != b.0 => format!("mode, here {}, there {}", a.0, b.0),
            (Some(a), Some(b)) => first_difference(&a.1, &b.1),
            (Some(_), None) => "only here".to_owned(),
            (None, _) => "only there".to_owned(),
        };

        // Files with a known reason to differ are listed, and not compared.
        match fields::of_file(name) {
            Some(field) if !ignored.contains(&field.name) => ignored.push(field.name),
            Some(_) => (),
            None => return (Some(format!("file {name}, {text}")), ignored),
        }
    }

    (None, ignored)
}
