//! The pages of the reason codes: each shows the smallest case that covers its code, and the case
//! gives the code.

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

#[test]
fn the_index_lists_every_code_with_its_page() {
    let index = std::fs::read_to_string(top().join("docs/reason-codes.md")).expect("the index");
    for code in Code::ALL {
        let line = format!(
            "| [{code}](book/src/codes/{code}.md) | {} |",
            code.description()
        );
        assert!(index.contains(&line), "docs/reason-codes.md: no `{line}`");
    }
    let lines = index.matches("](book/src/codes/").count();
    assert_eq!(
        lines,
        Code::ALL.len(),
        "a page of a code that does not exist"
    );
}
