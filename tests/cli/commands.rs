//! Runs each printed command in a shell, and checks that it finds the same.

use crate::cli::{SEED, THROWS, root, run, status, stderr, stdout, tool, without_terminal};
use crate::common::no_ptrace;
use crate::common::skip::skip;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a printed command in bash, in `folder`.
fn by_shell(command: &str, folder: &Path) -> Output {
    let script = format!("unwind-sim() {{ \"$TOOL\" \"$@\"; }}\n{command}\n");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script])
        .env("TOOL", env!("CARGO_BIN_EXE_unwind-sim"));
    without_terminal(&mut bash);
    bash.current_dir(folder).stdin(std::process::Stdio::null());
    bash.output().expect("bash runs")
}

/// A group printed by `compare`: the verdict's word, the code, the location, the command.
struct Group {
    word: String,
    code: String,
    place: String,
    command: String,
}

fn groups(text: &str) -> Vec<Group> {
    let mut found = Vec::new();
    let (mut head, mut place) = (Vec::new(), String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();

        // The head of a group: how often, the verdict's word, the code.
        if words.len() > 2 && words[2].starts_with("US") && words[0].parse::<u64>().is_ok() {
            head = words.iter().map(|w| (*w).to_owned()).collect();
        }

        // The location, which the group's command must lead to again.
        if let Some(rest) = line.trim_start().strip_prefix("sample ") {
            let behind = rest
                .split_once(", frame ")
                .and_then(|(_, r)| r.split_once(": "));
            let behind = behind.map_or("", |(_, place)| place);
            place = behind.split(": ").next().unwrap_or_default().to_owned();
        }

        // The command ends a group.
        if line.starts_with(' ') && line.trim_start().starts_with("unwind-sim explain") {
            found.push(Group {
                word: head[1].clone(),
                code: head[2].clone(),
                place: place.clone(),
                command: line.trim().to_owned(),
            });
        }
    }
    found
}

/// Checks that every command printed by this comparison shows its group's sample with the same
/// verdict and code, and the location to blame.
fn each_is_explained(args: &[&OsStr], folder: &Path) -> usize {
    let output = tool(&[])
        .args(args)
        .current_dir(folder)
        .output()
        .expect("it runs");
    let text = stdout(&output);
    let groups = groups(text);
    assert!(!groups.is_empty(), "{args:?}\n{text}{}", stderr(&output));

    for group in &groups {
        let again = by_shell(&group.command, folder);
        let told = stdout(&again);
        assert_eq!(status(&again), 0, "{}: {}", group.command, stderr(&again));

        let mut wanted = vec![format!(": {} ", group.word), format!("{} ", group.code)];
        // A walk that could not start has no location; an agreement has none to blame.
        if group.word != "unsupported" && !group.command.contains("--against") {
            wanted.push(group.place.clone());
        }
        for wanted in &wanted {
            assert!(
                told.contains(wanted),
                "no `{wanted}`: {}\n{told}",
                group.command
            );
        }

        // The explanation ends with its own command.
        assert!(told.ends_with(&format!("{}\n", group.command)), "{told}");
    }

    // The comparison's own command must give the same text.
    let own = text.lines().last().expect("the command");
    assert_eq!(stdout(&by_shell(own, folder)), text, "{own}");
    groups.len()
}

#[test]
fn what_compare_prints_explains_the_same_divergence() {
    let mut seen = 0;

    // Each option that changes a chain has to be in the printed command.
    for args in [
        &["compare", SEED][..],
        &["compare", SEED, "--regs", "hw,fake:v5.1,fake:v3-2019"],
        &["compare", SEED, "--regs", "hw", "--unwinder", "fp,dwarf+fp"],
        &[
            "compare",
            SEED,
            "--regs",
            "fake:v3-2019",
            "--unwinder",
            "orc",
            "--frame-pointer-kernel",
        ],
        &["compare", THROWS, "--limit", "300", "--view", "copy:256"],
        &[
            "compare",
            THROWS,
            "--limit",
            "300",
            "--max-frames",
            "3",
            "--group-by",
            "function",
        ],
        &[
            "compare",
            THROWS,
            "--limit",
            "60",
            "--against",
            "fp",
            "--unwinder",
            "dwarf,guess",
        ],
        &[
            "compare",
            "corpus/kernel/6.12-entry_SYSCALL_64.bin",
            "--limit",
            "40",
            "--kernel",
            "5.2",
        ],
    ] {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();

        // Every printed command is run.
        seen += each_is_explained(&args, &root(""));
    }

    // If commands were no longer found in the output, nothing would be tested.
    assert!(seen > 25, "{seen}");
}

