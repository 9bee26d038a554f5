//! How the child isolates itself, as data: the system calls that it makes before it executes any
//! case, and the seccomp filter that leaves it two.
//!
//! Afterwards the child has no files and no memory except its arena. It may not fork, cannot be
//! read or traced by other processes of the same user, dies with the thread that created it, and
//! can call only `futex` and `rt_sigreturn`, from one instruction of the driver. Any other system
//! call raises SIGSYS, an outcome like any other signal.

use super::driver::{DriverAddresses, sites};
use super::layout::*;
use nix::libc;

/// Interval of SIGVTALRM in the child, in microseconds of its own processor time.
const TICK_US: u64 = 10_000;

/// The signals that end a case, and the tick.
const SIGNALS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGVTALRM,
];

/// A limit's number as the C library declares it: unsigned with glibc, signed with musl.
#[cfg(not(target_env = "musl"))]
type Resource = u32;
/// A limit's number as the C library declares it.
#[cfg(target_env = "musl")]
type Resource = i32;

/// Limits that are set to zero.
const NO_MORE: [Resource; 5] = [
    libc::RLIMIT_CORE,
    libc::RLIMIT_FSIZE,
    libc::RLIMIT_NOFILE,
    libc::RLIMIT_NPROC,
    libc::RLIMIT_MEMLOCK,
];

/// The kernel's SA_RESTORER, which libc does not define.
const SA_RESTORER: i32 = 0x0400_0000;
/// Descriptor of the shared memory's file in the child: its standard input.
const FILE: u64 = 0;

struct SetupCall {
    name: &'static str,
    number: libc::c_long,
    arguments: [u64; 6],
    may_fail: bool,
}

fn call(name: &'static str, number: libc::c_long, arguments: &[u64]) -> SetupCall {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    SetupCall {
        name,
        number,
        arguments: all,
        may_fail: false,
    }
}

/// What the calls point to, after one word for the table's address.
struct Data(Vec<u8>);

impl Data {
    fn push(&mut self, words: impl IntoIterator<Item = u64>) -> u64 {
        let address = DRIVER_DATA + self.0.len() as u64;
        self.0.extend(words.into_iter().flat_map(u64::to_le_bytes));
        address
    }
}

/// `struct sock_filter` as a word (include/uapi/linux/filter.h).
fn filter_word(code: u32, value: u32, if_true: u8, if_false: u8) -> u64 {
    u64::from(code) | u64::from(if_true) << 16 | u64::from(if_false) << 24 | u64::from(value) << 32
}

