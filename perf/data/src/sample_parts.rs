//! Parts of samples: the stack copy, counter values, branch records, and rarely used fields.

use super::error::PerfError;
use super::layout::{read_format as rf, sample_type as st};
use super::le::{self, Cursor};
use super::sample::{Sample, take_regs};
use crate::regs::SampleRegs;

/// Size of a branch entry, bytes: from, to, flags.
pub(super) const BRANCH_ENTRY: usize = 24;

impl<'a> Sample<'a> {
    /// Registers at the interrupt.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn intr_regs(&self) -> Result<Option<SampleRegs<'a>>, PerfError> {
        let mask = self.attr().layout.regs_intr;
        self.seek(st::REGS_INTR)?
            .map(|mut c| take_regs(&mut c, mask))
            .transpose()
    }

    /// Weight; with `WEIGHT_STRUCT`, three numbers in one word (32, 16 and 16 bits).
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn weight(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::WEIGHT | st::WEIGHT_STRUCT)
    }

    /// Source of the data (`union perf_mem_data_src`).
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn data_source(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::DATA_SRC)
    }

    /// Transaction flags.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn transaction(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::TRANSACTION)
    }

    /// Physical address of the data.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn physical_address(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::PHYS_ADDR)
    }

    /// Cgroup ID.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn cgroup(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::CGROUP)
    }

    /// Size of the page that contains the data address, bytes.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn data_page_size(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::DATA_PAGE_SIZE)
    }

    /// Size of the page that contains the instruction pointer, bytes.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn code_page_size(&self) -> Result<Option<u64>, PerfError> {
        self.tail_word(st::CODE_PAGE_SIZE)
    }

    /// Copy from the AUX area.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn aux_data(&self) -> Result<Option<&'a [u8]>, PerfError> {
        let take = |mut c: Cursor<'a>| {
            let size = c.u64()?;
            c.take_many(size, 1)
        };
        self.seek(st::AUX)?.map(take).transpose()
    }

    pub(super) fn take_read(&self, c: &mut Cursor<'a>) -> Result<ReadValues<'a>, PerfError> {
        let format = self.attr().layout.read_format;
        let group = format & rf::GROUP != 0;

        // The first word is the number of members of a group, else the value itself; the times
        // follow (`perf_output_read` in `kernel/events/core.c`).
        let mut first = c.u64()?;

        // Each of the optional words is there only if its bit is set, in this order.
        let mut when = |bit| {
            if format & bit != 0 {
                c.u64().map(Some)
            } else {
                Ok(None)
            }
        };
        let time_enabled = when(rf::TOTAL_TIME_ENABLED)?;
        let time_running = when(rf::TOTAL_TIME_RUNNING)?;

        // Each value can have its event's ID and a number of lost samples.
        let extra = usize::from(format & rf::ID != 0) + usize::from(format & rf::LOST != 0);

        // Each member has its value and the optional words; without a group, the value came first.
        let values = if group {
            c.take_many(std::mem::take(&mut first), 8 * (1 + extra))?
        } else {
            c.take(8 * extra)?
        };

        Ok(ReadValues {
            format,
            time_enabled,
            time_running,
            first,
            values,
        })
    }

    pub(super) fn take_branches(&self, c: &mut Cursor<'a>) -> Result<BranchStack<'a>, PerfError> {
        let layout = &self.attr().layout;
        let count = c.u64()?;
        let hw_index = if layout.branch_hw_index {
            Some(c.u64()?)
        } else {
            None
        };
        let entries = c.take_many(count, BRANCH_ENTRY)?;
        let counters = if layout.branch_counters {
            c.take_many(count, 8)?
        } else {
            &[]
        };
        Ok(BranchStack {
            hw_index,
            entries,
            counters,
        })
    }
}

/// A copy of the user stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// The stack's contents, from rsp upwards.
    pub bytes: &'a [u8],
    /// Requested bytes. If there are fewer valid ones, the stack (or its readable part) ends there.
    pub size: u64,
}

impl std::fmt::Debug for UserStack<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "UserStack {{ {} of {} bytes }}",
            self.bytes.len(),
            self.size
        )
    }
}

/// Counter values of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadValues<'a> {
    pub(super) format: u64,
    /// Nanoseconds enabled.
    pub time_enabled: Option<u64>,
    /// Nanoseconds running.
    pub time_running: Option<u64>,
    /// The value, unless it is a group.
    pub(super) first: u64,
    pub(super) values: &'a [u8],
}

/// One counter value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterValue {
    /// The value of the counter.
    pub value: u64,
    /// Event ID.
    pub id: Option<u64>,
    /// Number of lost samples.
    pub lost: Option<u64>,
}

impl<'a> ReadValues<'a> {
    /// The values: one, or one for each event of the group, leader first.
    pub fn values(&self) -> impl Iterator<Item = CounterValue> + 'a {
        let Self {
            format,
            first,
            values,
            ..
        } = *self;
        let group = format & rf::GROUP != 0;
        let lead = usize::from(group);
        let has_id = usize::from(format & rf::ID != 0);
        let has_lost = usize::from(format & rf::LOST != 0);
        let words = lead + has_id + has_lost;
        let count = if group { values.len() / (8 * words) } else { 1 };
        (0..count).map(move |index| {
            let word = |at: usize| le::u64_at(values, 8 * (index * words + at)).unwrap_or(0);
            CounterValue {
                value: if group { word(0) } else { first },
                id: (has_id != 0).then(|| word(lead)),
                lost: (has_lost != 0).then(|| word(lead + has_id)),
            }
        })
    }
}

/// Last branch records, newest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BranchStack<'a> {
    /// Hardware index of the newest entry (`TOS`), if recorded.
    pub hw_index: Option<u64>,
    pub(super) entries: &'a [u8],
    pub(super) counters: &'a [u8],
}

impl std::fmt::Debug for BranchStack<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

/// One branch (`struct perf_branch_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchEntry {
    /// Address of the branch.
    pub from: u64,
    /// Address of the target.
    pub to: u64,
    /// Flags as stored: mispredicted 0, predicted 1, in transaction 2, abort 3, cycles 4-19,
    /// type 20-23, speculation 24-25, new type 26-29, privilege 30-32.
    pub flags: u64,
}

impl<'a> BranchStack<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() / BRANCH_ENTRY
    }

    /// Are there no entries?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = BranchEntry> + Clone + 'a {
        self.entries
            .as_chunks::<BRANCH_ENTRY>()
            .0
            .iter()
            .map(|entry| {
                let word = |at| le::u64_at(entry, at).unwrap_or_default();
                BranchEntry {
                    from: word(0),
                    to: word(8),
                    flags: word(16),
                }
            })
    }

    /// The word of counters for each entry; empty if not recorded.
    pub fn counters(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.counters
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
    }
}
