//! Every system call that the machine answers, compared with Linux: the programs in `calls/` make
//! each call with good, odd and bad arguments, in the machine and natively, and must print the
//! same, line by line. `calls/cases.h` hides by name what may differ.

use super::{INSTRUCTIONS_MAX, build, native, options, same_as_native_but, start};
use crate::skip::skip;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use unwind_sim_emulator::linux::{
    Notice, Outcome, ProcessObserver, ProcessOptions, SystemCall, Task, system_call_name,
};
use unwind_sim_emulator::machine::Executed;
use unwind_sim_emulator::{Core, Observer, State};

/// Larger than all system call numbers.
const NUMBERS_END: u64 = 600;

/// Calls that cannot be compared, and why.
const NEVER_COMPARED: [(&str, &str); 18] = [
    ("mbind", NOT_BUILT_IN),
    ("set_mempolicy", NOT_BUILT_IN),
    ("get_mempolicy", NOT_BUILT_IN),
    ("add_key", NOT_BUILT_IN),
    ("request_key", NOT_BUILT_IN),
    ("keyctl", NOT_BUILT_IN),
    ("migrate_pages", NOT_BUILT_IN),
    ("move_pages", NOT_BUILT_IN),
    ("bpf", NOT_BUILT_IN),
    ("userfaultfd", NOT_BUILT_IN),
    ("io_uring_setup", NOT_BUILT_IN),
    ("io_uring_enter", NOT_BUILT_IN),
    ("io_uring_register", NOT_BUILT_IN),
    ("landlock_create_ruleset", NOT_BUILT_IN),
    ("landlock_add_rule", NOT_BUILT_IN),
    ("landlock_restrict_self", NOT_BUILT_IN),
    ("set_mempolicy_home_node", NOT_BUILT_IN),
    ("fchmodat2", "it is new in Linux 6.6"),
];

/// The machine's kernel is one that was built without these.
const NOT_BUILT_IN: &str = "kernels differ in whether they have it";

/// The calls made by a program.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Observer for Seen {
    fn before(&mut self, _: &Core, _: &Executed) {}
    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl ProcessObserver for Seen {
    fn system_call(&mut self, call: &SystemCall, _: &Core) {
        self.0.insert(call.number);
    }
}

/// Runs a program in the machine and natively; returns the calls that it made.
fn compare(name: &str) -> Seen {
    let mut seen = Seen::default();
    let arguments: &[&str] = if is_privileged() {
        &["privileged"]
    } else {
        &[]
    };
    let text = same_as_native_but(&format!("calls/{name}"), arguments, &mut seen);
    assert!(text.lines().count() > 80, "{text}");
    seen
}

/// Whether this process may become any user: it is root with the necessary capabilities, and other
/// users exist.
pub(super) fn is_privileged() -> bool {
    /// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SETGID, CAP_SETUID, CAP_SYS_CHROOT.
    const NEEDED: u64 = 0b1100_1111 | 1 << 18;
    const USERS: u64 = 65536;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap_or(0);
    let is_root = field("Uid:").split('\t').all(|id| id == "0");
    let has_users = |path| {
        let map = read(path);
        let numbers: Vec<u64> = map.split_whitespace().flat_map(str::parse).collect();
        matches!(numbers[..], [0, _, count] if count >= USERS)
    };
    let has_others = has_users("/proc/self/uid_map") && has_users("/proc/self/gid_map");
    is_root && has_others && capabilities & NEEDED == NEEDED
}

/// Whether /dev and /dev/shm are not what they are on every Linux, as in a root folder without
/// mounts; skips the test if so.
fn lacks_folders(test: &str) -> bool {
    let device = |path: &std::path::Path| std::fs::metadata(path).map(|data| data.dev()).ok();
    let has_shared_memory = tempfile::tempfile_in("/dev/shm").is_ok();
    let is_mounted = device(std::path::Path::new("/dev")) != device(&std::env::temp_dir());
    let lacks = !has_shared_memory || !is_mounted;
    if lacks {
        skip(test, "/dev and /dev/shm are not mounted here");
    }
    lacks
}

#[test]
fn reading_writing_and_descriptors_are_as_on_linux() {
    compare("io");
}

#[test]
fn names_are_as_on_linux() {
    compare("names");
}

#[test]
fn attributes_are_as_on_linux() {
    if lacks_folders("attributes_are_as_on_linux") {
        return;
    }
    compare("attributes");
}

#[test]
fn mappings_are_as_on_linux() {
    compare("mapping");
}

#[test]
fn memory_shared_through_files_is_as_on_linux() {
    if lacks_folders("memory_shared_through_files_is_as_on_linux") {
        return;
    }
    compare("shared");
}

