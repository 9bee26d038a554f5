//! Filters samples by time, task name, process and thread, like `perf_time__ranges_skip_sample` and
//! `thread__is_filtered` (`tools/perf/util`, Linux 7.2).

use super::tasks::Tasks;
use super::times::{Range, TimeError, TimeSpan};
use unwind_sim_perf_data::{PerfFile, RecordId};

/// The filters of the command line. A filter that is `None` passes every sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// `--time`.
    pub time: Option<TimeSpan>,
    /// `--comms`: names of tasks. A task without a name is `:TID`.
    pub comms: Option<Vec<Vec<u8>>>,
    /// `--pid`.
    pub pids: Option<Vec<i32>>,
    /// `--tid`.
    pub tids: Option<Vec<i32>>,
}

/// The filters for one recording.
#[derive(Debug)]
pub(super) struct Chosen {
    filter: Filter,
    /// Empty without `--time`.
    times: Vec<Range>,
}

impl Chosen {
    /// # Errors
    /// If `--time` is in percent and the recording lacks the times of its first and last sample.
    pub(super) fn of(file: &PerfFile<'_>, filter: &Filter) -> Result<Self, TimeError> {
        let samples = file.features().sample_time().ok().flatten();
        let times = match &filter.time {
            Some(span) => span.ranges(samples)?,
            None => Vec::new(),
        };
        Ok(Self {
            filter: filter.clone(),
            times,
        })
    }

    /// Whether `--time` passes the record. As in perf, a missing time is the largest one.
    pub(super) fn has_time(&self, id: &RecordId<'_>) -> bool {
        self.times.is_empty() || Range::any_has(&self.times, id.time().unwrap_or(u64::MAX))
    }

    /// Whether the other filters pass the thread, by its current name and process.
    pub(super) fn has_task(&self, tasks: &Tasks, tid: i32) -> bool {
        let Filter {
            comms, pids, tids, ..
        } = &self.filter;
        let among = |list: &Option<Vec<i32>>, id| list.as_ref().is_none_or(|l| l.contains(&id));
        let named = |comms: &Vec<Vec<u8>>| match tasks.name(tid) {
            Some(name) => comms.iter().any(|comm| comm == name),
            None => comms.contains(&format!(":{tid}").into_bytes()),
        };
        among(tids, tid)
            && (pids.is_none() || among(pids, tasks.pid(tid)))
            && comms.as_ref().is_none_or(named)
    }
}
