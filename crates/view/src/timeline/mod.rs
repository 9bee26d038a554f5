//! The timeline: the states of a stack, one after the other, and what every unwinder makes of each.
//!
//! It is the only model that the stepper, the report and `step --json` show; they decide how
//! something looks, and compute nothing. A [`Timeline`] is a window of a longer run, with an index
//! of the whole run; [`window`] makes it. A [`Builder`] makes single states, one by one.
//!
//! It is here, and not in `unwind-sim-show`, because `step --json` writes it: one schema has all lines.

mod code;
mod marks;
mod rules;
mod stack;
mod state;
mod steps;
mod story;
mod threads;
mod truth;

pub(crate) use code::around;
pub use code::{Code, CodeLine};
pub use marks::{Mark, MarksLine};
pub use stack::{Note, Stack, Word};
pub use state::{Builder, Register, RowFault, State, TrueFrame};
pub use steps::{Step, StepKind, TableBytes, Walk, row_bytes};
pub use threads::Thread;
pub use truth::of_truth;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::input::InputError;
use unwind_sim_judge::states::{Index, States};

/// The number of states in a window, unless another one is asked for.
pub const WINDOW: u64 = 1000;

/// A number that is an address or the content of a register or word; in JSON a string such as
/// `0x1f`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
impl JsonSchema for Hex {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An unwinder, and the registers that its walks start from.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Walker {
    /// The unwinder's name, as on the command line.
    pub unwinder: String,
    /// The start variant; none for the one that each sample was taken with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<&'static str>,
    /// Whether it cannot be right everywhere, so that its errors do not count. It is not part of the
    /// JSON.
    #[serde(skip)]
    pub may_err: bool,
}

impl Walker {
    /// The name of its column, such as `orc@fake:v5.2`.
    pub fn name(&self) -> String {
        match self.start {
            Some(start) => format!("{}@{start}", self.unwinder),
            None => self.unwinder.clone(),
        }
    }
}

/// What the states are of.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A recording: a state is a sample.
    Recording,
    /// A program in the emulated machine: a state is the one before an instruction.
    Program,
}

/// A window of states.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Timeline {
    schema: &'static str,
    /// The recording, case or program.
    pub source: String,
    /// What the states are of.
    pub kind: SourceKind,
    /// The command that shows this window again.
    pub command: String,
    /// The walks of each state, in this order.
    pub walkers: Vec<Walker>,
    /// The number of the first state of the window.
    pub first: u64,
    /// The number of states of the whole run, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How the program ended, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// What the program asked for that is not modelled: it got an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// What is of interest in the whole run.
    pub marks: MarksLine,
    /// The code of the states, by the address of its first instruction.
    pub code: Vec<Code>,
    /// The states of the window.
    pub states: Vec<State>,
}

/// What a window is called.
#[derive(Clone, Debug)]
pub struct About {
    /// The recording, case or program.
    pub source: String,
    /// The command that shows the window again.
    pub command: String,
}

/// The states from `first` on, at most `count`, with what `index` has found.
///
/// # Errors
/// If the recording cannot be read.
pub fn window(
    about: About,
    states: &mut States,
    builder: &mut Builder<'_>,
    index: &Index<'_>,
    (first, count): (u64, u64),
) -> Result<Timeline, InputError> {
    let mut all = Vec::new();
    let mut code: BTreeMap<(u32, u64, usize), Code> = BTreeMap::new();

    // States are built one after the other: each knows what has changed since the one before.
    states.range(first, count, &mut |at| {
        // States of one function share its code; the length tells two windows of a long one apart.
        if let Some(lines) = builder.code(at.view)
            && let Some(start) = lines.lines.first()
        {
            let key = (at.view.sample.pid, start.address.0, lines.lines.len());
            code.entry(key).or_insert_with(|| (*lines).clone());
        }
        all.push(builder.state(at));
    })?;

    Ok(Timeline {
        schema: SCHEMA,
        source: about.source,
        kind: kind_of(states),
        command: about.command,
        walkers: builder.walkers(),
        first,
        total: states.total(),
        end: states.end(),
        notices: states.notices(),
        // The index covers what was searched, which may be more or less than the window.
        marks: MarksLine::of(index, first..first.saturating_add(count)),
        code: code.into_values().collect(),
        states: all,
    })
}

/// What the states are of.
pub fn kind_of(states: &States) -> SourceKind {
    if states.is_program() {
        SourceKind::Program
    } else {
        SourceKind::Recording
    }
}
