//! `perf script` as people type it: filters, formats, and errors.

use crate::cli::{ends_with, run, snapshot, status, stderr};

/// Two threads, and programs with source lines.
const RECORDING: &str = "corpus/perfdata/threads4-switch-defer.data";
const KERNEL: &str = "--kallsyms=corpus/perfdata/script/kallsyms.txt";
const FILES: &str = "--symfs=corpus/perfdata/script/symfs";
const SYSCALLS: &str = "corpus/perfdata/poll-syscalls-defer.data";
const BREAKPOINTS: &str = "corpus/perfdata/fields.data";

#[test]
fn help_and_a_few_samples() {
    snapshot("perf-script-help", &["perf", "script", "--help"]);
    let print = ["perf", "script", KERNEL, FILES];
    let snap = |name: &str, args: &[&str]| snapshot(name, &[&print, args].concat());

    // A part of a chain, of some time, with lines of the source.
    let fields = "comm,tid,time,ip,sym,symoff,srcline";
    let lines = [
        "--max-stack",
        "12",
        "--time",
        "21.7692,21.7694",
        "-i",
        RECORDING,
    ];
    snap("perf-script-lines", &[&["-F", fields][..], &lines].concat());

    // No chains, and a field more and one less than by default.
    let hidden = [
        "-G",
        "-F",
        "+addr,-dso",
        "--time",
        "10%-30%",
        "-i",
        BREAKPOINTS,
    ];
    snap("perf-script-hidden", &hidden);

    // Deferred chains are left as perf recorded them.
    let alone = [
        "--no-merge-callchains",
        "-G",
        "-F",
        "comm,time,ip,sym,dso,srcline",
        "-i",
        SYSCALLS,
    ];
    snap("perf-script-hidden-deferred", &alone);
}

/// Printed thread by thread, the samples are those printed together.
#[test]
fn tasks_are_chosen_in_every_format() {
    let all = ends_with(0, &["perf", "script", "-G", "-F", "tid,time", RECORDING]);
    let mut threads: Vec<&str> = all
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() > 2, "{threads:?}");

    let mut total = 0;
    for tid in &threads {
        let args = [
            "perf", "script", "-G", "-F", "tid,time", "--tid", tid, RECORDING,
        ];
        let one = ends_with(0, &args);
        let wanted = all
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(tid));
        assert!(one.lines().eq(wanted), "{tid}");
        total += one.lines().count();

        // Folded stacks end with the number of their samples.
        let folded = [
            "perf", "script", "--format", "folded", "--tid", tid, RECORDING,
        ];
        let folded = ends_with(0, &folded);
        let counts = folded.lines().filter_map(|line| line.rsplit(' ').next());
        let counted: usize = counts.map(|n| n.parse::<usize>().expect("a count")).sum();
        assert_eq!(counted, one.lines().count(), "{tid}");
    }

    // Every sample is of exactly one thread.
    assert_eq!(total, all.lines().count());

    // All threads together are no choice.
    let many = threads.join(",");
    let args = [
        "perf", "script", "-G", "-F", "tid,time", "--tid", &many, RECORDING,
    ];
    assert_eq!(ends_with(0, &args), all);
}

/// Only one thread of a process has the process's id.
#[test]
fn a_process_has_several_threads() {
    let print = ["perf", "script", "-G", "-F", "pid,tid,time", RECORDING];
    let all = ends_with(0, &print);
    let others = all.lines().filter(|line| !line.contains(" 146/146 "));
    assert!(others.count() > 10);
    assert_eq!(ends_with(0, &[&print[..], &["--pid", "146"]].concat()), all);
    let thread = ends_with(0, &[&print[..], &["--pid", "148"]].concat());
    assert_eq!(thread, "", "148 is not a process");
}

/// A page fault shows the symbol at its data address, but a source line only for its code.
#[test]
fn data_has_no_line() {
    let fields = ["-G", "-F", "addr,ip,sym,srcline"];
    let print = ["perf", "script", KERNEL, FILES, BREAKPOINTS];
    let text = ends_with(0, &[&print[..], &fields].concat());
    assert!(text.contains("watched           401019 inner\n  fields[401019]\n"));
    let mut lines = text.lines().filter(|line| line.starts_with("  fields["));
    assert!(lines.clone().count() > 20 && lines.all(|line| line.ends_with(']')));
}

#[test]
fn names_come_from_a_file_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("names");
    std::fs::write(&list, "nobody\nfields\n").expect("a file");
    let list = format!("file://{}", list.display());

    let printed = |comms: &str| {
        ends_with(
            0,
            &["perf", "script", "-G", "--comms", comms, "-i", BREAKPOINTS],
        )
    };

    // The list names the program, among others.
    assert_eq!(printed(&list), printed("fields"));
    assert_eq!(printed("nobody"), "");

    // A list that is not there is an error: taken as a name, it would match no thread, without a
    // word.
    let missing = run(&[
        "perf",
        "script",
        "--comms",
        "file:///no/such/list",
        BREAKPOINTS,
    ]);
    assert_eq!(status(&missing), 2);
    assert!(
        stderr(&missing).contains("/no/such/list"),
        "{}",
        stderr(&missing)
    );
}