#[test]
fn files_with_holes_are_as_on_linux() {
    compare("sparse");
}

#[test]
fn system_v_ipc_is_as_on_linux() {
    compare("ipc");
}

#[test]
fn locks_of_files_are_as_on_linux() {
    compare("locks");
}

#[test]
fn processor_time_is_as_on_linux() {
    compare("usage");
}

#[test]
fn fifos_are_as_on_linux() {
    compare("fifos");
}

/// Whether there are pseudo-terminals here to compare with; skips the test if not.
fn has_terminals(test: &str) -> bool {
    let opened = std::fs::OpenOptions::new().read(true).open("/dev/ptmx");
    if opened.is_err() {
        skip(test, "no pseudo-terminals here");
    }
    opened.is_ok()
}

#[test]
fn pseudo_terminals_are_as_on_linux() {
    if has_terminals("pseudo_terminals_are_as_on_linux") {
        compare("terminals");
    }
}

#[test]
fn sessions_and_their_terminals_are_as_on_linux() {
    if has_terminals("sessions_and_their_terminals_are_as_on_linux") {
        compare("sessions");
    }
}

#[test]
fn what_few_programs_ask_is_as_on_linux() {
    compare("extra");
}

#[test]
fn inotify_is_as_on_linux() {
    compare("inotify");
}

#[test]
fn waiting_is_as_on_linux() {
    compare("waiting");
}

#[test]
fn epoll_timers_and_descriptors_of_signals_and_processes_are_as_on_linux() {
    compare("objects");
}

#[test]
fn sockets_are_as_on_linux() {
    compare("sockets");
}

#[test]
fn sending_signals_is_as_on_linux() {
    compare("signals");
}

#[test]
fn clocks_and_timers_are_as_on_linux() {
    compare("time");
}

#[test]
fn restartable_sequences_and_settings_are_as_on_linux() {
    compare("control");
}

#[test]
fn what_a_process_says_of_itself_is_as_on_linux() {
    compare("self");
}

#[test]
fn calls_about_other_threads_and_processes_are_as_on_linux() {
    if !keeps_nice_value("calls_about_other_threads_and_processes_are_as_on_linux") {
        compare("others");
    }
}

#[test]
fn texts_of_proc_and_sizes_of_pipes_are_as_on_linux() {
    compare("texts");
}

#[test]
fn programs_by_descriptor_other_roots_and_kept_capabilities_are_as_on_linux() {
    if lacks_folders("programs_by_descriptor_other_roots_and_kept_capabilities_are_as_on_linux") {
        return;
    }
    compare("executes");
}

/// Not compared with Linux: before 6.8 the arguments were read first.
#[test]
fn a_program_is_found_before_its_arguments_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("order", directory.path());
    let mut process = start(&program, options(&program, &[], directory.path()));
    let outcome = process.run(INSTRUCTIONS_MAX, &mut ());
    assert_eq!(outcome, Outcome::Exited(0));
    let said = String::from_utf8_lossy(process.stdout()).into_owned();
    let expected = "missing -2\nmissing -2\nplain -13\nfolder -13\nodd -14\nodd -14\n\
                    flags -22\nmissing -2\nclosed -9\nplain -13\nodd -14\n";
    assert_eq!(said, expected);
}

/// Whether native programs keep a nice value of whoever runs the tests, which only some users may lower;
/// skips the test if so.
fn keeps_nice_value(test: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let told = native(Path::new("nice"), &[], directory.path());
    let keeps = told.stdout.trim_ascii() != b"0";
    if keeps {
        skip(
            test,
            "the tests run with a nice value that this user may not lower",
        );
    }
    keeps
}

/// Whether one process may not trace another here, as where a filter forbids it; skips the test if so.
fn lacks_tracing(test: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("calls/traces", directory.path());
    let asked = native(&program, &["only", "ask"], directory.path());
    if !asked.status.success() {
        skip(
            test,
            "ptrace is denied here, or this kernel lacks some of its requests",
        );
    }
    !asked.status.success()
}

#[test]
fn requests_of_tracers_are_as_on_linux() {
    if !lacks_tracing("requests_of_tracers_are_as_on_linux") {
        compare("traces");
    }
}

#[test]
fn events_and_ends_of_traced_threads_are_as_on_linux() {
    if !lacks_tracing("events_and_ends_of_traced_threads_are_as_on_linux") {
        compare("events");
    }
}

#[test]
fn stops_of_traced_threads_are_as_on_linux() {
    if !lacks_tracing("stops_of_traced_threads_are_as_on_linux") {
        compare("stops");
    }
}

