//! Names: those that shells offer for options which take any text, and those that were meant.

use clap::builder::{PathBufValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Result;
use std::ffi::OsStr;
use std::path::PathBuf;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::run::Against;
use unwind_sim_judge::unwinders;
use unwind_sim_recordings::similar::{hint, similar};
use unwind_sim_show::demo;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;

/// Takes any text; completions offer these.
#[derive(Clone)]
pub(crate) struct Suggest(Vec<&'static str>);

impl TypedValueParser for Suggest {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// Takes any path; completions offer these names besides files.
#[derive(Clone)]
pub(crate) struct SuggestOrPath(Suggest);

impl TypedValueParser for SuggestOrPath {
    type Value = PathBuf;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<PathBuf> {
        PathBufValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// The message for a name that is none of `known`, with the one that was meant.
pub(crate) fn not_one_of(name: &str, known: &[&str]) -> String {
    let hint = hint(name, known.iter().copied());
    format!("not one of {}{hint}", known.join(", "))
}

/// Whether a reason code was probably meant.
pub(crate) fn is_like_a_code(name: &str) -> bool {
    similar(name, Code::ALL.iter().map(|code| code.as_str())).is_some()
}

/// The message for what is not a reason code.
pub(crate) fn unknown_code(name: &str) -> String {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let hint = hint(name, codes.iter().copied());
    format!(
        "unknown reason code {name}{hint}; expected one of {}",
        codes.join(" ")
    )
}

/// The reason codes.
pub(crate) fn codes() -> Suggest {
    Suggest(Code::ALL.iter().map(|code| code.as_str()).collect())
}

/// The reason codes, or a recording.
pub(crate) fn codes_or_recordings() -> SuggestOrPath {
    SuggestOrPath(codes())
}

/// The demos.
pub(crate) fn demos() -> Suggest {
    Suggest(demo::ALL.iter().map(|demo| demo.name).collect())
}

/// What divergences are grouped by.
pub(crate) fn groups() -> Suggest {
    Suggest(GroupBy::ALL.map(GroupBy::as_str).to_vec())
}

/// The unwinders, and `all`.
pub(crate) fn unwinders() -> Suggest {
    let names = unwinders::all().into_iter().map(|unwinder| unwinder.name);
    Suggest(names.chain(["all"]).collect())
}

/// What chains are judged by.
pub(crate) fn references() -> Suggest {
    Suggest([&Against::NAMES[..], &[unwinders::REFERENCE]].concat())
}

/// The registers that walks start from.
pub(crate) fn starts() -> Suggest {
    Suggest(Variant::ALL.map(Variant::as_str).to_vec())
}

/// The memory that walks see.
pub(crate) fn views() -> Suggest {
    Suggest(vec!["cpu", "copy:"])
}
