//! Runs an extracted case and checks that it reproduces the recording.

use super::NotWritable;
use super::case::code_in_case;
use crate::case::Cell;
use crate::cases::{CaseFailure, matrix};
use crate::engine::{Outcome, Setting};
use crate::spec::{self, SpecError};
use std::path::Path;
use unwind_sim_recordings::leftovers::TemporaryFolder;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::verdict::Verdict;

/// The result of an unwinder in the recording, as a cell of a case's matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The unwinder.
    pub unwinder: String,
    /// Its verdict and reason.
    pub cell: Cell,
}

/// The results of these unwinders on the sample. Those that are not judged are left out.
///
/// # Errors
/// If a name is not an unwinder.
pub(super) fn recorded(view: &View<'_>, unwinders: &[String]) -> Result<Vec<Recorded>, SpecError> {
    let mut all = Vec::new();
    for name in unwinders {
        let engine = spec::engine(name)?;
        let mut cache = Cache::new();
        let outcome = engine.examine(view, Variant::Hardware, &Setting::default(), &mut cache);
        if outcome.verdict.is_judged() {
            let cell = cell(&outcome);
            let unwinder = name.clone();
            all.push(Recorded { unwinder, cell });
        }
    }
    Ok(all)
}

fn cell(outcome: &Outcome) -> Cell {
    let found = outcome.diagnosis.as_ref().map(|d| d.code);
    let code = match outcome.verdict {
        Verdict::Ok => None,
        Verdict::Truncated { .. } | Verdict::Looped | Verdict::Refused => {
            Some(found.unwrap_or(outcome.chain.end.reason.code()))
        }
        _ => found,
    };
    Cell::Judged {
        verdict: outcome.verdict,
        code: code.map(code_in_case),
    }
}

/// Assembles and runs the case, and compares each unwinder's verdict with that of the recording.
/// `path` is the path that the case will have; only its name is used.
///
/// # Errors
/// If the case does not run, or an unwinder's verdict differs.
pub fn check(text: &str, path: &Path, wanted: &[Recorded]) -> Result<(), NotWritable> {
    let folder = TemporaryFolder::new("unwind-sim-extract-").map_err(NotWritable::Folder)?;

    // A case has the name of its file, so the copy needs the same one.
    let name = path.file_name().unwrap_or_default();
    let file = folder.path().join(name);
    std::fs::write(&file, text).map_err(NotWritable::Folder)?;

    let runs = |error: CaseFailure| NotWritable::DoesNotRun {
        error: Box::new(error),
    };
    let matrix = matrix(&file).map_err(runs)?;

    // All differences are named: they show together what the case cannot reproduce.
    let mut differs = Vec::new();
    for Recorded { unwinder, cell } in wanted {
        match matrix.cell("sample", unwinder) {
            Some(found) if found == *cell => {}
            Some(found) => {
                differs.push(format!("{unwinder} was {cell}, but is {found} in the case"))
            }
            None => differs.push(format!("{unwinder} is not in the case")),
        }
    }

    if differs.is_empty() {
        Ok(())
    } else {
        Err(NotWritable::NotReproduced {
            differs: differs.join(", "),
        })
    }
}
