//! The drawing of a state with a walk: one SVG image, to be put into a page or a README.
//!
//! It says the same wherever the program is linked and its stack lies: stack addresses are relative to
//! rsp, and code addresses have names. An image that is embedded has its neighbours, too, and a
//! slider where scripts run; elsewhere, it is the drawing of its state.

mod embed;
mod lines;
mod model;
mod svg;

use super::PageSummary;
use super::timeline::TimelineError;
use model::Model;
use std::io::Write;
use unwind_sim_judge::states::States;
use unwind_sim_view::timeline::{Builder, State, Walker, kind_of};

/// The number of states of an embedded drawing, unless another one is asked for.
pub const EMBEDDED: u64 = 25;
/// The number of states of an embedded drawing, at most.
const EMBEDDED_MAX: u64 = 1_000;

/// Writes the drawing of state `number`, with the walk that matters most there, and with the bytes of its
/// rows if `has_bytes`.
///
/// # Errors
/// If the recording cannot be read, or `out` not written.
pub fn drawing(
    states: &mut States,
    builder: &mut Builder<'_>,
    number: u64,
    has_bytes: bool,
    out: &mut dyn Write,
) -> Result<PageSummary, TimelineError> {
    let walkers = builder.walkers();
    let mut model = None;
    states.with(number, &mut |at| {
        let state = builder.state(at);
        let walker = matters_most(&state, &walkers);
        let view = has_bytes.then_some(at.view);
        model = Some(Model::of(&state, &walkers, walker, view));
    })?;

    let model = model.ok_or_else(|| TimelineError::no_state(number, states))?;
    let image = svg::image(&model);
    out.write_all(image.as_bytes())?;
    Ok(PageSummary {
        shown: 1,
        left_out: None,
        bytes: image.len(),
    })
}

/// Which states an embedded drawing has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// The number of the state that it shows first, and without a script.
    pub opening: u64,
    /// The number of the first state; none for those around the opening one.
    pub first: Option<u64>,
    /// How many states, at most.
    pub count: u64,
    /// Whether each frame has the bytes of the row that found it.
    pub has_bytes: bool,
}

/// Writes a drawing with a slider over its states and a choice of the unwinder.
///
/// # Errors
/// If the recording cannot be read, if the state to begin with is not among those that are asked for,
/// or if `out` cannot be written.
pub fn embedded(
    states: &mut States,
    builder: &mut Builder<'_>,
    wanted: Embedded,
    out: &mut dyn Write,
) -> Result<PageSummary, TimelineError> {
    let Embedded { opening, .. } = wanted;
    let walkers = builder.walkers();
    let count = wanted.count.clamp(1, EMBEDDED_MAX);
    // With as many states before the one that is shown first as behind it.
    let first = wanted.first.unwrap_or(opening.saturating_sub(count / 2));

    let mut all = Vec::new();
    let mut chosen = None;
    states.range(first, count, &mut |at| {
        let state = builder.state(at);
        if state.number == opening {
            chosen = Some((all.len(), matters_most(&state, &walkers)));
        }
        let each = 0..walkers.len();
        let view = wanted.has_bytes.then_some(at.view);
        let models = each.map(|walker| Model::of(&state, &walkers, walker, view));
        all.push((state.number, models.collect::<Vec<_>>()));
    })?;

    let chosen = chosen.ok_or_else(|| TimelineError::no_state(opening, states))?;
    let image = embed::image(kind_of(states), &walkers, &all, chosen);
    out.write_all(image.as_bytes())?;
    Ok(PageSummary {
        shown: all.len() as u64,
        left_out: None,
        bytes: image.len(),
    })
}

/// The walk to draw: the first wrong one of an unwinder whose errors count, or else the first wrong
/// one, or else the first.
fn matters_most(state: &State, walkers: &[Walker]) -> usize {
    let wrong = |place: &usize| state.walks[*place].is_wrong();
    let counts = |place: &usize| !walkers[*place].may_err;
    let mut all = (0..state.walks.len()).filter(wrong);
    let first = all.clone().find(counts).or_else(|| all.next());
    first.unwrap_or(0)
}
