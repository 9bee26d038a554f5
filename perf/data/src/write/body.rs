//! Writes the bodies of records.

use super::{EventSpec, WriteError};
use crate::bodies::{Comm, Mmap, MmapIdentity, Task, Throttle};
use crate::flag;
use crate::layout::{branch_sample_type, sample_type as st};
use crate::sample_parts::BranchEntry;
use crate::walk::{misc, record_type as rt};

/// The sample ID of a record. Only fields that the event records are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Id {
    /// Index of its event in the file.
    pub event: usize,
    /// ID of the event.
    pub id: u64,
    /// ID of the stream.
    pub stream_id: u64,
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Time, nanoseconds.
    pub time: u64,
    /// CPU number.
    pub cpu: u32,
}

/// A copy of the user stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackCopy<'a> {
    /// The stack's contents, from rsp upwards.
    pub bytes: &'a [u8],
    /// Requested bytes, a multiple of 8; at least the length of `bytes` is written.
    pub size: usize,
}

/// The contents of a sample. Only fields that the event records are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleData<'a> {
    /// Mode of the sample ([`misc`]): `CPUMODE_USER` etc., possibly with `EXACT_IP`.
    pub misc: u16,
    /// Instruction pointer.
    pub ip: u64,
    /// Data address.
    pub address: u64,
    /// Period.
    pub period: u64,
    /// The chain with its context markers.
    pub callchain: &'a [u64],
    /// Raw data; padded with zeros.
    pub raw: &'a [u8],
    /// Hardware index of the newest branch, with `branch_sample_type::HW_INDEX`.
    pub branch_hw_index: u64,
    /// Branches, newest first.
    pub branches: &'a [BranchEntry],
    /// The words of `sample_regs_user`, in ascending order of register; empty for a kernel thread.
    pub user_regs: &'a [u64],
    /// The user stack.
    pub user_stack: StackCopy<'a>,
    /// The words of `sample_regs_intr`, in ascending order of register.
    pub intr_regs: &'a [u64],
    /// Weight.
    pub weight: u64,
    /// Source of the data.
    pub data_source: u64,
    /// Transaction flags.
    pub transaction: u64,
    /// Physical address.
    pub physical_address: u64,
    /// Cgroup ID.
    pub cgroup: u64,
    /// Page size of the data address.
    pub data_page_size: u64,
    /// Page size of the instruction pointer.
    pub code_page_size: u64,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// A sample.
    Sample(SampleData<'a>),
    /// A task was named.
    Comm(Comm<'a>),
    /// A mapping was created (`PERF_RECORD_MMAP2`).
    Mmap {
        /// The mapping.
        mmap: Mmap<'a>,
        /// The mode: `CPUMODE_USER` or `CPUMODE_KERNEL`.
        cpumode: u16,
    },
    /// A task was created.
    Fork(Task),
    /// A task ended.
    Exit(Task),
    /// Records were lost.
    Lost {
        /// Event ID.
        id: u64,
        /// Number of lost records.
        lost: u64,
    },
    /// Samples were lost.
    LostSamples {
        /// Number of lost samples.
        lost: u64,
    },
    /// Sampling was throttled.
    Throttle(Throttle),
    /// Sampling was resumed.
    Unthrottle(Throttle),
    /// The task was switched in or out.
    Switch {
        /// Switched out, not in.
        out: bool,
        /// Switched out although runnable.
        preempted: bool,
    },
    /// The CPU switched tasks.
    SwitchCpuWide {
        /// Switched out, not in.
        out: bool,
        /// Switched out although runnable.
        preempted: bool,
        /// Process ID of the next task (out) or the previous one (in).
        other_pid: i32,
        /// Thread ID of the next task (out) or the previous one (in).
        other_tid: i32,
    },
    /// The deferred user frames of earlier samples.
    CallchainDeferred {
        /// Identifies the thread's stay in the kernel.
        cookie: u64,
        /// The frames, innermost first.
        frames: &'a [u64],
    },
    /// All records of earlier rounds are written: no later record has a time before the latest one
    /// of the previous round.
    FinishedRound,
}

impl Body<'_> {
    /// Type and `misc` word.
    pub(super) fn header(&self) -> (u32, u16) {
        let switch = |out: bool, preempted: bool| {
            let out = if out { misc::SWITCH_OUT } else { 0 };
            out | if preempted {
                misc::SWITCH_OUT_PREEMPT
            } else {
                0
            }
        };
        match self {
            // The mode in which a sample was taken is a part of its `misc` word.
            Self::Sample(sample) => (rt::SAMPLE, sample.misc),
            Self::Comm(comm) => (rt::COMM, if comm.exec { misc::COMM_EXEC } else { 0 }),
            Self::Mmap { mmap, cpumode } => {
                let by_id = matches!(mmap.identity, MmapIdentity::BuildId(_));
                (
                    rt::MMAP2,
                    cpumode | if by_id { misc::MMAP_BUILD_ID } else { 0 },
                )
            }
            Self::Fork(_) => (rt::FORK, 0),
            Self::Exit(_) => (rt::EXIT, 0),
            Self::Lost { .. } => (rt::LOST, 0),
            Self::LostSamples { .. } => (rt::LOST_SAMPLES, 0),
            Self::Throttle(_) => (rt::THROTTLE, 0),
            Self::Unthrottle(_) => (rt::UNTHROTTLE, 0),
            Self::Switch { out, preempted } => (rt::SWITCH, switch(*out, *preempted)),
            Self::SwitchCpuWide { out, preempted, .. } => {
                (rt::SWITCH_CPU_WIDE, switch(*out, *preempted))
            }

            // The frames are those of user space.
            Self::CallchainDeferred { .. } => (rt::CALLCHAIN_DEFERRED, misc::CPUMODE_USER),
            Self::FinishedRound => (rt::FINISHED_ROUND, 0),
        }
    }

    /// Appends the body, which follows the header.
    pub(super) fn write(
        &self,
        event: &EventSpec,
        id: &Id,
        out: &mut Vec<u8>,
    ) -> Result<(), WriteError> {
        match self {
            Self::Sample(sample) => return sample.write(event, id, out),
            Self::FinishedRound => return Ok(()),
            Self::Comm(comm) => {
                pair(comm.pid, comm.tid, out);
                name(comm.name, out);
            }
            Self::Mmap { mmap, .. } => map(mmap, out),
            // Process and thread each come with their parents.
            Self::Fork(task) | Self::Exit(task) => {
                pair(task.pid, task.ppid, out);
                pair(task.tid, task.ptid, out);
                words(&[task.time], out);
            }
            Self::Lost { id, lost } => words(&[*id, *lost], out),
            Self::LostSamples { lost } => words(&[*lost], out),
            Self::Throttle(t) | Self::Unthrottle(t) => words(&[t.time, t.id, t.stream_id], out),
            Self::Switch { .. } => {}
            Self::SwitchCpuWide {
                other_pid,
                other_tid,
                ..
            } => pair(*other_pid, *other_tid, out),
            Self::CallchainDeferred { cookie, frames } => {
                words(&[*cookie, frames.len() as u64], out);
                words(frames, out);
            }
        }

        // Samples and records of the tool have returned: the former have their ID fields in the
        // body, the latter have none.
        if event.flags & flag::SAMPLE_ID_ALL != 0 {
            id.write_trailer(event.sample_type, out);
        }
        Ok(())
    }
}

