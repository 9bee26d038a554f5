//! Pages and snapshots: links point to files, the index is complete, the map names files and
//! functions that exist, no snapshot is unused.

use crate::none;
use crate::repository::{files, paths, text, top};
use std::path::Path;

/// The targets of the links in a page: `](TARGET)`, without the part after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or_default())
}

#[test]
fn links_lead_to_files() {
    let mut faults = Vec::new();
    for file in files(".md") {
        let folder = Path::new(&file.path)
            .parent()
            .expect("a file lies in a folder");
        for link in links(&file.text).filter(|link| !link.is_empty() && !link.contains(':')) {
            if !top().join(folder).join(link).exists() {
                faults.push(format!("{}: there is no {link}", file.path));
            }
        }
    }
    none(&faults);
}

#[test]
fn the_index_names_every_page() {
    let mut absent = in_no_index("docs/", "README.md", "book/");
    absent.extend(in_no_index("docs/book/src/", "SUMMARY.md", "-"));
    none(&absent);
}

/// The pages below `folder` to which its index has no link. Those below `except` have another one.
fn in_no_index(folder: &str, index: &str, except: &str) -> Vec<String> {
    let text = std::fs::read_to_string(top().join(folder).join(index)).expect("the index");
    let pages = paths().into_iter().filter_map(|path| {
        let name = path.strip_prefix(folder)?.to_owned();
        let is_page = name.ends_with(".md") && name != index && !name.starts_with(except);
        is_page.then_some(name)
    });
    let absent = pages.filter(|name| !links(&text).any(|link| link == name));
    absent
        .map(|name| format!("{folder}{index}: no link to {name}"))
        .collect()
}

/// The page that names most files and functions.
const MAP: &str = "ARCHITECTURE.md";

#[test]
fn the_map_names_paths_that_exist() {
    let page = text(MAP).expect("a page is text");
    // What has a `/` and nothing that no path has, such as a space.
    let is_path = |word: &&str| {
        let mut characters = word.chars();
        word.contains('/') && characters.all(|c| c.is_alphanumeric() || "._/-".contains(c))
    };
    let named = page.split('`').skip(1).step_by(2).filter(is_path);
    let absent = named.filter(|path| !top().join(path).exists());
    let faults = absent.map(|path| format!("{MAP}: there is no {path}"));
    none(&faults.collect::<Vec<_>>());
}

/// The functions that a page places in files, each with its file: "`NAME` in `PATH.rs`".
fn functions_in_files(page: &str) -> Vec<(String, String)> {
    // A line may end between the two.
    let words: Vec<&str> = page.split_whitespace().collect();
    let flat = words.join(" ");

    let parts: Vec<&str> = flat.split("` in `").collect();
    let pairs = parts.windows(2).filter_map(|pair| {
        let name = pair[0].rsplit('`').next()?;
        let path = pair[1].split('`').next()?;
        path.ends_with(".rs")
            .then(|| (name.to_owned(), path.to_owned()))
    });
    pairs.collect()
}

#[test]
fn the_map_names_functions_that_exist() {
    let page = text(MAP).expect("a page is text");
    let named = functions_in_files(&page);
    assert!(!named.is_empty(), "{MAP}: names no function in a file");

    let mut faults = Vec::new();
    for (name, path) in named {
        // Of `Type::function`, the function.
        let function = name.rsplit(':').next().unwrap_or_default();
        let forms = [format!("fn {function}("), format!("fn {function}<")];
        let has = |file: String| forms.iter().any(|form| file.contains(form));
        if !top().join(&path).is_file() || !text(&path).is_some_and(has) {
            faults.push(format!("{MAP}: no {name} in {path}"));
        }
    }
    none(&faults);
}

#[test]
fn functions_are_found_with_their_files() {
    let page = "`A::b` in\n`c/d.rs` and `e` in `f.rs`, `g` in `h.md`";
    let found = functions_in_files(page);
    let pairs: Vec<(&str, &str)> = found.iter().map(|(n, p)| (&**n, &**p)).collect();
    assert_eq!(pairs, [("A::b", "c/d.rs"), ("e", "f.rs")]);
}

/// Only finds snapshots whose test file is gone. Which snapshots the tests use is known only after
/// running them, so `.ci/run` checks that.
#[test]
fn every_snapshot_has_its_test() {
    let mut faults = Vec::new();
    for file in files(".snap") {
        let source = file
            .text
            .lines()
            .find_map(|line| line.strip_prefix("source: "));
        if !source.is_some_and(|source| top().join(source.trim_matches('"')).is_file()) {
            faults.push(format!("{}: its test {source:?} does not exist", file.path));
        }
        if !file.path.starts_with("snapshots/") {
            faults.push(format!("{}: snapshots lie in snapshots/", file.path));
        }
    }
    let unread = paths()
        .into_iter()
        .filter(|path| path.ends_with(".snap.new"));
    faults.extend(unread.map(|path| format!("{path}: a snapshot that nobody accepted")));
    none(&faults);
}

#[test]
fn links_are_found_without_their_anchors() {
    let found: Vec<_> = links("[a](b.md) and [c](d.md#e) and [f](#g)").collect();
    assert_eq!(found, ["b.md", "d.md", ""]);
}
