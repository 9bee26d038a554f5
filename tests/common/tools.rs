//! Which programs of the system there are, and which of its devices.
//!
//! Not here: compiling with them, which `compiler.rs` does.
#![allow(dead_code, reason = "every test uses a part of it")]

use super::skip::skip;
use std::process::{Command, Stdio};

/// Whether there are no pseudo-terminals. If so, the test `name` is reported as skipped.
pub(crate) fn has_no_terminals(name: &str) -> bool {
    let mut open = std::fs::OpenOptions::new();
    // Without a mounted devpts this fails, although the file is there.
    let is_missing = open.read(true).write(true).open("/dev/ptmx").is_err();
    if is_missing {
        skip(name, "no pseudo-terminals here");
    }
    is_missing
}

/// Whether `tool` does not start. If so, the test `name`, or a part of it, is reported as skipped.
pub(crate) fn is_missing(name: &str, tool: &str) -> bool {
    let mut command = Command::new(tool);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let is_missing = !command.status().is_ok_and(|status| status.success());
    if is_missing {
        skip(name, format_args!("{tool} is not installed"));
    }
    is_missing
}
