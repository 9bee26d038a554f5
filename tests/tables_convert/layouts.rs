//! The layouts of ORC entries that a command is told.

use crate::common::compiler::Scratch;
use std::process::Command;

/// A layout that the entries do not have would give other rows, or none, without a word.
#[test]
fn a_layout_that_does_not_fit_is_refused() {
    const NAMES: [&str; 5] = ["4.14", "5.12", "6.3", "6.4", "7.1"];
    let scratch = Scratch::new();
    // A recursion that stays one, so that there are rows with a frame.
    let program = scratch
        .cc(
            "program.c",
            "int main(int n, char **v) { return n > 1 ? main(n - 1, v) + 1 : 0; }",
            &["-O1", "-fno-optimize-sibling-calls"],
        )
        .expect("cc");

    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = command.args(args).output().expect("the tool runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    let path = |name: &str| scratch.path(name).display().to_string();

    // The entries are written in one layout, and read as each of them.
    for has in NAMES {
        let (orc, format, out) = (path("orc"), format!("orc:{has}"), path("out"));
        let program = program.display().to_string();
        let made = run(&["tables", "convert", &program, "--to", &format, "-o", &orc]);
        assert_eq!(made.0, Some(0), "{has}: {}", made.1);

        for told in NAMES {
            // Calls of 4.14 and 5.12 are the same, and mean the same in 6.3.
            let is_old = |name: &str| name == "4.14" || name == "5.12";
            let fits = has == told || is_old(has) && (is_old(told) || told == "6.3");
            let status = Some(if fits { 0 } else { 2 });
            let converted = run(&[
                "tables",
                "convert",
                &orc,
                "--from",
                "orc",
                "--orc-layout",
                told,
                "--to",
                "sframe-v3",
                "-o",
                &out,
            ]);
            let shown = run(&["inspect", &orc, "--orc-layout", told]);

            // Two commands that take the option: both refuse, with the same advice.
            for (found, text) in [&converted, &shown] {
                assert_eq!(*found, status, "{has} as {told}: {text}");
                let refusal = format!("not of {told}; leave --orc-layout out");
                assert_eq!(text.contains(&refusal), !fits, "{has} as {told}: {text}");
            }

            let line = format!("bytes, layout {told}\n");
            assert_eq!(
                shown.1.contains(&line),
                fits,
                "{has} as {told}: {}",
                shown.1
            );
        }
    }

    // Files without ORC entries: there is nothing that could have a layout.
    for file in ["corpus/sframe/t_2.46", "corpus/traces/seed-004.bin"] {
        let (status, text) = run(&["inspect", file, "--orc-layout", "6.4"]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("has no ORC entries"), "{text}");
    }
}
