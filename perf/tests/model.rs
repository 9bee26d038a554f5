//! Random runs of the model: the model as it is breaks no rule, and every defect put into it is
//! found.

use unwind_sim_perf::model::{Mutant, Rule, Schedule};

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
