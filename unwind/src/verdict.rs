//! Verdicts on chains: the closed set of verdicts, and the comparison with the ground truth.
//!
//! Chains are aligned by the address of the return-address slot, otherwise by pc, leftmost first,
//! so that one missing frame does not make ten others wrong. `@k` is the first frame affected,
//! counted from 0 (innermost) in the true chain.
//!
//! Frames beyond the known ones are not judged. A chain that has all known frames is right only if
//! the last one is the root and the walk reported it as such.

mod boundary;

pub use boundary::judge_boundary;

use crate::chain::{Chain, End, FoundBy, Frame, Link};
use crate::reason::{Code, Reason};
use crate::truth::{TrueKind, Truth};
use alloc::vec::Vec;
use core::fmt;

/// The verdict on a chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// `.`: the true chain.
    Ok,
    /// `~`: the addresses of the true chain, but found by luck: at other slots, by a scan, or in a
    /// chain that the unwinder itself reports as unreliable. Never counted as right.
    OkUnproven,
    /// `mN`: true frames inside the chain are missing.
    Missing {
        /// Number of missing frames in the whole chain.
        count: u32,
        /// The first missing frame.
        at: u32,
    },
    /// `xN`: the chain has frames that are not true.
    Extra {
        /// Number of extra frames in the whole chain. A caller of the root counts as one even if
        /// the walk failed before reporting it.
        count: u32,
        /// The true frame that the first extra frame precedes.
        at: u32,
    },
    /// `w`: frame `at` differs from the true one.
    Wrong {
        /// The frame that differs.
        at: u32,
    },
    /// `t`: right as far as it goes, but it ended early. Either frames are missing, or, if `at`
    /// equals the number of true frames, none is, but the walk did not recognize the root.
    Truncated {
        /// The first missing frame.
        at: u32,
    },
    /// `r`: the unwinder itself reported the chain as unreliable.
    Refused,
    /// `l`: the walk ran into a cycle.
    Looped,
    /// `u`: not supported.
    Unsupported,
    /// `?`: not judged, because the ground truth is unknown here.
    Unjudged,
}

impl Verdict {
    /// Every letter with its word, from best to worst.
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

    /// The verdict's letter.
    pub const fn letter(self) -> char {
        Self::WORDS[self.index()].0
    }

    /// The verdict's word, for machines.
    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self.index()].1
    }

    /// The first true frame affected.
    pub const fn at(self) -> Option<u32> {
        match self {
            Verdict::Missing { at, .. }
            | Verdict::Extra { at, .. }
            | Verdict::Wrong { at }
            | Verdict::Truncated { at } => Some(at),
            _ => None,
        }
    }

    /// The number of missing or extra frames.
    pub const fn count(self) -> Option<u32> {
        match self {
            Verdict::Missing { count, .. } | Verdict::Extra { count, .. } => Some(count),
            _ => None,
        }
    }

    /// Whether the chain was judged.
    pub const fn is_judged(self) -> bool {
        !matches!(self, Verdict::Unsupported | Verdict::Unjudged)
    }

    /// Whether the chain is wrong in any way. A chain that is right by luck is neither wrong nor
    /// right.
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

/// The index of the first true frame that a walk with this mark should find: the first whose sp is
/// above the mark. The innermost frame's sp is `live_sp`.
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

/// What a verdict is based on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ground {
    /// Number of known true frames.
    pub known: u32,
    /// Number of these that the chain has.
    pub found: u32,
    /// Whether the known frames include the root. Otherwise no chain is right.
    pub complete: bool,
    /// Whether the chain has exactly the true frames, but its format cannot mark a root.
    pub end_not_claimed: bool,
    /// Whether the chain ends with the last known frame.
    pub at_last: bool,
}

impl Ground {
    /// The share of the known frames that the chain has, in millionths; `None` if only the sampled
    /// frame is known.
    pub fn share(&self) -> Option<u64> {
        let says_something = self.known > 1 || (self.known == 1 && self.complete);
        says_something.then(|| u64::from(self.found) * 1_000_000 / u64::from(self.known))
    }
}