/// The seccomp filter: allows `futex` and `rt_sigreturn`, by `syscall` in 64-bit mode, from the
/// driver.
fn filter(sites: &DriverAddresses) -> [u64; 11] {
    const ARCH_X86_64: u32 = 0xc000_003e;
    // Offsets in `struct seccomp_data` (include/uapi/linux/seccomp.h).
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const IP: u32 = 8;

    let load = |at| filter_word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let unless = |value, skip| {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter_word(code, value, 0, skip)
    };

    let when = |value: libc::c_long, skip| {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter_word(code, value as u32, skip, 0)
    };

    let answer = |value| filter_word(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    [
        // Numbers of calls depend on the architecture, so it is checked first (seccomp(2)).
        load(ARCH),
        unless(ARCH_X86_64, 7),
        // The address behind `syscall`: only the driver's instruction may call.
        load(IP),
        unless(sites.syscall_end as u32, 5),
        load(IP + 4),
        unless((sites.syscall_end >> 32) as u32, 3),
        load(NUMBER),
        when(libc::SYS_futex, 2),
        when(libc::SYS_rt_sigreturn, 1),
        answer(libc::SECCOMP_RET_TRAP),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

fn calls(data: &mut Data, sites: &DriverAddresses) -> Vec<SetupCall> {
    let (read, write, execute) = (
        libc::PROT_READ as u64,
        libc::PROT_WRITE as u64,
        libc::PROT_EXEC as u64,
    );
    // Fails instead of replacing what is mapped there (mmap(2)).
    let fixed = libc::MAP_FIXED_NOREPLACE as u64;
    let shared = fixed | libc::MAP_SHARED as u64;
    let private = fixed | (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let map = |name, arguments: [u64; 6]| call(name, libc::SYS_mmap, &arguments);

    let (code_offset, code_size) = (CODE_OFFSET as u64, CODE_RANGE.end - CODE);
    let mut calls = vec![
        map(
            "mmap of the shared memory",
            [SHARED, code_offset, read | write, shared, FILE, 0],
        ),
        map(
            "mmap of the code",
            [CODE, code_size, read | execute, shared, FILE, code_offset],
        ),
        map(
            "mmap of the window",
            [WINDOW_PAGE.start, PAGE, read | write, private, u64::MAX, 0],
        ),
        map(
            "mmap of the two pages",
            [
                MIDDLE_PAGES.start,
                MIDDLE_PAGES.end - MIDDLE_PAGES.start,
                read | write,
                private,
                u64::MAX,
                0,
            ],
        ),
        map(
            "mmap of the stacks",
            [STACKS, STACKS_SIZE, read | write, private, u64::MAX, 0],
        ),
        // The stack and the vDSO. Some kernels keep the vDSO, and then both.
        SetupCall {
            may_fail: true,
            ..call(
                "munmap",
                libc::SYS_munmap,
                &[ARENA_END, TASK_END - ARENA_END],
            )
        },
        // Does not exist before Linux 5.9. The only open files are the three standard ones, one of
        // them the shared memory: std marks all others close-on-exec.
        SetupCall {
            may_fail: true,
            ..call(
                "close_range",
                libc::SYS_close_range,
                &[0, u64::from(u32::MAX), 0],
            )
        },
    ];

    // The child dies with its parent and cannot be read or traced. Without privileges, seccomp(2)
    // needs PR_SET_NO_NEW_PRIVS, so it precedes the filter.
    for (option, argument) in [
        (libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64),
        (libc::PR_SET_DUMPABLE, 0),
        (libc::PR_SET_NO_NEW_PRIVS, 1),
    ] {
        calls.push(call("prctl", libc::SYS_prctl, &[option as u64, argument]));
    }

    let none = data.push([0, 0]);
    for resource in NO_MORE {
        let arguments = [resource as u64, none];
        calls.push(call("setrlimit", libc::SYS_setrlimit, &arguments));
    }

    // A case may set rsp to anything, so the handler needs a stack of its own.
    let stack = data.push([STACKS, 0, SIGNAL_STACK_SIZE]);
    calls.push(call("sigaltstack", libc::SYS_sigaltstack, &[stack, 0]));

    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | SA_RESTORER;
    // Handler, flags, restorer (the handler never returns), mask.
    let action = data.push([sites.handler, flags as u64, 0, 0]);
    for signal in SIGNALS {
        let arguments = [signal as u64, action, 0, 8];
        calls.push(call("rt_sigaction", libc::SYS_rt_sigaction, &arguments));
    }

    // Counts only the child's time in user mode, however busy the host is (setitimer(2)).
    let timer = data.push([0, TICK_US, 0, TICK_US]);
    let arguments = [libc::ITIMER_VIRTUAL as u64, timer, 0];
    calls.push(call("setitimer", libc::SYS_setitimer, &arguments));

    // Last, because the filter refuses every call above.
    let words = filter(sites);
    let filter = data.push(words);
    let program = data.push([words.len() as u64, filter]);
    calls.push(call(
        "seccomp",
        libc::SYS_seccomp,
        &[
            u64::from(libc::SECCOMP_SET_MODE_FILTER),
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            program,
        ],
    ));

    calls
}

/// The driver's data: the table's address, what the calls point to, and the table.
pub(super) fn data() -> Vec<u8> {
    let mut data = Data(vec![0; 8]);
    let calls = calls(&mut data, &sites());
    let table = calls.iter().flat_map(|call| {
        let mut words = [
            call.number as u64,
            0,
            0,
            0,
            0,
            0,
            0,
            u64::from(call.may_fail),
        ];
        words[1..7].copy_from_slice(&call.arguments);
        words
    });
    let table = table.chain([u64::MAX]).collect::<Vec<_>>();
    let address = data.push(table);
    data.0[..8].copy_from_slice(&address.to_le_bytes());
    data.0
}

/// The name of the call at `index` in the table.
pub(super) fn name(index: usize) -> &'static str {
    let calls = calls(&mut Data(Vec::new()), &sites());
    calls.get(index).map_or("start", |call| call.name)
}
