//! A capture of a kernel that guesses (`CONFIG_UNWINDER_GUESS`), without states of its unwinder.

use crate::cli::{run, status, stderr};
use serde_json::{Value, json};
use std::path::Path;

pub(super) const SYSTEM_MAP: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 T f
ffffffff81002000 T _etext
ffffffff81003000 B _end
";
/// The words from rsp on, zlib in base64: 0, 0xffffffff81000015, 7, 0xffffffff81000105, 3,
/// 0xffffffff81000025, and zeros to the end of the stack.
const STACK: &str = "eJxjYIAAUQaGxv9AwA7lszJC+MxQvipUnmGIAQB5Fg3C";
/// rip, and the three addresses on the stack, after the marker.
const CHAIN: [&str; 5] = [
    "0xffffffffffffff80",
    "0xffffffff81000030",
    "0xffffffff81000015",
    "0xffffffff81000105",
    "0xffffffff81000025",
];

pub(super) fn capture() -> Value {
    let stack = json!({
        "type": "TASK", "begin": "0xffffc90000000000", "end": "0xffffc90000004000",
        "data_at": "0xffffc90000003f20", "data": STACK,
    });
    let regs = json!({
        "rip": CHAIN[1], "rsp": "0xffffc90000003f20", "rbp": "0x0", "eflags": 2, "cs": 16,
    });
    json!({
        "kernel": "vmlinuz-6.12.0",
        "unwinder": "guess",
        "points": [{
            "regs": regs, "stacks": [stack], "kernel": [], "user": {},
            "callchain": CHAIN, "callchain_request": {"user": false},
        }],
    })
}

/// The lines of `compare --against perf`, by unwinder, and its exit status.
fn compared(file: &Path, map: &Path) -> (Vec<String>, i32) {
    let (file, map) = (file.to_str().expect("text"), map.to_str().expect("text"));
    let out = run(&["compare", file, "--system-map", map, "--against", "perf"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines = text.lines().filter(|line| line.contains(":kernel"));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    (lines.map(words).collect(), status(&out))
}

#[test]
fn a_guessed_chain_is_judged_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (points, map) = (
        folder.path().join("points.json"),
        folder.path().join("System.map-6.12.0"),
    );
    std::fs::write(&points, capture().to_string()).expect("a capture");
    std::fs::write(&map, SYSTEM_MAP).expect("a map");
    let (file, symbols) = (points.to_str().expect("text"), map.to_str().expect("text"));

    // The kernel's own unwinder is taken for it, and gives what perf stored.
    let chain = run(&["replay", file, "--system-map", symbols, "--as", "perf"]);
    assert_eq!(
        stderr(&chain),
        "callchains: 1 as perf recorded them, 0 different\n"
    );
    assert_eq!(status(&chain), 0);

    // An unwinder that does not guess is not wrong for that.
    let (lines, ended) = compared(&points, &map);
    let others = ["orc:kernel", "fp:kernel"];
    for name in others {
        let why = format!("{name} 1 the recorded kernel guesses, and this unwinder does not");
        assert!(lines.contains(&why), "{lines:#?}");
    }
    assert_eq!(ended, 0, "{lines:#?}");

    // The same from a trace, which says how the kernel was built.
    let trace = folder.path().join("trace.bin");
    let to = trace.to_str().expect("text");
    let made = run(&["import", file, "--system-map", symbols, "-o", to]);
    assert_eq!(status(&made), 0, "{}", stderr(&made));
    assert_eq!(compared(&trace, &map), (lines, 0));

    // One address less, and the unwinder of that kernel differs.
    let mut shorter = capture();
    let chain = shorter["points"][0]["callchain"].as_array_mut();
    chain.expect("a list").pop();
    std::fs::write(&points, shorter.to_string()).expect("a capture");
    let chain = run(&["replay", file, "--system-map", symbols, "--as", "perf"]);
    assert_eq!(status(&chain), 1, "{}", stderr(&chain));
}
