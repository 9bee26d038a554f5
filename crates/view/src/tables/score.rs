//! What `tables check --self-test` found, as text.

use super::names::address;
use std::io::{self, Write};
use unwind_sim_tables::file::File;
use unwind_sim_tables::selftest::{Score, UncaughtDefect};
use unwind_sim_unwind::printable::Printable;

/// Writes the numbers by kind of defect, then up to `limit` that were not caught.
///
/// # Errors
/// Those of `out`.
pub fn write(file: &File, score: &Score, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", Printable::new(file.name()))?;

    // The share is that of defects that could be caught: equivalent ones are none.
    let mut line = |name: &str, tally: unwind_sim_tables::selftest::Tally| {
        let score = tally.score();
        let score = score.map_or_else(|| "-".to_owned(), |score| format!("{score:.2} %"));
        writeln!(
            out,
            "  {name:<16} {:>7} caught {:>6} equivalent {:>6} missed {score:>9}",
            tally.caught, tally.equivalent, tally.missed,
        )
    };

    for (kind, tally) in &score.kinds {
        line(kind.as_str(), *tally)?;
    }
    line("all", score.total())?;

    // Equivalent defects are told by the argument why they are none, so that each argument can be
    // doubted.
    for (argument, count) in score.arguments.iter().filter(|a| a.1 > 0) {
        writeln!(out, "  equivalent by {}: {count}", argument.as_str())?;
    }
    write_misses(file, "missed", &score.misses, limit, out)?;

    // These are defects of the proof or of the argument, so they are never part of a score.
    let conflicts = score.total().conflicts;
    if conflicts > 0 {
        writeln!(
            out,
            "  contradicted, though equivalent, not counted above: {conflicts}"
        )?;
    }

    write_misses(
        file,
        "contradicted, though equivalent",
        &score.conflicts,
        limit,
        out,
    )
}

fn write_misses(
    file: &File,
    what: &str,
    misses: &[UncaughtDefect],
    limit: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    for miss in misses.iter().take(limit) {
        // Function and row are told by address, since several functions may have one name.
        let kind = miss.kind.as_str();
        let [function, row] = [miss.function, miss.row].map(|at| {
            let mut place = String::new();
            address(file, at, &mut place);
            place
        });

        let (change, answer) = (&miss.change, &miss.answer);
        writeln!(
            out,
            "  {what}: {kind} at {row} of {function}: {change}: {answer}"
        )?;
    }

    if misses.len() > limit {
        writeln!(out, "  and {} more (--limit)", misses.len() - limit)?;
    }
    Ok(())
}
