//! Other processes, threads and the network: none exist. Creating one fails as it does at a limit;
//! errors in the call itself come first.
//!
//! Source: Linux 6.12 `kernel/fork.c`, `kernel/exit.c`, `net/socket.c`.

use crate::linux::Process;
use crate::linux::errno::{Answer, Errno};

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_NEWNS: u64 = 0x2_0000;

/// Checks for flags that exclude each other (`copy_process`).
fn check_clone(flags: u64) -> Answer<()> {
    let has = |flag: u64| flags & flag != 0;
    let is_wrong = has(CLONE_NEWNS) && has(CLONE_FS)
        || has(CLONE_THREAD) && !has(CLONE_SIGHAND)
        || has(CLONE_SIGHAND) && !has(CLONE_VM);
    if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

impl Process {
    /// The error when a process or a thread cannot be created: that of `RLIMIT_NPROC`.
    pub(super) fn no_process(&mut self) -> Answer {
        self.not_modelled("other processes", Errno::EAGAIN)
    }

    fn no_task(&mut self, flags: u64) -> Answer {
        check_clone(flags)?;
        match flags & CLONE_THREAD {
            0 => self.no_process(),
            _ => self.not_modelled("threads", Errno::EAGAIN),
        }
    }

    pub(super) fn sys_clone(&mut self, flags: u64) -> Answer {
        self.no_task(flags)
    }

    pub(super) fn sys_clone3(&mut self, args: u64, size: u64) -> Answer {
        /// `CLONE_ARGS_SIZE_VER0`.
        const SIZE_MIN: u64 = 64;
        const SIZE_MAX: u64 = 4096;
        match size {
            ..SIZE_MIN => return Err(Errno::EINVAL),
            SIZE_MIN..=SIZE_MAX => {}
            _ => return Err(Errno::E2BIG),
        }
        self.bytes::<{ SIZE_MIN as usize }>(args)?;
        let flags = self.u64_at(args)?;
        self.no_task(flags)
    }

    /// There is no process to wait for.
    pub(super) fn sys_waitid(&mut self, which: u64, id: u64, info: u64, options: u64) -> Answer {
        const EXITED: u32 = 4;
        const STOPPED: u32 = 2;
        const CONTINUED: u32 = 8;
        const KNOWN: u32 = 0xe100_000f;
        /// `P_PID`, `P_PGID`, `P_PIDFD`.
        const BY_NUMBER: [u32; 2] = [1, 2];
        const BY_DESCRIPTOR: u32 = 3;
        let (which, options) = (which as u32, options as u32);
        if options & !KNOWN != 0 || options & (EXITED | STOPPED | CONTINUED) == 0 {
            return Err(Errno::EINVAL);
        }
        match (which, id as i32) {
            (1, ..=0) | (2, ..0) | (BY_DESCRIPTOR, ..0) | (4.., _) => return Err(Errno::EINVAL),
            (BY_DESCRIPTOR, _) => {
                self.files.table.get(id)?;
                return Err(Errno::EBADF);
            }
            _ => debug_assert!(which == 0 || BY_NUMBER.contains(&which)),
        }
        if info != 0 {
            // si_signo, si_errno, si_code; si_pid, si_uid, si_status.
            self.put(info, &[0; 12])?;
            self.put(info.wrapping_add(16), &[0; 12])?;
        }
        Err(Errno::ECHILD)
    }

    /// The descriptors are released again, but were written before.
    pub(super) fn sys_socketpair(&mut self, family: u64, kind: u64, to: u64) -> Answer {
        if kind as u32 & !(SOCK_TYPE | SOCK_FLAGS) != 0 {
            return Err(Errno::EINVAL);
        }
        let mut free = (0..self.descriptors_max()).filter(|&fd| self.files.table.slot(fd).is_err());
        let (Some(first), Some(second)) = (free.next(), free.next()) else {
            return Err(Errno::EMFILE);
        };
        self.put(to, &(first | second << 32).to_le_bytes())?;
        socket(family, kind)
    }
}

/// `wait4`: there is no process to wait for.
pub(super) fn wait4(pid: u64, options: u64) -> Answer {
    const KNOWN: u32 = 0xe000_000b;
    match pid as i32 {
        _ if options as u32 & !KNOWN != 0 => Err(Errno::EINVAL),
        i32::MIN => Err(Errno::ESRCH),
        _ => Err(Errno::ECHILD),
    }
}

/// The type of a socket, and the flags that may be combined with it: `SOCK_CLOEXEC`,
/// `SOCK_NONBLOCK`.
const SOCK_TYPE: u32 = 0xf;
const SOCK_FLAGS: u32 = 0o200_4000;
/// Number of socket types.
const SOCK_MAX: u32 = 11;

/// No address family exists, as in a kernel built without them.
pub(super) fn socket(family: u64, kind: u64) -> Answer {
    let kind = kind as u32;
    let is_wrong = kind & !(SOCK_TYPE | SOCK_FLAGS) != 0;
    match family as i32 {
        _ if is_wrong => Err(Errno::EINVAL),
        0..46 if kind & SOCK_TYPE >= SOCK_MAX => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}
