//! `doctor`: what broke stacks, on one screen.

use crate::text::{plural, row_place};
use std::fmt::Write as _;
use unwind_sim_judge::doctor::{Complaint, Report};
use unwind_sim_unwind::printable::{Printable, printable};

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
    let all = subject.stacks();
    let _ = writeln!(
        out,
        "{} sample{}; {} of {all} stack{} by {} {} broken ({})",
        report.samples,
        plural(report.samples),
        subject.broken,
        plural(all),
        Printable::new(&subject.name),
        if subject.broken == 1 { "is" } else { "are" },
        percent(subject.broken, all)
    );

    if let Some((sample, crash)) = report.crashed {
        let _ = writeln!(
            out,
            "thread {} crashed: {crash} (sample {sample})",
            crash.tid
        );
    }

    // A line for each unwinder, so that one sees whether another would have done better.
    out.push_str("               whole    broken   unknown\n");
    for subject in report.subjects.iter().filter(|s| s.stacks() > 0) {
        let (whole, broken, unknown) = (subject.whole, subject.broken, subject.unknown);
        let _ = write!(
            out,
            "{:<10}{whole:>10}{broken:>10}{unknown:>10}",
            Printable::new(&subject.name)
        );
        // They lack only what runs before `main`.
        if subject.start_code > 0 {
            let _ = write!(out, "  ({} up to start code)", subject.start_code);
        }
        out.push('\n');
    }

    // A limit keeps the report on one screen; what it leaves out is counted below.
    let complaints: Vec<&Complaint> = report.of(main).collect();
    for complaint in complaints.iter().take(limit) {
        write_complaint(&mut out, complaint, explain);
    }

    // The rest is not dropped silently: the reader learns how much it is.
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
    // All facts that cannot be summed are of one example.
    let example = &complaint.example;
    let _ = write!(
        out,
        "\n{:>8}  {}{}",
        complaint.stacks,
        if complaint.is_known { "" } else { "unknown: " },
        complaint.kind.description()
    );

    if !complaint.image.is_empty() {
        let _ = write!(out, ": {}", Printable::new(&complaint.image));
    }

    let (lost, of) = complaint.lost;
    // It may be known of no stack how many frames it lacks.
    // Tenths in integers: the same on every machine, as reports are compared byte by byte.
    if let Some(tenths) = (lost * 10).checked_div(of).filter(|&tenths| tenths > 0) {
        let _ = write!(
            out,
            ", {}.{} frames lost per stack",
            tenths / 10,
            tenths % 10
        );
    }
    out.push('\n');

    // Stacks without a named function are in the total only.
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
        write_wrapped(out, &format!("in {}{more}", named.join(", ")));

        let mut by = format!("written by {}", example.author);
        if let Some(producer) = &example.producer {
            let _ = write!(by, "; {}", cut(producer));
        }
        if let Some(row) = &example.row {
            let _ = write!(by, "; {}", row_place(row));
        }
        write_wrapped(out, &by);

        // Values without a row would not say who claims them.
        if let Some(values) = example.values.as_ref().filter(|_| example.row.is_some()) {
            write_wrapped(out, &format!("{} {values}", example.code));
        }
    }

    for note in &complaint.notes {
        write_wrapped(out, note);
    }
    write_wrapped(out, &format!("do: {}", complaint.advice));

    // Not every input can be replayed; then there is no command.
    if let Some(command) = explain(complaint) {
        let _ = writeln!(out, "          {command}");
    }
}

/// At most [`NAME_LEN_MAX`] characters of a function's name, without its return type: first its
/// parameters go, then its template arguments, then what it is in.
fn short(name: &str) -> String {
    let fits = |name: &str| name.chars().count() <= NAME_LEN_MAX;
    let name = without_return_type(name);
    if fits(name) {
        return name.to_owned();
    }
    let mut out = emptied(name, '(', ')');
    if !fits(&out) {
        out = emptied(&out, '<', '>');
    }
    let length = out.chars().count();
    match length.checked_sub(NAME_LEN_MAX) {
        None | Some(0) => out,
        Some(more) => format!("..{}", out.chars().skip(more).collect::<String>()),
    }
}

/// The name behind the last space that stands in no parentheses and before them. Functions that are made
/// from templates have their return type in front.
fn without_return_type(name: &str) -> &str {
    // Parentheses in front belong to the name: `(anonymous namespace)::f(int)`.
    let (mut depth, mut start) = (0, 0);
    for (index, c) in name.char_indices() {
        match c {
            '(' if depth == 0 && index > start => break,
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ' ' if depth == 0 => start = index + 1,
            _ => {}
        }
    }
    if name.contains("operator") || name.starts_with('[') || name.contains("{closure") {
        name
    } else {
        &name[start..]
    }
}

/// The name with what stands between the outermost of these left out.
fn emptied(name: &str, open: char, close: char) -> String {
    let (mut out, mut depth) = (String::new(), 0_usize);
    for c in name.chars() {
        if c == close {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            out.push(c);
        }
        if c == open {
            if depth == 0 {
                out.push_str("..");
            }
            depth += 1;
        }
    }
    out
}

/// Writes a text in lines of at most 80 columns, each behind the complaints' indent. What has no space
/// is not broken.
fn write_wrapped(out: &mut String, text: &str) {
    let text = printable(text);
    const COLUMNS: usize = 80;
    const INDENT: &str = "          ";
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length <= COLUMNS {
            out.push(' ');
            column += 1;
        } else {
            if column > 0 {
                out.push('\n');
            }
            out.push_str(INDENT);
            column = INDENT.len();
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

/// At most so many characters of a text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(NAME_LEN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}..", &text[..end]),
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
        assert_eq!(cut(&"ä".repeat(61)), format!("{}..", "ä".repeat(60)));
    }

    #[test]
    fn the_own_part_of_a_name_stays() {
        for (name, expected) in [
            ("main", "main"),
            ("void run<int>(int)", "run<int>(int)"),
            ("std::vector<int> const& a::get<1>(long)", "a::get<1>(long)"),
            (
                "(anonymous namespace)::f(int)",
                "(anonymous namespace)::f(int)",
            ),
            ("bool operator< <int>(int)", "bool operator< <int>(int)"),
        ] {
            assert_eq!(short(name), expected);
        }
        let long = format!("void outer<{}>::inner({})", "x".repeat(50), "y".repeat(50));
        assert_eq!(short(&long), "outer<..>::inner(..)");
        let nested = format!("{}::last", "part::".repeat(20));
        assert!(short(&nested).ends_with("::last") && short(&nested).chars().count() <= 62);
        let mut out = String::new();
        write_wrapped(&mut out, &"word ".repeat(40));
        assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    }
}
