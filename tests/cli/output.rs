//! The readable output of commands.

use crate::cli::{SEED, THROWS, ends_with, root, run, snapshot, status, stderr, stdout, tool};
use std::process::Stdio;
use unwind_sim_unwind::reason::Code;

#[test]
fn the_demo() {
    snapshot("demo-seed-004", &["demo", "seed-004"]);
    snapshot("demo-list", &["demo"]);
}

#[test]
fn chains() {
    snapshot("replay-seed-004", &["replay", SEED, "--unwinder", "all"]);
    let starts = "hw,fake:v5.1,fake:v3-2019,fake:v5.2,fake:always-ip";
    let args = [
        "replay",
        SEED,
        "--unwinder",
        "orc",
        "--regs",
        starts,
        "--sample",
        "2",
    ];
    snapshot("replay-seed-004-starts", &args);
    let args = ["replay", THROWS, "--unwinder", "all", "--sample", "1000"];
    snapshot("replay-throws", &args);
    let view = ["replay", THROWS, "--sample", "1000", "--view", "copy:256"];
    snapshot("replay-throws-copy", &view);
}

#[test]
fn callchains_as_perf_has_them() {
    const TRACE: &str = "corpus/kernel/6.1-callchains.bin";
    let with = |name: &str, sample: &str, rest: &[&str]| {
        let first = ["replay", TRACE, "--as", "perf", "--sample", sample];
        snapshot(name, &[&first[..], rest].concat());
    };

    with("replay-as-perf", "9", &[]);
    with("replay-as-perf-json", "9", &["--json"]);
    // A uprobe at a function's entry in a 32-bit program.
    with("replay-as-perf-uprobe", "10", &["--json"]);
    // With other options, the result differs from what was recorded.
    with("replay-as-perf-max-stack", "9", &["--max-stack", "4"]);
    with(
        "replay-as-perf-unwind-user",
        "9",
        &["--user", "unwind-user"],
    );
    with("replay-as-perf-crosstask", "9", &["--crosstask"]);

    // Kernel chains are judged by the kernel part.
    let args = ["compare", TRACE, "--against", "perf"];
    snapshot("compare-against-perf-kernel", &args);
    let args = [
        "explain",
        TRACE,
        "--sample",
        "9",
        "--unwinder",
        "orc:kernel",
    ];
    snapshot("explain-callchain", &args);

    let all = run(&["replay", TRACE, "--as", "perf"]);
    let told = stderr(&all);
    assert_eq!(told, "callchains: 40 as perf recorded them, 0 different\n");

    // What the kernel was asked for is in the recording, and what return probes took.
    const ASKED: &str = "corpus/kernel/6.12-callchains.bin";
    let asked = run(&["replay", ASKED, "--as", "perf"]);
    let told = stderr(&asked);
    assert_eq!(told, "callchains: 40 as perf recorded them, 0 different\n");
    assert_eq!(status(&asked), 0);
    let of = |sample: &'static str| ["explain", ASKED, "--sample", sample, "-u", "orc:kernel"];
    snapshot("explain-callchain-put-back", &of("0"));

    // The command line changes what is printed, not what it is compared with.
    let limited = [
        "replay",
        ASKED,
        "--as",
        "perf",
        "--max-stack",
        "2",
        "--sample",
        "1",
    ];
    snapshot("replay-as-perf-asked", &limited);

    let other = [
        "replay",
        "corpus/kernel/6.12-callchains-unasked.bin",
        "--as",
        "perf",
    ];
    snapshot("replay-as-perf-unasked", &other);
    let one = [&other[..], &["--sample", "1", "--json"]].concat();
    snapshot("replay-as-perf-unasked-json", &one);

    let one = run(&["replay", TRACE, "--as", "trace", "--json"]);
    assert_eq!(status(&one), 2, "{}", stderr(&one));
}

