//! The recorder and its shadow stack on programs compiled by the tests.

use crate::common::tools::is_missing;
use crate::common::{Keeper, build, frame_pointers, may_trace, options, run, word};
use std::collections::BTreeSet;
use unwind_sim_host::{At, End, Point, ProgramEnd, Sample, StackRole, Summary};
use unwind_sim_unwind::truth::{TrueKind, Truth};

/// Frame pointers in our code; libc does not promise any.
const FP: &[&str] = &["-O0", "-fno-omit-frame-pointer", "-g"];

fn at(name: &str) -> At {
    At::Points(vec![Point {
        name: name.into(),
        ..Point::default()
    }])
}

/// Runs a test program with a sample at each `probe`, and checks every sample: the truth is
/// complete, every frame's pc is in its slot, and frame pointers lead to the same pcs within our
/// own code.
fn probed(compiler: &str, name: &str, flags: &[&str]) -> (Keeper, Summary) {
    let built = build(compiler, name, flags);
    let (keeper, summary) = run(&options(&built.path, at("probed")));
    assert_eq!(summary.program, ProgramEnd::Exited(0), "{summary:#?}");
    assert_eq!(summary.end, End::Program);
    assert!(!keeper.samples.is_empty(), "{summary:#?}");
    for sample in &keeper.samples {
        check_slots(sample);
        check_frame_pointers(&keeper, sample);
    }
    (keeper, summary)
}

fn check_slots(sample: &Sample) {
    assert_eq!(wrong_slot(sample), None, "{:x?}", sample.truth);
}

/// The first frame whose pc is not in its slot.
fn wrong_slot(sample: &Sample) -> Option<usize> {
    let Truth::Complete(frames) = &sample.truth else {
        panic!("{:?}", sample.truth);
    };
    (1..frames.len()).find(|&index| {
        let slot = sample.truth.slot(index).expect("a slot");
        word(sample, slot) != Some(frames[index].pc)
    })
}

/// Compares the truth with the frame pointers, up to the first frame that is not ours.
fn check_frame_pointers(keeper: &Keeper, sample: &Sample) {
    let frames = sample.truth.frames();
    let main = keeper.by_name["main"];
    let is_ours = |pc: u64| pc.abs_diff(main) < 0x10_0000;
    let ours = frames
        .iter()
        .take_while(|f| is_ours(f.pc) && f.kind != TrueKind::Interrupted);
    let want: Vec<u64> = ours.map(|f| f.pc).collect();
    let walked = frame_pointers(sample);
    assert!(walked.len() >= want.len(), "{walked:x?} {want:x?}");
    assert_eq!(walked[..want.len()], want[..], "{:?}", keeper.names(frames));
}

/// The functions of each sample, up to `main` or the root, without `probe`.
fn chains(keeper: &Keeper) -> Vec<String> {
    let chain = |sample: &Sample| {
        let names = keeper.names(sample.truth.frames());
        let end = names
            .iter()
            .position(|&n| n == "main")
            .map_or(names.len(), |i| i + 1);
        names[1..end].join(" ")
    };
    keeper.samples.iter().map(chain).collect()
}

#[test]
fn recursion_is_true_frame_by_frame() {
    if !may_trace("recursion_is_true_frame_by_frame") {
        return;
    }
    let (keeper, summary) = probed("cc", "recursion.c", FP);
    let [sample] = keeper.samples.as_slice() else {
        panic!("{summary:?}");
    };
    let names = keeper.names(sample.truth.frames());
    assert!(names[1..22].iter().all(|&n| n == "down"), "{names:?}");
    assert_eq!(names[22], "main");
    assert_eq!(*names.last().unwrap(), "_start");
}

/// Checks that the chains equal the lines of `want`.
fn check_chains(keeper: &Keeper, want: &str) {
    let want: Vec<&str> = want
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    assert_eq!(chains(keeper), want);
}

#[test]
fn signals_on_both_stacks() {
    if !may_trace("signals_on_both_stacks") {
        return;
    }
    let (keeper, summary) = probed("cc", "signals.c", FP);
    check_chains(
        &keeper,
        "on_usr1 ? ? gsignal main
         on_usr2 ? ? gsignal on_usr1 ? ? gsignal main
         on_segv ? faults main
         faults main
         main
         main
         main",
    );
    let kinds = keeper.samples[1].truth.frames().iter().map(|f| f.kind);
    assert_eq!(kinds.filter(|&k| k == TrueKind::Interrupted).count(), 2);
    assert!(summary.tracker.signals > 20, "{summary:?}");
    assert_eq!(summary.tracker.redirected, 1, "{summary:?}");
    assert_eq!(summary.threads, 2);
}

