//! A small static ELF executable: code, data, unwind table, symbols. The table comes last, so that
//! changing it moves nothing.

use super::asm::{COLD, HOT, Layout};
use super::cfi::Sections;
use super::code::{DATA, OWN_STACK, OWN_STACK_SIZE};
use unwind_sim_tables::elf_write::{NewFile, NewFileSection, NewFileSymbol};

/// Address of `.eh_frame_hdr`.
pub(super) const EH_FRAME_HDR: u64 = 0x50_0000;
/// Address of `.eh_frame`.
pub(super) const EH_FRAME: u64 = 0x50_1000;
/// `SHT_X86_64_UNWIND` (psABI 4.1).
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
/// The maximum length of a file, bytes: far more than a program has.
const BYTES_MAX: u64 = 1 << 24;

/// Builds the file.
pub(super) fn write(layout: &Layout, data: &[u64], entry: u64, tables: &Sections) -> Vec<u8> {
    let data: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
    let new = NewFileSection::new;

    let mut sections = vec![new(".text", &layout.hot).at(HOT, NewFileSection::CODE)];
    // No cold section if nothing is in it.
    if !layout.cold.is_empty() {
        let cold = new(".text.unlikely", &layout.cold);
        sections.push(cold.at(COLD, NewFileSection::CODE));
    }
    sections.extend([
        new(".data", &data).at(DATA, NewFileSection::DATA),
        NewFileSection::without_bytes(
            ".stack",
            OWN_STACK - OWN_STACK_SIZE,
            OWN_STACK_SIZE,
            NewFileSection::DATA,
        ),
        new(".eh_frame_hdr", &tables.eh_frame_hdr).at(EH_FRAME_HDR, NewFileSection::READ_ONLY),
        NewFileSection {
            // The type that the psABI gives to this section.
            kind: SHT_X86_64_UNWIND,
            ..new(".eh_frame", &tables.eh_frame).at(EH_FRAME, NewFileSection::READ_ONLY)
        },
    ]);

    let symbols = layout.chunks.iter().map(|chunk| NewFileSymbol {
        name: &chunk.name,
        address: chunk.range.start,
        size: chunk.range.end - chunk.range.start,
        // `.text` is section 0, `.text.unlikely` 1.
        section: Some(usize::from(chunk.range.start >= COLD)),
    });

    let file = NewFile {
        entry: Some(entry),
        symbols: symbols.collect(),
        sections,
    };
    file.bytes(BYTES_MAX)
        .expect("a program has a few sections and pages")
}
