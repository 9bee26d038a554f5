//! Any state is the same however it is reached.

use super::{Reversible, ReversibleRun as _};
use std::sync::Arc;
use unwind_sim_emulator::linux::ProcessOptions;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_recordings::model::Sample;

/// A shell with a pipeline: two processes, signals and waiting.
fn shell() -> RunningProgram {
    let args = [
        "sh",
        "-c",
        "echo one two | while read a b; do echo $b; done",
    ];
    RunningProgram {
        path: b"/bin/sh".to_vec(),
        options: ProcessOptions {
            args: args.map(|a| a.as_bytes().to_vec()).to_vec(),
            ..ProcessOptions::default()
        },
    }
}

fn start(stack_bytes: u64) -> Reversible {
    Reversible::start(shell(), stack_bytes, Arc::default()).unwrap()
}

/// What is compared of a state.
fn state(run: &Reversible) -> (Sample<'static>, usize) {
    let sample = run.sample();
    let mappings = run.world().space(sample.pid).mappings().len();
    (sample, mappings)
}

#[test]
fn a_state_is_the_same_from_both_sides() {
    let mut forward = start(1 << 12);
    let end = forward.go_to(u64::MAX);
    assert!(end > 100_000, "the program executes {end} instructions");
    assert!(forward.end().is_some());
    assert!(forward.sample().truth.is_complete());
    // The steps are not a multiple of anything.
    let numbers: Vec<u64> = (0..end).step_by(end as usize / 37).collect();
    let mut once = start(1 << 12);
    let states: Vec<_> = numbers
        .iter()
        .map(|&number| {
            assert_eq!(once.go_to(number), number);
            state(&once)
        })
        .collect();
    let pids: std::collections::BTreeSet<_> = states.iter().map(|(s, _)| s.pid).collect();
    assert!(pids.len() > 1, "both processes are seen: {pids:?}");
    for at in (0..numbers.len()).rev() {
        assert_eq!(forward.go_to(numbers[at]), numbers[at]);
        assert!(state(&forward) == states[at], "state {}", numbers[at]);
    }
    // Forwards again, past the end.
    assert_eq!(forward.go_to(u64::MAX), end);
    assert!(forward.end().is_some_and(|found| found.states == end));
}

#[test]
fn every_instruction_backwards() {
    let mut run = start(64);
    let from = 70_000;
    let forward: Vec<_> = (from..from + 50)
        .map(|number| {
            run.go_to(number);
            state(&run)
        })
        .collect();
    for (at, expected) in forward.iter().enumerate().rev() {
        run.go_to(from + at as u64);
        assert!(state(&run) == *expected, "state {}", from + at as u64);
    }
}