#[test]
fn files_with_any_name_are_named_so_that_a_shell_finds_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [&b"a b's.bin"[..], b"\xff\n.bin", b"-o.bin", b"$(id).bin"] {
        // A quote, a line break and no UTF-8, what looks like an option, and what a shell would
        // run.
        let name = OsStr::from_bytes(name);
        std::fs::copy(root(SEED), folder.path().join(name)).expect("a copy");
        let args = ["compare", "--regs", "fake:v5.1", "--"].map(OsStr::new);
        each_is_explained(&[&args[..], &[name]].concat(), folder.path());

        // A recording also names the comparison of the file it wrote.
        let Some(name) = name.to_str() else { continue };
        let output = format!("--output=./{name}");
        let args = [
            "record",
            "--engine",
            "emulator",
            "--at",
            "call",
            "--max-samples",
            "9",
            &output,
        ];

        let recorded = tool(&args)
            .args(["--env", "A=b", "--", "/bin/true"])
            .current_dir(folder.path())
            .output();
        next(&recorded.expect("it runs").stderr, folder.path());
    }
}

/// Runs the command after `next:`.
fn next(told: &[u8], folder: &Path) -> String {
    let told = std::str::from_utf8(told).expect("text");
    let command = told.lines().find_map(|l| l.strip_prefix("next: "));
    let again = by_shell(command.unwrap_or_else(|| panic!("{told}")), folder);
    // 3 if the images are not available, so that no walk can be judged.
    assert!([0, 1, 3].contains(&status(&again)), "{}", stderr(&again));
    stdout(&again).to_owned()
}

#[test]
fn an_import_names_the_comparison_of_what_it_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = root("corpus/perfdata/dwarf.data");
    let mut import = tool(&["import", "--kernel", "5.2", "-o", "a b.bin"]);
    let output = import.arg(data).current_dir(folder.path()).output();
    let told = output.expect("it runs").stderr;
    let text = next(&told, folder.path());
    assert!(text.contains("--kernel 5.2"), "{text}");
}

/// `verify --only` finds the one contradiction under all options of the run.
#[test]
fn what_verify_prints_finds_the_same_contradiction() {
    let folder = tempfile::tempdir().expect("a folder");
    // A blank and a quote in the path: the printed command must quote it for the shell.
    let spaced = folder.path().join("a folder's");
    std::fs::create_dir(&spaced).expect("a folder");
    let spaced = spaced.join("late-row-behind-a-push.s");
    let defect = root("corpus/cases/defect/late-row-behind-a-push.s");
    std::fs::copy(&defect, &spaced).expect("a copy");
    let prelude = root("corpus/cases/prelude.inc");
    std::fs::copy(prelude, folder.path().join("prelude.inc")).expect("a copy");
    let spaced = spaced.to_string_lossy().into_owned();

    // Options that change a run must be in the printed command, or it would find something else.
    let runs: [&[&str]; 4] = [
        &["verify", "--unwinder", "dwarf,fp", "--defect", &spaced],
        &[
            "verify",
            "--unwinder",
            "dwarf",
            "--defect",
            "--cpu",
            "v2,amd,+movbe",
            &spaced,
        ],
        &[
            "verify",
            "--unwinder",
            "fp",
            "--view",
            "copy:64",
            "--seed",
            "7",
            "--env",
            "A=b c",
            "--env",
            "LC_ALL=C",
            "--max-instructions",
            "3000",
            "--",
            "/bin/echo",
            "it's",
            "--x",
        ],
        &[
            "verify",
            "--unwinder",
            "fp",
            "--tables-from",
            "/bin/true",
            "--max-instructions",
            "300",
            "/bin/true",
        ],
    ];

    for args in runs {
        let output = run(args);
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        let mut tried = 0;
        let printed = |line: &&str| line.starts_with("      unwind-sim verify");
        let at: Vec<usize> = (0..lines.len()).filter(|i| printed(&lines[*i])).collect();

        // Each printed command is a run of its own, so only some of them.
        for &at in at.iter().take(3) {
            // The head of the group: its code and location.
            let head = lines[..at]
                .iter()
                .rfind(|l| l.starts_with("  US"))
                .expect("a head");
            let head = head.split([',']).next().unwrap_or_default();
            let head = head.split(" and at ").next().unwrap_or_default();
            // The processor may decide which code is executed, in libraries that ask for it.
            let cpu = args.windows(2).find(|w| w[0] == "--cpu");
            let carried = |cpu: &[&str]| lines[at].contains(&cpu.join(" "));
            assert!(cpu.is_none_or(carried), "{}", lines[at]);

            // In another folder, as a reader would who copies it.
            let again = by_shell(lines[at].trim(), folder.path());
            let told = stdout(&again);
            assert!(told.contains(head), "no `{head}`: {}\n{told}", lines[at]);

            // It prints itself again: nothing was lost on the way.
            assert_eq!(
                lines[at].trim(),
                told.lines().rfind(|l| printed(l)).map_or("", str::trim)
            );
            tried += 1;
        }

        assert!(tried > 0, "{args:?}\n{text}{}", stderr(&output));
    }
}

