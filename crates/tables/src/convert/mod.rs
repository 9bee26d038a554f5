//! Converts a table of one format into another: [`convert`].
//!
//! - [`target`]: the formats that can be written;
//! - `source`: functions and rows of any table, as the conversion needs them;
//! - `pieces`: divides functions where the format cannot hold a row;
//! - [`loss`]: what was lost, by function and reason;
//! - [`in_file`]: the ELF file with the new table;
//! - [`expressible`]: what each format can express, by its specification, not by what is written;
//! - [`round_trip`]: compares a converted table with its source.
//!
//! The result is sections in memory; [`crate::elf_write`] puts them into a file.

pub mod expressible;
pub mod in_file;
pub mod loss;
pub(crate) mod pieces;
pub mod round_trip;
pub(crate) mod source;
pub mod target;

pub use loss::{FunctionLoss, LossReason, Report};
pub use target::Target;

use crate::file::File;
use crate::table::Table;
use crate::write::eh_frame::EhFrameWriter;
use crate::write::orc::OrcWriter;
use crate::write::sframe::SframeWriter;
use crate::write::{NewSection, WriteError, Writer};
use source::Source;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::orc::{self, Encoding, Layout};
use unwind_sim_unwind::row::TableKind;

/// What to convert, and into what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format to write.
    pub to: Target,
    /// The table to read; `None` for the one that [`source_kind`] chooses.
    pub from: Option<TableKind>,
    /// The encoding of an ORC table that is read; `None` to detect it.
    pub from_orc: Option<Encoding>,
    /// Let functions with the same rows share them (SFrame). See [`crate::write::sframe`] for the
    /// reader that does not accept that.
    pub share: bool,
    /// The address (svma) of the new sections.
    pub address: u64,
}

/// A converted table.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The table that was read.
    pub from: TableKind,
    /// The sections to add, by address.
    pub sections: Vec<NewSection>,
    /// What was lost, and how much was read and written.
    pub report: Report,
}

/// Why nothing was converted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The file has no table to read.
    #[error("{file} has no {wanted} to convert to {to}")]
    NoTable {
        /// The file's name.
        file: String,
        /// The tables looked for.
        wanted: &'static str,
        /// The format to write.
        to: &'static str,
    },
    /// The ORC entries have another encoding than the one named.
    #[error(
        "{file}: the ORC entries have the layout of Linux {}, not of {told}; leave --orc-layout out, or \
         name that one",
        fits.as_str()
    )]
    OrcLayout {
        /// The file's name.
        file: String,
        /// The layout that was named.
        told: &'static str,
        /// The layout that fits.
        fits: Layout,
    },
    /// No row could be converted.
    #[error("{file}: none of the {rows} rows of its {from} can be expressed as {to}")]
    Nothing {
        /// The file's name.
        file: String,
        /// The table that was read.
        from: &'static str,
        /// The format to write.
        to: &'static str,
        /// The number of rows read from the source.
        rows: u64,
    },
    /// The source has this format already.
    #[error("{file}: its {from} is already that; name another table to read with --from")]
    Same {
        /// The file's name.
        file: String,
        /// The table that was read.
        from: &'static str,
    },
    /// A limit of the format was exceeded.
    #[error("{file}: {error}")]
    Write {
        /// The file's name.
        file: String,
        /// Which limit of the format was exceeded.
        error: WriteError,
    },
}

/// The table of `file` that a conversion to `to` reads: `.eh_frame`, or else `.sframe`, ORC,
/// `.debug_frame`; never the kind that is written, except that one version of SFrame can be
/// converted to another.
pub fn source_kind(file: &File, to: Target) -> Option<TableKind> {
    let kinds = [
        TableKind::EhFrame,
        TableKind::Sframe,
        TableKind::Orc,
        TableKind::DebugFrame,
    ];
    kinds.into_iter().find(|kind| {
        let there = kind
            .section()
            .is_some_and(|s| file.image().section(s).is_some());
        let same = match to {
            Target::EhFrame => *kind == TableKind::EhFrame,
            Target::Orc(_) => *kind == TableKind::Orc,
            Target::Sframe(_) => false,
        };
        there && !same
    })
}

