//! ORC tables as `objtool --dump=orc` prints them: one line for each entry, in stored order.
//!
//! The form changed with the layout of the entries (Linux `tools/objtool/orc_dump.c`,
//! `tools/objtool/arch/x86/orc.c`): since 6.4 the type comes first and `end` is gone. The entries
//! of a module are given as offsets in its sections.

use super::output::Text;
use super::{DumpError, DumpSummary, Filter};
use crate::file::File;
use std::io::{self, Write};
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::orc::{
    Encoding, Entry, EntryType, Layout, OrcReg, SpIndirect, Table, detect,
};

/// Writes the table to `out`, in `encoding` or in the detected one.
///
/// # Errors
/// Only those of `out`. What cannot be read is in the result.
pub fn write(
    file: &File,
    encoding: Option<Encoding>,
    filter: &Filter,
    out: impl Write,
) -> io::Result<DumpSummary> {
    let mut out = Text::new(out);
    let mut dumped = DumpSummary::default();
    let image = file.image();

    // Both sections are needed: entries have no addresses of their own.
    let sections = image
        .section(SectionKind::OrcUnwind)
        .zip(image.section(SectionKind::OrcUnwindIp));
    let Some((entries, ips)) = sections else {
        return Ok(dumped);
    };

    let table = match Table::new(&entries.data, &ips.data, ips.address) {
        Ok(table) => table,
        Err(error) => {
            dumped.problem(error.section, error.offset, DumpError::Reader(error.what));
            return Ok(dumped);
        }
    };

    // No entry says which layout it has.
    let Some(encoding) = encoding.or_else(|| detect(image, &table)) else {
        let what = "the entries fit no known layout; give the kernel's version";
        dumped.problem(".orc_unwind", 0, DumpError::Reader(what));
        return Ok(dumped);
    };

    for index in 0..table.len() {
        // An entry holds up to the next one's address, but is shown by where it starts.
        let Some(ip) = table.ip(index) else { break };
        if !filter.shows(&(ip..ip.saturating_add(1))) {
            continue;
        }
        match table.entry(index, encoding.layout) {
            Some(Ok(entry)) => {
                // In a relocatable object, addresses are made up, so the place is an offset in a
                // section.
                match file.place(ip) {
                    Some((section, offset)) => out.text(&format!("{section}+{offset:x}:")),
                    None => out.text(&format!("{ip:x}:")),
                }
                let flags = table.flags(index).unwrap_or(0);
                out.text(&line(&entry, flags, encoding));
                dumped.rows += 1;
                out.line()?;
            }
            Some(Err(error)) => {
                dumped.problem(error.section, error.offset, DumpError::Reader(error.what));
            }
            None => break,
        }
    }

    out.flush()?;
    Ok(dumped)
}

/// What follows the address.
fn line(entry: &Entry, flags: u16, encoding: Encoding) -> String {
    let sp = register(entry.sp_reg, entry.sp_offset, encoding);
    let bp = register(entry.bp_reg, entry.bp_offset, encoding);
    let signal = u8::from(entry.signal);
    let old = ["call", "regs", "regs (partial)", "?"][usize::from(flags >> 8 & 3)];
    let end = u8::from(entry.kind == EntryType::EndOfStack);
    match encoding.layout {
        Layout::V4_14 => format!(" sp:{sp} bp:{bp} type:{old} end:{end}"),
        Layout::V6_3 => format!(" sp:{sp} bp:{bp} type:{old} signal:{signal} end:{end}"),
        Layout::V6_4 | Layout::V7_1 => {
            let kind = match entry.kind {
                EntryType::Undefined => "(und)",
                EntryType::EndOfStack => "end",
                EntryType::Call => "call",
                EntryType::Regs => "regs",
                EntryType::RegsPartial => "regs (partial)",
            };
            format!("type:{kind} sp:{sp} bp:{bp} signal:{signal}")
        }
    }
}

fn register(register: OrcReg, offset: i16, encoding: Encoding) -> String {
    let name = match register {
        OrcReg::Undefined => return "(und)".to_owned(),
        OrcReg::BpIndirect => return format!("(bp{offset:+})"),
        OrcReg::SpIndirect => {
            return match encoding.sp_indirect {
                SpIndirect::LoadAtOffset => format!("(sp{offset:+})"),
                SpIndirect::LoadThenAdd => format!("(sp){offset:+}"),
            };
        }
        OrcReg::PrevSp => "prevsp",
        OrcReg::Ax => "ax",
        OrcReg::Dx => "dx",
        OrcReg::Di => "di",
        OrcReg::Bp => "bp",
        OrcReg::Sp => "sp",
        OrcReg::R10 => "r10",
        OrcReg::R13 => "r13",
    };
    format!("{name}{offset:+}")
}
