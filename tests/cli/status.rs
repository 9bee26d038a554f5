//! Exit status and error messages.

use crate::cli::{SEED, THROWS, ends_with, root, run, snapshot, status, stderr, stdout};

#[test]
fn nought_when_all_is_as_expected() {
    ends_with(0, &["compare", SEED, "--unwinder", "dwarf"]);
    ends_with(0, &["replay", SEED, "--unwinder", "dwarf"]);
    // Expected errors of the frame pointer unwinder do not count.
    let fp = ends_with(0, &["compare", SEED, "--unwinder", "fp"]);
    assert!(!fp.contains("100.00 %"), "{fp}");
}

#[test]
fn one_for_a_difference() {
    let fake = ["--unwinder", "orc", "--regs", "fake:v5.1"];
    for command in ["compare", "replay"] {
        let args = [&[command, SEED][..], &fake].concat();
        ends_with(1, &args);
    }
}

/// What a derived table cannot represent is counted and shown separately; it fails a run only with
/// --strict.
#[test]
fn losses_count_only_if_they_are_to() {
    for unwinder in ["orc", "sframe", "sframe+fp"] {
        for command in ["compare", "replay"] {
            let args = [command, THROWS, "--limit", "3", "--unwinder", unwinder];
            let lost = ends_with(0, &args);
            ends_with(1, &[&args[..], &["--strict"]].concat());
            let heading = format!("{unwinder}: what a derived table cannot represent");
            assert_eq!(lost.contains(&heading), command == "compare", "{lost}");
            assert!(!lost.contains("first divergences"), "{lost}");
        }
        let args = ["compare", THROWS, "--limit", "3", "--json", "--unwinder"];
        let lines = ends_with(0, &[&args[..], &[unwinder]].concat());
        let lines = lines.lines().filter(|l| l.contains("\"divergence\""));
        let lines: Vec<&str> = lines.collect();
        let is_loss = |l: &&str| l.contains("\"class\":\"loss\"");
        assert!(!lines.is_empty() && lines.iter().all(is_loss), "{lines:?}");
    }
    // A wrong row always counts.
    let wrong = ["compare", THROWS, "--sample", "1747", "--unwinder", "orc"];
    let wrong = ends_with(1, &wrong);
    assert!(wrong.contains("orc: first divergences by cause"), "{wrong}");
}

#[test]
fn three_when_nothing_is_judged() {
    ends_with(3, &["replay", SEED, "--unwinder", "lbr"]);
    let unknown = ends_with(3, &["replay", "corpus/perfdata/dwarf.data"]);
    assert!(unknown.contains("truth unknown"), "{unknown}");
    ends_with(3, &["compare", SEED, "--tid", "999999999"]);
}

/// Usage, I/O and malformed input: the message says what is wrong, where, and what to do.
#[test]
fn two_for_what_cannot_be_done() {
    let folder = tempfile::tempdir().expect("a folder");
    // A file of the right kind that ends too early: malformed input, not an unknown file.
    let cut = folder.path().join("cut.bin");
    let whole = std::fs::read(root(THROWS)).expect("a trace");
    std::fs::write(&cut, &whole[..10]).expect("a file");
    let cut = cut.to_string_lossy().into_owned();

    // Each message is under snapshot, by the name of its case.
    let cases: &[(&str, &[&str])] = &[
        ("error-missing", &["compare", "no/such/file.bin"]),
        ("error-missing-case", &["compare", "no/such/case.s"]),
        ("error-not-a-trace", &["compare", "README.md"]),
        ("error-elf", &["compare", "corpus/sframe/v3flex"]),
        ("error-unwinder", &["compare", SEED, "--unwinder", "magic"]),
        (
            "error-profile",
            &["compare", SEED, "--unwinder", "sframe:none"],
        ),
        (
            "error-fallback",
            &["compare", SEED, "--unwinder", "orc+guess"],
        ),
        (
            "error-own",
            &["compare", SEED, "--unwinder", "cmd:no/such/program"],
        ),
        ("error-regs", &["compare", SEED, "--regs", "fake:v9"]),
        ("error-view", &["compare", SEED, "--view", "gpu"]),
        ("error-group-by", &["compare", SEED, "--group-by", "colour"]),
        ("error-time", &["compare", SEED, "--time", "soon"]),
        ("error-sample", &["replay", SEED, "--sample", "99"]),
        ("error-against", &["compare", SEED, "--against", "hope"]),
        (
            "error-baseline",
            &["compare", SEED, "--baseline", "README.md"],
        ),
        ("error-demo", &["demo", "seed-005"]),
        ("error-code", &["explain", "US999"]),
        ("error-case-name", &["cases", "run", "no-such-case"]),
        (
            "error-malformed-case",
            &["replay", "corpus/errors/bad-code-in-covers.s"],
        ),
        ("error-inspect", &["inspect", "README.md"]),
        (
            "error-inspect-rows",
            &["inspect", "corpus/sframe/v3flex", "--rows", "none"],
        ),
        ("error-option", &["compare", SEED, "--no-such-option"]),
        ("error-command", &["compere"]),
    ];

    for (name, args) in cases {
        let output = run(args);
        assert_eq!(status(&output), 2, "{args:?}");
        // What reads the output must not take a message for a result.
        assert_eq!(stdout(&output), "", "{args:?}");
        // The whole message, so that a worse wording is seen.
        snapshot(name, args);
    }

    // Not under snapshot, since the path is a temporary one.
    let output = run(&["compare", &cut]);
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("cut.bin"), "{}", stderr(&output));
}

