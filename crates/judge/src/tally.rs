//! The counts of one column of a comparison.

use crate::engine::Outcome;
use crate::unjudged::Unjudged;
use std::collections::BTreeMap;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::verdict::Verdict;

/// The counts of one column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The counts by index in [`Verdict::WORDS`].
    pub counts: [u64; Verdict::WORDS.len()],
    /// Judged chains whose frames are known up to the root.
    pub proven: u64,
    /// Chains with exactly the true frames whose format cannot mark a root.
    pub ends_not_claimed: u64,
    /// Chains with a step from the fallback.
    pub fell_back: u64,
    /// The codes with which walks ended.
    pub ended: BTreeMap<Code, u64>,
    /// Why chains were not judged.
    pub unjudged: BTreeMap<Unjudged, u64>,
    /// The share of the known frames that were found, as a sum over chains in millionths, and the
    /// number of these chains. Samples with only the sampled frame known do not count.
    pub shares: (u64, u64),
}

impl Tally {
    /// Counts an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        let verdict = outcome.verdict;
        let index = Verdict::WORDS
            .iter()
            .position(|(c, _)| *c == verdict.letter())
            .unwrap_or(0);
        self.counts[index] += 1;
        let ground = &outcome.ground;
        self.proven += u64::from(ground.complete && verdict.is_judged());
        self.ends_not_claimed += u64::from(ground.end_not_claimed);
        let is_fallback = |event: &Event| matches!(event, Event::Fallback { .. });
        self.fell_back += u64::from(outcome.chain.events.iter().any(is_fallback));
        *self.ended.entry(outcome.ended()).or_default() += 1;
        if let Some(why) = outcome.unjudged {
            *self.unjudged.entry(why).or_default() += 1;
        }
        if let Some(share) = ground.share().filter(|_| verdict != Verdict::Unsupported) {
            self.shares.0 += share;
            self.shares.1 += 1;
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Tally) {
        // Without `..`, so that no new count is forgotten here.
        let Tally {
            counts,
            proven,
            ends_not_claimed,
            fell_back,
            ended,
            unjudged,
            shares,
        } = other;

        for (count, more) in self.counts.iter_mut().zip(counts) {
            *count += more;
        }

        self.proven += proven;
        self.ends_not_claimed += ends_not_claimed;
        self.fell_back += fell_back;

        for (&code, count) in ended {
            *self.ended.entry(code).or_default() += count;
        }
        for (&why, count) in unjudged {
            *self.unjudged.entry(why).or_default() += count;
        }

        self.shares.0 += shares.0;
        self.shares.1 += shares.1;
    }

    /// The number of chains with this verdict letter.
    pub fn count(&self, letter: char) -> u64 {
        let index = Verdict::WORDS.iter().position(|(c, _)| *c == letter);
        index.map_or(0, |i| self.counts[i])
    }

    /// The number of judged chains.
    pub fn judged(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.count('u') - self.count('?')
    }

    /// The share of right chains among those whose frames are known up to the root, since no others
    /// can be right. In hundredths of a percent, rounded down so that 100 % means all.
    pub fn right_permyriad(&self) -> Option<u64> {
        (self.proven > 0).then(|| self.count('.') * 10_000 / self.proven)
    }

    /// The mean share of the known frames that were found, in hundredths of a percent, rounded
    /// down.
    pub fn found_permyriad(&self) -> Option<u64> {
        let (sum, chains) = self.shares;
        (chains > 0).then(|| sum / chains / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_unwind::chain::{Chain, End};
    use unwind_sim_unwind::reason::Reason;
    use unwind_sim_unwind::verdict::Ground;

    fn outcome(verdict: Verdict, known: u32, found: u32, complete: bool) -> Outcome {
        Outcome {
            chain: Chain::default(),
            verdict,
            ground: Ground {
                known,
                found,
                complete,
                ..Ground::default()
            },
            unjudged: None,
            from: 0,
            diagnosis: None,
            whole: None,
        }
    }

    #[test]
    fn only_chains_known_to_the_root_make_the_share_of_right_ones() {
        let mut tally = Tally::default();
        assert_eq!(tally.right_permyriad(), None);
        tally.add(&outcome(Verdict::Wrong { at: 1 }, 4, 1, false));
        assert_eq!((tally.judged(), tally.right_permyriad()), (1, None));
        tally.add(&outcome(Verdict::Ok, 4, 4, true));
        tally.add(&outcome(Verdict::Unjudged, 4, 4, false));
        assert_eq!((tally.judged(), tally.right_permyriad()), (2, Some(10_000)));
        tally.add(&outcome(Verdict::Truncated { at: 2 }, 4, 2, true));
        assert_eq!((tally.judged(), tally.right_permyriad()), (3, Some(5_000)));
        // The walk did not start, so nothing was judged.
        tally.add(&outcome(Verdict::Unsupported, 4, 0, true));
        assert_eq!((tally.judged(), tally.proven), (3, 2));
    }

    #[test]
    fn shares_are_the_mean_over_chains_and_not_over_frames() {
        let mut tally = Tally::default();
        assert_eq!(tally.found_permyriad(), None);
        // Only the sampled frame is known.
        tally.add(&outcome(Verdict::Unjudged, 1, 1, false));
        assert_eq!(tally.found_permyriad(), None);
        tally.add(&outcome(Verdict::Unsupported, 8, 0, true));
        assert_eq!(tally.found_permyriad(), None);
        tally.add(&outcome(Verdict::Ok, 2, 2, true));
        tally.add(&outcome(Verdict::Truncated { at: 5 }, 10, 5, true));
        assert_eq!(tally.found_permyriad(), Some(7_500));
        tally.add(&outcome(Verdict::Unjudged, 3, 2, false));
        assert_eq!(tally.found_permyriad(), Some(7_222));
    }

    #[test]
    fn ends_and_reasons_are_counted() {
        let mut one = Tally::default();
        let mut right = outcome(Verdict::Ok, 2, 2, true);
        right.chain.end = End::unmarked(Reason::NotAtRoot);
        right.ground.end_not_claimed = true;
        one.add(&right);
        let mut unknown = outcome(Verdict::Unjudged, 0, 0, false);
        unknown.unjudged = Some(Unjudged::NoTruth);
        unknown.chain.end = Reason::RootReached.into();
        let cause = Reason::NoRow { pc: 1 };
        let pc = unwind_sim_unwind::address::CodeAddress::Return(1);
        unknown.chain.events = vec![Event::Fallback { pc, cause }; 2];
        one.add(&unknown);
        assert_eq!((one.ends_not_claimed, one.fell_back), (1, 1));
        let ended = [(Code::RootReached, 1), (Code::NotAtRoot, 1)];
        assert_eq!(one.ended, BTreeMap::from(ended));
        assert_eq!(one.unjudged, BTreeMap::from([(Unjudged::NoTruth, 1)]));
    }
}
