//! The code pane: whose code it shows, and the rules beside it.

use super::Stepper;
use unwind_sim_judge::input::InputError;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_view::code_rules::{CodeRules, Observed};

/// The number of states before and behind the shown one that are looked at for what is true beside the
/// code.
const NEAR: u64 = 200;
/// The number of frames that are looked at in each of them.
const FRAMES_MAX: usize = 16;

/// The rules beside the shown code.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) listing: CodeRules,
    /// What is true at instructions that were met.
    observed: Observed,
    /// The states around this one were looked at.
    looked_around: Option<u64>,
}

impl Stepper<'_> {
    /// Shows the rules beside the code, or no longer.
    pub(super) fn switch_rules(&mut self) -> Result<(), InputError> {
        self.scroll.code = 0;
        if self.rules.take().is_none() {
            self.rules = Some(Rules::default());
            self.renew_rules()?;
        }
        Ok(())
    }

    /// The frame of the walk that was reached last, while the user goes through one: its number, where it
    /// is, and that in words.
    pub(super) fn reached(&self) -> Option<(usize, CodeAddress, String)> {
        self.step?;
        let made = self.walk()?.steps.get(..self.steps_made())?;
        let mut frames = made.iter().filter_map(|step| step.frame.as_ref());
        let last = frames.next_back()?;
        let pc = u64::from_str_radix(last.place.pc.trim_start_matches("0x"), 16).ok()?;
        let pc = if last.exact {
            CodeAddress::Instruction(pc)
        } else {
            CodeAddress::Return(pc)
        };
        Some((frames.count(), pc, last.place.to_string()))
    }

    /// The title of the code pane: whose code it shows.
    pub(super) fn code_title(&self) -> String {
        match self.reached() {
            Some((number, _, place)) if number > 0 => format!("code of frame {number}, {place}"),
            _ => format!("code {}", self.state.place),
        }
    }

    /// Shows the code of the frame that the walk has reached, as `up` of gdb does.
    pub(super) fn follow(&mut self) -> Result<(), InputError> {
        let rip = self.state.registers.iter().find(|r| r.name == "rip");
        let rip = CodeAddress::Instruction(rip.map_or(0, |rip| rip.value.0));
        let wanted = self.reached().map_or(rip, |(_, pc, _)| pc);
        if wanted == self.code_pc {
            return Ok(());
        }
        self.code_pc = wanted;
        self.scroll.code = 0;

        let Stepper {
            states,
            builder,
            code,
            ..
        } = self;
        let number = self.state.number;
        states.with(number, &mut |at| *code = builder.code_at(at.view, wanted))?;
        self.renew_rules()
    }

    /// Finds the rules for the shown code, if they are shown.
    pub(super) fn renew_rules(&mut self) -> Result<(), InputError> {
        let Stepper {
            states,
            builder,
            rules: Some(rules),
            code,
            state,
            ..
        } = self
        else {
            return Ok(());
        };

        let number = state.number;
        let Rules {
            listing,
            observed,
            looked_around,
        } = rules;
        states.with(number, &mut |at| {
            // What was seen elsewhere is forgotten.
            if !observed.is_of(at.view) {
                *looked_around = None;
            }
            builder.observe(at.view, FRAMES_MAX, observed);
        })?;

        // What is true at an instruction is known from the states at which it is the next one. Those of
        // a program follow from each other, so the ones around this are in the same code.
        let is_near = |around: u64| around.abs_diff(number) <= NEAR / 2;
        if !looked_around.is_some_and(is_near) {
            let frames = if states.is_program() { 1 } else { FRAMES_MAX };
            let first = number.saturating_sub(NEAR);
            states.range(first, 2 * NEAR, &mut |at| {
                if observed.is_of(at.view) {
                    builder.observe(at.view, frames, observed);
                }
            })?;
            *looked_around = Some(number);
        }

        states.with(number, &mut |at| {
            *listing = match code.as_deref() {
                Some(code) => builder.rules(at.view, (code, 0..code.lines.len()), observed),
                None => CodeRules::default(),
            };
        })?;
        Ok(())
    }
}
