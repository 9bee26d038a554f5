//! Which package may use which, and that all other versions are in the workspace's manifest.
//! `ARCHITECTURE.md` has the same table, in the same order.

use crate::none;
use crate::repository::text;

/// Each room, and the rooms that it may use.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("unwind", &[]),
    ("emulator", &[]),
    ("emulator/native", &[]),
    ("emulator/compare", &["emulator", "emulator-native"]),
    ("crates/host", &["unwind", "emulator-native"]),
    ("perf/data", &[]),
    ("perf/lbr", &["perf-data"]),
    ("perf/script", &["perf-data"]),
    ("perf/model", &["perf-data", "perf-lbr"]),
    ("crates/recordings", &["unwind", "perf-data"]),
    (
        "crates/record",
        &["unwind", "emulator", "host", "perf-lbr", "recordings"],
    ),
    (
        "crates/judge",
        &[
            "unwind",
            "emulator",
            "host",
            "perf-data",
            "tables",
            "recordings",
            "record",
        ],
    ),
    ("crates/tables", &["unwind"]),
    (
        "crates/view",
        &[
            "unwind",
            "tables",
            "perf-data",
            "perf-script",
            "recordings",
            "judge",
        ],
    ),
    (
        "crates/show",
        &["unwind", "perf-data", "recordings", "judge", "view"],
    ),
    ("crates/serve", &["unwind", "recordings", "judge", "view"]),
    (
        "tests/random",
        &[
            "unwind",
            "emulator",
            "emulator-native",
            "emulator-compare",
            "host",
            "recordings",
            "record",
            "tables",
            "judge",
        ],
    ),
    (
        ".",
        &[
            "unwind",
            "emulator",
            "emulator-compare",
            "host",
            "perf-data",
            "perf-script",
            "perf-lbr",
            "perf-model",
            "tables",
            "recordings",
            "record",
            "judge",
            "view",
            "show",
            "serve",
            "tests-random",
        ],
    ),
];

/// Rooms that may contain `unsafe` code: those that touch the machine or map files.
const MAY_BE_UNSAFE: [&str; 3] = ["emulator/native", "crates/host", "crates/recordings"];

/// The dependencies in a manifest's text: the name, and the rest of the line.
fn dependencies(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    text.lines().filter_map(move |line| {
        if line.starts_with('[') {
            let table = line.trim_matches(['[', ']']);
            inside = table.ends_with("dependencies") && table != "workspace.dependencies";
            return None;
        }
        let end = line
            .find(['.', ' ', '='])
            .filter(|_| inside && !line.starts_with('#'))?;
        Some(line.split_at(end))
    })
}

fn manifest(room: &str) -> String {
    text(&format!("{room}/Cargo.toml")).expect("a manifest is text")
}

#[test]
fn packages_use_only_what_lies_below_them() {
    let mut faults = Vec::new();
    for (room, may_use) in MAY_USE {
        let manifest = manifest(room);
        // A room may depend on itself for its own tests.
        let itself = room.trim_start_matches("crates/").replace('/', "-");
        let ours = dependencies(&manifest).filter_map(|(name, _)| name.strip_prefix("unwind-sim-"));
        for name in ours.filter(|name| *name != itself && !may_use.contains(name)) {
            faults.push(format!("{room}: may not use {name}"));
        }
    }
    none(&faults);
}

/// The rooms that the table of a page lets `room` use; `None` if it has no line for it.
fn of_the_page<'p>(page: &'p str, room: &str) -> Option<Vec<&'p str>> {
    // The program's package is the top folder, its code is in `src`.
    let folder = if room == "." { "src" } else { room };
    let start = format!("| `{folder}/` |");

    let (_, table) = page.split_once("\n| room |")?;
    let line = table.lines().find(|line| line.starts_with(&start))?;
    let (_, uses) = line.trim_end_matches(" |").rsplit_once("| ")?;

    Some(uses.split('`').skip(1).step_by(2).collect())
}

#[test]
fn the_page_has_the_same_table() {
    let page = text("ARCHITECTURE.md").expect("a page is text");
    let mut faults = Vec::new();
    for (room, may_use) in MAY_USE {
        let stated = of_the_page(&page, room);
        if stated.as_deref() != Some(may_use) {
            faults.push(format!(
                "ARCHITECTURE.md: {room} may use {may_use:?}, not {stated:?}"
            ));
        }
    }
    none(&faults);
}

#[test]
fn every_package_of_the_workspace_is_a_room() {
    let manifest = manifest(".");
    let (_, members) = manifest.split_once("members = [").expect("members");
    let (members, _) = members.split_once(']').expect("an end");
    let members = members.split('"').skip(1).step_by(2);
    let is_room = |member: &&str| MAY_USE.iter().any(|(room, _)| room == member);
    let strangers =
        members.filter(|member| !["fuzz", "tests/runner"].contains(member) && !is_room(member));
    none(
        &strangers
            .map(|member| format!("{member}: not in MAY_USE"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn versions_stand_in_the_workspace() {
    let mut faults = Vec::new();
    for (room, _) in MAY_USE {
        for (name, rest) in dependencies(&manifest(room)) {
            if !rest.contains("workspace = true") {
                faults.push(format!("{room}: {name} is not taken from the workspace"));
            }
        }
    }
    none(&faults);
}

#[test]
fn crates_promise_what_they_must() {
    let mut faults = Vec::new();
    let mut has = |room: &str, attribute: &str| {
        let root = if room == "." { "main" } else { "lib" };
        let path = format!("{room}/src/{root}.rs");
        let file = text(&path).expect("a source file is text");
        if !file.lines().any(|line| line == attribute) {
            faults.push(format!("{path}: no `{attribute}`"));
        }
    };
    has("unwind", "#![no_std]");
    for (room, _) in MAY_USE {
        if !MAY_BE_UNSAFE.contains(&room) {
            has(room, "#![forbid(unsafe_code)]");
        }
    }
    none(&faults);
}

#[test]
fn dependencies_are_found_in_every_table() {
    let manifest = "[workspace.dependencies]\na = \"1\"\n[dependencies]\n# e = 1\nb.workspace = true\n\
                    [target.'cfg(unix)'.dev-dependencies]\nc = \"2\"\n[lints]\nd = 1\n";
    let found: Vec<_> = dependencies(manifest).collect();
    assert_eq!(found, [("b", ".workspace = true"), ("c", " = \"2\"")]);
}

#[test]
fn rooms_are_found_in_the_table_of_a_page() {
    let page = "| `a/` | a folder |\n\n| room | what for | uses |\n|---|---|---|\n\
                | `a/` | one | `b`, `c-d` |\n| `src/` | two | no other room |\n";
    assert_eq!(of_the_page(page, "a"), Some(vec!["b", "c-d"]));
    assert_eq!(of_the_page(page, "."), Some(Vec::new()));
    assert_eq!(of_the_page(page, "b"), None);
}
