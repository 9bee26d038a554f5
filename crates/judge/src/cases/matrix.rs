//! Computes the matrix of a case: sample points by unwinders.

use super::sample::Recorded;
use crate::case::{Case, Cell, Machine, Matrix, MatrixRow, PointKey, View};
use crate::engine::{Engine, Setting};
use crate::spec;
use crate::spec::column_name;
use crate::unwinders::{self, is_scan};
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::start::Variant;

/// The unwinders of a case's columns: [`unwinders::DEFAULT`] ([`unwinders::KERNEL`] for a kernel)
/// and the other ones that its claims name.
pub fn unwinders_of(case: &Case) -> Vec<String> {
    let header = &case.header;
    let columns = match header.machine {
        Machine::Process => &unwinders::DEFAULT[..],
        Machine::Kernel => &unwinders::KERNEL[..],
    };
    let mut unwinders: Vec<String> = columns.iter().map(|s| (*s).to_owned()).collect();
    for claim in header.right.iter().chain(&header.wrong) {
        if !unwinders.contains(&claim.unwinder) {
            unwinders.push(claim.unwinder.clone());
        }
    }
    unwinders
}

/// The matrix of a recorded case, for its [`unwinders_of`].
pub fn matrix_of(recorded: &Recorded) -> Matrix {
    let header = &recorded.case.header;
    let unwinders = unwinders_of(&recorded.case);
    let only_hardware = header.regs == [Variant::Hardware];
    let setting = setting_of(&recorded.case);

    let mut columns = Vec::new();
    let mut rows: Vec<MatrixRow> = recorded
        .points
        .iter()
        .map(|p| MatrixRow {
            point: p.key.to_string(),
            cells: Vec::new(),
        })
        .collect();

    for unwinder in &unwinders {
        // The check of the claims reports an unwinder that does not exist.
        let Ok(engine) = spec::engine(unwinder) else {
            continue;
        };

        // One cache for all samples, as tools have it: no result may depend on what is in it.
        let mut cache = Cache::new();

        for &variant in &header.regs {
            // Where all start from hardware registers, `@hw` on each column would say nothing.
            columns.push(if only_hardware {
                unwinder.clone()
            } else {
                column_name(unwinder, variant)
            });
            for (index, row) in rows.iter_mut().enumerate() {
                row.cells.push(cell(
                    recorded, index, &engine, variant, &setting, &mut cache,
                ));
            }
        }
    }

    Matrix { columns, rows }
}

/// The expectation for a recorded case whose matrix is `found`. Where code of the system has run,
/// its stack words and rows affect each verdict, so only what is claimed right is expected.
pub fn expectation_of(recorded: &Recorded, found: &Matrix) -> Matrix {
    let header = &recorded.case.header;
    let mut expected = found.clone();
    for (index, row) in expected.rows.iter_mut().enumerate() {
        if !recorded.has_system_code(index) {
            continue;
        }
        for (column, cell) in found.columns.iter().zip(&mut row.cells) {
            let claimed = header.right.iter().any(|claim| {
                let unwinder = column.split('@').next();
                let at = |key: &PointKey| PointKey::parse(&row.point).is_ok_and(|r| key.covers(&r));
                unwinder == Some(claim.unwinder.as_str())
                    && (claim.args.is_empty()
                        || claim.args.iter().any(|a| a.at.as_ref().is_some_and(at)))
            });
            if *cell != Cell::NotApplicable && !claimed {
                *cell = Cell::Open;
            }
        }
    }
    expected
}

/// The setting of all walks of a case.
pub fn setting_of(case: &Case) -> Setting {
    let view = match case.header.view {
        View::Cpu => MemoryView::Cpu,
        View::Copy => MemoryView::Copy(u64::MAX),
        View::CopyBytes(bytes) => MemoryView::Copy(bytes),
    };
    Setting {
        view,
        frame_pointer_kernel: case.header.frame_pointer_config,
        ..Setting::default()
    }
}

fn cell(
    recorded: &Recorded,
    index: usize,
    engine: &Engine,
    variant: Variant,
    setting: &Setting,
    cache: &mut Cache,
) -> Cell {
    let is_fake_point = recorded.points[index].key.own.is_some();
    if (variant != Variant::Hardware) != is_fake_point {
        return Cell::NotApplicable;
    }
    let outcome = recorded.with_view(index, |view| engine.examine(view, variant, setting, cache));
    Cell::Judged {
        verdict: outcome.verdict,
        code: outcome.code(),
    }
}

/// The differences, one per line; `found` is from `engine`.
pub(super) fn differences(expected: &Matrix, found: &Matrix, engine: super::Engine) -> Vec<String> {
    let mut out = Vec::new();
    for row in &found.rows {
        for (column, &cell) in found.columns.iter().zip(&row.cells) {
            match expected.cell(&row.point, column) {
                // Where leftovers on the stack decide, only the kind of the verdict and the reason
                // have to be the same.
                Some(old) if old == cell || engine.is_lucky(column) && are_alike(old, cell) => {}
                Some(old) => {
                    out.push(format!(
                        "  {} {column}: {cell}, the file says {old}",
                        row.point
                    ));
                }
                None => out.push(format!(
                    "  {} {column}: {cell}, the file says nothing",
                    row.point
                )),
            }
        }
    }

    // What the run no longer has must be noticed, too.
    for row in &expected.rows {
        for column in &expected.columns {
            if found.cell(&row.point, column).is_none() {
                out.push(format!("  {} {column}: only in the file", row.point));
            }
        }
    }

    out
}

impl super::Engine {
    /// Whether the result of the column depends on leftovers on the stack: words of earlier calls,
    /// or registers in a signal frame. Expectations come from the processor.
    fn is_lucky(self, column: &str) -> bool {
        let name = column.split('@').next().unwrap_or(column);
        self == super::Engine::Emulator && is_scan(name) && !name.contains(':')
    }
}

/// Whether the verdicts are of the same kind, with the same reason.
fn are_alike(one: Cell, other: Cell) -> bool {
    let kind = |cell: Cell| cell.verdict().map(|v| std::mem::discriminant(&v));
    kind(one) == kind(other) && one.code() == other.code()
}
