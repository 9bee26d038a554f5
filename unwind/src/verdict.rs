//! Is a chain right? One closed set of words, and the comparison behind them.
//!
//! Chains are aligned by the address of the return-address slot, else by pc, leftmost: one frame
//! that is missing is not ten that are wrong. `@k` is the first frame concerned, counted in the
//! true chain from 0, the innermost.

use crate::chain::{Chain, Found, Frame};
use crate::kernel::{Task, UserBoundary};
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
        /// How many, in the whole chain.
        count: u32,
        /// In front of this true frame.
        at: u32,
    },
    /// `w`: frame `at` is another than the true one.
    Wrong {
        /// That frame.
        at: u32,
    },
    /// `t`: right as far as it goes, then ended early.
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

/// Judges `chain` against the frames of `truth` from index `from` on.
pub fn judge(chain: &Chain, truth: &Truth, from: usize) -> Verdict {
    if matches!(chain.end.reason, Reason::RegistersMissing { .. }) && chain.frames.is_empty() {
        return Verdict::Unsupported;
    }
    let code = chain.end.reason.code();
    if code == Code::NoBranchRecords {
        return Verdict::Unsupported;
    }
    let truth_links = true_links(truth, from);
    if truth_links.is_empty() {
        return Verdict::Unjudged;
    }
    if code == Code::Cycle {
        return Verdict::Looped;
    }
    let found: Vec<Link> = chain.frames.iter().map(link).collect();
    let verdict = compare(&found, &truth_links, truth.is_complete());
    let guessed = chain.frames.iter().any(|f| f.found == Found::Guess);
    match verdict {
        Verdict::Ok if guessed || chain.refused => Verdict::OkUnproven,
        verdict if verdict.is_wrong() && chain.refused => Verdict::Refused,
        verdict => verdict,
    }
}

