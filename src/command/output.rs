//! Where output goes: data to stdout, everything else to stderr; a closed pipe is silent.

use std::io::Write;
use unwind_sim::run::RunError;

/// `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

impl Color {
    /// For all output of this process.
    pub(crate) fn apply(self) {
        let choice = match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Standard output: buffered, colour taken out where nobody wants it.
pub(crate) fn stdout() -> impl Write {
    std::io::BufWriter::with_capacity(1 << 16, anstream::stdout())
}

/// Standard output as it is, for formats that no terminal is to read.
pub(crate) fn raw_stdout() -> impl Write {
    std::io::BufWriter::with_capacity(1 << 16, std::io::stdout())
}

/// Did the reader of our output go away? That is no error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |kind| kind == Some(std::io::ErrorKind::BrokenPipe);
    error.chain().any(|cause| {
        let kind = match cause.downcast_ref() {
            Some(RunError::Output(error)) => Some(error.kind()),
            Some(RunError::Json(error)) => error.io_error_kind(),
            _ => None,
        };
        let plain = cause.downcast_ref().map(std::io::Error::kind);
        let json = cause
            .downcast_ref()
            .and_then(serde_json::Error::io_error_kind);
        broken(kind) || broken(plain) || broken(json)
    })
}

/// The command that reproduces this output: the command line of this process, quoted for a
/// shell where need be.
pub(crate) fn command_line() -> String {
    let args = std::env::args_os().skip(1);
    std::iter::once("unwind-sim".to_owned())
        .chain(args.map(|a| quoted(&a.to_string_lossy())))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell wants it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Hands `write` a new file, or, if none is named, standard output.
pub(crate) fn to_file_or<T>(
    path: Option<&std::path::Path>,
    mut stdout: impl Write,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(path) = path else {
        let done = write(&mut stdout)?;
        stdout.flush()?;
        return Ok(done);
    };
    let mut file = NewFile::create(path)?;
    let done = write(&mut file)?;
    file.finish()?;
    Ok(done)
}

/// A file that appears under its name only when it is whole.
pub(crate) struct NewFile {
    file: std::io::BufWriter<tempfile::NamedTempFile>,
    path: std::path::PathBuf,
}

impl NewFile {
    /// Begins the file beside its final place.
    pub(crate) fn create(path: &std::path::Path) -> anyhow::Result<NewFile> {
        use anyhow::Context;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => std::path::Path::new("."),
        };
        let file = tempfile::NamedTempFile::new_in(folder)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(NewFile {
            file: std::io::BufWriter::with_capacity(1 << 18, file),
            path: path.into(),
        })
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        use anyhow::Context;
        let file = self.file.into_inner().map_err(|e| e.into_error())?;
        file.persist(&self.path)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
