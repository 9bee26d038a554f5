//! Is a chain right? One closed set of words, and the comparison behind them.
//!
//! Chains are aligned by the address of the return-address slot, else by pc, leftmost: one frame
//! that is missing is not ten that are wrong. `@k` is the first frame concerned, counted in the
//! true chain from 0, the innermost.
//!
//! Nothing is judged beyond the frames that are known: a chain that has them all is right only if
//! the last one is the root, and the walk said so.

mod boundary;

pub use boundary::judge_boundary;

use crate::chain::{Chain, End, Found, Frame};
use crate::reason::{Code, Reason};
use crate::truth::{TrueKind, Truth};
use alloc::vec::Vec;
use core::fmt;

/// The verdict on one chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// `.`: the true chain.
    Ok,
    /// `~`: the true chain, by a rule that did not apply (luck). Never counted as right.
    OkUnproven,
    /// `mN`: true frames inside the chain are absent.
    Missing {
        /// How many, in the whole chain.
        count: u32,
        /// The first one.
        at: u32,
    },
    /// `xN`: frames that are not true.
    Extra {
        /// How many, in the whole chain. A caller of the root counts as one even where the walk
        /// did not come so far as to report it.
        count: u32,
        /// In front of this true frame.
        at: u32,
    },
    /// `w`: frame `at` is another than the true one.
    Wrong {
        /// That frame.
        at: u32,
    },
    /// `t`: right as far as it goes, then ended early: frames are absent, or, if `at` is the number
    /// of the true frames, none is and the walk did not find out that it was at the root.
    Truncated {
        /// The first frame that is absent.
        at: u32,
    },
    /// `r`: the unwinder itself said that it is unreliable.
    Refused,
    /// `l`: caught in a cycle.
    Looped,
    /// `u`: not modelled.
    Unsupported,
    /// `?`: no truth here.
    Unjudged,
}

impl Verdict {
    /// Every letter with its word, in order of goodness.
    pub const WORDS: [(char, &'static str); 10] = [
        ('.', "ok"),
        ('~', "ok-unproven"),
        ('m', "missing"),
        ('x', "extra"),
        ('w', "wrong"),
        ('t', "truncated"),
        ('r', "refused"),
        ('l', "looped"),
        ('u', "unsupported"),
        ('?', "unjudged"),
    ];

    const fn index(self) -> usize {
        match self {
            Verdict::Ok => 0,
            Verdict::OkUnproven => 1,
            Verdict::Missing { .. } => 2,
            Verdict::Extra { .. } => 3,
            Verdict::Wrong { .. } => 4,
            Verdict::Truncated { .. } => 5,
            Verdict::Refused => 6,
            Verdict::Looped => 7,
            Verdict::Unsupported => 8,
            Verdict::Unjudged => 9,
        }
    }

    /// The letter.
    pub const fn letter(self) -> char {
        Self::WORDS[self.index()].0
    }

    /// The word, for machines.
    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self.index()].1
    }

    /// The first true frame concerned.
    pub const fn at(self) -> Option<u32> {
        match self {
            Verdict::Missing { at, .. }
            | Verdict::Extra { at, .. }
            | Verdict::Wrong { at }
            | Verdict::Truncated { at } => Some(at),
            _ => None,
        }
    }

    /// How many frames are missing or extra.
    pub const fn count(self) -> Option<u32> {
        match self {
            Verdict::Missing { count, .. } | Verdict::Extra { count, .. } => Some(count),
            _ => None,
        }
    }

    /// Was something judged?
    pub const fn is_judged(self) -> bool {
        !matches!(self, Verdict::Unsupported | Verdict::Unjudged)
    }

    /// Is the chain wrong in any way? Luck is not wrong, and not right.
    pub const fn is_wrong(self) -> bool {
        self.is_judged() && !matches!(self, Verdict::Ok | Verdict::OkUnproven)
    }
}

impl fmt::Display for Verdict {
    /// The short form: `.`, `m1@2`, `w@3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())?;
        if let Some(count) = self.count() {
            write!(f, "{count}")?;
        }
        match self.at() {
            Some(at) => write!(f, "@{at}"),
            None => Ok(()),
        }
    }
}

/// A frame of a chain to be judged: where it was found, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    pc: u64,
    slot: Option<u64>,
    /// The stack pointer in the frame, if it is known.
    sp: Option<u64>,
}

