//! Shows what is in a file: a trace, a perf.data, a core, an ELF file's unwind tables, a kernel
//! image.
//!
//! The output is plain, aligned text. For a damaged file it shows what can be read, and where the
//! rest is malformed. Chains and verdicts are not shown.

mod capture;
mod columns;
mod core;
mod elf;
mod kernel;
mod perf_data;
mod rows;
mod trace;
mod vmcore;

use std::path::{Path, PathBuf};
use unwind_sim_judge::input::{FileKind, InputError, trace_of};
use unwind_sim_perf_data::PerfError;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::convert;
use unwind_sim_recordings::file_kind::WrongKind;
use unwind_sim_recordings::import::{ImportError, is_vmcore};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::{KernelError, OpenOptions, ToldLayout, is_module, is_vmlinux};
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::similar::question_among;
use unwind_sim_recordings::trace::{Trace, TraceError};
use unwind_sim_unwind::elf::{ElfError, ElfErrorKind};
use unwind_sim_unwind::image::{Image, Owner, SectionKind};
use unwind_sim_unwind::orc::{self, Encoding, Layout};

pub use rows::FUNCTIONS_MAX;

/// Why a file cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The file cannot be opened, or is a case that does not run.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The file cannot be mapped.
    #[error("cannot read {}: {source}", path.printable())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The perf.data is damaged.
    #[error("{}: {source}", path.printable())]
    Perf {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: PerfError,
    },
    /// The core is damaged.
    #[error("{}: {source}", path.printable())]
    Core {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: ImportError,
    },
    /// The ELF file is damaged or for another machine.
    #[error("{}: {source}{}", path.printable(), advice(source))]
    Elf {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: ElfError,
    },
    /// The kernel image is damaged, or its System.map is invalid.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The file is of a kind that cannot be shown.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// A layout was named for a file without ORC entries.
    #[error("{} has no ORC entries; leave --orc-layout out", path.printable())]
    NoOrc {
        /// The file.
        path: PathBuf,
    },
    /// The ORC entries are not those of the layout that was named.
    #[error(
        "{path}: the ORC entries have the layout of Linux {}, not of {told}; leave --orc-layout out, or \
         name that one",
        fits.as_str(),
        path = path.printable()
    )]
    OrcLayout {
        /// The file.
        path: PathBuf,
        /// The layout that was named.
        told: &'static str,
        /// The layout that fits.
        fits: Layout,
    },
    /// Rows were requested from a file that has none.
    #[error("{} has no rows to show: --rows is for ELF programs and libraries", path.printable())]
    NoTables {
        /// The file.
        path: PathBuf,
    },
    /// The file has no function of this name.
    #[error("{} has no function `{name}`{}", path.printable(), near(.similar))]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// Names that contain it.
        similar: Vec<String>,
    },
}

/// The encoding that was named for the ORC entries of an image.
fn told_encoding(
    file: &InputFile,
    image: &Image,
    told: Option<&ToldLayout>,
) -> Result<Option<Encoding>, InspectError> {
    // Without a named layout, the layout is found from the entries.
    let Some(told) = told else {
        return Ok(None);
    };

    // A layout for a table that is not there would change nothing, and the user would not notice.
    let (Some(entries), Some(ips)) = (
        image.section(SectionKind::OrcUnwind),
        image.section(SectionKind::OrcUnwindIp),
    ) else {
        return Err(InspectError::NoOrc {
            path: file.path().into(),
        });
    };

    // A malformed table is shown as such.
    let table = orc::Table::new(&entries.data, &ips.data, ips.address).ok();
    let header = image.section(SectionKind::OrcHeader);

    // A layout that does not fit decodes to rows that look plausible, so it is refused.
    match table.and_then(|table| orc::other_than(&table, header, told.layout)) {
        Some(fits) => Err(InspectError::OrcLayout {
            path: file.path().into(),
            told: told.as_str(),
            fits,
        }),
        None => Ok(Some(told.encoding())),
    }
}

