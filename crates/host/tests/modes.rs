//! The recorder's ways to sample, to start and to end.

use crate::common::{Built, Keeper, build, may_trace, options, run, word};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unwind_sim_host::{
    AfterLimit, At, End, FetchFrame, HostError, Launch, Point, ProgramEnd, RecorderOptions, Sample,
    Target, record,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Truth;

const FLAGS: &[&str] = &["-O0", "-fno-omit-frame-pointer", "-pthread"];

fn points(names: &[&str]) -> At {
    let point = |name: &&str| Point {
        name: (*name).into(),
        ..Point::default()
    };
    At::Points(names.iter().map(point).collect())
}

fn waits(args: &[&str]) -> (Built, RecorderOptions) {
    let built = build("cc", "waits.c", FLAGS);
    let program = Launch {
        path: built.path.clone().into(),
        args: args.iter().map(Into::into).collect(),
        quiet: true,
        ..Launch::default()
    };
    let options = RecorderOptions::new(Target::Run(program), At::Freq(200));
    (built, options)
}

fn recorded(options: &RecorderOptions) -> (Keeper, unwind_sim_host::Summary) {
    let mut keeper = Keeper::default();
    let summary = record(options, &mut keeper).expect("the recording succeeds");
    (keeper, summary)
}

#[test]
fn points_are_the_same_with_and_without_steps() {
    if !may_trace("points_are_the_same_with_and_without_steps") {
        return;
    }
    for name in ["recursion.c", "jumps.c", "contexts.c", "signals.c"] {
        let built = build("cc", name, FLAGS);
        let mut options = options(&built.path, points(&["probed"]));
        let (stepped, _) = run(&options);
        options.plan.truth = false;
        options.plan.from = None;
        let (free, summary) = recorded(&options);
        assert_eq!(summary.program, ProgramEnd::Exited(0));
        assert_eq!(summary.instructions, 0);
        let pc_sp = |k: &Keeper| -> Vec<(u64, u64)> {
            let of = |r: &unwind_sim_unwind::regs::Regs| (r.rip(), r.rsp());
            k.samples
                .iter()
                .map(|s| of(s.regs.live().unwrap()))
                .collect()
        };
        assert_eq!(pc_sp(&free), pc_sp(&stepped), "{name}");
        assert!(free.samples.iter().all(|s| s.truth == Truth::Unknown));
    }
}

#[test]
fn a_fake_start_has_both_register_sets() {
    if !may_trace("a_fake_start_has_both_register_sets") {
        return;
    }
    let built = build("cc", "fetches.S", &[]);
    for truth in [true, false] {
        let point = |name: &str, fetch, own: Option<&str>| Point {
            name: name.into(),
            fetch: Some(fetch),
            own: own.map(Into::into),
        };
        let at = At::Points(vec![
            point("fetched", FetchFrame::Rbp, Some("own")),
            point("fetching", FetchFrame::Entry, None),
        ]);
        let mut options = options(&built.path, at);
        options.plan.truth = truth;
        let (keeper, summary) = recorded(&options);

        // One sample at each of the two points, three times.
        assert_eq!(keeper.samples.len(), 6, "{summary:?}");
        for sample in &keeper.samples {
            let (regs, point) = (&sample.regs, sample.point.unwrap());
            assert!(regs.is_fake());
            let (fetch, own) = (regs.fetch.unwrap(), regs.own.unwrap());
            let cfa = fetch.rsp() + if point == 0 { 16 } else { 8 };
            assert_eq!(regs.sampled.rip(), keeper.by_name["behind"]);
            assert_eq!(regs.sampled.rsp(), cfa - 16);
            assert_eq!(regs.sampled.get(Reg::Rflags), Some(0));
            let (fetch_at, own_at) = [("fetched", "own"), ("fetching", "fetching")][point];
            assert_eq!(fetch.rip(), keeper.by_name[fetch_at]);
            assert_eq!(own.rip(), keeper.by_name[own_at]);
            assert_eq!(word(sample, cfa - 8), Some(regs.sampled.rip()));
            if truth {
                let names = keeper.names(sample.truth.frames());
                let want: &[&str] = match point {
                    0 => &["unwinder", "fetching", "caller", "main"],
                    _ => &["fetching", "caller", "main"],
                };
                assert_eq!(names[..want.len()], *want);
            }
        }
    }
}

#[test]
fn a_limit_ends_the_recording_and_the_program_runs_on() {
    if !may_trace("a_limit_ends_the_recording_and_the_program_runs_on") {
        return;
    }
    let built = build("cc", "threads.c", FLAGS);
    let mut options = options(&built.path, At::Every(10));
    options.plan.max_instructions = Some(2000);
    let (keeper, summary) = run(&options);
    assert_eq!((summary.end, summary.instructions), (End::Limit, 2000));
    assert_eq!(keeper.samples.len(), 200);
    assert_eq!(summary.program, ProgramEnd::Exited(0));
    options.plan.max_instructions = None;
    options.plan.max_samples = Some(7);
    options.after_limit = AfterLimit::Kill;
    let (keeper, summary) = run(&options);
    assert_eq!((summary.end, keeper.samples.len()), (End::Limit, 7));
    assert_eq!(summary.program, ProgramEnd::Killed(9));
}

#[test]
fn a_recording_can_be_repeated() {
    if !may_trace("a_recording_can_be_repeated") {
        return;
    }
    let built = build("cc", "jumps.c", FLAGS);
    let options = options(&built.path, At::Every(100));
    let (first, _) = run(&options);
    let (second, _) = run(&options);

    let of = |k: &Keeper| -> Vec<_> {
        let samples = k.samples.iter();
        let seen = |s: &Sample| {
            // glibc 2.41 asks for its thread when the program ends.
            let regs = format!("{:?}", s.regs).replace(&format!(": {:#x},", s.tid), ": tid,");
            (s.time, regs, s.truth.clone())
        };
        samples.map(seen).collect()
    };

    assert!(!first.samples.is_empty());
    let differs = of(&first)
        .into_iter()
        .zip(of(&second))
        .find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(first.samples.len(), second.samples.len());
}

#[test]
fn beyond_the_approach_only_inner_frames_are_known() {
    if !may_trace("beyond_the_approach_only_inner_frames_are_known") {
        return;
    }
    let built = build("cc", "recursion.c", FLAGS);
    let mut options = options(&built.path, points(&["probed"]));
    options.approach_max = 10;
    options.plan.from = Some("down".into());
    let (keeper, summary) = run(&options);
    assert_eq!(summary.approach, 10);
    let Truth::Known(frames) = &keeper.samples[0].truth else {
        panic!("{:?}", keeper.samples[0].truth);
    };
    let names = keeper.names(frames);
    assert_eq!(names.len(), 23, "{names:?}");
    assert_eq!((names[0], names[1], names[22]), ("probe", "down", "main"));
}

#[test]
fn calls_and_system_calls() {
    if !may_trace("calls_and_system_calls") {
        return;
    }
    let built = build("cc", "recursion.c", FLAGS);
    let (keeper, summary) = run(&options(&built.path, At::Call));
    // The tracker also counts the calls before main, which are not recorded.
    assert!(summary.tracker.calls >= summary.samples, "{summary:?}");
    let downs = keeper.by_name["down"];
    let entries = keeper
        .samples
        .iter()
        .filter(|s| s.regs.sampled.rip() == downs);
    assert_eq!(entries.count(), 21);

    // Both ways to stop at a system call: stepped, and at full speed.
    for truth in [true, false] {
        let mut options = options(&built.path, At::Syscall);
        options.plan.truth = truth;
        options.plan.from = None;
        let (keeper, summary) = recorded(&options);
        assert_eq!(summary.program, ProgramEnd::Exited(0));
        assert!(keeper.samples.len() > 10, "{summary:?}");
        for sample in &keeper.samples {
            assert_eq!(sample.truth.is_complete(), truth);
            assert!(!sample.stacks.is_empty());
        }
    }
}

#[test]
fn a_frequency_samples_the_threads_that_run() {
    if !may_trace("a_frequency_samples_the_threads_that_run") {
        return;
    }
    let (_built, mut options) = waits(&["x"]);
    options.plan.max_samples = Some(40);
    options.after_limit = AfterLimit::Kill;
    let (keeper, summary) = recorded(&options);
    assert_eq!(
        (summary.end, summary.program),
        (End::Limit, ProgramEnd::Killed(9))
    );
    assert_eq!(keeper.samples.len(), 40);
    let busy = keeper.by_name["busy"];
    let in_busy = |s: &&unwind_sim_host::Sample| (busy..busy + 256).contains(&s.regs.sampled.rip());
    let count = keeper.samples.iter().filter(in_busy).count();
    assert!(count * 2 > keeper.samples.len(), "{count}");
    let tids: std::collections::BTreeSet<u32> = keeper.samples.iter().map(|s| s.tid).collect();
    assert_eq!(tids.len(), 2);
}

fn started() -> (Built, Child) {
    let built = build("cc", "waits.c", FLAGS);
    let mut child = Command::new(&built.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    let output = child.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    (built, child)
}

/// Tells a child that another thread of ours recorded to end, and returns its exit status.
fn tell_to_end(mut child: Child) -> Option<i32> {
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(b"x\n")
        .expect("it reads");
    child.wait().expect("it ends").code()
}

#[test]
fn a_running_process_is_attached_to_and_let_go() {
    if !may_trace("a_running_process_is_attached_to_and_let_go") {
        return;
    }

    for (truth, at) in [
        (true, At::Every(1000)),
        (false, At::Freq(500)),
        (false, points(&["probed"])),
        (false, At::Syscall),
    ] {
        let (_built, child) = started();
        let pid = i32::try_from(child.id()).unwrap();
        // The recording runs in a thread of its own, which has no other children.
        let recording = std::thread::spawn(move || {
            let mut options = RecorderOptions::new(Target::Attach(pid), at);
            options.plan.truth = truth;
            options.plan.max_samples = Some(20);
            recorded(&options)
        });

        let (keeper, summary) = recording.join().expect("the recording ends");
        assert_eq!(
            (summary.end, summary.program),
            (End::Limit, ProgramEnd::RunsOn)
        );
        assert_eq!(keeper.samples.len(), 20);
        for sample in &keeper.samples {
            assert_eq!(matches!(sample.truth, Truth::Known(_)), truth);
        }
        assert_eq!(tell_to_end(child), Some(7));
    }
}

#[test]
fn attaching_from_a_place_knows_its_caller() {
    if !may_trace("attaching_from_a_place_knows_its_caller") {
        return;
    }
    let (_built, child) = started();
    let pid = i32::try_from(child.id()).unwrap();
    let recording = std::thread::spawn(move || {
        let mut options = RecorderOptions::new(Target::Attach(pid), points(&["probed"]));
        options.plan.truth = true;
        options.plan.from = Some("busy".into());
        options.plan.max_samples = Some(1);
        recorded(&options)
    });
    let (keeper, summary) = recording.join().expect("the recording ends");
    assert_eq!(summary.tracker.failures(), 0, "{summary:?}");
    let names = keeper.names(keeper.samples[0].truth.frames());
    assert_eq!(names, ["probe", "busy", "thread"]);
    assert_eq!(tell_to_end(child), Some(7));
}

#[test]
fn a_timeout_ends_a_program_that_the_recorder_waits_for() {
    if !may_trace("a_timeout_ends_a_program_that_the_recorder_waits_for") {
        return;
    }
    let (_built, mut options) = waits(&["x"]);
    // It never gets there, so that nothing but its end wakes the recorder.
    options.plan = unwind_sim_host::Plan::new(points(&["probed"]));
    options.timeout = Some(Duration::from_millis(300));
    let (keeper, summary) = recorded(&options);
    assert_eq!(
        (summary.end, summary.program),
        (End::Timeout, ProgramEnd::Killed(9))
    );
    assert!(keeper.samples.is_empty());
}

#[test]
fn a_program_with_too_many_processes_is_killed_with_all_of_them() {
    if !may_trace("a_program_with_too_many_processes_is_killed_with_all_of_them") {
        return;
    }
    // In no other command line.
    let seconds = (1_000_000 + u64::from(std::process::id())).to_string();
    let program = Launch {
        path: "/bin/sh".into(),
        args: ["-c", "while :; do sleep $0 & done", &seconds]
            .map(Into::into)
            .to_vec(),
        quiet: true,
        ..Launch::default()
    };

    let mut options = RecorderOptions::new(Target::Run(program), At::Syscall);
    options.tasks_max = 8;
    options.timeout = Some(Duration::from_secs(60));
    options.after_limit = AfterLimit::Kill;
    // Another child of this thread is none of the program's, and goes on.
    let mut other = Command::new("cat")
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");

    let (_, summary) = recorded(&options);
    assert_eq!(other.try_wait().expect("a child"), None);
    drop(other.stdin.take());
    assert!(other.wait().expect("it ends").success());
    assert_eq!(
        (summary.end, summary.program),
        (End::Tasks, ProgramEnd::Killed(9))
    );

    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let left = processes.filter_map(|entry| {
        let text = std::fs::read(entry.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        text.contains(&seconds).then_some(text)
    });
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
}

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn a_flag_ends_the_recording() {
    if !may_trace("a_flag_ends_the_recording") {
        return;
    }
    let (_built, mut options) = waits(&["x"]);
    options.plan.stop = Some(&STOP);
    options.after_limit = AfterLimit::Kill;
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(100));
        STOP.store(true, Ordering::Relaxed);
    });
    let (_, summary) = recorded(&options);
    assert_eq!(
        (summary.end, summary.program),
        (End::Interrupted, ProgramEnd::Killed(9))
    );
}

