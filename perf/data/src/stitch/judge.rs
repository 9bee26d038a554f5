//! Judges one stitching method by our own.

use std::collections::{BTreeMap, HashMap};

use super::{MissingReason, Stitch, Stitched};
use crate::callchain::{PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED};

/// The judgement of a sample's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Judgement {
    /// It has its actual user frames, or none if none are known.
    Right,
    /// Its user frames are known, but it did not get them: the cookie is in their place as if it
    /// were a frame.
    Lacking,
    /// It has user frames of another moment.
    Wrong,
    /// It has the record's frames, but its actual ones are unknown: the thread had continued in
    /// user space before the record was made.
    Unproven,
    /// No user frames are known, and the cookie is in their place as if it were a frame.
    Bogus,
}

impl Judgement {
    /// All judgements.
    pub const ALL: [Self; 5] = [
        Self::Right,
        Self::Lacking,
        Self::Wrong,
        Self::Bogus,
        Self::Unproven,
    ];

    /// A stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Lacking => "lacking",
            Self::Wrong => "wrong",
            Self::Bogus => "bogus",
            Self::Unproven => "unproven",
        }
    }

    /// The judgement in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Lacking => "lacking: a cookie in place of existing frames",
            Self::Wrong => "wrong: frames from another time",
            Self::Bogus => "bogus: a cookie in place of frames that do not exist",
            Self::Unproven => "unproven: frames from a moment later; the caller may be missing",
        }
    }
}

/// A sample stitched by two methods.
#[derive(Clone, Copy, Debug)]
pub struct JudgedSample<'a> {
    /// The result of our own method.
    pub own: &'a Stitched,
    /// The result of the other method.
    pub other: &'a Stitched,
    /// The judgement of `other`.
    pub judgement: Judgement,
}

/// Compares two methods of stitching the same samples, in the order of `own`. Samples that only one
/// has are skipped.
pub fn judge<'a>(own: &'a [Stitched], other: &'a [Stitched]) -> Vec<JudgedSample<'a>> {
    let by_key: HashMap<u64, &Stitched> = other.iter().map(|sample| (sample.key, sample)).collect();
    let pair = |own: &'a Stitched| {
        let other = *by_key.get(&own.key)?;
        Some(JudgedSample {
            own,
            other,
            judgement: judgement(own, other),
        })
    };
    own.iter().filter_map(pair).collect()
}

fn judgement(own: &Stitched, other: &Stitched) -> Judgement {
    let (truth, found) = (user_frames(own), user_frames(other));
    match (truth, found) {
        (truth, found) if truth == found => match (own.how, other.how) {
            (_, Stitch::Missing(_)) => Judgement::Bogus,
            (Stitch::Moved { .. }, _) => Judgement::Unproven,
            _ => Judgement::Right,
        },
        (_, []) => Judgement::Lacking,
        _ => Judgement::Wrong,
    }
}

/// The frames that came from a record.
fn user_frames(sample: &Stitched) -> &[u64] {
    if sample.how.record().is_none() {
        return &[];
    }
    let is_user = |&word: &u64| word == PERF_CONTEXT_USER || word == PERF_CONTEXT_USER_DEFERRED;
    match sample.chain.iter().rposition(is_user) {
        Some(marker) => &sample.chain[marker + 1..],
        None => &[],
    }
}

/// Number of samples by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples whose user part was deferred.
    pub deferred: u64,
    /// Samples that got their actual user frames, including late ones.
    pub stitched: u64,
    /// Late samples among them.
    pub late: u64,
    /// Samples whose record is of a later moment.
    pub moved: u64,
    /// Samples whose record had no frames.
    pub empty: u64,
    /// Samples without user frames, by reason.
    pub missing: BTreeMap<MissingReason, u64>,
    /// Judgements of the deferred samples stitched by the other method.
    pub other: BTreeMap<Judgement, u64>,
}

impl Tally {
    /// Counts the outcomes.
    pub fn of(judged: &[JudgedSample<'_>]) -> Self {
        let mut tally = Self::default();
        for sample in judged {
            let how = sample.own.how;
            if how == Stitch::NotDeferred {
                continue;
            }
            tally.deferred += 1;
            *tally.other.entry(sample.judgement).or_default() += 1;
            match how {
                Stitch::Stitched { .. } => tally.stitched += 1,
                Stitch::Late { .. } => {
                    tally.stitched += 1;
                    tally.late += 1;
                }
                Stitch::Moved { .. } => tally.moved += 1,
                Stitch::Empty { .. } => tally.empty += 1,
                Stitch::Missing(why) => *tally.missing.entry(why).or_default() += 1,
                Stitch::NotDeferred => {}
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests;
