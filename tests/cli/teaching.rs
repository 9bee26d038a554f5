//! Demos, pictures and quizzes: what they show is what the corpus says, and what they tell to try
//! works.

use crate::cli::{ends_with, root, run, status, stderr, stdout, tool};
use std::io::Write as _;
use std::process::Stdio;
use unwind_sim_judge::shell::quoted;
use unwind_sim_show::demo::ALL;

/// The casts in README, as `docs/casts/NAME.svg`.
const CASTS: [&str; 1] = ["wrong-row"];

#[test]
fn demo_without_a_name_lists_all_and_plays_the_first() {
    let told = ends_with(0, &["demo"]);
    for demo in &ALL {
        let line = format!("{:<10} {}", demo.name, demo.about);
        assert!(told.lines().any(|l| l == line), "no `{line}`");
    }
    let first = ends_with(0, &["demo", ALL[0].name]);
    assert!(told.ends_with(&first), "{told}");
}

#[test]
fn a_demo_shows_what_its_case_shows_here() {
    for (name, at, unwinders) in [
        ("fp", "before_push", "fp,dwarf"),
        ("dwarf", "at_leaf", "dwarf,fp"),
        ("orc", "in_callee", "orc,dwarf"),
        ("sframe", "in_fixup", "dwarf,sframe,orc"),
        ("guess", "in_leaf", "guess,dwarf"),
        ("copy", "popped", "dwarf,dwarf+fp"),
    ] {
        let demo = ALL.iter().find(|d| d.name == name).expect("a demo");
        let case = format!("corpus/{}", demo.source);
        let args = [
            "cases", "show", &case, "--at", at, "--chains", "-u", unwinders,
        ];
        let shown = ends_with(0, &args);
        let indented: String = shown.lines().map(|line| format!("  {line}\n")).collect();
        let told = ends_with(0, &["demo", name]);
        assert!(
            told.contains(&indented),
            "{name}\n{told}\nthe case:\n{indented}"
        );
    }
}

/// A realigned stack shows how long the strings on the stack are.
/// A stack lies below the path of its program, and a signal's frame where that is aligned.
#[test]
fn what_is_said_of_a_case_does_not_depend_on_the_folder_of_the_build() {
    const SIGNAL: &str = "signal-frame-on-the-normal-stack";
    const DEFECT: &str = "corpus/cases/defect/wrong-slot-of-rbx.s";
    let folder = tempfile::tempdir().expect("a folder");
    let commands: [(&[&str], i32, &str); 5] = [
        (&["cases", "show", "realigned-frame-keeps-rbp"], 0, "rsp"),
        (
            &["cases", "show", SIGNAL, "-u", "dwarf"],
            0,
            "rip of the interrupted",
        ),
        (&["verify", "--defect", DEFECT], 1, "wrong CFA"),
        (&["step", "--json", "--count", "9", DEFECT], 0, "0x7fff"),
        (
            &[
                "step",
                "--json",
                "--regs",
                "hw,fake:v5.2",
                "corpus/cases/start/seed-004.s",
            ],
            0,
            "0x7fff",
        ),
    ];

    for (number, (args, wanted, part)) in commands.into_iter().enumerate() {
        // A longer path of the build moves everything below it on the stack.
        let said = |name_len: usize| {
            let own = folder
                .path()
                .join("x".repeat(name_len))
                .join(number.to_string());
            std::fs::create_dir_all(&own).expect("a folder");
            let output = tool(args).env("TMPDIR", own).output().expect("it runs");
            assert_eq!(status(&output), wanted, "{args:?}: {}", stderr(&output));
            stdout(&output).to_owned()
        };

        // The first run says what the others have to say.
        let first = said(1);
        assert!(first.contains(part), "{args:?}: {first}");

        // In steps of 16, the alignment of the stack.
        for name_len in [17, 33, 49, 65] {
            assert_eq!(said(name_len), first, "{args:?} {name_len}");
        }
    }
}

