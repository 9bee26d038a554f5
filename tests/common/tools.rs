//! Which programs of the system there are.
//!
//! Not here: compiling with them, which `compiler.rs` does.

use super::skip::skip;
use std::process::{Command, Stdio};

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
