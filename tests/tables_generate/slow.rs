//! Whole kernels and programs. The debug build takes every fiftieth module and the smallest programs:
//! the release build takes all.

use super::{against, open, same};
use crate::common::skip::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::generate::Boundaries;
use unwind_sim_tables::generate::compare::{Class, Comparison};

/// One module in so many is compared.
const EVERY: usize = if cfg!(debug_assertions) { 50 } else { 1 };
const PROGRAMS: &[&str] = if cfg!(debug_assertions) {
    &["grep", "make", "sed"]
} else {
    &[
        "bash", "find", "git", "grep", "ls", "make", "openssl", "perl", "python3", "sed", "ssh",
        "tar",
    ]
};

/// The modules in `folder`, and linked kernels with symbols.
fn files(folder: &Path, modules: &mut Vec<PathBuf>, kernels: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            files(&path, modules, kernels);
        } else if path.extension().is_some_and(|e| e == "ko") {
            modules.push(path);
        } else if name.starts_with("vmlinux") {
            kernels.push(path);
        }
    }
}

fn is_slow_wanted() -> bool {
    std::env::var_os("UNWIND_SIM_SLOW").is_some()
}

/// The sum of several comparisons.
#[derive(Default)]
struct ComparisonSum(Comparison);

impl ComparisonSum {
    fn add(&mut self, name: &str, found: &Comparison) {
        println!("{name}: {} of {}", same(found), found.total());
        let sum: &mut BTreeMap<Class, u64> = &mut self.0.addresses;
        for (class, count) in &found.addresses {
            *sum.entry(*class).or_default() += count;
        }
    }

    /// The number of addresses, and the share that is the same.
    fn told(&self, what: &str, since: Instant) -> (u64, f64) {
        for (class, count) in &self.0.addresses {
            println!("  {}: {count}", class.as_str());
        }
        let (total, share) = (self.0.total(), self.0.share());
        let seconds = since.elapsed().as_secs_f64();
        println!(
            "{what}: {total} addresses, {:.4} %, {seconds:.1} s",
            100.0 * share
        );
        (total, share)
    }
}

/// The encoding of a kernel's ORC: 6.1 has no header with a hash.
fn orc_of(path: &Path) -> Target {
    let has_header = open(path).section_range(".orc_header").is_some();
    let target = if has_header { "orc:6.4" } else { "orc:5.12" };
    Target::from_name(target).expect("a format")
}

#[test]
fn generated_rows_of_kernel_modules_are_objtools() {
    let folder = std::env::var_os("UNWIND_SIM_KERNELS").filter(|_| is_slow_wanted());
    let Some(folder) = folder else {
        return skip(
            "generated_rows_of_kernel_modules_are_objtools",
            "slow; set UNWIND_SIM_SLOW=1 and UNWIND_SIM_KERNELS",
        );
    };
    let since = Instant::now();
    let (mut modules, mut kernels) = (Vec::new(), Vec::new());
    files(Path::new(&folder), &mut modules, &mut kernels);
    modules.sort();
    let mut sum = ComparisonSum::default();
    for path in modules.iter().step_by(EVERY) {
        if let Some(found) = against(path, Boundaries::Symbols, orc_of(path)) {
            sum.add(&path.display().to_string(), &found);
        }
    }
    let (total, share) = sum.told("modules", since);
    assert!(total > 0, "the folder has modules (.ko, unpacked)");
    assert!(share >= 0.9999, "{share}");
}

#[test]
fn generated_rows_of_linked_kernels_are_objtools() {
    const NAME: &str = "generated_rows_of_linked_kernels_are_objtools";
    let folder = std::env::var_os("UNWIND_SIM_KERNELS").filter(|_| is_slow_wanted());
    let Some(folder) = folder.filter(|_| !cfg!(debug_assertions)) else {
        return skip(
            NAME,
            "slow; set UNWIND_SIM_SLOW=1 and UNWIND_SIM_KERNELS, in the release build",
        );
    };

    let (mut modules, mut kernels) = (Vec::new(), Vec::new());
    files(Path::new(&folder), &mut modules, &mut kernels);
    let mut compared = 0;
    for path in &kernels {
        let since = Instant::now();
        let mut sum = ComparisonSum::default();

        // Without symbols there are no boundaries of functions.
        if open(path).image().symbols().is_empty() {
            continue;
        }

        // objtool's rows of the whole kernel are in its ORC sections.
        if let Some(found) = against(path, Boundaries::Symbols, orc_of(path)) {
            sum.add(&path.display().to_string(), &found);
            let (total, share) = sum.told("kernel", since);
            let hints = found.count(Class::NeedsHint) as f64 / total as f64;
            assert!(share >= 0.999, "{}: {share}", path.display());
            assert!(hints <= 0.01, "{}: {hints}", path.display());
            compared += 1;
        }
    }

    // A folder without such kernels is a skip, which is counted, not a success.
    if compared == 0 {
        skip(NAME, "no vmlinux with symbols in UNWIND_SIM_KERNELS");
    }
}

#[test]
fn generated_rows_of_programs_are_those_of_gcc() {
    if !is_slow_wanted() {
        return skip(
            "generated_rows_of_programs_are_those_of_gcc",
            "slow; set UNWIND_SIM_SLOW=1",
        );
    }
    let since = Instant::now();
    let mut sum = ComparisonSum::default();
    for program in PROGRAMS {
        let path = Path::new("/usr/bin").join(program);
        if !path.exists() {
            continue;
        }
        let found = against(&path, Boundaries::Table, Target::EhFrame);
        sum.add(program, &found.expect("it has .eh_frame"));
    }
    let (total, share) = sum.told("programs", since);
    if total > 0 {
        assert!(share >= 0.995, "{share}");
    }
}
