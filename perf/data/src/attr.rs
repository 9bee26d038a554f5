//! Event attributes: `struct perf_event_attr` of any published size, with its IDs and its name.

use super::error::{PerfError, PerfErrorKind};
use super::layout::SampleLayout;
use super::le;

/// Bits of `perf_event_attr`'s flag word (`include/uapi/linux/perf_event.h`, Linux 7.2).
pub mod flag {
    /// Tasks created later are counted too.
    pub const INHERIT: u64 = 1 << 1;
    /// User space is not counted.
    pub const EXCLUDE_USER: u64 = 1 << 4;
    /// The kernel is not counted.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// The idle task is not counted.
    pub const EXCLUDE_IDLE: u64 = 1 << 7;
    /// Mappings of code are recorded.
    pub const MMAP: u64 = 1 << 8;
    /// Task names are recorded.
    pub const COMM: u64 = 1 << 9;
    /// `sample_period` is a frequency.
    pub const FREQ: u64 = 1 << 10;
    /// Forks and exits are recorded.
    pub const TASK: u64 = 1 << 13;
    /// Records other than samples carry a sample id trailer.
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    /// Callchains have no kernel part.
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    /// Callchains have no user part.
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    /// Mappings are recorded with their inodes.
    pub const MMAP2: u64 = 1 << 23;
    /// Task names set by execve are marked.
    pub const COMM_EXEC: u64 = 1 << 24;
    /// Times are those of the clock `clock_id` (`use_clockid`).
    pub const USE_CLOCKID: u64 = 1 << 25;
    /// Mapping records carry build IDs.
    pub const BUILD_ID: u64 = 1 << 34;
    /// The user part of callchains is deferred (Linux 6.19).
    pub const DEFER_CALLCHAIN: u64 = 1 << 38;
    /// Deferred callchain records are written here (Linux 6.19).
    pub const DEFER_OUTPUT: u64 = 1 << 39;
}

/// `PERF_TYPE_SOFTWARE`.
const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
const SW_CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_TASK_CLOCK`.
const SW_TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_DUMMY`.
const SW_DUMMY: u64 = 9;

/// Size of the first published `perf_event_attr` (`PERF_ATTR_SIZE_VER0`).
pub(crate) const ATTR_SIZE_VER0: usize = 64;
/// Maximum size of an attribute, bytes; the kernel's own limit is a page.
pub(crate) const ATTR_SIZE_MAX: usize = 4096;

/// A recorded event. Fields missing in an older, shorter attribute are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventAttr {
    /// `type`: the PMU (0 hardware, 1 software, 2 tracepoint, ..).
    pub kind: u32,
    /// `config`: the event of the PMU.
    pub config: u64,
    /// `sample_period`, or frequency in Hz if [`flag::FREQ`] is set.
    pub sample_period: u64,
    /// `sample_type`: the fields of samples ([`super::sample_type`]).
    pub sample_type: u64,
    /// `read_format`: the form of the READ field ([`super::read_format`]).
    pub read_format: u64,
    /// The flag word ([`flag`]).
    pub flags: u64,
    /// `config1`: what the PMU makes of it.
    pub config1: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`: mask of user registers ([`crate::regs`]).
    pub sample_regs_user: u64,
    /// `sample_stack_user`: requested bytes of user stack.
    pub sample_stack_user: u32,
    /// `clockid` of the times; only used with [`flag::USE_CLOCKID`].
    pub clock_id: i32,
    /// `sample_regs_intr`: mask of registers at the interrupt.
    pub sample_regs_intr: u64,
    /// `sample_max_stack`: maximum frames in a callchain; 0 for the kernel's own limit.
    pub sample_max_stack: u16,
    /// IDs in samples of this event, one for each CPU or thread.
    pub ids: Vec<u64>,
    /// The event's name, if the file has it.
    pub name: Option<String>,
    pub(crate) layout: SampleLayout,
}

impl EventAttr {
    /// Parses an attribute from exactly its own bytes.
    pub(crate) fn parse(bytes: &[u8], offset: u64) -> Result<Self, PerfError> {
        // No attribute was ever smaller, so a shorter slot is damage and not age.
        if bytes.len() < ATTR_SIZE_VER0 {
            let kind = PerfErrorKind::Short {
                need: ATTR_SIZE_VER0 as u64,
                have: bytes.len() as u64,
            };
            return Err(PerfError::new(kind, offset, "event attribute"));
        }

        // The attribute's own size tells how much of its slot the writer filled.
        let bytes = match le::u32_at(bytes, 4).unwrap_or(0) as usize {
            0 => &bytes[..ATTR_SIZE_VER0],
            size if (ATTR_SIZE_VER0..=ATTR_SIZE_MAX).contains(&size) => {
                &bytes[..size.min(bytes.len())]
            }
            size => {
                let kind = PerfErrorKind::AttrSize(size as u64);
                return Err(PerfError::new(kind, offset, "event attribute"));
            }
        };

        // What a shorter, older attribute lacks is 0, as in the kernel, which clears the rest of
        // its struct (`perf_copy_attr` in `kernel/events/core.c`).
        let word = |at| le::u64_at(bytes, at).unwrap_or(0);
        let half = |at| le::u32_at(bytes, at).unwrap_or(0);
        let mut attr = Self {
            kind: half(0),
            config: word(8),
            sample_period: word(16),
            sample_type: word(24),
            read_format: word(32),
            flags: word(40),
            config1: word(56),
            branch_sample_type: word(72),
            sample_regs_user: word(80),
            sample_stack_user: half(88),
            clock_id: half(92).cast_signed(),
            sample_regs_intr: word(96),
            sample_max_stack: le::u16_at(bytes, 108).unwrap_or(0),
            ids: Vec::new(),
            name: None,
            layout: SampleLayout::default(),
        };

        // What the offsets of a sample's fields are follows from the attribute alone.
        attr.layout = SampleLayout::new(&attr);
        Ok(attr)
    }

    /// Does the event count nanoseconds of CPU time (`cpu-clock`, `task-clock`)?
    pub fn is_clock(&self) -> bool {
        self.kind == TYPE_SOFTWARE && matches!(self.config, SW_CPU_CLOCK | SW_TASK_CLOCK)
    }

    /// Can the event have samples? A `dummy` event only carries records of tasks and mappings.
    pub fn is_sampled(&self) -> bool {
        !(self.kind == TYPE_SOFTWARE && self.config == SW_DUMMY)
    }

    /// The nanoseconds between two samples that the recorder asked for: of a clock its period, of
    /// other events known only for a frequency. `None` if not known.
    pub fn interval_ns(&self) -> Option<u64> {
        let asked = self.sample_period;
        let interval = if self.flags & flag::FREQ != 0 {
            1_000_000_000u64.checked_div(asked)?
        } else if self.is_clock() {
            asked
        } else {
            return None;
        };
        (interval != 0).then_some(interval)
    }

    /// Size of the sample ID trailer of records other than samples, bytes.
    pub fn trailer_bytes(&self) -> usize {
        usize::from(self.layout.trailer)
    }

    /// Do records other than samples carry a sample ID trailer?
    pub fn has_sample_id_all(&self) -> bool {
        self.flags & flag::SAMPLE_ID_ALL != 0
    }
}
