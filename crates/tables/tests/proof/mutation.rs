//! Wrong rows put into the tables of this machine's files.

use crate::proof::build::open;
use crate::skip::skip;
use std::path::Path;
use unwind_sim_tables::selftest::{Kind, Options, Score, run};

/// Files of the quick test: those of them that exist.
const QUICK: [&str; 2] = ["/bin/sh", "/usr/bin/as"];
/// Files of the slow test, in C, C++ and assembly.
const SLOW: [&str; 16] = [
    "/bin/bash",
    "/bin/sh",
    "/usr/bin/as",
    "/usr/bin/gdb",
    "/usr/bin/git",
    "/usr/bin/ld.bfd",
    "/usr/bin/perl",
    "/usr/bin/python3",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libgmp.so.10",
    "/usr/lib/x86_64-linux-gnu/libm.so.6",
    "/usr/lib/x86_64-linux-gnu/libssl.so.3",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libz.so.1",
    "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
];
/// The number of defects of the slow test.
const DEFECTS: usize = 10_000;
/// The lowest score, percent. It is 99.5 here; other files may have more jump tables of unknown length.
const SCORE_MIN: f64 = 98.5;

fn test(files: &[&str], defects: usize) -> Score {
    let mut score = Score::default();
    let files: Vec<&&str> = files
        .iter()
        .filter(|path| Path::new(path).exists())
        .collect();
    for path in &files {
        let (_, file) = open(Path::new(path));
        let options = Options {
            seed: 1,
            defects: defects.div_ceil(files.len()),
            choice: Default::default(),
        };
        let Some(found) = run(&file, &options) else {
            println!("{path}: no .eh_frame");
            continue;
        };
        let total = found.total();
        println!("{path}: {} defects, {:.2?} %", total.all(), total.score());
        add(&mut score, found);
    }
    score
}

/// Adds the score of another file.
fn add(all: &mut Score, of_file: Score) {
    for ((_, all), (_, of_file)) in all.kinds.iter_mut().zip(of_file.kinds) {
        all.add(of_file);
    }
    for ((_, all), (_, of_file)) in all.arguments.iter_mut().zip(of_file.arguments) {
        *all += of_file;
    }
    all.misses.extend(of_file.misses);
    all.conflicts.extend(of_file.conflicts);
}

fn print(score: &Score) {
    for (kind, tally) in &score.kinds {
        println!(
            "{:<16} caught {:>5} equivalent {:>5} missed {:>5}  {:.2?} %",
            kind.as_str(),
            tally.caught,
            tally.equivalent,
            tally.missed,
            tally.score()
        );
    }
    for (argument, count) in &score.arguments {
        println!("equivalent by {:<16} {count:>5}", argument.as_str());
    }
    for miss in score.misses.iter().chain(&score.conflicts) {
        println!(
            "{} function {:#x} row {:#x}: {}: {}",
            miss.kind.as_str(),
            miss.function,
            miss.row,
            miss.answer,
            miss.change
        );
    }
    println!("all: {:?}, {:.2?} %", score.total(), score.total().score());
}

#[test]
fn wrong_rows_are_found() {
    let score = test(&QUICK, 300);
    print(&score);
    assert_eq!(score.conflicts, [], "caught, though said to be equivalent");
    if score.total().all() == 0 {
        return skip("wrong_rows_are_found", "no file with .eh_frame");
    }
    assert!(
        score
            .total()
            .score()
            .is_some_and(|score| score >= SCORE_MIN)
    );
    let kinds = score.kinds.iter().filter(|(_, tally)| tally.caught > 0);
    assert_eq!(
        kinds.count(),
        Kind::ALL.len(),
        "a kind of defect was never caught"
    );
}

#[test]
fn the_same_seed_gives_the_same_defects() {
    let score = |_| test(&QUICK[..1], 60);
    let [first, second] = [(), ()].map(score);
    assert_eq!(first, second);
}

#[test]
fn ten_thousand_wrong_rows_are_found() {
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(
            "ten_thousand_wrong_rows_are_found",
            "slow; set UNWIND_SIM_SLOW=1",
        );
    }
    let score = test(&SLOW, DEFECTS);
    print(&score);
    assert_eq!(score.conflicts, [], "caught, though said to be equivalent");
    assert!(score.total().all() >= DEFECTS as u64 * 9 / 10);
    assert!(
        score
            .total()
            .score()
            .is_some_and(|score| score >= SCORE_MIN)
    );
}
