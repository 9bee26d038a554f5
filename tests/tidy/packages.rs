//! What every package must have so that its archive is complete: metadata, licence texts, a README,
//! and no path that leads out of the package.
//!
//! A package reaches files elsewhere in the repository through links below its own folder, which
//! `cargo package` follows. Not here: whether the archives build, which `.ci/full package` tries.

use crate::none;
use crate::repository::{File, files, text, top};
use std::path::{Path, PathBuf};

/// Packages that are not published.
const UNPUBLISHED: [&str; 3] = ["fuzz", "tests/random", "tests/runner"];

/// The keys that the manifest of a package has, whether published or not.
const KEYS: [&str; 8] = [
    "name",
    "description",
    "version",
    "edition",
    "rust-version",
    "license",
    "repository",
    "readme",
];

/// Limits of crates.io for keywords.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_CHARACTERS_MAX: usize = 20;

/// Licence texts that each archive has.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The folders of all packages of the workspace; the program's own is empty.
fn packages() -> Vec<String> {
    let manifest = text("Cargo.toml").expect("a manifest is text");
    let (_, members) = manifest.split_once("members = [").expect("members");
    let (members, _) = members.split_once(']').expect("an end");
    let members = members.split('"').skip(1).step_by(2).map(str::to_owned);
    std::iter::once(String::new()).chain(members).collect()
}

/// The path of a file of a package.
fn of_package(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

/// The keys and values of `[package]` in a manifest.
fn package_table(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[package]")
        .skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        Some((key.trim().trim_end_matches(".workspace"), value.trim()))
    })
}

/// The strings of a list in a manifest, which is on one line.
fn strings(list: &str) -> Vec<&str> {
    list.split('"').skip(1).step_by(2).collect()
}

/// What is wrong with the metadata of a package.
fn metadata_faults(folder: &str, manifest: &str) -> Vec<String> {
    let table: Vec<(&str, &str)> = package_table(manifest).collect();
    let value = |key: &str| table.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let path = of_package(folder, "Cargo.toml");
    let mut faults = Vec::new();
    for key in KEYS.into_iter().filter(|key| value(key).is_none()) {
        faults.push(format!("{path}: no {key}"));
    }

    // Cargo publishes what does not say `publish = false`.
    let is_published = value("publish") != Some("false");
    if is_published == UNPUBLISHED.contains(&folder) {
        faults.push(format!("{path}: publish is not as in UNPUBLISHED"));
    }

    // What stays here needs no words for a registry.
    if !is_published {
        return faults;
    }

    let keywords = strings(value("keywords").unwrap_or_default());
    if keywords.is_empty() || keywords.len() > KEYWORDS_MAX {
        faults.push(format!("{path}: needs 1 to {KEYWORDS_MAX} keywords"));
    }
    // crates.io would refuse them only when the package is published.
    for keyword in keywords {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "_-+".contains(c);
        if keyword.len() > KEYWORD_CHARACTERS_MAX || !keyword.chars().all(is_legal) {
            faults.push(format!("{path}: crates.io refuses the keyword {keyword}"));
        }
    }
    if strings(value("categories").unwrap_or_default()).is_empty() {
        faults.push(format!("{path}: no categories"));
    }
    faults
}

#[test]
fn every_package_says_what_it_is() {
    let mut faults = Vec::new();
    for folder in packages() {
        let manifest = text(&of_package(&folder, "Cargo.toml")).expect("a manifest is text");
        faults.extend(metadata_faults(&folder, &manifest));
    }
    none(&faults);
}

#[test]
fn every_package_has_its_licences_and_a_readme() {
    let read = |path: &str| std::fs::read_to_string(top().join(path)).unwrap_or_default();
    let mut faults = Vec::new();
    for folder in packages() {
        for licence in LICENCES {
            let path = of_package(&folder, licence);

            // A package carries its own copies, since a registry gets only its folder.
            if read(&path).is_empty() || read(&path) != read(licence) {
                faults.push(format!("{path}: is not ../{licence}"));
            }
        }

        let path = of_package(&folder, "README.md");
        let page = read(&path);
        // By the rule for names of packages, so that a README that was copied is noticed.
        let name = match folder.as_str() {
            "" => "unwind-sim".to_owned(),
            folder => {
                let room = folder.trim_start_matches("crates/");
                format!("unwind-sim-{}", room.replace('/', "-"))
            }
        };
        if !page.starts_with(&format!("# {name}\n")) {
            faults.push(format!("{path}: does not start with # {name}"));
        }

        // How to test it alone.
        let test = match folder.as_str() {
            "" => "cargo test-all".to_owned(),
            _ => format!("cargo test -p {name}"),
        };
        if !page.contains(&test) {
            faults.push(format!("{path}: does not say {test}"));
        }
    }
    none(&faults);
}

/// Without a version, a package that uses another of ours cannot be published.
#[test]
fn our_packages_have_versions() {
    let manifest = text("Cargo.toml").expect("a manifest is text");
    let version = manifest
        .split_once("[workspace.package]\nversion = ")
        .and_then(|(_, rest)| rest.lines().next())
        .expect("a version");
    let ours = manifest
        .lines()
        .filter(|line| line.starts_with("unwind-sim-") && line.contains("path = "));
    // Nothing that is published may depend on these but for its tests, and Cargo leaves such out.
    let is_published = |line: &&str| {
        let is_of = |folder: &&str| line.contains(&format!("path = \"{folder}\""));
        !UNPUBLISHED.iter().any(is_of)
    };
    let faults: Vec<String> = ours
        .filter(is_published)
        .filter(|line| !line.contains(&format!("version = {version}")))
        .map(|line| format!("Cargo.toml: version {version} is missing in: {line}"))
        .collect();
    none(&faults);
}

