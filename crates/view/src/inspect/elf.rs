//! Shows an ELF file's unwind tables: units, rows, what is malformed and where, and which rows of
//! its `.eh_frame` SFrame and ORC cannot represent.

use super::columns::{Columns, cells, field, list};
use super::{InspectError, map, told_encoding};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::ToldLayout;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::{Derived, derive_all};
use unwind_sim_unwind::elf::{self, Elf};
use unwind_sim_unwind::image::{Image, Section, SectionKind};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::orc::derived::OrcEntry;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::derived::SframeV3;
use unwind_sim_unwind::{dwarf, orc, sframe};

/// How many malformed places are listed; the rest are counted.
const LISTED_MAX: usize = 20;

/// Reads an ELF file.
pub(super) fn open(file: &InputFile) -> Result<Elf, InspectError> {
    let owner = map(file)?;
    let name = file.path().to_string_lossy();
    elf::read(&name, owner, &elf::ReadOptions::default()).map_err(|source| InspectError::Elf {
        path: file.path().into(),
        source,
    })
}

/// The text for an ELF file.
pub(super) fn show(file: &InputFile, told: Option<&ToldLayout>) -> Result<String, InspectError> {
    let elf = open(file)?;
    let mut out = String::from("an ELF file\n");
    head(&mut out, &elf);

    let problems: Vec<String> = elf.problems.iter().map(ToString::to_string).collect();
    for section in &elf.empty {
        let name = section.as_str();
        let _ = writeln!(out, "\n{name}: 0 bytes, an empty table of no function");
    }

    // The problems were copied before this takes the file apart.
    let image = elf.into_image();
    let told = told_encoding(file, &image, told)?;

    // Tables in the order in which an unwinder asks them.
    for kind in [TableKind::EhFrame, TableKind::DebugFrame] {
        dwarf_table(&mut out, &image, kind);
    }
    if let Some(section) = image.section(SectionKind::Sframe) {
        sframe_table(&mut out, &image, section);
    }
    orc_table(&mut out, &image, told);

    // What would be lost of `.eh_frame` in formats that say less.
    if image.section(SectionKind::EhFrame).is_some() {
        // One cache for both derived tables: they are made from the same compiled rows.
        let mut cache = Cache::new();
        let derived = derive_all::<SframeV3>(&image, &mut cache);
        losses(&mut out, TableKind::SframeDerived, &derived);
        let derived = derive_all::<OrcEntry>(&image, &mut cache);
        losses(&mut out, TableKind::OrcDerived, &derived);
    }

    // At the end, so that a long list does not hide the tables.
    if !problems.is_empty() {
        out.push_str("\nproblems\n");
        list(&mut out, &problems, LISTED_MAX);
    }

    Ok(out)
}

fn head(out: &mut String, elf: &Elf) {
    let parts = &elf.parts;
    if !parts.build_id.is_empty() {
        field(out, "build id", hex_bytes(&parts.build_id));
    }
    let text = parts.text.iter().map(|r| r.end.saturating_sub(r.start));

    // Ranges come from the file, so their sum may be anything; it must not overflow.
    let text = text.fold(0_u64, u64::saturating_add);
    let ranges = parts.text.len();
    field(
        out,
        "text",
        format_args!("{} in {}", counted(text, "byte"), counted(ranges, "range")),
    );

    // Stripped files have only the symbols that the dynamic linker needs.
    let table = if elf.has_symtab { ".symtab" } else { ".dynsym" };
    let symbols = parts.symbols.len();
    field(out, "symbols", format_args!("{symbols} from {table}"));

    if let Some(link) = &elf.debug_link {
        let text = format_args!("{} (crc {:#x})", link.name, link.crc);
        field(out, "debug file", text);
    }
    // `.gnu_debugdata`: the symbols of a stripped file.
    if let Some(data) = &elf.debug_data {
        let bytes = data.len();
        field(
            out,
            "debug data",
            format_args!("{}, compressed", counted(bytes, "byte")),
        );
    }

    let mut sections = Columns::new(&["section", "address", "bytes"]);

    // `.got` is kept only for its address, and is listed for it.
    let with_bytes =
        |section: &&Section| section.kind.has_contents() || section.kind == SectionKind::Got;
    for section in parts.sections.iter().filter(with_bytes) {
        let (name, at) = (section.kind.as_str(), format!("{:#x}", section.address));
        sections.row(cells![name, at, section.data.len()]);
    }
    if !sections.is_empty() {
        out.push_str("\nsections\n");
        sections.write(out);
    }
}

fn heading(out: &mut String, section: &Section, what: &str) {
    let (name, bytes) = (section.kind.as_str(), section.data.len());
    let _ = writeln!(out, "\n{name}: {}{what}", counted(bytes, "byte"));
}