#[test]
fn what_a_demo_tells_to_try_works() {
    let folder = tempfile::tempdir().expect("a folder");
    for demo in &ALL {
        let told = ends_with(0, &["demo", demo.name]);
        let commands: Vec<&str> = told
            .lines()
            .filter_map(|l| l.strip_prefix("  unwind-sim "))
            .collect();
        assert!(commands.len() > 1, "{told}");

        for command in commands.iter().filter(|c| !c.contains("PROG")) {
            // A quiz asks; the cases are in the repository.
            let command = if command.starts_with("cases quiz ") {
                format!(
                    "{command} --answer x --folder {}",
                    quoted(root("corpus/cases"))
                )
            } else {
                (*command).to_owned()
            };

            // By a shell, as it is told to be typed, quotes and redirections included.
            let script = format!("\"$TOOL\" {command}");
            let mut bash = std::process::Command::new("bash");
            bash.args(["-c", &script]).current_dir(folder.path());
            bash.env("TOOL", env!("CARGO_BIN_EXE_unwind-sim"));
            let output = bash.stdin(Stdio::null()).output().expect("bash runs");

            assert!(
                // 1 says that a difference was found.
                [0, 1].contains(&status(&output)),
                "{}: {command}\n{}",
                demo.name,
                stderr(&output)
            );
            assert!(
                !stdout(&output).is_empty() || command.contains(" -o "),
                "{command}"
            );
        }
    }
}

#[test]
fn the_casts_are_current() {
    let update = std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always");
    let readme = std::fs::read_to_string(root("README.md")).expect("text");
    let files = std::fs::read_dir(root("docs/casts")).expect("a folder");
    assert_eq!(files.count(), CASTS.len(), "casts that no page shows");
    for name in CASTS {
        assert!(readme.contains(&format!("docs/casts/{name}.svg")), "{name}");
        let image = ends_with(0, &["demo", name, "--svg"]);
        let path = root(&format!("docs/casts/{name}.svg"));
        if update {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &image).expect("the cast is written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == image,
            "docs/casts/{name}.svg: run INSTA_UPDATE=always cargo test --test suite cli::teaching::casts"
        );
    }
}

/// Asks the quiz of a case, with the answer on standard input.
fn quiz(answer: &str) -> (i32, String, String) {
    let args = [
        "cases",
        "quiz",
        "fp-loses-the-caller-after-pop-rbp",
        "--at",
        "after_pop",
    ];
    let mut asked = tool(&args);
    asked
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut asked = asked.spawn().expect("it starts");
    let mut input = asked.stdin.take().expect("its input");
    input.write_all(answer.as_bytes()).expect("it reads");
    drop(input);
    let output = asked.wait_with_output().expect("it ends");
    (
        status(&output),
        stdout(&output).to_owned(),
        stderr(&output).to_owned(),
    )
}

#[test]
fn a_quiz_hides_the_answer_and_judges_the_readers() {
    let (status, told, _) = quiz("leaf < mid < outer < _start\n");
    assert_eq!(status, 0, "{told}");
    // Everything up to the question is shown before the answer is read.
    let (asked, judged) = told.split_once("Which functions").expect("the question");
    assert!(
        asked.contains("FUNC leaf") && asked.contains("mid+0x9"),
        "{asked}"
    );

    // Nothing in the question may give the answer away.
    for hidden in ["#@", "#=", "return address", "saved rbp", "US511"] {
        assert!(!asked.contains(hidden), "{hidden}: {asked}");
    }
    assert!(judged.contains("right: . with 4 frames"), "{judged}");

    // Each wrong answer has its own verdict, with the frame where it goes wrong.
    for (answer, wanted) in [
        (
            "\n\nleaf < outer < _start\n",
            &[
                "missing m1@1",
                "Frame 1 is mid, not outer",
                "mid+0x9",
                "chain of fp",
                "US511",
            ][..],
        ),
        (
            "leaf < mid < outer",
            &["truncated t@3", "frame 3, _start, called"],
        ),
        (
            "leaf < mid < other < outer < _start",
            &["extra x1@2", "other is not active here"],
        ),
        (
            "mid < outer < _start",
            &["missing m1@0", "the function that rip is in"],
        ),
        (
            "leaf < mid < outer < _start < main",
            &["extra x1@4", "_start, the root; main did not call it"],
        ),
        ("x", &["wrong w@0"]),
    ] {
        let (status, told, _) = quiz(answer);
        assert_eq!(status, 1, "{answer}: {told}");
        for part in wanted {
            assert!(told.contains(part), "{answer}: no `{part}`\n{told}");
        }
    }

    // What is not an answer is not judged.
    for (answer, wanted) in [("", "no answer"), ("leaf < < mid", "cannot read the chain")] {
        let (status, _, told) = quiz(answer);
        assert_eq!(status, 2, "{answer}: {told}");
        assert!(told.contains(wanted), "{told}");
    }
}

