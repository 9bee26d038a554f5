//! Shows a kernel image or a module: its packing, its symbols, and its ORC table, with entries
//! counted by type.

use super::columns::{Columns, cells, field, list};
use super::{InspectError, told_encoding};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::{
    self, EncodingSource, KernelImage, ModuleLoad, OpenOptions, ToldLayout,
};
use unwind_sim_unwind::image::{Image, Section, SectionKind};
use unwind_sim_unwind::orc::{Encoding, EntryType, OrcReg, Table};

/// How many malformed places are listed; the rest are counted.
const LISTED_MAX: usize = 20;

/// The text for a kernel.
pub(super) fn show(file: &InputFile, options: &OpenOptions) -> Result<String, InspectError> {
    let kernel = kernel::open(file, options)?;
    let mut out = String::from("a kernel image\n");
    head(&mut out, &kernel);
    let encoding = kernel.encoding.zip(kernel.encoding_source);
    orc(&mut out, &kernel.image, encoding);
    if !kernel.problems.is_empty() {
        out.push_str("\nproblems\n");
        list(&mut out, &kernel.problems, LISTED_MAX);
    }
    Ok(out)
}

/// The text for a module. Its addresses are offsets, since it is not loaded.
pub(super) fn show_module(
    file: &InputFile,
    told: Option<&ToldLayout>,
) -> Result<String, InspectError> {
    let module = kernel::open_module(file, &ModuleLoad::Text(0))?;
    let told = told_encoding(file, &module.image, told)?;
    let encoding = told.map(|encoding| (encoding, EncodingSource::Told));
    let mut out = String::from("a kernel module\n");
    let version = module.version.as_deref().unwrap_or("unknown");
    field(&mut out, "version", version);
    let text = module.range.end - module.range.start;
    field(&mut out, "text", counted(text, "byte"));
    field(&mut out, "symbols", module.image.symbols().len());
    orc(&mut out, &module.image, encoding.or(module.encoding));
    Ok(out)
}

fn orc(out: &mut String, image: &Image, encoding: Option<(Encoding, EncodingSource)>) {
    let entries = image.section(SectionKind::OrcUnwind);
    match (entries, image.section(SectionKind::OrcUnwindIp)) {
        (Some(entries), Some(ips)) => orc_table(out, entries, ips, encoding),
        _ => out.push_str("\nno ORC table\n"),
    }
}

fn head(out: &mut String, kernel: &KernelImage) {
    let image = &kernel.image;
    field(
        out,
        "version",
        kernel.version.as_deref().unwrap_or("unknown"),
    );

    // Without a build ID, a module or a recording cannot be matched with this image.
    if !image.build_id().is_empty() {
        field(out, "build id", hex_bytes(image.build_id()));
    }

    // A bzImage holds vmlinux as a compressed payload (`Documentation/arch/x86/boot.rst`).
    if let Some(payload) = &kernel.payload {
        let (bytes, offset) = (payload.data.len(), payload.offset);
        let how = payload.compression.as_str();
        field(
            out,
            "payload",
            format_args!("{} at {offset:#x}, {how}", counted(bytes, "byte")),
        );
    }

    field(out, "vmlinux", counted(kernel.size, "byte"));
    let range = &kernel.range;
    field(
        out,
        "addresses",
        format_args!("{:#x}..{:#x}", range.start, range.end),
    );

    // Sizes come from the image; a sum of damaged ones must not overflow.
    let text = image.text();
    let bytes = text
        .iter()
        .fold(0_u64, |sum, r| sum.saturating_add(r.end - r.start));
    let ranges = text.len();
    field(
        out,
        "text",
        format_args!("{} in {}", counted(bytes, "byte"), counted(ranges, "range")),
    );

    // kallsyms has data symbols, too; only those in code are of use to an unwinder.
    let (all, code) = (kernel.symbols.len(), image.symbols().len());
    let form = kernel
        .kallsyms_form
        .map(|form| format!(" ({})", form.as_str()));
    let form = form.unwrap_or_default();

    // A stripped vmlinux still has kallsyms, packed in one of several forms, which changed between
    // versions.
    match kernel.symbol_source {
        Some(by) => field(
            out,
            "symbols",
            format_args!("{all} from {}{form}, {code} in code", by.as_str()),
        ),
        None => field(
            out,
            "symbols",
            "none found; give a System.map with --symbols",
        ),
    }
}