/// An observer hears of what a tracer changes of a thread's callee-saved registers, rip or stack; not of steps
/// back over breakpoints, of other registers, code and data.
#[test]
fn what_a_tracer_changes_is_told() {
    #[derive(Default)]
    struct Disturbed(Vec<Task>);

    impl Observer for Disturbed {
        fn before(&mut self, _: &Core, _: &Executed) {}
        fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
    }

    impl ProcessObserver for Disturbed {
        fn disturbed(&mut self, task: Task, _: &State) {
            self.0.push(task);
        }
    }

    let directory = tempfile::tempdir().expect("a directory");
    let disturbed = |name: &str| {
        let program = build(&format!("calls/{name}"), directory.path());
        let mut process = start(&program, options(&program, &[], directory.path()));
        let mut seen = Disturbed::default();
        let outcome = process.run(INSTRUCTIONS_MAX, &mut seen);
        assert_eq!(outcome, Outcome::Exited(0), "{name}");
        seen.0
    };
    // rbx and rip, then r15, of the same thread.
    let tasks = disturbed("traces");
    assert!(
        matches!(tasks[..], [one, other] if one == other),
        "{tasks:?}"
    );
    assert_eq!(disturbed("stops"), []);
}

/// What a tracer sees does not depend on when the threads run.
#[test]
fn tracing_is_the_same_in_every_schedule() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["traces", "stops", "events"] {
        let program = build(&format!("calls/{name}"), directory.path());
        let said = |seed| {
            let folder = tempfile::tempdir().expect("a directory");
            let options = ProcessOptions {
                seed,
                ..options(&program, &[], folder.path())
            };
            let mut process = start(&program, options);
            let outcome = process.run(INSTRUCTIONS_MAX, &mut ());
            assert_eq!(outcome, Outcome::Exited(0), "{name}, seed {seed}");
            String::from_utf8_lossy(process.stdout()).into_owned()
        };
        let first = said(0);
        assert!(first.lines().count() > 250, "{first}");
        for seed in 1..4 {
            assert_eq!(first, said(seed), "{name}, seed {seed}");
        }
    }
}

/// Whether the kernel lacks the calls of a program, or a filter forbids them; skips the test if so.
fn lacks_calls(test: &str, name: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(&format!("calls/{name}"), directory.path());
    let asked = native(&program, &["only", "ask"], directory.path());
    if !asked.status.success() {
        skip(
            test,
            "this kernel lacks futex_waitv, kcmp or message queues",
        );
    }
    !asked.status.success()
}

#[test]
fn message_queues_are_as_on_linux() {
    if !lacks_calls("message_queues_are_as_on_linux", "queues") {
        compare("queues");
    }
}

#[test]
fn several_futexes_what_is_shared_and_handles_are_as_on_linux() {
    let test = "several_futexes_what_is_shared_and_handles_are_as_on_linux";
    if !lacks_calls(test, "compared") {
        compare("compared");
    }
}

/// The calls that the machine answers: those that leave no notice of a missing call.
fn answered() -> BTreeSet<u64> {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("calls/probe", directory.path());
    let is_answered = |number: &u64| {
        let text = number.to_string();
        let mut process = start(&program, options(&program, &[&text], directory.path()));
        process.run(INSTRUCTIONS_MAX, &mut ());
        let is_unknown = |notice: &Notice| matches!(notice, Notice::Call(n, _) if n == number);
        !process.notices().iter().any(is_unknown)
    };
    let named = (0..NUMBERS_END).filter(|&number| system_call_name(number).is_some());
    named.filter(is_answered).collect()
}

#[test]
fn every_call_that_is_answered_is_compared_with_linux() {
    let test = "every_call_that_is_answered_is_compared_with_linux";
    if lacks_folders(test)
        || lacks_calls(test, "compared")
        || lacks_calls(test, "queues")
        || lacks_tracing(test)
        || keeps_nice_value(test)
    {
        return;
    }

    let programs = [
        "io",
        "names",
        "attributes",
        "mapping",
        "shared",
        "sparse",
        "ipc",
        "locks",
        "usage",
        "extra",
        "inotify",
        "waiting",
        "objects",
        "sockets",
        "signals",
        "time",
        "control",
        "self",
        "others",
        "texts",
        "executes",
        "compared",
        "queues",
        "traces",
        "stops",
        "events",
    ];
    let compared: BTreeSet<u64> = programs
        .into_iter()
        .flat_map(|name| compare(name).0)
        .collect();

    let answered = answered();
    // Nothing would be missing from an empty list.
    assert!(answered.len() > 180, "{answered:?}");
    let named = |number: &u64| system_call_name(*number).unwrap_or("").to_owned();
    let missing: Vec<String> = answered.difference(&compared).map(named).collect();
    let never: Vec<&str> = NEVER_COMPARED.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        missing, never,
        "calls without cases in emulator/tests/linux/calls"
    );
}
