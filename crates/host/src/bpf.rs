//! BPF in the running kernel: loads a program and runs it once, on a packet of zeros or on page
//! faults of this thread ([`PageFaults`]). Maps are in [`KernelMap`].
//!
//! The kernel is the reference for the interpreter. Programs are GPL, and given as encoded
//! instructions. Source: `include/uapi/linux/bpf.h`, Linux 6.18.

mod event;
mod map;

pub use event::PageFaults;
pub use map::KernelMap;

use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Size of an instruction in bytes.
const INSN_SIZE: usize = 8;
/// `BPF_PROG_LOAD`.
const PROG_LOAD: libc::c_long = 5;
/// `BPF_PROG_TEST_RUN`.
const PROG_TEST_RUN: libc::c_long = 10;
/// Size of the packet in bytes; the kernel refuses fewer than 14.
const PACKET_SIZE: u32 = 64;
/// Size of the verifier's log in bytes.
const LOG_SIZE: usize = 1 << 16;

/// The type of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramType {
    /// `BPF_PROG_TYPE_SOCKET_FILTER`, which can be run.
    SocketFilter,
    /// `BPF_PROG_TYPE_PERF_EVENT`, which runs when an event fires.
    PerfEvent,
}

/// Why a program was not loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// This process lacks the permission.
    #[error("bpf() is not allowed: {0}")]
    Denied(io::Error),
    /// The verifier rejected the program.
    #[error("refused: {log}")]
    Refused {
        /// The verifier's log.
        log: String,
    },
    /// Something else went wrong.
    #[error("bpf(): {0}")]
    Other(io::Error),
}

/// A program loaded into the kernel.
#[derive(Debug)]
pub struct KernelProgram {
    fd: OwnedFd,
}

/// The first fields of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    program_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The first fields of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
struct TestRun {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes `attributes`, whose size is passed, and the buffers that
    // they point to; the callers below keep those alive and pass their sizes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

impl KernelProgram {
    /// Loads a program.
    ///
    /// # Errors
    /// If this process lacks the permission, or the verifier rejects the program.
    pub fn load(program_type: ProgramType, insns: &[[u8; INSN_SIZE]]) -> Result<Self, BpfError> {
        let mut log = vec![0u8; LOG_SIZE];
        let mut attributes = Load {
            // `enum bpf_prog_type` (`include/uapi/linux/bpf.h`).
            program_type: match program_type {
                ProgramType::SocketFilter => 1,
                ProgramType::PerfEvent => 7,
            },
            insn_count: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            // Some helpers are only for programs under the GPL.
            license: c"GPL".as_ptr() as u64,
            // With a log, the verifier says why it rejects a program.
            log_level: 1,
            log_size: LOG_SIZE as u32,
            log: log.as_mut_ptr() as u64,
            kernel_version: 0,
            flags: 0,
        };

        match bpf(PROG_LOAD, &mut attributes) {
            Ok(fd) => Ok(Self { fd: owned(fd) }),
            Err(error) => {
                // The kernel ends its log with a zero.
                let length = log.iter().position(|byte| *byte == 0).unwrap_or(0);
                let log = String::from_utf8_lossy(&log[..length]).into_owned();
                Err(match error.raw_os_error() {
                    // The verifier may return EPERM, too; without a log it never ran.
                    Some(libc::EPERM | libc::ENOSYS) if log.is_empty() => BpfError::Denied(error),
                    Some(libc::EINVAL | libc::EACCES | libc::EPERM | libc::EOPNOTSUPP) => {
                        BpfError::Refused { log }
                    }
                    _ => BpfError::Other(error),
                })
            }
        }
    }

    /// Runs a socket filter once and returns the lower half of r0.
    ///
    /// # Errors
    /// If the kernel cannot run it.
    pub fn run(&self) -> Result<u32, BpfError> {
        let packet = [0u8; PACKET_SIZE as usize];
        let mut attributes = TestRun {
            program: self.fd.as_raw_fd() as u32,
            result: 0,
            data_size_in: PACKET_SIZE,
            data_size_out: 0,
            data_in: packet.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        bpf(PROG_TEST_RUN, &mut attributes).map_err(BpfError::Other)?;
        Ok(attributes.result)
    }
}
