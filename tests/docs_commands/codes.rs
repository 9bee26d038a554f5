//! The pages of the reason codes: each shows the smallest case that covers its code, and the case
//! gives the code. The names and texts in the pages are those of the table in `unwind/src/reason.rs`.

use crate::docs_commands::is_updating;
use crate::docs_commands::steps::steps;
use std::path::{Path, PathBuf};
use unwind_sim_judge::case::Case;
use unwind_sim_judge::cases;
use unwind_sim_unwind::reason::Code;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The section of a page below this heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let behind = page.split_once(&format!("\n## {heading}\n"));
    let text = behind.map_or("", |(_, text)| text);
    text.split("\n## ").next().unwrap_or_default()
}

/// The cases that cover `code`, the one with the fewest lines of code first.
fn covering(all: &[Case], code: Code) -> Vec<&Case> {
    let lines = |case: &&Case| {
        let text = case.author_text().lines();
        text.filter(|line| !line.is_empty() && !line.starts_with("#!") && !line.starts_with("#@"))
            .count()
    };
    let mut found: Vec<&Case> = all
        .iter()
        .filter(|case| case.header.covers.contains(&code))
        .collect();
    found.sort_by_key(lines);
    found
}

#[test]
fn each_code_is_shown_by_its_smallest_case() {
    let paths: Vec<PathBuf> = cases::find(&top().join("corpus/cases")).expect("cases");
    let all: Vec<Case> = paths
        .iter()
        .map(|p| cases::read(p).expect("a case"))
        .collect();

    let mut faults = Vec::new();
    for &code in Code::ALL {
        let path = top().join(format!("docs/book/src/codes/{code}.md"));
        let page = std::fs::read_to_string(&path).expect("a page");

        // By size, the smallest first.
        let covering = covering(&all, code);
        let shown = section(&page, "The smallest case");
        let shows = steps(shown)
            .into_iter()
            .find(|step| step.command.starts_with("unwind-sim cases show "));

        // A page without a case says why.
        let Some(smallest) = covering.first() else {
            if !shown.starts_with("\nNo case ") {
                faults.push(format!(
                    "{code}: no case covers it, and the page does not say why"
                ));
            }
            continue;
        };
        let Some(step) = shows else {
            faults.push(format!(
                "{code}: {} covers it and is not shown",
                smallest.name
            ));
            continue;
        };

        // The fourth word of `unwind-sim cases show NAME`.
        let name = step.command.split_whitespace().nth(3).unwrap_or_default();
        if name != smallest.name {
            faults.push(format!(
                "{code}: shows {name}, but {} is smaller",
                smallest.name
            ));
        }

        // What the commands print is written by another test at the same time.
        if is_updating() {
            continue;
        }

        let given = step.output.unwrap_or_default().join("\n");
        if !given.contains(code.as_str()) {
            faults.push(format!("{code}: {name} does not give it:\n{given}"));
        }

        // Every page has an experiment that prints something.
        let tries = steps(section(&page, "Experiment"));
        let is_shown = |step: &crate::docs_commands::steps::Step| {
            step.output.as_ref().is_some_and(|o| !o.is_empty())
        };
        if !tries.iter().any(is_shown) {
            faults.push(format!("{code}: its experiment shows nothing"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The code whose page the line links to, if that page is in `folder`: `US203` of `(FOLDER/US203.md)`.
fn linked<'a>(line: &'a str, folder: &str) -> Option<&'a str> {
    let (_, behind) = line.split_once(&format!("]({folder}/"))?;
    Some(behind.split_once(".md)")?.0)
}

/// `list` with the line of each code. A code that has none gets it behind the code before it; lines of
/// codes that do not exist are left out.
fn with_every_code(list: &str, folder: &str, line: impl Fn(Code) -> String) -> String {
    let exists = |line: &&str| linked(line, folder).is_none_or(|c| Code::from_name(c).is_some());
    let mut lines: Vec<String> = list.lines().filter(exists).map(str::to_owned).collect();

    let first = lines.iter().position(|line| linked(line, folder).is_some());
    let mut next = first.unwrap_or(lines.len());
    for &code in Code::ALL {
        let is_its = |line: &String| linked(line, folder) == Some(code.as_str());
        let at = lines.iter().position(is_its);
        match at {
            Some(at) => lines[at] = line(code),
            None => lines.insert(next, line(code)),
        }
        next = at.unwrap_or(next) + 1;
    }

    lines.join("\n") + "\n"
}

/// Compares a page with what it must be by the table of codes, or writes it.
fn compare_or_write(path: &str, page: &str, right: &str) {
    if page == right {
        return;
    }
    if is_updating() {
        std::fs::write(top().join(path), right).expect("the page is written");
        return;
    }

    let is_new = |line: &&str| !page.lines().any(|other| other == *line);
    let is_old = |line: &&str| !right.lines().any(|other| other == *line);
    let new: Vec<&str> = right.lines().filter(is_new).collect();
    let old: Vec<&str> = page.lines().filter(is_old).collect();
    panic!(
        "{path} does not name the codes as unwind/src/reason.rs does.\nIt has:\n{}\nIt must have:\n{}\n\
         `INSTA_UPDATE=always cargo test --test suite docs_commands` writes it.",
        old.join("\n"),
        new.join("\n")
    );
}

fn check_list(path: &str, folder: &str, line: impl Fn(Code) -> String) {
    let list = std::fs::read_to_string(top().join(path)).expect("the list");
    compare_or_write(path, &list, &with_every_code(&list, folder, line));
}

#[test]
fn the_index_lists_every_code_with_its_page() {
    let folder = "book/src/codes";
    check_list("docs/reason-codes.md", folder, |code| {
        format!("| [{code}]({folder}/{code}.md) | {} |", code.description())
    });
}

#[test]
fn the_book_lists_every_code_with_its_page() {
    check_list("docs/book/src/SUMMARY.md", "codes", |code| {
        format!("  - [{code} {}](codes/{code}.md)", code.description())
    });
}

/// Each page is headed by its code and the text of the code. Before the commands of the pages are run,
/// since what they print may be written into the same files.
pub(super) fn check_headings() {
    for code in Code::ALL {
        let path = format!("docs/book/src/codes/{code}.md");
        let page = std::fs::read_to_string(top().join(&path)).expect("a page");
        // A new page may have no heading yet.
        let body = if page.starts_with("# ") {
            page.split_once('\n').map_or("", |(_, body)| body)
        } else {
            &format!("\n{page}")
        };
        let right = format!("# {code} {}\n{body}", code.description());
        compare_or_write(&path, &page, &right);
    }
}

#[test]
fn a_list_gets_the_codes_that_it_lacks() {
    let line = |code: Code| format!("- [{code} {}](codes/{code}.md)", code.description());
    let all: Vec<String> = Code::ALL.iter().map(|&code| line(code)).collect();
    let right = format!("head\n{}\nend\n", all.join("\n"));
    assert_eq!(with_every_code(&right, "codes", line), right);

    // One is absent, one has another text, one does not exist; what stands between stays.
    let list = right
        .replace("- [US103 no row](codes/US103.md)\n", "")
        .replace("US205 cycle", "US205 circle")
        .replace("\nend", "\n- [US999 none](codes/US999.md)\nend");
    assert_eq!(with_every_code(&list, "codes", line), right);

    let empty = with_every_code("head\n", "codes", line);
    assert_eq!(empty, right.replace("end\n", ""));
}
