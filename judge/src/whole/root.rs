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
    /// A frame that its row calls outermost.
    Outermost,
    /// The first frame of a coroutine, on a stack of its own.
    Coroutine,
}

impl Root {
    /// The stable name, for JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Root::Entry => "entry",
            Root::Thread => "thread",
            Root::Runtime => "runtime",
            Root::Outermost => "outermost-row",
            Root::Coroutine => "coroutine",
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Root::Entry => "the entry of a program",
            Root::Thread => "the start of a thread",
            Root::Runtime => "the first function of a language's thread",
            Root::Outermost => "a frame that its row calls outermost",
            Root::Coroutine => "the first frame of a coroutine",
        })
    }
}

/// The root that a frame at `pc` is, if its code tells.
pub(super) fn of(facts: &Facts, pc: CodeAddress) -> Option<Root> {
    match facts.root? {
        // The one who makes a thread runs through the same function, and returns from it.
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
/// Where Go's threads and goroutines start (`runtime/asm_amd64.s`, `runtime/sys_linux_amd64.s`,
/// `runtime/proc.go`). Functions of assembly have `.abi0` behind their names.
const GO: [&str; 6] = [
    "runtime.goexit",
    "runtime.mstart",
    "runtime.rt0_go",
    "runtime.clone",
    "_rt0_amd64",
    "_rt0_amd64_linux",
];

/// The root that a function is, by its name.
pub(super) fn by_name(name: &str) -> Option<Root> {
    let plain = name.strip_suffix(".abi0").unwrap_or(name);
    match plain {
        _ if ENTRIES.contains(&plain) => Some(Root::Entry),
        _ if THREADS.contains(&plain) => Some(Root::Thread),
        _ if GO.contains(&plain) => Some(Root::Runtime),
        "__start_context" => Some(Root::Coroutine),
        // The first return address of an Erlang process (erts/emulator/beam/jit/x86/process_main.cpp).
        _ if plain.starts_with("erts_beamasm:normal_exit") => Some(Root::Runtime),
        _ => None,
    }
}