/// For each family of names, the one that was meant is named.
#[test]
fn a_name_that_was_meant_is_named() {
    let rows = "corpus/sframe/t_2.46";

    // Nothing is written: each of these ends before it starts.
    let own = ["-o", "x", "--", "/bin/true"];
    let cases: &[(&[&str], &str)] = &[
        (&["compare", SEED, "-u", "dwrf"], "dwarf"),
        (&["compare", SEED, "-u", "alll"], "all"),
        (&["compare", SEED, "-u", "sframe:kernel-3"], "kernel-v3"),
        (&["compare", SEED, "-u", "orc:kernl-6.4"], "kernel-6.4"),
        (&["compare", SEED, "--against", "thruth"], "truth"),
        (&["compare", SEED, "--group-by", "functoin"], "function"),
        (&["compare", SEED, "--regs", "fake:v52"], "fake:v5.2"),
        (&["compare", SEED, "--orc-layout", "6.5"], "6.3"),
        (&["demo", "ded-lock"], "deadlock"),
        (
            &["cases", "run", "fp-looses-the-caller-before-push-rbp"],
            "fp-loses-the-caller-before-push-rbp",
        ),
        (&["cases", "list", "--covers", "US2003"], "US203"),
        (
            &[
                "cases",
                "show",
                "popped-slot-lies-outside-a-copy",
                "--at",
                "poped",
            ],
            "popped",
        ),
        (&["explain", "US2O3"], "US203"),
        (&["explain", "us1003"], "US103"),
        (
            &["tables", "convert", rows, "-o", "x", "--to", "sframe-v4"],
            "sframe-v1",
        ),
        (
            &[
                "tables", "convert", rows, "-o", "x", "--to", "orc", "--from", "ehframe",
            ],
            "eh_frame",
        ),
        (
            &["tables", "generate", rows, "-o", "x", "--to", "orc:6.5"],
            "orc:6.3",
        ),
        (&["tables", "check", rows, "--assume", "calees"], "callees"),
        (&["tables", "check", rows, "--abi", "ocmal"], "ocaml"),
        (
            &["tables", "check", rows, "--claims", "cfa,callee-save"],
            "callee-saved",
        ),
        (&["tables", "dump", rows, "--function", "man"], "main"),
        (&["inspect", rows, "--orc-layout", "6.5"], "6.3"),
        (
            &["perf", "fuzz", "--seeds", "0..1", "--mutant", "stalecache"],
            "stale-cache",
        ),
        (&["perf", "run", "x", "--lbr-storage", "cpus"], "cpu"),
        (&["perf", "stitch", "x", "--like", "rfc-2023"], "rfc2023"),
        // clap knows these.
        (&["compere"], "compare"),
        (&["compare", SEED, "--unwindr", "fp"], "--unwinder"),
        (&["tables", "dump", rows, "--as", "readelv"], "readelf"),
        (&["replay", SEED, "--format", "foldd"], "folded"),
    ];

    // All are tried before the test fails: a change of the hints shows at once.
    let mut faults = Vec::new();
    for (args, meant) in cases {
        let output = run(args);
        assert_eq!(status(&output), 2, "{args:?}");
        let told = stderr(&output);

        // Two sources: our own names, and clap's.
        let ours = told.contains(&format!("(did you mean `{meant}`?)"));
        let claps = told.contains("similar") && told.contains(&format!("'{meant}'"));
        if !ours && !claps {
            faults.push(format!("{args:?}: {told}"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));

    // A symbol is only warned of, since the program may load a library that has it.
    let recorded = run(&[
        &["record", "--engine", "emulator", "--from", "exitt"][..],
        &own,
    ]
    .concat());
    let told = stderr(&recorded);
    assert!(told.contains("has exitt (did you mean `"), "{told}");
}

/// A truncated trace is read to its end, and a damaged one up to the damage.
#[test]
fn a_truncated_trace_is_read_to_its_last_whole_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.bin");
    let whole = std::fs::read(root(SEED)).expect("a trace");
    let name = path.to_string_lossy().into_owned();
    for len in (16..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..len]).expect("a file");
        for command in ["compare", "replay", "inspect"] {
            let output = run(&[command, &name]);
            let told = format!("{}{}", stdout(&output), stderr(&output));
            assert!(
                told.contains("cut short"),
                "{command} of {len} bytes: {told}"
            );
            let fitting: &[i32] = if command == "inspect" { &[0] } else { &[0, 3] };
            assert!(
                fitting.contains(&status(&output)),
                "{command} of {len} bytes"
            );
        }
    }
}

