//! Asks for the chain of a stack, judges the one that a reader gave by names, and says why its first wrong
//! frame is wrong.

use crate::picture::{Name, found_names, function, place, true_function, true_names, value};
use std::fmt;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::TrueKind;
use unwind_sim_unwind::verdict::{self, Verdict};

/// The verdict on a reader's chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerCheck {
    /// It is the true chain.
    Right {
        /// The number of frames.
        frames: usize,
    },
    /// It is not the true chain.
    Wrong {
        /// The verdict, as on an unwinder.
        verdict: Verdict,
        /// What is wrong with its first wrong frame.
        why: String,
        /// The names that the reader gave.
        names: Vec<String>,
    },
}

impl AnswerCheck {
    /// Whether an unwinder found the chain that the reader gave.
    pub fn is_as(&self, view: &View<'_>, outcome: &Outcome) -> bool {
        let AnswerCheck::Wrong { names, .. } = self else {
            return false;
        };
        let found = found_names(view, outcome);
        found.len() == names.len() && found.iter().zip(names).all(|(a, b)| a.function == *b)
    }
}

impl fmt::Display for AnswerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerCheck::Right { frames } => {
                write!(f, "right: {} with {frames} frames", Verdict::Ok)
            }
            AnswerCheck::Wrong { verdict, why, .. } => {
                write!(f, "not right: {} {verdict}\n{why}", verdict.as_str())
            }
        }
    }
}

/// What is asked about a stack whose chain begins with true frame `from`.
pub fn question(view: &View<'_>, from: usize) -> String {
    let mut out = String::new();
    let mut what = "Which functions are active here?";

    if let Some(fetching) = fetching(view, from) {
        // Where `rip` is says nothing of where the chain begins.
        out = format!(
            "A fake start: no interrupt has saved registers, so {fetching} fetched some that describe its\n\
             caller, and the chain of this sample begins with that caller. {fetching} and what it has called,\n\
             up to the function that rip is in, take the sample and are not in the chain.\n\n"
        );
        what = "Which functions are in the chain?";
    } else if let Some(sampled) = sampled(view, from) {
        out = format!(
            "rip is the address of the sampled instruction, in {sampled}. The other registers are those of\n\
             after it, and so is the chain that is asked for.\n\n"
        );
    }
    format!("{out}{what} Innermost first, such as: leaf < mid < _start")
}

/// Whether a reader can find the chain: all of it is known, and the registers are those of its innermost
/// frame.
pub fn can_be_asked(view: &View<'_>, from: usize) -> bool {
    let is_known = view.sample.truth.is_complete() && view.live().get(Reg::Rsp).is_some();
    is_known && from < view.sample.truth.frames().len() && sampled(view, from).is_none()
}

/// The function that fetched the registers of a fake start.
fn fetching(view: &View<'_>, from: usize) -> Option<String> {
    Some(true_function(view, from.checked_sub(1)?))
}

/// The function of the sampled instruction, if a precise event has stored its address beside the registers
/// of after it.
fn sampled(view: &View<'_>, from: usize) -> Option<String> {
    let top = view.sample.truth.frames().first()?;
    let rip = view.live().get(Reg::Rip)?;
    let is_precise = from == 0 && rip != top.pc;
    is_precise.then(|| function(view, CodeAddress::Instruction(rip)))
}

/// Compares `names`, innermost first, with the true frames from number `from` on.
pub fn judge(view: &View<'_>, from: usize, names: &[String]) -> AnswerCheck {
    let truth = &view.sample.truth;
    let all = true_names(view, from);

    // The names are turned into a chain, so that the reader is judged by the code that judges
    // unwinders.
    let mut chain = Chain::ended(Reason::NotAtRoot);
    let mut next = 0;
    for name in names {
        // From the last match on: a function may be active more than once.
        let rest = all.iter().skip(next);
        let same = rest
            .into_iter()
            .position(|t| t.function == *name)
            .map(|at| at + next);

        chain.frames.push(match same {
            // The pc and the slot of a true frame are taken over, since the verdict compares these,
            // not names.
            Some(at) => {
                next = at + 1;
                let frame = truth.frames()[from + at];
                named_frame(frame.pc, frame.kind, truth.slot(from + at))
            }
            // No frame has this address.
            None => named_frame(0, TrueKind::Call, None),
        });
    }
    // A reader who writes the root's name claims that the chain ends there.
    if next == all.len() && names.last() == all.last().map(|name| &name.function) {
        chain.end.reason = Reason::RootReached;
    }

    let (verdict, _) = verdict::judge(&chain, truth, from);

    if verdict == Verdict::Ok {
        return AnswerCheck::Right { frames: all.len() };
    }

    AnswerCheck::Wrong {
        verdict,
        why: why(view, from, &all, names, verdict),
        names: names.to_vec(),
    }
}

