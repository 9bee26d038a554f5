//! The index of a run, as far as a window shows it.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::Range;
use unwind_sim_judge::states::{EventKind, Index};

/// The number of marks of a kind outside of the window that are listed.
const LISTED_MAX: usize = 10_000;

/// What is of interest in a run.
#[derive(Clone, Default, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MarksLine {
    /// The number of states that are indexed, from the first one on.
    pub covered: u64,
    /// Whether the whole run is indexed.
    pub complete: bool,
    /// The number of states at which an unwinder becomes wrong.
    pub wrong: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of signals delivered.
    pub signals: u64,
    /// The number of times that another thread ran.
    pub switches: u64,
    /// The number of marks that were met when there were too many.
    pub left_out: u64,
    /// Where unwinders become wrong and what else happens, up to a limit, and the calls in the
    /// window.
    pub marks: Vec<Mark>,
}

/// Something at a state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Mark {
    /// The number of the state.
    pub number: u64,
    /// `wrong`, `call`, `signal`, `switch`, `program`, `thread`, `process` or `exit`. At `call` it
    /// is the first state of the function called.
    pub kind: &'static str,
    /// The unwinders that become wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwinders: Vec<String>,
    /// The number of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// The thread concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
}

impl MarksLine {
    /// What `index` has found, with the calls in `window`.
    pub fn of(index: &Index<'_>, window: Range<u64>) -> MarksLine {
        let found = index.marks();
        let count = |kind: fn(EventKind) -> bool| {
            found.events.iter().filter(|event| kind(event.kind)).count() as u64
        };

        // Most marks have neither a signal nor unwinders.
        let mark = |number, kind| Mark {
            number,
            kind,
            unwinders: Vec::new(),
            signal: None,
            tid: None,
        };

        let inside = |number: &u64| window.contains(number);
        let mut marks = Vec::new();

        // Calls are only listed inside the window: a long run has very many.
        let calls = found.calls.iter().filter(|number| inside(number));
        marks.extend(calls.map(|&number| mark(number, "call")));

        // Beyond the first ones, only events in the window: a long run may have very many.
        let mut listed = 0;
        for event in &found.events {
            listed += 1;
            if listed <= LISTED_MAX || inside(&event.number) {
                let signal = match event.kind {
                    EventKind::Signal(number) => Some(number),
                    _ => None,
                };
                marks.push(Mark {
                    signal,
                    tid: Some(event.tid),
                    ..mark(event.number, event.kind.as_str())
                });
            }
        }

        // The wrong states are what a reader looks for, so the first ones are listed wherever they
        // are.
        for (nth, wrong) in found.wrong.iter().enumerate() {
            if nth < LISTED_MAX || inside(&wrong.number) {
                let names = index.unwinders().iter().enumerate();
                // One bit for each unwinder of the index.
                let is_wrong = |bit: usize| wrong.unwinders >> bit & 1 != 0;
                let names = names.filter(|(bit, _)| is_wrong(*bit));
                marks.push(Mark {
                    unwinders: names.map(|(_, name)| name.clone()).collect(),
                    ..mark(wrong.number, "wrong")
                });
            }
        }

        // Three lists become one in the order of the run.
        marks.sort();
        MarksLine {
            covered: index.covered(),
            complete: index.is_complete(),
            wrong: found.wrong.len() as u64,
            calls: found.calls.len() as u64,
            signals: count(|kind| matches!(kind, EventKind::Signal(_))),
            switches: count(|kind| kind == EventKind::Switch),
            left_out: found.left_out,
            marks,
        }
    }
}
