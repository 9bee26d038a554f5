//! The ptrace requests that we use, and `wait4` (ptrace(2), wait(2)); each fails with the error of its call. Those of nix lack PTRACE_LISTEN, and its wait
//! statuses cannot represent real-time signals.

use crate::error::TraceError;
use nix::libc;
use std::io;
use std::ptr;

/// The general registers of a thread (`struct user_regs_struct`).
pub type Registers = libc::user_regs_struct;

/// A request as the C library declares it: unsigned with glibc, signed with musl.
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;
/// A request as the C library declares it.
#[cfg(target_env = "musl")]
type Request = libc::c_int;

/// From Linux `include/uapi/linux/ptrace.h`; libc does not define them for musl.
const PTRACE_GET_SYSCALL_INFO: Request = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
/// From Linux `arch/x86/include/uapi/asm/ptrace-abi.h`; libc does not define it on every target.
const PTRACE_SYSEMU_SINGLESTEP: Request = 32;

/// How to resume a stopped thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// One instruction.
    Step,
    /// One instruction, or to a system call, which is suppressed.
    StepWithoutSyscall,
    /// To the next event.
    Run,
    /// To the next event or system call.
    RunToSyscall,
}

impl Resume {
    const fn request(self) -> Request {
        match self {
            Resume::Step => libc::PTRACE_SINGLESTEP,
            Resume::StepWithoutSyscall => PTRACE_SYSEMU_SINGLESTEP,
            Resume::Run => libc::PTRACE_CONT,
            Resume::RunToSyscall => libc::PTRACE_SYSCALL,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Resume::Step => "PTRACE_SINGLESTEP",
            Resume::StepWithoutSyscall => "PTRACE_SYSEMU_SINGLESTEP",
            Resume::Run => "PTRACE_CONT",
            Resume::RunToSyscall => "PTRACE_SYSCALL",
        }
    }
}

/// A request whose `data` is a number.
fn request(
    what: Request,
    name: &'static str,
    tid: i32,
    address: u64,
    data: u64,
) -> Result<(), TraceError> {
    // SAFETY: none of the requests made through this function writes to our memory: `address` is
    // one of the tracee's or 0, and `data` is a number.
    let result = unsafe {
        libc::ptrace(
            what,
            tid,
            address as *mut libc::c_void,
            data as *mut libc::c_void,
        )
    };
    if result == -1 {
        return Err(TraceError::last(name, tid));
    }
    Ok(())
}

/// Report new threads, children and exec.
pub const OPTIONS: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD;

/// Starts to trace a thread, with these `PTRACE_O_` options.
pub fn seize(tid: i32, options: i32) -> Result<(), TraceError> {
    request(
        libc::PTRACE_SEIZE,
        "PTRACE_SEIZE",
        tid,
        0,
        options as u32 as u64,
    )
}

/// Lets a stopped thread go on, and delivers `signal` unless it is 0.
pub fn resume(tid: i32, how: Resume, signal: i32) -> Result<(), TraceError> {
    request(how.request(), how.name(), tid, 0, signal as u64)
}

/// Keeps the thread in its group stop.
pub fn listen(tid: i32) -> Result<(), TraceError> {
    request(libc::PTRACE_LISTEN, "PTRACE_LISTEN", tid, 0, 0)
}

/// Stops a running thread.
pub fn interrupt(tid: i32) -> Result<(), TraceError> {
    request(libc::PTRACE_INTERRUPT, "PTRACE_INTERRUPT", tid, 0, 0)
}

/// Ends tracing, and delivers `signal` unless it is 0.
pub fn detach(tid: i32, signal: i32) -> Result<(), TraceError> {
    request(libc::PTRACE_DETACH, "PTRACE_DETACH", tid, 0, signal as u64)
}

/// Writes a word, even where the program itself may not write.
pub fn poke(tid: i32, address: u64, word: u64) -> Result<(), TraceError> {
    request(libc::PTRACE_POKEDATA, "PTRACE_POKEDATA", tid, address, word)
}