fn near(similar: &[String]) -> String {
    if similar.is_empty() {
        return "; is it stripped?".to_owned();
    }
    question_among(similar)
}

/// Describes a file. With `rows`, lists every row in every table of the functions with
/// that name instead. `kernel` applies to kernel images.
///
/// # Errors
/// If the file cannot be read or is of an unknown kind. Damage further inside is not an error: the
/// text says what could not be read.
pub fn inspect(
    file: &InputFile,
    rows: Option<&str>,
    kernel: &OpenOptions,
    case_limits: &CaseLimits,
) -> Result<String, InspectError> {
    let kind = file.kind();
    let owned = || file.path().to_path_buf();

    // A given ORC layout is for files with ORC entries; elsewhere it would be ignored silently.
    let told = kernel.orc_layout.as_ref();
    let has_entries = matches!(
        kind,
        FileKind::Elf | FileKind::Bpf | FileKind::Compressed | FileKind::Kernel
    );
    if told.is_some() && !has_entries {
        return Err(InspectError::NoOrc { path: owned() });
    }

    // Kernel files are ELF files, too: modules and vmlinux are told from others by their sections,
    // and have a view of their own.
    match (kind, rows) {
        (FileKind::Elf, Some(name)) => rows::show(file, name),
        (FileKind::Elf, None) if is_module((*map(file)?).as_ref()) => {
            kernel::show_module(file, told)
        }
        (FileKind::Compressed, None) if has_module_name(file.path()) => {
            kernel::show_module(file, told)
        }
        (kind, Some(_)) if kind.is_recording() || kind == FileKind::Kernel => {
            Err(InspectError::NoTables { path: owned() })
        }
        (FileKind::Elf, None) if is_vmlinux(map(file)?) => kernel::show(file, kernel),
        (FileKind::Elf | FileKind::Bpf, None) => elf::show(file, told),
        (FileKind::Kernel, None) => kernel::show(file, kernel),
        (FileKind::Trace, None) => Ok(trace::show(&Trace::read(file)?, Some(len(file)?))),
        (FileKind::Case, None) => {
            let (trace, _) = trace_of(file, case_limits)?;
            Ok(trace::show(&trace, None))
        }
        (FileKind::PerfData, None) => perf_data::show(file),
        (FileKind::Core, None) if is_vmcore((*map(file)?).as_ref()) => vmcore::show(file),
        (FileKind::Core, None) => core::show(file),
        (FileKind::Capture, None) => capture::show(file),
        // A recording format without a page of its own.
        (kind, None) if kind.is_converted() => converted(file),
        _ => Err(InspectError::Kind(file.is_not(
            "a recording, an ELF file, a kernel's image, a module or a case (.s)",
        ))),
    }
}

/// The text for a recording as the trace that is made of it.
fn converted(file: &InputFile) -> Result<String, InspectError> {
    let made = convert::to_trace(file, &convert::OpenOptions::default());
    let (trace, _) = made.map_err(InputError::from)?;
    let shown = trace::show(&trace, Some(len(file)?));
    let heading = file.kind().description();
    Ok(format!("{heading}, as\n{shown}"))
}

/// What reads an ELF file that is not shown.
fn advice(error: &ElfError) -> &'static str {
    match error.what {
        ElfErrorKind::Relocatable => "; `unwind-sim tables dump` shows the rows of an object",
        _ => "",
    }
}

/// Whether the name is that of a compressed module, such as `NAME.ko.xz`.
fn has_module_name(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".ko."))
}

/// The size of a file, bytes.
fn len(file: &InputFile) -> Result<u64, InspectError> {
    Ok((*map(file)?).as_ref().len() as u64)
}

/// The bytes of a file.
fn map(file: &InputFile) -> Result<Owner, InspectError> {
    file.bytes().map_err(|source| InspectError::Io {
        path: file.path().into(),
        source,
    })
}

#[cfg(test)]
mod tests;
