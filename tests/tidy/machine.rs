//! No recording, and no other binary file of the repository, tells of the machine on which it was
//! made: no environment, no folder of a person, no host name.
//!
//! All layers of a file are read: the blocks of traces and the memory of their samples, compressed
//! records of perf.data, `.zst` and `.gz`. Text files are not read here.

use crate::none;
use crate::repository::{paths, text, top};
use std::collections::BTreeSet;
use std::io::Read;
use unwind_sim_perf_data::{PerfFile, feature, record_type};
use unwind_sim_recordings::model::Item;
use unwind_sim_recordings::trace::{MAGIC as TRACE, Trace};

/// Starts of the variables of an environment.
const VARIABLES: [&str; 20] = [
    "CARGO_",
    "CONTAINER_",
    "DBUS_",
    "DEBIAN_FRONTEND=",
    "HOME=",
    "HOSTNAME=",
    "LANG=",
    "LOGNAME=",
    "LS_COLORS=",
    "MAIL=",
    "PATH=",
    "PWD=",
    "RUSTUP_",
    "SHELL=",
    "SHLVL=",
    "SSH_",
    "SUDO_",
    "TERM=",
    "USER=",
    "XDG_",
];

/// Folders that are a person's or a machine's own, behind the first slash of their paths.
const FOLDERS: [&str; 9] = [
    "Users/",
    "home/",
    "mnt/",
    "root/",
    "root:",
    "tmp/",
    "var/tmp/",
    "work/",
    "workspace",
];

/// Texts with such a folder that tell nothing, and what they are.
const ALLOWED: [(&str, &str); 5] = [
    ("root/deep", "a program in a virtual machine's initramfs"),
    ("root/tchain_fp", "another one"),
    (
        "tmp/perf-PID.map",
        "perf's name for a map of compiled code, in the source line of a case",
    ),
    (
        "tmp/unwind-sim-case-",
        "where a case is built; six random letters follow",
    ),
    (
        "tmp/unwind-sim-threads",
        "where corpus/cores/make-from-gdb.py builds its program",
    ),
];

/// Host names of virtual machines that perf.data files may state.
const HOSTS: [&str; 5] = ["(none)", "model", "recorder", "vm", "x"];

/// Where capitals before a `=` are not a variable, but a key of a made-up VMCOREINFO note.
const VMCORES: &str = "fuzz/corpus/vmcore/";

/// The shortest text that is looked at: an address or an opcode may look like a shorter one.
const TEXT_MIN: usize = 6;
/// The shortest name of a variable that is known by its capitals alone.
const NAME_MIN: usize = 4;
/// The most bytes that one layer is unpacked to.
const UNPACKED_MAX: u64 = 64 << 20;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZIP: [u8; 4] = *b"PK\x03\x04";

/// Size of a trace's file header, and of a block's header.
const TRACE_HEADER: usize = 16;
const BLOCK_HEADER: usize = 24;

/// Unpacks as much of `bytes` as is valid: inputs of fuzz targets are damaged.
fn unpacked(mut reader: impl Read) -> Vec<u8> {
    let mut out = Vec::new();
    let mut piece = [0; 1 << 12];
    while let Ok(len @ 1..) = reader.read(&mut piece) {
        out.extend_from_slice(&piece[..len]);
        assert!((out.len() as u64) < UNPACKED_MAX, "a layer is too large");
    }
    out
}

fn from_zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::read::Decoder::with_buffer(bytes).map_or_else(|_| Vec::new(), unpacked)
}

/// All that is in a file: its bytes, and those of its layers, each with its name.
fn layers(bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let mut inner = Vec::new();
    if bytes.starts_with(&TRACE) {
        inner.extend(blocks(&bytes));
        inner.extend(memory(&bytes));
    } else if bytes.starts_with(b"PERFILE2") {
        inner.push(("records".to_owned(), records(&bytes)));
    } else if bytes.starts_with(&GZIP) {
        let plain = unpacked(flate2::read::GzDecoder::new(bytes.as_slice()));
        inner.extend(layers(plain));
    } else {
        // Also in the middle of a file, such as an input of a fuzz target.
        for at in memchr::memmem::find_iter(&bytes, &ZSTD) {
            inner.push((format!("zstd at {at}"), from_zstd(&bytes[at..])));
        }
    }
    inner.insert(0, ("as it is".to_owned(), bytes));
    inner
}

/// The compressed blocks of a trace, whatever their checksums.
fn blocks(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = TRACE_HEADER;
    while let Some(header) = bytes.get(at..at + BLOCK_HEADER) {
        let len = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        let start = at + BLOCK_HEADER;
        let end = start.saturating_add(len).min(bytes.len());
        if header[2] & 1 != 0 {
            found.push((format!("block at {at}"), from_zstd(&bytes[start..end])));
        }
        at = end.next_multiple_of(8);
    }
    found
}

/// The memory of a trace's samples. In a block, only what differs from the sample before is stored,
/// so a text may be in pieces there.
fn memory(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Ok(trace) = Trace::from_bytes(bytes.to_vec()) else {
        return Vec::new();
    };
    let mut regions = BTreeSet::new();
    for item in trace.items().map_while(Result::ok) {
        if let Item::Sample(sample) = item {
            regions.extend(sample.regions.into_iter().map(|r| r.bytes.into_owned()));
        }
    }
    let named = |bytes| ("memory of a sample".to_owned(), bytes);
    regions.into_iter().map(named).collect()
}