/// Judges `chain` against the frames of `truth` from index `from`.
///
/// Frame pointers see two of these three frames, since the innermost function has not yet saved rbp:
///
/// ```
/// use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
/// use unwind_sim_unwind::verdict::{Verdict, judge};
/// use unwind_sim_unwind::{AddressSpace, Cache, FramePointer, Mapping, MemoryCopy};
/// use unwind_sim_unwind::{Regs, Stack, Start, Unwinder};
///
/// let words: [u64; 3] = [0x401200, 0, 0x401300];
/// let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
/// let memory = MemoryCopy::new(0x7000, &bytes);
/// let mut space = AddressSpace::new();
/// space.map(Mapping { range: 0x400000..0x500000, bias: 0, image: None, name: "program".into() });
///
/// let start = Start::from_regs(Regs::frame(0x401100, 0x7000, 0x7008));
/// let chain = FramePointer.walk(&Stack::new(&start, &space, &memory), &mut Cache::new());
///
/// // What a shadow stack knows: each frame's pc, and rsp after its return.
/// let frame = |pc, cfa, kind| TrueFrame { pc, cfa, kind, saved: None };
/// let truth = Truth::Complete(vec![
///     frame(0x401100, 0x7008, TrueKind::Top),
///     frame(0x401200, 0x7018, TrueKind::Call),
///     frame(0x401300, 0, TrueKind::Call),
/// ]);
///
/// let (verdict, ground) = judge(&chain, &truth, 0);
/// assert_eq!(verdict, Verdict::Missing { count: 1, at: 1 });
/// assert_eq!((ground.found, ground.known), (2, 3));
/// ```
pub fn judge(chain: &Chain, truth: &Truth, from: usize) -> (Verdict, Ground) {
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let truth_links = true_links(truth, from).collect::<Vec<_>>();
    Claim::of(chain, &found).judge(&truth_links, truth.is_complete())
}

/// Judges `chain` against a walk of the same stack that serves as the truth, as far as it got;
/// `complete` if that is all of the stack.
///
/// Frame pointers see two of these three frames, since the function in the middle has not yet saved rbp:
///
/// ```
/// use unwind_sim_unwind::verdict::{Verdict, judge_addresses, judge_against};
/// use unwind_sim_unwind::{AddressSpace, Cache, FramePointer, Mapping, MemoryCopy};
/// use unwind_sim_unwind::{Regs, Stack, Start, Unwinder};
///
/// let words: [u64; 3] = [0x401200, 0, 0x401300];
/// let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
/// let memory = MemoryCopy::new(0x7000, &bytes);
/// let mut space = AddressSpace::new();
/// space.map(Mapping { range: 0x400000..0x500000, bias: 0, image: None, name: "program".into() });
///
/// // rip, rsp and rbp: the return address is at rsp, and rbp is still the caller's.
/// let start = Start::from_regs(Regs::frame(0x401100, 0x7000, 0x7008));
/// let chain = FramePointer.walk(&Stack::new(&start, &space, &memory), &mut Cache::new());
/// let found: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();
///
/// let (verdict, ground) = judge_addresses(&found, &[0x401100, 0x401200, 0x401300], true);
/// assert_eq!(verdict, Verdict::Missing { count: 1, at: 1 });
/// assert_eq!((ground.found, ground.known), (2, 3));
/// assert_eq!(judge_against(&chain, &chain, true).0, Verdict::Ok);
/// ```
pub fn judge_against(chain: &Chain, reference: &Chain, complete: bool) -> (Verdict, Ground) {
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let links: Vec<Link> = reference.frames.iter().map(link).collect();
    Claim::of(chain, &found).judge(&links, complete)
}

/// What a walk claims: the frames, and that they end so.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The frames, innermost first.
    pub frames: &'a [Link],
    /// Why the walk ended.
    pub end: &'a End,
    /// Whether a frame was found by a scan of the stack.
    pub guessed: bool,
    /// Whether the unwinder itself reports the chain as unreliable.
    pub refused: bool,
}

