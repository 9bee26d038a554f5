//! What was drawn where, for the mouse.

use ratatui::layout::{Position, Rect};

/// A pane that can be scrolled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pane {
    Code,
    Stack,
    Story,
    /// What covers the panes.
    Over,
}

/// What is under the mouse.
#[derive(Clone, Copy, Debug)]
pub(super) enum HitTarget {
    Pane(Pane),
    /// A row or cell of the unwinders.
    Walker(usize),
    /// A step of the walk: the number of steps made after it.
    Step(usize),
    /// An instruction.
    Code(u64),
    Thread(u32),
}

/// A part of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct HitArea {
    pub(super) area: Rect,
    pub(super) what: HitTarget,
}

impl HitTarget {
    /// The pane that it is in, if that can be scrolled.
    pub(super) fn pane(self) -> Option<Pane> {
        match self {
            HitTarget::Pane(pane) => Some(pane),
            HitTarget::Step(_) => Some(Pane::Story),
            HitTarget::Code(_) => Some(Pane::Code),
            HitTarget::Walker(_) | HitTarget::Thread(_) => None,
        }
    }
}

/// What was drawn last at this place.
pub(super) fn at(hits: &[HitArea], column: u16, row: u16) -> Option<HitTarget> {
    let at = Position::new(column, row);
    let found = hits.iter().rfind(|hit| hit.area.contains(at));
    found.map(|hit| hit.what)
}
