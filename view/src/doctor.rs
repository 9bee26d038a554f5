//! `doctor`: what broke stacks, on one screen.

use crate::text::{plural, row_place};
use std::fmt::Write as _;
use unwind_sim_judge::doctor::{Complaint, Report};

/// The number of functions that are named in a complaint.
const FUNCTIONS_SHOWN: usize = 3;
/// The maximum length of a function's name on the screen; C++ has very long ones.
const NAME_LEN_MAX: usize = 60;

/// The report about subject `main`: how the stacks turned out, and at most `limit` complaints.
/// `explain` gives the command that shows a stack, if there is one.
pub fn doctor_text(
    report: &Report,
    main: usize,
    limit: usize,
    explain: &dyn Fn(&Complaint) -> Option<String>,
) -> String {
    let mut out = String::new();
    let subject = &report.subjects[main];
    let all = subject.whole + subject.broken;
    let _ = writeln!(
        out,
        "{} sample{}; {} of {all} stack{} by {} {} broken ({})",
        report.samples,
        plural(report.samples),
        subject.broken,
        plural(all),
        subject.name,
        if subject.broken == 1 { "is" } else { "are" },
        percent(subject.broken, all)
    );
    out.push_str("               whole    broken\n");
    for subject in report.subjects.iter().filter(|s| s.whole + s.broken > 0) {
        let (whole, broken) = (subject.whole, subject.broken);
        let _ = writeln!(out, "{:<10}{whole:>10}{broken:>10}", subject.name);
    }
    if let Some(depth) = report
        .proof
        .as_ref()
        .and_then(|p| p.mean_depth_hundredths())
    {
        let (frames, rest) = (depth / 100, depth % 100);
        let _ = writeln!(
            out,
            "judged by what the code proves, {frames}.{rest:02} frames per stack, and beyond by how \
             chains end"
        );
    }
    let complaints: Vec<&Complaint> = report.of(main).collect();
    for complaint in complaints.iter().take(limit) {
        write_complaint(&mut out, complaint, explain);
    }
    let left = complaints.len().saturating_sub(limit);
    if left > 0 {
        let stacks: u64 = complaints[limit..].iter().map(|c| c.stacks).sum();
        let _ = writeln!(
            out,
            "\nand {left} more kind{} of damage in {stacks} stack{} (--all)",
            plural(left as u64),
            plural(stacks)
        );
    }
    out
}

fn write_complaint(
    out: &mut String,
    complaint: &Complaint,
    explain: &dyn Fn(&Complaint) -> Option<String>,
) {
    let example = &complaint.example;
    let _ = write!(
        out,
        "\n{:>8}  {}",
        complaint.stacks,
        complaint.kind.description()
    );
    if !complaint.image.is_empty() {
        let _ = write!(out, ": {}", complaint.image);
    }
    let (lost, of) = complaint.lost;
    if let Some(tenths) = (lost * 10).checked_div(of).filter(|&tenths| tenths > 0) {
        let _ = write!(
            out,
            ", {}.{} frames lost per stack",
            tenths / 10,
            tenths % 10
        );
    }
    out.push('\n');
    let functions = complaint.functions_by_count();
    let named: Vec<String> = functions
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .take(FUNCTIONS_SHOWN)
        .map(|(name, count)| format!("{} {count}", short(name)))
        .collect();
    if !named.is_empty() {
        let left = functions.len() - named.len();
        let more = match left {
            0 => String::new(),
            left => format!(", {left} more"),
        };
        let _ = writeln!(out, "          in {}{more}", named.join(", "));
        let _ = write!(out, "          written by {}", example.author);
        if let Some(producer) = &example.producer {
            let _ = write!(out, "; {}", short(producer));
        }
        if let Some(row) = &example.row {
            let _ = write!(out, "; {}", row_place(row));
        }
        out.push('\n');
        if let Some(values) = example.values.as_ref().filter(|_| example.row.is_some()) {
            let _ = writeln!(out, "          {} {values}", example.code);
        }
    }
    for note in &complaint.notes {
        let _ = writeln!(out, "          {note}");
    }
    let _ = writeln!(out, "          do: {}", complaint.advice);
    if let Some(command) = explain(complaint) {
        let _ = writeln!(out, "          {command}");
    }
}

/// At most so many characters of a name.
fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_LEN_MAX) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}..", &name[..end]),
    }
}

/// A share in percent with one digit.
fn percent(part: u64, all: u64) -> String {
    let tenths = (part * 1000).checked_div(all).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_one_digit_and_names_an_end() {
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(short("main"), "main");
        assert_eq!(short(&"ä".repeat(61)), format!("{}..", "ä".repeat(60)));
    }
}
