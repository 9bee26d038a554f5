//! Stitches the records of a run and compares each sample with the ground truth.
//!
//! A sample must come out with its own user stack, or with a reason why it has none. Whether the
//! records themselves are true is checked by the oracle.

use super::rule::{Rule, Violation};
use super::walk::Walk;
use super::{Allowed, Oracle};
use crate::record::{Body, Branches, Record};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_perf_data::callchain::{PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED};
use unwind_sim_perf_data::stitch::{
    Counts, Item, ItemKind, MissingReason, Mode, Stitch, Stitched, Stitcher,
};

/// The outcome of stitching for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Its own user stack, as far as a walk can see it.
    Right,
    /// A stack that the thread had in the same stay in the kernel, before or after a signal, a
    /// uprobe's instruction or execve: the kernel unwound it at another time.
    SameStay,
    /// No user frames, with a reason from the stitcher.
    Reported,
    /// A stack of another stay of the thread, or of another thread.
    Wrong,
    /// A cookie among the frames.
    Bogus,
    /// There is no user part: a kernel thread, the idle task.
    NoUser,
}

impl Outcome {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::SameStay => "same-stay",
            Self::Reported => "reported",
            Self::Wrong => "wrong",
            Self::Bogus => "bogus",
            Self::NoUser => "no-user",
        }
    }
}

/// A sample after stitching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The number of the sample, from 1.
    pub number: u64,
    /// The stitched sample; its key is the record's sequence number.
    pub stitched: Stitched,
    /// The outcome.
    pub outcome: Outcome,
    /// Its branch stack, and the number of calls on its thread's stack.
    pub branches: Option<(Branches, usize)>,
}

/// The result of stitching a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The samples, in the order of output.
    pub joined: Vec<Joined>,
    /// The stitcher's counts.
    pub counts: Counts,
    /// The broken rules: those of the oracle and, in [`Mode::Own`], of the stitcher.
    pub violations: Vec<Violation>,
    /// The walks of programs that walk user stacks.
    pub walks: Vec<Walk>,
}

/// The records as input of the stitcher. The keys are the records' sequence numbers.
pub fn items(records: &[Record]) -> Vec<Item> {
    let mut items = Vec::with_capacity(records.len());
    for record in records {
        let (mut tid, mut time) = (record.tid, Some(record.time));

        // What a reader of the file would get, and no more.
        let what = match &record.body {
            Body::Sample {
                chain,
                user_mode,
                ip,
                ..
            } => ItemKind::Sample {
                defer: chain.contains(&PERF_CONTEXT_USER_DEFERRED),
                chain: chain.clone(),
                ip: user_mode.then_some(*ip),
            },
            Body::Deferred { cookie, frames, .. } => ItemKind::Record {
                cookie: *cookie,
                frames: frames.clone(),
            },
            Body::Lost { lost } => ItemKind::Lost { count: *lost },
            Body::LostSamples { lost } => {
                // A sum over the whole recording, which does not tell when.
                time = None;
                ItemKind::Lost { count: *lost }
            }
            Body::Exec => ItemKind::Exec,
            Body::Vdso => ItemKind::Vdso,
            Body::Fork { child } => {
                // The record is of the parent; what begins is the child.
                tid = *child;
                ItemKind::Fork
            }
            Body::Exit => ItemKind::Exit,
            Body::Raw { .. } | Body::Throttle | Body::Unthrottle => continue,
        };

        items.push(Item {
            key: record.sequence,
            time,
            tid,
            // 0 would mean no event.
            event: u64::from(record.event) + 1,
            what,
        });
    }

    items
}

