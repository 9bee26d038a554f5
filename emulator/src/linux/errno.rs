//! Error numbers of system calls. Source: Linux 6.12 `include/uapi/asm-generic/errno-base.h`,
//! `errno.h`, and `include/linux/errno.h` for those that programs never see.

use std::io;

/// The result of a system call: rax or an error.
pub(super) type Answer<T = u64> = Result<T, Errno>;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Errno(u16);

macro_rules! errors {
    ($($name:ident $number:literal)*) => {
        impl Errno {
            $(pub(super) const $name: Errno = Errno($number);)*
        }
    };
}

errors! {
    EPERM 1 ENOENT 2 ESRCH 3 EINTR 4 EIO 5 ENXIO 6 E2BIG 7 ENOEXEC 8 EBADF 9 ECHILD 10 EAGAIN 11 ENOMEM 12
    EACCES 13 EFAULT 14 EBUSY 16 EEXIST 17 EXDEV 18 ENODEV 19 ENOTDIR 20 EISDIR 21 EINVAL 22
    ENFILE 23 EMFILE 24 ENOTTY 25 EFBIG 27 ENOSPC 28 ESPIPE 29 EROFS 30 EPIPE 32 ERANGE 34 ENAMETOOLONG 36
    EDOM 33 ENOSYS 38 ENOTEMPTY 39 ELOOP 40 EOVERFLOW 75 ENOTSOCK 88 EDESTADDRREQ 89 EMSGSIZE 90
    EPROTOTYPE 91 ENOPROTOOPT 92 EPROTONOSUPPORT 93 ESOCKTNOSUPPORT 94 EOPNOTSUPP 95
    EAFNOSUPPORT 97 EADDRINUSE 98 EADDRNOTAVAIL 99 ENETUNREACH 101 ECONNRESET 104 ENOBUFS 105
    EISCONN 106 ENOTCONN 107 ETIMEDOUT 110 ECONNREFUSED 111
    EINPROGRESS 115
    EDEADLK 35 ENOMSG 42 EIDRM 43 ESTALE 116
    // The call has no answer yet: it is answered again later. The machine's own.
    WAITS 4095
    // Interrupted; restarted unless a handler without SA_RESTART runs.
    ERESTARTSYS 512
    // Interrupted; restarted unless a handler runs.
    ERESTARTNOHAND 514
    // The same, until the time at which it would have ended.
    ERESTART_RESTARTBLOCK 516
}

impl Errno {
    /// The value of rax.
    pub(super) fn to_rax(self) -> u64 {
        (-i64::from(self.0)).cast_unsigned()
    }
}

/// Converts the host's errors.
impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        use io::ErrorKind as Kind;
        // Linux has the same numbers outside.
        if cfg!(target_os = "linux")
            && let Some(number) = error.raw_os_error()
        {
            return Errno(number as u16);
        }
        match error.kind() {
            Kind::NotFound => Errno::ENOENT,
            Kind::PermissionDenied => Errno::EACCES,
            Kind::AlreadyExists => Errno::EEXIST,
            Kind::NotADirectory => Errno::ENOTDIR,
            Kind::IsADirectory => Errno::EISDIR,
            Kind::DirectoryNotEmpty => Errno::ENOTEMPTY,
            Kind::ReadOnlyFilesystem => Errno::EROFS,
            Kind::StorageFull => Errno::ENOSPC,
            Kind::FileTooLarge => Errno::EFBIG,
            Kind::CrossesDevices => Errno::EXDEV,
            Kind::BrokenPipe => Errno::EPIPE,
            Kind::InvalidInput => Errno::EINVAL,
            Kind::InvalidFilename => Errno::ENAMETOOLONG,
            Kind::Interrupted => Errno::EINTR,
            Kind::WouldBlock => Errno::EAGAIN,
            Kind::OutOfMemory => Errno::ENOMEM,
            Kind::ResourceBusy => Errno::EBUSY,
            Kind::StaleNetworkFileHandle => Errno::ESTALE,
            _ => Errno::EIO,
        }
    }
}
