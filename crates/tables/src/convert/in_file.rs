//! A conversion within an ELF file: the file with the new table in it.

use super::round_trip::{self, Comparison};
use super::{ConvertError, Converted, Options, Report, Target, convert_table, read_source};
use crate::elf_write::{Editor, ElfWriteError};
use crate::file::{File, FileError};
use crate::table::Table;
use crate::write::sframe::PT_GNU_SFRAME;
use std::sync::Arc;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;

/// Why no file was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InFileError {
    /// Nothing was converted.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The file cannot be changed.
    #[error(transparent)]
    Elf(#[from] ElfWriteError),
    /// The new file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has the table already, and more would be lost than rows.
    #[error(
        "{file} has an .eh_frame already; a new one would lose its exception handlers (--replace \
         writes it all the same)"
    )]
    HasEhFrame {
        /// The file's name.
        file: String,
    },
    /// Readers take something else for the table.
    #[error(
        "{file}: a header of the file makes readers take something else for its {to}; its headers \
         are damaged, or name the same table twice"
    )]
    Hidden {
        /// The file's name.
        file: String,
        /// The format that was written.
        to: &'static str,
    },
    /// The new table does not say what the source says: a defect of this program.
    #[error(
        "{file}: the converted table differs from its source at {count} places, the first of them \
         {address:#x}: `{found}` instead of `{expected}`; this is a defect of unwind-sim, and nothing \
         was written"
    )]
    Differs {
        /// The file's name.
        file: String,
        /// How many places.
        count: u64,
        /// The first address (svma).
        address: u64,
        /// What the new table should say there.
        expected: String,
        /// What it says.
        found: String,
    },
}

/// A file with a converted table.
#[derive(Clone, Debug)]
pub struct ConvertedFile {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// What was converted.
    pub converted: Converted,
    /// Whether the table is where the old one was.
    pub reused: bool,
    /// The comparison with the source.
    pub comparison: Comparison,
}

/// The file `data`, which was read as `file`, with a converted table. The new table is read again
/// and compared with its source at every address. `options.address` is not used. An existing
/// `.eh_frame` is replaced only if `replace` is set.
///
/// # Errors
/// If nothing can be converted, the file cannot be changed, or the new table differs.
pub fn convert_in_file(
    file: &File,
    data: &[u8],
    options: &Options,
    replace: bool,
) -> Result<ConvertedFile, InFileError> {
    // A program has only one `.eh_frame`, which its exceptions need.
    let has_eh_frame = file.image().section(SectionKind::EhFrame).is_some();
    if options.to == Target::EhFrame && has_eh_frame && !replace {
        return Err(InFileError::HasEhFrame {
            file: file.name().to_owned(),
        });
    }

    let source = read_source(file, options)?;

    // Where the table will lie is known only once the file has been looked at, and its offsets
    // depend on it.
    let editor = Editor::open(file.name(), data)?;
    let options = Options {
        address: editor.room(),
        ..options.clone()
    };
    let converted = convert_table(file, &source, &options)?;

    // In the place of the old one if it fits there, else at the end of the file.
    let (bytes, converted, reused) = match over_old(&editor, file, &source, &options, &converted)? {
        Some((bytes, converted)) => (bytes, converted, true),
        None => (editor.add(&converted.sections)?, converted, false),
    };

    // From here on only the bytes count, read again as any reader would.
    let owner = Arc::new(bytes);
    let new = File::read(file.name(), owner.clone())?;

    // A table that no reader finds is none, whatever it says.
    if !is_found(&new, &converted) {
        return Err(InFileError::Hidden {
            file: file.name().to_owned(),
            to: options.to.as_str(),
        });
    }

    // Nothing is given out that was not compared with its source at every address.
    let comparison = compare(&source, &new, options.to, &converted.report);
    if let Some(first) = comparison.listed.first() {
        return Err(InFileError::Differs {
            file: file.name().to_owned(),
            count: comparison.differences,
            address: first.range.start,
            expected: shown(first.expected.as_ref()),
            found: shown(first.found.as_ref()),
        });
    }

    // It shares the bytes, which could not be taken out of the `Arc` without a copy otherwise.
    drop(new);
    let mut converted = converted;
    converted.report.lose_others(file, &source);
    Ok(ConvertedFile {
        bytes: Arc::unwrap_or_clone(owner),
        converted,
        reused,
        comparison,
    })
}

/// Whether a reader of the new file takes the new sections for its tables.
fn is_found(new: &File, converted: &Converted) -> bool {
    converted.sections.iter().all(|section| {
        let kind = SectionKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == section.name);
        // Only our own tests read the lookup table of ORC.
        let Some(kind) = kind else { return true };
        let found = new.image().section(kind);
        found.is_some_and(|f| f.address == section.address && f.data[..] == section.bytes[..])
    })
}

fn shown(rule: Option<&Rule>) -> String {
    rule.map_or_else(|| "no row".to_owned(), Rule::to_string)
}

/// The file with the new `.sframe` in the place of the old one, if it fits there.
fn over_old(
    editor: &Editor<'_>,
    file: &File,
    source: &Table,
    options: &Options,
    converted: &Converted,
) -> Result<Option<(Vec<u8>, Converted)>, InFileError> {
    // A table of several sections cannot take the place of one.
    let [section] = &converted.sections[..] else {
        return Ok(None);
    };

    // It must fit, and be aligned as the new table has to be.
    let room = editor.reusable(section.name, PT_GNU_SFRAME);
    let room = room.filter(|room| {
        let fits = room.end - room.start >= section.bytes.len() as u64;
        fits && room.start % section.align == 0 && source.kind() != TableKind::Orc
    });
    let Some(room) = room else {
        return Ok(None);
    };

    // Written once more, because offsets in the table depend on where it lies.
    let options = Options {
        address: room.start,
        ..options.clone()
    };
    let converted = convert_table(file, source, &options)?;
    let Some(section) = converted.sections.first() else {
        return Ok(None);
    };

    let bytes = editor.replace(section)?;
    Ok(Some((bytes, converted)))
}

/// Compares the table of format `target` in `new` with `source`.
fn compare(source: &Table, new: &File, target: Target, report: &Report) -> Comparison {
    let encoding = match target {
        Target::Orc(encoding) => Some(encoding),
        _ => None,
    };
    match Table::read_as(new, target.kind(), encoding) {
        Some(table) => round_trip::compare(source, &table, target, report),
        None => Comparison::missing(source),
    }
}
