//! What is not drawn, or only in part, each with its reason. Everything else that the command line
//! defines is drawn.

/// Commands that are left out: their words, and why.
pub const COMMANDS_LEFT_OUT: [(&str, &str); 7] = [
    ("lockstep", "runs the program on this machine's processor"),
    ("gdbserver", "waits for a client"),
    ("dap", "waits for a client"),
    ("cases run", CASES),
    ("cases bless", CASES),
    ("cases show", CASES),
    ("cases quiz", CASES),
];

const CASES: &str = "runs the C compiler and programs";

/// Options that are left out: the command (empty: every command), the option, and why.
pub const OPTIONS_LEFT_OUT: [(&str, &str, &str); 8] = [
    (
        "",
        "allow_write",
        "the program could write outside of the folder",
    ),
    (
        "",
        "allow_fs",
        "the program could read what a test should not",
    ),
    ("", "help", "prints the help, which other tests compare"),
    ("", "version", "prints the version"),
    ("record", "pid", "stops a process of this machine"),
    ("record", "stub", "connects to a gdb stub"),
    (
        "record",
        "no_children",
        "of the engine ptrace, which runs the program on this machine",
    ),
    (
        "record",
        "randomize",
        "of the engine ptrace, which runs the program on this machine",
    ),
];

/// Options that are always given, with one of these values: the command, the option, the values, and
/// why.
pub(super) const ALWAYS: [(&str, &str, &[&str], &str); 1] = [(
    "record",
    "engine",
    &["emulator"],
    "the other engines run a program on this machine",
)];

/// Options that say how much is done, and the largest value that is drawn for a run that ends soon.
pub(super) const WORK: [(&str, u64); 7] = [
    ("count", 300),
    ("events", 2000),
    ("max_instructions", 20_000),
    ("seeds", 8),
    ("self_test", 5),
    ("size", 200),
    ("timeout", 5),
];

/// Commands that run a program, a case or code in the machine are always given this option: what was
/// changed may not end, or only at a limit that takes minutes with coverage.
pub(super) const ENDS: &str = "max_instructions";

/// Options whose file is written. A FIFO as an output waits for its reader, as for every program.
pub(super) const OUTPUTS: [&str; 5] = ["output", "out", "print_schedule", "shrink", "folder"];

/// Names of the arguments that are a program of the machine and its words.
pub(super) const PROGRAMS: [&str; 2] = ["program", "command"];

/// Is the option left out?
pub(super) fn is_left_out(command: &str, option: &str) -> bool {
    let mut all = OPTIONS_LEFT_OUT.iter();
    all.any(|(of, name, _)| (of.is_empty() || *of == command) && *name == option)
}

/// The values of an option that is always given.
pub(super) fn always(command: &str, option: &str) -> Option<&'static [&'static str]> {
    let found = ALWAYS
        .iter()
        .find(|(of, name, ..)| *of == command && *name == option)?;
    Some(found.2)
}

/// The largest number for an option that says how much is done.
pub(super) fn work_max(option: &str) -> Option<u64> {
    let found = WORK.iter().find(|(name, _)| *name == option)?;
    Some(found.1)
}

/// Folders of files that an argument with this name wants; of any other, all.
pub(super) fn kinds(value_name: &str) -> &'static [&'static str] {
    let of = |word: &str| value_name.split(['|', '[', ':']).any(|name| name == word);
    if of("ELF") || of("PROG") {
        return &["programs", "symfs", "sframe", "field", "elf", "loader"];
    }
    if of("OBJECT") {
        return &["bpf", "bpf_object", "perfdata"];
    }
    if of("SCENARIO") {
        return &["scenarios", "scenario"];
    }
    if of("TRACE") {
        return &[
            "traces", "field", "perfdata", "cores", "kernel", "trace", "core", "capture",
        ];
    }
    &[]
}
