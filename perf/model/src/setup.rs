//! The setup of a run: the form of deferral, the limits, the events, and what a kernel accepts.

use super::mutant::Mutant;
use super::registers::FakeRegs;
use unwind_sim_perf_lbr::{Depth, Layout, Storage};

/// The most events that a run may have: a task's set of them is one word.
pub const EVENTS_MAX: usize = 64;
/// The most CPUs.
pub const CPUS_MAX: u16 = 256;
/// The most tasks, including those that have exited.
pub const TASKS_MAX: usize = 4096;

/// The form of deferred user callchains that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As proposed in November 2023: a marker without a cookie, one request per event, an irq
    /// work that adds the task work, a record that is matched by thread and order.
    Rfc2023,
    /// No deferred callchains, up to Linux 6.18: bits 38 and 39 of the attribute's flags are
    /// reserved.
    Before,
    /// As merged in Linux 6.19 (`kernel/unwind/deferred.c`): marker and cookie, one task work for
    /// all, a record with the cookie for every event with `defer_output`.
    Upstream,
}

impl Form {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rfc2023 => "rfc2023",
            Self::Upstream => "upstream",
            Self::Before => "linux-6.18",
        }
    }
}

/// How user stacks are unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserUnwind {
    /// By frame pointers: possible in any context.
    FramePointer,
    /// By SFrame sections, which may have to be paged in, so only in task context.
    Sframe,
}

/// What makes an event count and overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A hardware counter: its overflow is an NMI. Counts a cycle per nanosecond.
    Pmu,
    /// A timer (cpu-clock): its overflow is a hardirq.
    Timer,
    /// A tracepoint: in task context, at a point of the kernel, with registers made up there.
    Tracepoint,
    /// A software event that is counted at a point of the kernel (PERF_COUNT_SW_CONTEXT_SWITCHES):
    /// like a tracepoint, but it accepts programs for perf events.
    Software,
    /// A uprobe at the first instruction of a function.
    Uprobe,
    /// The event that programs write to (PERF_COUNT_SW_BPF_OUTPUT). It does not overflow.
    BpfOutput,
}

impl Kind {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pmu => "pmu",
            Self::Timer => "timer",
            Self::Tracepoint => "tracepoint",
            Self::Software => "software",
            Self::Uprobe => "uprobe",
            Self::BpfOutput => "bpf-output",
        }
    }

    const ALL: [Self; 6] = [
        Self::Pmu,
        Self::Timer,
        Self::Tracepoint,
        Self::Software,
        Self::Uprobe,
        Self::BpfOutput,
    ];

    /// The kind with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The modelled attributes of an event, as passed to `perf_event_open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSetup {
    /// Its name in scenarios and logs.
    pub name: String,
    /// What makes it overflow.
    pub kind: Kind,
    /// Events (nanoseconds for [`Kind::Pmu`] and [`Kind::Timer`]) from one sample to the next.
    pub period: u64,
    /// `attr.freq` of a hardware counter, samples per second. `period` is then the initial period.
    pub frequency: Option<u64>,
    /// Only this thread and, with `inherit`, the threads it creates; every thread otherwise.
    pub tid: Option<i32>,
    /// Only tasks of this cgroup, an index into [`Setup::cgroups`] (`PERF_FLAG_PID_CGROUP`).
    pub cgroup: Option<u16>,
    /// `attr.inherit`.
    pub inherit: bool,
    /// `attr.sample_type` has CALLCHAIN.
    pub has_callchain: bool,
    /// `attr.defer_callchain`: the user part is unwound later.
    pub defer_callchain: bool,
    /// `attr.defer_output`: records with user frames are written to this event's ring.
    pub defer_output: bool,
    /// `attr.exclude_user`.
    pub exclude_user: bool,
    /// `attr.exclude_kernel`.
    pub exclude_kernel: bool,
    /// `attr.exclude_idle`.
    pub exclude_idle: bool,
    /// `attr.sample_max_stack`.
    pub max_stack: u16,
    /// Samples have user registers and this many bytes of the user stack.
    pub stack_user: u32,
    /// `attr.sample_type` has IDENTIFIER, TID and TIME.
    pub identified: [bool; 3],
    /// The ring's size in bytes.
    pub ring_bytes: u32,
    /// Samples have the interrupted registers (PERF_SAMPLE_REGS_INTR).
    pub regs_intr: bool,
    /// `attr.config1`; its meaning depends on the event.
    pub config1: u64,
    /// Number of the handler that the attribute names: a bit of the attribute says that `config1`
    /// is a program, as proposed in August 2016.
    pub program: Option<u16>,
    /// Samples have branch records, in call-stack mode, of user space.
    pub branch_stack: bool,
    /// It is not open from the start, but opened later.
    pub is_opened_later: bool,
}