/// Runs `cases quiz` with these words and this standard input.
fn quiz_with(words: &[&str], input: &str) -> (i32, String, String) {
    let args = [&["cases", "quiz"], words].concat();
    let mut asked = tool(&args);
    asked
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut asked = asked.spawn().expect("it starts");
    let mut stdin = asked.stdin.take().expect("its input");
    // It may not read all of it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = asked.wait_with_output().expect("it ends");
    (
        status(&output),
        stdout(&output).to_owned(),
        stderr(&output).to_owned(),
    )
}

/// The chain of a fake start begins elsewhere than where rip is: the question says so, and nothing that is
/// said of an answer contradicts the picture.
#[test]
fn a_quiz_of_a_fake_start_is_true() {
    const TRUE: &str = "caller < outer < _start";
    for (case, fetching) in [
        ("fake-v5-2-skips-the-tracing-functions", "perf_trace_event"),
        ("fake-v5-2-on-a-second-stack", "perf_trace_event"),
        (
            "fake-v5-2-works-with-frame-pointers-too",
            "perf_trace_event",
        ),
        ("fake-v5-1-suits-a-frame-pointer-kernel", "perf_trace_event"),
        ("fake-v3-2019-skips-up-to-the-live-rsp", "perf_trace_event"),
        ("fake-always-ip-says-the-caller-twice", "perf_trace_event"),
    ] {
        let words = [case, "--at", "fetch/in_unwinder"];
        let (status, told, errors) = quiz_with(&words, TRUE);
        assert_eq!(status, 0, "{case}: {told}{errors}");
        let (question, _) = told.split_once("right: .").expect("the verdict");
        let said = format!("{fetching} fetched some that describe its");
        assert!(
            question.contains("A fake start") && question.contains(&said),
            "{question}"
        );
        assert!(!question.contains("are active here"), "{question}");

        // The chain from rip on is the answer to another question.
        let (status, told, _) = quiz_with(&words, &format!("unwind_start < {TRUE}"));
        assert_eq!(status, 1, "{told}");
        let said = format!("The chain begins with the caller of {fetching}");
        assert!(
            told.contains(&said) && told.contains("which is caller+0x"),
            "{told}"
        );
        assert!(!told.contains("the function that rip is in."), "{told}");
    }

    // At the point of the unwinder itself, rip tells where the chain begins.
    let hardware = "fake-v5-2-skips-the-tracing-functions";
    let (_, told, _) = quiz_with(&[hardware, "--at", "in_unwinder"], TRUE);
    assert!(!told.contains("A fake start"), "{told}");
    assert!(told.contains("the function that rip is in."), "{told}");

    // A precise sample has another rip than the frame that its registers are of.
    let precise = "precise-sample-has-the-registers-of-after-the-call";
    let (status, told, _) = quiz_with(&[precise], "leaf < mid < _start");
    assert_eq!(status, 0, "{told}");
    assert!(
        told.contains("rip is the address of the sampled instruction, in mid"),
        "{told}"
    );
    let (_, told, _) = quiz_with(&[precise], "mid < _start");
    assert!(!told.contains("the function that rip is in."), "{told}");
}

/// A case given by its path is called by that path, so that the printed command finds it.
#[test]
fn a_case_by_its_path_is_called_by_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let prelude = root("corpus/cases/prelude.inc");
    std::fs::copy(prelude, folder.path().join("prelude.inc")).expect("a copy");
    let path = folder.path().join("case.s");
    let case = root("corpus/cases/frame/fp-loses-the-caller-after-pop-rbp.s");
    std::fs::copy(case, &path).expect("a copy");
    let path = path.to_str().expect("a path");

    let (status, told, _) = quiz_with(&[path], "leaf");
    assert_eq!(status, 1, "{told}");
    let (_, command) = told
        .split_once("with its names: unwind-sim ")
        .expect("a command");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[2], path);
    let output = run(&words);
    assert_eq!(super::status(&output), 0, "{}", stderr(&output));
    let shown = stdout(&output);
    assert!(shown.starts_with(&format!("{path}: ")), "{shown}");
}

