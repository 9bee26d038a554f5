//! Samples with the counts of a group of events (`PERF_SAMPLE_READ`): perf prints such a sample
//! once for each event whose count has increased since the last one.
//!
//! Follows `evlist__deliver_sample` (`tools/perf/util/session.c`, Linux 7.2).

use std::collections::HashMap;
use unwind_sim_perf_data::{PerfFile, Sample, flag, sample_type as st};

/// The previous count of each event.
pub(super) struct Groups {
    /// The event's number by id.
    events: HashMap<u64, usize>,
    /// By id, and by thread if threads count separately.
    counted: HashMap<(u64, i32), u64>,
}

impl Groups {
    pub(super) fn new(file: &PerfFile<'_>) -> Self {
        let attrs = file.attrs();
        let reads = attrs.iter().any(|attr| attr.sample_type & st::READ != 0);
        let ids = attrs.iter().enumerate().filter(|_| reads);
        Self {
            events: ids
                .flat_map(|(number, attr)| attr.ids.iter().map(move |&id| (id, number)))
                .collect(),
            counted: HashMap::new(),
        }
    }

    /// The numbers of the events, and the increase of each count since its last sample.
    pub(super) fn split(&mut self, sample: &Sample<'_>) -> Vec<(usize, u64)> {
        let attr = sample.attr();
        let by_thread = attr.flags & flag::INHERIT != 0 && attr.sample_type & st::TID != 0;
        let tid = sample.tid().filter(|_| by_thread).unwrap_or(0);
        let Ok(Some(read)) = sample.read_values() else {
            return Vec::new();
        };
        let counts = read.values().filter_map(|counter| {
            let id = counter.id?;
            let event = *self.events.get(&id)?;
            let last = self.counted.entry((id, tid)).or_default();
            let period = counter
                .value
                .wrapping_sub(std::mem::replace(last, counter.value));
            (period != 0).then_some((event, period))
        });
        counts.collect()
    }
}
