//! A program that runs at every page fault of this thread: an event that a test can trigger where
//! it wants, in user mode or inside a system call.

use super::{BpfError, KernelProgram, owned};
use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `PERF_TYPE_SOFTWARE`.
const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_PAGE_FAULTS`.
const COUNT_SW_PAGE_FAULTS: u64 = 2;
/// `PERF_ATTR_SIZE_VER1`, which every kernel since 2.6.32 accepts.
const ATTR_SIZE: usize = 72;
/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_SET_BPF`.
const IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

/// The first fields of `struct perf_event_attr`. No flag is set, so the event counts at once and in
/// both modes.
#[repr(C)]
struct Attributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    rest: [u64; 6],
}

/// A page fault event on the thread that created it, with its program; closed when dropped.
#[derive(Debug)]
pub struct PageFaults {
    _fd: OwnedFd,
}

impl PageFaults {
    /// Runs `program` at every page fault from now on.
    ///
    /// # Errors
    /// If this process may not open the event, or the kernel rejects the program.
    pub fn attach(program: &KernelProgram) -> Result<Self, BpfError> {
        const { assert!(size_of::<Attributes>() == ATTR_SIZE) }
        let attributes = Attributes {
            event_type: TYPE_SOFTWARE,
            size: ATTR_SIZE as u32,
            config: COUNT_SW_PAGE_FAULTS,
            sample_period: 1,
            rest: [0; 6],
        };

        // perf_event_open(2): 0 is the calling thread, and -1 any processor.
        let (this_thread, any_cpu, no_group) = (0, -1, -1);
        // SAFETY: the kernel only reads `attributes`, which outlive the call and hold their own
        // size.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(&attributes),
                this_thread,
                any_cpu,
                no_group,
                FLAG_FD_CLOEXEC,
            )
        };
        if fd == -1 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                // Forbidden, for example by `perf_event_paranoid`, or not in this kernel.
                Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => BpfError::Denied(error),
                _ => BpfError::Other(error),
            });
        }

        let event = owned(fd);
        // SAFETY: both descriptors are open; the argument is a number, not a pointer.
        let set = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_BPF, program.fd.as_raw_fd()) };

        match set {
            -1 => Err(BpfError::Other(io::Error::last_os_error())),
            _ => Ok(Self { _fd: event }),
        }
    }
}
