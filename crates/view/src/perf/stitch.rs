//! `perf stitch`: the user frames of each sample, joined in our mode and in another.

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use unwind_sim_recordings::printable::PrintableName as _;

use unwind_sim_perf_data::Summary;
use unwind_sim_perf_data::callchain::is_marker;
use unwind_sim_perf_data::stitch::{
    Counts, JudgedSample, Judgement, Mode, Stitch, Stitched, Stitcher, Tally, items, judge,
};
use unwind_sim_perf_data::{PerfError, PerfFile};
use unwind_sim_recordings::input_file::InputFile;

use crate::json::{Line, NamedCountLine, StitchedSampleLine, StitchingLine};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;

/// Why a recording cannot be stitched.
#[derive(Debug, thiserror::Error)]
pub enum StitchError {
    /// The file cannot be read.
    #[error("{}: {source}", path.printable())]
    Open {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not a valid perf.data file.
    #[error(transparent)]
    Perf(#[from] PerfError),
}

/// A recording stitched in two modes.
#[derive(Debug)]
pub struct Stitching {
    own: Vec<Stitched>,
    other: Vec<Stitched>,
    like: Mode,
    /// Counts of what was seen, in our mode.
    pub counts: Counts,
    other_counts: Counts,
    /// How far the file could be read.
    pub summary: Summary,
}

/// Stitches a recording in our mode and in another.
///
/// # Errors
/// If the recording cannot be read at all.
pub fn stitch(recording: &InputFile, like: Mode) -> Result<Stitching, StitchError> {
    let owner = recording.bytes().map_err(|source| StitchError::Open {
        path: recording.path().into(),
        source,
    })?;
    let file = PerfFile::parse((*owner).as_ref())?;

    // Both modes read the same records in one pass, so that they differ only in how they join them.
    let mut ours = Stitcher::new(Mode::Own);
    ours.events(file.attrs());
    let mut theirs = Stitcher::new(like);
    let (mut own, mut other) = (Vec::new(), Vec::new());

    let summary = items(&file, |item| {
        // A stitcher keeps a sample until its record has come or cannot come any more.
        theirs.push(item.clone());
        ours.push(item);
        other.extend(std::iter::from_fn(|| theirs.pop()));
        own.extend(std::iter::from_fn(|| ours.pop()));
        ControlFlow::Continue(())
    });

    // Samples may still wait for records that did not come; now they are delivered without.
    theirs.finish();
    ours.finish();
    other.extend(std::iter::from_fn(|| theirs.pop()));
    own.extend(std::iter::from_fn(|| ours.pop()));

    Ok(Stitching {
        own,
        other,
        like,
        counts: *ours.counts(),
        other_counts: *theirs.counts(),
        summary,
    })
}

/// Options of [`Stitching::print`].
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// Print one line for each deferred sample.
    pub samples: bool,
    /// Print the chains of the other mode, in its order.
    pub other_chains: bool,
    /// Print JSON Lines.
    pub json: bool,
}

impl Stitching {
    /// The deferred samples as stitched in both modes, in order of time.
    fn judged(&self) -> Vec<JudgedSample<'_>> {
        let mut judged = judge(&self.own, &self.other);
        judged.retain(|sample| sample.own.how != Stitch::NotDeferred);
        judged
    }

    /// The counts of all outcomes.
    pub fn tally(&self) -> Tally {
        Tally::of(&self.judged())
    }

    /// Prints the result, and the command that reproduces it.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn print(&self, show: Show, command: &str, out: &mut dyn Write) -> std::io::Result<()> {
        // What the other mode delivered is judged by ours.
        let mut judged = self.judged();
        let tally = Tally::of(&judged);

        // Chains of the other way come in its order, which is judged, too.
        if show.other_chains {
            // A sample is known by its key, as both modes have delivered it in different places.
            let places = self.other.iter().zip(0u64..);
            let places: HashMap<u64, u64> = places.map(|(s, place)| (s.key, place)).collect();
            judged.sort_by_key(|sample| places.get(&sample.own.key));
        }

        // The sums are made of all samples, shown or not.
        if !show.samples {
            judged.clear();
        }

        for sample in &judged {
            let shown = if show.other_chains {
                sample.other
            } else {
                sample.own
            };
            if show.json {
                self.json_sample(sample, shown).write(out)?;
            } else {
                self.text_sample(sample, shown, out)?;
            }
        }

