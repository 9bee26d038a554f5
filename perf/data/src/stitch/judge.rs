//! One way of stitching judged by our own.

use std::collections::{BTreeMap, HashMap};

use super::{Stitch, Stitched, Why};
use crate::callchain::{PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED};

/// What is to be said of the chain that a sample got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Judgement {
    /// The user frames it really had, or none where none are known.
    Right,
    /// Its user frames are there, but it did not get them: the cookie stands in their place, as
    /// if it were a frame.
    Lacking,
    /// It has user frames of another moment.
    Wrong,
    /// It has the record's frames, but nobody knows the sample's: the thread had gone on in user
    /// space before the record was made.
    Unproven,
    /// No user frames are known, and the cookie stands in their place as if it were a frame.
    Bogus,
}

impl Judgement {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Right,
        Self::Lacking,
        Self::Wrong,
        Self::Bogus,
        Self::Unproven,
    ];

    /// A stable name for machines.
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
            Self::Lacking => "lacking: a cookie in the place of frames that are there",
            Self::Wrong => "wrong: frames of another moment",
            Self::Bogus => "bogus: a cookie in the place of frames that are not there",
            Self::Unproven => "unproven: frames of a moment later, the caller may be missing",
        }
    }
}

/// A sample as it came out in two ways.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// Our own.
    pub own: &'a Stitched,
    /// The other.
    pub other: &'a Stitched,
    /// What is to be said of the other.
    pub judgement: Judgement,
}

/// Compares two ways of stitching the same samples, in our order. Samples that only one has are
/// left out.
pub fn judge<'a>(own: &'a [Stitched], other: &'a [Stitched]) -> Vec<Judged<'a>> {
    let by_key: HashMap<u64, &Stitched> = other.iter().map(|sample| (sample.key, sample)).collect();
    let pair = |own: &'a Stitched| {
        let other = *by_key.get(&own.key)?;
        Some(Judged {
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

/// The frames that a record brought.
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

/// How many samples came to what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples whose user part was deferred.
    pub deferred: u64,
    /// Samples with the user frames that they really had, late ones included.
    pub stitched: u64,
    /// Of these, late ones.
    pub late: u64,
    /// Samples whose record is of a moment later.
    pub moved: u64,
    /// Samples whose record had no frames.
    pub empty: u64,
    /// Samples without user frames, by reason.
    pub missing: BTreeMap<Why, u64>,
    /// What the other way made of the deferred samples.
    pub other: BTreeMap<Judgement, u64>,
}

impl Tally {
    /// Counts.
    pub fn of(judged: &[Judged<'_>]) -> Self {
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
