//! `extract -o case.s` turns a recorded sample into a program that has the same chain.

use crate::cli::{THROWS, ends_with, run, snapshot, status, stderr};
use std::path::Path;
use unwind_sim_judge::case::Cell;
use unwind_sim_judge::cases;
use unwind_sim_judge::extract::Recorded;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::verdict::Verdict;

/// Samples of a program that throws exceptions, in the loader, libc and libstdc++.
const SAMPLES: [&str; 6] = ["0", "194", "1000", "1455", "2231", "2813"];

fn extract(folder: &Path, trace: &str, sample: &str) -> std::path::PathBuf {
    let path = folder.join(format!("sample-{sample}.s"));
    let file = path.to_string_lossy().into_owned();
    ends_with(0, &["extract", trace, "--sample", sample, "-o", &file]);
    path
}

/// The case builds, runs and has the chain that it states, and the unwinders are as right or wrong
/// as in the recording.
#[test]
fn a_sample_becomes_a_case_that_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    for sample in SAMPLES {
        let path = extract(folder.path(), THROWS, sample);
        let case = cases::read(&path).expect("a sound case");
        assert!(
            case.header.right.iter().any(|c| c.unwinder == "dwarf"),
            "{sample}"
        );

        // The case states its chain; blessing adds what the unwinders say, and checking repeats it.
        cases::bless(&path, &[], &CaseLimits::default())
            .unwrap_or_else(|e| panic!("{sample}: {e}"));
        cases::check(&path).unwrap_or_else(|e| panic!("{sample}: {e}"));

        // DWARF was right in the recording, and so it is in the case.
        let blessed = cases::read(&path).expect("a sound case");
        let matrix = blessed.expected.expect("it was blessed");
        let dwarf = matrix.cell("sample", "dwarf");
        assert!(
            matches!(
                dwarf,
                Some(Cell::Judged {
                    verdict: Verdict::Ok,
                    ..
                })
            ),
            "{sample}: {dwarf:?}"
        );
    }
}

/// `_start` calls `outer`, `outer` calls `mid`, `mid` calls `leaf`. `mid`'s row has the CFA offset
/// CFA. `mid`'s frame contains its own address and a return address into `outer`.
const PROGRAM: &str = "
        .globl _start, leaf
leaf:   .cfi_startproc
        mov     $1, %eax
        ret
        .cfi_endproc
mid:    START
        push    %rbx
        sub     $24, %rsp
        CFA
        lea     outer+5(%rip), %rax
        mov     %rax, 8(%rsp)
        lea     mid(%rip), %rax
        mov     %rax, 16(%rsp)
        mov     $7, %ebx
        call    leaf
        add     $24, %rsp
        pop     %rbx
        ret
        END
outer:  .cfi_startproc
        call    mid
        ret
        .cfi_endproc
_start: .cfi_startproc
        .cfi_undefined rip
        mov     $5, %ebx
        call    outer
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .cfi_endproc
";

/// The verdict on an unwinder's chain of a sample, and its reason.
fn verdict(file: &str, sample: &str, unwinder: &str) -> (String, String) {
    let output = run(&["replay", file, "--sample", sample, "--unwinder", unwinder]);
    let text = crate::cli::stdout(&output);
    let head = text
        .lines()
        .find_map(|l| l.strip_prefix(&format!("{unwinder}: ")));
    let head = head.unwrap_or_else(|| panic!("{file}: {text}{}", stderr(&output)));
    let verdict = head.split("  ").next().unwrap_or_default().to_owned();
    let cause = text
        .lines()
        .find(|l| l.starts_with("  US"))
        .unwrap_or_default();
    let code = cause.split_whitespace().next().unwrap_or_default();
    (verdict, code.to_owned())
}

/// The case of a program with a wrong row is wrong in the same way.
#[test]
fn a_wrong_row_is_wrong_in_the_case() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let rows =
        |cfa: &str, rbx: &str| format!(".cfi_def_cfa_offset {cfa}\n .cfi_offset %rbx, {rbx}");

    let mut wrong = 0;

    // The same code with rows that are wrong in different ways: where the walk goes, and what it
    // restores.
    for (name, cfi) in [
        ("right", rows("40", "-16")),
        ("return-into-outer", rows("16", "-16")),
        ("address-of-mid", rows("24", "-16")),
        ("saved-rbx", rows("32", "-16")),
        ("wrong-slot-of-rbx", rows("40", "-32")),
        ("beyond-the-caller", rows("48", "-16")),
        ("no-row", String::new()),
    ] {
        let (start, end) = if cfi.is_empty() {
            ("", "")
        } else {
            (".cfi_startproc", ".cfi_endproc")
        };
        let text = PROGRAM
            .replace("START", start)
            .replace("CFA", &cfi)
            .replace("END", end);

        let (source, program, trace) = (path("p.s"), path("p"), path("t.bin"));
        std::fs::write(&source, text).expect("written");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-nostdlib", "-static", "-no-pie", "-o", &program, &source]);
        assert!(cc.status().expect("cc runs").success());

        // One sample, at `leaf`.
        let record = [
            "record", "--engine", "emulator", "--at", "leaf", "-o", &trace, &program,
        ];
        ends_with(0, &record);

        for unwinder in ["dwarf", "sframe", "orc"] {
            let case = path(&format!("{name}.s"));
            ends_with(
                0,
                &[
                    "extract",
                    &trace,
                    "--sample",
                    "0",
                    "--unwinder",
                    unwinder,
                    "-o",
                    &case,
                ],
            );
            // The verdict must survive the way into the case, also where it is wrong.
            let (before, after) = (
                verdict(&trace, "0", unwinder),
                verdict(&case, "0", unwinder),
            );
            assert_eq!(after, before, "{name}, {unwinder}");
            wrong += usize::from(!before.0.starts_with("ok"));
        }
    }

    // Cases that are all right would say nothing about wrong ones.
    assert!(wrong >= 12, "{wrong}");
}