const fn type_name(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Undefined => "UNDEFINED",
        EntryType::EndOfStack => "END_OF_STACK",
        EntryType::Call => "CALL",
        EntryType::Regs => "REGS",
        EntryType::RegsPartial => "REGS_PARTIAL",
    }
}

const fn reg_name(reg: OrcReg) -> &'static str {
    match reg {
        OrcReg::Undefined => "UNDEFINED",
        OrcReg::PrevSp => "PREV_SP",
        OrcReg::Ax => "AX",
        OrcReg::Dx => "DX",
        OrcReg::Di => "DI",
        OrcReg::Bp => "BP",
        OrcReg::Sp => "SP",
        OrcReg::R10 => "R10",
        OrcReg::R13 => "R13",
        OrcReg::BpIndirect => "BP_INDIRECT",
        OrcReg::SpIndirect => "SP_INDIRECT",
    }
}

fn orc_table(
    out: &mut String,
    entries: &Section,
    ips: &Section,
    encoding: Option<(Encoding, EncodingSource)>,
) {
    let bytes = entries.data.len();
    let _ = write!(out, "\n.orc_unwind: {}", counted(bytes, "byte"));
    // Sections that do not match were an error when the image was opened.
    let Ok(table) = Table::new(&entries.data, &ips.data, ips.address) else {
        out.push('\n');
        return;
    };

    // Without a known layout, entries cannot be told apart: bits changed their meaning between
    // versions.
    let Some((encoding, how)) = encoding else {
        out.push_str(", unknown layout\n");
        field(out, "entries", table.len());
        return;
    };
    let _ = writeln!(out, ", layout {}, {}", encoding.as_str(), how.as_str());

    // The bytes of an entry are compared for `distinct`: a table has few different rows.
    let (mut kinds, mut frame_pointers) = (BTreeMap::new(), BTreeMap::new());
    let (mut distinct, mut bad, mut signal) = (HashSet::new(), Vec::new(), 0_u64);
    for index in 0..table.len() {
        distinct.extend(table.bytes(index));
        match table.entry(index, encoding.layout) {
            Some(Ok(entry)) => {
                *kinds.entry((entry.kind, entry.sp_reg)).or_insert(0_u64) += 1;
                signal += u64::from(entry.signal);
                // Such an entry has no rule for rbp.
                if !matches!(entry.kind, EntryType::Undefined | EntryType::EndOfStack) {
                    *frame_pointers.entry(entry.bp_reg).or_insert(0_u64) += 1;
                }
            }
            Some(Err(error)) => bad.push(error.to_string()),
            None => {}
        }
    }

    // Of entries with the same address, the kernel takes the last (`__orc_find`, `unwind_orc.c`).
    // Sorted tables have such entries side by side.
    let same = |i: &usize| table.ip(*i) == table.ip(*i - 1);
    let shared = (1..table.len()).filter(same).count();
    let (len, distinct) = (table.len(), distinct.len());

    field(
        out,
        "entries",
        format_args!("{len}, {distinct} of them distinct"),
    );
    field(
        out,
        "same address",
        format_args!("{shared} as the entry before"),
    );
    field(out, "signal", counted(signal, "entry"));

    // Since Linux 5.6, only tables of modules are sorted at run time (`unwind_orc.c`).
    let sorted = table.order(encoding.layout).is_none();
    field(out, "sorted", if sorted { "yes" } else { "no" });
    field(out, "malformed", bad.len());
    list(out, &bad, LISTED_MAX);

    out.push('\n');
    let mut counts = Columns::new(&["type", "CFA from", "entries"]);
    for ((kind, reg), count) in kinds {
        counts.row(cells![type_name(kind), reg_name(reg), count]);
    }
    counts.write(out);

    out.push('\n');
    let mut counts = Columns::new(&["rbp from", "entries"]);
    for (reg, count) in frame_pointers {
        counts.row(cells![reg_name(reg), count]);
    }
    counts.write(out);
}
