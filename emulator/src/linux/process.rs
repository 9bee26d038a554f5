//! The process: its machine and the kernel's state of it. Not here: running it (`run`).

use super::clock::Clock;
use super::errno::{Answer, Errno};
use super::files::{Files, FilesOptions, Node};
use super::history::{KernelState, Programs};
use super::identity::{Identity, Settings};
use super::layout::Layout;
use super::observer::Event;
use super::options::{Limits, ProcessOptions};
use super::outcome::{Notice, Outcome};
use super::random::Random;
use super::resources::{self, RESOURCES};
use super::signals::Signals;
use super::streams::{Patience, Streams};
use crate::address_space::AddressSpace;
use crate::machine::Machine;
use crate::state::{State, reg};
use std::rc::Rc;

/// Maximum number of different notices.
const NOTICES_MAX: usize = 1000;

/// One process with one thread.
#[derive(Debug)]
pub struct Process {
    /// Registers, memory and decoded code.
    pub machine: Machine,
    pub(super) files: Files,
    pub(super) layout: Layout,
    pub(super) signals: Signals,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// Soft and hard limits, by resource.
    pub(super) resources: [[u64; 2]; RESOURCES],
    pub(super) args: Rc<Vec<Vec<u8>>>,
    pub(super) env: Rc<Vec<Vec<u8>>>,
    pub(super) settings: Settings,
    /// The name of the thread, at most 15 bytes.
    pub(super) name: Vec<u8>,
    /// Instructions executed by programs before the last `execve`.
    pub(super) executed_before: u64,
    pub(super) events: Vec<Event>,
    pub(super) outcome: Option<Outcome>,
    pub(super) notices: Vec<Notice>,
    /// A copy of everything except the machine, if nothing has changed since it was made.
    pub(super) saved: Option<Rc<KernelState>>,
    pub(super) programs: Programs,
}

impl Process {
    /// A process that continues from `state`, which was not started here, such as the state in a
    /// core. Its open files are the standard streams of the options; it sees the names below the
    /// root.
    pub fn resume(state: State, options: ProcessOptions) -> Process {
        let stack = state.memory.area(state.gpr(reg::RSP));
        let stack = stack.map(|(range, _)| range).unwrap_or_default();
        let mut process = Process::new(options);
        process.layout.stack = stack;
        // The end of its heap is unknown, so it cannot grow.
        process.layout.heap = u64::MAX;
        // The recording does not say on which processor it ran.
        let mut state = state;
        state.set_processor(process.machine.state.processor());
        process.machine = Machine::new(state);
        process
    }

    /// Continues a process that is blocked in a call, as if a signal had interrupted the call.
    /// Returns false if it is not blocked.
    pub fn interrupt(&mut self) -> bool {
        if !matches!(self.outcome, Some(Outcome::Blocked { .. })) {
            return false;
        }
        self.outcome = None;
        self.saved = None;
        self.signals.restart = None;
        self.machine.state.set_gpr(reg::RAX, Errno::EINTR.to_rax());
        true
    }

    /// A process without a program.
    pub(super) fn new(options: ProcessOptions) -> Process {
        let mut random = Random::new(options.seed);
        // What the program draws does not depend on what is drawn to start it.
        let mut seed = [0; 8];
        random.fill(&mut seed);
        let clock = Clock::default();
        let files = Files::new(FilesOptions {
            root: options.root,
            allow_write: options.allow_write,
            identity: Identity::new(options.uid, options.gid),
            bytes_max: options.limits.file_bytes,
            now: clock.time(),
            streams: Streams::new(
                options.stdin,
                [options.stdout, options.stderr],
                options.limits.output_bytes,
                Patience {
                    deadline: options.stream_deadline,
                    stop: options.stream_stop,
                },
            ),
            random,
        });
        Process {
            machine: Machine::new(State::with_processor(
                AddressSpace::default(),
                options.processor,
            )),
            files,
            layout: Layout::default(),
            signals: Signals::default(),
            clock,
            limits: options.limits,
            resources: resources::resources(&options.limits),
            args: Rc::default(),
            env: Rc::default(),
            settings: Settings::default(),
            name: Vec::new(),
            executed_before: 0,
            events: Vec::new(),
            outcome: None,
            notices: Vec::new(),
            saved: None,
            programs: Programs::default(),
        }
    }

    /// Instructions executed so far.
    pub fn executed(&self) -> u64 {
        self.executed_before + self.machine.executed()
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

    /// The path of the file mapped at an address, and the offset in it.
    pub fn mapped_file(&self, address: u64) -> Option<(Vec<u8>, u64)> {
        let file = self.layout.file_at(address)?;
        Some((file.path.to_vec(), file.offset))
    }

    /// The content of a file as the process sees it, including what it wrote in memory.
    pub fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        let resolved = self.files.find(b"/", path, true).ok()?;
        match &resolved.node {
            Node::Memory(inode) => Some(inode.borrow().data().to_vec()),
            Node::Host(metadata) if metadata.is_file() => {
                self.files.read_whole(&resolved.path).ok()
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

    /// Ends the run: the process waits for something that cannot happen.
    pub(super) fn blocked(&mut self, call: &'static str) -> Errno {
        let rip = self.machine.state.rip;
        self.outcome = Some(Outcome::Blocked { rip, call });
        Errno::ERESTARTNOHAND
    }
}