/// The string literals of a source file that start with `../` or `/../`.
fn upward(text: &str) -> impl Iterator<Item = &str> {
    let literals = text
        .lines()
        .flat_map(|line| line.split('"').skip(1).step_by(2));
    let literals = literals.map(|literal| literal.trim_start_matches('/'));
    literals.filter(|literal| literal.starts_with("../"))
}

/// The path without `..`, which a link on the way would lead elsewhere.
fn folded(path: &Path) -> PathBuf {
    let mut folded = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                folded.pop();
            }
            part => folded.push(part),
        }
    }
    folded
}

/// Whether `literal` names something outside of the package that `file` is in: beside the file, as
/// in `include_str!`, or from the package's folder, as after `CARGO_MANIFEST_DIR`.
fn leads_out(folder: &str, file: &File, literal: &str) -> bool {
    let package = top().join(folder);
    let beside = top().join(&file.path).with_file_name("").join(literal);
    let places = [beside, package.join(literal)].map(|path| folded(&path));
    let found = places.iter().find(|path| path.exists());
    found.is_some_and(|path| !path.starts_with(&package))
}

#[test]
fn no_package_reads_files_outside_of_it() {
    let sources = files(".rs");
    let mut faults = Vec::new();
    let is_archived = |folder: &&String| !folder.is_empty() && **folder != "tests/runner";
    for folder in packages().iter().filter(is_archived) {
        let manifest = text(&of_package(folder, "Cargo.toml")).expect("a manifest is text");
        let has_no_tests = package_table(&manifest)
            .any(|(key, value)| key == "exclude" && strings(value).contains(&"/tests"));
        let tests = of_package(folder, "tests/");
        let archived = sources.iter().filter(|file| {
            file.path.starts_with(&format!("{folder}/"))
                && !(has_no_tests && file.path.starts_with(&tests))
        });
        for file in archived {
            for literal in upward(&file.text).filter(|literal| leads_out(folder, file, literal)) {
                let path = &file.path;
                faults.push(format!(
                    "{path}: {literal} is not in the archive of {folder}"
                ));
            }
        }
    }
    none(&faults);
}

/// The links of the repository that are not in generated folders.
fn links() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in packages() {
        let mut folders = vec![top().join(&folder)];
        while let Some(inner) = folders.pop() {
            for entry in std::fs::read_dir(&inner).expect("a folder of the repository") {
                let entry = entry.expect("an entry");
                let kind = entry.file_type().expect("the kind of the entry");
                // The packages below the top have their own turn.
                if kind.is_dir() && !folder.is_empty() {
                    folders.push(entry.path());
                } else if kind.is_symlink() {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

#[test]
fn links_lead_to_the_repository() {
    let top = std::fs::canonicalize(top()).expect("the top");
    let found = links();
    assert!(found.len() > 2 * UNPUBLISHED.len(), "no links");
    let mut faults = Vec::new();
    for link in found {
        let target = std::fs::read_link(&link).expect("a link");
        let leads_in = std::fs::canonicalize(&link).is_ok_and(|end| end.starts_with(&top));
        if target.is_absolute() || !leads_in {
            let link = link.display();
            faults.push(format!("{link}: leads to {}", target.display()));
        }
    }
    none(&faults);
}

#[test]
fn faults_of_metadata_are_found() {
    let manifest = "[package]\nname = \"a\"\nversion.workspace = true\nkeywords = [\"a b\"]\n\
                    [lib]\ndescription = \"no\"\n";
    let faults = metadata_faults("unwind", manifest).join("\n");
    for fault in ["no description", "refuses the keyword a b", "no categories"] {
        assert!(faults.contains(fault), "{fault}: {faults}");
    }
    assert!(!faults.contains("no version"), "{faults}");
    assert!(metadata_faults("fuzz", manifest)[0].contains("no description"));
    assert!(
        metadata_faults("fuzz", manifest)
            .join("\n")
            .contains("publish")
    );
}

#[test]
fn paths_that_lead_out_are_found() {
    let text = "include_str!(\"../../corpus/a\") join(\"/../b\") \"c\"".to_owned();
    assert_eq!(
        upward(&text).collect::<Vec<_>>(),
        ["../../corpus/a", "../b"]
    );
    let path = "crates/judge/src/lib.rs".to_owned();
    let file = File { path, text };
    assert!(leads_out("crates/judge", &file, "../../../corpus"));
    assert!(leads_out("crates/judge", &file, "../../docs/verify.md"));
    assert!(!leads_out("crates/judge", &file, "../Cargo.toml"));
    assert!(!leads_out("crates/judge", &file, "../no/such/file"));
}

/// Whether an attribute leaves the module below it out where there is no checkout.
fn is_of_checkout(line: &str) -> bool {
    ["#[cfg(checkout)]", "#[cfg(all(checkout, unix))]"].contains(&line)
}

/// The suite compiles in the archive, too, which has no such folder.
#[test]
fn the_suite_does_without_what_the_archive_leaves_out() {
    let manifest = text("Cargo.toml").expect("a manifest is text");
    let (_, left_out) = manifest.split_once("\nexclude = [\n").expect("a list");
    let (left_out, _) = left_out.split_once(']').expect("an end");
    let suite = text("tests/main.rs").expect("the suite");
    let lines: Vec<&str> = suite.lines().collect();
    let mut found = Vec::new();
    for name in left_out
        .split('"')
        .filter_map(|word| word.strip_prefix("/tests/"))
    {
        let wanted = format!("mod {name};");
        let at = lines.iter().position(|line| *line == wanted);
        if at.is_some_and(|at| at == 0 || !is_of_checkout(lines[at - 1])) {
            found.push(format!("tests/main.rs: `{wanted}` is for all builds"));
        }
    }
    none(&found);
}
