//! The ways of `CONTRIBUTING.md`: each section that says how to add something has a patch, with which
//! `.ci/ways` carries it out. Not here: whether it still applies and its tests pass, which takes builds.

use crate::none;
use crate::repository::{files, text, top};

const PAGE: &str = "CONTRIBUTING.md";
const PATCHES: &str = ".ci/ways.d/";

/// Sections that are not carried out, and why.
const NOT_CARRIED_OUT: [(&str, &str); 2] = [
    (
        "A table format",
        "a reader and its tests have a thousand lines; what is behind it is an unwinder",
    ),
    ("A release", ".ci/release makes one, and tries it"),
];

/// What a patch says of itself before its first file.
struct Head<'a>(&'a str);

impl<'a> Head<'a> {
    fn of(patch: &'a str) -> Head<'a> {
        let end = patch.find("\ndiff ").unwrap_or(patch.len());
        Head(&patch[..end])
    }

    /// The values of a key.
    fn values(&self, key: &str) -> Vec<&'a str> {
        let values = self.0.lines().filter_map(|line| line.strip_prefix(key));
        values
            .filter_map(|value| value.strip_prefix(": "))
            .collect()
    }
}

/// The sections of the page that say how to add something: `## A case`, `## An unwinder`.
fn ways(page: &str) -> Vec<&str> {
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let is_way = |heading: &&str| heading.starts_with("A ") || heading.starts_with("An ");
    headings.filter(is_way).collect()
}

/// The files that a patch changes, without those that it makes.
fn changed(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("--- a/"))
}

/// What is wrong with the patches, each with its path, for the sections `ways`.
fn faults(ways: &[&str], patches: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut carried_out = Vec::new();

    for (path, patch) in patches {
        let head = Head::of(patch);
        match head.values("section")[..] {
            [section] if ways.contains(&section) => carried_out.push(section),
            ref sections => faults.push(format!(
                "{path}: its `section: ` must be one of {ways:?}, and is {sections:?}"
            )),
        }
        // Without one, its tests could pass whatever the section says.
        if head.values("without").is_empty() {
            faults.push(format!("{path}: no `without: `, a step that is left out"));
        }
        // What the way that it is made behind has added is not here.
        if head.values("on").is_empty() {
            let absent = changed(patch).filter(|file| !top().join(file).is_file());
            faults.extend(absent.map(|file| format!("{path}: changes {file}, which is gone")));
        }
    }

    for way in ways {
        let is_excused = NOT_CARRIED_OUT.iter().any(|(name, _)| name == way);
        match (carried_out.contains(way), is_excused) {
            (false, false) => faults.push(format!(
                "{PAGE}: `## {way}` has no patch in {PATCHES}, with which .ci/ways carries it out"
            )),
            (true, true) => faults.push(format!("{way} has a patch: take it off NOT_CARRIED_OUT")),
            _ => {}
        }
    }

    faults
}

#[test]
fn every_way_can_be_carried_out() {
    let page = text(PAGE).expect("a page is text");
    let patches = files(".patch");
    let patches = patches.iter().filter(|file| file.path.starts_with(PATCHES));
    let patches: Vec<(&str, &str)> = patches.map(|file| (&*file.path, &*file.text)).collect();
    let ways = ways(&page);

    let gone = NOT_CARRIED_OUT
        .iter()
        .filter(|(name, _)| !ways.contains(name));
    let gone = gone.map(|(name, _)| format!("{PAGE} has no section {name}"));
    none(&gone.chain(faults(&ways, &patches)).collect::<Vec<_>>());
}

#[test]
fn a_way_without_its_patch_is_found() {
    let page = "# Page\n## A case\n## An unwinder\n## Fuzzing\n## A release\n";
    let ways = ways(page);
    assert_eq!(ways, ["A case", "An unwinder", "A release"]);

    let whole =
        "section: A case\nwithout: run -> x\n\ndiff --git\n--- a/Cargo.toml\n--- /dev/null\n";
    let unwinder = whole.replace("A case", "An unwinder");
    assert!(faults(&ways, &[("c", whole), ("u", &unwinder)]).is_empty());

    let found = faults(&ways, &[("c", whole)]);
    assert!(
        found[0].contains("`## An unwinder` has no patch"),
        "{found:?}"
    );

    // A section that does not exist, no step that is left out, a file that is gone, an excused section.
    for (from, to) in [
        ("A case", "A cause"),
        ("without", "with"),
        ("a/Cargo", "a/no"),
        ("A case", "A release"),
    ] {
        let other = whole.replace(from, to);
        let found = faults(&ways, &[("c", whole), ("u", &unwinder), ("o", &other)]);
        assert_eq!(found.len(), 1, "{from}: {found:?}");
    }
}
