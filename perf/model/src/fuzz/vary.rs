//! Variants of a schedule: the same actions with disturbances in between.

use super::Schedule;
use crate::action::Action;
use crate::random::Random;
use crate::world::World;

/// The most single steps before a `finish`.
const STEPS_MAX: usize = 24;
/// The most steps of another task or another CPU at a time.
const OTHER_STEPS_MAX: usize = 24;

impl Schedule {
    /// This schedule with random disturbances between its actions: NMIs and other overflows,
    /// interrupts, steps of other CPUs, and preemptions by another task. Before a `finish` some of
    /// its steps are taken one by one, so that disturbances may come between those too. Actions
    /// that are refused in their new place are left out.
    pub fn varied(&self, seed: u64) -> Self {
        let Ok(world) = self.world() else {
            return self.clone();
        };

        let mut varying = Varying {
            schedule: self,
            world,
            rng: Random::new(seed),
            done: Vec::new(),
        };

        // The same order of actions, so that the disturbed run still does what the first one did.
        for &action in &self.actions {
            if let Action::Finish { cpu } = action {
                for _ in 0..varying.rng.below(STEPS_MAX) {
                    varying.apply(Action::Step { cpu });
                    varying.disturb(1, 6);
                }
            }
            varying.disturb(1, 3);
            varying.apply(action);
        }

        // Setup, events and tasks stay, so that a difference is due to the order only.
        Self {
            actions: varying.done,
            ..self.clone()
        }
    }
}

/// A schedule that grows while it runs.
struct Varying<'a> {
    schedule: &'a Schedule,
    world: World,
    rng: Random,
    done: Vec<Action>,
}

impl Varying<'_> {
    /// Applies an action. Returns whether it was possible.
    fn apply(&mut self, action: Action) -> bool {
        let is_done = self.world.apply(action).is_ok();
        if is_done {
            self.done.push(action);
        }
        is_done
    }

    /// A disturbance, with probability `part / whole`.
    fn disturb(&mut self, part: usize, whole: usize) {
        if !self.rng.chance(part, whole) {
            return;
        }
        let cpu = self.rng.below(usize::from(self.schedule.setup.cpus)) as u16;
        match self.rng.below(4) {
            0 | 1 => self.sample(cpu),
            2 => {
                self.apply(Action::Irq { cpu });
            }
            _ => self.preempt(cpu),
        }
    }

    fn sample(&mut self, cpu: u16) {
        let event = self.rng.below(self.schedule.events.len().max(1)) as u16;
        self.apply(Action::Sample { cpu, event });
    }

    /// Another task runs for a while; then the previous one continues, if possible.
    fn preempt(&mut self, cpu: u16) {
        let before = self.world.tid(usize::from(cpu));
        let tasks = &self.schedule.tasks;
        let other = match self.rng.below(tasks.len() + 1) {
            0 => 0,
            at => tasks[at - 1].0,
        };
        if !self.apply(Action::Switch { cpu, tid: other }) {
            return;
        }
        if self.rng.chance(1, 2) {
            self.sample(cpu);
        }
        for _ in 0..self.rng.below(OTHER_STEPS_MAX) {
            self.apply(Action::Step { cpu });
        }
        // Where it cannot be preempted, it finishes first.
        let back = Action::Switch { cpu, tid: before };
        if !self.apply(back) && self.apply(Action::Finish { cpu }) {
            self.apply(back);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Scenario, Schedule};

    fn schedule() -> Schedule {
        let text = "event e pmu defer-output\nevent c timer period 5000\nstack a 0x1030 0x1020\n\
                    stack b 0x2030\ntask 1 a\ntask 2 b\nswitch 0 1\nsyscall 0\nsample 0 e\n\
                    leave 0\nfinish 0\nsyscall 0\nsample 0 e\nleave 0\nfinish 0\n";
        Scenario::parse(text).expect("a scenario").schedule
    }

    #[test]
    fn a_seed_varies_a_schedule_and_no_rule_is_broken() {
        let schedule = schedule();
        let mut longer = 0;
        for seed in 0..200 {
            let varied = schedule.varied(seed);
            assert_eq!(varied, schedule.varied(seed), "seed {seed}");
            let judged = varied.judge();
            assert!(judged.is_empty(), "seed {seed}: {judged:?}");
            longer += u32::from(varied.actions.len() > schedule.actions.len());
            let written = Scenario::parse(&varied.text()).expect("a scenario");
            assert!(written.run().is_ok(), "seed {seed}");
        }
        assert!(longer > 150, "{longer}");
    }

    /// A varied schedule shows what the fixed one does not: another task's unwind in between.
    #[test]
    fn a_defect_is_found_by_varying() {
        let mut schedule = schedule();
        schedule.setup.mutant = Some(crate::Mutant::SharedBuffer);
        assert!(schedule.judge().is_empty(), "nothing comes between");
        let found = (0..2_000).find(|&seed| !schedule.varied(seed).judge().is_empty());
        assert!(found.is_some());
    }
}