#[test]
fn longjmp_drops_the_frames_it_leaves() {
    if !may_trace("longjmp_drops_the_frames_it_leaves") {
        return;
    }
    let (keeper, summary) = probed("cc", "jumps.c", FP);
    let round = "down down down down down down catches main\ncatches main\n";
    check_chains(
        &keeper,
        &(round.repeat(4) + &"built_in main\n".repeat(3) + "main"),
    );
    assert_eq!(summary.tracker.switches, 0, "{summary:?}");
}

#[test]
fn exceptions_drop_the_frames_they_leave() {
    let name = "exceptions_drop_the_frames_they_leave";
    if !may_trace(name) || is_missing(name, "c++") {
        return;
    }
    let (keeper, summary) = probed("c++", "throws.cc", FP);
    let mut want = String::new();
    for n in 0..3 {
        for depth in (1..=n + 1).rev() {
            let many = "_ZL4manyiiiiiilll ".repeat(depth);
            want += &format!("_ZN5GuardD2Ev {many}_ZL8rethrowsi main\n");
        }
        want += "_ZL8rethrowsi main\nmain\n";
    }
    check_chains(&keeper, &(want + "main"));
    assert_eq!(summary.tracker.switches, 0, "{summary:?}");
}

#[test]
fn contexts_keep_a_stack_each() {
    if !may_trace("contexts_keep_a_stack_each") {
        return;
    }
    let (keeper, _) = probed("cc", "contexts.c", FP);
    let first = "inner body ?\nresume start main\n".repeat(3);
    let again = "inner body ?\ninner body ?\nresume main\n".repeat(6);
    let ends = "inner body ?\nresume main\n".repeat(3);
    let round = first + &again + &ends;
    check_chains(&keeper, &(round.repeat(2) + "main"));
}

#[test]
fn hand_written_code() {
    if !may_trace("hand_written_code") {
        return;
    }
    let (keeper, summary) = probed("cc", "tricks.S", FP);
    let round = "coroutine
         resume main
         nested on_other_stack main
         nested on_other_stack main
         call_pop main
         retpoline main
         push_ret main
         add_drops main
         main\n";
    check_chains(&keeper, &round.repeat(5));
    let stats = &summary.tracker;
    assert_eq!((stats.rewritten, stats.trampolines), (5, 5), "{summary:?}");
    let other = keeper.samples.iter().find(|s| s.stacks.len() == 2).unwrap();
    assert_eq!(other.stacks[1].role, StackRole::OtherStack);
}

#[test]
fn threads_and_children_have_their_own_roots() {
    if !may_trace("threads_and_children_have_their_own_roots") {
        return;
    }
    let (keeper, summary) = probed("cc", "threads.c", FP);
    let mut got = chains(&keeper);
    got.sort();
    assert_eq!(got[0], "deep deep deep thread ? ?", "{got:?}");
    assert_eq!(got[1], "deep deep main");
    assert_eq!(got[2], "deep deep thread ? ?");
    assert_eq!(got[3], "deep thread ? ?");
    // Two children that called exec, and the program itself.
    assert_eq!(got[4..], ["main", "main", "main"]);
    assert_eq!(summary.threads, 7);
    let execs = keeper.events.iter().filter(|e| e.starts_with("Exec"));
    assert_eq!(execs.count(), 3);
    let pids: BTreeSet<u32> = keeper.samples.iter().map(|s| s.pid).collect();
    assert_eq!(pids.len(), 4);
}

/// Every few instructions, including in libc and the C++ runtime, each tracked frame has its pc in
/// its slot in memory.
#[test]
fn memory_agrees_with_every_frame_held() {
    let test = "memory_agrees_with_every_frame_held";
    if !may_trace(test) {
        return;
    }

    let programs = [
        ("cc", "recursion.c", 1),
        ("cc", "jumps.c", 3),
        ("cc", "contexts.c", 3),
        ("c++", "throws.cc", 37),
        ("cc", "threads.c", 101),
    ];

    for (compiler, name, every) in programs {
        if compiler == "c++" && is_missing(test, compiler) {
            continue;
        }
        let built = build(compiler, name, FP);
        let mut options = options(&built.path, At::Every(every));
        options.plan.stack_bytes = 64 << 10;

        let (keeper, summary) = run(&options);
        assert_eq!(summary.program, ProgramEnd::Exited(0), "{summary:#?}");
        assert_eq!(keeper.samples.len() as u64, summary.instructions / every);
        for sample in &keeper.samples {
            // `__builtin_eh_return` overwrites the return address through which the unwinder leaves
            // with the landing pad, shortly before leaving.
            let Some(index) = wrong_slot(sample) else {
                continue;
            };
            let frames = sample.truth.frames();
            let leaves = keeper.names(frames)[index - 1];
            assert!(leaves.starts_with("_Unwind_"), "{leaves}: {frames:x?}");
        }
    }
}
