//! `-`: a recording on standard input.

use anyhow::{Result, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use unwind_sim_recordings::file_kind::FileKind;

/// The path by which standard input is opened, and called in messages.
const PATH: &str = "/dev/stdin";

/// The parser of an argument that names a recording.
pub(crate) fn recording() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|word: OsString| named(word).map_err(|e| format!("{e:#}")))
}

/// The help of an argument that names a recording: which kinds it takes.
pub(crate) fn help(is_taken: fn(FileKind) -> bool) -> String {
    help_with(is_taken, "")
}

/// [`help()`] where `more` is taken, too.
pub(crate) fn help_with(is_taken: fn(FileKind) -> bool, more: &str) -> String {
    let kinds = FileKind::list(is_taken);
    let (first, rest) = kinds.split_at(1);
    let first = first.to_uppercase();
    format!("{first}{rest}{more}; - for standard input")
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
