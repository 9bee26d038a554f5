//! `.eh_frame` and `.debug_frame` as `readelf --debug-dump=frames-interp` prints them.
//!
//! Byte for byte, where readelf is right. A row is printed for every instruction that moves the
//! location, even if nothing changed; entries without instructions have no table. The addresses of
//! a relocatable object are offsets in its sections.

mod columns;
mod entry;
mod names;
#[cfg(test)]
mod tests;
mod versions;

use super::output::Text;
use super::{DumpError, DumpSummary, Filter};
use crate::file::File;
use columns::{CieState, Column, Columns, Step};
use entry::{CfiEntry, Item};
use gimli::{BaseAddresses, CallFrameInstructionIter, EndianSlice, LittleEndian, UnwindSection};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;
use unwind_sim_unwind::image::{Section, SectionKind};
use unwind_sim_unwind::row::TableKind;

type Input<'a> = EndianSlice<'a, LittleEndian>;

/// The limit for the total length of all CIEs that FDEs refer to, as a multiple of the section's
/// length. Valid CIEs do not overlap.
const CIE_WORK_MAX: usize = 32;

/// Writes every section of these kinds (`EhFrame` and `DebugFrame`) to `out`.
///
/// # Errors
/// Only those of `out`. What cannot be read is in the result.
pub fn write(
    file: &File,
    kinds: &[TableKind],
    filter: &Filter,
    out: impl Write,
) -> io::Result<DumpSummary> {
    let mut text = Text::new(out);
    let mut dumped = DumpSummary::default();
    let image = file.image();
    let address = |kind| image.section(kind).map(|s| s.address);

    // `DW_EH_PE_datarel` and `DW_EH_PE_textrel` are relative to these sections.
    let mut bases = BaseAddresses::default();
    if let Some(got) = address(SectionKind::Got) {
        bases = bases.set_got(got);
    }
    if let Some(code) = file.code().iter().find(|c| c.name == ".text") {
        bases = bases.set_text(code.range.start);
    }

    // In the order of the file's section headers, as readelf.
    let order = &file.facts().order;

    // Sections that the headers do not name come last.
    let place = |section: &&Section| order.iter().position(|name| *name == section.kind.as_str());
    let mut sections: Vec<&Section> = image.sections().iter().collect();
    sections.sort_by_key(|section| place(section).unwrap_or(usize::MAX));

    for section in sections {
        let wanted = |kind: &&TableKind| kind.section() == Some(section.kind);
        let Some(kind) = kinds.iter().find(wanted) else {
            continue;
        };

        // Pointers relative to the section itself need its address.
        let bases = bases.clone().set_eh_frame(section.address);
        let data = match kind {
            TableKind::EhFrame => versions::as_3(&section.data),
            _ => Cow::Borrowed(&section.data[..]),
        };

        // Offsets of CIEs are those of one section, so each has a writer of its own.
        let mut writer = Writer {
            file,
            filter,
            bases: &bases,
            data: &data,
            name: section.kind.as_str(),
            out: &mut text,
            dumped: &mut dumped,
            columns: Columns::new(),
            cies: HashMap::new(),
            // The work is bounded by the length of the section, not by what its entries claim.
            cie_work: section.data.len().saturating_mul(CIE_WORK_MAX),
        };

        match kind {
            TableKind::EhFrame => writer.section(&eh_frame(&data), true)?,
            TableKind::DebugFrame => writer.section(&debug_frame(&data), false)?,
            _ => {}
        }
    }

    text.flush()?;
    Ok(dumped)
}

fn eh_frame(data: &[u8]) -> gimli::EhFrame<Input<'_>> {
    let mut table = gimli::EhFrame::new(data, LittleEndian);
    table.set_address_size(8);
    table
}

fn debug_frame(data: &[u8]) -> gimli::DebugFrame<Input<'_>> {
    let mut table = gimli::DebugFrame::new(data, LittleEndian);
    table.set_address_size(8);
    table
}

