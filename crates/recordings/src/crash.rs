//! Which thread of a program crashed, and by which signal.
//!
//! Sources: Linux `fs/binfmt_elf.c` (the thread that died comes first; `NT_SIGINFO` belongs to it),
//! `include/uapi/asm-generic/siginfo.h` (`siginfo_t`, the codes), signal(7) (the signals whose default
//! action writes a core).

use std::fmt;

/// The thread that a core was written for, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// The thread's ID.
    pub tid: u32,
    /// The number of the signal, one of those that write a core.
    pub signal: u32,
    /// What else the kernel says about it, if the core has that.
    pub info: Option<SignalInfo>,
}

/// The part of a `siginfo_t` that says why a signal was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    /// `si_code`.
    pub code: i32,
    /// The address (`si_addr`) of a fault, or the process (`si_pid`) that sent the signal.
    pub origin: Option<Origin>,
}

/// Where a signal came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The address that the program accessed or, of SIGILL, SIGFPE and SIGTRAP, executed.
    Address(u64),
    /// The process that sent it.
    Process(u32),
}

/// The signal of breakpoints and single steps.
pub(crate) const SIGTRAP: u32 = 5;
/// `si_code` of signals from the kernel that no other code describes: of SIGSEGV a general protection
/// fault, whose address the processor does not say.
const SI_KERNEL: i32 = 0x80;
/// The size of the part of a `siginfo_t` that is read, bytes.
const SIGINFO_READ: usize = 24;

/// Signals whose default action writes a core, with their codes from 1 on.
const SIGNALS: [(u32, &str, &[&str]); 10] = [
    (3, "SIGQUIT", &[]),
    (
        4,
        "SIGILL",
        &[
            "ILL_ILLOPC",
            "ILL_ILLOPN",
            "ILL_ILLADR",
            "ILL_ILLTRP",
            "ILL_PRVOPC",
            "ILL_PRVREG",
            "ILL_COPROC",
            "ILL_BADSTK",
        ],
    ),
    (
        SIGTRAP,
        "SIGTRAP",
        &[
            "TRAP_BRKPT",
            "TRAP_TRACE",
            "TRAP_BRANCH",
            "TRAP_HWBKPT",
            "TRAP_UNK",
            "TRAP_PERF",
        ],
    ),
    (6, "SIGABRT", &[]),
    (
        7,
        "SIGBUS",
        &[
            "BUS_ADRALN",
            "BUS_ADRERR",
            "BUS_OBJERR",
            "BUS_MCEERR_AR",
            "BUS_MCEERR_AO",
        ],
    ),
    (
        8,
        "SIGFPE",
        &[
            "FPE_INTDIV",
            "FPE_INTOVF",
            "FPE_FLTDIV",
            "FPE_FLTOVF",
            "FPE_FLTUND",
            "FPE_FLTRES",
            "FPE_FLTINV",
            "FPE_FLTSUB",
        ],
    ),
    (
        11,
        "SIGSEGV",
        &[
            "SEGV_MAPERR",
            "SEGV_ACCERR",
            "SEGV_BNDERR",
            "SEGV_PKUERR",
            "SEGV_ACCADI",
            "SEGV_ADIDERR",
            "SEGV_ADIPERR",
            "SEGV_MTEAERR",
            "SEGV_MTESERR",
            "SEGV_CPERR",
        ],
    ),
    (24, "SIGXCPU", &[]),
    (25, "SIGXFSZ", &[]),
    (31, "SIGSYS", &["SYS_SECCOMP", "SYS_USER_DISPATCH"]),
];

/// Codes of signals from programs, from 0 downwards.
const SENT: [&str; 7] = [
    "SI_USER",
    "SI_QUEUE",
    "SI_TIMER",
    "SI_MESGQ",
    "SI_ASYNCIO",
    "SI_SIGIO",
    "SI_TKILL",
];

impl Crash {
    /// The crash of a thread whose core names this signal, with its `siginfo_t`. `None` if the signal
    /// does not end programs with a core: a tool wrote the core of a running program.
    pub fn new(tid: u32, signal: u32, siginfo: Option<&[u8]>) -> Option<Crash> {
        SIGNALS.iter().find(|(number, ..)| *number == signal)?;
        let info = siginfo.and_then(|bytes| SignalInfo::of(signal, bytes));
        Some(Crash { tid, signal, info })
    }