/// The compressed records of a perf.data, which are one stream.
fn records(bytes: &[u8]) -> Vec<u8> {
    let Ok(file) = PerfFile::parse(bytes) else {
        return Vec::new();
    };
    let mut stream = Vec::new();
    for record in file.records().map_while(Result::ok) {
        match record.kind {
            record_type::COMPRESSED => stream.extend_from_slice(record.body),
            // A size comes first.
            record_type::COMPRESSED2 => {
                stream.extend_from_slice(record.body.get(8..).unwrap_or(&[]))
            }
            _ => {}
        }
    }
    from_zstd(&stream)
}

/// The printable texts in `bytes`.
fn texts(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let runs = bytes.split(|byte| !matches!(byte, b' '..=b'~'));
    let long = runs.filter(|run| run.len() >= TEXT_MIN);
    long.map(|run| std::str::from_utf8(run).expect("ASCII"))
}

/// Whether a text starts with the name of a variable.
fn sets_a_variable(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (NAME_MIN..text.len()).contains(&name.len()) && name.chars().all(is_name)
}

/// The start of a variable, or the folder, in a text.
fn telling(text: &str) -> Option<&'static str> {
    if let Some(variable) = VARIABLES.iter().find(|variable| text.contains(**variable)) {
        return Some(variable);
    }
    FOLDERS.into_iter().find(|folder| {
        let below = text.match_indices('/').map(|(at, _)| &text[at + 1..]);
        let mut told = below.filter(|path| path.starts_with(folder));
        // A text may be cut.
        let is = |path: &str, known: &str| path.starts_with(known) || known.starts_with(path);
        told.any(|path| path.len() > folder.len() && !ALLOWED.iter().any(|(k, _)| is(path, k)))
    })
}

#[test]
fn no_recording_tells_of_a_machine() {
    let mut faults = Vec::new();
    let mut looked = 0;
    for path in paths() {
        // Texts are read by people, and by another test.
        if text(&path).is_some() {
            continue;
        }
        looked += 1;
        let bytes = std::fs::read(top().join(&path)).expect("a file of the repository");
        if bytes.starts_with(&ZIP) {
            faults.push(format!("{path}: a zip file, which this test cannot read"));
        }

        // Compressed parts are unpacked, since what is in them is public, too.
        for (layer, bytes) in layers(bytes) {
            // Memory dumps have the kernel's own texts of this form.
            let by_capitals = |text: &&str| !path.starts_with(VMCORES) && sets_a_variable(text);
            let is_told = |text: &&str| telling(text).is_some() || by_capitals(text);
            let found: BTreeSet<_> = texts(&bytes).filter(is_told).collect();
            faults.extend(
                found
                    .iter()
                    .map(|text| format!("{path}: {layer}: `{text}`")),
            );
        }
    }

    // Otherwise the list of files is wrong.
    assert!(looked > 1000, "{looked} files are not text");
    none(&faults);
}

#[test]
fn no_perf_data_names_its_host() {
    let mut faults = Vec::new();
    for path in paths() {
        let bytes = std::fs::read(top().join(&path)).expect("a file of the repository");
        if !path.starts_with("corpus/") || !bytes.starts_with(b"PERFILE2") {
            continue;
        }
        let file = PerfFile::parse(&bytes).expect("a perf.data");
        let host = file.features().string(feature::HOSTNAME).expect("a name");
        let host = String::from_utf8_lossy(host.unwrap_or(b"vm"));
        if !HOSTS.contains(&&*host) {
            faults.push(format!("{path}: recorded on `{host}`"));
        }
    }
    none(&faults);
}

#[test]
fn what_tells_of_a_machine_is_found() {
    for told in [
        "HOME=/x",
        "x PATH=/bin",
        "a/home/me",
        "/root:/bin",
        "/tmp/me",
        "/workspaces/me",
    ] {
        assert!(telling(told).is_some(), "{told}");
    }
    for nothing in ["a == b", "/usr/bin/perf", "/tmp/", "/workspace"] {
        assert_eq!(telling(nothing), None, "{nothing}");
    }

    // All that is allowed may be cut; what stands behind it may not be told.
    for (allowed, _) in ALLOWED {
        let path = format!("/{allowed}");
        assert_eq!(telling(&path), None, "{path}");
        assert_eq!(telling(&path[..path.len() - 1]), None, "{path}");
        let folder = FOLDERS.iter().find(|folder| allowed.starts_with(**folder));
        let behind = format!("{path}:/{}me", folder.expect("a folder"));
        assert!(telling(&behind).is_some(), "{behind}");
    }

    // Names of variables of the environment are upper case by convention; lower case is other text.
    assert!(sets_a_variable("AWS_CA_BUNDLE=/etc/ssl") && sets_a_variable("TERM="));
    assert!(!sets_a_variable("ABC=1") && !sets_a_variable("path=1") && !sets_a_variable("PATH"));

    // Compressed, in the middle of a file.
    let packed = zstd::encode_all(&b"\0HOME=/x\0"[..], 0).expect("packed");
    let found = layers([b"fuzz".to_vec(), packed].concat());
    assert_eq!(found[1].1, b"\0HOME=/x\0");
}
