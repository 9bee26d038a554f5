//! Shared objects and programs made with the system's compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use unwind_sim_tables::file::File;

/// A folder that is removed when the test ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let folder = format!("unwind-sim-proof-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        Scratch(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left over lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the compiler `cc` with `args`, which end with its input files. The error is what it said.
pub(crate) fn compile(cc: &str, args: &[&str], output: &Path) -> Result<(), String> {
    let mut command = Command::new(cc);
    command.env("LC_ALL", "C").arg("-o").arg(output).args(args);
    let done = command.output().map_err(|error| format!("{cc}: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

/// Opens an ELF file; returns its bytes, too.
pub(crate) fn open(path: &Path) -> (Arc<Vec<u8>>, File) {
    let bytes = std::fs::read(path).expect("the file is readable");
    let bytes = Arc::new(bytes);
    let name = path.display().to_string();
    let file = File::read(&name, bytes.clone()).expect("an ELF file");
    (bytes, file)
}
