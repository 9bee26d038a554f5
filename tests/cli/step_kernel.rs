//! `step --kernel`: a kernel of a few instructions is stepped through in both directions, and what does not
//! go with it is refused. That each state is the same however it is reached is tested in `record`.
#![cfg(feature = "machine")]

use crate::cli::emulate_kernel::image::{self, HALT};
use crate::cli::{run, status, stderr, stdout};
use serde_json::Value;
use std::process::Output;

/// What the kernel does: mov to %dx, two instructions for each byte, cli and hlt.
const INSTRUCTIONS: usize = 7;

fn timeline(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).expect("JSON")
}

/// A kernel that prints and halts, with the functions that are looked for.
fn kernel(folder: &tempfile::TempDir) -> String {
    let print = image::print("ab");
    let end = print.len() as u64;
    let symbols = [
        ("startup_64", 0),
        ("__switch_to_asm", end),
        ("ret_from_fork_asm", end + 1),
    ];
    let path = folder.path().join("vmlinux");
    let file = image::vmlinux_with_symbols(&[&print, HALT], &symbols);
    std::fs::write(&path, file).expect("written");
    path.display().to_string()
}

#[test]
fn states_of_a_booted_kernel_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(&folder);
    let output = run(&["step", "--json", "--kernel", &kernel]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let all = timeline(&output);
    let states = all["states"].as_array().expect("states");
    assert_eq!(states.len(), INSTRUCTIONS);
    // Before it has page tables of its own, it is at its physical addresses.
    let place = |number: usize| {
        let place: &Value = &states[number]["place"];
        (place["function"].clone(), place["offset"].clone())
    };
    assert_eq!(place(0), ("startup_64".into(), "0x0".into()));
    assert_eq!(place(1), ("startup_64".into(), "0x4".into()));
    assert_eq!(place(6), ("ret_from_fork_asm".into(), "0x0".into()));
    let walkers = all["walkers"].as_array().expect("walkers");
    let names = walkers.iter().map(|walker| walker["unwinder"].clone());
    let names: Vec<Value> = names.collect();
    assert_eq!(names, ["orc:kernel", "fp:kernel", "guess:kernel"]);

    // A window, and a function.
    let output = run(&[
        "step",
        "--json",
        "--from",
        "__switch_to_asm",
        "--count",
        "1",
        "--kernel",
        &kernel,
    ]);
    let all = timeline(&output);
    assert_eq!(all["first"], 5);
    let output = run(&["step", "--json", "--from", "99", "--kernel", &kernel]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("there is no state 99: there are 7"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn keys_go_through_a_booted_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(&folder);
    let script = folder.path().join("keys");
    let keys = "s s\nS\ng \"__switch_to_asm\" Enter\nEnd s\nHome S\ni\n";
    std::fs::write(&script, keys).expect("written");
    let script = script.display().to_string();
    let output = run(&["step", "--script", &script, "--kernel", &kernel]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let screens: Vec<&str> = stdout(&output).split("\n---").collect();
    let expected = [
        ("instruction 2 ", "startup_64+0x6"),
        ("instruction 1 ", "startup_64+0x4"),
        ("instruction 5 ", "__switch_to_asm+0x0"),
        (
            "instruction 6 ",
            "this is the end: the processor was halted with interrupts disabled",
        ),
        ("instruction 0 ", "this is the start"),
        (
            "instruction 0 ",
            "the kernel is not entered after this state",
        ),
    ];
    for ((number, text), screen) in expected.iter().zip(&screens) {
        assert!(
            screen.contains(number) && screen.contains(text),
            "{number} {text}: {screen}"
        );
    }
    assert!(screens.len() >= expected.len());
}

#[test]
fn states_are_extracted_and_judged_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(&folder);
    let small = folder.path().join("small.bin").display().to_string();
    let options = ["step", "--kernel", &kernel, "--extract", &small];
    let output = run(&[&options[..], &["--states", "1,4", "--scrub"]].concat());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let output = run(&["step", "--json", &small]);
    let states = timeline(&output)["states"]
        .as_array()
        .expect("states")
        .len();
    assert_eq!(states, 2);
    for (states, told) in [
        ("4,1", "the numbers are not in order"),
        ("1,99", "there is no state 99"),
    ] {
        let output = run(&[&options[..], &["--states", states]].concat());
        assert_eq!(status(&output), 2);
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
}

#[test]
fn what_does_not_go_with_a_booted_kernel_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = kernel(&folder);
    let booted = ["--kernel", &*kernel];
    let for_kernels = "is for a kernel that is booted: --kernel FILE without";
    let case = "corpus/cases/frame/leaf-with-a-red-zone.s";
    for (words, told) in [
        (
            &["--kernel", "6.12"][..],
            "what is booted is an image: --kernel FILE --init PROG",
        ),
        (&["--kernel", "6.12", "--nmi", "5", case], for_kernels),
        (
            &["--kernel", "6.12", "--append", "quiet", case],
            for_kernels,
        ),
        (
            &["--init", "init", case],
            "the following required arguments were not provided",
        ),
        (
            &["--kernel", "vmlinuz", "--init", "init", case],
            "leave out either",
        ),
        (
            &["--kernel", "vmlinuz", "--init", "i", "--", "ls"],
            "--kernel vmlinuz --init ls",
        ),
        (
            &[&booted[..], &["--samples"]].concat(),
            "--samples does not go with a kernel",
        ),
        (
            &[&booted[..], &["--root", "/tmp"]].concat(),
            "--root does not go with a kernel",
        ),
        (
            &[&booted[..], &["--force"]].concat(),
            "--force does not go with a kernel",
        ),
        (
            &[&booted[..], &["--view", "copy:64"]].concat(),
            "--view does not go with a kernel",
        ),
        (
            &[&booted[..], &["--nmi", "soon"]].concat(),
            "expected the number of a state, or at:SYMBOL",
        ),
        (
            &[&booted[..], &["--nmi", "at:nowhere"]].concat(),
            "the kernel has no symbol nowhere",
        ),
        (
            &[&booted[..], &["--nmi", "at:startup_64+x"]].concat(),
            "the offset is not a number",
        ),
        (
            &[&booted[..], &["--nmi", "at:startup_64+1"]].concat(),
            "no instruction there is executed",
        ),
        (
            &[&booted[..], &["--nmi", "3", "--nmi", "1"]].concat(),
            "it comes before the one in front of it",
        ),
        (
            &[&booted[..], &["--from", "nowhere"]].concat(),
            "no state is in a function nowhere",
        ),
    ] {
        let output = run(&[&["step", "--json"], words].concat());
        let said = stderr(&output);
        assert_eq!(status(&output), 2, "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
}
