//! `-`: a recording on standard input.

use anyhow::{Result, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// The path by which standard input is opened, and called in messages.
const PATH: &str = "/dev/stdin";

/// The parser of an argument that names a recording.
pub(crate) fn recording() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|word: OsString| named(word).map_err(|e| format!("{e:#}")))
}

/// The path that a word names: `-` and `/dev/stdin` are standard input.
///
/// # Errors
/// If standard input is a terminal.
pub(crate) fn named(word: OsString) -> Result<PathBuf> {
    if word != "-" && word != PATH {
        return Ok(word.into());
    }
    if std::io::stdin().is_terminal() {
        bail!("standard input is a terminal: pipe a recording into this command, or name a file");
    }
    Ok(PATH.into())
}

/// Whether a path is that of standard input.
#[cfg(feature = "machine")]
pub(crate) fn is_named_by(path: &std::path::Path) -> bool {
    path == std::path::Path::new(PATH)
}
