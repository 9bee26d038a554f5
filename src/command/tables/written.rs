//! Opening an ELF file to change it, and writing the changed one.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::open;
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::file::File;
use unwind_sim_tables::write::NewSection;
use unwind_sim_view::json::SectionLine;

/// Files larger than this are not read, bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Reads an ELF file whole.
pub(super) fn read(path: &Path) -> Result<(File, Arc<Vec<u8>>)> {
    let cannot = || format!("cannot read {}", path.printable());
    let data = Arc::new(open::read(path, FILE_BYTES_MAX).with_context(cannot)?);
    let file = File::read(&path.to_text(), data.clone())?;
    Ok((file, data))
}

/// Writes the changed file under its name when it is complete, with the permissions of the original.
/// `path` may name the original.
pub(super) fn write(path: &Path, bytes: &[u8], original: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", path.printable());
    let mode = std::fs::metadata(original).with_context(cannot)?;
    let mut file = OutputFile::in_place(path).with_context(cannot)?;
    file.write_all(bytes).with_context(cannot)?;
    file.finish().with_context(cannot)?;
    // A pipe or a device keeps its own.
    if std::fs::metadata(path).with_context(cannot)?.is_file() {
        std::fs::set_permissions(path, mode.permissions()).with_context(cannot)?;
    }
    Ok(())
}

/// The sections for `--json`.
pub(super) fn section_lines(sections: &[NewSection]) -> Vec<SectionLine> {
    let line = |section: &NewSection| SectionLine {
        name: section.name,
        address: hex(section.address),
        size: section.bytes.len() as u64,
    };
    sections.iter().map(line).collect()
}

/// The sections for people.
pub(super) fn tell_sections(out: &mut dyn Write, sections: &[NewSection]) -> std::io::Result<()> {
    for section in sections {
        let (name, size) = (section.name, section.bytes.len());
        writeln!(
            out,
            "  {name} at {:#x}, {}",
            section.address,
            counted(size, "byte")
        )?;
    }
    Ok(())
}
