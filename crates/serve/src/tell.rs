//! What is told of a state, in lines: the true chain, the walks and their verdicts.

use crate::debuggee::Debuggee;
use crate::error::Error;
use std::fmt::Write as _;
use unwind_sim_judge::states::StateView;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::explain;
use unwind_sim_view::json::PlaceLine;
use unwind_sim_view::listing::ListingLength;
use unwind_sim_view::timeline::{State, StepKind, Walk};

/// `leaf+0x4 (libc.so.6)`, or the address in the image where the function has no name.
pub(crate) fn place(place: &PlaceLine) -> String {
    let image = place.image.as_deref();
    match (&place.function, image) {
        (Some(function), Some(image)) => format!("{function}+{} ({image})", place.offset),
        (Some(function), None) => format!("{function}+{}", place.offset),
        (None, Some(image)) => format!("{image}+{}", place.offset),
        (None, None) => "?".to_owned(),
    }
}

/// A frame, as `bt` of gdb begins it.
fn frame(index: usize, at: &PlaceLine) -> String {
    format!("#{index:<3}{} in {}\n", at.pc, place(at))
}

/// `state 5 of 24, before an instruction of thread 1 in leaf+0x4`.
pub(crate) fn where_it_is(state: &State, total: Option<u64>) -> String {
    let of = total.map_or(String::new(), |total| format!(" of {total}"));
    let next = match &state.instruction {
        Some(line) => format!(", next is {}", line.text),
        None => String::new(),
    };
    format!(
        "state {}{of} (the first is 0), thread {}, {}{next}\n",
        state.number,
        state.tid,
        place(&state.place)
    )
}

/// The true chain.
pub(crate) fn truth(state: &State) -> String {
    let mut text = match state.truth {
        "complete" => String::new(),
        "unknown" => "the true chain is not known here\n".to_owned(),
        _ => "the true chain is known up to the last frame below; there are more\n".to_owned(),
    };
    for (index, found) in state.frames.iter().enumerate() {
        text.push_str(&frame(index, &found.place));
    }
    text
}

/// The true chain of another thread than the state's.
pub(crate) fn truth_of(state: &State, tid: u32) -> Result<String, String> {
    if tid == state.tid {
        return Ok(truth(state));
    }
    let thread = state.threads.iter().find(|thread| thread.tid == tid);
    let thread = thread.ok_or_else(|| format!("there is no thread {tid} here"))?;
    if thread.frames.is_empty() {
        return Ok(format!("the true chain of thread {tid} is not known\n"));
    }
    let frames = thread.frames.iter().enumerate();
    Ok(frames.map(|(index, place)| frame(index, place)).collect())
}

/// A walk's verdict and, if it is wrong, what is to blame.
pub(crate) fn verdict(name: &str, walk: &Walk) -> String {
    let mut text = format!("{name}: {}", walk.verdict.word);
    if let Some(at) = walk.verdict.at {
        let _ = write!(text, " from frame {at} on");
    }

    // A right walk may have a cause, too: a wrong row whose value it did not need.
    let Some(cause) = walk.cause.as_ref().filter(|_| walk.is_wrong()) else {
        return text;
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "; {} in frame {}, {}",
        cause.code,
        cause.frame,
        place(&cause.place)
    );
    if let Some(code) = Code::from_name(cause.code) {
        let _ = write!(text, ": {}", code.description());
    }
    if let (Some(register), Some(truth)) = (cause.register, &cause.truth) {
        let _ = match &cause.given {
            Some(given) => write!(text, " ({register} is {truth}, not {given})"),
            None => write!(text, " ({register} is {truth}, which it does not give)"),
        };
    }
    text
}

/// The verdicts of all walks.
pub(crate) fn verdicts(state: &State, walkers: &[String]) -> String {
    let pairs = walkers.iter().zip(&state.walks);
    pairs
        .map(|(name, walk)| verdict(name, walk) + "\n")
        .collect()
}

/// The walk of one of the walkers: its chain, what happened, and the verdict.
pub(crate) fn walk(state: &State, walkers: &[String], wanted: &str) -> Result<String, String> {
    let (name, walk) = find(state, walkers, wanted)?;
    let mut text = String::new();
    let mut index = 0;
    for step in &walk.steps {
        match &step.frame {
            Some(found) => {
                text.push_str(&frame(index, &found.place));
                index += 1;
            }
            None if step.kind == StepKind::Started => {}
            None => {
                let _ = writeln!(text, "    {}", step.text);
            }
        }
    }
    text.push_str(&verdict(name, walk));
    text.push('\n');
    Ok(text)
}

/// The walk of an unwinder by its name, such as `dwarf` or `orc@fake:v5.2`.
fn find<'s>(
    state: &'s State,
    walkers: &'s [String],
    wanted: &str,
) -> Result<(&'s str, &'s Walk), String> {
    let mut pairs = walkers.iter().zip(&state.walks);
    let found = pairs.find(|(name, _)| name.as_str() == wanted);
    let (name, walk) = found.ok_or_else(|| no_walker(walkers, wanted))?;
    Ok((name, walk))
}

/// That there is no such walker.
fn no_walker(walkers: &[String], wanted: &str) -> String {
    let names = walkers.join(", ");
    format!("no unwinder {wanted:?} walks here; there are {names}")
}

impl Debuggee<'_> {
    /// The explanation of the walk of `wanted` or, without a name, of all that are wrong.
    pub(crate) fn explained(
        &mut self,
        wanted: Option<&str>,
    ) -> Result<Result<String, String>, Error> {
        let walkers = self.walkers();
        if let Some(name) = wanted.filter(|name| !walkers.iter().any(|known| known == name)) {
            return Ok(Err(no_walker(&walkers, name)));
        }

        let number = self.number();

        // In parts, because `states` is changed while `run` is read.
        let Debuggee { run, states, .. } = self;
        let mut text = String::new();
        let mut explain = |at: &StateView<'_>| {
            for (name, column) in walkers.iter().zip(run.columns()) {
                if wanted.is_some_and(|wanted| wanted != name) {
                    continue;
                }
                let engine = &run.engines[column.engine];
                let variant = column.variant_for(at.view);

                // The state that is shown has results alone; an explanation needs the walk itself.
                let outcome = engine.examine(at.view, variant, &run.setting, &mut Cache::new());

                // Who asks for no unwinder wants to know what is wrong.
                if wanted.is_none() && !outcome.verdict.is_wrong() {
                    continue;
                }
                let walk = explain::Walk {
                    engine,
                    variant,
                    setting: &run.setting,
                    outcome: &outcome,
                };
                text.push_str(&explain::explain(
                    at.view,
                    &walk,
                    None,
                    ListingLength::Folded,
                ));
                text.push('\n');
            }
        };
        states.with(number, &mut explain)?;

        if text.is_empty() {
            text.push_str("no unwinder is known to be wrong here\n");
        }
        Ok(Ok(text))
    }
}

/// The unwinders that are wrong.
pub(crate) fn wrong(state: &State, walkers: &[String]) -> String {
    let pairs = walkers.iter().zip(&state.walks);
    let wrong = pairs.filter(|(_, walk)| walk.is_wrong());
    let text: String = wrong
        .map(|(name, walk)| verdict(name, walk) + "\n")
        .collect();
    if !text.is_empty() {
        return text;
    }
    match state.truth {
        "unknown" => "the true chain is not known here, so nothing is judged\n".to_owned(),
        _ => "no unwinder is wrong here\n".to_owned(),
    }
}
