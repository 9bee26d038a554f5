//! `--unwinder cmd:PROGRAM`: an unwinder in any language, as a process that speaks JSON Lines.
//!
//! The protocol (`docs/own-unwinders.md`): for each stack we write one `unwind` line. The process
//! requests memory with `read` lines, reports `frame` lines, innermost first, and closes with an
//! `end` line. It runs as long as the run. A protocol error ends its chain with a reason, but never
//! the run.

mod adapter;
mod image_file;
mod reading;

pub use adapter::Adapter;

use crate::hex::{hex, hex_bytes};
use image_file::ImageFiles;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use unwind_sim_recordings::leftovers;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::printable::{Printable, printable};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::RegMask;
use unwind_sim_unwind::unwinder::{Stack, Unwinder};

/// How long we wait for the next line, and for the process to read ours.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long we wait for the end of one stack.
pub const STACK_MAX: Duration = Duration::from_secs(60);
/// How long all stacks of a run may take together.
pub const ANSWERS_MAX: Duration = Duration::from_secs(3600);

/// The limit of the time that all stacks of a run take together.
#[derive(Clone, Copy, Debug)]
pub struct AnswersLimit {
    /// The time.
    pub max: Duration,
    /// The option that raises it, where there is one.
    pub raised_by: Option<&'static str>,
}

impl Default for AnswersLimit {
    fn default() -> AnswersLimit {
        AnswersLimit {
            max: ANSWERS_MAX,
            raised_by: None,
        }
    }
}

/// The maximum number of lines in transit to and from the process.
const LINES_MAX: usize = 64;
/// How often we check whether a process that is behind has read a line.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long we wait for the rest of what an ended process wrote to standard error.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// The maximum length of a line that we read, in bytes.
const LINE_MAX: u64 = 1 << 16;
/// The maximum number of bytes in a read request.
const READ_MAX: usize = 1 << 16;
/// The maximum number of requests for one stack.
const REQUESTS_MAX: u32 = 1 << 20;

/// Why an own unwinder cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process cannot be started.
    #[error(
        "cannot start the unwinder `{}`: {source}; is the path right, and executable?{}",
        printable(command),
        if command.contains(' ') { " A path with spaces is quoted: \"cmd:'my folder/own.py'\"" } else { "" }
    )]
    Process {
        /// The command.
        command: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The adapter for an existing unwinder is not there.
    #[error("the adapter for {name} is not there: build it with `{build}`, {NEEDED}", name = .0.name, build = .0.build())]
    NotBuilt(&'static Adapter),
}

/// What the command that builds an adapter means.
const NEEDED: &str = "in a checkout of unwind-sim, where FOLDER is the folder of this program or one \
                      in PATH";

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Request<'a> {
    Unwind {
        schema: &'static str,
        registers: serde_json::Map<String, serde_json::Value>,
        first_frame: Option<String>,
        stack: Option<[String; 2]>,
        images: Vec<ImageLine<'a>>,
    },
    Memory {
        address: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The number of bytes that came before the error, and these bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        length: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        partial: Option<String>,
    },
    Image {
        index: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

#[derive(Serialize)]
struct ImageLine<'a> {
    path: &'a str,
    build_id: String,
    start: String,
    end: String,
    bias: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Answer {
    Read {
        address: Hex,
        length: usize,
    },
    Image {
        index: usize,
    },
    Frame {
        pc: Hex,
        slot: Option<Hex>,
        sp: Option<Hex>,
    },
    End {
        reason: Option<String>,
    },
}

/// An address: a string of hex digits with `0x`, or a number.
#[derive(Clone, Copy)]
struct Hex(u64);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(n) => Ok(Hex(n)),
            Either::Text(s) => u64::from_str_radix(s.trim_start_matches("0x"), 16)
                .map(Hex)
                .map_err(|_| serde::de::Error::custom(format!("`{s}` is not a hex address"))),
        }
    }
}