/// Converts a table of `file`.
///
/// # Errors
/// If the file has no such table, nothing of it can be expressed, or a limit of the format is
/// exceeded.
pub fn convert(file: &File, options: &Options) -> Result<Converted, ConvertError> {
    let table = read_source(file, options)?;
    let mut converted = convert_table(file, &table, options)?;
    converted.report.lose_others(file, &table);
    Ok(converted)
}

/// The table that a conversion reads.
pub(crate) fn read_source(file: &File, options: &Options) -> Result<Table, ConvertError> {
    let kind = options.from.or_else(|| source_kind(file, options.to));
    if let (Some(TableKind::Orc), Some(told)) = (kind, options.from_orc) {
        check_layout(file, told)?;
    }
    let table = kind.and_then(|kind| Table::read_as(file, kind, options.from_orc));
    let Some(table) = table else {
        return Err(ConvertError::NoTable {
            file: file.name().to_owned(),
            wanted: options.from.map_or("other unwind table", TableKind::as_str),
            to: options.to.as_str(),
        });
    };
    if options.to == Target::EhFrame && table.kind() == TableKind::EhFrame {
        return Err(ConvertError::Same {
            file: file.name().to_owned(),
            from: table.kind().as_str(),
        });
    }
    Ok(table)
}

/// Refuses a layout that the file's ORC entries do not have.
fn check_layout(file: &File, told: Encoding) -> Result<(), ConvertError> {
    let section = |kind| file.image().section(kind);
    let (Some(entries), Some(ips)) = (
        section(SectionKind::OrcUnwind),
        section(SectionKind::OrcUnwindIp),
    ) else {
        return Ok(());
    };
    // A malformed table is reported when it is read.
    let table = orc::Table::new(&entries.data, &ips.data, ips.address).ok();
    let header = section(SectionKind::OrcHeader);
    match table.and_then(|table| orc::other_than(&table, header, told.layout)) {
        Some(fits) => Err(ConvertError::OrcLayout {
            file: file.name().to_owned(),
            told: told.as_str(),
            fits,
        }),
        None => Ok(()),
    }
}

/// Converts `table`, which was read from `file`.
///
/// # Errors
/// See [`convert`].
pub fn convert_table(
    file: &File,
    table: &Table,
    options: &Options,
) -> Result<Converted, ConvertError> {
    let source = Source::new(file, table);
    let mut report = Report::default();

    let written = match options.to {
        Target::Sframe(version) => {
            let writer = SframeWriter::new(version);
            let writer = if options.share {
                writer.share()
            } else {
                writer
            };
            write(&source, writer, options.address, &mut report)
        }
        Target::Orc(encoding) => {
            // `.orc_lookup` is for all of the text.
            let writer = OrcWriter::new(encoding, text(file));
            write(&source, writer, options.address, &mut report)
        }
        Target::EhFrame => {
            // The expressions of rules are ranges of the source's section.
            let writer = EhFrameWriter::new(table.section());
            write(&source, writer, options.address, &mut report)
        }
    };

    let sections = written.map_err(|error| ConvertError::Write {
        file: file.name().to_owned(),
        error,
    })?;

    // An empty table would pass for a conversion without losses.
    if report.rows_written == 0 {
        return Err(ConvertError::Nothing {
            file: file.name().to_owned(),
            from: table.kind().as_str(),
            to: options.to.as_str(),
            rows: report.rows_read,
        });
    }

    Ok(Converted {
        from: table.kind(),
        sections,
        report,
    })
}

fn write<W: Writer>(
    source: &Source<'_>,
    mut writer: W,
    address: u64,
    report: &mut Report,
) -> Result<Vec<NewSection>, WriteError> {
    pieces::write(source, &mut writer, report)?;
    writer.finish(address)
}

/// From the first to the last executable address (svma).
pub(crate) fn text(file: &File) -> std::ops::Range<u64> {
    let text = file.image().text();
    let end = text.iter().map(|range| range.end).max();
    text.first().map_or(0, |range| range.start)..end.unwrap_or(0)
}

#[cfg(test)]
mod tests;
