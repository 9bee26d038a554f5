//! A generated table as the sections of a format, and the file with them in it.
//!
//! The new file is read again, and its table compared with what was generated: nothing is handed out
//! that says something else.

use super::object::{self, ObjectWriteError};
use super::{Function, Generated};
use crate::convert::expressible::{expressible, projected};
use crate::convert::pieces::write_each;
use crate::convert::source::{RowSpan, SourceFunction, says_nothing};
use crate::convert::{Report, Target, text};
use crate::elf_write::{Editor, ElfWriteError};
use crate::file::{File, FileError};
use crate::table::Table;
use crate::write::eh_frame::EhFrameWriter;
use crate::write::orc::OrcWriter;
use crate::write::sframe::SframeWriter;
use crate::write::{NewSection, WriteError, Writer};
use std::sync::Arc;
use unwind_sim_unwind::derived::simplify;

/// Why no file was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// There is no function, or no row that the format can hold.
    #[error(
        "{file}: no row to write as {to}: its functions need symbols with a size, or a table; of a \
         kernel, use the vmlinux with symbols, of its build or of its debug package"
    )]
    Nothing {
        /// The file's name.
        file: String,
        /// The format to write.
        to: &'static str,
    },
    /// Only ORC is written into relocatable objects.
    #[error("{file}: {to} is not written into a relocatable object; ORC is, others after linking")]
    Relocatable {
        /// The file's name.
        file: String,
        /// The format to write.
        to: &'static str,
    },
    /// The file has exception handlers, which the code alone does not show.
    #[error(
        "{file} has an .eh_frame, whose exception handlers are not in the code; take it out with `objcopy -R .eh_frame -R .eh_frame_hdr`"
    )]
    HasEhFrame {
        /// The file's name.
        file: String,
    },
    /// A limit of the format was exceeded.
    #[error("{file}: {error}")]
    Write {
        /// The file's name.
        file: String,
        /// Which limit of the format was exceeded.
        error: WriteError,
    },
    /// The file cannot be changed.
    #[error(transparent)]
    Elf(#[from] ElfWriteError),
    /// The object cannot be changed.
    #[error(transparent)]
    Object(#[from] ObjectWriteError),
    /// The new file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The new table does not say what was generated: a defect of this program.
    #[error(
        "{file}: the written table differs from the generated one at {address:#x}; this is a defect \
         of unwind-sim, and nothing was written"
    )]
    Differs {
        /// The file's name.
        file: String,
        /// The first address (svma).
        address: u64,
    },
}

/// A file with a generated table.
#[derive(Clone, Debug)]
pub struct GeneratedFile {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// The new sections.
    pub sections: Vec<NewSection>,
    /// What the format could not hold, and how much was written.
    pub report: Report,
    /// Addresses at which the written table was found to say what was generated.
    pub equal: u64,
}

/// The file `data`, which was read as `file`, with the table `generated` in format `to`.
///
/// # Errors
/// If there is nothing to write, the file cannot be changed, or the new table differs.
pub fn write_in_file(
    file: &File,
    data: &[u8],
    generated: &Generated,
    to: Target,
) -> Result<GeneratedFile, GenerateError> {
    let name = file.name().to_owned();
    if file.is_relocatable() && !matches!(to, Target::Orc(_)) {
        let (file, to) = (name, to.as_str());
        return Err(GenerateError::Relocatable { file, to });
    }
    let has_eh_frame = to
        .kind()
        .section()
        .is_some_and(|s| file.image().section(s).is_some());
    if to == Target::EhFrame && has_eh_frame {
        return Err(GenerateError::HasEhFrame { file: name });
    }

    let (bytes, sections, report) = if file.is_relocatable() {
        let (sections, report) = sections(file, generated, to, 0)?;
        let sections = object::without_lookup(sections);
        let bytes = object::add_orc(file, data, &sections)?;
        (bytes, sections, report)
    } else {
        let editor = Editor::open(file.name(), data)?;
        let (sections, report) = sections(file, generated, to, editor.room())?;
        (editor.add(&sections)?, sections, report)
    };

    let owner = Arc::new(bytes);
    // The reader shares the bytes: it ends before they are taken out of the `Arc`.
    let equal = {
        let new = File::read(file.name(), owner.clone())?;
        let same = read_back(&new, generated, to);
        same.map_err(|address| GenerateError::Differs {
            file: name,
            address,
        })?
    };

    Ok(GeneratedFile {
        bytes: Arc::unwrap_or_clone(owner),
        sections,
        report,
        equal,
    })
}

/// The sections, the first of them at `address` (svma).
fn sections(
    file: &File,
    generated: &Generated,
    to: Target,
    address: u64,
) -> Result<(Vec<NewSection>, Report), GenerateError> {
    let mut report = Report::default();
    let written = match to {
        Target::Orc(encoding) => {
            let writer = OrcWriter::new(encoding, text(file));
            fill(generated, writer, address, &mut report)
        }
        Target::Sframe(version) => {
            fill(generated, SframeWriter::new(version), address, &mut report)
        }
        Target::EhFrame => fill(generated, EhFrameWriter::new(&[]), address, &mut report),
    };

    let sections = written.map_err(|error| GenerateError::Write {
        file: file.name().to_owned(),
        error,
    })?;

    if report.rows_written == 0 {
        return Err(GenerateError::Nothing {
            file: file.name().to_owned(),
            to: to.as_str(),
        });
    }

    Ok((sections, report))
}

fn fill<W: Writer>(
    generated: &Generated,
    mut writer: W,
    address: u64,
    report: &mut Report,
) -> Result<Vec<NewSection>, WriteError> {
    let functions = generated.functions.iter().map(source);
    write_each(functions, &mut writer, report)?;
    writer.finish(address)
}

fn source(function: &Function) -> SourceFunction {
    let rows = function.rows.iter();
    SourceFunction {
        range: function.range.clone(),
        parts: rows
            .map(|(range, rule)| RowSpan::Row(range.clone(), *rule))
            .collect(),
    }
}

/// Compares the table of `new` with what was generated. Returns the number of equal addresses, or the
/// first that differs.
fn read_back(new: &File, generated: &Generated, to: Target) -> Result<u64, u64> {
    let encoding = match to {
        Target::Orc(encoding) => Some(encoding),
        _ => None,
    };
    let table = Table::read_as(new, to.kind(), encoding).ok_or(0u64)?;

    let mut equal = 0;
    for function in &generated.functions {
        for (range, rule) in &function.rows {
            let mut at = range.start;
            while at < range.end {
                let found = table.row_at(at).filter(|row| !says_nothing(row.rule));
                let end = found
                    .map_or(range.end, |row| row.end)
                    .clamp(at + 1, range.end);

                let same = match found {
                    // A loaded CFA is an expression in `.eh_frame`.
                    Some(row) => {
                        let read = simplify(row.rule, table.section());
                        expressible(rule, to) && projected(&read, to) == projected(rule, to)
                    }
                    None => !expressible(rule, to),
                };

                if !same {
                    return Err(at);
                }
                equal += if found.is_some() { end - at } else { 0 };
                at = end;
            }
        }
    }

    // And no rows beside those that were generated.
    let rows = table.functions().iter().flat_map(|f| table.rows(f));
    let mut more = rows.filter(|row| !says_nothing(row.rule) && row.start < row.end);
    let unknown = more.find(|row| generated.rule_at(row.start).is_none());
    unknown.map_or(Ok(equal), |row| Err(row.start))
}