/// The general registers of a stopped thread.
pub fn registers(tid: i32) -> Result<Registers, TraceError> {
    let mut regs = std::mem::MaybeUninit::<Registers>::uninit();
    // SAFETY: PTRACE_GETREGS writes one user_regs_struct to `data`, which is as large.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGS,
            tid,
            ptr::null_mut::<libc::c_void>(),
            regs.as_mut_ptr(),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_GETREGS", tid));
    }
    // SAFETY: the request succeeded, so every field was written.
    Ok(unsafe { regs.assume_init() })
}

/// Sets the general registers of a stopped thread.
pub fn set_registers(tid: i32, regs: &Registers) -> Result<(), TraceError> {
    // SAFETY: PTRACE_SETREGS reads one user_regs_struct from `data`.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGS,
            tid,
            ptr::null_mut::<libc::c_void>(),
            ptr::from_ref(regs),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_SETREGS", tid));
    }
    Ok(())
}

/// Reads the start of the XSAVE area, in the standard format, as much as fits. Returns its size.
pub fn xstate(tid: i32, area: &mut [u8]) -> Result<usize, TraceError> {
    let mut part = libc::iovec {
        iov_base: area.as_mut_ptr().cast(),
        iov_len: area.len(),
    };
    regset(libc::PTRACE_GETREGSET, "PTRACE_GETREGSET", tid, &mut part)?;
    Ok(part.iov_len)
}

/// Sets the XSAVE area, which must be whole.
pub fn set_xstate(tid: i32, area: &mut [u8]) -> Result<(), TraceError> {
    let mut part = libc::iovec {
        iov_base: area.as_mut_ptr().cast(),
        iov_len: area.len(),
    };
    regset(libc::PTRACE_SETREGSET, "PTRACE_SETREGSET", tid, &mut part)
}

/// The XSAVE area's number among the sets of registers (Linux `include/uapi/linux/elf.h`).
const NT_X86_XSTATE: usize = 0x202;

fn regset(
    request: Request,
    call: &'static str,
    tid: i32,
    part: &mut libc::iovec,
) -> Result<(), TraceError> {
    let set = NT_X86_XSTATE as *mut libc::c_void;
    // SAFETY: both requests use only the memory that `part` describes, which its callers borrow
    // mutably, and write the number of bytes to `part`.
    let result = unsafe { libc::ptrace(request, tid, set, ptr::from_mut(part)) };
    if result == -1 {
        return Err(TraceError::last(call, tid));
    }
    Ok(())
}

/// The x87 and SSE state, as FXSAVE64 stores it.
#[repr(C, align(16))]
pub struct FxArea(pub [u8; 512]);

const _: () = assert!(size_of::<FxArea>() == size_of::<libc::user_fpregs_struct>());

/// The x87 and SSE registers of a stopped thread, as FXSAVE stores them.
pub fn fx(tid: i32, area: &mut FxArea) -> Result<(), TraceError> {
    // SAFETY: PTRACE_GETFPREGS writes one user_fpregs_struct to `data`, which is as large.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETFPREGS,
            tid,
            ptr::null_mut::<libc::c_void>(),
            ptr::from_mut(area),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_GETFPREGS", tid));
    }
    Ok(())
}

/// Sets the x87 and SSE registers of a stopped thread.
pub fn set_fx(tid: i32, area: &FxArea) -> Result<(), TraceError> {
    // SAFETY: PTRACE_SETFPREGS reads one user_fpregs_struct from `data`, which is as large.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_SETFPREGS,
            tid,
            ptr::null_mut::<libc::c_void>(),
            ptr::from_ref(area),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_SETFPREGS", tid));
    }
    Ok(())
}

