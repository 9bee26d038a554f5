//! Functions written by hand, each with the verdict that is right for it.

use crate::proof::build::{Scratch, compile, open};
use crate::proof::expect::{Expectations, found, gaps, read};
use crate::skip::skip;
use std::path::{Path, PathBuf};
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::program::Entry;
use unwind_sim_tables::proof::verdict::{Doubt, Verdict};

/// Functions about which the checker is wrong today, with the reason. One that it gets right must
/// be removed from here.
const KNOWN: &[(&str, &str)] = &[
    (
        "bad_alloca_without_frame_pointer",
        "an unknown distance is never a contradiction",
    ),
    (
        "bad_callee_changes",
        "a callee of the same file that changes registers only withdraws proofs",
    ),
    (
        "bad_slot_by_rsp_in_alloca",
        "behind an alloca, slots reached from rsp are at unknown distances",
    ),
    (
        "bad_swapcontext",
        "what is loaded from memory that is not followed may be a register saved there",
    ),
    ("good_push_of_rsp", "loads above an aligned rsp"),
    (
        "good_retpoline",
        "a call into its own function passes for a function",
    ),
    (
        "good_saved_in_callers_memory",
        "what is loaded from memory that is not followed is not known",
    ),
    (
        "good_saved_in_vector_register",
        "what is moved from vector registers is not known",
    ),
    (
        "open_signal_frame",
        "signal trampolines are not followed, so their code is unreached",
    ),
];

/// How the names of functions with an expected verdict begin.
const VERDICTS: [&str; 3] = ["good_", "bad_", "open_"];

/// The fewest functions that the fixtures have.
const FUNCTIONS_MIN: usize = 120;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof/fixtures")
}

/// The fixtures' names, without ending.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the folder of the fixtures");
    let files = files.map(|file| file.expect("an entry").path());
    let name = |path: PathBuf| path.file_stem().map(|n| n.to_string_lossy().into_owned());
    let mut names: Vec<String> = files.filter_map(name).filter(|n| n != "common").collect();
    names.sort();
    names
}

/// Links a fixture. Its line `# cc:` has the compiler's options.
pub(crate) fn link(scratch: &Scratch, name: &str, more: &[&str]) -> Result<PathBuf, String> {
    let source = folder().join(format!("{name}.s"));
    let text = std::fs::read_to_string(&source).expect("the fixture is text");
    let options = text.lines().find_map(|line| line.strip_prefix("# cc: "));
    let options = options.unwrap_or("-shared").split(' ');
    let (source, common) = (source.display().to_string(), folder().join("common.s"));
    let common = common.display().to_string();
    let mut args: Vec<&str> = vec!["-nostdlib"];
    args.extend(options);
    args.extend(more);
    args.extend([source.as_str(), common.as_str()]);
    let output = scratch.path(name);
    compile("cc", &args, &output)?;
    Ok(output)
}

/// Checks one fixture; returns what is not as it should be, and how many functions there were.
fn faults(path: &Path) -> (Vec<String>, usize) {
    let (bytes, file) = open(path);

    let expectations = read(&bytes);
    let (mut faults, report) = faults_of(&file, &expectations);
    // What stands behind the wrong directive is in no section with code.
    let source = folder()
        .join(path.file_name().expect("a name"))
        .with_extension("s");
    let source = std::fs::read_to_string(source).expect("the fixture is text");

    let types = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".type "));
    for name in types.filter_map(|line| line.strip_suffix(", @function")) {
        let has_verdict = VERDICTS.iter().any(|verdict| name.starts_with(verdict));
        let is_made = name.contains('\\');
        if has_verdict && !is_made && !expectations.functions.values().any(|known| known.0 == name)
        {
            faults.push(format!("{name}: not in the file's code"));
        }
    }

    let found = gaps(&report);
    if found != expectations.gaps {
        faults.push(format!(
            "gaps:\n  right {:x?}\n  found {found:x?}",
            expectations.gaps
        ));
    }
    (faults, expectations.functions.len())
}

