//! Assembles cases with the system's `cc`.

use super::built::PIPED;
use super::carried;
use crate::case::{Case, Machine};
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::leftovers::TemporaryFolder;
use unwind_sim_recordings::printable::PrintableName as _;

/// Places a kernel's code away from its stacks.
const KERNEL_LINK: [&str; 2] = ["-Wl,-Ttext=0x1000000", "-Wl,--build-id=none"];

/// Why a case cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The compiler cannot be run.
    #[error("cannot run `{tool}`: {source}; cases are assembled by the system's C compiler")]
    Missing {
        /// The tool.
        tool: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The compiler reported an error.
    #[error("{}: cc failed:\n{stderr}", path.printable())]
    Failed {
        /// The case.
        path: PathBuf,
        /// The compiler's messages.
        stderr: String,
    },
    /// The case is about another assembler's rows.
    #[error("{}: the case is about what GNU as {wanted} writes, and {found}", path.printable())]
    Assembler {
        /// The case.
        path: PathBuf,
        /// The version in the case's header.
        wanted: String,
        /// What is here instead.
        found: String,
    },
    /// The folder for the program cannot be created.
    #[error("cannot make a temporary folder: {0}")]
    Folder(std::io::Error),
}

/// The program of a built case. It is deleted when this is dropped.
#[derive(Debug)]
pub struct BuiltCase {
    /// The path of the program.
    pub path: PathBuf,
    _folder: TemporaryFolder,
}

/// The nearest folder above the case that holds `prelude.inc`.
fn include_folder(path: &Path) -> PathBuf {
    let above = path
        .ancestors()
        .skip(1)
        .find(|f| f.join("prelude.inc").exists());
    above
        .or_else(|| path.parent())
        .unwrap_or(Path::new("."))
        .to_path_buf()
}

/// Fails if the case is about the rows of another assembler than `cc` starts. Linkers read no `.sframe`
/// of another version, so that these rows cannot be brought along as an object file.
fn check_assembler(case: &Case, path: &Path, folder: &Path) -> Result<(), ToolError> {
    let Some(wanted) = &case.header.assembler else {
        return Ok(());
    };
    let mut command = Command::new("cc");
    command.args(["-c", "-Wa,--version", "-x", "assembler", "-o"]);
    command.arg(folder.join("version.o")).arg("/dev/null");
    let said = command.output().map_err(missing)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let found = said.lines().next().unwrap_or_default();
    if found.split([' ', ')']).any(|word| word == wanted) {
        return Ok(());
    }
    Err(ToolError::Assembler {
        path: path.into(),
        wanted: wanted.clone(),
        found: match found {
            "" => "`cc` starts no GNU as here".to_owned(),
            found => format!("this is {found}"),
        },
    })
}

fn missing(source: std::io::Error) -> ToolError {
    ToolError::Missing {
        tool: "cc".to_owned(),
        source,
    }
}

/// The files from which a case is built: a copy of it below `folder`, if it came through a pipe, and the
/// folder that has the files it includes.
fn copied(
    case: &Case,
    file: &InputFile,
    folder: &Path,
) -> std::io::Result<(Option<PathBuf>, PathBuf)> {
    if file.is_piped() {
        let copy = folder.join(PIPED);
        std::fs::write(&copy, case.text())?;
        return Ok((Some(copy), carried::includes(folder)?));
    }
    let copy = carried::copy(file.path(), folder)?;
    let includes = include_folder(copy.as_deref().unwrap_or(file.path()));
    Ok((copy, includes))
}

/// Assembles and links `case`, with its wrong tables if `defect` is set.
pub(super) fn build(case: &Case, file: &InputFile, defect: bool) -> Result<BuiltCase, ToolError> {
    let path = file.path();
    let folder = TemporaryFolder::new("unwind-sim-case-").map_err(ToolError::Folder)?;
    check_assembler(case, path, folder.path())?;
    // A case that the program carries has no checkout around it, so its includes are written, too.
    let (copy, includes) = copied(case, file, folder.path()).map_err(ToolError::Folder)?;
    let path = copy.as_deref().unwrap_or(path);

    // Results name an image by its file, so the program has the case's name.
    let program = folder.path().join(&case.name);
    let mut command = Command::new("cc");
    command
        .arg("-g0")
        .args(&case.header.link)
        .args(&case.header.cflags);
    command.arg(format!("-Wa,-I,{}", includes.display()));

    if case.header.machine == Machine::Kernel {
        command.args(KERNEL_LINK);
        if case.header.frame_pointer_config {
            command.arg("-Wa,--defsym,FRAME_POINTER=1");
        }
    }

    // The source is the same: only the directives in `.ifdef DEFECT` differ.
    if defect {
        command.arg("-Wa,--defsym,DEFECT=1");
    }

    command.arg(path).arg("-o").arg(&program);
    let output = command.output().map_err(missing)?;

    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(ToolError::Failed {
            path: path.into(),
            stderr,
        });
    }

    Ok(BuiltCase {
        path: program,
        _folder: folder,
    })
}
