//! Deadlocks: who waits, where, and for what.

use super::{lines, of_type, program, run, text};
use crate::cli::{status, stderr, stdout};
use crate::common::compiler::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;

const DEADLOCK: &str = include_str!("programs/deadlock.c");

/// The functions of a chain.
fn functions(frames: &Value) -> Vec<&str> {
    let frames = frames.as_array().map_or(&[][..], Vec::as_slice);
    let names = frames.iter().map(|frame| frame["function"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

/// The numbers follow the order in which the program creates them: 1001 to 1007 are children, 1008
/// to 1012 threads.
#[test]
fn each_thread_says_what_it_waits_for() {
    let scratch = Scratch::new();
    let program = program(&scratch, "deadlock", DEADLOCK);
    let output = run(&["verify", "-u", "dwarf,fp", "--json", "--", &program]);

    // The layout of a mutex is known for glibc only.
    let is_glibc = stdout(&run(&["emulate", "--", &program])).contains("glibc");
    let lines = lines(&output);
    let threads = of_type(&lines, "deadlock");
    let by_number: BTreeMap<u64, &Value> = threads
        .iter()
        .map(|thread| (thread["tid"].as_u64().expect("a number"), thread))
        .collect();
    let numbers: Vec<u64> = by_number.keys().copied().collect();
    // Processes and threads have numbers from 1000 on, in the order in which they start.
    assert_eq!(numbers, (1000..=1012).collect::<Vec<u64>>());

    let waits: Vec<&str> = by_number
        .values()
        .map(|thread| thread["waits_for"].as_str().expect("text"))
        .collect();
    let wanted = [
        "futex",
        "file",
        "file",
        "lock",
        "lock",
        "semaphores",
        "queue",
        "stopped",
        "futex",
        "futex",
        "thread",
        "child",
        "signal",
    ];
    assert_eq!(waits, wanted, "{threads:#?}");

    let thread = |number: u64| by_number[&number];
    // The locks, one in each other's hands.
    if is_glibc {
        assert_eq!(thread(1000)["futex"]["owner"], 1008);
        assert_eq!(thread(1008)["futex"]["owner"], 1000);
        assert_eq!(thread(1008)["futex"]["owner_known"], "glibc");
    }

    // A futex whose word holds its owner, as the kernel defines it.
    assert_eq!(thread(1009)["futex"]["owner"], 1000);
    assert_eq!(thread(1009)["futex"]["owner_known"], "word");
    assert_eq!(thread(1010)["number"], 1008);
    assert_eq!(thread(1008)["name"], "crosses");
    assert_eq!(thread(1001)["program"], "deadlock");

    // The processes at the other ends of the pipes.
    let ends = |number: u64| {
        let files = thread(number)["files"].as_array().expect("files").iter();
        files
            .map(|file| file["others"].clone())
            .collect::<Vec<Value>>()
    };
    assert_eq!(
        ends(1001),
        [serde_json::json!([
            1000, 1001, 1003, 1004, 1005, 1006, 1007
        ])]
    );
    assert_eq!(
        ends(1002)[0],
        serde_json::json!([1000, 1002, 1003, 1004, 1005, 1006, 1007])
    );
    assert_eq!(ends(1002).len(), 2);

    // The holders of the locks: all children inherited the open file, but not the lock of a process.
    assert_eq!(
        ends(1003),
        [serde_json::json!((1000..=1007).collect::<Vec<u32>>())]
    );
    assert_eq!(ends(1004), [serde_json::json!([1000])]);

    // Where, in truth and by the unwinders.
    for (number, function) in [
        (1000, "take"),
        (1008, "crosses"),
        (1010, "joins"),
        (1001, "main"),
    ] {
        let thread = thread(number);
        assert_eq!(thread["truth_complete"], true);
        let truth = functions(&thread["truth"]);
        assert!(truth.contains(&function), "{number}: {truth:?}");
        let chains = thread["chains"].as_array().expect("chains");
        let names: Vec<&Value> = chains.iter().map(|chain| &chain["unwinder"]).collect();
        assert_eq!(names, ["dwarf", "fp"]);
        assert_eq!(functions(&chains[0]["frames"]), truth, "{number}");
        assert_eq!(chains[0]["verdict"], "ok");
    }

    // What was checked until then counts: the libraries may have rows that are wrong.
    assert!([1, 3].contains(&status(&output)), "{}", status(&output));
}

#[test]
fn every_command_reports_a_deadlock() {
    let scratch = Scratch::new();
    let program = program(&scratch, "deadlock", DEADLOCK);
    let trace = text(&scratch.path("trace"));

    let emulated = run(&["emulate", "--", &program]);
    let recorded = run(&[
        "record",
        "--engine",
        "emulator",
        "--at",
        "every:10000",
        "-o",
        &trace,
        "--",
        &program,
    ]);
    let verified = run(&["verify", "-u", "dwarf", "--", &program]);

    // 3: the program did not end.
    assert_eq!(status(&emulated), 3);
    assert_eq!(status(&recorded), 3);
    for text in [stderr(&emulated), stderr(&recorded), stdout(&verified)] {
        let head = "deadlock: 13 threads wait for what cannot happen\n";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("thread 1010 (deadlock): waits in futex for the end of thread 1008"));
        assert!(text.contains("  take+0x"), "{text}");
    }

    // The truth is known unless nobody looked.
    assert!(!stderr(&emulated).contains("true chain"));
    assert!(stderr(&emulated).contains("dwarf+fp"));
    assert!(stderr(&recorded).contains("  true chain:\n"));
    assert!(stdout(&verified).contains("  dwarf: the same\n"));

    // An unchecked process has no truth, but chains.
    let output = run(&[
        "verify",
        "-u",
        "dwarf",
        "--json",
        "--children",
        "none",
        "--",
        &program,
    ]);
    for thread in of_type(&lines(&output), "deadlock") {
        // Only the first process was checked.
        let is_first = thread["pid"] == 1000;
        assert_eq!(thread["truth"].is_array(), is_first, "{thread}");
        assert!(thread["chains"].is_array());
    }
}

/// A program in which every row is right ends with 3, since it did not end by itself.
#[test]
fn the_status_is_that_of_a_run_that_did_not_end() {
    let scratch = Scratch::new();
    let source = ".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n\
        .cfi_undefined rip\n call wait\n hlt\n.cfi_endproc\n.size _start,.-_start\n\
        .type wait,@function\nwait:\n.cfi_startproc\n mov $202, %eax\n lea word(%rip), %rdi\n\
        xor %esi, %esi\n mov $7, %edx\n xor %r10d, %r10d\n syscall\n ret\n.cfi_endproc\n\
        .size wait,.-wait\n.data\n.balign 4\nword: .long 7\n";
    let path = scratch.cc("alone.S", source, &["-nostdlib", "-static", "-no-pie"]);
    let path = text(&path.expect("assembled"));
    let output = run(&["verify", "-u", "dwarf", "--json", "--", &path]);
    assert_eq!(status(&output), 3, "{}", stderr(&output));
    let threads = of_type(&lines(&output), "deadlock");
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0]["futex"]["value"], "0x7");
    assert_eq!(threads[0]["futex"]["owner"], Value::Null);
    assert_eq!(functions(&threads[0]["truth"]), ["wait", "_start"]);
}