    /// The signal's name, such as `SIGSEGV`.
    pub fn signal_name(&self) -> &'static str {
        let known = SIGNALS.iter().find(|(number, ..)| *number == self.signal);
        known.map_or("", |(_, name, _)| name)
    }

    /// The name of the code, such as `SEGV_MAPERR`, if it has one.
    pub fn code_name(&self) -> Option<&'static str> {
        let code = self.info?.code;
        if code == SI_KERNEL {
            return Some("SI_KERNEL");
        }
        if code <= 0 {
            return SENT.get(code.unsigned_abs() as usize).copied();
        }
        let (.., names) = SIGNALS.iter().find(|(number, ..)| *number == self.signal)?;
        names.get(code as usize - 1).copied()
    }
}

impl SignalInfo {
    /// Reads a `siginfo_t` of this signal. `None` if it is too short, or of another signal.
    fn of(signal: u32, bytes: &[u8]) -> Option<SignalInfo> {
        let bytes: &[u8; SIGINFO_READ] = bytes.first_chunk()?;
        let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        if half(0) != signal {
            return None;
        }
        let code = half(8) as i32;
        let address = u64::from(half(16)) | u64::from(half(20)) << 32;

        // Which members of the union are valid depends on who sent the signal.
        let is_fault = matches!(signal, 4 | 5 | 7 | 8 | 11);
        let origin = match code {
            SI_KERNEL => None,
            1.. if is_fault => Some(Origin::Address(address)),
            // SI_USER, SI_QUEUE and SI_TKILL.
            0 | -1 | -6 => Some(Origin::Process(half(16))),
            _ => None,
        };
        Some(SignalInfo { code, origin })
    }
}

impl fmt::Display for Crash {
    /// `SIGSEGV (SEGV_MAPERR) at 0x10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.signal_name())?;
        let Some(info) = self.info else {
            return Ok(());
        };
        match self.code_name() {
            Some(name) => write!(f, " ({name})")?,
            None => write!(f, " (code {})", info.code)?,
        }
        match info.origin {
            Some(Origin::Address(address)) => write!(f, " at {address:#x}"),
            Some(Origin::Process(pid)) => write!(f, " from pid {pid}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `siginfo_t` with the words of its union.
    fn siginfo(signal: i32, code: i32, union: u64) -> Vec<u8> {
        let mut out = vec![0; 128];
        out[..4].copy_from_slice(&signal.to_le_bytes());
        out[8..12].copy_from_slice(&code.to_le_bytes());
        out[16..24].copy_from_slice(&union.to_le_bytes());
        out
    }

    #[test]
    fn a_fault_has_an_address_and_a_sent_signal_a_sender() {
        let text = |signal: i32, code: i32, union: u64| {
            let info = siginfo(signal, code, union);
            let crash = Crash::new(7, signal as u32, Some(&info)).expect("a crash");
            crash.to_string()
        };
        assert_eq!(text(11, 1, 0x1234), "SIGSEGV (SEGV_MAPERR) at 0x1234");
        assert_eq!(text(11, 10, 0x1234), "SIGSEGV (SEGV_CPERR) at 0x1234");
        assert_eq!(text(11, 11, 0x1234), "SIGSEGV (code 11) at 0x1234");
        assert_eq!(text(11, 0x80, 0), "SIGSEGV (SI_KERNEL)");
        assert_eq!(text(7, 2, 1 << 40), "SIGBUS (BUS_ADRERR) at 0x10000000000");
        assert_eq!(text(6, -6, 4553), "SIGABRT (SI_TKILL) from pid 4553");
        assert_eq!(text(6, -7, 4553), "SIGABRT (code -7)");
        assert_eq!(text(11, 0, 1 << 32 | 12), "SIGSEGV (SI_USER) from pid 12");
        // Its union holds the address of the call and its number.
        assert_eq!(text(31, 1, 0x1234), "SIGSYS (SYS_SECCOMP)");
    }

    #[test]
    fn signals_that_write_no_core_are_no_crash_and_other_ones_say_nothing() {
        for signal in [0, 9, 15, 17, 19, 64] {
            assert_eq!(Crash::new(7, signal, None), None);
        }
        let other = siginfo(19, 0x80, 0);
        for info in [None, Some(&other[..]), Some(&other[..20])] {
            let crash = Crash::new(7, 5, info).expect("a crash");
            assert_eq!((crash.info, crash.to_string().as_str()), (None, "SIGTRAP"));
        }
    }
}
