//! `--timeout` ends every command that runs the machine, whatever the program waits for.

use crate::cli::{stderr, stdout, tool};
use crate::common::compiler::Scratch;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Reads standard input for ever; with an argument, it never ends.
const SOURCE: &str = "#include <unistd.h>
int main(int argc, char **argv) {
  char byte;
  (void)argv;
  for (;;) if (argc == 1) read(0, &byte, 1);
}";

#[test]
fn a_run_ends_in_time() {
    let scratch = Scratch::new();
    let program = super::program(&scratch, "waits", SOURCE);
    let trace = super::text(&scratch.path("trace"));
    let record = ["record", "--engine", "emulator", "-o", &trace];
    let cases: [(&[&str], &[&str]); 7] = [
        (&["emulate"], &[]),
        (&["emulate"], &["loops"]),
        (&["verify", "-u", "fp"], &["loops"]),
        (&record, &[]),
        (&record, &["loops"]),
        (&["lockstep"], &[]),
        (&["lockstep"], &["loops"]),
    ];

    for (command, argument) in cases {
        let args = [command, &["--timeout", "0.5", "--", &program], argument].concat();
        let mut tool = tool(&args);
        // Nobody writes into this pipe, and it stays open.
        let tool = tool
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        let begin = Instant::now();
        let mut running = tool.spawn().expect("the tool runs");
        // `wait_with_output` would close it.
        let stdin = running.stdin.take();
        let output = running.wait_with_output().expect("it ends");
        drop(stdin);
        // The limit is half a second; a busy machine may take longer to notice.
        assert!(begin.elapsed() < Duration::from_secs(60), "{args:?}");

        let said = format!("{}{}", stdout(&output), stderr(&output));

        // Where ptrace is denied, it cannot run.
        if command[0] == "lockstep" && said.contains("ptrace") {
            continue;
        }

        let is_clear =
            said.contains("the time limit was reached") || said.contains("timeout while read");
        assert!(is_clear, "{args:?}\n{said}");
    }
}

/// A FIFO of the host has no writer: a program that opens it must not hang.
#[test]
fn a_fifo_of_the_host_is_not_opened() {
    let scratch = Scratch::new();
    let fifo = scratch.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    let source = format!(
        "#include <fcntl.h>\nint main(void) {{ return open(\"{}\", O_RDONLY) >= 0; }}",
        fifo.display()
    );
    let program = super::program(&scratch, "opens", &source);
    let output = super::run(&["emulate", "--timeout", "60", "--", &program]);
    assert_eq!(crate::cli::status(&output), 3, "{}", stderr(&output));
    assert!(stderr(&output).contains("FIFOs"), "{}", stderr(&output));
}