fn malformed(out: &mut String, found: &[String]) {
    field(out, "malformed", found.len());
    list(out, found, LISTED_MAX);
}

fn dwarf_table(out: &mut String, image: &Image, kind: TableKind) {
    let Some(section) = kind.section().and_then(|s| image.section(s)) else {
        return;
    };
    // Nothing indexes `.debug_frame` in this way.
    let hdr = image.section(SectionKind::EhFrameHdr).is_some() && kind == TableKind::EhFrame;
    let indexed = if hdr { ", with .eh_frame_hdr" } else { "" };
    heading(out, section, indexed);

    let mut cache = Cache::new();
    let (mut units, mut rows, mut expressions, mut bad) = (0_u64, 0, 0_u64, Vec::new());
    let mut covered = 0_u64;

    // An FDE that cannot be read is listed as malformed; it has no rows to count.
    for unit in dwarf::units(image, kind) {
        let compiled = unit.and_then(|unit| {
            // Covered even if its program is malformed: the table claims these addresses.
            let size = unit.range.end.saturating_sub(unit.range.start);
            covered = covered.saturating_add(size);
            dwarf::compile_unit(image, kind, unit.offset, &mut cache)
        });

        match compiled {
            Err(reason) => bad.push(reason.to_string()),
            Ok(unit) => {
                units += 1;
                rows += cache.unit_rows(unit).len();

                // An expression is what most readers of DWARF tables do not support, so rows with
                // one are counted.
                let has_expression = |row| {
                    use unwind_sim_unwind::rule::Value::Expression;
                    let rule = cache.rule(row);
                    let values = rule.saved.iter().chain([&rule.cfa, &rule.ra]);
                    values.into_iter().any(|v| matches!(v, Expression(_)))
                };
                let found = cache.unit_rows(unit).filter(|row| has_expression(*row));
                expressions += found.count() as u64;

                // The rows before the malformed instruction are valid, so such a unit counts as
                // one, too.
                if let Some((from, reason)) = cache.unit_error(unit) {
                    bad.push(format!("from {from:#x} on: {reason}"));
                }
            }
        }
    }

    field(out, "units", units);
    field(out, "rows", rows);
    field(
        out,
        "expressions",
        format_args!("in {}", counted(expressions, "row")),
    );
    field(out, "covers", counted(covered, "byte"));
    malformed(out, &bad);
}

/// The maximum number of rows that are read for each byte of a section. A row takes at least three
/// bytes and functions rarely share rows. Without a limit, a table in which all functions share
/// them would take time proportional to the square of its size.
const ROWS_PER_BYTE_MAX: u64 = 4;

fn sframe_table(out: &mut String, image: &Image, section: &Section) {
    // A header that cannot be read leaves nothing to show but why.
    let table = match sframe::Table::parse(&section.data, section.address) {
        Ok(table) => table,
        Err(error) => {
            heading(out, section, "");
            malformed(out, &[error.to_string()]);
            return;
        }
    };

    let header = table.header();
    heading(out, section, &format!(", version {}", header.version as u8));
    let flags = [
        (sframe::FLAG_FDE_SORTED, "sorted"),
        (sframe::FLAG_FRAME_POINTER, "frame-pointer"),
        (sframe::FLAG_FUNC_START_PCREL, "pcrel"),
    ];

    // Unknown bits are in the number, even if they have no name.
    let set = flags.iter().filter(|(flag, _)| header.has(*flag));
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    let flags = format!("{:#x} {}", header.flags, set.join(" "));
    field(out, "flags", flags.trim_end());

    let (mut fdes, mut fres, mut bad) = (0, BTreeSet::new(), Vec::new());
    let (mut flex, mut masked, mut signal) = (0_u64, 0_u64, 0_u64);

    // Functions may share their rows, so the number of rows read is bounded by the section's size,
    // not by what FDEs claim.
    let mut left = section.data.len() as u64 * ROWS_PER_BYTE_MAX;
    let mut unread = 0_u64;

    for fde in table.fdes() {
        match fde {
            Err(error) => bad.push(error.to_string()),
            Ok(fde) => {
                fdes += 1;
                flex += u64::from(fde.flex);
                masked += u64::from(fde.rep_size.is_some());
                signal += u64::from(fde.signal);

                // Past the bound FDEs are counted, but their rows are not read.
                match left {
                    0 => unread += 1,
                    _ => bad.extend(sframe_rows(&table, &fde, image, &mut fres, &mut left)),
                }
            }
        }
    }

    if unread > 0 {
        bad.push(format!(
            "functions share their rows too often: those of {unread} were not read"
        ));
    }
    // Tables that a linker put one behind the other: readers see only the first.
    bad.extend(table.behind().map(|unread| unread.to_string()));

    let kinds = format!("{flex} flexible, {masked} PCMASK, {signal} signal");
    let stated = header.num_fdes;
    field(out, "FDEs", format_args!("{fdes} of {stated}: {kinds}"));

    // Functions may share rows, so fewer than stated are in order; more are not.
    let (found, stated) = (fres.len() as u64, u64::from(header.num_fres));
    if found <= stated {
        field(out, "FREs", format_args!("{found} of {stated}"))
    } else {
        field(
            out,
            "FREs",
            format_args!("{found}; the header says {stated}"),
        )
    }

    malformed(out, &bad);
    // Readers refuse some tables that the format allows.
    for profile in sframe::Profile::ALL {
        if let Err(error) = profile.check_table(&table) {
            field(out, profile.as_str(), format_args!("rejects it: {error}"));
        }
    }
}