fn words(words: &[u64], out: &mut Vec<u8>) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn pair(a: i32, b: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&a.to_le_bytes());
    out.extend_from_slice(&b.to_le_bytes());
}

/// A name with its NUL, padded to 8 bytes.
fn name(name: &[u8], out: &mut Vec<u8>) {
    let padded = (name.len() + 1).next_multiple_of(8);
    out.extend_from_slice(name);
    out.extend(std::iter::repeat_n(0, padded - name.len()));
}

fn map(mmap: &Mmap<'_>, out: &mut Vec<u8>) {
    pair(mmap.pid, mmap.tid, out);
    words(&[mmap.address, mmap.length, mmap.file_offset], out);

    match mmap.identity {
        // Nothing is known of the file: no device and no inode.
        MmapIdentity::Path => words(&[0; 3], out),
        // As in `struct perf_record_mmap2`: two halves, then two words.
        MmapIdentity::Inode {
            major,
            minor,
            inode,
            generation,
        } => {
            words(&[u64::from(major) | u64::from(minor) << 32], out);
            words(&[inode, generation], out);
        }
        MmapIdentity::BuildId(id) => {
            // A length, three bytes of padding, and up to 20 bytes of build ID.
            let mut field = [0; 24];
            let len = id.len().min(20);
            field[0] = len as u8;
            field[4..4 + len].copy_from_slice(&id[..len]);
            out.extend_from_slice(&field);
        }
    }

    words(
        &[u64::from(mmap.protection) | u64::from(mmap.flags) << 32],
        out,
    );

    name(mmap.path, out);
}

