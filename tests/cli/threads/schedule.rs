//! `--schedule` and `--print-schedule`.

use super::{program, run, text};
use crate::cli::{status, stderr, stdout, tool};
use crate::common::compiler::Scratch;
use std::io::Write;
use std::process::Stdio;
use unwind_sim_judge::shell::quoted;

const RACE: &str = include_str!("programs/race.c");
const PROCESSES: &str = include_str!("programs/processes.c");

/// The number of instructions that `--stats` prints.
fn instructions(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(" instructions in "));
    let number = line.and_then(|line| line.split(' ').next());
    let number = number.unwrap_or_else(|| panic!("{said}"));
    number.parse().expect("a number")
}

/// Runs a program with a seed, replays its schedule, and compares. Returns the output and the
/// schedule.
fn replayed(scratch: &Scratch, program: &str, seed: &str) -> (String, String) {
    let (printed, again) = (text(&scratch.path("printed")), text(&scratch.path("again")));
    let first = run(&[
        "emulate",
        "--stats",
        "--seed",
        seed,
        "--print-schedule",
        &printed,
        "--",
        program,
    ]);
    assert_eq!(status(&first), 0, "{}", stderr(&first));

    // The same seed, since it also decides random bytes; and prints its own schedule, to be
    // compared.
    let second = run(&[
        "emulate",
        "--stats",
        "--seed",
        seed,
        "--schedule",
        &printed,
        "--print-schedule",
        &again,
        "--",
        program,
    ]);
    assert_eq!(status(&second), 0, "{}", stderr(&second));

    assert_eq!(stdout(&first), stdout(&second), "seed {seed}");
    // The same output could come of other turns; the number of instructions hardly could.
    assert_eq!(instructions(stderr(&first)), instructions(stderr(&second)));

    let read = |path: &str| std::fs::read_to_string(path).expect("a schedule");
    assert_eq!(read(&printed), read(&again), "seed {seed}");
    (stdout(&first).to_owned(), read(&printed))
}

/// The instructions of all turns.
fn sum(schedule: &str) -> u64 {
    let lines = schedule.lines().filter(|line| !line.starts_with('#'));
    let turns = lines.flat_map(|line| line.split(' '));
    turns
        .map(|turn| {
            turn.split_once(':')
                .and_then(|(_, n)| n.parse::<u64>().ok())
        })
        .map(|n| n.expect("THREAD:INSTRUCTIONS"))
        .sum()
}

#[test]
fn a_race_is_replayed() {
    let scratch = Scratch::new();
    let program = program(&scratch, "race", RACE);
    let runs = ["0", "1", "2", "3"].map(|seed| replayed(&scratch, &program, seed));
    assert!(
        runs.iter().all(|(said, _)| said != "123 60000\n"),
        "{runs:?}"
    );
    assert_ne!(runs[0].1, runs[1].1, "the seed decides");
    let stats = run(&["emulate", "--stats", "--", &program]);
    assert_eq!(sum(&runs[0].1), instructions(stderr(&stats)));
}

#[test]
fn processes_pipes_and_signals_are_replayed() {
    let scratch = Scratch::new();
    let program = program(&scratch, "processes", PROCESSES);
    for seed in ["0", "1", "2", "3"] {
        let (said, schedule) = replayed(&scratch, &program, seed);
        let wanted = "read 300000\nchild\nsignals came\nagain\n";
        assert_eq!(said, wanted, "seed {seed}");
        // A write that fills a pipe in parts takes turns without an instruction.
        assert!(
            schedule.split_whitespace().any(|turn| turn.ends_with(":0")),
            "{schedule}"
        );
    }
}

#[test]
fn every_command_follows_a_schedule() {
    let scratch = Scratch::new();
    let program = program(&scratch, "race", RACE);
    let paths = ["one", "two", "three", "trace"].map(|name| text(&scratch.path(name)));
    let [one, two, three, trace] = paths.each_ref().map(|path| &path[..]);
    let read = |path: &str| std::fs::read_to_string(path).expect("a schedule");

    // The program's output depends on the turns, so it shows whether they are followed.
    let output = run(&[
        "emulate",
        "--seed",
        "5",
        "--print-schedule",
        one,
        "--",
        &program,
    ]);
    assert_eq!(status(&output), 0);

    // `verify` runs the same program along the schedule of `emulate`, and prints the same one.
    let checked = run(&[
        "verify",
        "-u",
        "fp",
        "--seed",
        "5",
        "--schedule",
        one,
        "--print-schedule",
        two,
        "--",
        &program,
    ]);
    assert_eq!(status(&checked), 0, "{}", stderr(&checked));
    assert_eq!(read(one), read(two));

    // What is printed to repeat a finding follows the schedule, too.
    let again = format!("--schedule {}", quoted(one));
    assert!(stdout(&checked).contains(&again), "{}", stdout(&checked));

    let recorded = run(&[
        "record",
        "--engine",
        "emulator",
        "--at",
        "every:5000",
        "-o",
        trace,
        // As the others have it.
        "--keep-env",
        "--seed",
        "5",
        "--schedule",
        one,
        "--print-schedule",
        three,
        "--",
        &program,
    ]);

    // The output depends on the order of threads, and is the same.
    assert_eq!(stdout(&recorded), stdout(&output));
    assert_eq!(read(one), read(three));
}

