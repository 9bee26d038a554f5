//! The lines of `unwinders`.

use super::Line;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::unwinders::Described;

/// An unwinder, and what it needs.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UnwinderLine {
    schema: &'static str,
    name: &'static str,
    about: &'static str,
    /// The names that may follow `name:`; `N` stands for a number.
    profiles: Vec<String>,
    /// The registers that it carries from frame to frame.
    registers: Vec<&'static str>,
    /// The sections it reads; empty if it needs no table.
    tables: &'static str,
    needs_stack: bool,
    needs_branches: bool,
    may_fall_back: bool,
}

impl Line {
    /// The line for an unwinder.
    pub fn unwinder(unwinder: &Described) -> Line {
        Line::Unwinder(Box::new(UnwinderLine {
            schema: SCHEMA,
            name: unwinder.name,
            about: unwinder.about,
            profiles: unwinder.profiles.clone(),
            registers: unwinder.registers.clone(),
            tables: unwinder.tables,
            needs_stack: unwinder.needs_stack,
            needs_branches: unwinder.needs_branches,
            may_fall_back: unwinder.may_fall_back,
        }))
    }
}
