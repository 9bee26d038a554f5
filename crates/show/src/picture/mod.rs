//! A picture of one stack for teaching: the words downward with their names, which unwinder read
//! them, and the chains that were found.
//!
//! Addresses are relative to the sampled rsp, and code addresses have names, so that a picture is
//! the same wherever the program is linked and its stack lies.

mod chains;
mod notes;
mod words;

use unwind_sim_judge::engine::{Outcome, Setting};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::truth::TrueKind;

pub use chains::{Name, chain_line, found_names, true_names};
pub use words::{place, value};

/// A walk that is drawn into the picture.
#[derive(Clone, Copy)]
pub struct DrawnWalk<'a> {
    /// The unwinder, with its start if that matters.
    pub name: &'a str,
    /// What it found.
    pub outcome: &'a Outcome,
}

/// What the reader may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hidden {
    /// Words with their names, readers and chains.
    Nothing,
    /// Only values, as for an exercise.
    Answers,
}

/// The picture of the sample's stack, with what the `walks` read. `setting` says which memory they
/// saw.
pub fn picture(
    view: &View<'_>,
    walks: &[DrawnWalk<'_>],
    setting: &Setting,
    hidden: Hidden,
) -> String {
    let mut out = words::drawn(view, walks, setting, hidden);
    if hidden == Hidden::Nothing {
        out.push('\n');
        out.push_str(&chains::all(view, walks));
    }
    out
}

/// The chains alone.
pub fn chains(view: &View<'_>, walks: &[DrawnWalk<'_>]) -> String {
    chains::all(view, walks)
}

/// The function of a code address without its offset, or the address.
pub(crate) fn function(view: &View<'_>, pc: CodeAddress) -> String {
    let place = Location::of(view.space, pc);
    match (place.function, place.image) {
        (Some(name), _) => name,
        (None, Some(image)) => format!("[{}]", image.trim_matches(['[', ']'])),
        (None, None) => format!("{:#x}", pc.value()),
    }
}

/// The pc of true frame `index`, as the address that it is.
fn true_pc(view: &View<'_>, index: usize) -> CodeAddress {
    view.sample.truth.frames()[index].address()
}

/// The function of true frame `index`; `<signal>` for the frame of a signal's trampoline.
pub(crate) fn true_function(view: &View<'_>, index: usize) -> String {
    let next = view.sample.truth.frames().get(index + 1);
    if next.is_some_and(|f| f.kind == TrueKind::Interrupted) {
        "<signal>".to_owned()
    } else {
        function(view, true_pc(view, index))
    }
}

#[cfg(test)]
mod tests;
