//! The real gdb, if there is one: its own unwinder beside the true chain, at every instruction.

use super::{CASE, root};
use crate::common::skip::skip;
use std::io::Read;
use std::process::{Command, Stdio};

/// What gdb says at the end of a run: up to gdb 15, and later.
const END: [&str; 2] = [
    "No more reverse-execution history.",
    "Reached end of recorded history; stopping.",
];

/// What gdb says to a script; `None` without gdb.
fn gdb(test: &str, script: &str, args: &str) -> Option<String> {
    if Command::new("gdb").arg("--version").output().is_err() {
        skip(test, "gdb is not installed");
        return None;
    }
    let tool = env!("CARGO_BIN_EXE_unwind-sim");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let script = format!(
        "set pagination off\nset confirm off\nset width 0\nset sysroot /\n\
         target remote | '{tool}' gdbserver - {args}\n{script}"
    );
    std::fs::write(file.path(), script).expect("it is written");
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-x"]).arg(file.path());
    command.env_remove("DEBUGINFOD_URLS").current_dir(root(""));
    // What `monitor` prints is an error for gdb: one pipe keeps the order.
    let (mut from, to) = std::io::pipe().expect("a pipe");
    command.stdout(to.try_clone().expect("its end")).stderr(to);
    let mut child = command.stdin(Stdio::null()).spawn().expect("gdb runs");
    // Its copies of the pipe's end would keep it open.
    drop(command);
    let mut text = Vec::new();
    from.read_to_end(&mut text).expect("its output");
    child.wait().expect("it ends");

    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("_start"), "{text}");
    Some(text)
}

/// The program counters of the lines `#N  0xPC in ..`.
fn chain(text: &str) -> Vec<u64> {
    let frames = text.lines().filter(|line| line.starts_with('#'));
    let pc = |line: &str| {
        let word = line.split_whitespace().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    frames.map(|line| pc(line).expect(line)).collect()
}

/// gdb needs no model of the simulator: it reads registers, memory and `.eh_frame` by itself.
#[test]
fn gdb_agrees_with_the_truth_at_every_instruction() {
    let script = "set $n = 0\n\
        while $n < 40\n\
        echo STATE\\n\n\
        bt\n\
        echo TRUTH\\n\n\
        monitor truth\n\
        echo STEP\\n\n\
        stepi\n\
        set $n = $n + 1\n\
        end\n";
    let test = "gdb_agrees_with_the_truth_at_every_instruction";
    let Some(text) = gdb(test, script, &format!("-- {CASE}")) else {
        return;
    };

    let mut deepest = 0;
    let states: Vec<&str> = text.split("STATE\n").skip(1).collect();
    // Fewer would mean that gdb gave up in between.
    assert_eq!(states.len(), 40, "{text}");
    for state in states {
        let (gdb, rest) = state.split_once("TRUTH\n").expect(state);
        let (truth, _) = rest.split_once("STEP\n").expect(rest);
        assert_eq!(chain(gdb), chain(truth), "{state}");
        deepest = deepest.max(chain(truth).len());
    }
    // Chains that never get deep would agree by chance.
    assert_eq!(deepest, 4, "{text}");
    // gdb says this where it is told `replaylog`: the program ends within the 40 steps.
    assert!(END.iter().any(|end| text.contains(end)), "{text}");
}

#[test]
fn gdb_watches_goes_back_and_is_refused_writes() {
    let script = "break leaf\n\
        continue\n\
        watch *(long *) ($rbp - 8)\n\
        reverse-stepi\n\
        stepi\n\
        delete 2\n\
        watch *(long *) $rsp\n\
        reverse-continue\n\
        x/i $pc\n\
        info registers rip\n\
        monitor wrong\n\
        set var $rax = 1\n";
    let test = "gdb_watches_goes_back_and_is_refused_writes";
    let Some(text) = gdb(test, script, &format!("-- {CASE}")) else {
        return;
    };
    assert!(text.contains("Breakpoint 1, "), "{text}");
    assert!(text.contains("Old value = "), "{text}");
    assert!(text.contains("push   %rbp"), "{text}");
    assert!(text.contains("fp: "), "{text}");
    assert!(text.contains("Could not write register"), "{text}");
}
