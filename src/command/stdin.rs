//! `-`: a recording on standard input.
//!
//! Commands read a recording more than once, and open it by its path. What comes through a pipe is
//! therefore written to a temporary file without a name, which becomes standard input in its place.

use anyhow::{Result, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The path of standard input. On Linux, each open of it begins at the file's start.
const PATH: &str = "/dev/stdin";

/// The parser of an argument that names a recording.
pub(crate) fn recording() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|word: OsString| named(word).map_err(|e| format!("{e:#}")))
}

/// The path that a word names: `-` and `/dev/stdin` are standard input.
///
/// # Errors
/// If standard input is a terminal, or cannot be kept.
pub(crate) fn named(word: OsString) -> Result<PathBuf> {
    if word != "-" && word != PATH {
        return Ok(word.into());
    }
    keep()?;
    Ok(PATH.into())
}

/// Whether a path is that of standard input.
#[cfg(feature = "machine")]
pub(crate) fn is_named_by(path: &std::path::Path) -> bool {
    path == std::path::Path::new(PATH)
}

/// Makes standard input a file that can be read several times.
#[cfg(target_os = "linux")]
fn keep() -> Result<()> {
    use anyhow::Context;
    use std::io::{IsTerminal, Seek, SeekFrom};
    use std::os::fd::AsFd;

    let input = std::io::stdin();
    if input.is_terminal() {
        bail!("standard input is a terminal: pipe a recording into this command, or name a file");
    }
    let cannot = "cannot read standard input";
    let fd = input.as_fd().try_clone_to_owned().context(cannot)?;
    let mut input = std::fs::File::from(fd);
    // A file that nobody has read from needs no copy.
    let is_file = input.metadata().context(cannot)?.is_file();
    if is_file && input.stream_position().context(cannot)? == 0 {
        return Ok(());
    }
    let mut kept = tempfile::tempfile().context("cannot create a temporary file")?;
    std::io::copy(&mut input, &mut kept).context("cannot keep what comes from standard input")?;
    kept.seek(SeekFrom::Start(0)).context(cannot)?;
    nix::unistd::dup2_stdin(&kept).context(cannot)?;
    Ok(())
}

/// Elsewhere a second open of standard input does not begin at its start.
#[cfg(not(target_os = "linux"))]
fn keep() -> Result<()> {
    bail!("standard input is read only on Linux; name a file")
}