/// Writes one section.
struct Writer<'a, W> {
    file: &'a File,
    filter: &'a Filter,
    bases: &'a BaseAddresses,
    data: &'a [u8],
    name: &'static str,
    out: &'a mut Text<W>,
    dumped: &'a mut DumpSummary,
    columns: Columns,
    cies: HashMap<usize, Rc<Cie>>,
    cie_work: usize,
}

/// A CIE and its rules.
struct Cie {
    common: CieState,
    entry: CfiEntry,
    /// Whether it has been written.
    is_written: std::cell::Cell<bool>,
}

impl<'a, W: Write> Writer<'a, W> {
    fn section<S>(&mut self, table: &S, is_eh_frame: bool) -> io::Result<()>
    where
        S: UnwindSection<Input<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        self.out.text("Contents of the ");
        self.out.text(self.name);
        self.out.text(" section:\n");
        self.out.line()?;

        // Entries are found by their lengths alone, without reading what is in them.
        let mut offset = 0;
        while offset < self.data.len() {
            let item = entry::read(self.data, offset, is_eh_frame);
            let entry = match item {
                Ok(Item::Entry(entry)) => entry,
                Ok(Item::Terminator) => {
                    self.terminator(offset)?;
                    offset = self.after_terminator(offset);
                    continue;
                }

                // Without its length, an entry hides where the next one is.
                Err(wrong) => {
                    self.dumped.problem(self.name, offset as u64, wrong);
                    break;
                }
            };

            // Under a filter, a CIE is written with the first of its FDEs that is shown.
            let done = if !entry.is_cie {
                self.fde(table, &entry)?
            } else if self.filter.is_all() {
                match self.cie(table, entry.offset) {
                    Ok(cie) => {
                        self.write_cie(table, &cie)?;
                        Ok(())
                    }
                    Err(wrong) => Err(wrong),
                }
            } else {
                Ok(())
            };
            // Its length is known, so that what follows can be read even if the entry itself
            // cannot.
            if let Err(wrong) = done {
                self.dumped.problem(self.name, offset as u64, wrong);
            }
            offset = entry.end;
        }