impl<'a> Claim<'a> {
    fn of(chain: &'a Chain, frames: &'a [Link]) -> Claim<'a> {
        Claim {
            frames,
            end: &chain.end,
            guessed: chain
                .frames
                .iter()
                .any(|f| matches!(f.found, FoundBy::Guess)),
            refused: chain.refused,
        }
    }

    /// Judges it against the true frames; `complete` means that they end with the root.
    pub fn judge(&self, truth: &[Link], complete: bool) -> (Verdict, Ground) {
        // The frames are compared first, since the counts are reported for every verdict.
        let (compared, mut ground) = compare(self.frames, truth, complete);

        let code = self.end.reason.code();
        // Such a recording lacks what this unwinder needs, which is not its fault.
        let never_began = code == Code::RegistersMissing && self.frames.is_empty();
        if never_began || code == Code::NoBranchRecords {
            return (Verdict::Unsupported, ground);
        }

        if truth.is_empty() {
            return (Verdict::Unjudged, ground);
        }

        // A walk in a loop has frames without end: how the first ones compare says nothing.
        if code == Code::Cycle {
            return (Verdict::Looped, ground);
        }

        // Right frames can still have a wrong end.
        let mut verdict = compared;
        if verdict == Verdict::Ok {
            verdict = at_root(self.end, ground.known);
            let is_root = self.end.reason == Reason::RootReached;
            ground.end_not_claimed = verdict == Verdict::Ok && !is_root;
        }

        // A chain that its unwinder does not vouch for is right only by luck.
        let verdict = match verdict {
            Verdict::Ok if self.guessed || self.refused => Verdict::OkUnproven,
            verdict if verdict.is_wrong() && self.refused => Verdict::Refused,
            verdict => verdict,
        };

        (verdict, ground)
    }
}