#[test]
fn a_schedule_is_edited_by_hand() {
    let scratch = Scratch::new();
    let program = program(&scratch, "race", RACE);

    let emulate = |schedule: &str| {
        let mut tool = tool(&[
            "emulate",
            "--schedule",
            "-",
            "--print-schedule",
            "-",
            "--",
            &program,
        ]);
        let tool = tool
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut running = tool.spawn().expect("the tool runs");
        let mut stdin = running.stdin.take().expect("a pipe");
        stdin.write_all(schedule.as_bytes()).expect("written");
        // The schedule ends with the pipe.
        drop(stdin);
        running.wait_with_output().expect("it ends")
    };

    // Each thread runs to its end, in this order.
    let output = emulate("# by hand\n1000:* 1003:*\n1001:* # then\n\n1002:*");
    assert!(
        stdout(&output).starts_with("312 60000\n"),
        "{}",
        stdout(&output)
    );
    assert_eq!(status(&output), 0);

    // The last turn lasts until the first thread ends; then there is nothing left to schedule.
    let output = emulate("1000:* 1003:* 1001:* 1002:* 1000:*");
    assert!(stdout(&output).starts_with("312 60000\n"));
    assert_eq!(status(&output), 0);

    // A short beginning: the seed decides what follows.
    let output = emulate("1000:* 1002:1000");
    assert!(stdout(&output).starts_with('2'), "{}", stdout(&output));
    assert!(stdout(&output).contains("\n1000:") && status(&output) == 0);
}

#[test]
fn what_does_not_fit_says_where() {
    let scratch = Scratch::new();
    let program = program(&scratch, "race", RACE);
    let path = text(&scratch.path("schedule"));

    let fails = |schedule: &str| {
        std::fs::write(&path, schedule).expect("written");

        // Both commands follow schedules, and must say the same of a wrong one.
        let outputs = ["emulate", "verify"].map(|command| {
            let mut args = vec![command, "--schedule", &path];
            args.extend(
                (command == "verify")
                    .then_some(["-u", "fp"])
                    .into_iter()
                    .flatten(),
            );
            args.extend(["--", &program]);
            run(&args)
        });

        for output in &outputs {
            assert_eq!(status(output), 2, "{schedule}: {}", stderr(output));
        }
        let [emulated, verified] = outputs.each_ref().map(stderr);
        let of_verify = verified.lines().last().expect("an error");
        assert_eq!(emulated.lines().last(), Some(of_verify));
        emulated.lines().last().expect("an error").to_owned()
    };

    // A thread that was never created, in the third line.
    let error = fails("1000:*\n1001:10\n 1009:5");
    assert!(
        error.contains("line 3: the schedule does not fit: turn 3, 1009:5"),
        "{error}"
    );
    assert!(
        error.ends_with("thread 1009 has ended, or was never created"),
        "{error}"
    );

    // More instructions than a thread can execute before it waits for another one.
    let error = fails("1000:999999999 1001:10");
    assert!(
        error.contains("line 1: ") && error.contains("turn 1, "),
        "{error}"
    );
    let waits = "thread 1000 waits in futex, while 1001 can run";
    assert!(
        error.contains("after ") && error.ends_with(waits),
        "{error}"
    );

    // More than a thread executes until it ends.
    let error = fails("1000:* 1001:999999999");
    assert!(
        error.contains("turn 2, ") && error.contains("1001 has ended"),
        "{error}"
    );

    // Turns that are left when the program has ended.
    let error = fails("1000:* 1001:* 1002:* 1003:* 1000:* 1000:7");
    assert!(
        error.ends_with("the run ended before the end of turn 6"),
        "{error}"
    );

    // Empty lines count, too.
    let error = fails("1000:5\n\n1001 7");
    assert!(error.contains("line 3: `1001` is not a turn"), "{error}");

    // A device never ends, and so must not be read.
    let output = run(&["emulate", "--schedule", "/dev/zero", "--", &program]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("this is a device, not a file"),
        "{}",
        stderr(&output)
    );

    // 0xff stands nowhere in UTF-8.
    std::fs::write(&path, [0xff, 0xfe]).expect("written");
    let output = run(&["emulate", "--schedule", &path, "--", &program]);
    assert!(
        stderr(&output).contains("it is not text"),
        "{}",
        stderr(&output)
    );
}
