//! Kernel modules: one made by hand, and those of a folder.

use crate::proof::build::{Scratch, compile, open};
use crate::proof::expect::of;
use crate::proof::fixtures::faults_of;
use crate::skip::skip;
use std::path::{Path, PathBuf};
use unwind_sim_tables::check::{Options, check};

/// The fewest functions that the module made by hand has.
const FUNCTIONS_MIN: usize = 24;
/// The lowest share of a kernel's functions that must be proven, percent.
const PROVEN_MIN: f64 = 99.9;
/// The highest share of functions that may be contradicted, percent: code that runs a guest keeps
/// the guest's rbp, with rows that need the host's.
const CONTRADICTED_MAX: f64 = 0.02;

#[test]
fn every_function_of_a_module_has_its_verdict() {
    let scratch = Scratch::new("module");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof/objects/module.s");
    let output = scratch.path("module.ko");
    compile("cc", &["-c", &source.display().to_string()], &output)
        .unwrap_or_else(|error| panic!("{error}"));
    let (_, file) = open(&output);
    let image = file.image().clone();
    let symbols = image.symbols().iter();
    let symbols: Vec<(&str, u64)> = symbols.map(|s| (s.name.as_str(), s.address)).collect();
    let expectations = of(&symbols);
    let (faults, _) = faults_of(&file, &expectations);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let count = expectations.functions.len();
    assert!(count >= FUNCTIONS_MIN, "only {count} functions");
}

fn modules(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => modules(&path, out),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|e| e == "ko") => {
                out.push(path);
            }
            _ => {}
        }
    }
}

#[test]
fn kernel_modules_are_proven() {
    let is_wanted = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let folder = std::env::var_os("UNWIND_SIM_KERNELS").filter(|_| is_wanted);
    let Some(folder) = folder else {
        return skip(
            "kernel_modules_are_proven",
            "slow; set UNWIND_SIM_SLOW=1 and UNWIND_SIM_KERNELS",
        );
    };

    let mut paths = Vec::new();
    modules(Path::new(&folder), &mut paths);
    paths.sort();

    let (mut all, mut proven, mut contradicted) = (0, 0, 0);
    for path in &paths {
        let (_, file) = open(path);
        let totals = check(&file, &Options::default()).totals();
        if totals.all.functions != totals.proven.functions {
            println!(
                "{}: {} contradicted, {} unproven",
                path.display(),
                totals.contradicted.functions,
                totals.unproven.functions
            );
        }
        all += totals.all.functions;
        proven += totals.proven.functions;
        contradicted += totals.contradicted.functions;
    }

    let percent = |count: u64| 100.0 * count as f64 / all.max(1) as f64;
    println!(
        "{} modules, {all} functions: {proven} proven, {contradicted} contradicted",
        paths.len()
    );
    assert!(all > 0, "the folder has modules (.ko, unpacked)");
    assert!(percent(proven) >= PROVEN_MIN);
    assert!(percent(contradicted) <= CONTRADICTED_MAX);
}
