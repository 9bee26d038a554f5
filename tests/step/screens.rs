//! Screens of programs, by scripts.

use crate::common::random::Random;
use crate::step::{CASE, copy_of_case, play, root, run, shown, tool};
use std::path::Path;

#[track_caller]
fn check(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true,
        snapshot_path => root("snapshots") }, {
        insta::assert_snapshot!(format!("step-{name}"), text);
    });
}

/// A case from its start: the first wrong place, the walk there, and the way back.
#[test]
fn a_case_at_three_sizes() {
    for size in ["80x24", "200x60", "40x10"] {
        let text = play(
            "c\n4 f f\nEnter\nEnter S\nN c y",
            size,
            &["--from", "0", CASE],
        );
        check(&format!("case-{size}"), &text);
    }
}

/// The rules beside the code, what is true there, and what is wrong.
#[test]
fn rules_are_beside_the_code() {
    for size in ["80x24", "200x60", "40x10"] {
        let text = play("u\nc 4\nf f f\nu", size, &[CASE]);
        check(&format!("rules-{size}"), &text);
    }
}

/// The code pane follows the frame that the walk has reached, and comes back.
#[test]
fn the_code_follows_the_walk() {
    // The walk of dwarf from `leaf`: its start and `leaf`, `mid`, `outer`.
    let text = play(
        "g \"leaf\" Enter\nf f\nf\nf\nF F F F",
        "100x30",
        &["--walk", "dwarf", CASE],
    );
    let line = "-".repeat(100) + "\n";
    let titles = text.split(&line).map(|screen| {
        let title = screen.lines().find(|line| line.starts_with("code"));
        // The title is cut where the pane is narrow.
        let title = title.expect("a code pane").split([' ', '─']);
        let title: Vec<&str> = title
            .take_while(|word| *word != ".." && !word.starts_with('('))
            .collect();
        title.join(" ")
    });
    let titles: Vec<String> = titles.collect();
    assert_eq!(
        titles,
        [
            "code leaf+0x0",
            "code leaf+0x0",
            "code of frame 1, mid+0x9",
            "code of frame 2, outer+0x9",
            "code leaf+0x0",
        ]
    );
    // The call is the marked line.
    let marked = text.split(&line).nth(2).expect("a screen").lines();
    let marked = marked.into_iter().find(|line| line.contains(">+"));
    assert!(marked.expect("a mark").contains("call"), "{text}");
}

/// `e` runs the editor on the case, which is shown again at the same label.
#[test]
fn an_edited_case_is_shown_at_the_same_label() {
    let folder = tempfile::tempdir().expect("a folder");
    let case = copy_of_case(folder.path());
    let script = folder.path().join("script");
    std::fs::write(&script, "g \"leaf\" Enter s\ne\ns").expect("it is written");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();

    let play = |editor: &str| {
        let words = ["--script", &path(&script), "--size", "100x30", &path(&case)];
        let mut command = tool(&words);
        command.env("VISUAL", editor).env("EDITOR", "false");
        command.output().expect("the tool runs")
    };

    // The state before `mov %rsp, %rbp`, which comes later now, is at the label `between`.
    let output =
        play("sed -i -e 's/^FUNC leaf/FUNC leaf; nop/' -e 's/push    %rbp/nop; push %rbp/'");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Between screens is a line of dashes as wide as they are.
    let line = "-".repeat(100) + "\n";
    let heads = text.split(&line).map(|screen| {
        let head = screen.lines().next().expect("a line");
        let words: Vec<&str> = head.split("  ").collect();
        words[1].to_owned()
    });
    assert_eq!(
        heads.collect::<Vec<_>>(),
        ["leaf+0x1", "leaf+0x3", "leaf+0x6"]
    );

    // What cannot be assembled, or is not edited, is said.
    let output = play("sed -i 's/^before_push:/before_push: no_such/'");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(errors.contains("no_such"), "{errors}");
    assert!(
        errors.contains("the edited case cannot be shown"),
        "{errors}"
    );
    std::fs::copy(root(CASE), &case).expect("a copy");
    let output = play("false");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("the editor false ended with exit status: 1"),
        "{text}"
    );
}

/// Only a case has a file to edit.
#[test]
fn what_is_not_a_case_is_not_edited() {
    for words in [&["corpus/traces/throws.bin"][..], &["--", "/bin/true"]] {
        let text = play("e", "100x30", words);
        assert!(
            text.contains("only a case in a file can be edited"),
            "{text}"
        );
    }
}