/// A failing case says how to run it again, on the same processor.
#[test]
fn what_a_case_prints_fails_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cases, name) = (folder.path().join("it's"), "late-row-behind-a-push.s");
    std::fs::create_dir(&cases).expect("a folder");

    // Without its expectations the case fails.
    let text = std::fs::read_to_string(root("corpus/cases/defect").join(name)).expect("a case");
    let first = text.find("\n#=").expect("an expectation");
    std::fs::write(cases.join(name), &text[..first + 1]).expect("a file");
    let prelude = root("corpus/cases/prelude.inc");
    std::fs::copy(prelude, folder.path().join("prelude.inc")).expect("a copy");
    let path = cases.join(name).to_string_lossy().into_owned();

    for (cpu, wanted) in [
        (&[][..], "bless"),
        (&["--cpu", "v2,amd:zen"], "run --cpu v2,amd"),
    ] {
        let output = run(&[&["cases", "run", &path][..], cpu].concat());
        let told = stdout(&output);
        assert_eq!(status(&output), 1, "{told}{}", stderr(&output));
        let command = told
            .lines()
            .find_map(|l| l.split_once(": unwind-sim cases "));
        let (_, command) = command.unwrap_or_else(|| panic!("{told}"));
        assert!(command.starts_with(wanted), "{command}");
        if !cpu.is_empty() {
            let again = by_shell(&format!("unwind-sim cases {command}"), folder.path());
            // The same text, the command in it included: it can be repeated any number of times.
            assert_eq!(stdout(&again), told);
        }
    }

    // Expectations are those of the default processor, so `bless` has no such option.
    let refused = run(&["cases", "bless", "--cpu", "v2,amd", &path]);
    assert_eq!(status(&refused), 2);
    assert!(
        stderr(&refused).contains("unexpected argument '--cpu'"),
        "{}",
        stderr(&refused)
    );
}

/// A case that cannot be judged says nothing about unwinders, so it is not the status of a difference.
#[test]
fn a_case_that_cannot_be_judged_is_an_error_and_the_others_are_judged() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a case");
    };
    // Cases run by name: the good one comes behind the two errors, and must still be judged.
    write("a-malformed.s", "#! bogus: 1\n");
    write(
        "b-not-assembled.s",
        "#! claim: x\n#! source: y\nno_such_instruction\n",
    );
    // The third one states a chain that lacks a frame.
    let right = include_str!("../../corpus/cases/frame/enter-and-leave-make-a-frame.s");
    write(
        "c-differs.s",
        &right.replace("after: leaf < mid", "after: leaf"),
    );
    write(
        "prelude.inc",
        include_str!("../../corpus/cases/prelude.inc"),
    );
    let below = folder.path().to_str().expect("UTF-8");

    for (command, word) in [("run", "FAIL "), ("bless", "REFUSED ")] {
        let all = run(&["cases", command, "--folder", below]);
        let (text, told) = (stdout(&all), stderr(&all));
        assert_eq!(status(&all), 2, "{command}: {text}{told}");
        assert_eq!(text.matches("ERROR ").count(), 2, "{command}: {text}");
        assert_eq!(text.matches(word).count(), 1, "{command}: {text}");
        assert!(told.contains("2 of 3 cases could not be judged"), "{told}");
    }
}

#[test]
fn what_fuzzing_prints_breaks_the_same_rule() {
    let args = [
        "perf",
        "fuzz",
        "--seeds",
        "0..50",
        "--events",
        "300",
        "--mutant",
        "shared-buffer",
    ];
    let text = crate::cli::ends_with(0, &args);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("unwind-sim perf fuzz "), "{text}");
    assert_eq!(stdout(&by_shell(lines[1], &root(""))), text);
}

#[test]
fn the_demo_can_be_gone_through_anywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = crate::cli::ends_with(0, &["demo", "seed-004"]);
    let commands: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("  unwind-sim "))
        .collect();
    assert_eq!(commands.len(), 3, "{text}");
    for command in commands {
        let output = by_shell(&format!("unwind-sim {command}"), folder.path());
        assert!(
            [0, 1].contains(&status(&output)),
            "{command}: {}",
            stderr(&output)
        );
    }
    let written = std::fs::read(folder.path().join("seed-004.bin")).expect("the recording");
    assert!(written == std::fs::read(root(SEED)).expect("a trace"));
}

