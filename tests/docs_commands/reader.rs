//! The book for a reader who begins at its first page: each term and each macro is explained before
//! it is used, the exercises need nothing else, and a chapter begins with a question and is short.
//!
//! What the commands of the book print is not checked here but with the other pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use unwind_sim_judge::cases;

/// A chapter has at most three screens of 55 lines.
const CHAPTER_LINES_MAX: usize = 165;

/// The pages behind the chapters: for those who have read them.
const EXERCISES: &str = "exercises.md";
const TERMS: &str = "terms.md";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/book/src")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect(name)
}

/// The pages before `end` in the order in which they are read.
fn pages_before(end: &str) -> Vec<String> {
    let index = page("SUMMARY.md");
    let targets = index.split("](").skip(1);
    let names = targets.filter_map(|rest| rest.split(')').next());
    let before: Vec<String> = names
        .take_while(|name| *name != end)
        .map(str::to_owned)
        .collect();

    assert!(
        before.len() > 20,
        "SUMMARY.md: no {end} behind the chapters"
    );
    before
}

/// The lines of a page, those of code blocks apart from the others.
struct Lines<'a> {
    text: Vec<&'a str>,
    code: Vec<&'a str>,
}

fn lines(page: &str) -> Lines<'_> {
    let (mut text, mut code) = (Vec::new(), Vec::new());
    let mut is_code = false;
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            code.push(line);
        } else if !line.starts_with('#') && !is_of_drawing(line) {
            text.push(line);
        }
    }
    Lines { text, code }
}

/// Whether a line has a drawing, or the command that makes it.
fn is_of_drawing(line: &str) -> bool {
    ["<!-- unwind-sim ", "<object ", "<img "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The running text of a page, on one line. Code and links are left out: a link leads to what it
/// names.
fn running_text(page: &str) -> String {
    let text = lines(page).text.join(" ");
    let without_code: Vec<&str> = text.split('`').step_by(2).collect();
    let text = without_code.join("`");

    let mut kept = String::new();
    let mut rest = text.as_str();
    while let Some((before, link)) = rest.split_once('[') {
        kept.push_str(before);
        let target = link.split_once("](").map(|(_, target)| target);
        match target.and_then(|target| target.split_once(')')) {
            Some((_, behind)) => {
                kept.push('`');
                rest = behind;
            }
            None => rest = link,
        }
    }
    kept + rest
}

/// The macros and directives that a page explains: the code in the first cells of its tables.
fn explained_words(page: &str) -> BTreeSet<String> {
    let rows = lines(page).text.into_iter();
    let cells = rows.filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    spans.flat_map(code_words).map(str::to_owned).collect()
}

/// The words of assembly: macros, instructions and directives.
fn code_words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
}

/// Where a term occurs first in a text, also as a plural or capitalized, and whether it is in
/// italics there.
fn first_use(text: &str, term: &str) -> Option<(usize, bool)> {
    let is_in_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let (lower, term) = (text.to_ascii_lowercase(), term.to_ascii_lowercase());

    for (start, _) in lower.match_indices(&term) {
        let (before, found) = lower.split_at(start);
        let behind = &found[term.len()..];
        let endings = ["es", "s", ""].map(|ending| behind.strip_prefix(ending));
        let whole = endings
            .into_iter()
            .flatten()
            .find(|behind| !behind.starts_with(is_in_word));

        if let Some(behind) = whole
            && !before.ends_with(is_in_word)
        {
            return Some((start, before.ends_with('*') && behind.starts_with('*')));
        }
    }
    None
}

/// A row of the list of terms.
struct Term {
    name: String,
    /// The page that explains it.
    page: String,
}

fn terms() -> Vec<Term> {
    let list = page(TERMS);
    let rows = list.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let name = cells.next()?.to_owned();
        let (_, target) = cells.next()?.split_once("](")?;
        let page = target.strip_suffix(')')?.to_owned();
        Some(Term { name, page })
    });
    let rows: Vec<Term> = rows.collect();

    assert!(rows.len() > 50, "{TERMS}: only {} terms", rows.len());
    rows
}

