//! Says whether this is a checkout, which has tests that the published package has not. Packs
//! `corpus/cases` for `src/command/carried.rs`, so that an installed program has the cases.

use miniz_oxide::deflate::compress_to_vec;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "corpus/cases";
/// What the published package leaves out.
const CHECKOUT: &str = "tests/docs_commands";
/// As small as it gets.
const LEVEL: u8 = 10;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(checkout)");
    if Path::new(CHECKOUT).exists() {
        println!("cargo::rustc-cfg=checkout");
    }
    if env::var_os("CARGO_FEATURE_MACHINE").is_none() {
        return;
    }
    // A checkout does not use what is packed here. So editing a case compiles nothing in a debug
    // build, which may carry older cases; a release build carries those of the checkout.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rerun-if-changed={FOLDER}");
    }

    let top = Path::new(FOLDER);
    let mut paths = Vec::new();
    files(top, &mut paths);
    paths.sort();

    // PATH NUL TEXT NUL, for each file.
    let mut packed = Vec::new();
    for path in paths {
        let name = path.strip_prefix(top).expect("a file below the folder");
        let text = fs::read(&path).expect("a file of the corpus");
        for part in [name.as_os_str().as_encoded_bytes(), &text] {
            assert!(!part.contains(&0), "{} has a NUL", path.display());
            packed.extend_from_slice(part);
            packed.push(0);
        }
    }
    let out = env::var_os("OUT_DIR").expect("Cargo sets it");
    let out = Path::new(&out).join("cases.deflate");
    fs::write(out, compress_to_vec(&packed, LEVEL)).expect("the output folder can be written");
}

/// Adds all files below `folder` to `found`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the corpus") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}
