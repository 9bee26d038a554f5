//! Leaves the stepper for an editor, and comes back to the same place of the changed case.

use super::Stepper;
use unwind_sim_judge::input::InputError;
use unwind_sim_judge::states::{Direction, Target};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::image::Symbol;

/// The number of times that a label is met before the place, at most; behind them the place is found by
/// its number.
const VISITS_MAX: usize = 10_000;

/// A place in a run of a case, in terms that hold after an edit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditedAt {
    /// The last label before it, and how often it had been met.
    label: Option<(String, usize)>,
    /// The number of states behind that.
    behind: u64,
    /// The number of the state.
    number: u64,
    /// The name of the column whose walk was told.
    walk: String,
    /// Whether the rules were beside the code.
    has_rules: bool,
}

impl Stepper<'_> {
    /// Lets the user edit what is shown, which is a case in a file.
    pub fn allow_edit(&mut self) {
        self.can_edit = true;
    }

    /// Whether the stepper ended because the user wants to edit the case.
    pub fn wants_edit(&self) -> bool {
        self.wants_edit
    }

    pub(super) fn edit(&mut self) {
        if !self.can_edit {
            self.message = "only a case in a file can be edited, as a program".to_owned();
            return;
        }
        self.wants_edit = true;
        self.is_done = true;
    }

    /// The place that is shown.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn place(&mut self) -> Result<EditedAt, InputError> {
        let number = self.state.number;
        let mut place = EditedAt {
            label: None,
            behind: 0,
            number,
            walk: self.walkers[self.walker].name(),
            has_rules: self.rules.is_some(),
        };
        let mut label = None;
        self.states
            .with(number, &mut |at| label = label_before(at.view))?;
        let Some(label) = label else {
            return Ok(place);
        };

        // How often the label was met, counted backwards, with this state.
        let target = Target::Function(label.clone());
        let mut visits = Vec::new();
        let mut from = number.saturating_add(1);
        while let Some(met) = self.states.find(&target, from, Direction::Backward)? {
            visits.push(met);
            from = met;
            if visits.len() >= VISITS_MAX {
                return Ok(place);
            }
        }
        if let Some(last) = visits.first() {
            place.behind = number - last;
            place.label = Some((label, visits.len()));
        }
        Ok(place)
    }

    /// Goes to a place that was shown before the case was edited, or near it if that is no longer there.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn return_to(&mut self, place: &EditedAt) -> Result<(), InputError> {
        let mut number = place.number;
        if let Some((label, visits)) = &place.label {
            let target = Target::Function(label.clone());
            let mut met = None;
            let mut left = *visits;

            // The first state comes after none, so it is not among those that are found.
            let mut first = None;
            self.states.with(0, &mut |at| first = label_at(at.view))?;
            if first.as_ref() == Some(label) {
                met = Some(0);
                left -= 1;
            }
            let mut from = 0;
            while left > 0
                && let Some(next) = self.states.find(&target, from, Direction::Forward)?
            {
                met = Some(next);
                from = next;
                left -= 1;
            }
            match met {
                Some(met) => number = met.saturating_add(place.behind),
                None => self.message = format!("{label} is no longer met"),
            }
        }

        // A run that became shorter ends before the place.
        if !self.go_to(number)? {
            self.go_end()?;
        }
        self.tell(&place.walk, None)?;
        if place.has_rules && self.rules.is_none() {
            self.switch_rules()?;
        }
        Ok(())
    }
}

/// The label at the next instruction of a state, or else the last one before it.
fn label_before(view: &View<'_>) -> Option<String> {
    label(view).map(|(symbol, _)| symbol.name.clone())
}

/// The label at the next instruction of a state.
fn label_at(view: &View<'_>) -> Option<String> {
    let (symbol, svma) = label(view)?;
    (symbol.address == svma).then(|| symbol.name.clone())
}

/// The last symbol at or before the next instruction of a state, and that one's address (svma).
fn label<'v>(view: &View<'v>) -> Option<(&'v Symbol, u64)> {
    let rip = view.live().rip();
    let mapping = view.space.find(rip)?;
    let svma = mapping.svma(rip);
    let symbols = mapping.image.as_ref()?.symbols();
    let after = symbols.partition_point(|symbol| symbol.address <= svma);
    Some((symbols.get(after.checked_sub(1)?)?, svma))
}
