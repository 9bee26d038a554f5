//! Values that shells offer for options which take any text.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Result;
use std::ffi::OsStr;
use unwind_sim_judge::unwinders;
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

/// The unwinders, and `all`.
pub(crate) fn unwinders() -> Suggest {
    let names = unwinders::all().into_iter().map(|unwinder| unwinder.name);
    Suggest(names.chain(["all"]).collect())
}

/// What chains are judged by.
pub(crate) fn references() -> Suggest {
    Suggest(vec![
        "truth",
        "proof",
        "perf",
        "kernel",
        unwinders::REFERENCE,
    ])
}

/// The registers that walks start from.
pub(crate) fn starts() -> Suggest {
    Suggest(Variant::ALL.map(Variant::as_str).to_vec())
}

/// The memory that walks see.
pub(crate) fn views() -> Suggest {
    Suggest(vec!["cpu", "copy:"])
}
