//! `record --engine emulator --at SYMBOL` and `--lbr` in all threads and processes.

use super::{lines, of_type, program, run, text};
use crate::cli::{status, stderr};
use crate::common::compiler::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;

const CALLS: &str = include_str!("programs/calls.c");
/// As in the program.
const TIMES: u64 = 400;

/// Records, and returns the chains of an unwinder.
fn chains(scratch: &Scratch, unwinder: &str, options: &[&str], programs: &[&str]) -> Vec<Value> {
    let trace = text(&scratch.path("trace"));
    let record = ["record", "--engine", "emulator", "-o", &trace];
    let output = run(&[&record, options, &["--"], programs].concat());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let chains = run(&["replay", &trace, "-u", unwinder, "--json"]);
    of_type(&lines(&chains), "chain")
}

/// How often each thread was sampled.
fn by_thread(chains: &[Value]) -> BTreeMap<(u64, u64), u64> {
    let mut counts = BTreeMap::new();
    for chain in chains {
        let number = |key: &str| chain[key].as_u64().expect("a number");
        *counts.entry((number("pid"), number("tid"))).or_default() += 1;
    }
    counts
}

#[test]
fn every_call_in_every_thread_is_sampled_once() {
    let scratch = Scratch::new();
    let first = program(&scratch, "first", CALLS);
    let other = text(&scratch.path("other"));
    std::fs::copy(&first, &other).expect("copied");
    // A switch between threads can fall between the arrival at the place and its instruction.
    for seed in ["0", "1", "2"] {
        let options = ["--at", "target", "--seed", seed];
        let chains = chains(&scratch, "dwarf", &options, &[&first, &other]);
        let wanted = [
            (1000, 1000),
            (1000, 1001),
            (1000, 1002),
            (1003, 1003),
            (1004, 1004),
            (1004, 1005),
            (1004, 1006),
            (1007, 1007),
        ];
        let wanted = wanted.map(|task| (task, TIMES));
        assert_eq!(by_thread(&chains), BTreeMap::from(wanted), "seed {seed}");
        assert!(chains.iter().all(|chain| chain["verdict"]["word"] == "ok"));
    }
}

#[test]
fn a_recording_starts_in_any_thread() {
    let scratch = Scratch::new();
    let first = program(&scratch, "first", CALLS);
    let schedule = text(&scratch.path("schedule"));
    // The second thread is the first to reach the place.
    std::fs::write(&schedule, "1000:* 1002:*").expect("written");
    let options = [
        "--from",
        "deep",
        "--at",
        "every:1",
        "--max-samples",
        "3",
        "--schedule",
        &schedule,
    ];
    let chains = chains(&scratch, "dwarf", &options, &[&first]);
    assert_eq!(by_thread(&chains), BTreeMap::from([((1000, 1002), 3)]));
}

/// The samples of the two threads, in order: whose they are, and whether their records are right.
fn records(scratch: &Scratch, program: &str, storage: &[&str]) -> Vec<(u64, bool)> {
    let options = [&["--at", "target", "--lbr", "32"], storage].concat();
    let chains = chains(scratch, "lbr", &options, &[program]);
    assert_eq!(chains.len() as u64, 4 * TIMES);
    let of_threads = chains
        .iter()
        .filter(|chain| chain["pid"] == 1000 && chain["tid"] != 1000);
    let verdict = |chain: &Value| {
        let verdict = &chain["verdict"];
        let tid = chain["tid"].as_u64().expect("a number");
        (tid, verdict["found"] == verdict["known"])
    };
    of_threads.map(verdict).collect()
}

/// As Linux does it: rings are saved and restored with the thread, or wiped when it is switched
/// out.
#[test]
fn branch_records_are_saved_or_wiped_at_a_switch() {
    let scratch = Scratch::new();
    let first = program(&scratch, "first", CALLS);
    let saved = records(&scratch, &first, &[]);
    assert_eq!(saved.len() as u64, 2 * TIMES);

    // A ring of which nothing was saved since is not restored. If the thread in between has ended,
    // its records are still there (Linux up to 7.2, see `Mutation::RestoreForgets`).
    let wrong = saved.iter().position(|(_, is_right)| !is_right);
    let wrong = wrong.unwrap_or(saved.len());
    let survivor = saved[saved.len() - 1].0;
    assert!(
        saved[wrong..].iter().all(|(tid, _)| *tid == survivor),
        "{saved:?}"
    );
    assert!(wrong > saved.len() * 9 / 10, "{wrong}");

    let switches = saved
        .windows(2)
        .filter(|pair| pair[0].0 != pair[1].0)
        .count();
    assert!(switches > 2, "{switches}");

    assert_eq!(records(&scratch, &first, &["--lbr-storage", "task"]), saved);

    // After its first switch a thread never has its outermost calls again.
    let wiped = records(&scratch, &first, &["--lbr-storage", "cpu"]);
    let right = wiped.iter().filter(|(_, is_right)| *is_right).count();
    assert!(right < wiped.len() * 3 / 4, "{right} of {}", wiped.len());

    let back = wiped.windows(2).position(|pair| pair[0].0 != pair[1].0);
    let back = back.expect("a switch");
    let again = wiped[back..]
        .windows(2)
        .position(|pair| pair[1].0 == wiped[0].0);
    let again = back + again.expect("a switch back");

    let later = wiped[again + 1..]
        .iter()
        .filter(|(tid, _)| *tid == wiped[0].0);
    assert!(later.clone().count() > 0 && later.clone().all(|(_, is_right)| !is_right));

    let output = run(&["record", "--lbr-storage", "cpu", "--", &first]);
    assert_eq!(status(&output), 2);
}
