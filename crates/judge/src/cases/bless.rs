//! Regenerates expectations. The author's lines are kept, and nothing gets worse without
//! `--accept`.

use super::built::Built;
use super::built::open;
use super::failure::CaseFailure;
use super::{claims, engines, expectation_of, matrix, matrix_of};
use crate::case::Cell;
use std::path::Path;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::output_file;
use unwind_sim_unwind::verdict::Verdict;

/// The result of blessing a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blessed {
    /// The name of the case.
    pub name: String,
    /// The cells that changed, line by line.
    pub changes: Vec<String>,
}

/// Regenerates the expectation of the case at `path`. A cell may get worse only if `accept`
/// contains its unwinder.
///
/// # Errors
/// If the case cannot be run, authorities or claims disagree, or a cell would get worse.
pub fn bless(path: &Path, accept: &[String], limits: &CaseLimits) -> Result<Blessed, CaseFailure> {
    let built = Built::without_defect(&open(path)?, limits)?;
    let case = &built.case;

    let first = built.engines()[0];
    let recorded = built.record(first)?;

    // Claims are compared with all cells, also with those that the expectation leaves open.
    let whole = matrix_of(&recorded);
    let found = expectation_of(&recorded, &whole);

    let mut refused = recorded.truth_differences();
    refused.extend(claims::differences(&recorded, &whole));

    // The first engine's matrix becomes the expectation only if all engines agree with it.
    for &engine in built.engines().iter().skip(1) {
        let other = built.record(engine)?;
        refused.extend(engines::differences(&recorded, &other));
        let others = expectation_of(&other, &matrix_of(&other));
        refused.extend(matrix::differences(&found, &others, engine));
    }

    let expected = case.expected.clone();
    let changes = match &expected {
        Some(expected) => matrix::differences(expected, &found, first),
        None => vec!["  blessed for the first time".to_owned()],
    };

    // Better is taken as it is. What was right and is no longer must be accepted by name.
    for row in &found.rows {
        for (column, cell) in found.columns.iter().zip(&row.cells) {
            let old = expected.as_ref().and_then(|e| e.cell(&row.point, column));
            let was_right = old.and_then(|c| c.verdict()) == Some(Verdict::Ok);

            // An open cell does not say that the unwinder is wrong.
            let is_right = cell.verdict() == Some(Verdict::Ok) || *cell == Cell::Open;
            // A column is `UNWINDER` or `UNWINDER@START`.
            let unwinder = column.split('@').next().unwrap_or(column);
            if was_right && !is_right && !accept.iter().any(|a| a == unwinder) {
                refused.push(format!(
                    "  {} {column} was right and is now {cell}; to accept it: --accept \
                     {}:{unwinder}",
                    row.point, case.name
                ));
            }
        }
    }

    let name = case.name.clone();
    if !refused.is_empty() {
        return Err(CaseFailure::Differs {
            name,
            differences: refused.join("\n"),
        });
    }

    let text = case.with_expectations(&found);
    if text != case.text() {
        write(path, &text)?;
    }
    Ok(Blessed { name, changes })
}

fn write(path: &Path, text: &str) -> Result<(), CaseFailure> {
    let io = |source| CaseFailure::Io {
        path: path.into(),
        source,
    };
    output_file::rewrite(path, text.as_bytes()).map_err(io)
}