/// `si_code` and `si_addr` of the signal that stopped a thread.
pub fn signal_info(tid: i32) -> Result<(i32, u64), TraceError> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: PTRACE_GETSIGINFO writes one siginfo_t to `data`.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            tid,
            ptr::null_mut::<libc::c_void>(),
            info.as_mut_ptr(),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_GETSIGINFO", tid));
    }
    // SAFETY: `info` was zeroed, and any bytes are valid for all its fields.
    let info = unsafe { info.assume_init() };
    // SAFETY: all of the union that siginfo_t ends with was written or zeroed.
    let address = unsafe { info.si_addr() };
    Ok((info.si_code, address.addr() as u64))
}

/// Sets the `PTRACE_O_` options of a traced thread.
pub fn set_options(tid: i32, options: i32) -> Result<(), TraceError> {
    let data = u64::from(options.cast_unsigned());
    request(libc::PTRACE_SETOPTIONS, "PTRACE_SETOPTIONS", tid, 0, data)
}

/// The number that comes with an event stop, such as the new thread's id.
pub fn event_message(tid: i32) -> Result<i32, TraceError> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: PTRACE_GETEVENTMSG writes one unsigned long to `data`.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            tid,
            ptr::null_mut::<libc::c_void>(),
            ptr::from_mut(&mut message),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_GETEVENTMSG", tid));
    }
    Ok(message as i32)
}

/// Whether a thread stopped at a system call is entering it, not leaving it.
pub fn is_syscall_entry(tid: i32) -> Result<bool, TraceError> {
    // The first byte of `struct ptrace_syscall_info`. The kernel writes as much as is asked for.
    let mut op = 0_u8;
    // SAFETY: PTRACE_GET_SYSCALL_INFO writes at most the given number of bytes, which is 1.
    let result = unsafe {
        libc::ptrace(
            PTRACE_GET_SYSCALL_INFO,
            tid,
            size_of_val(&op) as *mut libc::c_void,
            ptr::from_mut(&mut op),
        )
    };
    if result == -1 {
        return Err(TraceError::last("PTRACE_GET_SYSCALL_INFO", tid));
    }
    Ok(op == PTRACE_SYSCALL_INFO_ENTRY)
}

/// How a thread stopped or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It ended with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// At the entry or exit of a system call.
    Syscall,
    /// A ptrace event; the signal matters for group stops.
    Event {
        /// The `PTRACE_EVENT_` number.
        event: i32,
        /// The signal.
        signal: i32,
    },
    /// A signal, delivered if the thread is resumed with it.
    Signal(i32),
}

impl Status {
    fn from_raw(status: i32) -> Option<Status> {
        if libc::WIFEXITED(status) {
            return Some(Status::Exited(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Some(Status::Killed(libc::WTERMSIG(status)));
        }
        if !libc::WIFSTOPPED(status) {
            return None;
        }
        let signal = libc::WSTOPSIG(status);
        Some(match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Status::Syscall,
            0 => Status::Signal(signal),
            event => Status::Event { event, signal },
        })
    }
}

/// The outcome of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// This thread stopped or ended so.
    Stopped(i32, Status),
    /// Nothing yet (if not blocking), or this process received a signal.
    Nothing,
    /// No child or tracee is left.
    NoChildren,
}

/// Waits for `tid`; if -1, for any thread that this thread traces or created.
pub fn wait(tid: i32, block: bool) -> Result<Waited, TraceError> {
    let flags = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    // SAFETY: `status` is a valid int for the kernel to write.
    let result = unsafe { libc::waitpid(tid, &raw mut status, flags) };
    match result {
        0 => Ok(Waited::Nothing),
        -1 => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Ok(Waited::Nothing),
            Some(libc::ECHILD) => Ok(Waited::NoChildren),
            _ => Err(TraceError::last("waitpid", tid)),
        },
        tid => Ok(Status::from_raw(status).map_or(Waited::Nothing, |s| Waited::Stopped(tid, s))),
    }
}

/// Waits for `tid`, ignoring interruptions by signals to this process.
pub fn wait_until(tid: i32) -> Result<Waited, TraceError> {
    loop {
        match wait(tid, true)? {
            Waited::Nothing => {}
            other => return Ok(other),
        }
    }
}