/// A case whose expectation is out of date names the command that renews it.
#[test]
fn a_failing_case_names_the_command_that_blesses_it() {
    if let Some(why) = no_ptrace() {
        return skip("a_failing_case_names_the_command_that_blesses_it", why);
    }
    let folder = tempfile::tempdir().expect("a folder");

    // A blank and a quote, which the command has to quote.
    let group = folder.path().join("it's a/defect");
    std::fs::create_dir_all(&group).expect("a folder");
    let case = root("corpus/cases/defect/missing-row-at-the-last-ret.s");
    let text = std::fs::read_to_string(case).expect("the case");
    let path = group.join("missing-row-at-the-last-ret.s");

    // Without its expectation, the case fails.
    let stale = text
        .lines()
        .filter(|line| !line.starts_with("#="))
        .collect::<Vec<_>>();
    std::fs::write(&path, stale.join("\n") + "\n").expect("a file");

    let prelude = root("corpus/cases/prelude.inc");
    std::fs::copy(prelude, group.join("prelude.inc")).expect("a copy");
    let path = path.to_string_lossy().into_owned();

    let output = run(&["cases", "run", &path]);
    let told = stdout(&output);
    let command = told
        .lines()
        .find_map(|l| l.split_once("if this is right: "));

    assert!(!told.contains("blessing does not change"), "{told}");
    let (_, command) = command.unwrap_or_else(|| panic!("{told}{}", stderr(&output)));

    // The command repairs it, and then the case passes.
    assert_eq!(status(&by_shell(command, folder.path())), 0, "{command}");
    assert_eq!(status(&run(&["cases", "run", &path])), 0);
}

/// What blessing would refuse is not offered.
#[test]
fn a_wrong_claim_is_not_offered_for_blessing() {
    if let Some(why) = no_ptrace() {
        return skip("a_wrong_claim_is_not_offered_for_blessing", why);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let group = folder.path().join("frame");
    std::fs::create_dir(&group).expect("a folder");
    let name = "callee-pops-its-arguments.s";
    let text = std::fs::read_to_string(root("corpus/cases/frame").join(name)).expect("the case");

    // Blessing writes the lines with `#=`; the rest are the author's.
    let author = text.lines().filter(|line| !line.starts_with("#="));

    // The author claims that another unwinder is right, which is not true.
    let claims = author.map(|line| {
        if line.starts_with("#! right:") {
            "#! right: guess\n".to_owned()
        } else {
            format!("{line}\n")
        }
    });

    let path = group.join(name);
    std::fs::write(&path, claims.collect::<String>()).expect("a file");
    std::fs::copy(root("corpus/cases/prelude.inc"), group.join("prelude.inc")).expect("a copy");

    let told = run(&["cases", "run", &path.to_string_lossy()]);
    let told = stdout(&told).to_owned() + stderr(&told);
    assert!(
        told.contains("blessing does not change chains and claims"),
        "{told}"
    );
    // An offer would lead the author to a command that refuses.
    assert!(!told.contains("if this is right"), "{told}");
}

/// The output of `--json` also holds the command.
#[test]
fn the_command_in_json_gives_the_same_lines() {
    let stitch = "corpus/perfdata/poll-syscalls-defer.data";
    for args in [
        &["compare", SEED, "--json"][..],
        &["replay", SEED, "--json", "--regs", "hw,fake:v5.1"],
        &[
            "verify",
            "--json",
            "--unwinder",
            "fp",
            "--env",
            "A=b 'c",
            "--max-instructions",
            "200",
            "/bin/true",
        ],
        &["perf", "stitch", "--json", stitch],
    ] {
        let output = run(args);
        let text = stdout(&output);

        // One of the lines has the command.
        let command = text.lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["command"].as_str().map(str::to_owned)
        });
        let command = command.unwrap_or_else(|| panic!("{args:?}\n{text}"));

        // Run by a shell, it prints the same lines, this one among them.
        assert_eq!(stdout(&by_shell(&command, &root(""))), text, "{command}");
    }
}

/// What is printed is a scenario as long as it can be read as one.
#[test]
fn a_random_run_that_is_no_scenario_says_so() {
    for (events, is_told) in [("100", false), ("130000", true)] {
        let output = run(&["perf", "run", "--seed", "1", "--events", events]);
        let told = stderr(&output).contains("with fewer --events it can");
        assert_eq!(told, is_told, "{events}");

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("printed.txt");
        std::fs::write(&path, stdout(&output)).expect("a file");
        let again = run(&["perf", "run", path.to_str().expect("text")]);
        assert_eq!(status(&again) == 2, is_told, "{events}");
    }
}