/// The part of the truth that a walk with this mark should find: frames whose sp lies above it.
/// The innermost frame's sp is `live_sp`.
pub fn expected_from(truth: &Truth, live_sp: u64, first_frame: Option<u64>) -> usize {
    let Some(mark) = first_frame else { return 0 };
    let frames = truth.frames();
    let sp = |i: usize| match frames[i].kind {
        TrueKind::Top => live_sp,
        TrueKind::Call | TrueKind::Interrupted | TrueKind::Trapped => frames[i - 1].cfa,
    };
    (0..frames.len())
        .find(|&i| i > 0 && sp(i) > mark)
        .unwrap_or(frames.len())
}

/// What a verdict stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ground {
    /// Frames that are known.
    pub known: u32,
    /// Those of them that the chain has.
    pub found: u32,
    /// Is the root among the known ones? Without it no chain is right.
    pub complete: bool,
    /// The chain has every true frame and no other, and its format cannot mark a root.
    pub end_not_claimed: bool,
    /// The chain ends with the last of the known frames.
    pub at_last: bool,
}

impl Ground {
    /// The share of the known frames that were found, in millionths; `None` where no more is known
    /// than the frame that was sampled.
    pub fn share(&self) -> Option<u64> {
        let says_something = self.known > 1 || (self.known == 1 && self.complete);
        says_something.then(|| u64::from(self.found) * 1_000_000 / u64::from(self.known))
    }
}

/// Judges `chain` against the frames of `truth` from index `from` on.
pub fn judge(chain: &Chain, truth: &Truth, from: usize) -> (Verdict, Ground) {
    against_links(chain, &true_links(truth, from), truth.is_complete())
}

/// Judges `chain` against a walk of the same stack that stands for the truth, as far as that came.
pub fn judge_against(chain: &Chain, reference: &Chain) -> (Verdict, Ground) {
    let links: Vec<Link> = reference.frames.iter().map(link).collect();
    against_links(chain, &links, reference.end.reason == Reason::RootReached)
}

fn against_links(chain: &Chain, truth: &[Link], complete: bool) -> (Verdict, Ground) {
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let mut ground = ground(&found, truth, complete);
    let code = chain.end.reason.code();
    let never_began = code == Code::RegistersMissing && chain.frames.is_empty();
    if never_began || code == Code::NoBranchRecords {
        return (Verdict::Unsupported, ground);
    }
    if truth.is_empty() {
        return (Verdict::Unjudged, ground);
    }
    if code == Code::Cycle {
        return (Verdict::Looped, ground);
    }
    let mut verdict = compare(&found, truth, complete);
    if verdict == Verdict::Ok {
        verdict = at_root(&chain.end, ground.known);
        let is_root = chain.end.reason == Reason::RootReached;
        ground.end_not_claimed = verdict == Verdict::Ok && !is_root;
    }
    let guessed = chain.frames.iter().any(|f| f.found == Found::Guess);
    let verdict = match verdict {
        Verdict::Ok if guessed || chain.refused => Verdict::OkUnproven,
        verdict if verdict.is_wrong() && chain.refused => Verdict::Refused,
        verdict => verdict,
    };
    (verdict, ground)
}

/// The end of a chain that has the true frames and no others; the root is the last of `frames`.
fn at_root(end: &End, frames: u32) -> Verdict {
    match end.reason {
        Reason::RootReached => Verdict::Ok,
        _ if !end.marks_roots => Verdict::Ok,
        // The root's row gave a caller, or would have.
        Reason::NotText { .. }
        | Reason::Memory(_)
        | Reason::SpDidNotAdvance { .. }
        | Reason::RegisterNotCarried { .. }
        | Reason::ExpressionFailed { .. } => Verdict::Extra {
            count: 1,
            at: frames,
        },
        _ => Verdict::Truncated { at: frames },
    }
}

fn ground(found: &[Link], truth: &[Link], complete: bool) -> Ground {
    let hits = align(found, truth);
    let same = |(f, hit): (&Link, &Option<usize>)| hit.is_some_and(|t| truth[t].pc == f.pc);
    Ground {
        known: truth.len() as u32,
        found: found.iter().zip(&hits).filter(|&pair| same(pair)).count() as u32,
        complete: complete && !truth.is_empty(),
        end_not_claimed: false,
        at_last: hits
            .last()
            .copied()
            .flatten()
            .is_some_and(|t| t + 1 == truth.len()),
    }
}

/// For each frame of `chain`, which frame of `truth` (from index `from` on) it is.
pub fn align_chain(chain: &Chain, truth: &Truth, from: usize) -> Vec<Option<usize>> {
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let hits = align(&found, &true_links(truth, from));
    hits.into_iter().map(|hit| hit.map(|i| i + from)).collect()
}

