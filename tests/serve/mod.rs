//! `gdbserver` and `dap` on programs of the emulated machine, through the pipes of the built program.

mod dap;
mod gdb;
mod real_gdb;

use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const CASE: &str = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A server, which ends with its test.
struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        command.args(args).current_dir(root(""));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the tool runs");
        let (to, from) = (child.stdin.take(), child.stdout.take());
        Server {
            child,
            to,
            from: BufReader::new(from.expect("its output")),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let to = self.to.as_mut().expect("it is open");
        to.write_all(bytes).expect("it reads");
        to.flush().expect("it reads");
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.from.read_exact(&mut byte).expect("it answers");
        byte[0]
    }

    /// Leaves, and returns the exit status.
    fn leave(mut self) -> Option<i32> {
        self.to = None;
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