/// `--max-stack` also limits chains that are joined from two parts.
#[test]
fn joined_chains_have_at_most_so_many_frames() {
    for like in [&[][..], &["--like", "perf-7.2"]] {
        for (depth, least) in [("0", 0), ("1", 1), ("3", 3)] {
            let args = ["perf", "script", "--max-stack", depth, KERNEL, RECORDING];
            let text = ends_with(0, &[&args[..], like].concat());
            let frames = |block: &str| block.lines().filter(|l| l.starts_with('\t')).count();
            // The line that says why there are no user frames is not a frame.
            let joined = text
                .split("\n\n")
                .filter(|block| !block.contains("[no user frames"));
            let deepest = joined.map(frames).max();
            assert_eq!(deepest, Some(least), "{depth} {like:?}");
        }
    }
}

/// Without chains, every mode of joining prints one line for each sample.
#[test]
fn hidden_chains_are_not_joined() {
    let print = ["perf", "script", "-G", "-F", "tid,time,ip", RECORDING];
    let own = ends_with(0, &print);
    let lines = ends_with(0, &["perf", "script", "-G", "-F", "tid,time", RECORDING]);
    assert!(
        own.lines()
            .zip(lines.lines())
            .all(|(own, line)| own.starts_with(line))
    );
    assert_eq!(own.lines().count(), lines.lines().count());
    let perfs = ends_with(0, &[&print[..], &["--like", "perf-7.2"]].concat());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&own), sorted(&perfs));
}

/// An unsupported option of perf gives one line that names the nearest supported one.
#[test]
fn options_that_are_not_supported_name_another() {
    for (option, nearest) in [
        ("-I", "--header"),
        ("--show-info", "--header"),
        ("-D", "unwind-sim inspect"),
        ("--show-task-events", "unwind-sim inspect"),
        ("-s", "--format"),
        ("--inline", "-F +srcline"),
        ("--itrace=i100us", "unwind-sim inspect"),
        ("-k", "--kallsyms"),
        ("--reltime", "--time"),
        ("-S", "--comms"),
    ] {
        let output = run(&["perf", "script", option, "-i", BREAKPOINTS]);
        let said = stderr(&output);
        assert_eq!(status(&output), 2, "{option}");
        assert!(
            said.contains("is not supported") && said.contains(nearest),
            "{said}"
        );
        // One line: clap's own message would come with a usage that does not help here.
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    // Options that perf does not have either, and other subcommands, keep the usual message.
    for args in [
        ["perf", "script", "--no-such"],
        ["perf", "stitch", "--itrace"],
    ] {
        let output = run(&args);
        assert!(
            stderr(&output).contains("unexpected argument"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn invalid_values_are_refused_with_what_is_accepted() {
    // Each message says what would have been accepted, or which field is missing.
    for (args, wanted) in [
        (["--max-stack", "-1"], "accepted: a number of frames"),
        (["--max-stack", "many"], "accepted: a number of frames"),
        (["--max-stack", "4294967295"], "0 to 2147483647"),
        (["--pid", "12,x"], "\"x\" is not an id; accepted"),
        (["--tid", "-5"], "\"-5\" is not an id; accepted"),
        (["--tid", ""], "is not an id; accepted"),
        (["--time", "soon"], "accepted: START,STOP in seconds"),
        (
            ["--time", "1,x"],
            "\"x\" is not a number of seconds; accepted",
        ),
        (["--time", "2,1"], "\"2,1\" ends before it starts"),
        (
            ["--time", "10%-200%"],
            "is not a part from 0% to 100%; accepted",
        ),
        (
            ["-F", "comm,iregs"],
            "the field iregs is not supported; known fields: comm",
        ),
        (
            ["-F", "comm,what"],
            "\"what\" is not a field; known fields: comm",
        ),
        (["-F", "srcline"], "the field srcline needs the field ip"),
        (["-F", "raw:"], "the recording has no raw events"),
    ] {
        let output = run(&["perf", "script", args[0], args[1], "-i", BREAKPOINTS]);
        assert_eq!(status(&output), 2, "{args:?}");
        let said = stderr(&output);
        assert!(said.contains(wanted), "{args:?}: {said}");
    }

    // Percentages need a recording with its times in the header.
    let parts = [
        "perf",
        "script",
        "--time",
        "10%",
        "corpus/perfdata/fp-pipe.data",
    ];
    let output = run(&parts);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("give seconds (12.5,13)"),
        "{}",
        stderr(&output)
    );

    // An input twice, as an option and as an argument.
    let twice = run(&["perf", "script", "-i", BREAKPOINTS, BREAKPOINTS]);
    assert_eq!(status(&twice), 2);

    // Profiles have no place for a header.
    let profile = [
        "perf",
        "script",
        "--header",
        "--format",
        "folded",
        BREAKPOINTS,
    ];
    let said = run(&profile);
    assert!(stderr(&said).contains("--header works only with --format perf-script"));
}

/// Bit 38 of the event's flags is set, and bit 39 of none: no record is written.
#[test]
fn records_that_no_event_asks_for_are_not_missed_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("perf.data");
    let data = data.to_str().expect("text");
    let scenario = "corpus/scenarios/upstream/no-event-asks-for-records.txt";
    let made = run(&["perf", "run", scenario, "-o", data]);
    assert_eq!(status(&made), 0, "{}", stderr(&made));
    let script = run(&["perf", "script", data]);
    let text = String::from_utf8_lossy(&script.stdout).into_owned();
    assert!(text.contains("[no user frames: not-asked]"), "{text}");
}
