//! Shows a kernel dump: its memory and its processors. `import` and `replay` show what needs the
//! kernel's image.

use super::columns::{Columns, cells, field, list};
use super::{InspectError, map};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::import::vmcore_facts;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_unwind::regs::Reg;

/// How many problems are listed; the rest are counted.
const LISTED_MAX: usize = 20;

/// The text for a dump.
pub(super) fn show(file: &InputFile) -> Result<String, InspectError> {
    let owner = map(file)?;
    let bytes = (*owner).as_ref();

    // Only what the dump itself says: symbols and stacks need the image of its kernel.
    let facts = vmcore_facts(bytes).map_err(|source| InspectError::Core {
        path: file.path().into(),
        source,
    })?;

    let mut out = String::from("a kernel's dump\n");
    field(&mut out, "file", counted(bytes.len(), "byte"));

    let release = facts.release.as_deref();
    field(&mut out, "release", release.unwrap_or("not stated"));
    // `KERNELOFFSET` of the note `VMCOREINFO`.
    match facts.kaslr {
        Some(bias) => field(&mut out, "KASLR offset", format_args!("{bias:#x}")),
        None => field(&mut out, "KASLR offset", "not stated; found with the image"),
    }
    // Dumps by QEMU have the registers of the processors, with CR3.
    let page_tables = if facts.has_system_registers {
        "given by the processors"
    } else {
        "found with the image"
    };
    field(&mut out, "page tables", page_tables);

    let mut memory = Columns::new(&["physical memory", "bytes"]);
    for piece in &facts.memory {
        let place = format!("{:x}-{:x}", piece.start, piece.end);
        memory.row(cells![place, piece.end - piece.start]);
    }
    out.push('\n');
    memory.write(&mut out);

    // A register that the dump does not have is shown as unknown.
    let mut cpus = Columns::new(&["processor", "rip", "rsp", "cs"]);
    for (number, regs) in facts.cpus.iter().enumerate() {
        let hex = |reg| regs.get(reg).map_or("?".to_owned(), |v| format!("{v:#x}"));
        cpus.row(cells![number, hex(Reg::Rip), hex(Reg::Rsp), hex(Reg::Cs)]);
    }
    out.push('\n');
    cpus.write(&mut out);

    // A dump with problems can still be used in part, so they come last.
    if !facts.problems.is_empty() {
        let problems: Vec<_> = facts.problems.iter().map(ToString::to_string).collect();
        out.push_str("\nproblems\n");
        list(&mut out, &problems, LISTED_MAX);
    }
    Ok(out)
}
