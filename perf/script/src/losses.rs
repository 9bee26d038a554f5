//! What a recording itself reports as lost.

use std::collections::BTreeMap;
use unwind_sim_perf_data::{Event, PerfFile, Record};

/// Bit of the misc word of `PERF_RECORD_LOST_SAMPLES`: the samples were not lost, but dropped by a
/// BPF filter that the user asked for (`PERF_RECORD_MISC_LOST_SAMPLES_BPF`).
const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;

/// A loss of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Records that did not fit into a buffer.
    Records {
        /// How often the buffer was full.
        times: u64,
        /// The number of records.
        records: u64,
    },
    /// Samples that the kernel could not take.
    Samples(u64),
    /// Samples that the recording's filter left out.
    Filtered(u64),
}

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

    /// What was lost of each event, by its number: records, then samples, then filtered samples.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Loss)> {
        let records = self.records.iter();
        let records =
            records.map(|(at, &(times, records))| (*at, Loss::Records { times, records }));
        let samples = self.samples.iter();
        let samples = samples.map(|(at, &samples)| (*at, Loss::Samples(samples)));
        let filtered = self.filtered.iter();
        let filtered = filtered.map(|(at, &samples)| (*at, Loss::Filtered(samples)));
        records.chain(samples).chain(filtered)
    }
}