#[test]
fn terms_are_explained_where_they_are_used_first() {
    let pages = pages_before(TERMS);
    let texts: Vec<String> = pages.iter().map(|name| running_text(&page(name))).collect();

    let mut faults = Vec::new();
    let mut last = (0, 0);
    for term in terms() {
        let uses = texts.iter().map(|text| first_use(text, &term.name));
        // Pages come in the order of reading, so the first that uses a term has to explain it.
        let found = uses.enumerate().find_map(|(at, used)| Some((at, used?)));
        let Some((at, (place, is_marked))) = found else {
            faults.push(format!("{TERMS}: no page uses `{}`", term.name));
            continue;
        };

        if pages[at] != term.page {
            let (name, used) = (&term.name, &pages[at]);
            faults.push(format!(
                "{used} uses `{name}`, which {} explains",
                term.page
            ));
        } else if !is_marked {
            faults.push(format!(
                "{}: the first `{}` is not its explanation: it is not in italics",
                term.page, term.name
            ));
        } else if (at, place) < last {
            faults.push(format!(
                "{TERMS}: `{}` occurs before the term above it",
                term.name
            ));
        }
        last = last.max((at, place));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The macros of the cases: what `.macro` defines in the files that they include.
fn macros() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/cases");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the cases").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "inc") {
            let text = std::fs::read_to_string(path).expect("an included file");
            let definitions = text.lines().filter_map(|line| {
                let definition = line.trim().strip_prefix(".macro")?;
                definition.split_whitespace().next().map(str::to_owned)
            });
            names.extend(definitions);
        }
    }
    assert!(names.contains("FP_ENTER"), "no macro found: {names:?}");
    names
}

/// The code of a line of assembly, without a comment.
fn code(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

#[test]
fn macros_are_explained_before_a_listing_uses_them() {
    let macros = macros();
    let mut explained = BTreeSet::new();
    let mut faults = BTreeSet::new();
    for name in pages_before(TERMS) {
        let text = page(&name);
        explained.extend(explained_words(&text));

        let listings = lines(&text).code;
        let printed = listings.iter().filter(|line| !line.starts_with("$ "));
        for word in printed.flat_map(|line| code_words(code(line))) {
            if macros.contains(word) && !explained.contains(word) {
                faults.insert(format!("{name}: `{word}` is explained nowhere before"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{faults:#?}");
}

/// The programs of the cases by their names.
fn programs() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/cases");
    let paths = cases::find(&folder).expect("the cases");
    let programs = paths.into_iter().map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let text = std::fs::read_to_string(&path).expect("a case");
        (name.into_owned(), text)
    });
    programs.collect()
}

#[test]
fn exercises_use_what_the_chapters_explain() {
    let chapters = pages_before(EXERCISES);
    let explained: BTreeSet<String> = chapters
        .iter()
        .flat_map(|name| explained_words(&page(name)))
        .collect();

    let text = page(EXERCISES);
    // Names of cases are words with hyphens, wherever they stand in the text.
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let names: BTreeSet<&str> = names.collect();
    let programs = programs();
    let used: Vec<_> = programs
        .iter()
        .filter(|(name, _)| names.contains(name.as_str()))
        .collect();
    // If names were no longer recognized, nothing would be tested.
    assert!(used.len() > 10, "the exercises name {} cases", used.len());

    let macros = macros();
    let mut faults = BTreeSet::new();
    for (name, program) in used {
        for word in program.lines().flat_map(|line| code_words(code(line))) {
            let needs = macros.contains(word) || word.starts_with(".cfi_");
            if needs && !explained.contains(word) {
                faults.insert(format!("{name}: no chapter explains `{word}`"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{faults:#?}");
}

#[test]
fn chapters_begin_with_a_question_and_are_short() {
    let mut faults = Vec::new();
    for name in pages_before(EXERCISES) {
        let text = page(&name);
        let first = text.split("\n\n").nth(1).unwrap_or_default();
        if !first.contains('?') {
            faults.push(format!("{name}: its first paragraph asks nothing"));
        }

        let count = text.lines().filter(|line| !is_of_drawing(line)).count();
        if count > CHAPTER_LINES_MAX {
            faults.push(format!(
                "{name}: {count} lines, not at most {CHAPTER_LINES_MAX}"
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_running_text_has_no_code_and_no_links() {
    let text = running_text("# a b\nc `d e` f\n```sh\ng\n```\nh [i\nj](k.md) l [m");
    assert_eq!(text, "c ` f h ` l m");
}

#[test]
fn a_term_is_found_in_italics_or_not() {
    assert_eq!(first_use("a *red zone* is", "red zone"), Some((3, true)));
    assert_eq!(first_use("*Rows* and a row", "row"), Some((1, true)));
    assert_eq!(first_use("an arrow, a row", "row"), Some((12, false)));
    assert_eq!(first_use("a row-based thing", "row"), None);
    assert_eq!(first_use("", "row"), None);
}