fn true_links(truth: &Truth, from: usize) -> Vec<Link> {
    let frames = truth.frames().iter().enumerate().skip(from);
    let sp = |i: usize| i.checked_sub(1).map(|inner| truth.frames()[inner].cfa);
    frames
        .map(|(i, f)| Link {
            pc: f.pc,
            slot: truth.slot(i),
            sp: sp(i),
        })
        .collect()
}

fn link(frame: &Frame) -> Link {
    let sp = (frame.sp != 0).then_some(frame.sp);
    Link {
        pc: frame.pc.value(),
        slot: frame.slot,
        sp,
    }
}

/// Compares two chains without provenance: a recording, such as perf's, with a truth or with
/// another chain that stands for it. If that is `complete`, two that are equal agree, whatever
/// their ends.
pub fn judge_addresses(found: &[u64], truth: &[u64], complete: bool) -> (Verdict, Ground) {
    let links = |pcs: &[u64]| {
        pcs.iter()
            .map(|&pc| Link {
                pc,
                slot: None,
                sp: None,
            })
            .collect::<Vec<_>>()
    };
    let (found, truth) = (links(found), links(truth));
    let verdict = match truth.is_empty() {
        true => Verdict::Unjudged,
        false => compare(&found, &truth, complete),
    };
    (verdict, ground(&found, &truth, complete))
}

/// For each frame found, the true frame that it is; `None` if it is none.
fn align(found: &[Link], truth: &[Link]) -> Vec<Option<usize>> {
    let mut next = 0;
    let matches = |f: &Link, t: &Link| match (f.slot, t.slot) {
        // A function may keep its return address elsewhere: the same pc with the same sp is the
        // same frame.
        (Some(a), Some(b)) => a == b || (f.pc == t.pc && f.sp.is_some() && f.sp == t.sp),
        _ => f.pc == t.pc,
    };
    let mut out = Vec::with_capacity(found.len());
    for f in found {
        let hit = truth[next..]
            .iter()
            .position(|t| matches(f, t))
            .map(|i| next + i);
        // A frame without a slot is matched by pc alone: recursion could carry it far away, so
        // that what follows would count as missing. The nearest one it is.
        if let Some(i) = hit {
            next = i + 1;
        }
        out.push(hit);
    }
    out
}

/// The frames of two chains; `complete` says that `truth` ends with the root. Where it does not, a
/// chain that has all of it is not judged.
fn compare(found: &[Link], truth: &[Link], complete: bool) -> Verdict {
    let aligned = align(found, truth);
    let whole = match complete {
        true => found.len() == truth.len(),
        false => found.len() >= truth.len(),
    };
    let same_addresses = whole && found.iter().zip(truth).all(|(f, t)| f.pc == t.pc);
    let same = |i: usize, t: usize| found[i].pc == truth[t].pc;
    let (mut first, mut missing, mut extra) = (None, 0, 0);
    let (mut next, mut pending) = (0, 0);
    for (i, hit) in aligned.iter().enumerate() {
        let Some(t) = *hit else {
            pending += 1;
            continue;
        };
        let absent = t - next;
        let gap =
            gap(absent, pending, next).or((!same(i, t)).then_some(Verdict::Wrong { at: t as u32 }));
        first = first.or(gap);
        missing += absent;
        extra += pending;
        (next, pending) = (t + 1, 0);
    }
    if next < truth.len() {
        let at = next as u32;
        let tail = if pending > 0 {
            Verdict::Wrong { at }
        } else {
            Verdict::Truncated { at }
        };
        first = first.or(Some(tail));
    } else if pending > 0 && complete {
        first = first.or(Some(Verdict::Extra {
            count: 0,
            at: next as u32,
        }));
        extra += pending;
    }
    match first {
        None if complete => Verdict::Ok,
        Some(_) if same_addresses && complete => Verdict::OkUnproven,
        None => Verdict::Unjudged,
        Some(_) if same_addresses => Verdict::Unjudged,
        Some(Verdict::Missing { at, .. }) => Verdict::Missing {
            count: missing as u32,
            at,
        },
        Some(Verdict::Extra { at, .. }) => Verdict::Extra {
            count: extra as u32,
            at,
        },
        Some(other) => other,
    }
}

/// What a gap between two frames that agree is: `absent` true ones, `pending` others instead.
fn gap(absent: usize, pending: usize, at: usize) -> Option<Verdict> {
    let at = at as u32;
    match (absent, pending) {
        (0, 0) => None,
        (_, 0) => Some(Verdict::Missing { count: 0, at }),
        (0, _) => Some(Verdict::Extra { count: 0, at }),
        _ => Some(Verdict::Wrong { at }),
    }
}

#[cfg(test)]
mod tests;
