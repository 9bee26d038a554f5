//! Objects and programs made with the system's compiler.
//!
//! Not here: deciding whether a test can do without it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the files of one test.
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        Scratch { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles or assembles `source`, whose language is the ending of `name`, with `cc`. The
    /// error is what the compiler said.
    pub(crate) fn cc(&self, name: &str, source: &str, args: &[&str]) -> Result<PathBuf, String> {
        let input = self.path(name);
        std::fs::write(&input, source).expect("the folder is writable");
        let ending = if args.contains(&"-c") { "o" } else { "elf" };
        let output = input.with_extension(ending);
        run(Command::new("cc")
            .args(args)
            .arg("-o")
            .arg(&output)
            .arg(input))?;
        Ok(output)
    }

    /// Moves the debugging information of a program into a file beside it, which it then names, as
    /// distributions do. The error is what the tool said.
    pub(crate) fn split_debug(&self, program: &Path) -> Result<(), String> {
        let debug = program.with_extension("debug");
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&debug);
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([program, &debug]))?;
        run(Command::new("objcopy")
            .arg("--strip-all")
            .arg(link)
            .arg(program))?;
        Ok(())
    }
}

/// Runs a tool and returns its standard output; the error is what it said, or that it is missing.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let tool = Path::new(command.get_program()).display().to_string();
    let output = command
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The output of `tool` as text; `None` if it is not installed.
pub(crate) fn text_of(tool: &str, args: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(tool)
        .env("LC_ALL", "C")
        .args(args)
        .arg(file)
        .output();
    let output = output.ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
