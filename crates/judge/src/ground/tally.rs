//! How far proven chains reach, and why they end.

use super::{Ending, Proven};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unwind_sim_tables::proof::verdict::Assumptions;

/// What was proven of a recording's samples.
#[derive(Clone, Debug, Default)]
pub struct ProofTally {
    /// The number of samples.
    pub samples: u64,
    /// Their proven frames.
    pub frames: u64,
    /// Samples that are proven up to the root.
    pub complete: u64,
    /// Why the others end, with numbers of samples.
    pub endings: BTreeMap<Ending, u64>,
    /// What the proofs rest on.
    pub assumptions: Assumptions,
}

impl ProofTally {
    /// Counts a sample.
    pub fn add(&mut self, proven: &Proven) {
        self.samples += 1;
        self.frames += proven.truth.frames().len() as u64;
        self.assumptions.add_all(proven.assumptions);
        match proven.ending {
            Some(ending) => *self.endings.entry(ending).or_default() += 1,
            None => self.complete += 1,
        }
    }

    /// The mean number of proven frames, in hundredths.
    pub fn mean_depth_hundredths(&self) -> Option<u64> {
        (self.samples > 0).then(|| self.frames * 100 / self.samples)
    }

    /// The summary: how deep, why no deeper, and what it rests on.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Some(depth) = self.mean_depth_hundredths() {
            let (frames, rest) = (depth / 100, depth % 100);
            let _ = write!(
                out,
                "proven by the code: {frames}.{rest:02} frames per sample"
            );
        }
        let mut endings: Vec<_> = self.endings.iter().collect();
        endings.sort_by_key(|(ending, count)| (std::cmp::Reverse(**count), **ending));
        for (ending, count) in endings {
            let _ = write!(out, "\n  {count:>8} end there: {ending}");
        }
        let names: Vec<_> = self.assumptions.iter().map(|a| a.as_str()).collect();
        if !names.is_empty() {
            let _ = write!(out, "\n  assuming {}", names.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_tables::ground::NoProof;
    use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

    fn proven(frames: usize, ending: Option<Ending>) -> Proven {
        let frame = TrueFrame {
            pc: 1,
            cfa: 2,
            kind: TrueKind::Call,
            saved: None,
        };
        Proven {
            truth: Truth::Known(vec![frame; frames]),
            ending,
            lost: [None; 6],
            assumptions: Assumptions::NONE,
        }
    }

    #[test]
    fn depths_are_a_mean_and_endings_are_counted() {
        let mut tally = ProofTally::default();
        assert_eq!(
            (tally.mean_depth_hundredths(), tally.text()),
            (None, String::new())
        );
        tally.add(&proven(2, None));
        tally.add(&proven(3, Some(Ending::NoFile)));
        tally.add(&proven(3, Some(Ending::NoFile)));
        tally.add(&proven(1, Some(Ending::Code(NoProof::NotReached))));
        assert_eq!(
            (tally.mean_depth_hundredths(), tally.complete),
            (Some(225), 1)
        );
        let text = "proven by the code: 2.25 frames per sample
         2 end there: the file with the code was not found
         1 end there: no way to the instruction was found";
        assert_eq!(tally.text(), text);
    }
}
