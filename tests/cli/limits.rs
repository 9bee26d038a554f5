//! Cases whose program does not end, and an unwinder of one's own that takes too long: named limits.

use crate::cli::{SEED, run, status, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A case that is right as far as it goes: `body` runs in the sampled function.
fn case(folder: &Path, name: &str, body: &str) -> String {
    let path = folder.join(name).with_extension("s");
    let text = format!(
        "#! claim: A function calls another one.\n#! source: a test\n#! group: frame\n\
         #! right: dwarf\n#@ inside: leaf < _start\n        .include \"prelude.inc\"\n\
         FUNC leaf\ninside: nop\n{body}\n        ret\nENDFUNC leaf\n\
         \x20       .globl _start\n        .type _start, @function\n_start: .cfi_startproc\n\
         \x20       .cfi_undefined rip\n        call leaf\n        mov $60, %eax\n\
         \x20       xor %edi, %edi\n        syscall\n        .cfi_endproc\n\
         \x20       .size _start, . - _start\n"
    );
    std::fs::write(&path, text).expect("a case");
    path.to_str().expect("UTF-8").to_owned()
}

/// A folder with what cases include.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let prelude = crate::cli::root("corpus/cases/prelude.inc");
    std::fs::copy(prelude, folder.path().join("prelude.inc")).expect("a copy");
    folder
}

const LOOP: &str = "1: jmp 1b";
const FORKS: &str = "1: mov $57, %eax\n syscall\n jmp 1b";
const OUTPUT: &str = "1: mov $1, %eax\n mov $1, %edi\n lea -65536(%rsp), %rsi\n \
                      mov $65536, %edx\n syscall\n jmp 1b";
const VISITS: &str = "jmp inside";
const SLEEP: &str = "1: push $0\n push $100000\n mov %rsp, %rdi\n xor %esi, %esi\n \
                     mov $35, %eax\n syscall\n add $16, %rsp\n jmp 1b";

/// Each program that does not end, the options that end it soon, and what is said of the limit.
const ENDLESS: [(&str, &str, &[&str], &str); 6] = [
    (
        "loops",
        LOOP,
        &["--max-instructions", "5000"],
        "5000 instructions; --max-instructions N",
    ),
    (
        "waits",
        LOOP,
        &["--timeout", "0.3"],
        "0.3 s; --timeout SECONDS",
    ),
    (
        "sleeps",
        SLEEP,
        &["--timeout", "0.3"],
        "0.3 s; --timeout SECONDS",
    ),
    (
        "writes",
        OUTPUT,
        &["--max-instructions", "5000"],
        "5000 instructions; --max-instructions N",
    ),
    (
        "visited",
        VISITS,
        &["--max-samples", "9"],
        "9 visits of sample points; --max-samples N",
    ),
    (
        "forking-forever",
        FORKS,
        &["--max-tasks", "20"],
        "20 threads and processes at the same time; --max-tasks N",
    ),
];

/// `cases run` calls it failed and goes on; commands that need its recording end with 2.
#[test]
fn a_case_that_does_not_end_is_stopped_at_a_named_limit() {
    for (name, body, options, limit) in ENDLESS {
        let folder = folder();
        let path = case(folder.path(), name, body);
        // The case behind it in the order of names must still be run.
        case(folder.path(), "z-ends", "");
        let below = folder.path().to_str().expect("UTF-8");

        let all = run(&[&["cases", "run", "--folder", below], options].concat());
        let text = stdout(&all);
        assert_eq!(status(&all), 1, "{name}: {text}{}", stderr(&all));
        let wanted = format!("the limit of {limit} raises it\n");
        assert!(text.contains(&wanted), "{name}: {text}");
        assert!(
            text.contains("z-ends:\nit was never blessed"),
            "{name}: {text}"
        );

        for command in ["explain", "doctor", "replay", "inspect", "compare"] {
            // A recording that ends at a limit would look whole, so these commands do not go on
            // with a part of it.
            let one = run(&[&[command, &path], options].concat());
            assert_eq!(status(&one), 2, "{command} {name}: {}", stdout(&one));
            assert!(
                stderr(&one).contains(wanted.trim_end()),
                "{command}: {}",
                stderr(&one)
            );
        }

        let one = run(&[&["step", "--samples", "--json", &path], options].concat());
        assert_eq!(status(&one), 2, "step {name}: {}", stdout(&one));
        assert!(
            stderr(&one).contains(wanted.trim_end()),
            "step: {}",
            stderr(&one)
        );
    }

    // A stopped case must leave no process behind.
    assert!(is_gone("forking-forever"));
}

/// Whether no process of this name is left soon; a kernel keeps 15 bytes of it. Those that ended, and
/// that nobody has waited for, do not count.
fn is_gone(name: &str) -> bool {
    const ATTEMPTS: usize = 200;
    let short = &name[..name.len().min(15)];
    let is_alive = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
        };
        let has_ended = field("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
        field("Name:") == Some(short) && !has_ended
    };
    (0..ATTEMPTS).any(|_| {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_any = processes.into_iter().any(is_alive);
        if is_any {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        !is_any
    })
}