/// The verdict on a chain that has exactly the true frames, up to the root.
fn at_root(end: &End, frames: u32) -> Verdict {
    match end.reason {
        Reason::RootReached => Verdict::Ok,
        _ if !end.marks_roots => Verdict::Ok,
        // The rule at the root had a caller, or tried to.
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

fn ground(found: &[Link], hits: &[Option<usize>], truth: &[Link], complete: bool) -> Ground {
    let same = |(f, hit): (&Link, &Option<usize>)| hit.is_some_and(|t| truth[t].pc == f.pc);
    Ground {
        known: truth.len() as u32,
        found: found.iter().zip(hits).filter(|&pair| same(pair)).count() as u32,
        complete: complete && !truth.is_empty(),
        end_not_claimed: false,
        at_last: hits
            .last()
            .copied()
            .flatten()
            .is_some_and(|t| t + 1 == truth.len()),
    }
}

/// For each frame of `chain`, the index of the same frame in `truth` (searched from `from`).
pub fn align_chain(chain: &Chain, truth: &Truth, from: usize) -> Vec<Option<usize>> {
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let truth_links = true_links(truth, from).collect::<Vec<_>>();
    let hits = align(&found, &truth_links);
    hits.into_iter().map(|hit| hit.map(|i| i + from)).collect()
}

/// The frames of `truth` from index `from`.
pub fn true_links(truth: &Truth, from: usize) -> impl Iterator<Item = Link> {
    let frames = truth.frames().iter().enumerate().skip(from);
    let sp = |i: usize| i.checked_sub(1).map(|inner| truth.frames()[inner].cfa);
    frames.map(move |(i, f)| Link {
        pc: f.pc,
        slot: truth.slot(i),
        sp: sp(i),
        is_return: f.kind == TrueKind::Call,
    })
}

fn link(frame: &Frame) -> Link {
    let sp = (frame.sp != 0).then_some(frame.sp);
    Link {
        pc: frame.pc.value(),
        slot: frame.slot,
        sp,
        is_return: !frame.pc.is_instruction(),
    }
}

/// Compares two chains without provenance: a recording, such as perf's, with the truth or with
/// another chain that serves as the truth. If that is `complete`, two equal chains agree whatever
/// their ends.
pub fn judge_addresses(found: &[u64], truth: &[u64], complete: bool) -> (Verdict, Ground) {
    let links = |pcs: &[u64]| {
        pcs.iter()
            .map(|&pc| Link {
                pc,
                slot: None,
                sp: None,
                is_return: true,
            })
            .collect::<Vec<_>>()
    };
    let (found, truth) = (links(found), links(truth));
    match compare(&found, &truth, complete) {
        (_, ground) if truth.is_empty() => (Verdict::Unjudged, ground),
        judged => judged,
    }
}

/// Whether two frames are the same one, whatever their pc.
fn matches(f: &Link, t: &Link) -> bool {
    match (f.slot, t.slot) {
        // A function may keep its return address elsewhere: the same pc with the same sp is the
        // same frame.
        (Some(a), Some(b)) => a == b || (f.pc == t.pc && f.sp.is_some() && f.sp == t.sp),
        _ => f.pc == t.pc,
    }
}

/// For each frame found, the index of the same true frame, if any.
fn align(found: &[Link], truth: &[Link]) -> Vec<Option<usize>> {
    let mut next = 0;
    let mut out = Vec::with_capacity(found.len());
    for f in found {
        let hit = truth[next..]
            .iter()
            .position(|t| matches(f, t))
            .map(|i| next + i);
        // A frame without a slot is matched by pc alone. With recursion, a distant match would make
        // the frames in between count as missing, so take the nearest one.
        if let Some(i) = hit {
            next = i + 1;
        }
        out.push(hit);
    }
    out
}

/// Compares the frames of two chains; `complete` means that `truth` ends with the root. If not, a
/// chain that has all of `truth` is not judged.
fn compare(found: &[Link], truth: &[Link], complete: bool) -> (Verdict, Ground) {
    let mut pairs = found.iter().zip(truth);
    if found.len() == truth.len() && pairs.all(|(f, t)| f.pc == t.pc && matches(f, t)) {
        // Most chains.
        let verdict = if complete {
            Verdict::Ok
        } else {
            Verdict::Unjudged
        };
        let count = truth.len() as u32;
        let ground = Ground {
            known: count,
            found: count,
            complete: complete && count > 0,
            end_not_claimed: false,
            at_last: count > 0,
        };
        return (verdict, ground);
    }
    let hits = align(found, truth);
    let verdict = compare_aligned(found, &hits, truth, complete);
    (verdict, ground(found, &hits, truth, complete))
}

/// The verdict of [`compare`] on chains that are aligned by `hits`.
fn compare_aligned(
    found: &[Link],
    hits: &[Option<usize>],
    truth: &[Link],
    complete: bool,
) -> Verdict {
    // Frames beyond a truth that lacks the root cannot be judged.
    let whole = if complete {
        found.len() == truth.len()
    } else {
        found.len() >= truth.len()
    };
    let same_addresses = whole && found.iter().zip(truth).all(|(f, t)| f.pc == t.pc);
    let same = |i: usize, t: usize| found[i].pc == truth[t].pc;

    let (mut first, mut missing, mut extra) = (None, 0, 0);
    let (mut next, mut pending) = (0, 0);
    for (i, hit) in hits.iter().enumerate() {
        // A frame that is not true: where it belongs shows at the next true one.
        let Some(t) = *hit else {
            pending += 1;
            continue;
        };

        // True frames that were left out, and found ones that do not exist, before this common one.
        let absent = t - next;
        let gap =
            gap(absent, pending, next).or((!same(i, t)).then_some(Verdict::Wrong { at: t as u32 }));

        first = first.or(gap);
        missing += absent;
        extra += pending;
        (next, pending) = (t + 1, 0);
    }

    // The chain ended early, or its last frames are others than the true ones.
    if next < truth.len() {
        let at = next as u32;
        let tail = if pending > 0 {
            Verdict::Wrong { at }
        } else {
            Verdict::Truncated { at }
        };
        first = first.or(Some(tail));
    // Extra frames behind the root; without a root they may be true.
    } else if pending > 0 && complete {
        first = first.or(Some(Verdict::Extra {
            count: 0,
            at: next as u32,
        }));
        extra += pending;
    }

    // The first difference gives the verdict; the counts are those of the whole chain.
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

/// The verdict on a gap between two matching frames: `absent` true frames are missing, and
/// `pending` other frames are there instead.
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
