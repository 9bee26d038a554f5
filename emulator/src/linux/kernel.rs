//! The whole state of a run: the processor, and what the kernel knows of all processes. Not here:
//! running them (`run`).

use super::clock::Clock;
use super::errno::{Answer, Errno};
use super::files::{Files, FilesOptions, Node};
use super::identity::Identity;
use super::objects::Objects;
use super::options::{Limits, ObservedProcesses, ProcessOptions};
use super::outcome::{Notice, Outcome};
use super::process::{ParkedProcess, Process};
use super::resources;
use super::share::Schedule;
use super::streams::{StreamTimeout, Streams};
use super::system::{KernelState, System};
use super::{INIT, PID};
use crate::address_space::AddressSpace;
use crate::core::Core;
use crate::machine::Machine;
use crate::random::Random;
use crate::state::reg;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// Maximum number of different notices.
const NOTICES_MAX: usize = 1000;

/// The kernel with the processes that it runs: one that it started, and its descendants.
#[derive(Debug)]
pub struct Kernel {
    /// The processor: the registers of the running thread, the memory of its process.
    pub machine: Machine,
    pub(super) files: Files,
    pub(super) objects: Objects,
    /// The process that runs.
    pub(super) process: Process,
    /// The processes that do not run, by number.
    pub(super) processes: BTreeMap<u32, ParkedProcess>,
    pub(super) system: System,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// When a run ends, see [`ProcessOptions::deadline`].
    pub(super) deadline: Option<Instant>,
    pub(super) observed: ObservedProcesses,
    pub(super) outcome: Option<Outcome>,
    pub(super) notices: Vec<Notice>,
    /// A copy of everything except memory, if nothing has changed since it was made.
    pub(super) saved: Option<Rc<KernelState>>,
}

impl Kernel {
    /// A process that continues from `state`, which was not started here, such as the state in a
    /// core. Its open files are the standard streams of the options; it sees the names below the
    /// root.
    pub fn resume(core: Core, options: ProcessOptions) -> Kernel {
        let stack = core.memory.area(core.state.gpr(reg::RSP));
        let stack = stack.map(|(range, _)| range).unwrap_or_default();
        let mut kernel = Kernel::new(options);
        kernel.process.layout.stack = stack;
        // The end of its heap is unknown, so it cannot grow.
        kernel.process.layout.heap = u64::MAX;
        // The recording does not say on which processor it ran.
        let mut core = core;
        core.set_processor(kernel.machine.core.processor());
        kernel.process.space = core.memory.id();
        core.seed = kernel.machine.core.seed;
        kernel.machine = Machine::new(core);
        kernel
    }

    /// Continues a process that is blocked in a call, as if a signal had interrupted the call.
    /// Returns false if it is not blocked.
    pub fn interrupt(&mut self) -> bool {
        if !matches!(self.outcome, Some(Outcome::Blocked { .. })) {
            return false;
        }
        self.outcome = None;
        self.saved = None;
        self.process.signals.own.restart = None;
        let (process, thread) = (self.process.number, self.process.thread.number);
        self.system
            .futexes
            .retain(|waiter| !waiter.is(process, thread));
        self.process.thread.wait = None;
        self.machine
            .core
            .state
            .set_gpr(reg::RAX, Errno::EINTR.to_rax());
        true
    }

    /// A process without a program.
    pub(super) fn new(options: ProcessOptions) -> Kernel {
        let mut random = Random::new(options.seed);

        // What the program draws does not depend on what is drawn to start it.
        let mut seed = [0; 8];
        random.fill(&mut seed);

        let clock = Clock::starting(options.clock);

        // The rest of the seed goes to what the files need random bytes for.
        let files = Files::new(FilesOptions {
            root: options.root,
            allow_write: options.allow_write,
            allow_fs: options.allow_fs,
            identity: Identity::new(options.uid, options.gid),
            bytes_max: options.limits.file_bytes,
            memory: options.limits.bytes(),
            now: clock.time(),
            streams: Streams::new(
                options.stdin,
                [options.stdout, options.stderr],
                options.limits.output_bytes,
                StreamTimeout {
                    deadline: options.deadline,
                    stop: options.stream_stop,
                },
            ),
            random,
        });

        let mut memory = AddressSpace::new(options.limits.pages);
        memory.set_history_max(options.limits.history_bytes);
        let resources = resources::resources(&options.limits);

        // Before the memory moves into the machine.
        let space = memory.id();
        let mut core = Core::with_processor(memory, options.processor);
        core.seed = options.seed;

        Kernel {
            deadline: options.deadline,
            process: Process::new(PID, INIT, space, resources),
            machine: Machine::new(core),
            files,
            objects: Objects::new(),
            processes: BTreeMap::new(),
            system: System::new(
                Schedule::new(options.seed, options.schedule, options.keeps_schedule),
                resources,
            ),
            clock,
            limits: options.limits,
            observed: options.observed,
            outcome: None,
            notices: Vec::new(),
            saved: None,
        }
    }

    /// Whether the running process is observed.
    pub fn is_observed(&self) -> bool {
        self.process.observed
    }

    /// Instructions executed so far.
    pub fn executed(&self) -> u64 {
        self.machine.executed()
    }

    /// The captured standard output.
    pub fn stdout(&self) -> &[u8] {
        self.files.streams.captured(false)
    }

    /// The captured standard error.
    pub fn stderr(&self) -> &[u8] {
        self.files.streams.captured(true)
    }

    /// What it used that is not modelled.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The auxiliary vector that the running process's program got, as `/proc/self/auxv` has it.
    pub fn auxv(&self) -> &[u8] {
        &self.process.layout.auxv
    }

    /// The path of the file mapped at an address, and the offset in it.
    pub fn mapped_file(&self, address: u64) -> Option<(Vec<u8>, u64)> {
        let file = self.process.layout.file_at(address)?;
        Some((file.path.to_vec(), file.offset))
    }

    /// The content of a file as the process sees it, including what it wrote in memory. `None` also
    /// if it is larger than the machine's memory: a file with holes may have any size.
    pub fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        let resolved = self.files.find_known(path, true).ok()?;
        let most = self.limits.bytes();
        match &resolved.node {
            Node::Memory(inode) => {
                let inode = inode.borrow();
                (inode.data().size() <= most).then(|| inode.data().to_vec())
            }
            Node::Host(metadata) if metadata.is_file() && metadata.len() <= most => {
                let all = self.files.read_up_to(&resolved.path, metadata, most);
                all.ok()
            }
            _ => None,
        }
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Fails with this error because a part of a call is not modelled, and leaves a notice that the
    /// run may differ from Linux.
    pub(super) fn not_modelled<T>(&mut self, what: &'static str, errno: Errno) -> Answer<T> {
        self.notice(Notice::Part(what));
        Err(errno)
    }
}