#[test]
fn comparisons() {
    snapshot("compare-seed-004", &["compare", SEED]);
    let args = ["compare", SEED, "--regs", "hw,fake:v5.1,fake:v5.2"];
    snapshot("compare-seed-004-starts", &args);
    for (by, limit) in [("cause", "500"), ("function", "500"), ("insn", "5")] {
        let args = ["compare", THROWS, "--limit", limit, "--group-by", by];
        snapshot(&format!("compare-throws-{by}"), &args);
    }
    let args = ["compare", THROWS, "--against", "dwarf", "--limit", "50"];
    snapshot("compare-throws-against-dwarf", &args);
}

#[test]
fn explanations() {
    snapshot("explain-code", &["explain", "US203"]);
    let args = [
        "explain",
        SEED,
        "--sample",
        "2",
        "--unwinder",
        "orc",
        "--regs",
        "fake:v5.1",
    ];
    snapshot("explain-seed-004", &args);
    let args = ["explain", THROWS, "--sample", "1000", "--unwinder", "fp"];
    snapshot("explain-throws", &args);
    let frame = ["explain", THROWS, "--sample", "1000", "--frame", "2"];
    snapshot("explain-throws-frame", &frame);

    // The list contains every code, and every code has a page.
    let list = ends_with(0, &["explain", "--list"]);
    assert_eq!(list.lines().count(), Code::ALL.len());

    // Both are in the order of the codes.
    for (line, code) in list.lines().zip(Code::ALL) {
        assert_eq!(line, format!("{code} {}", code.description()));
        let page = ends_with(0, &["explain", code.as_str()]);
        assert!(page.starts_with(line), "{page}");
    }
}

/// A wrong frame is marked, and the true one is shown next to it.
#[test]
fn a_wrong_frame_has_the_true_one_beside_it() {
    let args = ["--sample", "1747", "--unwinder", "dwarf"];
    for command in ["explain", "replay"] {
        let output = run(&[&[command, THROWS][..], &args].concat());
        let text = stdout(&output);
        let line = text.lines().find(|line| line.starts_with("  w   2 "));
        let line = line.unwrap_or_else(|| panic!("no frame is marked:\n{text}"));
        let (found, beside) = line.split_once("  | true 2: ").expect("the true frame");
        assert!(found.contains("main+0x15f (throws)  [eh_frame]"), "{line}");

        assert_eq!(
            beside,
            "7ffff7ca90cb  __cxa_throw+0x3b (libstdc++.so.6.0.30)"
        );

        // Each true frame appears once: found, next to a wrong one, or absent.
        let depth = |i: usize| format!("  - {i:>3} ");
        assert!(
            (3..11).all(|i| text.matches(&depth(i)).count() == 1),
            "{text}"
        );
        assert!(!text.contains(&depth(2)), "{text}");
    }

    // The same of one frame alone.
    let frame = [&["explain", THROWS][..], &args, &["--frame", "2"]].concat();
    let text = ends_with(0, &frame);
    let told = "WRONG: true frame 2 is 0x7ffff7ca90cb, __cxa_throw+0x3b";
    assert!(text.contains(told), "{text}");
}

#[test]
fn inspections() {
    snapshot("inspect-seed-004", &["inspect", SEED]);
    snapshot(
        "inspect-perf-zstd",
        &["inspect", "corpus/perfdata/dwarf-zstd.data"],
    );
    snapshot(
        "inspect-perf-pipe",
        &["inspect", "corpus/perfdata/fp-pipe.data"],
    );
    let elf = "corpus/sframe/v3flex";
    snapshot("inspect-elf", &["inspect", elf]);
    snapshot("inspect-elf-rows", &["inspect", elf, "--rows", "_start"]);
}

/// Colour appears only where wanted, and never carries information alone.
#[test]
fn colour() {
    let plain = ends_with(0, &["demo", "seed-004"]);
    assert!(!plain.contains('\x1b'), "a pipe is not a terminal");
    let never = ends_with(0, &["--color", "never", "demo", "seed-004"]);
    assert_eq!(never, plain);
    let output = tool(&["demo", "seed-004"]).env("NO_COLOR", "1").output();
    assert_eq!(stdout(&output.expect("it runs")), plain);
    let always = ends_with(0, &["--color", "always", "demo", "seed-004"]);
    assert_eq!(without_colour(&always), plain);
    assert!(always.contains("\x1b[1mUS501\x1b[0m"), "{always}");
    // JSON is for programs, so it is never coloured.
    let json = run(&["--color", "always", "replay", SEED, "--json"]);
    assert!(!stdout(&json).contains('\x1b'));
    // A file is not a terminal.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out").to_string_lossy().into_owned();
    ends_with(0, &["--color", "always", "replay", SEED, "-o", &file]);
    let written = std::fs::read_to_string(file).expect("the file");
    assert!(!written.contains('\x1b'));
}

