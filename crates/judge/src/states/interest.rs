//! Which samples of a recording are of interest: each kind of wrong stack first, then an even spread.

use crate::engine::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::image::ImageId;
use unwind_sim_unwind::reason::Code;

/// Maximum number of kinds; what comes later is not told apart.
const KINDS_MAX: usize = 10_000;
/// The samples of a kind that are kept.
const SAMPLES_MAX: usize = 16;

/// A kind of wrong stack. Those of unwinders whose errors count come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Kind {
    is_expected: bool,
    column: usize,
    code: &'static str,
    /// The function to blame: its image and address (svma). Without an image, the pc.
    function: (Option<ImageId>, u64),
}

#[derive(Default, Debug)]
struct Met {
    count: u64,
    /// The first ones.
    samples: Vec<u64>,
}

/// The kinds of wrong stacks that were met.
#[derive(Default, Debug)]
pub(super) struct Interest {
    kinds: BTreeMap<Kind, Met>,
}

impl Interest {
    /// Adds a wrong outcome of the unwinder in `column`. `is_expected` says that its errors do not
    /// count, as for one that is wrong by nature.
    pub(super) fn add(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
        is_expected: bool,
    ) {
        let (code, pc) = match &outcome.diagnosis {
            Some(diagnosis) => (diagnosis.code, Some(diagnosis.pc)),
            None => (outcome.chain.end.reason.code(), None),
        };

        let function = pc.map_or((None, 0), |pc| {
            let pc = pc.symbol_address();
            let place = view.space.find(pc).and_then(|mapping| {
                let image = mapping.image.as_ref()?;
                let svma = mapping.svma(pc);
                Some((image.id(), image.symbol(svma).map_or(svma, |s| s.address)))
            });
            place.map_or((None, pc), |(image, at)| (Some(image), at))
        });

        self.note(view.number, column, (code, function), is_expected);
    }

    fn note(
        &mut self,
        number: u64,
        column: usize,
        (code, function): (Code, (Option<ImageId>, u64)),
        is_expected: bool,
    ) {
        let kind = Kind {
            is_expected,
            column,
            code: code.as_str(),
            function,
        };

        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            return;
        }
        let met = self.kinds.entry(kind).or_default();
        met.count += 1;
        if met.samples.len() < SAMPLES_MAX {
            met.samples.push(number);
        }
    }

    /// The sample to look at first: the first one of the most frequent kind among the errors that
    /// count; if there is none, among the others. With it the column of its unwinder.
    pub(super) fn first(&self) -> Option<(u64, usize)> {
        let best = self.kinds.iter().min_by_key(|(kind, met)| {
            let more = std::cmp::Reverse(met.count);
            (kind.is_expected, more, met.samples.first().copied())
        });
        best.and_then(|(kind, met)| Some((*met.samples.first()?, kind.column)))
    }

    /// Whether there is an error that counts.
    pub(super) fn counts(&self) -> bool {
        self.kinds.keys().any(|kind| !kind.is_expected)
    }

    /// At most `count` of the samples 0 to `total`, in order.
    pub(super) fn choose(&self, count: u64, total: u64) -> Vec<u64> {
        if count >= total {
            return (0..total).collect();
        }

        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut chosen = BTreeSet::new();

        // One of each kind, as far as there is room: first of those that count, and of these first
        // the frequent ones.
        let mut kinds: Vec<(&Kind, &Met)> = self.kinds.iter().collect();
        kinds.sort_by_key(|(kind, met)| {
            let more = std::cmp::Reverse(met.count);
            (kind.is_expected, more, met.samples.first().copied())
        });
        let firsts = kinds.iter().filter_map(|(_, met)| met.samples.first());
        for &number in firsts {
            if chosen.len() < count {
                chosen.insert(number);
            }
        }

        // More of those that count, in up to half of the room.
        for nth in 1..SAMPLES_MAX {
            for (kind, met) in &kinds {
                if let Some(&number) = met.samples.get(nth)
                    && !kind.is_expected
                    && chosen.len() < count / 2
                {
                    chosen.insert(number);
                }
            }
        }

        // Then a spread over the whole recording. Where a sample of it is chosen already, the next
        // one that is not takes its place.
        let left = (count - chosen.len()) as u64;
        for nth in 0..left {
            let wanted = (u128::from(nth) * u128::from(total) / u128::from(left)) as u64;
            let free = (wanted..total).chain(0..wanted);
            let mut free = free.filter(|number| !chosen.contains(number));
            chosen.extend(free.next());
        }

        chosen.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(samples: &[(u64, usize, Code, bool)]) -> Interest {
        let mut interest = Interest::default();
        for &(number, column, code, is_expected) in samples {
            interest.note(number, column, (code, (None, 0)), is_expected);
        }
        interest
    }

    #[test]
    fn each_kind_comes_before_the_spread() {
        let mut samples: Vec<_> = (0..900).map(|n| (n, 1, Code::NoRow, true)).collect();
        samples.push((950, 0, Code::NoTable, false));
        samples.push((960, 0, Code::NoRow, false));
        samples.push((970, 0, Code::NoRow, false));
        let interest = noted(&samples);

        assert_eq!(interest.first(), Some((960, 0)));
        let three = interest.choose(3, 1000);
        assert_eq!(three, [0, 950, 960]);

        let chosen = interest.choose(10, 1000);
        assert_eq!(chosen.len(), 10);
        assert!([0, 950, 960, 970].iter().all(|n| chosen.contains(n)));
        assert!(chosen.is_sorted());
        // The spread reaches every third of the recording.
        let thirds = [0..334, 334..667, 667..1000];
        assert!(
            thirds
                .iter()
                .all(|part| chosen.iter().any(|n| part.contains(n)))
        );
    }

    #[test]
    fn without_errors_the_choice_is_an_even_spread() {
        let interest = noted(&[]);
        assert_eq!((interest.first(), interest.counts()), (None, false));
        assert_eq!(interest.choose(4, 1000), [0, 250, 500, 750]);
        assert_eq!(interest.choose(4, 3), [0, 1, 2]);
        assert!(interest.choose(0, 3).is_empty());
    }

    #[test]
    fn errors_that_do_not_count_come_last() {
        let interest = noted(&[
            (5, 1, Code::NoRow, true),
            (6, 1, Code::NoRow, true),
            (7, 0, Code::NoRow, false),
        ]);
        assert_eq!((interest.first(), interest.counts()), (Some((7, 0)), true));
        let expected = noted(&[(5, 1, Code::NoRow, true)]);
        assert_eq!((expected.first(), expected.counts()), (Some((5, 1)), false));
        assert_eq!(interest.choose(1, 100), [7]);
    }
}
