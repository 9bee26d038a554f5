//! Limits: those that a process sets itself, compared with Linux, and those of the machine.

use super::{build, options, same_as_native, start};
use unwind_sim_emulator::linux::{Kernel, Limit, Limits, Notice, Outcome, ProcessOptions};

/// More than any of the programs executes.
const INSTRUCTIONS_MAX: u64 = 200_000_000;

#[test]
fn limits_that_a_process_sets_are_as_on_linux() {
    let text = same_as_native("limits", &[]);
    assert!(text.lines().count() > 60, "{text}");
}

/// Runs `exhaust HOW` with a limit.
fn exhaust(how: &str, limit: Limit, value: u64) -> (Outcome, Kernel) {
    let directory = tempfile::tempdir().expect("a folder");
    let program = build("exhaust", directory.path());
    let mut limits = Limits::default();
    limits.set(limit, value);
    let options = ProcessOptions {
        limits,
        ..options(&program, &[how], directory.path())
    };
    let mut kernel = start(&program, options);
    (kernel.run(INSTRUCTIONS_MAX, &mut ()), kernel)
}

/// What the program said, and that there is a notice of the limit.
fn answers(how: &str, limit: Limit, value: u64) -> String {
    let (outcome, kernel) = exhaust(how, limit, value);
    let text = String::from_utf8_lossy(kernel.stdout()).into_owned();
    assert_eq!(outcome, Outcome::Exited(0), "{how}: {text}");
    assert_eq!(kernel.notices(), [Notice::Limit(limit)], "{how}");
    text
}

#[test]
fn limits_of_the_machine_give_the_errors_of_linux() {
    // The program itself is one of them.
    assert_eq!(
        answers("processes", Limit::Tasks, 10),
        "made 9\nerror -11\n"
    );
    assert_eq!(answers("threads", Limit::Tasks, 10), "made 9\nerror -11\n");
    assert_eq!(answers("zombies", Limit::Tasks, 10), "made 9\nerror -11\n");

    // EAGAIN is 11, ENFILE 23 and ENOSPC 28. A pipe counts twice.
    assert_eq!(answers("pipes", Limit::Objects, 20), "made 10\nerror -23\n");
    assert_eq!(
        answers("sockets", Limit::Objects, 20),
        "made 20\nerror -23\n"
    );
    assert_eq!(
        answers("counters", Limit::Objects, 20),
        "made 20\nerror -23\n"
    );
    for how in ["posix-timers", "queued-signals"] {
        assert_eq!(
            answers(how, Limit::Objects, 20),
            "made 20\nerror -11\n",
            "{how}"
        );
    }

    let made = |text: &str| -> u64 {
        let line = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("made "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    };

    for how in ["files", "folders", "deep", "links", "names"] {
        let text = answers(how, Limit::Files, 1 << 20);
        assert!(text.ends_with("error -28\n"), "{how}: {text}");
        assert!((100..20_000).contains(&made(&text)), "{how}: {text}");
    }
}

/// The texts of `/proc` that descriptors keep are memory, until they are closed.
#[test]
fn texts_of_the_kernel_count_as_memory() {
    let text = answers("texts", Limit::Memory, 8 << 20);
    let [made, error, again] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    let made = made.strip_prefix("made ").and_then(|n| n.parse().ok());
    assert!(made.is_some_and(|n: u32| (10..200).contains(&n)), "{text}");
    assert_eq!([error, again], ["error -12", "again 3"], "{text}");
}

/// What was made and removed again does not count.
#[test]
fn what_is_removed_makes_room() {
    for how in ["again-file", "again-process", "again-pipe"] {
        let (outcome, kernel) = exhaust(how, Limit::Files, 1 << 20);
        assert_eq!(outcome, Outcome::Exited(0), "{how}");
        assert_eq!(kernel.stdout(), b"made 4000\nerror 0\n", "{how}");
        assert_eq!(kernel.notices(), &[] as &[Notice], "{how}");
    }
}

#[test]
fn a_fork_bomb_ends_the_run() {
    for how in ["bomb", "thread-bomb"] {
        let (outcome, kernel) = exhaust(how, Limit::Tasks, 200);
        assert!(
            matches!(outcome, Outcome::OutOfTasks { .. }),
            "{how}: {outcome:?}"
        );
        assert!(outcome.to_string().contains("--limit tasks=N"), "{outcome}");
        assert_eq!(kernel.notices(), [Notice::Limit(Limit::Tasks)]);
    }
    let (outcome, _) = exhaust("memory-bomb", Limit::Memory, 8 << 20);
    assert!(matches!(outcome, Outcome::OutOfPages { .. }), "{outcome:?}");
    assert!(
        outcome.to_string().contains("--limit memory=N"),
        "{outcome}"
    );
}
