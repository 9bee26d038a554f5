//! The matrix of a comparison: verdicts by column, how walks ended, and why chains are not judged.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use unwind_sim_judge::compare::Comparison;
use unwind_sim_judge::tally::Tally;
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::verdict::Verdict;

/// Adds the matrix to `out`. Unless `by_truth`, the column of right chains is headed `agree`.
pub(super) fn write(out: &mut String, comparison: &Comparison, columns: &[String], by_truth: bool) {
    let tallies = &comparison.tallies;
    let widths = columns.iter().map(|c| c.chars().count());
    let width = widths.max().unwrap_or(0).max(8);
    verdicts(out, tallies, columns, width, by_truth);
    ends(out, tallies, columns, width);
    unjudged(out, tallies, columns, width);
    kernel_said(out, comparison, columns);
}

/// What the kernel's own unwinder gave, beside each column and the truth.
fn kernel_said(out: &mut String, comparison: &Comparison, columns: &[String]) {
    let Some(said) = comparison.said.first().filter(|said| said.chains > 0) else {
        return;
    };
    let _ = writeln!(
        out,
        "\nthe kernel's own unwinder: {}; of {} whose true chain is complete, {} right",
        counted(said.chains, "chain"),
        said.known,
        are(said.right)
    );
    for (name, said) in columns.iter().zip(&comparison.said) {
        let _ = writeln!(out, "{name}: the same as the kernel's in {}", said.same);
    }
}

/// `1 is`, `2 are`.
fn are(count: u64) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}

/// A column that is shown only if one of its numbers is not 0.
type Rare = (&'static str, fn(&Tally) -> u64);

const RARE: [Rare; 2] = [
    ("end not claimed", |t| t.ends_not_claimed),
    ("fallback", |t| t.fell_back),
];

fn verdicts(out: &mut String, tallies: &[Tally], columns: &[String], width: usize, truth: bool) {
    // Verdicts that nobody got have no column: ten would not fit on a line.
    let used: Vec<(char, &str)> = Verdict::WORDS
        .into_iter()
        .filter(|(letter, _)| tallies.iter().any(|t| t.count(*letter) > 0))
        .collect();

    // Most of these numbers are 0 in most runs, and then have no column.
    let mut rare = RARE.to_vec();
    rare.retain(|(_, count)| tallies.iter().any(|t| count(t) > 0));

    let _ = write!(out, "{:width$}", "");

    // The letter stands beside the word, since it is what other listings use.
    for (letter, word) in &used {
        let _ = write!(out, "  {:>12}", format!("{word} {letter}"));
    }
    // Without a truth, a column can only agree with what it is compared with.
    let right = if truth { "right" } else { "agree" };
    let _ = write!(out, "  {:>8}  {right:>8}  {:>8}", "judged", "frames");
    for (name, _) in &rare {
        let _ = write!(out, "  {name}");
    }
    out.push('\n');

    for (name, tally) in columns.iter().zip(tallies) {
        let _ = write!(out, "{name:width$}");
        for (letter, _) in &used {
            let _ = write!(out, "  {:>12}", tally.count(*letter));
        }

        // Shares are of the judged chains, and of their true frames.
        let shares = [tally.right_permyriad(), tally.found_permyriad()].map(percent);
        let _ = write!(out, "  {:>8}  {}  {}", tally.judged(), shares[0], shares[1]);
        for (name, count) in &rare {
            let _ = write!(out, "  {:>1$}", count(tally), name.len());
        }
        out.push('\n');
    }
}

/// The percentage in 8 characters: ` 98.49 %`.
fn percent(permyriad: Option<u64>) -> String {
    match permyriad {
        Some(r) => format!("{:>3}.{:02} %", r / 100, r % 100),
        None => format!("{:>8}", "-"),
    }
}

fn ends(out: &mut String, tallies: &[Tally], columns: &[String], width: usize) {
    let codes: BTreeSet<_> = tallies.iter().flat_map(|t| t.ended.keys()).collect();
    if codes.is_empty() {
        return;
    }
    let _ = write!(out, "\n{:width$}", "ended by");
    for code in &codes {
        let _ = write!(out, "  {:>7}", code.as_str());
    }
    out.push('\n');
    for (name, tally) in columns.iter().zip(tallies) {
        let _ = write!(out, "{name:width$}");
        for code in &codes {
            let count = tally.ended.get(code).copied().unwrap_or_default();
            let _ = write!(out, "  {count:>7}");
        }
        out.push('\n');
    }
}

fn unjudged(out: &mut String, tallies: &[Tally], columns: &[String], width: usize) {
    if tallies.iter().all(|t| t.unjudged.is_empty()) {
        return;
    }
    out.push_str("\nnot judged\n");
    for (name, tally) in columns.iter().zip(tallies) {
        for (why, count) in &tally.unjudged {
            let _ = writeln!(out, "{name:width$}  {count:>7}  {why}");
        }
    }
}