struct Process {
    child: Child,
    /// To the writing thread, so that a process that does not read cannot block us.
    input: SyncSender<String>,
    lines: Receiver<String>,
    /// Closed when the thread has passed on what the process wrote to standard error.
    told: Receiver<()>,
    silence_max: Duration,
    stack_max: Duration,
    answers: AnswersLimit,
    /// How long the stacks before this one took.
    spent: Duration,
    is_out_of_time: bool,
    fault: Option<String>,
    files: ImageFiles,
    /// While it runs.
    guard: Option<leftovers::Guard>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// An unwinder that is a separate process.
pub struct CommandUnwinder {
    name: String,
    process: Mutex<Process>,
}

impl CommandUnwinder {
    /// Starts `command`, which is split at spaces that are not quoted, as a POSIX shell does.
    ///
    /// # Errors
    /// If the program cannot be started, or a quote does not end.
    pub fn start(command: &str) -> Result<Self, StartError> {
        let error = |source| StartError::Process {
            command: command.to_owned(),
            source,
        };

        let words = shlex::split(command)
            .ok_or_else(|| error(std::io::Error::other("a quote or a backslash has no end")))?;
        let mut words = words.into_iter();
        let program = words
            .next()
            .ok_or_else(|| error(std::io::ErrorKind::NotFound.into()))?;

        let adapter = match Adapter::of(&program) {
            // A program of that name, such as gdb itself, does not speak our protocol.
            Some(known) => Some(known.path().ok_or(StartError::NotBuilt(known))?),
            None => adapter::path(&program),
        };

        let mut own = Command::new(adapter.unwrap_or_else(|| program.into()));
        own.args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        // In a process group of its own, so that its children end with it.
        let (mut child, guard) = leftovers::group(&mut own).map_err(error)?;

        let missing = || error(std::io::ErrorKind::BrokenPipe.into());
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;

        // Threads read and write the pipes: a full or empty pipe would block us beyond any time
        // limit.
        let process = Process {
            child,
            input: writer(input),
            lines: reader(output),
            told: messages(errors),
            silence_max: SILENCE_MAX,
            stack_max: STACK_MAX,
            answers: AnswersLimit::default(),
            spent: Duration::ZERO,
            is_out_of_time: false,
            guard: Some(guard),
            fault: None,
            files: ImageFiles::default(),
        };

        Ok(CommandUnwinder {
            name: format!("cmd:{command}"),
            process: Mutex::new(process),
        })
    }

    /// Sets how long to wait for the process, instead of [`SILENCE_MAX`].
    #[must_use]
    pub fn with_silence_max(self, silence_max: Duration) -> Self {
        self.process().silence_max = silence_max;
        self
    }

    /// Sets how long one stack may take, instead of [`STACK_MAX`].
    #[must_use]
    pub fn with_stack_max(self, stack_max: Duration) -> Self {
        self.process().stack_max = stack_max;
        self
    }

    /// Sets how long all stacks may take together, instead of [`ANSWERS_MAX`].
    #[must_use]
    pub fn with_answers_limit(self, answers: AnswersLimit) -> Self {
        self.process().answers = answers;
        self
    }

