//! Runs every target on its saved inputs, and on mutated copies of them.
//!
//! The mutations come from a fixed seed: a failure names the run, and can be reproduced.

use crate::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use unwind_sim_recordings::file_kind::FileKind;

/// Number of mutated inputs for each target, unless the variable overrides it.
const RUNS: u64 = 500;
const RUNS_VARIABLE: &str = "UNWIND_SIM_FUZZ_RUNS";
/// Maximum total bytes of all saved inputs, since everyone who clones the repository gets them.
const SAVED_BYTES_MAX: u64 = 2_000_000;
/// Maximum number of changes to one input.
const CHANGES_MAX: u64 = 8;

/// A byte that tends to be interesting: a limit, a single bit, or arbitrary.
fn byte(random: &mut Random) -> u8 {
    match random.below(4) {
        0 => random.pick(&[0, 0xff, 0x7f, 0x80]),
        1 => 1 << random.below(8),
        _ => random.below(256) as u8,
    }
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below_u64(CHANGES_MAX) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), byte(random)),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => {
                let from = random.below(other.len());
                let len = random.below(64);
                let part = &other[from..(from + len).min(other.len())];
                let end = (at + part.len()).min(bytes.len());
                bytes.splice(at.min(end)..end, part.iter().copied());
            }
            _ => {
                let byte = byte(random);
                bytes.get_mut(at).into_iter().for_each(|old| *old = byte);
            }
        }
    }
}

fn saved(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let entries = std::fs::read_dir(&folder).expect("the target's corpus");
    let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a saved input");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

fn run(name: &str, target: fn(&[u8])) {
    let saved = saved(name);
    assert!(!saved.is_empty(), "nothing is saved for {name}");
    for (path, bytes) in &saved {
        println!("{}", path.display());
        target(bytes);
    }
    target(&[]);
    let runs = std::env::var(RUNS_VARIABLE).map_or(RUNS, |n| n.parse().expect("a number"));
    for run in 0..runs {
        let mut random = Random::new(run);
        let [(_, bytes), (_, other)] = [(); 2].map(|()| &saved[random.below(saved.len())]);
        let mut bytes = bytes.clone();
        change(&mut bytes, other, &mut random);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&bytes))) {
            let path = std::env::temp_dir().join(format!("unwind-sim-fuzz-{name}-{run}"));
            std::fs::write(&path, &bytes).expect("the failing input is kept");
            println!("run {run} failed; its input is {}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

macro_rules! targets {
    ($($target:ident)*) => {
        $(#[test] fn $target() { run(stringify!($target), crate::$target); })*

        /// Whatever is imported comes from elsewhere: its bytes are hostile.
        #[test]
        fn every_kind_that_is_imported_has_a_target() {
            let names = [$(stringify!($target)),*];
            for kind in FileKind::ALL {
                let Some(name) = kind.engine() else { continue };
                let target = name.replace('.', "").replace('-', "_");
                assert!(names.contains(&target.as_str()), "{kind:?} has no target {target}");
            }
        }

        #[test]
        fn saved_inputs_are_small() {
            let names = [$(stringify!($target)),*];
            let sizes = names.iter().flat_map(|name| saved(name)).map(|(_, bytes)| bytes.len() as u64);
            let size: u64 = sizes.sum();
            assert!(size <= SAVED_BYTES_MAX, "{size} bytes; keep the smallest that reach the same code");
        }

        #[test]
        fn every_target_is_declared_and_tested() {
            let mut tested = vec![$(stringify!($target)),*];
            // It takes a process for itself: tests/command_line.rs.
            tested.push("command_line");
            tested.sort_unstable();
            let manifest = include_str!("../Cargo.toml");
            let bins = manifest.split("[[bin]]").skip(1);
            let names = bins.filter_map(|bin| bin.trim().strip_prefix("name = \"")?.split('"').next());
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            assert_eq!(tested, names);
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
            let folders = std::fs::read_dir(folder).expect("the corpora").flatten();
            let folders = folders.filter(|entry| entry.path().is_dir());
            let mut folders: Vec<_> = folders.map(|entry| entry.file_name()).collect();
            folders.sort_unstable();
            assert_eq!(folders, tested, "a folder for each target, and no other");
        }
    };
}

targets! { eh_frame expression sframe orc trace perfdata elf core vmcore case walk loader machine kernel_image capture stitch bpf_object scenario convert check generate syscalls system jitdump perf_map gdb_jit gdb_packet dap_message }
