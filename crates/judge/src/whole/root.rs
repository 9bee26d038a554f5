//! Places that nothing calls.

use super::code::{Before, Facts};
use std::fmt;
use unwind_sim_unwind::address::CodeAddress;

/// What a chain ends at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Root {
    /// The entry function of a program or of its interpreter, which the kernel starts.
    Entry,
    /// Where a thread starts: behind the system call that made it.
    Thread,
    /// The first function of a language's own threads, such as Go's `runtime.goexit`.
    Runtime,
    /// The start of a language's own thread or fiber, such as Go's `runtime.mstart`, which other start
    /// code may have called: that of the program, of a thread of C, or a frame made by hand.
    RuntimeThread,
    /// The last frame on the stack of a thread that left a goroutine's, which may go on elsewhere: Go's
    /// traceback ends here, but the goroutine's frames called this one.
    Switch,
    /// A frame that its row calls outermost.
    Outermost,
    /// The first frame of a coroutine, on a stack of its own.
    Coroutine,
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Root::Entry => "the entry of a program",
            Root::Thread => "the start of a thread",
            Root::RuntimeThread => "the start of a language's thread or fiber",
            Root::Switch => "a switch from one stack to another",
            Root::Runtime => "the first function of a language's thread",
            Root::Outermost => "a frame that its row calls outermost",
            Root::Coroutine => "the first frame of a coroutine",
        })
    }
}

/// The root that a frame at `pc` is, if its code tells.
pub(super) fn of(facts: &Facts, pc: CodeAddress) -> Option<Root> {
    match facts.root? {
        // The thread that makes another one runs through the same function, and returns from it.
        Root::Thread if pc.is_instruction() => None,
        // A row may hold for the instruction that was interrupted.
        Root::Coroutine if facts.before != Before::NoCall => None,
        root => Some(root),
    }
}

/// Functions in which threads start, by libc: glibc, musl.
const THREADS: [&str; 6] = [
    "clone",
    "__clone",
    "__GI___clone",
    "clone3",
    "__clone3",
    "__GI___clone3",
];
/// glibc's entry, also where the name is all that a recording has; `_dl_start_user` is the second
/// half of the interpreter's.
const ENTRIES: [&str; 2] = ["_start", "_dl_start_user"];
/// Where Go's goroutines start. Functions of assembly have `.abi0` behind their names.
const GO: &str = "runtime.goexit";
/// Where a thread goes on with a function that does not return to the goroutine that called
/// (`topofstack` in `runtime/traceback.go`).
const GO_TOP: &str = "runtime.mcall";
/// Where Go's threads start (`runtime/asm_amd64.s`, `runtime/sys_linux_amd64.s`).
const GO_THREADS: [&str; 5] = [
    "runtime.mstart",
    "runtime.rt0_go",
    "runtime.clone",
    "_rt0_amd64",
    "_rt0_amd64_linux",
];

/// Functions of Go that a signal handler makes the interrupted code call: their return address is the
/// interrupted instruction (`preparePanic` in `runtime/signal_amd64.go`, `runtime/preempt_amd64.s`).
const GO_INJECTED: [&str; 4] = [
    "runtime.sigpanic",
    "runtime.sigpanic0",
    "runtime.asyncPreempt",
    "runtime.debugCallV2",
];
/// Where a goroutine is said to be while its thread runs on another stack
/// (`gosave_systemstack_switch` in `runtime/asm_amd64.s`).
const GO_SWITCH: &str = "runtime.systemstack_switch";

/// Whether a frame of the function `caller` has a return address that no call made, because of
/// what it is or of its `callee`.
pub(super) fn is_made(callee: &str, caller: &str) -> bool {
    GO_INJECTED.contains(&plain(callee)) || is_stand_in(caller)
}

/// Whether a frame of this function stands for another one, which its caller called.
pub(super) fn is_stand_in(name: &str) -> bool {
    plain(name) == GO_SWITCH
}

/// The name of a function of Go without that of its calling convention.
fn plain(name: &str) -> &str {
    name.strip_suffix(".abi0").unwrap_or(name)
}

/// The first functions of coroutines, by name: druntime's (`fiber_switchContext` in its
/// `core/thread/fiber.d`), PHP's, and QEMU's.
const FIBERS: [&str; 3] = [
    "fiber_entryPoint",
    "zend_fiber_trampoline",
    "coroutine_trampoline",
];

/// What the C library runs between the entry and `main`, and between a thread's start and its function.
const START_CODE: &str = "__libc_start_";
const MUSL_START_CODE: &str = "libc_start_main_stage2";
const THREAD_CODE: [&str; 2] = ["start_thread", "thread_start"];

/// Whether a function is what glibc or musl runs between the entry and `main`, or between a thread's start
/// and its function.
pub(crate) fn is_start_code(name: &str) -> bool {
    let plain = name.split('@').next().unwrap_or_default();
    plain.starts_with(START_CODE) || plain == MUSL_START_CODE || THREAD_CODE.contains(&plain)
}

/// Whether a function is the C library's, in which threads start, by its name.
pub(crate) fn is_thread_start(name: &str) -> bool {
    THREADS.contains(&name.split('@').next().unwrap_or_default())
}

/// Whether a function is a root, or one that only roots call, by its name.
pub(crate) fn is_near_root(name: &str) -> bool {
    by_name(name).is_some() || is_start_code(name)
}

/// The root that a function is, by its name.
pub(super) fn by_name(name: &str) -> Option<Root> {
    match plain(name) {
        GO => Some(Root::Runtime),
        GO_TOP => Some(Root::Switch),
        plain if GO_THREADS.contains(&plain) => Some(Root::RuntimeThread),
        plain if ENTRIES.contains(&plain) => Some(Root::Entry),
        plain if THREADS.contains(&plain) => Some(Root::Thread),
        plain if FIBERS.contains(&plain) => Some(Root::RuntimeThread),
        "__start_context" => Some(Root::Coroutine),
        // The first return address of an Erlang process (erts/emulator/beam/jit/x86/process_main.cpp).
        plain if plain.starts_with("erts_beamasm:normal_exit") => Some(Root::Runtime),
        _ => None,
    }
}