/// A case by its sample points, with fake registers.
#[test]
fn a_case_with_fake_registers() {
    let case = "corpus/cases/start/fake-v5-2-on-a-second-stack.s";
    let regs = ["--regs", "hw,fake:v5.1,fake:v5.2", "-u", "orc,fp", case];
    let regs = [&["--from", "0"], &regs[..]].concat();
    // The sample points are recorded on this computer's processor, in a process of its own.
    let text = play("s\nr r f f f", "100x30", &regs);
    let lines = text
        .lines()
        .map(|line| line.split("  process").next().unwrap_or(line));
    check("case-fake", &lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_kernels_case_shows_its_sample_points() {
    let case = "corpus/cases/kernel/every-instruction-with-frame-pointers.s";
    check(
        "case-kernel",
        &play("s s s\nc", "100x24", &["--from", "0", case]),
    );
}

/// The true chain of every state, in one line each: the shadow stack of the case's author.
#[test]
fn forwards_and_backwards_are_the_same() {
    let forward: Vec<String> = (0..40).map(|_| "s".to_owned()).collect();
    let there = play(&forward.join("\n"), "100x30", &["--from", "5", CASE]);
    let line = "-".repeat(100) + "\n";
    let mut there: Vec<&str> = there.split(&line).collect();

    // At the end of the run the message differs.
    there.retain(|screen| !screen.contains("this is the end"));
    let last = 5 + there.len();
    let back = vec!["S".to_owned(); there.len() - 1];
    let from = last.to_string();
    let back = play(
        &format!("\n{}", back.join("\n")),
        "100x30",
        &["--from", &from, CASE],
    );

    let mut back: Vec<&str> = back.split(&line).collect();
    // The screens of the way back come last state first.
    back.reverse();
    assert!(there.len() > 10, "{}", there.len());

    // Only how far the end was met differs.
    let plain = |screen: &str| {
        let (_, rest) = screen.split_once('\n').expect("lines");
        rest.to_owned()
    };

    for (there, back) in there.iter().zip(&back) {
        assert_eq!(plain(there), plain(back));
    }
}

/// `main` is found in a program without symbols, from before and from behind it.
#[test]
fn main_is_found_without_symbols() {
    let start = ["--from", "0", "--clear-env", "--", "/bin/true"];
    let program = &start[2..];
    let place = |args: &[&str], script: &str| {
        let words = if args.is_empty() { &start[..] } else { program };
        let text = play(script, "200x40", &[args, words].concat());
        let screen = text.rsplit(&("-".repeat(200) + "\n")).next();
        let head = screen.and_then(|screen| screen.lines().next());
        head.expect("a screen").to_owned()
    };

    // Most systems strip `true`, so that it has no symbol `main`.
    let there = place(&["--from", "main"], "");
    assert!(
        there.contains(" true+0x") || there.contains(" main+0x0 "),
        "{there}"
    );
    assert_eq!(place(&[], "g \"main\" Enter"), there);

    let back = place(&[], "End\ng \"main\" Enter");
    let plain = |head: &str| {
        let words: Vec<&str> = head.split_whitespace().collect();
        (
            words[1].to_owned(),
            words.iter().any(|word| word.starts_with("true+0x")),
        )
    };
    assert_eq!(plain(&back), plain(&there));
}

/// Threads and processes: another one runs, and is listed.
#[test]
fn processes_are_listed() {
    let program = ["--from", "0", "--clear-env", "--env", "PATH=/usr/bin:/bin"];
    let words = ["--", "/bin/sh", "-c", "echo a | cat"];
    let text = play("t\nt\nTab\nT", "120x40", &[&program[..], &words].concat());
    assert!(text.contains("process 1001, thread 1001"), "{text}");
    assert!(text.contains("1000/1000"), "{text}");
    assert!(
        text.contains("can run") || text.contains("waits in"),
        "{text}"
    );
}

/// Random keys on screens of random sizes: it ends with status 0, whatever is pressed.
#[test]
fn any_keys_on_a_program() {
    const KEYS: [&str; 29] = [
        "u", "s", "S", "n", "N", "f", "F", "c", "C", "t", "T", "r", "1", "2", "4", "9", "g", "/",
        "y", "?", "Enter", "Escape", "Tab", "Up", "PageDown", "End", "Home", "\"main\"", "\"4 2\"",
    ];

    let mut random = Random::new(2026_1125);

    let rounds = if std::env::var_os("UNWIND_SIM_SLOW").is_some() {
        60
    } else {
        6
    };

    for round in 0..rounds {
        let lines: Vec<String> = (0..8)
            .map(|_| {
                let keys: Vec<&str> = (0..6).map(|_| random.pick(&KEYS)).collect();
                keys.join(" ")
            })
            .collect();

        // Down to one character: a layout must not count on any room.
        let size = format!("{}x{}", 1 + random.below(210), 1 + random.below(70));
        let script = lines.join("\n");
        match round % 2 {
            0 => play(&script, &size, &[CASE]),
            _ => play(&script, &size, &["--", "/bin/true"]),
        };
    }
}

#[test]
fn what_cannot_be_shown_is_an_error() {
    for (args, what) in [
        (&[][..], "nothing to step through"),
        (
            &["--script", "no/file", CASE],
            "cannot read the script no/file",
        ),
        (&["--size", "0x9", "--script", "-", CASE], "is not a size"),
        (
            &["--json", "--from", "999999", CASE],
            "there is no state 999999",
        ),
        (
            &["--json", "--from", "nowhere", CASE],
            "no state is in a function nowhere",
        ),
        (
            &["--script", "-", "--walk", "lbr", CASE],
            "no walk lbr; there are dwarf",
        ),
        (&[CASE], "not a terminal"),
        (&["--json", "--allow-write", CASE], "--allow-write"),
        (&["--json", "no/file"], "no/file"),
    ] {
        // Without a terminal, so only `--script` and `--json` can show anything.
        let output = run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(what), "{args:?}: {errors}");
    }
}

/// The command that `y` copies shows the same screen.
#[test]
fn the_copied_command_leads_back() {
    let text = play("c\n4 f f\ny", "200x40", &[CASE]);
    let line = "-".repeat(200) + "\n";
    let screens: Vec<&str> = text.split(&line).collect();
    let (_, command) = screens[2].split_once("copied: ").expect("a command");
    let words: Vec<&str> = command.split_whitespace().skip(2).collect();
    assert_eq!(words.last(), Some(&CASE), "{command}");
    let again = play("", "200x40", &words);
    let body = |screen: &str| {
        let lines: Vec<String> = screen.lines().map(str::to_owned).collect();
        lines[1..lines.len() - 1].to_vec()
    };
    assert_eq!(body(&again), body(screens[1]));
    assert!(shown(&["--help"]).contains("--at-step"));
}

/// Each demo that is a trace can be stepped through, and the copied command shows the same.
#[test]
fn demos_can_be_stepped_through() {
    let demo = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = command.arg("demo").args(words).current_dir(root(""));
        output.output().expect("the tool runs")
    };

    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), "y").expect("it is written");
    let script = script.path().to_str().expect("a path");

    // `y` copies the command for the shown state.
    let size = ["--script", script, "--size", "200x40"];

    // What the demo is about: its ring, its view of memory, its start paths.
    let about = [("lbr", "US302"), ("copy", "US203"), ("seed-004", "v5.2")];

    for told in &unwind_sim_show::demo::ALL {
        let (name, file) = (told.name, format!("{}.bin", told.name));
        let output = demo(&[&[name, "--step"], &size[..]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);

        // Demos that are no recordings say so.
        if !told.is_trace() {
            assert!(errors.contains("has no stacks to step through"), "{errors}");
            continue;
        }

        assert_eq!(output.status.code(), Some(0), "{name}: {errors}");
        let text = String::from_utf8(output.stdout).expect("text");
        // The demo's words are beside the panes.
        let notes = told.notes();
        let words: Vec<&str> = notes[0].text.split_whitespace().take(4).collect();
        assert!(text.contains(&words.join(" ")), "{name}: {text}");
        for (_, part) in about.iter().filter(|(demo, _)| *demo == name) {
            assert!(text.contains(part), "{name}: {text}");
        }

        // The copied command first writes the demo's recording, then steps through it.
        let (_, command) = text.split_once("copied: ").expect("a command");
        let command = command.lines().next().unwrap_or_default().trim_end();
        let (extract, step) = command.split_once(" && ").expect("two commands");
        assert_eq!(extract, format!("unwind-sim demo {name} -o {file}"));

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(&file);
        let path = path.to_str().expect("a path");
        assert!(demo(&[name, "-o", path]).status.success());

        // Without `unwind-sim step`, and with the file where it really is.
        let words: Vec<&str> = step.split_whitespace().skip(2).collect();
        let words: Vec<&str> = words
            .iter()
            .map(|&w| if w == file { path } else { w })
            .collect();
        assert_eq!(words.last(), Some(&path), "{step}");

        let again = play("", "200x40", &words);
        let body = |screen: &str| {
            let lines: Vec<String> = screen.lines().map(str::to_owned).collect();

            // Without the first line, which names the file, and the last, which has the message.
            // Without the right column, where the demo tells something.
            let left = |line: &String| line.chars().take(132).collect::<String>();
            lines[1..39].iter().map(left).collect::<Vec<_>>()
        };
        assert_eq!(body(&again), body(&text), "{step}");
    }

    // A script alone does not step.
    let output = demo(&["fp", "--script", script]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--step --script"), "{errors}");
}

/// Without `--from` it opens where an unwinder is wrong whose errors count, else where any is.
#[test]
fn it_opens_at_the_first_finding() {
    let screen = play("", "100x30", &[CASE]);
    assert!(screen.contains("4>fp"), "{screen}");
    assert!(
        screen.contains("the first finding, which is expected of fp"),
        "{screen}"
    );
    let start = play("c", "100x30", &["--from", "0", CASE]);
    let head = |screen: &str| screen.lines().next().unwrap_or_default().to_owned();
    let number = |screen: &str| head(screen).split_whitespace().nth(1).map(str::to_owned);
    assert_eq!(number(&screen), number(&start));

    // fp is wrong earlier, but that counts for nothing beside a wrong row.
    let late = "corpus/cases/defect/late-row-behind-a-push.s";
    let screen = play("", "100x30", &["--defect", late]);
    assert!(
        screen.contains("1>dwarf") && screen.contains("dwarf is wrong"),
        "{screen}"
    );
    let fp = play("", "100x30", &["--defect", "-u", "fp", late]);
    let number = |screen: &str| number(screen).and_then(|number| number.parse::<u64>().ok());
    assert!(number(&fp) < number(&screen), "{fp}");

    // What a derived table cannot hold is not an error, either.
    let lossy = "corpus/cases/dwarf/lazy-resolver-hangs-its-cfa-on-rbx.s";
    let screen = play("", "100x30", &["-u", "sframe,orc", lossy]);
    assert!(screen.contains("which is expected of orc"), "{screen}");
    let screen = play("", "100x30", &["-u", "dwarf", lossy]);
    assert!(screen.contains("no unwinder is wrong anywhere"), "{screen}");

    // Whoever names a state or a walk sees that.
    for named in [["--from", "3"], ["--walk", "orc"]] {
        let screen = play("", "100x30", &[&named[..], &[CASE]].concat());
        assert!(!screen.contains("the first finding"), "{screen}");
    }
}

/// The first lesson of docs/step.md, with the keys in its text and what it says of each.
#[test]
fn the_first_lesson_is_as_written() {
    let page = std::fs::read_to_string(root("docs/step.md")).expect("the page");
    let (_, lesson) = page.split_once("## A first lesson").expect("the lesson");
    let lesson = lesson.split("\n## ").next().unwrap_or_default();

    // Each step is an item: its keys, and in bold what is then on the screen.
    let mut keys = Vec::new();
    let mut seen = Vec::new();
    for item in lesson.split("\n- ").skip(1) {
        let (mut pressed, mut rest) = (Vec::new(), item);
        while let Some((key, behind)) = rest.strip_prefix('`').and_then(|r| r.split_once('`')) {
            pressed.push(key);
            rest = behind.trim_start();
        }
        keys.push(pressed.join(" "));
        let bold = item.split("**").skip(1).step_by(2);
        let bold = bold.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        seen.push(bold.collect::<Vec<_>>());
    }
    assert!(
        keys.len() > 4 && seen.iter().all(|seen| !seen.is_empty()),
        "{keys:?}"
    );

    let text = play(&keys.join("\n"), "100x30", &[CASE]);
    let line = "-".repeat(100) + "\n";
    let screens: Vec<&str> = text.split(&line).collect();
    assert_eq!(screens.len(), keys.len(), "{text}");
    for ((screen, seen), keys) in screens.iter().zip(&seen).zip(&keys) {
        for part in seen {
            assert!(screen.contains(part), "{keys}: no {part:?} in\n{screen}");
        }
    }
}