        self.out.line()
    }

    fn terminator(&mut self, offset: usize) -> io::Result<()> {
        if self.filter.is_all() {
            self.out.text("\n");
            self.out.hex::<8>(offset as u64);
            self.out.text(" ZERO terminator\n");
            self.out.line()?;
        }
        Ok(())
    }

    /// The offset of the next entry after a terminator: further zero words belong to it.
    fn after_terminator(&self, offset: usize) -> usize {
        let rest = self.data.get(offset..).unwrap_or_default();
        let words = rest.chunks(4).take_while(|w| w.iter().all(|&b| b == 0));
        offset + words.map(<[u8]>::len).sum::<usize>()
    }

    /// The CIE at `offset`, read when first needed.
    fn cie<S>(&mut self, table: &S, offset: usize) -> Result<Rc<Cie>, DumpError>
    where
        S: UnwindSection<Input<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        // Many FDEs share a CIE, and its rules are computed once.
        if let Some(cie) = self.cies.get(&offset) {
            return Ok(cie.clone());
        }

        let cie = table.cie_from_offset(self.bases, offset.into());
        let cie = cie.map_err(DumpError::Gimli)?;
        let is_eh_frame = self.name == SectionKind::EhFrame.as_str();
        let Item::Entry(entry) = entry::read(self.data, offset, is_eh_frame)? else {
            return Err(DumpError::Reader("expected a CIE"));
        };

        // CIEs that overlap could make the work grow with the square of the section's length.
        let left = self.cie_work.checked_sub(entry.end - offset);
        self.cie_work = left.ok_or(DumpError::Reader("the table's CIEs overlap too much"))?;

        // The CIE's own instructions start from no rules, and leave the initial ones (DWARF 5,
        // 6.4.1).
        let none = CieState {
            code_align: cie.code_alignment_factor(),
            data_align: cie.data_alignment_factor(),
            ra: cie.return_address_register().0,
            cfa: Default::default(),
            registers: Vec::new(),
        };

        let program = || cie.instructions(table, self.bases);
        self.columns.start(0, &none, Program(program()));
        for op in Program(program()) {
            self.columns.step(&op, &none)?;
        }

        // What is left is what every FDE of the CIE starts with.
        let common = self.columns.common(none.ra);
        let cie = Rc::new(Cie {
            common,
            entry,
            is_written: false.into(),
        });
        self.cies.insert(offset, cie.clone());
        Ok(cie)
    }

    fn write_cie<S>(&mut self, table: &S, cie: &Cie) -> io::Result<()>
    where
        S: UnwindSection<Input<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        cie.is_written.set(true);

        // Printed as stored, with the factors that the instructions are multiplied with.
        self.header(&cie.entry);
        let common = &cie.common;
        self.out.text(" CIE \"");
        let augmentation = cie.entry.augmentation(self.data);
        self.out.text(&String::from_utf8_lossy(augmentation));
        self.out.text("\" cf=");
        self.out.decimal(common.code_align);
        self.out.text(" df=");
        if common.data_align < 0 {
            self.out.text("-");
        }
        self.out.decimal(common.data_align.unsigned_abs());
        self.out.text(" ra=");
        self.out.decimal(common.ra.into());
        self.out.line()?;

        // Read again, since instructions are an iterator over the section's bytes.
        let again = table.cie_from_offset(self.bases, cie.entry.offset.into());
        let Ok(again) = again else {
            return Ok(());
        };

        // readelf prints a CIE's own rows, too, which start from no rules.
        let none = CieState {
            cfa: Default::default(),
            registers: Vec::new(),
            ..common.clone()
        };

        let program = || again.instructions(table, self.bases);
        self.columns.start(0, &none, Program(program()));
        let at = cie.entry.offset;
        self.rows(program(), &none, 0, at)
    }

    /// Writes an FDE, unless the filter hides it.
    fn fde<S>(&mut self, table: &S, entry: &CfiEntry) -> io::Result<Result<(), DumpError>>
    where
        S: UnwindSection<Input<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        // First only the part that says which CIE it belongs to: its encoding is needed to read the
        // rest.
        let partial = table.partial_fde_from_offset(self.bases, entry.offset.into());
        let partial = match partial {
            Ok(partial) => partial,
            Err(error) => return Ok(Err(DumpError::Gimli(error))),
        };

        let at = gimli::UnwindOffset::into(partial.cie_offset());
        let fde = partial.parse(|_, bases, offset| table.cie_from_offset(bases, offset));
        let (cie, fde) = match (self.cie(table, at), fde) {
            (Ok(cie), Ok(fde)) => (cie, fde),
            (Err(wrong), _) => return Ok(Err(wrong)),
            (_, Err(error)) => return Ok(Err(DumpError::Gimli(error))),
        };

        let start = fde.initial_address();
        let range = start..start.wrapping_add(fde.len());

        // The CIE was read all the same: a filter is by address, which is known only now.
        if !self.filter.shows(&range) {
            return Ok(Ok(()));
        }

        // A CIE is written before the first of its FDEs that is shown.
        if !self.filter.is_all() && !cie.is_written.get() {
            self.write_cie(table, &cie)?;
        }
        self.dumped.functions += 1;

        // The addresses of an object are offsets in the section that the function is in.
        let base = self.base(start);
        self.header(entry);
        self.out.text(" FDE cie=");
        if entry.has_wide_id {
            self.out.hex::<16>(at as u64)
        } else {
            self.out.hex::<8>(at as u64)
        }
        self.out.text(" pc=");
        self.out.hex::<16>(start.wrapping_sub(base));
        self.out.text("..");
        self.out.hex::<16>(range.end.wrapping_sub(base));
        self.out.line()?;

        let program = || fde.instructions(table, self.bases);
        // A register has a column from the first row on, even if it is named only later.
        self.columns.start(start, &cie.common, Program(program()));
        self.rows(program(), &cie.common, base, entry.offset)?;
        Ok(Ok(()))
    }

    /// The address of the section of a relocatable object that has `address`; 0 in a program.
    fn base(&self, address: u64) -> u64 {
        let place = self.file.place(address);
        place.map_or(0, |(_, offset)| address.wrapping_sub(offset))
    }

    /// Offset, length and id.
    fn header(&mut self, entry: &CfiEntry) {
        self.out.text("\n");
        self.out.hex::<8>(entry.offset as u64);
        self.out.text(" ");
        self.out.hex::<16>(entry.length);
        self.out.text(" ");
        if entry.has_wide_id {
            self.out.hex::<16>(entry.id)
        } else {
            self.out.hex::<8>(entry.id)
        }
    }

    /// Runs the instructions of the entry at `offset` and writes its rows.
    fn rows(
        &mut self,
        program: CallFrameInstructionIter<'_, Input<'a>>,
        common: &CieState,
        base: u64,
        offset: usize,
    ) -> io::Result<()> {
        let mut program = program;
        let mut has_heading = false;
        let mut only_nops = true;
        loop {
            // An instruction that cannot be read ends the entry; its rows up to there are printed.
            let step = match program.next() {
                Ok(None) => break,
                Ok(Some(op)) => self.columns.step(&op, common),
                Err(error) => Err(DumpError::Gimli(error)),
            };
            match step {
                Ok(Step::Row(next)) => {
                    only_nops = false;
                    // Only now is the row complete: the location moves on (DWARF 5, 6.4.3).
                    self.row(common.ra, base, &mut has_heading)?;
                    self.columns.address = next;
                }
                Ok(step) => only_nops &= step == Step::Nop,
                Err(wrong) => {
                    self.dumped.problem(self.name, offset as u64, wrong);
                    break;
                }
            }
        }

        // Of an entry that has only no-operations, readelf prints no table.
        if only_nops {
            Ok(())
        } else {
            self.row(common.ra, base, &mut has_heading)
        }
    }

    fn row(&mut self, ra: u16, base: u64, has_heading: &mut bool) -> io::Result<()> {
        if !std::mem::replace(has_heading, true) {
            self.heading(ra)?;
        }
        self.dumped.rows += 1;

        // Columns are padded, so the position is remembered before each.
        let out = &mut *self.out;
        out.hex::<16>(self.columns.address.wrapping_sub(base));
        out.text(" ");
        let mark = out.mark();

        // An expression is not printed, only that there is one.
        let cfa = self.columns.cfa;
        if cfa.is_expression {
            out.text("exp");
        } else {
            names::write(cfa.register, out);
            out.signed(cfa.offset);
        }
        // readelf gives the CFA 8 columns, and each register 5.
        out.pad(mark, 8);

        for (_, column) in self.columns.columns() {
            let mark = out.mark();
            match column {
                Column::Undefined => out.text("u"),
                Column::Same => out.text("s"),
                Column::Offset(offset) => {
                    out.text("c");
                    out.signed(offset);
                }
                Column::ValOffset(offset) => {
                    out.text("v");
                    out.signed(offset);
                }
                Column::Register(number) => names::write_source(number, out),
                Column::Expression => out.text("exp"),
                Column::ValExpression => out.text("vexp"),
            }
            out.pad(mark, 5);
        }

        out.line()
    }

    fn heading(&mut self, ra: u16) -> io::Result<()> {
        let out = &mut *self.out;
        out.text("   LOC           CFA      ");
        for (number, _) in self.columns.columns() {
            let mark = out.mark();
            if number == ra {
                out.text("ra")
            } else {
                names::write(number, out)
            }
            out.pad(mark, 5);
        }
        out.line()
    }
}

/// The instructions up to the first malformed one.
struct Program<'a, 'i>(CallFrameInstructionIter<'a, Input<'i>>);

impl Iterator for Program<'_, '_> {
    type Item = gimli::CallFrameInstruction<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().ok().flatten()
    }
}
