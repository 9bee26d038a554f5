//! What a program leaves on the host, where it may write, is what it leaves when it runs here: the
//! same names, with the same kinds, modes, owners and contents.

use super::calls::is_privileged;
use super::{INSTRUCTIONS_MAX, build, native, options, start};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};

/// The names below a folder, and what they are.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(path) = todo.pop() {
        for entry in std::fs::read_dir(&path).expect("a folder") {
            let path = entry.expect("an entry").path();

            // Of a link itself, not of what it leads to, which may be outside.
            let metadata = std::fs::symlink_metadata(&path).expect("it is there");
            let kind = metadata.file_type();
            let content = if kind.is_dir() {
                todo.push(path.clone());
                "folder".to_owned()
            } else if kind.is_symlink() {
                format!("link {:?}", std::fs::read_link(&path).ok())
            } else if kind.is_file() {
                format!("file {:?}", std::fs::read(&path).ok())
            } else if kind.is_fifo() {
                "FIFO".to_owned()
            } else if kind.is_socket() {
                "socket".to_owned()
            } else {
                "other".to_owned()
            };

            // No times, which differ from run to run.
            let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
            let name = path.strip_prefix(folder).expect("below");
            let text = format!("{mode:o} {uid}:{gid} {} {content}", metadata.nlink());
            all.insert(name.display().to_string(), text);
        }
    }

    all
}

fn compare(name: &str) {
    // Files on the host get what this process's umask leaves, too.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));

    let directory = tempfile::tempdir().expect("a directory");
    let program = build(&format!("calls/{name}"), directory.path());
    let places = ["ours", "theirs"].map(|place| directory.path().join(place));
    let [ours, theirs] = &places;
    places
        .iter()
        .for_each(|place| std::fs::create_dir(place).expect("a directory"));
    let arguments: &[&str] = if is_privileged() {
        &["privileged"]
    } else {
        &[]
    };

    let options = ProcessOptions {
        allow_write: true,
        ..options(&program, arguments, ours)
    };

    let mut process = start(&program, options);
    let outcome = process.run(INSTRUCTIONS_MAX, &mut ());
    assert_eq!(outcome, Outcome::Exited(0), "{name}");
    assert_eq!(process.notices(), &[], "{name}");
    let said = String::from_utf8_lossy(process.stdout()).into_owned();

    let native = native(&program, arguments, theirs);
    let expected = String::from_utf8_lossy(&native.stdout);
    // The first different line says more than two whole texts.
    for (ours, theirs) in said.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs, "{name}");
    }
    assert_eq!(said, expected, "{name}");

    let (ours, theirs) = (tree(ours), tree(theirs));
    assert!(!theirs.is_empty(), "{name} leaves nothing");
    assert_eq!(ours, theirs, "{name}");
}

#[test]
fn fifos_are_left_as_on_linux() {
    compare("fifos");
}

#[test]
fn sockets_are_left_as_on_linux() {
    compare("sockets");
}

/// A descriptor runs what it has open, whatever its name leads to now.
#[test]
fn programs_that_were_replaced_run_as_on_linux() {
    compare("replaced");
}
