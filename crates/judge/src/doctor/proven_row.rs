//! What `tables check` says of the row that a stack blames.

use crate::ground::text_bytes;
use std::collections::HashMap;
use std::sync::Arc;
use unwind_sim_recordings::files::{FinderOptions, ImageFinder};
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::verdict::Verdict;
use unwind_sim_unwind::image::{Image, ImageId};
use unwind_sim_unwind::row::RowSource;

/// What the code proves of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProvenRow {
    /// The row is what the code does.
    Proven,
    /// It could not be told, for this reason.
    Unproven(&'static str),
    /// The row is not what the code does.
    Contradicted,
}

/// Checks files, each once.
pub(super) struct Checker {
    finder: ImageFinder,
    options: Options,
    reports: HashMap<ImageId, Option<Report>>,
}

impl Checker {
    /// `files` says where to look for files of which a recording has only parts.
    pub(super) fn new(files: FinderOptions) -> Checker {
        let threads = std::thread::available_parallelism();
        Checker {
            finder: ImageFinder::new(files),
            options: Options {
                threads: threads.map_or(1, usize::from),
                ..Options::default()
            },
            reports: HashMap::new(),
        }
    }

    /// The image with its whole file, if that is found: a recording may have only parts.
    pub(super) fn whole(&mut self, image: &Arc<Image>) -> Arc<Image> {
        if File::of_image(image).is_whole() {
            return image.clone();
        }
        let found = self.finder.image_of(image.name(), image.build_id());
        found.unwrap_or_else(|| image.clone())
    }

    /// What the code of `image` proves of a row. `None` if the file is not there as a whole, or the
    /// checker does not know the row.
    pub(super) fn ask(&mut self, image: &Arc<Image>, row: &RowSource) -> Option<ProvenRow> {
        // A whole file is checked at a time, once for all rows that are asked about.
        if !self.reports.contains_key(&image.id()) {
            let file = File::of_image(&self.whole(image));
            let is_checked = file.is_whole() && text_bytes(image) <= super::TEXT_MAX;
            let report = is_checked.then(|| check(&file, &self.options));
            self.reports.insert(image.id(), report);
        }

        let report = self.reports.get(&image.id())?;
        let function = report.as_ref()?.functions.iter();
        let mut function = function.filter(|f| f.range.contains(&row.start));
        let verdict = &function.next()?.verdict;

        let is_row = |start: u64, end: u64| start < row.end && row.start < end;
        let contradictions = &verdict.contradictions;
        if contradictions
            .iter()
            .any(|c| c.table == row.table && is_row(c.row.start, c.row.end))
        {
            return Some(ProvenRow::Contradicted);
        }

        // Doubts are known by function. Contradictions elsewhere leave the row unproven, too.
        let doubt = verdict.doubts.first().map(|d| d.0.as_str());
        Some(match verdict.verdict() {
            Verdict::Proven => ProvenRow::Proven,
            Verdict::Unproven | Verdict::Contradicted => {
                ProvenRow::Unproven(doubt.unwrap_or("another row of the function is wrong"))
            }
        })
    }
}
