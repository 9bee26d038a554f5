//! Bodies of records, field by field.

use super::{EventSpec, WriteError};
use crate::bodies::{Comm, Mmap, MmapIdentity, Task, Throttle};
use crate::flag;
use crate::layout::{branch_sample_type, sample_type as st};
use crate::sample_parts::BranchEntry;
use crate::walk::{misc, record_type as rt};

/// Whose a record is: written are those of its fields that the event records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Id {
    /// The number of its event in the file.
    pub event: usize,
    /// The event's id.
    pub id: u64,
    /// Id of the stream.
    pub stream_id: u64,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Nanoseconds.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
}

/// A copy of the user stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackCopy<'a> {
    /// What was there, from rsp upwards.
    pub bytes: &'a [u8],
    /// Bytes asked for, a multiple of 8; if it is less than there are, that many.
    pub size: usize,
}

/// What a sample says; fields that its event does not record are not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleData<'a> {
    /// Where it hit ([`misc`]): `CPUMODE_USER` and so on, perhaps with `EXACT_IP`.
    pub misc: u16,
    /// Instruction pointer.
    pub ip: u64,
    /// Data address.
    pub address: u64,
    /// Period.
    pub period: u64,
    /// The chain with its markers.
    pub callchain: &'a [u64],
    /// Raw data; it is padded with zeros.
    pub raw: &'a [u8],
    /// Hardware index of the newest branch, with `branch_sample_type::HW_INDEX`.
    pub branch_hw_index: u64,
    /// Branches, newest first.
    pub branches: &'a [BranchEntry],
    /// The words of `sample_regs_user`, in ascending order of register; none for a kernel thread.
    pub user_regs: &'a [u64],
    /// The user stack.
    pub user_stack: StackCopy<'a>,
    /// The words of `sample_regs_intr`, likewise.
    pub intr_regs: &'a [u64],
    /// Weight.
    pub weight: u64,
    /// Where data came from.
    pub data_source: u64,
    /// Transaction flags.
    pub transaction: u64,
    /// Physical address.
    pub physical_address: u64,
    /// Cgroup id.
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
    /// A task got a name.
    Comm(Comm<'a>),
    /// Something was mapped (`PERF_RECORD_MMAP2`).
    Mmap {
        /// What.
        mmap: Mmap<'a>,
        /// By whom: `CPUMODE_USER` or `CPUMODE_KERNEL`.
        cpumode: u16,
    },
    /// A task was made.
    Fork(Task),
    /// A task ended.
    Exit(Task),
    /// Records were lost.
    Lost {
        /// Event id.
        id: u64,
        /// How many.
        lost: u64,
    },
    /// Samples were lost.
    LostSamples {
        /// How many.
        lost: u64,
    },
    /// Sampling was throttled.
    Throttle(Throttle),
    /// Sampling goes on.
    Unthrottle(Throttle),
    /// The task was switched in or out.
    Switch {
        /// Out, not in.
        out: bool,
        /// Out, though it could have run on.
        preempted: bool,
    },
    /// The CPU switched tasks.
    SwitchCpuWide {
        /// Out, not in.
        out: bool,
        /// Out, though it could have run on.
        preempted: bool,
        /// Process that comes next (out) or came before (in).
        other_pid: i32,
        /// Thread that comes next or came before.
        other_tid: i32,
    },
    /// User frames of samples before it.
    CallchainDeferred {
        /// Names the stay in the kernel.
        cookie: u64,
        /// The frames, innermost first.
        frames: &'a [u64],
    },
    /// All records of earlier rounds are written: no later record has an earlier time than the
    /// latest of the round before this one.
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
            Self::CallchainDeferred { .. } => (rt::CALLCHAIN_DEFERRED, misc::CPUMODE_USER),
            Self::FinishedRound => (rt::FINISHED_ROUND, 0),
        }
    }

    /// Appends what follows the header.
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

/// A name with its NUL, padded to words.
fn name(name: &[u8], out: &mut Vec<u8>) {
    let padded = (name.len() + 1).next_multiple_of(8);
    out.extend_from_slice(name);
    out.extend(std::iter::repeat_n(0, padded - name.len()));
}

fn map(mmap: &Mmap<'_>, out: &mut Vec<u8>) {
    pair(mmap.pid, mmap.tid, out);
    words(&[mmap.address, mmap.length, mmap.file_offset], out);
    match mmap.identity {
        MmapIdentity::Path => words(&[0; 3], out),
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
            // The size word and the data together fill words.
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
            if event.branch_sample_type & branch_sample_type::COUNTERS != 0 {
                words(&vec![0; self.branches.len()], out);
            }
        }
        if has(st::REGS_USER) {
            registers(self.user_regs, event.sample_regs_user, out)?;
        }
        if has(st::STACK_USER) {
            self.write_stack(out);
        }
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

/// Registers behind their mode: 64-bit, or none at all.
fn registers(values: &[u64], mask: u64, out: &mut Vec<u8>) -> Result<(), WriteError> {
    if !values.is_empty() && values.len() != mask.count_ones() as usize {
        return Err(WriteError::Registers(values.len()));
    }
    words(&[if values.is_empty() { 0 } else { 2 }], out);
    words(values, out);
    Ok(())
}