impl Default for EventSetup {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: Kind::Pmu,
            period: 1_000_000,
            frequency: None,
            tid: None,
            cgroup: None,
            inherit: false,
            has_callchain: true,
            defer_callchain: true,
            defer_output: true,
            exclude_user: false,
            exclude_kernel: false,
            exclude_idle: false,
            max_stack: MAX_STACK,
            stack_user: 0,
            identified: [true; 3],
            ring_bytes: 1 << 20,
            regs_intr: false,
            config1: 0,
            program: None,
            branch_stack: false,
            is_opened_later: false,
        }
    }
}

/// `sysctl_perf_event_max_stack`.
pub const MAX_STACK: u16 = 127;
/// Entries that fit the page of `struct unwind_cache` (`UNWIND_MAX_ENTRIES`): (4096 - 16) / 8.
pub const UNWIND_MAX_ENTRIES: usize = 510;
/// Entries of a buffer on the kernel's stack, as considered in 2023.
pub const ON_STACK_ENTRIES: usize = 128;
/// The shortest period of a sampling timer (`perf_swevent_start_hrtimer`), nanoseconds.
pub const TIMER_FLOOR_NS: u64 = 10_000;

/// The shortest period of a hardware counter in the model: an NMI takes no time here, so a shorter
/// one would leave no time for anything else.
pub const PMU_PERIOD_MIN: u64 = 1_000;

/// The buffer for the frames of [`Form::Rfc2023`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RfcBuffer {
    /// `kmalloc`, for `sample_max_stack` entries.
    Allocated,
    /// On the kernel's stack, for [`ON_STACK_ENTRIES`].
    OnStack,
}

/// A cgroup. A new task is in the cgroup of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupSetup {
    /// Its name in scenarios.
    pub name: String,
    /// The tasks in it at the start.
    pub tids: Vec<i32>,
}

/// The setup of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The form of deferral.
    pub form: Form,
    /// A defect put in on purpose.
    pub mutant: Option<Mutant>,
    /// The number of CPUs.
    pub cpus: u16,
    /// How user stacks are unwound.
    pub unwind: UserUnwind,
    /// The buffer for the frames of [`Form::Rfc2023`].
    pub rfc_buffer: RfcBuffer,
    /// Samples of one event on one CPU, per tick of a millisecond, before it is throttled.
    pub samples_per_tick: u32,
    /// Where branch records are kept while a task does not run.
    pub lbr_storage: Storage,
    /// The number of branch records of a CPU.
    pub lbr_depth: Depth,
    /// The structure in which the kernel saves them.
    pub lbr_layout: Layout,
    /// Whether timers, tracepoints, software events and uprobes can have branch records too.
    pub software_branches: bool,
    /// The cgroups.
    pub cgroups: Vec<CgroupSetup>,
    /// How registers are made up where there was no interrupt.
    pub fake_regs: FakeRegs,
    /// The log shows what a global tracepoint would see where hardware counters overflow, as
    /// considered in August 2016.
    pub overflow_tracepoint: bool,
    /// The log shows what a global tracepoint at the head of the timers' function would see, as
    /// proposed in July 2016.
    pub timer_tracepoint: bool,
}

impl Setup {
    /// Index of the cgroup that a task is in at the start.
    pub(super) fn cgroup_of(&self, tid: i32) -> Option<u16> {
        let at = (self.cgroups.iter()).position(|cgroup| cgroup.tids.contains(&tid));
        at.map(|at| at as u16)
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            form: Form::Upstream,
            mutant: None,
            cpus: 1,
            unwind: UserUnwind::FramePointer,
            rfc_buffer: RfcBuffer::Allocated,
            samples_per_tick: 100,
            lbr_storage: Storage::PerTask,
            lbr_depth: Depth::ThirtyTwo,
            lbr_layout: Layout::default(),
            software_branches: false,
            cgroups: Vec::new(),
            fake_regs: FakeRegs::default(),
            overflow_tracepoint: false,
            timer_tracepoint: false,
        }
    }
}

/// Why a kernel refuses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The period is zero.
    NoPeriod,
    /// A hardware counter would overflow all the time ([`PMU_PERIOD_MIN`]).
    ShortPeriod,
    /// [`Form::Rfc2023`]: the record cannot be matched without IDENTIFIER, TID and TIME.
    NotIdentified,
    /// [`Form::Rfc2023`] has no `defer_output`: bit 39 is reserved.
    NoDeferOutput,
    /// [`Form::Before`] has neither: bits 38 and 39 are reserved.
    NoDeferral,
    /// SFrame sections cannot be read where the sample is taken.
    SframeInline,
    /// `sample_max_stack` over the system's limit.
    MaxStack,
    /// Only hardware counters have branch records.
    NoBranches,
    /// The output of programs has no branch records.
    NoBranchesOfOutputs,
    /// An event belongs to a thread or to a cgroup, not to both.
    CgroupOfThread,
    /// `config1` cannot name a program because the event uses it otherwise: a uprobe has the path
    /// of its file there.
    Config1InUse,
    /// The program does not exist, or events of this kind take no programs.
    NotForPrograms,
    /// The first event takes the records of what tasks do, so it must be open from the start.
    FirstIsLate,
}