#[test]
fn a_baseline_holds_what_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let baseline = folder.path().join("baseline.json");
    let args = ["compare", SEED, "--unwinder", "orc", "--regs", "fake:v5.1"];
    let known = ends_with(1, &[&args[..], &["--json"]].concat());
    std::fs::write(&baseline, &known).expect("a file");
    let file = baseline.to_string_lossy().into_owned();

    let with = |more: &[&str]| run(&[&args[..], &["--baseline", &file], more].concat());
    assert_eq!(status(&with(&[])), 0);

    // A baseline belongs to its options and its program.
    let mut other = args;
    other[5] = "fake:always-ip";
    let more: &[&str] = &["--limit", "2"];
    for (args, more, what) in [
        (&other, &[][..], "here `--unwinder orc@fake:always-ip`"),
        (&args, more, "there none of them, here `--limit 2`"),
        (&args, &["--view", "copy:64"], "here `--view copy:64`"),
    ] {
        let found = run(&[&args[..], more, &["--baseline", &file]].concat());
        assert_eq!((status(&found), stdout(&found)), (2, ""));
        assert!(stderr(&found).contains(what), "{}", stderr(&found));
    }

    // Nor does it hold for another program.
    let of_another = ["compare", THROWS, "--limit", "1", "--baseline", &file];
    let found = run(&of_another);
    assert_eq!(status(&found), 2);
    let what = "belongs to the program `seed-004`, and this recording is of `throws`";
    assert!(stderr(&found).contains(what), "{}", stderr(&found));

    // A group that grew is new.
    let count = |line: &str| line.replace("\"count\":1,", "\"count\":0,");
    let fewer: String = known.lines().map(|line| count(line) + "\n").collect();
    assert_ne!(fewer, known);
    std::fs::write(&baseline, fewer).expect("a file");
    assert_eq!(status(&with(&[])), 1);

    // Without the file, the message says how to make one.
    std::fs::remove_file(&baseline).expect("a file");
    assert!(stderr(&with(&[])).contains("unwind-sim compare ... --json >"));

    std::fs::write(&baseline, "{\"type\": \"divergence\"}\n").expect("a file");
    let output = with(&[]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("line 1: a divergence without"),
        "{}",
        stderr(&output)
    );
}

/// `verify` applies the same rules to its own baselines.
#[test]
fn a_baseline_of_verify_holds_what_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let baseline = folder.path().join("baseline.json");
    let file = baseline.to_string_lossy().into_owned();
    let case = "corpus/cases/defect/late-row-behind-a-push.s";
    let options = ["verify", "--unwinder", "dwarf", "--defect"];
    let known = ends_with(1, &[&options[..], &["--json", case]].concat());
    std::fs::write(&baseline, &known).expect("a file");

    let with = |more: &[&str]| run(&[&options[..], more, &["--baseline", &file, case]].concat());
    assert_eq!(status(&with(&[])), 0, "{}", stderr(&with(&[])));

    let refused = |output: &std::process::Output, what: &str| {
        assert_eq!((status(output), stdout(output)), (2, ""));
        assert!(stderr(output).contains(what), "{}", stderr(output));
    };

    // A baseline of another run would hide what is new, so each option that changes a run is
    // compared.
    for (more, what) in [
        (&["--view", "copy:64"][..], "here `--view copy:64`"),
        (&["--seed", "7"], "there `--seed 0`, here `--seed 7`"),
        (
            &["--env", "A=b c"],
            "there none of them, here `--env 'A=b c'`",
        ),
        (&["--max-instructions", "9"], "here `--max-instructions 9`"),
        (
            &["--cpu", "v2,amd"],
            "there `--cpu v3,intel`, here `--cpu v2,amd`",
        ),
        (&["--only", "0x401002"], "here `--only 0x401002`"),
    ] {
        refused(&with(more), what);
    }

    let other = ["verify", "--unwinder", "dwarf", "--baseline", &file];
    refused(&run(&[&other[..], &[case]].concat()), "there `--defect`");
    refused(
        &run(&[&other[..], &["corpus/cases/prologue/push-rbp.s"]].concat()),
        "belongs to the program `late-row-behind-a-push.s`, and this run is of `push-rbp.s`",
    );

    // A contradiction met more often is new; without a summary, the program is unknown.
    let fewer = known.replace("\"count\":1,", "\"count\":0,");
    assert_ne!(fewer, known);
    std::fs::write(&baseline, fewer).expect("a file");
    assert_eq!(status(&with(&[])), 1);

    // The summary comes last, and names the program.
    let cut = known.split("{\"type\":\"summary\"").next();
    std::fs::write(&baseline, cut.expect("lines")).expect("a file");
    refused(&with(&[]), "does not name its program");

    // Lines of another command are refused by their type.
    let compared = ends_with(0, &["compare", SEED, "--unwinder", "dwarf", "--json"]);
    std::fs::write(&baseline, compared).expect("a file");
    refused(&with(&[]), "it is the output of compare, not of verify");
}