/// Without a name a case is drawn, by a seed that is printed, and answers are counted.
#[test]
fn a_quiz_draws_cases_and_counts() {
    let wrong = ["nobody\n"; 3].concat();
    let (status, told, errors) = quiz_with(&["--seed", "7", "--level", "easy"], &wrong);
    assert_eq!(status, 1, "{told}{errors}");
    assert!(told.starts_with("seed 7; the same again: "), "{told}");
    assert!(told.ends_with("score: 0 of 1 right\n"), "{told}");

    // The printed command asks the same.
    let (first, _) = told.split_once('\n').expect("lines");
    let (_, command) = first
        .split_once("unwind-sim cases quiz ")
        .expect("a command");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(quiz_with(&words, &wrong).1, told);

    // The right answer is in the picture that is shown.
    let (_, command) = told
        .split_once("with its names: unwind-sim ")
        .expect("a command");
    let words: Vec<&str> = command
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert!(
        root("corpus/cases/frame")
            .join(format!("{}.s", words[2]))
            .exists(),
        "{words:?}"
    );
    let shown = run(&[&words[..], &["--chains"]].concat());
    let truth = stdout(&shown).lines().next().unwrap_or_default().to_owned();
    let truth = truth
        .strip_prefix("truth")
        .expect("the truth")
        .trim()
        .to_owned();
    let (status, right, _) = quiz_with(&["--seed", "7", "--level", "easy", "--answer", &truth], "");
    assert_eq!(status, 0, "{truth}: {right}");
    assert!(right.ends_with("score: 1 of 1 right\n"), "{right}");

    // `--next` goes on until the input ends; what is not a chain is asked for again.
    let answers = format!("{truth}\n\nleaf < < mid\nnobody\nnobody\n");
    let (status, told, errors) = quiz_with(&["--seed", "7", "--level", "easy", "--next"], &answers);
    assert_eq!(status, 1, "{told}{errors}");
    assert!(told.contains("cannot read the chain"), "{told}");
    assert!(told.ends_with("score: 1 of 3 right\n"), "{told}");
    let asked: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("That was "))
        .collect();
    assert_eq!(asked.len(), 3);
    assert!(asked[0] != asked[1] && asked[1] != asked[2], "{asked:?}");

    // Another seed asks another case.
    let name = |seed: &str| {
        let (_, told, _) = quiz_with(&["--seed", seed], "nobody");
        let line = told
            .lines()
            .find(|line| line.starts_with("That was "))
            .map(str::to_owned);
        line.expect("its name")
    };
    // Two seeds may draw the same case, so several are tried.
    assert!(["1", "2", "3"].iter().any(|seed| name(seed) != name("0")));

    for (words, wanted) in [
        (&["--answer", "leaf"][..], "--answer needs the case"),
        (&["--at", "leaf"], "--at names a point of a case"),
        (&["--level", "none"], "easy, medium, hard"),
        (&["--next", "--answer", "leaf"], "cannot be used with"),
        (&["--seed", "1"], "no answer"),
    ] {
        let (status, _, told) = quiz_with(words, "");
        assert_eq!(status, 2, "{words:?}: {told}");
        assert!(told.contains(wanted), "{words:?}: {told}");
    }
}

#[test]
fn a_wrong_point_name_or_option_says_what_there_is() {
    const CASE: &str = "fp-loses-the-caller-before-push-rbp";
    for (args, wanted) in [
        (&["cases", "show"][..], "name one case"),
        // The start of several names: they are listed.
        (&["cases", "show", "fp-"], "name one of them"),
        (
            &["cases", "show", CASE, "--at", "here"],
            "it has before_push, between, after_push",
        ),
        (
            &["cases", "show", CASE, "--regs", "fake:v5.2"],
            "no start `fake:v5.2` at this point; it has hw",
        ),
        (
            &["cases", "show", CASE, "-u", "nobody"],
            "unknown unwinder `nobody`",
        ),
        (
            &["cases", "show", CASE, "--answer", "a"],
            "unexpected argument '--answer'",
        ),
        (
            &["cases", "run", CASE, "--at", "between"],
            "unexpected argument '--at'",
        ),
    ] {
        // Each message lists what there is, so that the next try can be right.
        let output = run(args);
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(
            stderr(&output).contains(wanted),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn the_folder_of_the_cases_may_stand_before_the_subcommand_or_behind_it() {
    let folder = ["--folder", "corpus/cases/frame"];
    let list = |words: [&[&str]; 3]| ends_with(0, &words.concat());
    let behind = list([&["cases"], &["list"], &folder]);
    let before = list([&["cases"], &folder, &["list"]]);
    assert_eq!(before, behind);
    assert!(!behind.is_empty() && behind != ends_with(0, &["cases", "list"]));
}
