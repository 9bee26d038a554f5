//! Demos, pictures and quizzes: what they show is what the corpus says, and what they tell to try
//! works.

use crate::cli::{ends_with, root, run, status, stderr, stdout, tool};
use std::io::Write as _;
use std::process::Stdio;
use unwind_sim_judge::shell::quoted;
use unwind_sim_show::demo::ALL;

/// The casts of the pages, as `docs/casts/NAME.svg`.
const CASTS: [&str; 3] = ["fp", "copy", "wrong-row"];

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
    for name in CASTS {
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
