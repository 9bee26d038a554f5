//! Writes an image as an ELF file: its unwind tables, the known code, and its symbols, at their
//! addresses. An unwinder that reads files gets this file if the original is not available.
//!
//! It has no relocations, dynamic linking or debug information, and cannot be run.

use std::collections::HashMap;
use std::path::PathBuf;
use unwind_sim_recordings::leftovers::TemporaryFolder;
use unwind_sim_tables::elf_write::{NewFile, NewFileError, NewFileSection, NewFileSymbol};
use unwind_sim_unwind::image::{Image, ImageId, SectionKind};
use unwind_sim_unwind::unwinder::Stack;

/// The maximum size of the file in bytes, so that a damaged table cannot fill the disk.
const BYTES_MAX: u64 = 1 << 30;

/// The images that the process requested. Each is written once.
#[derive(Default)]
pub(super) struct ImageFiles {
    /// Deleted with its files when the process ends.
    folder: Option<TemporaryFolder>,
    paths: HashMap<ImageId, PathBuf>,
}

impl ImageFiles {
    /// The path of the image with this index in the stack's mappings, or why there is none.
    pub(super) fn path(&mut self, stack: &Stack<'_>, index: usize) -> Result<String, String> {
        let mappings = stack.space.mappings();
        let count = mappings.len();
        let mapping = mappings
            .get(index)
            .ok_or_else(|| format!("there is no image {index}, only {count}"))?;
        let image = mapping
            .image
            .as_ref()
            .ok_or_else(|| format!("`{}` is neither recorded nor available", mapping.name))?;
        if let Some(path) = self.paths.get(&image.id()) {
            return Ok(path.display().to_string());
        }
        let path = self.write(image);
        let path = path.map_err(|e| format!("cannot write `{}`: {e}", mapping.name))?;
        let shown = path.display().to_string();
        self.paths.insert(image.id(), path);
        Ok(shown)
    }

    fn write(&mut self, image: &Image) -> std::io::Result<PathBuf> {
        let folder = match &mut self.folder {
            Some(folder) => folder,
            none => none.insert(TemporaryFolder::new("unwind-sim-images-")?),
        };
        let path = folder.path().join(format!("{}.elf", self.paths.len()));
        let bytes = elf_file(image);
        let bytes = bytes.map_err(|_| std::io::Error::other("its tables are too large"))?;
        std::fs::write(&path, bytes)?;
        Ok(path)
    }
}

/// The bytes of the file.
fn elf_file(image: &Image) -> Result<Vec<u8>, NewFileError> {
    let sections = sections(image);

    // All are said to be in the first section with code.
    let code = sections.iter().position(is_code);
    let symbols = image.symbols().iter().map(|symbol| NewFileSymbol {
        name: &symbol.name,
        address: symbol.address,
        size: symbol.size,
        section: code,
    });

    let file = NewFile {
        entry: None,
        symbols: symbols.collect(),
        sections,
    };
    file.bytes(BYTES_MAX)
}

/// The sections, those that are loaded in the order of their addresses.
fn sections(image: &Image) -> Vec<NewFileSection<'_>> {
    let mut sections: Vec<NewFileSection<'_>> = Vec::new();
    for section in image.sections() {
        let flags = match section.kind {
            // `.debug_frame` is not loaded, so it has no address.
            SectionKind::DebugFrame => continue,
            SectionKind::Text => NewFileSection::CODE,
            kind if kind.has_contents() => NewFileSection::READ_ONLY,
            _ => continue,
        };
        let new = NewFileSection::new(section.kind.as_str(), &section.data);
        sections.push(new.at(section.address, flags));
    }

    // Code whose bytes the recording lacks has a section all the same: its addresses are known.
    for range in image.text() {
        let is_known = |section: &NewFileSection<'_>| {
            is_code(section)
                && section.address < range.end
                && range.start < section.address.saturating_add(section.size)
        };
        if !sections.iter().any(is_known) {
            let (size, flags) = (range.end.saturating_sub(range.start), NewFileSection::CODE);
            let new = NewFileSection::without_bytes(".text", range.start, size, flags);
            sections.push(new);
        }
    }

    sections.sort_by_key(|section| section.address);
    if let Some(frames) = image.section(SectionKind::DebugFrame) {
        sections.push(NewFileSection::new(
            SectionKind::DebugFrame.as_str(),
            &frames.data,
        ));
    }
    sections
}

fn is_code(section: &NewFileSection<'_>) -> bool {
    section.flags == NewFileSection::CODE
}

#[cfg(test)]
mod tests;