/// Samples of a real program that are wrong for several reasons: a written case shows the same, and
/// what it cannot show is refused without leaving a file.
#[test]
fn a_wrong_sample_of_a_program_is_wrong_in_the_case_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut written = 0;
    for (sample, unwinder) in [
        ("1747", "dwarf"),
        ("1740", "dwarf"),
        ("2852", "dwarf"),
        ("1747", "orc"),
        ("2", "sframe"),
        ("1", "orc"),
        // The call does not return, and its function's rows end with it.
        ("2916", "sframe"),
    ] {
        let case = folder.path().join(format!("sample-{sample}-{unwinder}.s"));
        let file = case.to_string_lossy().into_owned();
        let output = run(&[
            "extract",
            THROWS,
            "--sample",
            sample,
            "--unwinder",
            unwinder,
            "-o",
            &file,
        ]);

        // What was written has the same verdict as in the recording.
        if status(&output) == 0 {
            written += 1;
            assert_eq!(
                verdict(&file, "0", unwinder),
                verdict(THROWS, sample, unwinder),
                "{sample}"
            );
        } else {
            assert_eq!(status(&output), 2);
            assert!(stderr(&output).contains(unwinder), "{}", stderr(&output));
            assert!(!case.exists(), "{sample}");
        }
    }

    // All of these can be written today.
    assert_eq!(written, 7);
}

#[test]
fn what_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();

    let refused = |args: &[&str], what: &str| {
        let output = run(args);
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    };

    let case = file("case.s");

    // Several samples, and none chosen.
    refused(&["extract", THROWS, "-o", &case], "--sample N");
    let seed = crate::cli::SEED;
    refused(
        &["extract", seed, "--sample", "2", "-o", &case],
        "fake registers",
    );
    let perf = "corpus/perfdata/dwarf.data";
    refused(&["extract", perf, "--sample", "0", "-o", &case], "no truth");

    // The file's name becomes the case's name.
    let name = file("Not_Kebab.s");
    refused(
        &["extract", THROWS, "--sample", "0", "-o", &name],
        "Not_Kebab",
    );

    // What a case of one stack cannot express.
    for (name, what) in [
        ("signal/signal-frame-on-the-normal-stack", "signal"),
        (
            "dwarf/plt-formula-depends-on-the-low-bits-of-the-pc",
            "expression",
        ),
        (
            "dwarf/cfa-on-a-scratch-register-while-it-lives",
            "register that a call may change",
        ),
    ] {
        let from = format!("corpus/cases/{name}.s");
        refused(&["extract", &from, "--sample", "0", "-o", &case], what);
    }
}

#[test]
fn a_case_as_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = extract(folder.path(), THROWS, "1000");
    let text = std::fs::read_to_string(path).expect("the case");
    let header: String = text.lines().take(7).map(|l| format!("{l}\n")).collect();
    insta::with_settings!({
        snapshot_path => crate::cli::root("snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("cli-extracted-header", header.replace("sample-1000", "NAME")) });
    snapshot("extract-without-output", &["extract", THROWS]);
}

/// A return address that is not in the word below the CFA is written where it was.
#[test]
fn a_return_address_in_another_slot_is_kept_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (trace, case) = (path("t.bin"), path("moved.s"));
    let program = "corpus/cases/dwarf/return-address-in-another-slot.s";
    let at = ["--engine", "emulator", "--at", "moved", "-o", &trace];
    ends_with(0, &[&["record"], &at[..], &["--", program]].concat());
    let options = ["--unwinder", "dwarf", "-o", &case];
    let extract = ["extract", &trace, "--sample", "0"];
    ends_with(0, &[&extract[..], &options].concat());
    assert_eq!(verdict(&case, "0", "dwarf").0, "ok .");
    let text = std::fs::read_to_string(&case).expect("the case");
    assert!(text.contains(".cfi_offset rip, -24"), "{text}");
}

/// A case that does not show what it was made for is refused, and the message says what it shows.
#[test]
fn a_case_that_shows_something_else_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = extract(folder.path(), THROWS, "0");
    let text = std::fs::read_to_string(&path).expect("the case");
    let wanted = |verdict, code| {
        let cell = Cell::Judged { verdict, code };
        let unwinder = "dwarf".to_owned();
        unwind_sim_judge::extract::check(&text, &path, &[Recorded { unwinder, cell }])
    };
    wanted(Verdict::Ok, None).expect("it is right");
    let cut = wanted(Verdict::Truncated { at: 1 }, Some(Code::NoRow));
    let told = cut.expect_err("it is not").to_string();
    assert!(
        told.contains("dwarf was t@1/US103, but is . in the case"),
        "{told}"
    );
}
