//! Random runs of the model: the model as it is breaks no rule, and every defect put into it is
//! found.

use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED,
};
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_model::{Body, Form, Mutant, Outcome, Rule, Scenario, Schedule, join};

/// Actions of a schedule.
const ACTIONS: usize = 1_000;

#[test]
fn random_schedules_break_no_rule() {
    for seed in 0..300 {
        let violations = Schedule::random_judged(seed, ACTIONS, None).1;
        assert!(
            violations.is_empty(),
            "seed {seed}: {:#?}",
            &violations[..violations.len().min(3)]
        );
    }
}

/// The rule that finds the mutant, and seeds within which it does.
fn found_by(mutant: Mutant) -> Rule {
    match mutant {
        Mutant::SharedBuffer | Mutant::StaleCache => Rule::OwnStack,
        Mutant::PeriodTwice => Rule::Periods,
        Mutant::LostUntold => Rule::LossTold,
        Mutant::CookieReused => Rule::Cookie,
        Mutant::HalfReplacedHandler => Rule::WholeHandler,
        Mutant::SkipLess => Rule::OwnChain,
        Mutant::WipeAtSwitch => Rule::WholeBranches,
        Mutant::SwapWithoutData
        | Mutant::SkipWithoutLogId
        | Mutant::SaveAtCgroupSwitch
        | Mutant::Linux => Rule::OwnBranches,
        Mutant::UseAfterFree | Mutant::DoubleFree | Mutant::LeakAtExit => Rule::BranchMemory,
    }
}

#[test]
fn every_mutant_is_found_by_its_rule() {
    for mutant in Mutant::ALL {
        let rule = found_by(mutant);
        let seed = (0..2_000).find(|&seed| {
            let violations = Schedule::random_judged(seed, ACTIONS, Some(mutant)).1;
            violations.iter().any(|violation| violation.rule == rule)
        });
        println!("{}: seed {seed:?}", mutant.as_str());
        assert!(seed.is_some(), "{}: not found", mutant.as_str());
    }
}

/// What perf 7.2 and the form of 2023 make of the same records: the samples that come out wrong
/// are why there are cookies, and why ours remembers records.
#[test]
fn other_ways_get_samples_wrong() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..200 {
        let schedule = Schedule::random(seed, ACTIONS, None);
        let mut world = schedule.world().expect("a seed's events are accepted");
        schedule.run(&mut world);
        let other = match schedule.setup.form {
            Form::Upstream | Form::Before => Mode::Perf72,
            Form::Rfc2023 => Mode::Rfc2023,
        };
        for mode in [Mode::Own, other] {
            for joined in join(&world, mode).joined {
                *seen.entry((mode.as_str(), joined.outcome)).or_insert(0) += 1;
            }
        }
    }
    println!("{seen:#?}");
    let count = |mode: Mode, outcome| seen.get(&(mode.as_str(), outcome)).copied().unwrap_or(0);
    assert_eq!(count(Mode::Own, Outcome::Bogus), 0);
    assert!(count(Mode::Perf72, Outcome::Bogus) > 0);
    assert!(count(Mode::Rfc2023, Outcome::Wrong) > 0);
    assert!(count(Mode::Own, Outcome::Right) > count(Mode::Perf72, Outcome::Right));
}

#[test]
fn r000_9_a_record_has_no_registers_and_no_stack() {
    for form in ["upstream", "rfc2023"] {
        let output = if form == "upstream" {
            "defer-output"
        } else {
            ""
        };
        let text = format!(
            "form {form}\nevent cycles pmu stack-user 1024 {output}\nstack s 0x3003 0x2002\ntask 1 s\n\
             switch 0 1\nsample 0 cycles\nfinish 0\n"
        );
        let world = Scenario::parse(&text)
            .and_then(|s| s.run())
            .expect("a scenario");
        let sizes: Vec<u32> = world.records().iter().map(|r| r.body.size()).collect();
        let record = if form == "upstream" { 8 + 8 } else { 8 } + 8 + 2 * 8 + 32;
        let chain = if form == "upstream" { 2 } else { 1 };
        assert_eq!(sizes, [64 + 8 * chain + 1024, record]);
    }
}

/// The words that are no frames: who sampled, whether the user part is deferred, and what
/// `get_perf_callchain` stores (Linux 7.2). With `defer_user` the marker and the cookie stand in
/// the place of `PERF_CONTEXT_USER`, whatever `add_mark` says.
#[test]
fn r000_14_marker_table() {
    const KERNEL: &str = "kernel";
    const USER: &str = "user";
    const DEFERRED: &str = "deferred";
    const COOKIE: &str = "cookie";
    let kernel_task = "syscall 0\nsample 0 e\nleave 0\nfinish 0";
    let user_task = "sample 0 e\nfinish 0";

    // Form, the event's words, what happens, and the chain without its addresses.
    let rows: [(&str, &str, &str, &[&str]); 8] = [
        ("upstream", "no-defer", kernel_task, &[KERNEL, USER]),
        ("upstream", "no-defer", user_task, &[USER]),
        (
            "upstream",
            "defer-output",
            kernel_task,
            &[KERNEL, DEFERRED, COOKIE],
        ),
        ("upstream", "defer-output", user_task, &[DEFERRED, COOKIE]),
        ("rfc2023", "", kernel_task, &[KERNEL, DEFERRED]),
        ("rfc2023", "", user_task, &[DEFERRED]),
        (
            "upstream",
            "defer-output",
            "switch 0 9\nsample 0 e",
            &[KERNEL],
        ),
        (
            "upstream",
            "defer-output",
            "switch 0 0\nsample 0 e",
            &[KERNEL],
        ),
    ];
    for (form, words, what, expected) in rows {
        let text = format!(
            "form {form}\nevent e pmu {words}\nstack s 0x1030 0x1020\ntask 1 s\nkthread 9\n\
             switch 0 1\n{what}\n"
        );
        let world = Scenario::parse(&text)
            .and_then(|s| s.run())
            .expect("a scenario");
        // The first sample is the one of the row.
        let chain = world
            .records()
            .iter()
            .find_map(|record| match &record.body {
                Body::Sample { chain, .. } => Some(chain),
                _ => None,
            });
        // Only markers and the cookie count here, not the addresses.
        let found: Vec<&str> = chain
            .expect("a sample")
            .iter()
            .filter_map(|&word| match word {
                PERF_CONTEXT_KERNEL => Some(KERNEL),
                PERF_CONTEXT_USER => Some(USER),
                PERF_CONTEXT_USER_DEFERRED => Some(DEFERRED),
                0x3_0000_0001 => Some(COOKIE),
                _ => None,
            })
            .collect();
        assert_eq!(found, expected, "{form} {words}: {what}");
    }
}