/// Stitches a finished run in a mode, and judges the result.
pub fn join(world: &World, mode: Mode) -> Run {
    // The oracle knows the truth from the log, of which the stitcher sees nothing.
    let oracle = Oracle::of(world);
    let mut violations = oracle.violations().to_vec();
    let records = world.records();

    let mut stitcher = Stitcher::new(mode);
    // As a reader of the file knows from the attributes.
    stitcher.asked(world.events().iter().any(|event| event.defer_output));

    let mut out = Vec::new();
    items(records)
        .into_iter()
        .for_each(|item| stitcher.push(item));
    stitcher.finish();
    out.extend(std::iter::from_fn(|| stitcher.pop()));
    let counts = *stitcher.counts();

    let sample = |record: &'_ Record| match &record.body {
        Body::Sample {
            number, branches, ..
        } => Some((record.sequence, (*number, branches.clone()))),
        _ => None,
    };

    // What is stitched has only a key, so the samples are found by it.
    let mut samples: BTreeMap<_, _> = records.iter().filter_map(sample).collect();
    let available = available(records);

    let mut joined = Vec::with_capacity(out.len());
    for stitched in out {
        let (number, branches) = samples.remove(&stitched.key).unwrap_or_default();
        let Some(allowed) = oracle.allowed(number) else {
            continue;
        };

        // The user stack may have changed within the stay, by a signal or an execve.
        let in_stay = oracle.in_stay(number);
        let outcome = outcome(&stitched, &allowed, in_stay);

        // Only our own method claims to be right; the others are perf's, with their defects.
        if mode == Mode::Own {
            let fault = own_fault(&stitched, outcome, &available);
            violations.extend(fault.map(|what| Violation {
                rule: Rule::Stitched,
                time: stitched.time.unwrap_or(0),
                what: format!("sample {number}: {what}"),
            }));
        }

        joined.push(Joined {
            number,
            stitched,
            outcome,
            branches: branches.zip(allowed.calls),
        });
    }

    // Walks of programs come from the oracle, which has read their output.
    Run {
        joined,
        counts,
        violations,
        walks: oracle.walks,
    }
}

/// Threads and cookies of the records that the reader has.
fn available(records: &[Record]) -> BTreeSet<(i32, u64)> {
    let cookies = records.iter().filter_map(|record| match record.body {
        Body::Deferred { cookie, .. } => Some((record.tid, cookie?)),
        _ => None,
    });
    cookies.collect()
}

/// A fault of our own mode: a wrong stack, or a reason although the record exists.
fn own_fault(
    stitched: &Stitched,
    outcome: Outcome,
    available: &BTreeSet<(i32, u64)>,
) -> Option<String> {
    match (outcome, stitched.how) {
        (Outcome::Wrong | Outcome::Bogus, how) => {
            let cookie = stitched.cookie.is_some();
            // Without cookies a lost record cannot be detected.
            let provable = cookie || how == Stitch::NotDeferred;
            provable.then(|| format!("{} comes out {}", how.as_str(), outcome.as_str()))
        }
        (Outcome::Reported, Stitch::Missing(why)) => {
            let is_there = stitched
                .cookie
                .is_some_and(|cookie| available.contains(&(stitched.tid, cookie)));
            // In execve the record shows the new program, so it must not be used.
            (is_there && why != MissingReason::Exec)
                .then(|| format!("its record is there, yet it says {}", why.as_str()))
        }
        _ => None,
    }
}

fn outcome(
    stitched: &Stitched,
    allowed: &Allowed,
    mut in_stay: impl Iterator<Item = Vec<u64>>,
) -> Outcome {
    let marker = |word: &u64| matches!(*word, PERF_CONTEXT_USER | PERF_CONTEXT_USER_DEFERRED);

    // What comes before the first marker of user space is the kernel's part.
    let at = stitched.chain.iter().position(marker);
    let user = at.map_or(&[][..], |at| &stitched.chain[at + 1..]);

    if let Stitch::Missing(_) | Stitch::Empty { .. } = stitched.how {
        // perf leaves the cookie where frames should be.
        let bogus = !user.is_empty();
        return if bogus {
            Outcome::Bogus
        } else {
            Outcome::Reported
        };
    }

    // A kernel thread has no user part, and nothing is what it should have.
    let Some(own) = &allowed.own else {
        return if user.is_empty() {
            Outcome::NoUser
        } else {
            Outcome::Wrong
        };
    };

    let cut = match stitched.how {
        // The kernel's frames and their marker come first and count.
        Stitch::NotDeferred => allowed.cut[1] - at.unwrap_or(0).saturating_sub(1),
        _ => allowed.cut[0],
    };

    let same = |walk: &Vec<u64>| *user == walk[..walk.len().min(cut)];
    if same(own) {
        Outcome::Right
    } else if in_stay.any(|walk| same(&walk)) {
        Outcome::SameStay
    } else {
        Outcome::Wrong
    }
}