/// Judges the end of a kernel's chain too: one that has all true frames, the last of `frames`
/// included, and then takes other registers for those of user space is wrong behind that frame.
pub fn judge_boundary(
    verdict: Verdict,
    chain: &Chain,
    frames: usize,
    boundary: &UserBoundary,
    task: &Task,
) -> Verdict {
    let is_right = |found| boundary.is(found, task);
    match verdict {
        Verdict::Ok | Verdict::OkUnproven if !chain.user_regs.as_ref().is_none_or(is_right) => {
            match chain.refused {
                true => Verdict::Refused,
                false => Verdict::Wrong { at: frames as u32 },
            }
        }
        verdict => verdict,
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

/// Compares two walks of the same stack: how far does `chain` agree with `reference`?
pub fn judge_against(chain: &Chain, reference: &Chain) -> Verdict {
    let links = |c: &Chain| c.frames.iter().map(link).collect::<Vec<_>>();
    if reference.frames.is_empty() {
        return Verdict::Unjudged;
    }
    if chain.frames.is_empty() && matches!(chain.end.reason, Reason::RegistersMissing { .. })
        || chain.end.reason == Reason::NoBranchRecords
    {
        return Verdict::Unsupported;
    }
    let complete = reference.end.reason == Reason::RootReached;
    compare(&links(chain), &links(reference), complete)
}

/// Compares two chains without provenance: a recording, such as perf's, with a truth or with
/// another chain that stands for it.
pub fn judge_addresses(found: &[u64], truth: &[u64], complete: bool) -> Verdict {
    let links = |pcs: &[u64]| {
        pcs.iter()
            .map(|&pc| Link {
                pc,
                slot: None,
                sp: None,
            })
            .collect::<Vec<_>>()
    };
    if truth.is_empty() {
        return Verdict::Unjudged;
    }
    compare(&links(found), &links(truth), complete)
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

fn compare(found: &[Link], truth: &[Link], complete: bool) -> Verdict {
    let aligned = align(found, truth);
    let lucky = found.len() == truth.len()
        && complete
        && found.iter().zip(truth).all(|(f, t)| f.pc == t.pc);
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
        None => Verdict::Ok,
        Some(_) if lucky => Verdict::OkUnproven,
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
mod tests {
    use super::*;
    use crate::kernel::UserRegs;

    fn check(found: &[(u64, u64)], truth: &[(u64, u64)], want: &str) {
        let links = |v: &[(u64, u64)]| {
            v.iter()
                .map(|&(pc, slot)| Link {
                    pc,
                    slot: (slot != 0).then_some(slot),
                    sp: None,
                })
                .collect()
        };
        let (found, truth): (Vec<Link>, Vec<Link>) = (links(found), links(truth));
        assert_eq!(alloc::format!("{}", compare(&found, &truth, true)), want);
    }

    const TRUE: [(u64, u64); 4] = [(1, 0), (2, 0x10), (3, 0x20), (4, 0x30)];

    #[test]
    fn the_words_of_the_design() {
        check(&TRUE, &TRUE, ".");
        check(&TRUE[..2], &TRUE, "t@2");
        check(&[], &TRUE, "t@0");
        check(&[TRUE[0], TRUE[2], TRUE[3]], &TRUE, "m1@1");
        check(&[TRUE[0], TRUE[3]], &TRUE, "m2@1");
        check(
            &[TRUE[0], (9, 0x18), TRUE[1], TRUE[2], TRUE[3]],
            &TRUE,
            "x1@1",
        );
        check(&[TRUE[0], TRUE[1], (9, 0x28), TRUE[3]], &TRUE, "w@2");
        check(&[TRUE[0], (9, 0x28)], &TRUE, "w@1");
        check(
            &[TRUE[0], TRUE[1], TRUE[2], TRUE[3], (9, 0x40)],
            &TRUE,
            "x1@4",
        );
        check(&[TRUE[0], (7, 0x10), TRUE[2], TRUE[3]], &TRUE, "w@1");
    }

    #[test]
    fn right_addresses_from_wrong_slots_are_luck() {
        check(&[(1, 0), (2, 0x18), (3, 0x28), (4, 0x30)], &TRUE, "~");
    }

    #[test]
    fn a_kernel_chain_is_right_only_with_the_users_registers() {
        let boundary = UserBoundary {
            ip: 0x40_1000,
            sp: 0x7ff0,
            pushed_at: Some(0x9000),
        };
        let task = Task::default();
        let right = UserRegs {
            at: 0x9000,
            ip: 0x40_1000,
            sp: 0x7ff0,
        };
        let judged = |verdict, user_regs, refused| {
            let chain = Chain {
                user_regs,
                refused,
                ..Chain::default()
            };
            judge_boundary(verdict, &chain, 3, &boundary, &task)
        };
        let wrong = Some(UserRegs { ip: 0, ..right });
        for verdict in [Verdict::Ok, Verdict::OkUnproven] {
            assert_eq!(judged(verdict, Some(right), false), verdict);
            assert_eq!(judged(verdict, None, false), verdict);
            assert_eq!(judged(verdict, wrong, false), Verdict::Wrong { at: 3 });
            assert_eq!(judged(verdict, wrong, true), Verdict::Refused);
        }
        // What was wrong before stays so.
        let truncated = Verdict::Truncated { at: 1 };
        assert_eq!(judged(truncated, wrong, false), truncated);
    }

    #[test]
    fn one_missing_frame_of_a_recursion_is_one() {
        let truth = [(1, 0), (2, 0x10), (2, 0x20), (2, 0x30), (3, 0x40)];
        check(&[truth[0], truth[2], truth[3], truth[4]], &truth, "m1@1");
    }

    #[test]
    fn a_chain_that_goes_on_behind_the_known_part_is_not_judged_there() {
        let truth = [10, 20];
        assert_eq!(judge_addresses(&[10, 20, 30], &truth, false), Verdict::Ok);
        assert_eq!(
            judge_addresses(&[10, 20, 30], &truth, true),
            Verdict::Extra { count: 1, at: 2 }
        );
        assert_eq!(judge_addresses(&[10], &[], true), Verdict::Unjudged);
    }
}
