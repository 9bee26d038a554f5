//! Compares `perf script` with perf's own text, byte for byte.
//!
//! `corpus/perfdata/script/NAME.merged.txt.gz` and `NAME.nomerge.txt.gz` are the output of `perf
//! script --no-inline` of perf 7.2, the second with `--no-merge-callchains`.

use flate2::read::GzDecoder;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_view::perf::script::{Mode, Options, script};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/perfdata")
        .join(name)
}

fn printed(name: &str, join: Option<Mode>) -> String {
    printed_as(
        name,
        Options {
            join,
            ..Options::default()
        },
    )
}

fn printed_as(name: &str, options: Options) -> String {
    let places = Places {
        symfs: Some(corpus("script/symfs")),
        kallsyms: Some(corpus("script/kallsyms.txt")),
        ..Places::default()
    };
    let mut text = Vec::new();
    let file = corpus(&format!("{name}.data"));
    if file.exists() {
        script(&file, &options, places, &mut text).unwrap();
    } else {
        let mut unpacked = tempfile::NamedTempFile::new().unwrap();
        let packed = unpack(&format!("script/{name}.data.gz"));
        unpacked.write_all(&packed).unwrap();
        script(unpacked.path(), &options, places, &mut text).unwrap();
    }
    String::from_utf8(text).unwrap()
}

fn unpack(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(corpus(name)).unwrap();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn perfs(name: &str, form: &str) -> String {
    let text = unpack(&format!("script/{name}.{form}.txt.gz"));
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().count() > 3, "{name}: perf said nothing");
    text
}

fn same(name: &str, found: &str, wanted: &str) {
    for (line, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "{name}, line {}", line + 1);
    }
    assert_eq!(found, wanted, "{name}");
}

/// Recordings with deferred chains.
const DEFERRED: [&str; 7] = [
    "A-two-samples-one-record",
    "C-two-tids",
    "G-empty-record",
    "I-user-mode-sample",
    "J-delivery-order",
    "poll-syscalls-defer",
    "threads4-switch-defer",
];

#[test]
fn recordings_without_deferred_chains_are_printed_as_perf_does() {
    for name in [
        "fp-pipe",
        "tp-pipe",
        "read-group",
        "bpf-output",
        "LBR-stitch-grow",
    ] {
        for join in [None, Some(Mode::Own), Some(Mode::Perf72)] {
            same(name, &printed(name, join), &perfs(name, "merged"));
        }
    }
}

/// 32 tracepoints with random payloads (`script/make-payloads.py`): everything that a `print fmt`
/// can contain, what libtraceevent reads differently from C, and what it does not understand.
#[test]
fn payloads_are_printed_as_libtraceevent_does() {
    let found = printed("payloads", None);
    for part in [
        "INVALID",
        "(nil)",
        "[FAILED TO PARSE]",
        "ARRAY[",
        "+0x",
        "::",
    ] {
        assert_eq!(found.contains(part), part != "INVALID", "{part}");
    }
    same("payloads", &found, &perfs("payloads", "merged"));
}

/// `_start` is in `.dynsym`, the other symbols are in `.gnu_debugdata`.
#[test]
fn symbols_are_taken_out_of_the_file_within_the_file() {
    let found = printed("minidebug", None);
    assert!(found.contains("inner+0x1b") && found.contains("_start+0x9"));
    same("minidebug", &found, &perfs("minidebug", "merged"));
}

/// In code without rows, libdw continues if there is a frame and ends if not; addresses outside of
/// files are not printed.
#[test]
fn stack_copies_are_unwound_as_libdw_does() {
    let found = printed("norow", None);
    assert!(found.contains("framed+0x12 (/opt/norow)\n\t          401013 main+0x5"));
    assert!(found.ends_with("cpu-clock:u: \n\n"), "made at run time");
    same("norow", &found, &perfs("norow", "merged"));
}

/// The expected text is that of `perf script --no-inline --stitch-lbr`.
#[test]
fn call_stacks_of_branches_are_stitched_as_perf_does() {
    let options = Options {
        stitch_lbr: true,
        ..Options::default()
    };
    let name = "LBR-stitch-grow";
    let stitched = printed_as(name, options);
    assert_ne!(stitched, printed(name, None), "something is stitched");
    same(name, &stitched, &perfs(name, "stitch-lbr"));
}

#[test]
fn deferred_chains_by_themselves_are_printed_as_perf_does() {
    for name in DEFERRED {
        same(name, &printed(name, None), &perfs(name, "nomerge"));
    }
}

#[test]
fn joined_in_perfs_way_chains_are_perfs() {
    for name in DEFERRED {
        same(
            name,
            &printed(name, Some(Mode::Perf72)),
            &perfs(name, "merged"),
        );
    }
}

#[test]
fn joined_in_our_way_samples_keep_their_order_and_say_what_is_missing() {
    let text = printed("threads4-switch-defer", Some(Mode::Own));
    let heads = text
        .lines()
        .filter(|line| line.contains("cpu-clock:") || line.contains("sched:"));
    let time = |line: &str| {
        let word = line
            .split_whitespace()
            .find(|word| word.contains('.'))
            .unwrap();
        word.trim_end_matches(':').parse::<f64>().unwrap()
    };
    let times: Vec<f64> = heads.map(time).collect();
    assert!(times.len() > 100 && times.is_sorted(), "{}", times.len());
    assert!(!text.contains("(cookie)") && !text.contains("DEFERRED"));
    assert!(text.contains("[no user frames: exec]"));
}
