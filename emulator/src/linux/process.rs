//! The process: runs its machine, and does what the kernel does between.

use super::clock::Clock;
use super::errno::Errno;
use super::exec::{StartError, StartErrorKind};
use super::files::{Files, FilesOptions};
use super::identity::{Identity, Settings};
use super::layout::Layout;
use super::observer::{Event, ProcessObserver, SystemCall};
use super::options::{Limits, Options};
use super::outcome::{Notice, Outcome};
use super::random::Random;
use super::signals::Signals;
use super::snapshot::{Kernel, Programs};
use super::streams::{Patience, Streams};
use super::{calls, numbers};
use crate::address_space::AddressSpace;
use crate::machine::{Exit, Machine};
use crate::state::{State, reg};
use crate::stop::{Call, Exception};
use std::rc::Rc;

/// Different notices that are kept.
const NOTICES_MAX: usize = 1000;
/// The longest instruction, bytes.
const INSN_MAX: usize = 15;

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
    pub(super) resources: [[u64; 2]; calls::RESOURCES],
    pub(super) args: Rc<Vec<Vec<u8>>>,
    pub(super) env: Rc<Vec<Vec<u8>>>,
    pub(super) settings: Settings,
    /// The thread's, at most 15 bytes.
    pub(super) name: Vec<u8>,
    /// Instructions of programs before the last `execve`.
    pub(super) executed_before: u64,
    pub(super) events: Vec<Event>,
    pub(super) outcome: Option<Outcome>,
    pub(super) notices: Vec<Notice>,
    /// A copy of all but the machine, if nothing of it has changed since it was made.
    pub(super) saved: Option<Rc<Kernel>>,
    pub(super) programs: Programs,
}

impl Process {
    /// Starts the program at a path below the root; it may be a script.
    ///
    /// # Errors
    /// If it, its interpreter or the working directory cannot be used.
    pub fn start(path: &[u8], options: Options) -> Result<Process, StartError> {
        let (cwd, args, env) = (
            options.cwd.clone(),
            options.args.clone(),
            options.env.clone(),
        );
        let mut process = Process::new(options);
        let place = process.files.find(b"/", &cwd, true);
        let place = place.ok().filter(|place| place.node.is_directory());
        process.files.cwd = match place {
            Some(place) => place.path,
            None => {
                return Err(StartError {
                    path: cwd,
                    what: StartErrorKind::Directory,
                });
            }
        };
        process.exec(path, args, env)?;
        Ok(process)
    }

    /// A process that goes on from `state`, which was not started here: what a core holds. Of
    /// files it has the standard streams of the options, of names what lies below the root.
    pub fn resume(state: State, options: Options) -> Process {
        let stack = state.memory.area(state.gpr(reg::RSP));
        let stack = stack.map(|(range, _)| range).unwrap_or_default();
        let mut process = Process::new(options);
        process.layout.stack = stack;
        // Nobody knows where its heap ends: it cannot grow.
        process.layout.heap = u64::MAX;
        // The recording does not say what executed it.
        let mut state = state;
        state.set_processor(process.machine.state.processor());
        process.machine = Machine::new(state);
        process
    }

    /// Has a process whose last call waits for what nobody will do go on, as if a signal had
    /// interrupted the call. False if that is not why it ended.
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