#[test]
fn children_are_left_alone_if_so_wanted() {
    if !may_trace("children_are_left_alone_if_so_wanted") {
        return;
    }
    let built = build("cc", "threads.c", FLAGS);
    for truth in [true, false] {
        let mut options = options(&built.path, points(&["probed"]));
        options.plan.truth = truth;
        options.children = false;
        let (keeper, summary) = recorded(&options);
        assert_eq!(summary.program, ProgramEnd::Exited(0), "{summary:?}");
        assert_eq!(
            (keeper.samples.len(), summary.threads),
            (4, 4),
            "{summary:?}"
        );
    }
}

#[test]
fn what_cannot_be_recorded_says_why() {
    if !may_trace("what_cannot_be_recorded_says_why") {
        return;
    }

    let try_it = |path: &str, directory: Option<&str>| {
        let program = Launch {
            path: path.into(),
            directory: directory.map(Into::into),
            quiet: true,
            ..Launch::default()
        };
        let options = RecorderOptions::new(Target::Run(program), At::Syscall);
        let error = record(&options, &mut Keeper::default()).expect_err("no recording");
        error.to_string()
    };

    let no_file = "No such file or directory (os error 2)";
    assert_eq!(
        try_it("/nowhere/prog", None),
        format!("cannot run /nowhere/prog: {no_file}")
    );
    // `execvp` returns this if PATH has a folder that this user may not search.
    let denied = "Permission denied (os error 13)";
    let by_name = try_it("no-such-prog", None);
    let why = by_name.strip_prefix("cannot run no-such-prog: ");
    assert!(why == Some(no_file) || why == Some(denied), "{by_name}");
    assert_eq!(
        try_it("/proc/self/exe", Some("/nowhere")),
        format!("cannot enter the directory /nowhere: {no_file}")
    );
    assert!(try_it("/proc/version", None).contains("Permission denied"));

    let mut options = RecorderOptions::new(Target::Attach(i32::MAX), At::Syscall);
    let error = record(&options, &mut Keeper::default()).expect_err("no process");
    assert!(matches!(error, HostError::NoProcess { pid: i32::MAX }));
    // A process cannot trace itself.
    options.target = Target::Attach(std::process::id() as i32);
    let error = record(&options, &mut Keeper::default()).expect_err("denied");
    assert!(
        error.to_string().contains("kernel.yama.ptrace_scope"),
        "{error}"
    );
}

