//! The environment that a program's helpers query: the thread, the processor, the time, the stack.
//!
//! Whoever runs programs implements [`Env`]: a reader of recorded samples, or a model of a
//! machine. [`PlainEnv`] is one whose answers are its fields.

use super::errno::Errno;
use super::stackmap::BuildId;

/// Entries of a callchain that the kernel collects (`kernel.perf_event_max_stack`, its default).
pub const MAX_STACK: u32 = 127;

/// The thread that was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its name, with at least one NUL at the end.
    pub comm: [u8; 16],
}

/// Which memory a helper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Kernel memory.
    Kernel,
    /// Memory of the current task.
    User,
    /// Either one, depending on the address, as the old `probe_read` does.
    Any,
}

/// Whether the event that fired has a callchain of its own, which `get_stackid` and `get_stack`
/// then use.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum SampleChain {
    /// The event is opened without `PERF_SAMPLE_CALLCHAIN`: stacks are walked when asked for.
    #[default]
    NotSampled,
    /// It has the bit, but there is no chain.
    Missing,
    /// Its words, markers and cookies included.
    Words(Vec<u64>),
}

/// The three values of `struct bpf_perf_event_value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventValue {
    /// The count.
    pub counter: u64,
    /// Time for which the event was enabled, ns.
    pub enabled: u64,
    /// Time for which it counted, ns.
    pub running: u64,
}

/// The queries of helpers. Methods with a body have a default answer.
pub trait Env {
    /// The processor.
    fn cpu(&mut self) -> u32;
    /// Monotonic time, ns.
    fn time_ns(&mut self) -> u64;
    /// Time since boot, suspension included, ns.
    fn boot_time_ns(&mut self) -> u64 {
        self.time_ns()
    }
    /// The interrupted thread.
    fn task(&mut self) -> Task;
    /// A random number.
    fn random(&mut self) -> u32;
    /// Reads memory; `false` if it cannot all be read.
    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> bool;
    /// The kernel or the user stack, innermost frame first, no markers, at most `max_depth`
    /// entries; `None` if no buffer is free. Never deferred: the program is over before a
    /// deferred unwind could begin.
    fn stack(&mut self, user: bool, max_depth: u32) -> Option<Vec<u64>>;
    /// The callchain that the event has of its own.
    fn sample_chain(&mut self) -> SampleChain;
    /// The most entries of a callchain.
    fn max_stack(&mut self) -> u32 {
        MAX_STACK
    }
    /// The branch records of the sample: entries of 24 bytes.
    fn branch_records(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// The processor's current branch records, whichever event enabled them: entries of 24 bytes.
    fn branch_snapshot(&mut self) -> Vec<u8> {
        Vec::new()
    }
    /// The image and the offset in its file that a user address belongs to.
    fn build_id(&mut self, _address: u64) -> Option<BuildId> {
        None
    }
    /// Takes `data`, which a program writes to the event in slot `index` of the map `map`.
    ///
    /// # Errors
    /// `ENOSPC` if the ring buffer has no room.
    fn output(&mut self, map: &str, index: u32, data: &[u8]) -> Result<(), Errno>;
    /// Takes a line of `trace_printk`.
    fn print(&mut self, _text: &str) {}
    /// The event's own value.
    ///
    /// # Errors
    /// If it cannot be read.
    fn event_value(&mut self) -> Result<EventValue, Errno> {
        Err(Errno::Eopnotsupp)
    }
    /// The number given when the program was attached.
    fn attach_cookie(&mut self) -> u64 {
        0
    }
}

/// An [`Env`] whose answers are its fields, and which keeps the output of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainEnv {
    /// The processor.
    pub cpu: u32,
    /// The time, ns; each question adds one.
    pub time_ns: u64,
    /// The thread.
    pub task: Task,
    /// State of the random numbers.
    pub seed: u32,
    /// The kernel stack.
    pub kernel_stack: Vec<u64>,
    /// The user stack.
    pub user_stack: Vec<u64>,
    /// The event's own chain.
    pub sample_chain: SampleChain,
    /// Readable memory: address and bytes.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Branch records.
    pub branches: Option<Vec<u8>>,
    /// The event's value.
    pub value: EventValue,
    /// The number given when the program was attached.
    pub cookie: u64,
    /// The output of programs: map, slot, data.
    pub outputs: Vec<(String, u32, Vec<u8>)>,
    /// The printed lines.
    pub printed: Vec<String>,
}

impl Env for PlainEnv {
    fn cpu(&mut self) -> u32 {
        self.cpu
    }

    fn time_ns(&mut self) -> u64 {
        self.time_ns = self.time_ns.wrapping_add(1);
        self.time_ns
    }

    fn task(&mut self) -> Task {
        self.task
    }

    fn random(&mut self) -> u32 {
        self.seed = self
            .seed
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.seed
    }

    fn read(&mut self, _space: Space, address: u64, into: &mut [u8]) -> bool {
        self.memory.iter().any(|(start, bytes)| {
            let from = address
                .checked_sub(*start)
                .and_then(|at| usize::try_from(at).ok())
                .and_then(|at| bytes.get(at..))
                .and_then(|rest| rest.get(..into.len()));
            from.inspect(|from| into.copy_from_slice(from)).is_some()
        })
    }

    fn stack(&mut self, user: bool, max_depth: u32) -> Option<Vec<u64>> {
        let stack = if user {
            &self.user_stack
        } else {
            &self.kernel_stack
        };
        Some(stack.iter().take(max_depth as usize).copied().collect())
    }

    fn sample_chain(&mut self) -> SampleChain {
        self.sample_chain.clone()
    }

    fn branch_records(&mut self) -> Option<Vec<u8>> {
        self.branches.clone()
    }

    fn branch_snapshot(&mut self) -> Vec<u8> {
        self.branches.clone().unwrap_or_default()
    }

    fn output(&mut self, map: &str, index: u32, data: &[u8]) -> Result<(), Errno> {
        self.outputs.push((map.to_owned(), index, data.to_owned()));
        Ok(())
    }

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }

    fn event_value(&mut self) -> Result<EventValue, Errno> {
        Ok(self.value)
    }

    fn attach_cookie(&mut self) -> u64 {
        self.cookie
    }
}
