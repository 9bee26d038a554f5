//! Compiles the programs of `benches/programs/` with the system's `cc` into a directory that is
//! removed at the end.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::snapshot::Snapshot;

const FLAGS: [&str; 3] = ["-O2", "-g", "-fno-optimize-sibling-calls"];

/// A directory of this process in the system's temporary directory, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("unwind-sim-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
        Scratch(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether the program keeps frame pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramePointer {
    Omit,
    Keep,
}

/// Compiles `programs/NAME.c`.
pub(crate) fn compile(
    scratch: &Scratch,
    name: &str,
    frame_pointer: FramePointer,
) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/programs/{name}.c"));
    let (flag, suffix) = match frame_pointer {
        FramePointer::Omit => ("-fomit-frame-pointer", ""),
        FramePointer::Keep => ("-fno-omit-frame-pointer", ".fp"),
    };
    let output = scratch.join(&format!("{name}{suffix}"));
    let mut cc = Command::new("cc");
    cc.args(FLAGS).arg(flag).arg("-o").arg(&output).arg(&source);
    run(&mut cc)?;
    Ok(output)
}

/// Compiles and runs a program that writes a snapshot.
pub(crate) fn snapshot(
    scratch: &Scratch,
    name: &str,
    frame_pointer: FramePointer,
) -> Result<Snapshot, String> {
    let program = compile(scratch, name, frame_pointer)?;
    let file = program.with_extension("snapshot");
    run(Command::new(&program).arg(&file))?;
    Snapshot::load(name, &file)
}

/// Runs a command, which must succeed; `Err` holds the end of its output.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|e| format!("{shown}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{shown}: {}\n{}", output.status, stderr.trim_end()))
}
