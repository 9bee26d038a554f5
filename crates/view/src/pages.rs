//! The page of each reason code: a chapter of the book, and what `explain` prints.

use std::fmt::Write as _;
use unwind_sim_unwind::reason::Code;

/// The parts of a page, in order: the headings of its sections.
pub const PARTS: [&str; 6] = [
    "What it means",
    "The smallest case",
    "Why it happens",
    "How to tell it from its neighbours",
    "What to do",
    "Experiment",
];

macro_rules! pages {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// The page of `code` as the book has it, in Markdown.
        pub fn markdown(code: Code) -> &'static str {
            match code {
                $(Code::$name => include_str!(concat!("../docs/book/src/codes/", $code, ".md")),)*
                // The table has all codes: the enum is open only for other packages.
                _ => "",
            }
        }
    };
}

// A code whose page is missing does not compile.
unwind_sim_unwind::reason_codes!(pages);

/// The page of `code` for the terminal: headings and blocks stand out by their indentation.
pub fn page(code: Code) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in markdown(code).lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            let _ = writeln!(out, "{}", format!("    {line}").trim_end());
        } else if let Some(heading) = line.strip_prefix("## ") {
            // The first section needs no heading below the page's own.
            if heading != PARTS[0] {
                let _ = writeln!(out, "{heading}:");
            }
        } else {
            let _ = writeln!(out, "{}", without_links(line.trim_start_matches("# ")));
        }
    }
    // Where a heading was left out, two blank lines meet.
    out.replace("\n\n\n", "\n\n")
}

/// The line with `[text](target)` as `text`.
fn without_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('[') {
        // The text ends at the first bracket, and a target follows it at once.
        let parts = behind.split_once(']').and_then(|(text, tail)| {
            let (_, after) = tail.strip_prefix('(')?.split_once(')')?;
            Some((text, after))
        });
        out.push_str(before);
        match parts {
            Some((text, after)) => {
                out.push_str(text);
                rest = after;
            }
            None => {
                out.push('[');
                rest = behind;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_with_every_part() {
        for &code in Code::ALL {
            let page = markdown(code);
            let head = format!("# {code} {}\n\n", code.description());
            assert!(
                page.starts_with(&head),
                "{code}: no page that starts with `{head}`"
            );
            let headings: Vec<&str> = page.lines().filter_map(|l| l.strip_prefix("## ")).collect();
            assert_eq!(headings, PARTS, "{code}");
            for part in page.split("\n## ").skip(1) {
                let (heading, text) = part.split_once("\n\n").unwrap_or_default();
                assert!(text.trim().len() > 5, "{code}: nothing below `{heading}`");
            }
        }
    }

    #[test]
    fn every_page_is_readable_in_a_terminal() {
        for &code in Code::ALL {
            let page = page(code);
            assert!(page.starts_with(&format!("{code} {}\n\n", code.description())));
            assert!(
                !page.contains("```") && !page.contains("](") && !page.contains("##"),
                "{page}"
            );
        }
    }

    #[test]
    fn a_link_is_its_text_and_a_bracket_is_kept() {
        assert_eq!(
            without_links("see [US001](US001.md), a[0] and [b](c)."),
            "see US001, a[0] and b."
        );
    }
}
