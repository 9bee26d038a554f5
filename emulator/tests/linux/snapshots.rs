//! Restores programs to snapshots again and again: whatever is visible of them must always equal
//! that of an uninterrupted run after the same number of instructions.

use super::{build, options, start};
use crate::random::Random;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use unwind_sim_emulator::linux::{
    Kernel, Limits, Outcome, ProcessObserver, ProcessOptions, SystemCall,
};
use unwind_sim_emulator::{Core, Executed, Observer, RestoreError, state::reg};

const PAGE: u64 = 4096;
/// Of larger areas, only this many bytes at both ends are compared.
const LOOKED_AT: u64 = 32 * PAGE;
/// Instructions between two comparisons.
const STEP: u64 = 211;
/// Maximum number of snapshots held.
const HELD_MAX: usize = 8;

/// Everything visible of a process; memory as a hash.
#[derive(Clone, PartialEq, Debug)]
struct ProcessImage {
    executed: u64,
    outcome: Outcome,
    registers: Vec<u64>,
    memory: u64,
    pages: usize,
    output: [Vec<u8>; 2],
    files: Vec<Option<Vec<u8>>>,
}

fn seen(process: &mut Kernel, cwd: &Path) -> ProcessImage {
    // Without executing anything: how it has ended, if it has.
    let outcome = process.run(0, &mut ());
    let core = &process.machine.core;
    let mut hash = DefaultHasher::new();
    (
        core.state.vectors.lower(),
        core.fx_image(),
        core.state.mxcsr,
    )
        .hash(&mut hash);

    for (range, area) in core.memory.areas() {
        (range.start, range.end, format!("{:?}", area.permissions())).hash(&mut hash);

        // The edges of each area, since hashing all of it at each step would take too long.
        let low = range.start..range.end.min(range.start + LOOKED_AT);
        let high = low.end.max(range.end.saturating_sub(LOOKED_AT))..range.end;
        for part in [low, high] {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            core.memory.peek(part.start, &mut bytes).expect("mapped");
            bytes.hash(&mut hash);
        }
    }

    let path = |name: &str| cwd.join(name).into_os_string().into_encoded_bytes();
    let (rip, rflags) = (core.state.rip, core.state.rflags());

    ProcessImage {
        executed: process.executed(),
        outcome,
        registers: (0..16)
            .map(|n| core.state.gpr(n))
            .chain([rip, rflags, core.state.gpr(reg::FS)])
            .collect(),
        memory: hash.finish(),
        pages: core.memory.pages_in_use(),
        output: [process.stdout().to_vec(), process.stderr().to_vec()],
        files: ["file", "other"]
            .map(|name| process.file(&path(name)))
            .to_vec(),
    }
}

/// Runs until this number of instructions has been executed, or the program ends.
fn run_to(process: &mut Kernel, executed: u64) {
    process.run(executed.saturating_sub(process.executed()), &mut ());
}

/// A run that is restored equals, at each step, one that is not; so does a copied one.
fn same_as_straight(name: &str, arguments: &[&str], steps: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(name, directory.path());

    // The files of the program: they are part of what is taken back.
    let cwd = directory.path().join("work");
    std::fs::create_dir(&cwd).expect("a directory");
    let begin = || start(&program, options(&program, arguments, &cwd));

    let mut straight = begin();
    let mut expected = BTreeMap::new();
    // Programs that end earlier are compared more often.
    loop {
        let at = straight.executed();
        expected.insert(at, seen(&mut straight, &cwd));
        run_to(&mut straight, (at / STEP + 1) * STEP);
        if straight.executed() == at {
            break;
        }
    }

    // The seed follows from the program, so a failure can be repeated.
    let last = straight.executed();
    let random = &mut Random::new(last);
    let mut process = begin();
    let mut held = Vec::new();
    let mut restored = 0;
    for step in 0..steps {
        let at = process.executed();
        match random.below_u64(4) {
            // A copy is taken with each snapshot: both hold the same state.
            0 => {
                held.push((process.snapshot(), process.clone()));
                if held.len() > HELD_MAX {
                    held.remove(random.below(HELD_MAX));
                }
            }
            1 if !held.is_empty() => {
                let index = random.below(held.len());
                let (snapshot, copy) = &mut held[index];
                process.restore(snapshot).expect("there is a way back");
                assert_eq!(process.executed(), snapshot.executed());
                run_to(copy, at);
                assert_eq!(seen(copy, &cwd), expected[&at], "{name} {step}: a copy");
                // What was taken after this snapshot is undone with it.
                for (newer, _) in held.drain(index + 1..) {
                    assert_eq!(process.restore(&newer), Err(RestoreError::Undone));
                }
                // The old copy has moved on.
                held[index].1 = process.clone();
                restored += 1;
            }
            // Always to a multiple of the step, where the expected state is known.
            _ => {
                let further = at + STEP * (1 + random.below_u64(last / STEP / 8 + 1));
                run_to(&mut process, further / STEP * STEP);
            }
        }

        let at = process.executed();
        assert_eq!(seen(&mut process, &cwd), expected[&at], "{name} {step}");
    }

    run_to(&mut process, last);
    assert_eq!(seen(&mut process, &cwd), expected[&last], "{name}");

    // Enough ways back must have been taken.
    assert!(restored > steps / 8, "{name}: {restored}");
}

#[test]
fn programs_that_are_taken_back_run_as_others_do() {
    same_as_straight("snapshots", &[], 120);
    same_as_straight("signals", &[], 60);
    same_as_straight("memory", &[], 60);
    same_as_straight("files", &[], 60);
    same_as_straight("ends", &["e"], 60);
}

