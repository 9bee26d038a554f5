//! Runs the steps of the CI examples as written, on a small project with right tables and on one
//! with a wrong row.
//!
//! Not here: the steps that install the tool from the network.

use std::path::Path;
use std::process::{Command, Output};

/// `down` claims that its frame is 8 bytes larger than it is.
const WRONG: &str = ".cfi_adjust_cfa_offset 8";

fn program(claim: &str) -> String {
    format!(
        ".globl _start\n.text\n.type down, @function\ndown:\n.cfi_startproc\n    nop\n    {claim}\n    \
         nop\n    ret\n.cfi_endproc\n.type _start, @function\n_start:\n.cfi_startproc\n\
         .cfi_undefined rip\n    call down\n    mov $60, %eax\n    xor %edi, %edi\n    syscall\n\
         .cfi_endproc\n"
    )
}

/// The script of an example: the block after the last `|`, without its indentation.
fn script(example: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/ci")
        .join(example);
    let text = std::fs::read_to_string(path).expect("an example");
    let (_, block) = text.rsplit_once("|\n").expect("a script");
    let indent = block.len() - block.trim_start().len();
    let line = |line: &str| line.get(indent..).unwrap_or_default().to_owned() + "\n";
    block.lines().map(line).collect()
}

fn run(folder: &Path, command: &str) -> Output {
    let tool = Path::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = tool.parent().map(Path::to_owned).into_iter();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
    let output = Command::new("bash")
        .args(["-eo", "pipefail", "-c", command])
        .current_dir(folder)
        .env("PATH", path.expect("a path"))
        .env("PROGRAM", "./program")
        .env("BASELINE", "unwind-baseline.jsonl")
        .output();
    output.expect("bash runs")
}

fn status(output: &Output) -> Option<i32> {
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.code()
}

fn try_example(example: &str) {
    let script = script(example);
    assert!(script.contains("unwind-sim verify"), "{script}");
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let build = "cc -nostdlib -static -o program program.s";
    let write = |claim| std::fs::write(folder.path().join("program.s"), program(claim));
    write("").expect("a file");
    assert_eq!(status(&run(folder.path(), build)), Some(0));
    assert_eq!(
        status(&run(folder.path(), &script)),
        Some(0),
        "right tables"
    );
    write(WRONG).expect("a file");
    assert_eq!(status(&run(folder.path(), build)), Some(0));
    assert_eq!(status(&run(folder.path(), &script)), Some(1), "a wrong row");
    let known = "unwind-sim verify --json -- $PROGRAM >unwind-baseline.jsonl || [ $? = 1 ]";
    assert_eq!(status(&run(folder.path(), known)), Some(0));
    assert_eq!(
        status(&run(folder.path(), &script)),
        Some(0),
        "the wrong row is known"
    );
}

#[test]
fn the_github_example_fails_on_a_wrong_row() {
    try_example("github-actions.yml");
}

#[test]
fn the_gitlab_example_fails_on_a_wrong_row() {
    try_example("gitlab-ci.yml");
}