        if show.json {
            self.json_summary(&tally, command).write(out)
        } else {
            self.table(&tally, out)?;
            writeln!(out, "\n{command}")
        }
    }

    fn text_sample(
        &self,
        sample: &JudgedSample<'_>,
        shown: &Stitched,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let own = sample.own;
        let time = own.time.unwrap_or(0);
        write!(
            out,
            "{} {}.{:09} cookie {:x}: {}; {}: {}",
            own.tid,
            time / 1_000_000_000,
            time % 1_000_000_000,
            own.cookie.unwrap_or(0),
            own.how.as_str(),
            self.like.as_str(),
            sample.judgement.as_str()
        )?;
        for frame in shown.chain.iter().filter(|&&word| !is_marker(word)) {
            write!(out, " {frame:x}")?;
        }
        writeln!(out)
    }

    fn table(&self, tally: &Tally, out: &mut dyn Write) -> std::io::Result<()> {
        let counts = &self.counts;

        // Rows that are 0 are left out, but not the totals.
        let rows = |out: &mut dyn Write, rows: &[(u64, &str)]| {
            rows.iter()
                .filter(|(count, _)| *count > 0)
                .try_for_each(|(count, text)| writeln!(out, "{count:9}  {text}"))
        };

        writeln!(out, "{:9}  samples", counts.samples)?;
        writeln!(out, "{:9}  deferred", tally.deferred)?;

        rows(
            out,
            &[
                // Late ones are among the stitched, but are told apart: perf has no frames for
                // them.
                (tally.stitched - tally.late, "got the record that followed"),
                (tally.late, "got the record before (perf has no frames)"),
                (tally.moved, "got a record of a later time in user space"),
                (tally.empty, "got an empty record"),
            ],
        )?;

        for (why, count) in &tally.missing {
            writeln!(out, "{count:9}  without: {}", why.description())?;
        }

        writeln!(out, "{:9}  records", counts.records)?;
        rows(
            out,
            &[
                (counts.empty, "empty"),
                (counts.orphans, "not used by any sample"),
                (counts.foreign, "with the cookie of another thread's sample"),
                (counts.duplicates, "duplicates of an earlier record"),
                (counts.conflicts, "that contradict an earlier record"),
                (counts.lost, "records or samples reported as lost"),
            ],
        )?;

        let like = self.like.as_str();

        // `unproven` is rare, and left out if there is none.
        for judgement in Judgement::ALL {
            let count = tally.other.get(&judgement).copied().unwrap_or(0);
            if count == 0 && judgement == Judgement::Unproven {
                continue;
            }
            writeln!(out, "{count:9}  {like}: {}", judgement.description())?;
        }

        let order = self.other_counts.out_of_order;
        writeln!(out, "{order:9}  {like}: not in order of time")
    }

    fn json_sample(&self, sample: &JudgedSample<'_>, shown: &Stitched) -> Line {
        let own = sample.own;
        Line::StitchedSample(Box::new(StitchedSampleLine {
            schema: SCHEMA,
            tid: own.tid,
            time: own.time.unwrap_or(0),
            cookie: own.cookie.map(hex),
            how: own.how.as_str(),
            like: self.like.as_str(),
            judgement: sample.judgement.as_str(),
            callchain: shown.chain.iter().copied().map(hex).collect(),
        }))
    }

    fn json_summary(&self, tally: &Tally, command: &str) -> Line {
        let counts = &self.counts;
        let missing = tally.missing.iter();
        let judgements = tally.other.iter();
        Line::Stitching(StitchingLine {
            schema: SCHEMA,
            samples: counts.samples,
            deferred: tally.deferred,
            stitched: tally.stitched,
            late: tally.late,
            moved: tally.moved,
            empty: tally.empty,
            missing: missing.map(|(w, &n)| named(w.as_str(), n)).collect(),
            records: counts.records,
            empty_records: counts.empty,
            orphans: counts.orphans,
            foreign: counts.foreign,
            duplicates: counts.duplicates,
            conflicts: counts.conflicts,
            lost: counts.lost,
            like: self.like.as_str(),
            judgements: judgements.map(|(j, &n)| named(j.as_str(), n)).collect(),
            out_of_order: self.other_counts.out_of_order,
            command: command.to_owned(),
        })
    }
}

fn named(name: &'static str, count: u64) -> NamedCountLine {
    NamedCountLine { name, count }
}
