//! Scenarios that ask for too much: refused with the line, and a run's memory is bounded.

use std::fmt::Write as _;

use unwind_sim_perf_model::{
    ACTIONS_MAX, LOG_MAX, RECORD_BYTES_MAX, Refused, Scenario, ScenarioError, ScenarioErrorKind,
    World, output, perf_data,
};

fn error(text: &str) -> ScenarioError {
    let run = Scenario::parse(text).and_then(|scenario| scenario.run());
    run.err().expect("it asks for too much")
}

/// Runs until something is refused; what is kept then is within bounds.
fn bounded(text: &str) -> World {
    let scenario = Scenario::parse(text).expect("it is well formed");
    let mut world = scenario.schedule.world().expect("its events are accepted");
    for &action in &scenario.schedule.actions {
        if world.apply(action).is_err() {
            break;
        }
    }
    world.finish();
    assert!(world.log().len() < 2 * LOG_MAX, "{}", world.log().len());
    let bytes: u64 = world
        .records()
        .iter()
        .map(|r| u64::from(r.body.size()))
        .sum();
    assert!(bytes < 2 * RECORD_BYTES_MAX, "{bytes} bytes");
    world
}

const ONE_TASK: &str = "event e pmu defer-output\nstack s 0x1000\ntask 1 s\nswitch 0 1\n";

#[test]
fn more_actions_than_a_run_may_have_are_not_kept() {
    let mut text = ONE_TASK.to_owned();
    text.push_str(&"step 0 10000\n".repeat(70_000));
    let error = error(&text);
    let line = 4 + ACTIONS_MAX / 10_000 + 1;
    assert_eq!(
        (error.line, error.kind),
        (line, ScenarioErrorKind::TooMany("actions"))
    );
}

#[test]
fn an_endless_run_ends_where_its_log_is_full() {
    let mut text = "event e timer freq 1000000\nstack s 0x1000\ntask 1 s\nswitch 0 1\n".to_owned();
    text.push_str(&"step 0 10000\n".repeat(26));
    bounded(&text);
    assert_eq!(
        error(&text).kind,
        ScenarioErrorKind::Refused(Refused::TooMuch)
    );
    // Also where nothing follows.
    let mut text = String::new();
    for event in 0..64 {
        let _ = writeln!(text, "event e{event} pmu period 1000 no-defer");
    }
    text.push_str(
        "stack s 0x1000\ntask 1 s\nsamples-per-tick 4000000000\nswitch 0 1\nrun 0 10000000\n",
    );
    bounded(&text);
    let error = error(&text);
    assert_eq!(
        (error.line, error.kind),
        (69, ScenarioErrorKind::Refused(Refused::TooMuch))
    );
}

/// A record of 510 frames for each of 64 events at every return to user space.
#[test]
fn records_end_where_they_take_too_much() {
    let mut text = String::new();
    for event in 0..64 {
        let _ = writeln!(text, "event e{event} pmu defer-output ring 16777216");
    }
    text.push_str("stack s depth 600 0x1000\ntask 1 s\nsamples-per-tick 4000000000\nswitch 0 1\n");
    text.push_str(&"sample 0 e0\nfinish 0\n".repeat(2_000));
    bounded(&text);
    let kind = error(&text).kind;
    assert_eq!(kind, ScenarioErrorKind::Refused(Refused::TooManyRecords));
    // Copies of user stacks are zeros in a file, but they are there.
    let mut text =
        "event e pmu no-defer stack-user 65528 ring 16777216\nstack s 0x1000\ntask 1 s\n\
                    samples-per-tick 4000000000\nswitch 0 1\n"
            .to_owned();
    text.push_str(&"sample 0 e\nread 0\n".repeat(2_000));
    let world = bounded(&text);
    let file = perf_data(&world).expect("it can be written");
    assert!((file.len() as u64) < 2 * RECORD_BYTES_MAX);
    let kind = error(&text).kind;
    assert_eq!(kind, ScenarioErrorKind::Refused(Refused::TooManyRecords));
}

/// The judgement of each sample looks at its stack: at no more of it than a record holds.
#[test]
fn the_deepest_stack_is_judged_in_time() {
    let mut text = "event e pmu defer-output\nstack s depth 65536 0x1000\ntask 1 s\n\
                    samples-per-tick 4000000000\nswitch 0 1\nsyscall 0\n"
        .to_owned();
    text.push_str(&"sample 0 e\n".repeat(2_000));
    text.push_str("leave 0\nfinish 0\n");
    let world = Scenario::parse(&text)
        .and_then(|s| s.run())
        .expect("it is within bounds");
    let printed = output(&world);
    assert_eq!(printed.matches(": right, stitched").count(), 4_000);
    assert!(!printed.contains("broken: "));
}

#[test]
fn names_and_stacks_are_bounded() {
    let long = "n".repeat(65);
    let not = ScenarioErrorKind::Not("a name of at most 64 bytes");
    assert_eq!(error(&format!("stack {long} 0x1000\n")).kind, not);
    assert_eq!(error(&format!("event {long} pmu\n")).kind, not);
    let text: String = (0..1025).map(|n| format!("stack s{n} 0x1000\n")).collect();
    let error = error(&text);
    assert_eq!(
        (error.line, error.kind),
        (1025, ScenarioErrorKind::TooMany("stacks"))
    );
}
