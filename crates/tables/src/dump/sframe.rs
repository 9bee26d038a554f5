//! `.sframe` as `objdump --sframe` prints it: the section's header, then every function with its
//! rows, in stored order.
//!
//! The forms of binutils 2.40 (V1) and of 2.44 to 2.47 (V2, V3). The addresses of a relocatable
//! object are offsets in its sections. Of concatenated sections only the first is a table, as for
//! every reader; the rest is reported as a problem.

use super::output::Text;
use super::{DumpError, DumpSummary, Filter};
use crate::file::File;
use std::io::{self, Write};
use unwind_sim_unwind::image::{Section, SectionKind};
use unwind_sim_unwind::sframe::{
    FLAG_FDE_SORTED, FLAG_FRAME_POINTER, FLAG_FUNC_START_PCREL, Fde, Header, Malformed, Table,
    TextRow, Version, text_rows,
};

const NAME: &str = ".sframe";

/// The maximum number of rows for each byte of a section. A row takes at least three bytes, and
/// functions seldom share rows.
const ROWS_PER_BYTE_MAX: u64 = 4;

/// Writes every `.sframe` section to `out`.
///
/// # Errors
/// Only those of `out`. What cannot be read is in the result.
pub fn write(file: &File, filter: &Filter, out: impl Write) -> io::Result<DumpSummary> {
    let mut writer = Writer {
        file,
        filter,
        out: Text::new(out),
        dumped: DumpSummary::default(),
    };
    for section in file.image().sections() {
        if section.kind == SectionKind::Sframe {
            writer.section(section)?;
        }
    }
    writer.out.flush()?;
    Ok(writer.dumped)
}

struct Writer<'a, W> {
    file: &'a File,
    filter: &'a Filter,
    out: Text<W>,
    dumped: DumpSummary,
}

impl<W: Write> Writer<'_, W> {
    fn problem(&mut self, error: Malformed) {
        self.dumped
            .problem(NAME, error.offset, DumpError::Reader(error.what));
    }

    fn section(&mut self, section: &Section) -> io::Result<()> {
        if section.data.is_empty() {
            return Ok(());
        }
        let table = match Table::parse(&section.data, section.address) {
            Ok(table) => table,
            Err(error) => {
                self.problem(error);
                return Ok(());
            }
        };
        self.header(table.header());
        let mut left = ROWS_PER_BYTE_MAX.saturating_mul(section.data.len() as u64);
        for fde in table.fdes() {
            match fde {
                Ok(fde) => self.function(&table, &fde, &mut left)?,
                Err(error) => self.problem(error),
            }
        }
        if let Some(unread) = table.behind() {
            self.problem(unread);
        }
        Ok(())
    }

    fn header(&mut self, header: &Header) {
        // The text is objdump's, line by line, so that both can be compared.
        let out = &mut self.out;
        out.text("Contents of the SFrame section .sframe:\n  Header :\n\n");
        out.text("    Version: SFRAME_VERSION_");
        out.decimal(header.version as u64);
        out.text("\n    Flags: ");

        const FLAGS: [(u8, &str); 3] = [
            (FLAG_FDE_SORTED, "SFRAME_F_FDE_SORTED"),
            (FLAG_FRAME_POINTER, "SFRAME_F_FRAME_POINTER"),
            (FLAG_FUNC_START_PCREL, "SFRAME_F_FDE_FUNC_START_PCREL"),
        ];

        // Flags without a name are not printed, as in objdump.
        let mut separator = "";
        for (_, name) in FLAGS.iter().filter(|(flag, _)| header.has(*flag)) {
            out.text(separator);
            out.text(name);
            separator = ",\n           ";
        }
        if header.flags == 0 {
            out.text("NONE");
        }

        // In the form of V1, that of binutils 2.40, these lines are missing.
        if header.version > Version::V1 {
            for (name, offset) in [
                ("FP", header.cfa_fixed_fp_offset),
                ("RA", header.cfa_fixed_ra_offset),
            ] {
                if offset != 0 {
                    out.text(&format!("\n    CFA fixed {name} offset: {offset}"));
                }
            }
        }

        out.text("\n    Num FDEs: ");
        out.decimal(header.num_fdes.into());
        out.text("\n    Num FREs: ");
        out.decimal(header.num_fres.into());
        out.text("\n\n  Function Index :\n");
    }

    fn function(&mut self, table: &Table<'_>, fde: &Fde, left: &mut u64) -> io::Result<()> {
        // Rows of functions that are left out are not read.
        let range = fde.start..fde.start.saturating_add(fde.size.into());
        if !self.filter.shows(&range) {
            return Ok(());
        }
        self.dumped.functions += 1;

        // In an object, addresses are made up, so the offset in the section is shown.
        let place = self.file.place(fde.start);
        let base = place.map_or(0, |(_, offset)| fde.start.wrapping_sub(offset));
        let attributes = match (fde.signal, fde.flex) {
            (true, true) => ", attr = \"SF\"",
            (true, false) => ", attr = \"S\"",
            (false, true) => ", attr = \"F\"",
            (false, false) => "",
        };

        let start = fde.start.wrapping_sub(base);
        let repeats = if fde.rep_size.is_some() { "[m]" } else { "   " };
        self.out.text(&format!(
            "\n    func idx [{}]: pc = {start:#x}, size = {} bytes{attributes}\n",
            fde.index, fde.size
        ));
        self.out.text(&format!(
            "    STARTPC{repeats}      CFA       FP        RA           "
        ));
        self.out.line()?;

        // Functions may share rows, so the number of rows of all of them is bounded.
        for row in text_rows(table, fde) {
            let Some(rest) = left.checked_sub(1) else {
                let what = "too many functions share these rows";
                let offset = fde.offset;
                self.problem(Malformed { offset, what });
                break;
            };
            *left = rest;
            match row {
                Ok(row) => {
                    // Rows of a repeated function are offsets in its block, which need no base.
                    let base = if fde.rep_size.is_some() { 0 } else { base };
                    self.row(&row, base)?;
                }
                Err(error) => self.problem(error),
            }
        }
        Ok(())
    }

    fn row(&mut self, row: &TextRow, base: u64) -> io::Result<()> {
        self.dumped.rows += 1;
        let out = &mut self.out;
        out.text("    ");
        out.hex::<16>(row.pc.wrapping_sub(base));
        out.text("  ");
        if row.cfa.is_empty() {
            out.text(&row.ra);
            return out.line();
        }
        for column in [&row.cfa, &row.fp] {
            let mark = out.mark();
            out.text(column);
            out.fill(mark, 10);
        }
        let mark = out.mark();
        out.text(&row.ra);
        // Three columns for the mark of a mangled return address, which x86-64 does not have.
        out.text("   ");
        out.fill(mark, 13);
        out.line()
    }
}