impl Refusal {
    /// The name of the error number.
    pub const fn errno(self) -> &'static str {
        match self {
            Self::NoBranches | Self::NoBranchesOfOutputs => "EOPNOTSUPP",
            _ => "EINVAL",
        }
    }

    /// The error message.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NoPeriod => "the period is zero",
            Self::ShortPeriod => "the period of a hardware counter is under 1,000",
            Self::NotIdentified => "defer_callchain needs IDENTIFIER, TID and TIME",
            Self::NoDeferOutput => "defer_output is a reserved bit in this form",
            Self::NoDeferral => "defer_callchain and defer_output are reserved bits in this kernel",
            Self::SframeInline => "SFrame needs task context, so the callchain must be deferred",
            Self::MaxStack => "sample_max_stack exceeds the limit of 127",
            Self::NoBranches => "only a hardware counter has branch records",
            Self::NoBranchesOfOutputs => "the output of programs has no branch records",
            Self::Config1InUse => "config1 is in use, so it cannot name a program",
            Self::NotForPrograms => "no such program, or events of this kind take no programs",
            Self::CgroupOfThread => "an event may belong to a thread or to a cgroup, not to both",
            Self::FirstIsLate => {
                "an event that takes the records of others must be open from the start"
            }
        }
    }
}

/// Checks an event as `perf_copy_attr` does.
///
/// # Errors
/// The first reason to refuse it.
pub fn validate(setup: &Setup, event: &EventSetup) -> Result<(), Refusal> {
    // A period of 0 would overflow without end.
    if event.period == 0 {
        return Err(Refusal::NoPeriod);
    }
    if event.kind == Kind::Pmu && event.period < PMU_PERIOD_MIN {
        return Err(Refusal::ShortPeriod);
    }

    if event.max_stack > MAX_STACK {
        return Err(Refusal::MaxStack);
    }

    // Branch records at software events are a proposal, so a kernel may lack them.
    if event.branch_stack && event.kind != Kind::Pmu && !setup.software_branches {
        return Err(Refusal::NoBranches);
    }
    if event.branch_stack && event.kind == Kind::BpfOutput {
        return Err(Refusal::NoBranchesOfOutputs);
    }

    // `perf_event_open` takes either a thread or a cgroup.
    if event.cgroup.is_some() && event.tid.is_some() {
        return Err(Refusal::CgroupOfThread);
    }
    if event.program.is_some() && (event.config1 != 0 || event.kind == Kind::Uprobe) {
        return Err(Refusal::Config1InUse);
    }

    if event.is_opened_later && event.defer_output {
        return Err(Refusal::FirstIsLate);
    }

    // The form of 2023 matches by these three fields, and has no bit for the records.
    if setup.form == Form::Rfc2023 {
        if event.defer_callchain && event.identified != [true; 3] {
            return Err(Refusal::NotIdentified);
        }
        if event.defer_output {
            return Err(Refusal::NoDeferOutput);
        }
    }
    if setup.form == Form::Before && (event.defer_callchain || event.defer_output) {
        return Err(Refusal::NoDeferral);
    }
    if setup.unwind == UserUnwind::Sframe && !event.defer_callchain {
        return Err(Refusal::SframeInline);
    }

    Ok(())
}

/// The period of a timer opened with a frequency: fixed, and at least [`TIMER_FLOOR_NS`]
/// (`perf_swevent_init_hrtimer`).
pub fn timer_period(frequency: u64) -> u64 {
    (1_000_000_000 / frequency.max(1)).max(TIMER_FLOOR_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r001_2_identifier_tid_and_time_or_einval_in_the_form_of_2023() {
        let setup = Setup {
            form: Form::Rfc2023,
            ..Setup::default()
        };
        for bits in 0..8u8 {
            let identified = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
            let mut event = EventSetup {
                identified,
                defer_output: false,
                ..EventSetup::default()
            };
            let expected = if bits == 7 {
                Ok(())
            } else {
                Err(Refusal::NotIdentified)
            };
            assert_eq!(validate(&setup, &event), expected, "{bits:03b}");
            event.defer_output = true;
            assert_eq!(validate(&Setup::default(), &event), Ok(()), "{bits:03b}");
        }
    }

    #[test]
    fn r000_12_sframe_implies_deferral() {
        for (unwind, defer, accepted) in [
            (UserUnwind::FramePointer, false, true),
            (UserUnwind::FramePointer, true, true),
            (UserUnwind::Sframe, false, false),
            (UserUnwind::Sframe, true, true),
        ] {
            let setup = Setup {
                unwind,
                ..Setup::default()
            };
            let event = EventSetup {
                defer_callchain: defer,
                ..EventSetup::default()
            };
            assert_eq!(validate(&setup, &event).is_ok(), accepted);
        }
    }

    #[test]
    fn r003_11_a_timer_has_a_floor_of_ten_microseconds() {
        assert_eq!(timer_period(999), 1_001_001);
        assert_eq!(timer_period(100_000), 10_000);
        assert_eq!(timer_period(1_000_000), 10_000);
        assert_eq!(timer_period(0), 1_000_000_000);
    }
}