    /// Without a program.
    fn new(options: Options) -> Process {
        let mut random = Random::new(options.seed);
        // What the program draws does not depend on what starting it needs.
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
            resources: calls::resources(&options.limits),
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

    /// Runs at most so many instructions.
    pub fn run<O: ProcessObserver>(&mut self, instructions_max: u64, observer: &mut O) -> Outcome {
        self.tell(observer);
        let end = self.executed().saturating_add(instructions_max);
        while self.outcome.is_none() {
            let left = end.saturating_sub(self.executed());
            if left == 0 {
                return Outcome::Limit;
            }
            self.advance(left, observer);
        }
        self.outcome.clone().unwrap_or(Outcome::Limit)
    }

    /// Executes one instruction, with what the kernel does about it. If it raises an exception,
    /// that is all, and the first instruction of the signal's handler is the next one.
    pub fn step<O: ProcessObserver>(&mut self, observer: &mut O) -> Outcome {
        self.tell(observer);
        if self.outcome.is_none() {
            self.advance(1, observer);
        }
        self.outcome.clone().unwrap_or(Outcome::Limit)
    }

    /// Runs at most so many instructions, but only until the kernel is needed.
    fn advance<O: ProcessObserver>(&mut self, instructions_max: u64, observer: &mut O) {
        let timer = self.clock.until_timer().unwrap_or(u64::MAX);
        let exit = self.machine.run(timer.min(instructions_max), observer);
        self.clock.set(self.executed());
        if exit != Exit::Limit || self.clock.until_timer() == Some(0) {
            // What the kernel knows changes now.
            self.saved = None;
        }
        match exit {
            Exit::Limit => {}
            Exit::Kernel(Call::Syscall) => self.system_call(observer),
            // 32-bit calls of a 64-bit program.
            Exit::Kernel(Call::Int80) => self.unsupported(2),
            Exit::Exception(exception) => {
                observer.exception(exception, &self.machine.state);
                self.exception(exception);
            }
            Exit::Halt => {
                self.machine.state.rip = self.machine.state.rip.wrapping_sub(1);
                let exception = Exception::GeneralProtection;
                observer.exception(exception, &self.machine.state);
                self.exception(exception);
            }
            Exit::Unsupported => self.unsupported(0),
        }
        self.expire_timers();
        self.deliver_signals(observer);
        if let Some(outcome) = &self.outcome {
            observer.ended(outcome);
        }
    }

    /// Instructions executed so far.
    pub fn executed(&self) -> u64 {
        self.executed_before + self.machine.executed()
    }

    /// What it wrote to standard output, if that is captured.
    pub fn stdout(&self) -> &[u8] {
        self.files.streams.captured(false)
    }

    /// What it wrote to standard error, if that is captured.
    pub fn stderr(&self) -> &[u8] {
        self.files.streams.captured(true)
    }

    /// What it asked for that is not modelled.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The file that is mapped at an address, and where in it that is.
    pub fn mapped_file(&self, address: u64) -> Option<(Vec<u8>, u64)> {
        let file = self.layout.file_at(address)?;
        Some((file.path.to_vec(), file.offset))
    }

    /// A file as the process sees it, if there is one: what it wrote, if it may not write to the
    /// host.
    pub fn file(&self, path: &[u8]) -> Option<Vec<u8>> {
        use super::files::Node;
        let place = self.files.find(b"/", path, true).ok()?;
        match &place.node {
            Node::Memory(inode) => Some(inode.borrow().data().to_vec()),
            Node::Host(metadata) if metadata.is_file() => self.files.read_whole(&place.path).ok(),
            _ => None,
        }
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    fn tell<O: ProcessObserver>(&mut self, observer: &mut O) {
        if !self.events.is_empty() {
            self.saved = None;
        }
        for event in self.events.drain(..) {
            event.tell(&self.machine.state, observer);
        }
    }

    /// Ends because of the instruction `back` bytes before the next one.
    fn unsupported(&mut self, back: u64) {
        let state = &self.machine.state;
        let rip = state.rip.wrapping_sub(back);
        let byte = |at: u64| {
            let mut byte = [0];
            let fetched = state.memory.fetch(rip.wrapping_add(at), &mut byte);
            fetched.ok().map(|()| byte[0])
        };
        let bytes = (0..INSN_MAX as u64).map_while(byte).collect();
        self.outcome = Some(Outcome::Unsupported { rip, bytes });
    }

    fn system_call<O: ProcessObserver>(&mut self, observer: &mut O) {
        let state = &self.machine.state;
        let arg = |register| state.gpr(register);
        let number = arg(reg::RAX);
        let args = [reg::RDI, reg::RSI, reg::RDX, 10, 8, 9].map(arg);
        let before = state.cpu_at(state.rip);
        self.files.now = self.clock.time();
        self.signals.restart = None;
        let result = match self.answer(number, args) {
            Ok(value) => value,
            Err(errno @ (Errno::ERESTARTSYS | Errno::ERESTARTNOHAND)) => {
                self.signals.restart = Some((number, errno));
                Errno::EINTR.to_rax()
            }
            Err(errno) => errno.to_rax(),
        };
        if self.files.streams.take_late() {
            self.outcome = Some(Outcome::StreamTimeout {
                rip: self.machine.state.rip,
                call: numbers::name(number).unwrap_or(""),
            });
        }
        let replaced = matches!(number, numbers::execve | numbers::execveat) && result == 0;
        if !replaced {
            self.machine.state.set_gpr(reg::RAX, result);
        }
        self.tell(observer);
        let call = SystemCall {
            number,
            name: numbers::name(number).unwrap_or(""),
            args,
            result,
            returns: self.outcome.is_none() && !self.signals.kill_next(),
            before,
        };
        observer.system_call(&call, &self.machine.state);
    }
}
