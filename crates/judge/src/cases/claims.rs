//! Compares the author's claims with the matrix.

use super::sample::Recorded;
use crate::case::{Cell, Claim, ClaimArg, Matrix, PointKey};
use crate::spec;
use crate::spec::column_name;
use crate::unwinders::is_scan;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::verdict::Verdict;

/// The claims that do not hold, one per line.
pub(super) fn differences(recorded: &Recorded, matrix: &Matrix) -> Vec<String> {
    let header = &recorded.case.header;
    let mut out = Vec::new();
    for claim in &header.right {
        check(recorded, matrix, claim, true, &mut out);
    }
    for claim in &header.wrong {
        check(recorded, matrix, claim, false, &mut out);
    }
    out
}

fn check(recorded: &Recorded, matrix: &Matrix, claim: &Claim, right: bool, out: &mut Vec<String>) {
    if let Err(error) = spec::engine(&claim.unwinder) {
        out.push(format!("  claim of {}: {error}", claim.unwinder));
        return;
    }
    let regs = &recorded.case.header.regs;
    let starts: Vec<Variant> = match claim.start {
        Some(start) => vec![start],
        None => regs.clone(),
    };
    for start in starts {
        let column = if *regs == [Variant::Hardware] {
            claim.unwinder.clone()
        } else {
            column_name(&claim.unwinder, start)
        };
        if right {
            check_right(matrix, claim, &column, out);
        } else {
            check_wrong(matrix, claim, &column, out);
        }
    }
}

fn check_right(matrix: &Matrix, claim: &Claim, column: &str, out: &mut Vec<String>) {
    let rows = matrix.rows.iter().map(|r| r.point.as_str());
    let mut points: Vec<&str> = Vec::new();
    for at in claim.args.iter().filter_map(|a| a.at.as_ref()) {
        let before = points.len();
        points.extend(rows.clone().filter(|row| is_at(at, row)));

        // A claim about no cell at all would always hold.
        if points.len() == before {
            out.push(format!(
                "  {at}: {column} is claimed right, but there is no such cell"
            ));
        }
    }

    // A claim without points is for all of them.
    if claim.args.is_empty() {
        points.extend(rows);
    }

    // A start that does not fit a point has no walk there, which contradicts no claim.
    for point in points {
        match matrix.cell(point, column) {
            Some(
                Cell::NotApplicable
                | Cell::Judged {
                    verdict: Verdict::Ok,
                    ..
                },
            ) => {}
            // A scan proves nothing; at best it is lucky.
            Some(Cell::Judged {
                verdict: Verdict::OkUnproven,
                ..
            }) if is_scan(&claim.unwinder) => {}
            Some(cell) => out.push(format!(
                "  {point}: {column} is claimed right, but is {cell}"
            )),
            None => out.push(format!(
                "  {point}: {column} is claimed right, but there is no such cell"
            )),
        }
    }
}

/// Whether the row is that of the point or of one of its instructions.
fn is_at(at: &PointKey, row: &str) -> bool {
    PointKey::parse(row).is_ok_and(|row| at.covers(&row))
}

fn check_wrong(matrix: &Matrix, claim: &Claim, column: &str, out: &mut Vec<String>) {
    for arg in &claim.args {
        let fits = |cell: &Cell| {
            let not_right = cell.verdict().is_some_and(|v| v != Verdict::Ok);
            not_right && arg.code.is_none_or(|code| cell.code() == Some(code))
        };
        let cells: Vec<Cell> = matrix
            .rows
            .iter()
            .filter(|row| arg.at.as_ref().is_none_or(|at| is_at(at, &row.point)))
            .filter_map(|row| matrix.cell(&row.point, column))
            .collect();
        // A start that applies to no point of the claim says nothing about it.
        let applies = cells.iter().any(|c| *c != Cell::NotApplicable);
        if applies && !cells.iter().any(fits) {
            let found: Vec<String> = cells.iter().map(ToString::to_string).collect();
            out.push(format!(
                "  {column} is claimed wrong{}, but is {}",
                claim_text(arg),
                found.join(" ")
            ));
        }
    }
}

fn claim_text(arg: &ClaimArg) -> String {
    let code = arg.code.map(|c| format!(" by {c}")).unwrap_or_default();
    let at = arg
        .at
        .as_ref()
        .map(|p| format!(" at {p}"))
        .unwrap_or_default();
    format!("{code}{at}")
}