#[test]
fn names_that_no_image_has_are_reported() {
    if !may_trace("names_that_no_image_has_are_reported") {
        return;
    }
    let built = build("cc", "recursion.c", FLAGS);
    let mut options = options(&built.path, points(&["probed", "nowhere"]));
    let (keeper, summary) = run(&options);
    assert_eq!(
        (keeper.samples.len(), summary.not_located),
        (1, vec!["nowhere".into()])
    );
    options.plan.from = Some("never".into());
    let (keeper, summary) = recorded(&options);
    assert!(!summary.from_reached && keeper.samples.is_empty());
    assert_eq!(summary.not_located, ["never", "nowhere"]);
}

#[test]
fn main_is_found_in_a_stripped_program() {
    if !may_trace("main_is_found_in_a_stripped_program") {
        return;
    }
    let stripped: Vec<&str> = FLAGS.iter().copied().chain(["-s", "-no-pie"]).collect();
    let built = build("cc", "recursion.c", &stripped);
    for truth in [true, false] {
        let mut options = options(&built.path, points(&["main"]));
        options.plan.truth = truth;
        let (keeper, summary) = recorded(&options);
        assert_eq!(
            (summary.from_reached, keeper.samples.len()),
            (true, 1),
            "{summary:?}"
        );
        assert_eq!(keeper.samples[0].truth.is_complete(), truth);
        assert!(summary.not_located.is_empty());
    }
}

#[test]
fn a_32_bit_program_is_refused() {
    if !may_trace("a_32_bit_program_is_refused") {
        return;
    }
    let built = build("cc", "narrow.S", &["-m32", "-nostdlib", "-static"]);
    let options = options(&built.path, At::Syscall);
    let error = record(&options, &mut Keeper::default()).expect_err("refused");
    // A kernel without support for 32-bit programs refuses it itself.
    let is_refusal = matches!(
        error,
        HostError::NotX86_64 { .. } | HostError::Launch { .. }
    );
    assert!(is_refusal, "{error}");
}
