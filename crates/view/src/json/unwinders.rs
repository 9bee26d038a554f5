//! The lines of `unwinders`.

use super::Line;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::own::Adapter;
use unwind_sim_judge::unwinders::Described;

/// An unwinder, and what it needs.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UnwinderLine {
    schema: &'static str,
    name: String,
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
    /// Whether it can be used.
    ready: bool,
    /// Of an unwinder of others: the program that speaks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// Of an unwinder of others that is not ready: the command that builds that program.
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    /// What building that program, or running it, needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    build_needs: Option<&'static str>,
}

impl Line {
    /// The line for an unwinder.
    pub fn unwinder(unwinder: &Described) -> Line {
        Line::Unwinder(Box::new(UnwinderLine {
            schema: SCHEMA,
            name: unwinder.name.to_owned(),
            about: unwinder.about,
            profiles: unwinder.profiles.clone(),
            registers: unwinder.registers.clone(),
            tables: unwinder.tables,
            needs_stack: unwinder.needs_stack,
            needs_branches: unwinder.needs_branches,
            may_fall_back: unwinder.may_fall_back,
            ready: true,
            program: None,
            build: None,
            build_needs: None,
        }))
    }

    /// The line for an unwinder of others, whose program is at `path`.
    pub fn adapter(adapter: &Adapter, path: Option<&Path>) -> Line {
        Line::Unwinder(Box::new(UnwinderLine {
            schema: SCHEMA,
            name: format!("cmd:{}", adapter.name),
            about: adapter.about,
            profiles: Vec::new(),
            registers: Vec::new(),
            tables: "",
            needs_stack: true,
            needs_branches: false,
            may_fall_back: false,
            ready: path.is_some(),
            program: path.map(|path| path.display().to_string()),
            build: path.is_none().then(|| adapter.build()),
            build_needs: Some(adapter.needs),
        }))
    }
}