/// Checks a file; returns the functions whose verdict is not as it should be, and the report.
pub(crate) fn faults_of(file: &File, expectations: &Expectations) -> (Vec<String>, Report) {
    let report = check(file, &Options::default());
    let mut faults = Vec::new();

    for (address, (name, expected)) in &expectations.functions {
        let known = KNOWN.iter().find(|known| known.0 == name);
        let checked = report.functions.iter().find(|c| c.range.start == *address);
        let Some(checked) = checked else {
            faults.push(format!("{name}: not checked"));
            continue;
        };

        let found = found(checked, expected);
        match (found == *expected, known) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(_)) => faults.push(format!("{name}: right now; take it out of KNOWN")),
            (false, None) => {
                faults.push(format!("{name}:\n  right {expected:?}\n  found {found:?}"));
            }
        }
    }

    let stranger = |checked: &&unwind_sim_tables::check::Checked| {
        let expected = expectations.functions.contains_key(&checked.range.start);
        !expected && checked.verdict.verdict() == Verdict::Contradicted
    };
    for checked in report.functions.iter().filter(stranger) {
        faults.push(format!("{:#x}: {:?}", checked.range.start, checked.verdict));
    }
    (faults, report)
}

#[test]
fn every_fixture_has_its_verdict_at_its_instruction() {
    let scratch = Scratch::new("fixtures");
    let (mut all, mut count) = (Vec::new(), 0);
    for name in names() {
        let path = link(&scratch, &name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (faults, functions) = faults(&path);
        all.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
        count += functions;
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    assert!(count >= FUNCTIONS_MIN, "only {count} functions");
}

#[test]
fn packed_relocations_and_those_of_objects_are_read() {
    let scratch = Scratch::new("packed");
    for (what, options) in [
        ("object", &["-r", "-no-pie"][..]),
        ("packed", &["-Wl,-z,pack-relative-relocs"]),
    ] {
        let path = match link(&scratch, "switches", options) {
            Ok(path) => path,
            // GNU ld before 2.38 does not know of packed relocations, and warns.
            Err(error) => {
                skip("packed_relocations_and_those_of_objects_are_read", &error);
                continue;
            }
        };

        let (bytes, file) = open(&path);
        let goto = read(&bytes).functions.into_iter();
        let goto = goto.filter(|(_, (name, _))| name.ends_with("_goto"));
        let report = check(&file, &Options::default());

        let mut count = 0;
        for (_, (name, _)) in goto {
            let named = |c: &&unwind_sim_tables::check::Checked| {
                file.names_at(c.range.start).any(|n| n == name)
            };
            let checked = report.functions.iter().find(named).expect("checked");
            let unreached = |d: &(Doubt, u64)| d.0 == Doubt::Unreached;
            assert!(
                !checked.verdict.doubts.iter().any(unreached),
                "{what}: {name}"
            );
            count += 1;
        }
        assert!(count >= 3, "{what}: {count}");
    }
}

#[test]
fn stubs_of_the_systems_linker_are_proven() {
    let scratch = Scratch::new("plt");

    for options in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["-Wl,-z,now", "-Wl,-z,ibtplt"],
    ] {
        let path = link(&scratch, "plt", options).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        let (_, file) = open(&path);
        let report = check(&file, &Options::default());
        let stubs = report.functions.iter().filter(|f| f.entry == Entry::Plt);
        assert!(stubs.clone().count() > 0, "{options:?}: no stubs");
        for stub in stubs {
            let verdict = &stub.verdict;
            assert_eq!(verdict.contradictions, [], "{options:?}");
            // Known: the second halves of lazy stubs, to which only the table of addresses leads,
            // are not followed; and the jump to the dynamic linker, with two words pushed, passes
            // for one that could go anywhere.
            let known = [Doubt::Unreached, Doubt::IndirectJump];
            let only_known = verdict.doubts.iter().all(|d| known.contains(&d.0));
            assert!(only_known, "{options:?}: {stub:#x?}");
        }
    }
}