/// Timers that nobody reads do not make a long sleep look like a deadlock, and a write that goes on
/// in part does not either.
#[test]
fn what_can_still_happen_is_no_deadlock() {
    let scratch = Scratch::new();
    let source = r#"#include <stdint.h>
        #include <stdio.h>
        #include <sys/timerfd.h>
        #include <time.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static char bytes[200000];
        int main(void) {
          int timer = timerfd_create(CLOCK_MONOTONIC, 0);
          struct itimerspec often = {{0, 1000000}, {0, 1000000}};
          timerfd_settime(timer, 0, &often, 0);
          struct timespec pause = {40, 0};
          nanosleep(&pause, 0);
          uint64_t expired;
          if (read(timer, &expired, 8) == 8) printf("%d\n", (int)(expired / 1000));
          fflush(stdout);
          int ends[2];
          if (pipe(ends)) return 1;
          if (fork() == 0) {
            close(ends[1]);
            sleep(1);
            static char all[200000];
            size_t sum = 0;
            for (ssize_t got; (got = read(ends[0], all, sizeof all)) > 0; sum += got);
            printf("%zu\n", sum);
            return 0;
          }
          close(ends[0]);
          if (write(ends[1], bytes, sizeof bytes) != sizeof bytes) return 1;
          close(ends[1]);
          wait(0);
        }"#;

    // The timer expires 1000 times a second, for 40 s; and 200,000 bytes are more than a pipe
    // holds.
    let program = program(&scratch, "sleeps", source);
    // With another seed, the processes take other turns: the answer must not depend on them.
    for seed in ["0", "1", "2"] {
        let output = run(&["emulate", "--seed", seed, "--", &program]);
        assert_eq!(stdout(&output), "40\n200000\n", "{}", stderr(&output));
        assert_eq!(status(&output), 0);
    }
}
