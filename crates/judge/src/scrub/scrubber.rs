//! Scrubs samples one by one, and checks that nothing changed.

use super::apply::{self, Applied, Level};
use super::kept::Kept;
use super::walkers::Walkers;
use crate::engine::Setting;
use crate::ground::Proofs;
use crate::spec::SpecError;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::view::View;
use unwind_sim_tables::ground::FileArena;

/// A walk that the scrubbed sample would change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("sample {sample}: {column} gives another result without the words that nothing reads")]
pub struct Differs {
    /// The number of the sample.
    pub sample: u64,
    /// The unwinder and the start, or `proof`.
    pub column: String,
}

/// Scrubs samples.
pub struct Scrubber<'f> {
    walkers: Walkers,
    proofs: Proofs<'f>,
    setting: Setting,
    kept: Kept,
}

impl<'f> Scrubber<'f> {
    /// `shelf` keeps the files, and `files` says where to look for them, as for [`Proofs::new`].
    ///
    /// # Errors
    /// None in practice, since the names of the unwinders are fixed.
    pub fn new(shelf: &'f FileArena, files: FinderOptions) -> Result<Scrubber<'f>, SpecError> {
        Ok(Scrubber {
            walkers: Walkers::new()?,
            proofs: Proofs::new(shelf, files),
            setting: Setting::default(),
            kept: Kept::default(),
        })
    }

    /// What was kept so far.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The proofs that it uses, for what else asks for those of the same files.
    pub(super) fn proofs(&mut self) -> &mut Proofs<'f> {
        &mut self.proofs
    }

    /// The sample without what nothing reads, and a digest of all results.
    ///
    /// # Errors
    /// If an unwinder would give another result.
    pub fn sample(&mut self, view: &View<'_>) -> Result<(Sample<'static>, u64), Differs> {
        let read = self.walkers.read(view, &mut self.proofs, &self.setting);
        // All that any unwinder gives: the scrubbed sample has to give the same.
        let before = self.results(view);

        let mut column = 0;
        // From the level that keeps the least: the first one that changes no result is enough.
        for level in Level::ALL {
            let Applied { sample, kept } = apply::apply(view, &read, level);
            let scrubbed = View {
                sample: &sample,
                pristine: None,
                ..*view
            };

            let after = self.results(&scrubbed);
            match difference(&before, &after) {
                None => {
                    self.kept.add(&kept);
                    return Ok((sample, digest(&before)));
                }
                Some(differing) => column = differing,
            }
        }

        Err(Differs {
            sample: view.number,
            column: self.walkers.column_name(view, column),
        })
    }

    /// The digest of all results of a sample.
    pub(crate) fn digest(&mut self, view: &View<'_>) -> u64 {
        digest(&self.results(view))
    }

    fn results(&mut self, view: &View<'_>) -> Vec<u64> {
        self.walkers.results(view, &mut self.proofs, &self.setting)
    }

    /// The first column whose results differ between two samples.
    pub(crate) fn difference(&mut self, a: &View<'_>, b: &View<'_>) -> Option<String> {
        let column = difference(&self.results(a), &self.results(b))?;
        Some(self.walkers.column_name(a, column))
    }
}

fn digest(results: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    results.hash(&mut hasher);
    hasher.finish()
}

/// The first column in which two results differ.
fn difference(before: &[u64], after: &[u64]) -> Option<usize> {
    let mut pairs = before.iter().zip(after);
    let found = pairs.position(|(a, b)| a != b);
    found.or_else(|| (before.len() != after.len()).then(|| before.len().min(after.len())))
}