/// Adds the offsets of the readable rows of a function to `fres`; functions may share some. Returns
/// what is malformed, as a walk would report it. `left` is the number of rows that may still be
/// read.
fn sframe_rows(
    table: &sframe::Table<'_>,
    fde: &sframe::Fde,
    image: &Image,
    fres: &mut BTreeSet<u64>,
    left: &mut u64,
) -> Option<String> {
    // A cache for one function: it would keep the rows of all.
    let mut cache = Cache::new();
    let unit = sframe::compile_unit(table, fde, image, &mut cache);

    *left = left.saturating_sub(cache.unit_rows(unit).len() as u64);
    let Some((from, reason)) = cache.unit_error(unit) else {
        // Including rows past the function's end, which apply to no address.
        let stored = table.fres(fde).map_while(Result::ok);
        fres.extend(stored.map(|fre| {
            *left = left.saturating_sub(1);
            fre.offset
        }));
        return None;
    };

    // The rows before the one that cannot be read are readable.
    let rows = cache
        .unit_rows(unit)
        .map(|row| cache.source(row).row_offset);
    fres.extend(rows.filter(|&offset| offset != fde.offset));

    Some(format!("from {from:#x} on: {reason}"))
}

fn orc_table(out: &mut String, image: &Image, told: Option<Encoding>) {
    let entries = image.section(SectionKind::OrcUnwind);
    let (Some(entries), Some(ips)) = (entries, image.section(SectionKind::OrcUnwindIp)) else {
        return;
    };

    // The two sections belong together: one has the addresses, the other the rows.
    let table = match orc::Table::new(&entries.data, &ips.data, ips.address) {
        Ok(table) => table,
        Err(error) => {
            heading(out, entries, "");
            malformed(out, &[error.to_string()]);
            return;
        }
    };

    // The layout differs between kernel versions, and the entries do not say which it is.
    let Some(encoding) = told.or_else(|| orc::detect(image, &table)) else {
        heading(out, entries, ", unknown layout");
        field(out, "entries", table.len());
        return;
    };
    heading(out, entries, &format!(", layout {}", encoding.as_str()));

    let mut bad = Vec::new();
    let mut kinds = std::collections::BTreeMap::new();
    for index in 0..table.len() {
        let entry = match table.entry(index, encoding.layout) {
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                bad.push(error.to_string());
                continue;
            }
            None => continue,
        };

        // An entry may be well-formed, and yet have a type or base register without a meaning.
        match entry.rule(encoding.sp_indirect) {
            Ok(_) => *kinds.entry(format!("{:?}", entry.kind)).or_insert(0_u64) += 1,
            Err(what) => {
                // Entries have one size, so an index gives the offset that a hex dump needs.
                let offset = (index * orc::ENTRY_LEN) as u64;
                let section = ".orc_unwind";
                let reason = Reason::MalformedRow {
                    section,
                    offset,
                    what,
                };
                bad.push(reason.to_string());
            }
        }
    }

    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    let kinds = kinds.join(", ").to_lowercase();
    field(out, "entries", format_args!("{}: {kinds}", table.len()));

    // The kernel sorts a module's table when it loads it (`unwind_module_init`, `unwind_orc.c`).
    let sorted = table.order(encoding.layout).is_none();
    field(out, "sorted", if sorted { "yes" } else { "no" });
    malformed(out, &bad);
}

fn losses(out: &mut String, kind: TableKind, derived: &Derived) {
    let lost = derived.losses.rows_lost();
    let (rows, kept) = (derived.rows, derived.rows.saturating_sub(lost));
    let _ = writeln!(out, "\n{}: holds {kept} of {rows} rows", kind.as_str());
    let mut table = Columns::new(&["rows", "loss", ""]);
    for (loss, count) in derived.losses.iter() {
        table.row(cells![count, loss.as_str(), loss.description()]);
    }
    if !table.is_empty() {
        table.write(out);
    }
}

#[cfg(test)]
mod tests;
