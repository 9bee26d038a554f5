//! How a process is started.

use super::clock::START;
use super::files::FileSystem;
use super::streams::{Input, Output};
use super::turns::Turn;
use crate::address_space;
use crate::processor::Processor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How a process is started, and its limits.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The arguments, starting with the program's name.
    pub args: Vec<Vec<u8>>,
    /// The environment, `NAME=VALUE`.
    pub env: Vec<Vec<u8>>,
    /// The directory of the host that the process sees as `/`.
    pub root: PathBuf,
    /// The working directory, below the root.
    pub cwd: Vec<u8>,
    /// Whether it may change files of the host. Otherwise its writes are kept in memory.
    pub allow_write: bool,
    /// File systems of the host that it may see although another program or machine is behind them,
    /// or nobody knows what. It always sees those that the root and the program are on.
    pub allow_fs: Vec<FileSystem>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The time of day at the start, seconds since 1970.
    pub clock: i64,
    /// The turns of the threads; afterwards, or without, the seed decides.
    pub schedule: Option<Arc<[Turn]>>,
    /// Whether to keep the turns for [`super::Kernel::followed`].
    pub keeps_schedule: bool,
    /// The processes whose instructions are reported; others run at full speed.
    pub observed: ObservedProcesses,
    /// User number. Files of the user who runs the emulator belong to it.
    pub uid: u32,
    /// Group number; the same applies to files.
    pub gid: u32,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// When [`super::Kernel::run`] returns and nothing more waits for the streams of this process
    /// ([`Input::Inherit`], [`Output::Inherit`]); `None` to go on and wait as long as necessary.
    pub deadline: Option<Instant>,
    /// Ends the waiting on streams of this process when it becomes true.
    pub stream_stop: Option<&'static AtomicBool>,
    /// Limits of the process.
    pub limits: Limits,
    /// The processor that executes it.
    pub processor: Processor,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        ProcessOptions {
            args: Vec::new(),
            env: Vec::new(),
            root: PathBuf::from("/"),
            cwd: b"/".to_vec(),
            allow_write: false,
            allow_fs: Vec::new(),
            seed: 0,
            clock: START,
            schedule: None,
            keeps_schedule: false,
            observed: ObservedProcesses::All,
            uid: 1000,
            gid: 1000,
            stdin: Input::Bytes(Vec::new()),
            stdout: Output::Capture,
            stderr: Output::Capture,
            deadline: None,
            stream_stop: None,
            limits: Limits::default(),
            processor: Processor::default(),
        }
    }
}

/// The processes whose instructions, system calls and signals are reported to the observer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ObservedProcesses {
    /// All of them.
    #[default]
    All,
    /// The one with which the run begins.
    First,
    /// Those that run a program with one of these file names, as it was called or after symbolic
    /// links.
    Programs(Vec<Vec<u8>>),
}

impl ObservedProcesses {
    /// Whether a process that runs a program, known by these paths, is observed, if it `was` before.
    pub(super) fn after_exec(&self, was: bool, paths: [&[u8]; 2]) -> bool {
        match self {
            ObservedProcesses::All => true,
            ObservedProcesses::First => was,
            ObservedProcesses::Programs(names) => paths.iter().any(|path| {
                let name = path.rsplit(|&byte| byte == b'/').next();
                names.iter().any(|wanted| Some(&wanted[..]) == name)
            }),
        }
    }

    /// Whether a child is observed whose parent is, or is not.
    pub(super) fn after_fork(&self, parent: bool) -> bool {
        parent && *self != ObservedProcesses::First
    }
}

/// Limits of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Pages in use at the same time.
    pub pages: usize,
    /// Bytes kept for snapshots of its memory: see
    /// [`AddressSpace::set_history_max`](crate::AddressSpace::set_history_max).
    pub history_bytes: usize,
    /// Stack size, bytes.
    pub stack_bytes: u64,
    /// Bytes of all files kept in memory.
    pub file_bytes: u64,
    /// Bytes captured of each of its outputs.
    pub output_bytes: usize,
    /// Threads and processes, including those that have ended and were not waited for.
    pub tasks: usize,
    /// Objects besides files that descriptors refer to: pipe ends, sockets, timers, `epoll`. Also
    /// the number of POSIX timers and queued signals, which are counted apart from these.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            pages: address_space::PAGES_MAX,
            history_bytes: address_space::HISTORY_BYTES_MAX,
            stack_bytes: 8 << 20,
            file_bytes: 1 << 30,
            output_bytes: 256 << 20,
            tasks: 4096,
            objects: 16384,
        }
    }
}