impl Id {
    fn task(&self) -> u64 {
        u64::from(self.pid.cast_unsigned()) | u64::from(self.tid.cast_unsigned()) << 32
    }

    fn write_trailer(&self, sample_type: u64, out: &mut Vec<u8>) {
        for (bit, word) in [
            (st::TID, self.task()),
            (st::TIME, self.time),
            (st::ID, self.id),
            (st::STREAM_ID, self.stream_id),
            (st::CPU, self.cpu.into()),
            (st::IDENTIFIER, self.id),
        ] {
            if sample_type & bit != 0 {
                words(&[word], out);
            }
        }
    }
}

impl SampleData<'_> {
    fn write(&self, event: &EventSpec, id: &Id, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let has = |bit| event.sample_type & bit != 0;

        // The order is that of the kernel's `perf_output_sample`, not that of the bits.
        for (bit, word) in [
            (st::IDENTIFIER, id.id),
            (st::IP, self.ip),
            (st::TID, id.task()),
            (st::TIME, id.time),
            (st::ADDR, self.address),
            (st::ID, id.id),
            (st::STREAM_ID, id.stream_id),
            (st::CPU, id.cpu.into()),
            (st::PERIOD, self.period),
        ] {
            if has(bit) {
                words(&[word], out);
            }
        }

        if has(st::CALLCHAIN) {
            words(&[self.callchain.len() as u64], out);
            words(self.callchain, out);
        }

        if has(st::RAW) {
            // The size word and the data together are a multiple of 8 bytes.
            let padded = (self.raw.len() + 4).next_multiple_of(8) - 4;
            out.extend_from_slice(&(padded as u32).to_le_bytes());
            out.extend_from_slice(self.raw);
            out.extend(std::iter::repeat_n(0, padded - self.raw.len()));
        }

        if has(st::BRANCH_STACK) {
            words(&[self.branches.len() as u64], out);
            if event.branch_sample_type & branch_sample_type::HW_INDEX != 0 {
                words(&[self.branch_hw_index], out);
            }
            for branch in self.branches {
                words(&[branch.from, branch.to, branch.flags], out);
            }

            // Counters come after all entries, not in them.
            if event.branch_sample_type & branch_sample_type::COUNTERS != 0 {
                words(&vec![0; self.branches.len()], out);
            }
        }

        // The values are written in the order of the mask's bits.
        if has(st::REGS_USER) {
            registers(self.user_regs, event.sample_regs_user, out)?;
        }
        if has(st::STACK_USER) {
            self.write_stack(out);
        }

        // Both weight bits share one word.
        let tail = [
            (st::WEIGHT | st::WEIGHT_STRUCT, self.weight),
            (st::DATA_SRC, self.data_source),
            (st::TRANSACTION, self.transaction),
        ];
        for (bit, word) in tail {
            if has(bit) {
                words(&[word], out);
            }
        }

        if has(st::REGS_INTR) {
            registers(self.intr_regs, event.sample_regs_intr, out)?;
        }

        for (bit, word) in [
            (st::PHYS_ADDR, self.physical_address),
            (st::CGROUP, self.cgroup),
            (st::DATA_PAGE_SIZE, self.data_page_size),
            (st::CODE_PAGE_SIZE, self.code_page_size),
        ] {
            if has(bit) {
                words(&[word], out);
            }
        }

        Ok(())
    }

    fn write_stack(&self, out: &mut Vec<u8>) {
        let StackCopy { bytes, size } = self.user_stack;
        let size = size.max(bytes.len()).next_multiple_of(8);
        words(&[size as u64], out);
        out.extend_from_slice(bytes);
        out.extend(std::iter::repeat_n(0, size - bytes.len()));
        if size != 0 {
            words(&[bytes.len() as u64], out);
        }
    }
}

/// Registers preceded by their ABI: 64-bit, or none.
fn registers(values: &[u64], mask: u64, out: &mut Vec<u8>) -> Result<(), WriteError> {
    if !values.is_empty() && values.len() != mask.count_ones() as usize {
        return Err(WriteError::Registers(values.len()));
    }
    words(&[if values.is_empty() { 0 } else { 2 }], out);
    words(values, out);
    Ok(())
}
