//! Opening an ELF file to change it, and writing the changed one.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::file::File;
use unwind_sim_tables::write::NewSection;
use unwind_sim_view::json::SectionLine;

/// Files larger than this are not read, bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Opens an ELF file.
pub(super) fn open(path: &Path) -> Result<InputFile> {
    InputFile::open(path).with_context(|| format!("cannot read {}", path.printable()))
}

/// Reads an ELF file whole: it may be the one that is written.
pub(super) fn read(input: &InputFile) -> Result<(File, Arc<Vec<u8>>)> {
    let cannot = || format!("cannot read {}", input.path().printable());
    let bytes = input.bytes_within(FILE_BYTES_MAX).with_context(cannot)?;
    let data = Arc::new((*bytes).as_ref().to_vec());
    let file = File::read(&input.path().to_text(), data.clone())?;
    Ok((file, data))
}

/// Writes the changed file under its name when it is complete, with the permissions of the original.
/// `path` may name the original.
pub(super) fn write(path: &Path, bytes: &[u8], original: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", path.printable());
    let original = std::fs::metadata(original).with_context(cannot)?;
    let mut file = OutputFile::in_place(path).with_context(cannot)?;
    file.write_all(bytes).with_context(cannot)?;
    file.finish().with_context(cannot)?;
    // A pipe or a device keeps its own, and has none for a file.
    if original.is_file() && std::fs::metadata(path).with_context(cannot)?.is_file() {
        std::fs::set_permissions(path, original.permissions()).with_context(cannot)?;
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
