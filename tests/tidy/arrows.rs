//! Which package may use which, and that the versions of all others stand in one place.
//! `ARCHITECTURE.md` draws the same arrows.

use crate::none;
use crate::repository::text;

/// Each package's manifest, and those of ours that it may use.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("unwind/Cargo.toml", &[]),
    ("emulator/Cargo.toml", &["unwind"]),
    ("perf/Cargo.toml", &["unwind"]),
    ("host/Cargo.toml", &["unwind"]),
    ("corpus/Cargo.toml", &["unwind", "perf"]),
    (
        "Cargo.toml",
        &["unwind", "emulator", "perf", "host", "corpus"],
    ),
];

/// Attributes that a crate's first file must have.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("unwind/src/lib.rs", "#![no_std]"),
    ("unwind/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("perf/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("src/lib.rs", "#![forbid(unsafe_code)]"),
];

/// The dependencies in a manifest's text: name, and the rest of the line.
fn dependencies(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    text.lines().filter_map(move |line| {
        if line.starts_with('[') {
            let table = line.trim_matches(['[', ']']);
            inside = table.ends_with("dependencies") && table != "workspace.dependencies";
            return None;
        }
        let end = line.find(['.', ' ', '=']).filter(|_| inside)?;
        Some(line.split_at(end))
    })
}

#[test]
fn packages_use_only_what_lies_below_them() {
    let mut faults = Vec::new();
    for (manifest, may_use) in MAY_USE {
        let manifest_text = text(manifest).expect("a manifest is text");
        let ours =
            dependencies(&manifest_text).filter_map(|(name, _)| name.strip_prefix("unwind-sim-"));
        for name in ours.filter(|name| !may_use.contains(name)) {
            faults.push(format!("{manifest}: may not use {name}"));
        }
    }
    none(&faults);
}

#[test]
fn versions_stand_in_the_workspace() {
    let mut faults = Vec::new();
    for (manifest, _) in MAY_USE {
        let manifest_text = text(manifest).expect("a manifest is text");
        for (name, rest) in dependencies(&manifest_text) {
            if !rest.contains("workspace = true") {
                faults.push(format!(
                    "{manifest}: {name} is not taken from the workspace"
                ));
            }
        }
    }
    none(&faults);
}

#[test]
fn crates_promise_what_they_must() {
    let missing = ATTRIBUTES.iter().filter(|(path, attribute)| {
        let file = text(path).expect("a source file is text");
        !file.lines().any(|line| line == *attribute)
    });
    let faults = missing.map(|(path, attribute)| format!("{path}: no `{attribute}`"));
    none(&faults.collect::<Vec<_>>());
}

#[test]
fn dependencies_are_found_in_every_table() {
    let manifest = "[workspace.dependencies]\na = \"1\"\n[dependencies]\nb.workspace = true\n\
                    [target.'cfg(unix)'.dev-dependencies]\nc = \"2\"\n[lints]\nd = 1\n";
    let found: Vec<_> = dependencies(manifest).collect();
    assert_eq!(found, [("b", ".workspace = true"), ("c", " = \"2\"")]);
}