/// A kernel's handlers count, too: each interrupts every instruction.
#[test]
fn a_kernel_is_stopped_with_its_handlers() {
    for name in [
        "every-instruction-with-frame-pointers",
        "interrupt-at-every-instruction-with",
    ] {
        let output = run(&["cases", "run", name, "--max-instructions", "50"]);
        assert_eq!(status(&output), 1, "{}", stdout(&output));
        let wanted = "the limit of 50 instructions; --max-instructions N raises it";
        assert!(stdout(&output).contains(wanted), "{}", stdout(&output));
    }
}

/// What is not run has no limits.
#[test]
fn limits_are_for_cases() {
    // These limit a run, and a recording is not run.
    for option in ["--timeout", "--max-samples", "--max-tasks"] {
        let output = run(&["replay", SEED, option, "1"]);
        assert_eq!(status(&output), 2);
        let wanted = format!("unwind-sim: {option} is for a case, whose program is run");
        assert!(stderr(&output).starts_with(&wanted), "{}", stderr(&output));
    }

    let limits = [
        "--max-instructions",
        "--timeout",
        "--max-samples",
        "--max-tasks",
    ];
    for option in limits {
        // Refused before the output is opened, which could not be.
        let out = ["-o", "/nonexistent/out.bin"];
        for command in [
            &["compare", SEED][..],
            &["doctor", SEED],
            &["explain", SEED],
            &["inspect", SEED],
            &[&["extract", SEED][..], &out].concat(),
        ] {
            let output = run(&[command, &[option, "1"]].concat());
            let wanted = format!("unwind-sim: {option} is for a case, whose program is run; ");
            assert_eq!(status(&output), 2, "{command:?}");
            assert!(stderr(&output).starts_with(&wanted), "{}", stderr(&output));
        }
        let output = run(&["cases", "list", option, "1"]);
        let wanted = format!("error: unexpected argument '{option}' found");
        assert_eq!(status(&output), 2);
        assert!(stderr(&output).starts_with(&wanted), "{}", stderr(&output));
    }

    // Neither a recording nor a program has the sample points of a case.
    for option in &limits[1..] {
        for subject in [&[SEED][..], &["--", "/bin/true"]] {
            let output = run(&[&["step", "--json", option, "1"], subject].concat());
            let wanted = format!("unwind-sim: {option} is for the sample points of a case");
            assert_eq!(status(&output), 2, "{option} {subject:?}");
            assert!(stderr(&output).starts_with(&wanted), "{}", stderr(&output));
        }
    }

    // Other unwinders are not waited for.
    let output = run(&["compare", SEED, "--unwinder-timeout", "1"]);
    let wanted = "unwind-sim: --unwinder-timeout is for --unwinder cmd:PROGRAM";
    assert!(stderr(&output).starts_with(wanted), "{}", stderr(&output));

    // Confirming runs the program, so here a limit is accepted.
    let confirmed = ["--confirm", "--sample", "0", "--max-instructions", "9"];
    let output = run(&[&["replay", SEED][..], &confirmed].concat());
    assert_ne!(status(&output), 2, "{}", stderr(&output));
    let output = run(&["replay", SEED, "--max-instructions", "1"]);
    assert!(
        stderr(&output).contains("is for --confirm, and for a case"),
        "{}",
        stderr(&output)
    );
}

/// Stacks that an unwinder did not answer in its time are not judged as wrong.
#[test]
fn an_unwinder_that_is_too_slow_is_not_wrong() {
    const SLOW: &str = "#!/bin/sh\nwhile read line; do sleep 100; done\n";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("slow");
    std::fs::write(&path, SLOW).expect("a script");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("a mode");
    let own = format!("cmd:sh {}", path.display());
    for against in [&[][..], &["--against", "dwarf"]] {
        let args = ["compare", SEED, "-u", &own, "--unwinder-timeout", "0.2"];
        let output = run(&[&args, against].concat());
        assert_eq!(status(&output), 3, "{}{}", stdout(&output), stderr(&output));
        let said =
            "its answers took 0.2 s in all, the limit, which --unwinder-timeout SECONDS raises";
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        let counted = "3  the unwinder's time for all its answers is over\n";
        assert!(stdout(&output).contains(counted), "{}", stdout(&output));
    }
}

/// A negative number and none at all were taken for no limit.
#[test]
fn a_time_limit_is_a_number_of_seconds() {
    for limit in ["-1", "nan", "soon"] {
        for args in [
            &["emulate", "--timeout", limit, "--", "/bin/true"][..],
            &["compare", SEED, "--unwinder-timeout", limit],
            &["cases", "run", "--timeout", limit],
            &[
                "record",
                "--engine",
                "emulator",
                "--timeout",
                limit,
                "--",
                "/bin/true",
            ],
        ] {
            let output = run(args);
            assert_eq!(status(&output), 2, "{args:?}");
            let wanted = format!("invalid value '{limit}' for '--");
            assert!(stderr(&output).contains(&wanted), "{}", stderr(&output));
        }
    }
}
