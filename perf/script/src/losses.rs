//! What a recording itself reports as lost.

use std::collections::BTreeMap;
use std::fmt;
use unwind_sim_perf_data::event_name;
use unwind_sim_perf_data::{Event, PerfFile, Record};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;

/// Bit of the misc word of `PERF_RECORD_LOST_SAMPLES`: the samples were not lost, but dropped by a
/// BPF filter that the user asked for (`PERF_RECORD_MISC_LOST_SAMPLES_BPF`).
const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;

/// Counts of losses, by the event's number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How often a buffer was full, and the number of records that did not fit.
    records: BTreeMap<usize, (u64, u64)>,
    /// Samples, counted by the kernel for each event.
    samples: BTreeMap<usize, u64>,
    /// Samples dropped by a filter.
    filtered: BTreeMap<usize, u64>,
}

impl Losses {
    /// Adds the losses that a record reports.
    pub(super) fn event(&mut self, file: &PerfFile<'_>, event: &Event<'_>) {
        let attrs = file.attrs();
        match event.record {
            Record::Lost { id, lost } => {
                let at = attrs.iter().position(|attr| attr.ids.contains(&id));
                let (times, records) = self.records.entry(at.unwrap_or(0)).or_default();
                *times += 1;
                *records = records.saturating_add(lost);
            }
            Record::LostSamples { lost } => {
                let at = attrs.iter().position(|attr| std::ptr::eq(attr, event.attr));
                let counts = match event.raw.misc & MISC_LOST_SAMPLES_BPF {
                    0 => &mut self.samples,
                    _ => &mut self.filtered,
                };
                let count = counts.entry(at.unwrap_or(0)).or_default();
                *count = count.saturating_add(lost);
            }
            _ => {}
        }
    }

    /// One line for each kind of loss and event of `file`.
    pub fn lines<'a>(&'a self, file: &'a PerfFile<'_>) -> impl fmt::Display + 'a {
        Lines(self, file)
    }
}

struct Lines<'a, 'f>(&'a Losses, &'a PerfFile<'f>);

impl fmt::Display for Lines<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(losses, file) = self;
        let name = |at: &usize| {
            let name = file.attrs().get(*at).map(event_name).unwrap_or_default();
            name.printable().to_string()
        };
        for (at, (times, records)) in &losses.records {
            let of = name(at);
            writeln!(
                f,
                "lost: {} of {of}; number of times a buffer was full: {times}",
                counted(records, "record")
            )?;
        }
        for (at, samples) in &losses.samples {
            writeln!(f, "lost: {} of {}", counted(samples, "sample"), name(at))?;
        }
        for (at, samples) in &losses.filtered {
            let of = name(at);
            writeln!(
                f,
                "left out by the recording's filter: {} of {of}",
                counted(samples, "sample")
            )?;
        }
        Ok(())
    }
}
