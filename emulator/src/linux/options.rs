//! How a process is started.

use super::streams::{Input, Output};
use crate::address_space;
use crate::processor::Processor;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How a process is started, and what it may use.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// Its arguments, the program's name first.
    pub args: Vec<Vec<u8>>,
    /// Its environment, `NAME=VALUE`.
    pub env: Vec<Vec<u8>>,
    /// The directory of the host that it sees as `/`.
    pub root: PathBuf,
    /// Its working directory, below the root.
    pub cwd: Vec<u8>,
    /// May it change files of the host? Else what it writes is kept in memory.
    pub allow_write: bool,
    /// Decides all random numbers.
    pub seed: u64,
    /// User. The host's files of the user who runs this are this one's files.
    pub uid: u32,
    /// Group, with the same for files.
    pub gid: u32,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Until when it waits for streams of this process ([`Input::Inherit`], [`Output::Inherit`]);
    /// `None` for as long as it takes.
    pub stream_deadline: Option<Instant>,
    /// When this becomes true it waits for streams of this process no longer.
    pub stream_stop: Option<&'static AtomicBool>,
    /// What it may use.
    pub limits: Limits,
    /// What executes it.
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
            seed: 0,
            uid: 1000,
            gid: 1000,
            stdin: Input::Bytes(Vec::new()),
            stdout: Output::Capture,
            stderr: Output::Capture,
            stream_deadline: None,
            stream_stop: None,
            limits: Limits::default(),
            processor: Processor::default(),
        }
    }
}

/// What a process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Pages in use at the same time.
    pub pages: usize,
    /// Bytes that are kept for snapshots of its memory: see [`AddressSpace::set_history_max`](crate::AddressSpace::set_history_max).
    pub history_bytes: usize,
    /// Bytes of its stack.
    pub stack_bytes: u64,
    /// Bytes of all files that are kept in memory.
    pub file_bytes: u64,
    /// Bytes that are captured of each of its outputs.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            pages: address_space::PAGES_MAX,
            history_bytes: address_space::HISTORY_BYTES_MAX,
            stack_bytes: 8 << 20,
            file_bytes: 1 << 30,
            output_bytes: 256 << 20,
        }
    }
}