/// Sockets that are connected, what they have received, the open files in it, what is watched, files
/// that memory shows, who traces whom, and what belongs to no process belong to the kernel's state: a run that goes back now and then, and a copy of it, end as others.
#[test]
fn sockets_shared_memory_and_what_is_watched_are_taken_back() {
    /// Where to go back: now and then, and where open files are on their way.
    #[derive(Default)]
    struct RestorePoints(u64, Vec<u64>);

    impl Observer for RestorePoints {
        fn before(&mut self, _: &Core, _: &Executed) {
            self.0 += 1;
        }

        fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
    }

    impl ProcessObserver for RestorePoints {
        fn system_call(&mut self, call: &SystemCall, _: &Core) {
            // Not after an error: those are the largest numbers of 64 bits.
            if call.name == "sendmsg" && call.result < PAGE {
                self.1.push(self.0);
            }
        }
    }

    const PARTS: u64 = 40;
    for name in [
        "calls/sockets",
        "calls/objects",
        "calls/shared",
        "calls/ipc",
        "calls/stops",
        "calls/events",
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let program = build(name, directory.path());
        let cwd = directory.path().join("work");
        std::fs::create_dir(&cwd).expect("a directory");
        let begin = || start(&program, options(&program, &[], &cwd));

        let (mut straight, mut points) = (begin(), RestorePoints::default());
        let outcome = straight.run(super::INSTRUCTIONS_MAX, &mut points);
        assert_eq!(outcome, Outcome::Exited(0));

        let last = straight.executed();
        let mut points = points.1;
        points.extend((0..PARTS).map(|part| last * part / PARTS));
        points.sort_unstable();

        let mut process = begin();
        for (index, point) in points.into_iter().enumerate() {
            run_to(&mut process, point);
            let snapshot = process.snapshot();

            // Some way on, so that there is something to take back.
            run_to(&mut process, point + last / PARTS * 2);
            process.restore(&snapshot).expect("there is a way back");

            // Not every time: a copy runs to the end of the program.
            if index % 8 == 1 {
                let mut copy = process.clone();
                run_to(&mut copy, u64::MAX);
                assert_eq!(copy.stdout(), straight.stdout(), "{name}: a copy");
            }
        }

        run_to(&mut process, u64::MAX);
        assert_eq!(process.executed(), last, "{name}");
        assert_eq!(process.stdout(), straight.stdout(), "{name}");
    }
}

/// Timers expire, and handlers start, without a call to the kernel.
#[test]
fn every_few_instructions_can_be_run_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("snapshots", directory.path());
    let mut process = start(&program, options(&program, &[], directory.path()));
    let mut once = start(&program, options(&program, &[], directory.path()));
    let registers = |process: &Kernel| {
        let core = &process.machine.core;
        let all = (0..16).map(|n| core.state.gpr(n)).chain([core.state.rip]);
        (process.executed(), all.collect::<Vec<u64>>())
    };
    loop {
        let before = process.snapshot();
        process.run(7, &mut ());
        process.restore(&before).expect("there is a way back");
        let outcome = process.run(7, &mut ());
        assert_eq!(once.run(7, &mut ()), outcome);
        assert_eq!(registers(&process), registers(&once));
        if outcome != Outcome::Limit {
            break;
        }
    }
    assert_eq!(process.stdout(), once.stdout());
}

/// Counts programs that are started.
struct Programs(u32);

impl Observer for Programs {
    fn before(&mut self, _: &Core, _: &Executed) {}
    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl ProcessObserver for Programs {
    fn started(&mut self, _: &Core, _: u64) {
        self.0 += 1;
    }
}

#[test]
fn what_is_told_is_told_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("ends", directory.path());
    let mut process = start(&program, options(&program, &["e"], directory.path()));
    let mut programs = Programs(0);
    let first = process.snapshot();
    process.run(10, &mut programs);
    let second = process.snapshot();
    for (snapshot, begun) in [(&second, 1), (&second, 1), (&first, 2), (&first, 2)] {
        process.restore(snapshot).expect("there is a way back");
        let mut programs = Programs(0);
        process.run(super::INSTRUCTIONS_MAX, &mut programs);
        assert_eq!(programs.0, begun);
    }
    assert_eq!(programs.0, 1);
}

#[test]
fn a_snapshot_of_the_program_before_execve_is_dropped_after_too_many() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build("ends", directory.path());
    let mut process = start(&program, options(&program, &["e"], directory.path()));
    let first = process.snapshot();
    // The status that a parent sees has eight bits.
    assert_eq!(
        process.run(super::INSTRUCTIONS_MAX, &mut ()),
        Outcome::Exited(300 & 255)
    );

    let end = process.snapshot();
    assert_eq!(process.restore(&first), Ok(()));
    assert_eq!(process.restore(&end), Err(RestoreError::Undone));
    assert_eq!((process.executed(), process.stdout()), (0, &b""[..]));
    assert_eq!(
        process.run(super::INSTRUCTIONS_MAX, &mut ()),
        Outcome::Exited(300 & 255)
    );

    // Without room for history, no snapshot can be restored.
    let limits = Limits {
        history_bytes: 0,
        ..Limits::default()
    };
    let options = ProcessOptions {
        limits,
        ..options(&program, &["e"], directory.path())
    };
    let mut process = start(&program, options);
    let first = process.snapshot();
    process.run(super::INSTRUCTIONS_MAX, &mut ());
    assert_eq!(process.restore(&first), Err(RestoreError::Dropped));
}