    /// What the process did wrong, if anything. It was then killed and is not used again.
    pub fn fault(&self) -> Option<String> {
        self.process().fault.clone()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        match self.process.lock() {
            Ok(process) => process,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// Starts a thread that writes lines to the process and ends with it.
fn writer(mut input: ChildStdin) -> SyncSender<String> {
    let (send, lines) = sync_channel::<String>(LINES_MAX);
    std::thread::spawn(move || {
        for line in lines {
            let written = input.write_all(line.as_bytes());
            if written.and_then(|()| input.flush()).is_err() {
                return;
            }
        }
    });
    send
}

/// Starts a thread that reads the process's lines and ends with it.
fn reader(output: ChildStdout) -> Receiver<String> {
    let (send, lines) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        loop {
            let mut line = String::new();
            let read = reader.by_ref().take(LINE_MAX).read_line(&mut line);
            if !matches!(read, Ok(n) if n > 0) || send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Starts a thread that passes on what the process writes to standard error, line by line and
/// printable, and ends with it.
fn messages(errors: ChildStderr) -> Receiver<()> {
    let (ended, told) = sync_channel(0);
    std::thread::spawn(move || {
        // Dropped at the end, which closes the channel.
        let _ended: SyncSender<()> = ended;
        let mut reader = BufReader::new(errors);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            if !matches!(read, Ok(n) if n > 0) {
                return;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            // Tables and listings are aligned with tabs.
            let parts = text.split(|&byte| byte == b'\t');
            let parts: Vec<String> = parts.map(|part| Printable::new(part).to_string()).collect();
            let text = parts.join("\t") + "\n";
            // Where nobody reads, there is nothing to tell.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    });
    told
}

impl Process {
    fn send(&mut self, request: &Request<'_>) -> Result<(), String> {
        let mut line = serde_json::to_string(request).map_err(|e| e.to_string())?;
        line.push('\n');
        let since = Instant::now();
        loop {
            line = match self.input.try_send(line) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err("it stopped reading".into()),
                Err(TrySendError::Full(line)) => line,
            };
            if since.elapsed() >= self.silence_max {
                let seconds = self.silence_max.as_secs_f32();
                return Err(format!("it read nothing for {seconds} s"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// How long the rest of the answers may take, if this one began at `since`.
    fn left(&self, since: Instant) -> Duration {
        let spent = self.spent.saturating_add(since.elapsed());
        self.answers.max.saturating_sub(spent)
    }

    /// Notes that the time for all answers is over, and says so.
    fn out_of_time(&mut self) -> String {
        self.is_out_of_time = true;
        let seconds = self.answers.max.as_secs_f32();
        let raised_by = self.answers.raised_by;
        let option = raised_by.map(|option| format!(", which {option} raises"));
        format!(
            "its answers took {seconds} s in all, the limit{}; stacks without its answer are not \
             judged",
            option.unwrap_or_default()
        )
    }

    fn receive(&mut self, since: Instant) -> Result<Answer, String> {
        let left = self.left(since);
        let line = match self.lines.recv_timeout(self.silence_max.min(left)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if left <= self.silence_max => {
                return Err(self.out_of_time());
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = self.silence_max.as_secs_f32();
                return Err(format!("it sent nothing for {seconds} s"));
            }
            Err(RecvTimeoutError::Disconnected) => return Err("it exited".into()),
        };
        serde_json::from_str(&line).map_err(|e| {
            let error = e.to_string();
            format!("`{}`: {}", printable(&shown(&line)), printable(&error))
        })
    }

    /// Kills the process, and those that it has started.
    fn end(&mut self) {
        // Once: later, the number may be that of another group.
        if self.guard.take().is_some() {
            leftovers::end_group(self.child.id());
            let _ = self.child.kill();
            let _ = self.child.wait();
            // Its last words say why it ended. A process outside its group may keep the pipe open.
            let _ = self.told.recv_timeout(LAST_WORDS_MAX);
        }
    }

    fn unwind(&mut self, stack: &Stack<'_>, chain: &mut Chain) -> Result<(), String> {
        let since = Instant::now();
        let answered = self.answer(stack, chain, since);
        self.spent = self.spent.saturating_add(since.elapsed());
        answered
    }

    fn answer(
        &mut self,
        stack: &Stack<'_>,
        chain: &mut Chain,
        since: Instant,
    ) -> Result<(), String> {
        if self.left(since).is_zero() {
            return Err(self.out_of_time());
        }

        self.send(&unwind_request(stack))?;

        // The bounds protect from an unwinder that asks without end, or waits between requests.
        for _ in 0..REQUESTS_MAX {
            if since.elapsed() >= self.stack_max {
                let seconds = self.stack_max.as_secs_f32();
                return Err(format!("it did not end a stack in {seconds} s"));
            }
            if self.left(since).is_zero() {
                return Err(self.out_of_time());
            }

            match self.receive(since)? {
                Answer::Read {
                    address: Hex(at),
                    length,
                } => {
                    // The length is the process's own, and must not decide how much memory we
                    // allocate.
                    let (bytes, error) = reading::read(stack, at, length.min(READ_MAX));
                    let is_whole = error.is_none();
                    let is_partial = !is_whole && !bytes.is_empty();
                    self.send(&Request::Memory {
                        address: hex(at),
                        bytes: is_whole.then(|| hex_bytes(&bytes)),
                        error: error.map(|e| e.to_string()),
                        length: is_partial.then_some(bytes.len()),
                        partial: is_partial.then(|| hex_bytes(&bytes)),
                    })?;
                }
                Answer::Image { index } => {
                    let (path, error) = match self.files.path(stack, index) {
                        Ok(path) => (Some(path), None),
                        Err(error) => (None, Some(error)),
                    };
                    self.send(&Request::Image { index, path, error })?;
                }
                Answer::Frame {
                    pc: Hex(pc),
                    slot,
                    sp,
                } => {
                    if chain.frames.len() >= stack.limits.frames_max as usize {
                        let limit = stack.limits.frames_max;
                        chain.end = Reason::FrameLimit { limit }.into();
                        return Err("more frames than the limit".into());
                    }
                    // With real registers, the first pc is that of the sample; fake ones start at a
                    // return address.
                    let first = chain.frames.is_empty() && stack.start.first_frame.is_none();
                    let pc = if first {
                        CodeAddress::Instruction(pc)
                    } else {
                        CodeAddress::Return(pc)
                    };
                    let slot = slot.map(|Hex(a)| a);
                    // `ret` pops the return address: without `sp`, the caller's rsp is right above
                    // the slot.
                    let sp = sp.map_or(slot.map_or(0, |s| s.wrapping_add(8)), |Hex(a)| a);
                    chain.frames.push(Frame {
                        pc,
                        sp,
                        slot,
                        found: FoundBy::External,
                    });
                }
                Answer::End { reason } => {
                    let code = reason.as_deref().and_then(Code::from_name);
                    let root = code.is_some_and(|c| c == Code::RootReached);
                    let end = if root {
                        Reason::RootReached
                    } else {
                        Reason::NotAtRoot
                    };
                    chain.end = end.into();
                    // An unwinder that gives no reason does not mark roots.
                    chain.end.marks_roots = code.is_some();
                    return Ok(());
                }
            }
        }
        Err("too many requests".into())
    }
}

/// The start of a line, for a message.
fn shown(line: &str) -> String {
    const SHOWN_MAX: usize = 120;
    let line = line.trim_end();
    let begin: String = line.chars().take(SHOWN_MAX).collect();
    if begin.len() < line.len() {
        format!("{begin}..")
    } else {
        begin
    }
}

fn unwind_request<'a>(stack: &Stack<'a>) -> Request<'a> {
    let regs = &stack.start.regs;

    // A register that is not known is left out: a zero would look like a value.
    let registers = regs
        .known()
        .iter()
        .map(|r| (r.as_str().into(), hex(regs.get_or_zero(r)).into()));

    // Also mappings without an image: an unwinder has to know that there is code.
    let images = stack.space.mappings().iter().map(|m| ImageLine {
        path: &m.name,
        build_id: m
            .image
            .as_ref()
            .map(|i| hex_bytes(i.build_id()))
            .unwrap_or_default(),
        start: hex(m.range.start),
        end: hex(m.range.end),
        bias: hex(m.bias),
    });

    Request::Unwind {
        schema: crate::SCHEMA,
        registers: registers.collect(),
        first_frame: stack.start.first_frame.map(hex),
        stack: stack
            .memory
            .stack_bounds(regs.rsp())
            .map(|r| [hex(r.start), hex(r.end)]),
        images: images.collect(),
    }
}

impl Unwinder for CommandUnwinder {
    fn name(&self) -> &str {
        &self.name
    }

    fn carries(&self) -> RegMask {
        RegMask::CALLEE_SAVED
    }

    fn is_out_of_time(&self) -> bool {
        self.process().is_out_of_time
    }

    fn walk(&self, stack: &Stack<'_>, _: &mut Cache) -> Chain {
        let mut chain = Chain::default();
        let mut process = self.process();
        if process.fault.is_some() {
            return chain;
        }
        if let Err(what) = process.unwind(stack, &mut chain) {
            // After a protocol error its lines can no longer be interpreted.
            let name = printable(&self.name);
            let _ = writeln!(std::io::stderr(), "{name}: {what}; it is not used again");
            process.fault = Some(what);
            process.end();
        }
        chain
    }
}