fn without_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        out + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

/// `head` and others close the pipe before everything is written.
#[test]
fn a_closed_pipe_is_silent() {
    for args in [
        &["replay", THROWS, "--unwinder", "all"][..],
        &["replay", THROWS, "--json"],
        &["replay", THROWS, "--format", "folded"],
        &["generate", "completions"],
        &["compare", SEED],
    ] {
        let mut command = tool(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((status(&output), stderr(&output)), (0, ""), "{args:?}");
    }
}

#[test]
fn the_same_again_byte_for_byte() {
    for args in [
        &["replay", SEED, "--unwinder", "all", "--json"][..],
        &["compare", THROWS, "--limit", "300"],
        &["compare", THROWS, "--limit", "300", "--json"],
        &["explain", SEED, "--unwinder", "orc"],
        &["demo", "seed-004"],
        &["inspect", THROWS],
    ] {
        assert_eq!(run(args).stdout, run(args).stdout, "{args:?}");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for format in ["folded", "firefox"] {
        let profile = |threads| {
            let output = run(&["replay", THROWS, "--format", format, "--threads", threads]);
            assert_eq!(status(&output), 0, "{}", stderr(&output));
            output.stdout
        };
        let one = profile("1");
        assert!(!one.is_empty());
        for threads in ["0", "2", "3", "7"] {
            assert!(profile(threads) == one, "{format} by {threads} threads");
        }
    }
}

#[test]
fn deferred_callchains_are_joined() {
    let case = |name| format!("corpus/perfdata/stitch/{name}.data");
    let threads = "corpus/perfdata/threads4-switch-defer.data";
    snapshot("perf-stitch", &["perf", "stitch", threads]);
    let exec = case("N-exec");
    snapshot("perf-stitch-exec", &["perf", "stitch", "--samples", &exec]);
    let lost = case("D-lost-record");
    let like = ["perf", "stitch", "--like", "rfc2023", "--samples", &lost];
    snapshot("perf-stitch-rfc2023", &like);
    let json = [
        "perf",
        "stitch",
        "--samples",
        "--json",
        &case("B-late-sample"),
    ];
    snapshot("perf-stitch-json", &json);
    // Nothing is deferred in this recording.
    assert_eq!(
        status(&run(&["perf", "stitch", "corpus/perfdata/dwarf.data"])),
        3
    );
}

#[test]
fn handlers_of_samples_run_on_recordings() {
    let object = |name| format!("corpus/bpf/{name}.bpf.o");
    for (name, recording) in [
        ("profile", "threads4-switch-defer"),
        ("lines", "fp-pipe"),
        ("iprange", "dwarf"),
    ] {
        let recording = format!("corpus/perfdata/{recording}.data");
        let args = ["perf", "bpf", &object(name), &recording];
        snapshot(&format!("perf-bpf-{name}"), &args);
    }
    // The chain of a deferred sample as the kernel passes it to helpers: without the user part.
    let deferred = "corpus/perfdata/A-two-samples-one-record.data";
    let args = [
        "perf",
        "bpf",
        "--sample-callchain",
        &object("profile"),
        deferred,
    ];
    snapshot("perf-bpf-sample-callchain", &args);
}

/// The samples, maps and outputs are those of programs in a booted kernel (`tests/kernel/handlers.c`).
#[test]
fn programs_leave_what_they_left_in_a_kernel() {
    let text = |name: &str| format!("corpus/bpf/kernel/6.12-{name}.txt");
    for (name, object, option, compared) in [
        ("profile", "profile", &[][..], 8),
        ("profile-chain", "profile", &["--sample-callchain"], 6),
        ("tracepoint", "stacks", &["--program", "at_tracepoint"], 46),
        ("kprobe", "stacks", &["--program", "at_probe"], 13),
    ] {
        let object = format!("corpus/bpf/{object}.bpf.o");
        let data = format!("corpus/bpf/kernel/6.12-{name}.data");
        let run_against = |text: &str| {
            let args = ["perf", "bpf", "--against", text, &object, &data];
            run(&args
                .into_iter()
                .chain(option.iter().copied())
                .collect::<Vec<_>>())
        };
        let output = run_against(&text(name));
        assert_eq!(status(&output), 0, "{name}: {}", stderr(&output));
        let lines = stdout(&output);
        let lines = lines
            .lines()
            .filter_map(|line| line.split_once(" as in the kernel, 0 not"));
        let counts = lines.filter_map(|(line, _)| line.split(' ').nth(2)?.parse::<usize>().ok());
        assert_eq!(counts.sum::<usize>(), compared, "{name}");

        // One bit of the kernel's last entry or output is another one.
        let mut wrong = std::fs::read_to_string(root(&text(name))).unwrap();
        let last = wrong.trim_end().len() - 1;
        let digit = if wrong.ends_with("0\n") { "1" } else { "0" };
        wrong.replace_range(last..=last, digit);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wrong.txt");
        std::fs::write(&path, wrong).unwrap();
        let output = run_against(path.to_str().unwrap());
        assert_eq!(status(&output), 1, "{name}");
        assert!(stdout(&output).contains(", 1 not\n"), "{name}");
    }

    // A file that is not such a text is refused before anything runs.
    let object = "corpus/bpf/profile.bpf.o";
    let output = run(&[
        "perf",
        "bpf",
        "--against",
        object,
        object,
        "corpus/perfdata/dwarf.data",
    ]);
    assert_eq!(status(&output), 2);
    let none = "corpus/bpf/profile.bpf.c";
    let output = run(&[
        "perf",
        "bpf",
        "--against",
        none,
        object,
        "corpus/perfdata/dwarf.data",
    ]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("line 1 is none of"),
        "{}",
        stderr(&output)
    );
}

/// Every output names the command that reproduces it.
#[test]
fn outputs_name_their_command() {
    for args in [
        &["compare", SEED][..],
        &["explain", SEED],
        &["compare", SEED, "--json"],
        &["replay", SEED, "--json"],
        &["perf", "stitch", "corpus/perfdata/poll-syscalls-defer.data"],
    ] {
        let output = run(args);
        let command = format!("unwind-sim {}", args.join(" "));
        assert!(stdout(&output).contains(&command), "{args:?}");
    }
}

/// Kernel frames recorded by perf are shown as such, from perf.data and from its trace, and do not
/// affect the verdict on any chain.
#[test]
fn recorded_kernel_frames_are_shown_and_not_judged() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("k.bin").to_string_lossy().into_owned();
    let data = "corpus/perfdata/kernel-frames.data";
    let imported = run(&["import", data, "-o", &trace]);
    assert_eq!(status(&imported), 0, "{}", stderr(&imported));

    let shown = |file: &str| {
        let output = run(&["replay", file, "--sample", "2"]);

        // 3: there is no truth, so nothing was judged.
        assert_eq!(status(&output), 3, "{}", stderr(&output));
        let lines = stdout(&output).lines();
        lines.take(10).map(str::to_owned).collect::<Vec<_>>()
    };

    let lines = shown(data);

    // perf recorded this part itself.
    assert_eq!(lines[1], "perf (recorded): 0 frames and 8 of the kernel");
    assert_eq!(lines[2], "  k   0 ffffffff816ab704  [kernel]");
    assert_eq!(lines[9], "  k   7 ffffffff81000c82  [kernel]");
    assert_eq!(shown(&trace), lines);

    // Compared with perf's own chain, which has no user part here.
    let against = run(&[
        "compare",
        &trace,
        "--against",
        "perf",
        "--unwinder",
        "dwarf",
    ]);
    assert_eq!(status(&against), 3, "{}", stdout(&against));
    let unjudged = "dwarf           3  perf recorded no user chain\n";
    assert!(stdout(&against).contains(unjudged), "{}", stdout(&against));
}