fn named_frame(pc: u64, kind: TrueKind, slot: Option<u64>) -> Frame {
    let pc = match kind {
        TrueKind::Call => CodeAddress::Return(pc),
        TrueKind::Top | TrueKind::Interrupted | TrueKind::Trapped => CodeAddress::Instruction(pc),
    };
    Frame {
        pc,
        sp: 0,
        slot,
        found: FoundBy::External,
    }
}

/// What is wrong with the first wrong frame, and where the right one is found.
fn why(view: &View<'_>, from: usize, all: &[Name], names: &[String], verdict: Verdict) -> String {
    // A verdict without a position has no frame to explain.
    let Some(at) = verdict.at().map(|at| at as usize) else {
        return "No frame of it can be compared with a true one.".to_owned();
    };

    let said = names.get(at).map_or("nothing", String::as_str);

    // Behind the last true frame there is nothing to name: either the root was left out, or names
    // were added.
    let Some(right) = all.get(at) else {
        return match verdict {
            Verdict::Truncated { .. } => {
                "All frames are there, but the chain has no root.".to_owned()
            }
            _ => format!(
                "The chain ends with {}, the root; {said} did not call it.",
                last(all)
            ),
        };
    };

    let mut out = match verdict {
        Verdict::Extra { .. } => {
            format!(
                "Frame {at} is {}: {said} is not active here.",
                right.function
            )
        }
        Verdict::Truncated { .. } => {
            format!(
                "It is right as far as it goes, but frame {at}, {}, called the last one.",
                right.function
            )
        }
        _ => format!("Frame {at} is {}, not {said}.", right.function),
    };

    // The word in which the reader can see the right frame.
    let slot = view.sample.truth.slot(from + at);
    let word = slot.and_then(|slot| Some((slot, view.sample.memory().read_u64(slot).ok()?)));

    // The inner frame returns through this word, or, if it is a signal handler's caller, the kernel
    // stored rip there.
    if let (Some((slot, word)), Some(inner)) = (word, at.checked_sub(1).and_then(|i| all.get(i))) {
        let (place, value) = (place(view, slot), value(view, word, true));
        out.push_str(&match view.sample.truth.frames()[from + at].kind {
            TrueKind::Interrupted => {
                format!(" The signal frame holds its rip: the word at {place} is {value}.")
            }
            _ => format!(
                " {} returns by the word at {place}, which is {value}.",
                inner.function
            ),
        });
    } else if at == 0 {
        out.push_str(&innermost(view, from, word));
    }

    out
}

/// Where the innermost frame of a chain that begins with true frame `from` is found. `word` is the one
/// that leads to it, if it is a caller.
fn innermost(view: &View<'_>, from: usize, word: Option<(u64, u64)>) -> String {
    if let Some(fetching) = fetching(view, from) {
        let returns = word.map(|(slot, word)| {
            let (place, value) = (place(view, slot), value(view, word, true));
            format!(" It returns by the word at {place}, which is {value}.")
        });
        let returns = returns.unwrap_or_default();
        return format!(
            " The chain begins with the caller of {fetching}, the fetching function.{returns}"
        );
    }
    match sampled(view, from) {
        Some(sampled) => format!(
            " rip is the address of the sampled instruction, in {sampled}; the other registers are those of \
             after it."
        ),
        None => " The innermost frame is the function that rip is in.".to_owned(),
    }
}

fn last(all: &[Name]) -> &str {
    all.last().map_or("?", |name| &name.function)
}
