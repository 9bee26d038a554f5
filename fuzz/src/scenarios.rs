//! Hostile scenarios of the sampling model: reads, runs, judges, prints and writes them.

use std::ops::ControlFlow;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::Stop;
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_model::{
    Action, SCENARIO_BYTES_MAX, Scenario, UserStack, bless, join, output, perf_data,
};

/// Maximum number of actions in each input.
const ACTIONS_MAX: usize = 2000;
/// Maximum time of one action in nanoseconds.
const RUN_NS_MAX: u64 = 200_000;
/// Maximum number of wrong lines in each input.
const LINES_MAX: usize = 64;
/// The stack for every file that a scenario requests.
const FRAMES: [u64; 2] = [0x40_1000, 0x40_2000];

/// The handler for every object file that a scenario requests.
const OBJECT: &[u8] = include_bytes!("../objects/lines.bpf.o");

/// A scenario: without an injected defect its run breaks no rule, its text parses as the same
/// scenario, and its perf.data can be read.
pub fn scenario(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some((text, mut scenario)) = parse(&text) else {
        return;
    };

    // A scenario names files for stacks; here they have always the same content.
    for request in 0..scenario.requests().len() {
        let stack = UserStack::from(FRAMES.to_vec());
        let stacks = vec![stack; scenario.requests()[request].count()];
        if scenario.supply(request, stacks).is_err() {
            return;
        }
    }
    if !supply_objects(&mut scenario) {
        return;
    }

    // Otherwise the fuzzer would report long runs as hangs.
    let schedule = &mut scenario.schedule;
    schedule.actions.truncate(ACTIONS_MAX);
    for action in &mut schedule.actions {
        if let Action::Run { ns, .. } = action {
            *ns = (*ns).min(RUN_NS_MAX);
        }
    }

    if let Err(error) = scenario.run() {
        assert!(error.line <= text.lines().count());
    }

    let Ok(mut world) = scenario.schedule.world() else {
        return;
    };
    // Refused actions have no effect, and the rest continues.
    scenario.schedule.actions = scenario.schedule.run(&mut world);
    let broken = join(&world, Mode::Own).violations;
    let sound = scenario.schedule.setup.mutant.is_none();
    assert!(!sound || broken.is_empty(), "{broken:?}");

    // Printed, read and run again, it must give the same events.
    let printed = output(&world);
    let written = bless(&scenario.schedule.text(), &printed);
    // Its own output may make it longer than what can be read.
    if written.len() > SCENARIO_BYTES_MAX {
        return;
    }
    let mut again = Scenario::parse(&written).expect("it was written by us");
    assert!(supply_objects(&mut again), "they were there before");
    assert_eq!(again.schedule.actions, scenario.schedule.actions);
    assert_eq!(again.expected, printed);
    let world_again = again.run().expect("it ran before");
    assert_eq!(output(&world_again), printed);

    if !world.events().is_empty() {
        read(&perf_data(&world).expect("it can be written"));
    }
}

/// Supplies an object for each handler that comes from a file; whether all have their program.
fn supply_objects(scenario: &mut Scenario) -> bool {
    (0..scenario.objects().len()).all(|request| scenario.supply_object(request, OBJECT).is_ok())
}

/// Parses without the lines that are wrong, so that more inputs can run.
fn parse(text: &str) -> Option<(String, Scenario)> {
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..LINES_MAX {
        let text = lines.join("\n");
        match Scenario::parse(&text) {
            Ok(scenario) => return Some((text, scenario)),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert!((1..=lines.len().max(1)).contains(&error.line));
                lines.get(error.line - 1)?;
                lines.remove(error.line - 1);
            }
        }
    }
    None
}

fn read(bytes: &[u8]) {
    let file = PerfFile::parse(bytes).expect("we wrote it");
    let summary = file.for_each_ordered(|_| ControlFlow::Continue(()));
    assert_eq!((summary.stop, summary.skipped), (Stop::End, 0));
}
