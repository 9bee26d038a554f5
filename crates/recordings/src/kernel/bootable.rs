//! What a boot loader needs of a `vmlinuz` or `vmlinux`: the kernel's ELF file, the setup header, and
//! the relocations.
//!
//! Nothing is checked here but how the file is packed: whoever loads the kernel reads the rest.

use super::payload::{Payload, is_bzimage};
use super::{KernelError, KernelErrorKind, whole};
use crate::input_file::InputFile;
use crate::printable::PrintableName as _;
use object::elf::{FileHeader64, PT_LOAD, SHT_NOBITS};
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use unwind_sim_unwind::image::Bytes;

/// The setup header's first byte, `setup_sects`, and the end of the room for it in the zero page
/// (`arch/x86/include/uapi/asm/bootparam.h`, `struct boot_params`).
const HEADER: usize = 0x1f1;
const HEADER_END: usize = 0x290;

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Bootable {
    /// The ELF file, and what follows it.
    pub image: Bytes,
    /// The bytes of a bzImage from 0x1f1 on; a vmlinux has none.
    pub setup_header: Option<Bytes>,
    /// What follows the ELF file in the payload: the lists of what changes if the kernel moves
    /// (`vmlinux.relocs`). A kernel without KASLR has none, and neither has a vmlinux.
    pub relocations: Option<Bytes>,
}

/// Unpacks a kernel.
///
/// # Errors
/// If the file cannot be read, is neither a bzImage nor an ELF file, or its payload is damaged.
pub fn bootable(file: &InputFile) -> Result<Bootable, KernelError> {
    let bytes = whole(file)?;
    let of = |what: KernelErrorKind| what.of(&file.path().to_text());
    if is_bzimage(&bytes) {
        let header = bytes.part(HEADER..bytes.len().min(HEADER_END));
        let image = Payload::find(&bytes).and_then(|payload| payload.unpack());
        return Ok(Bootable::new(image.map_err(of)?, header));
    }
    if bytes.starts_with(b"\x7fELF") {
        return Ok(Bootable::new(bytes, None));
    }
    Err(of(KernelErrorKind::NotKernel))
}

impl Bootable {
    fn new(image: Bytes, setup_header: Option<Bytes>) -> Bootable {
        let behind = elf_size(&image).and_then(|size| image.part(size..image.len()));
        Bootable {
            relocations: behind.filter(|bytes| !bytes.is_empty()),
            setup_header,
            image,
        }
    }
}

/// The size of the ELF file at the start of `bytes`; `None` if its headers cannot be read.
fn elf_size(bytes: &[u8]) -> Option<usize> {
    let header = FileHeader64::<LE>::parse(bytes).ok()?;
    let segments = header.program_headers(LE, bytes).ok()?;
    let sections = header.section_headers(LE, bytes).ok()?;

    let headers = [
        (header.e_phoff(LE), size_of_val(segments) as u64),
        (header.e_shoff(LE), size_of_val(sections) as u64),
    ];
    let segments = segments.iter().filter(|it| it.p_type(LE) == PT_LOAD);
    let segments = segments.map(|it| (it.p_offset(LE), it.p_filesz(LE)));
    let sections = sections.iter().filter(|it| it.sh_type(LE) != SHT_NOBITS);
    let sections = sections.map(|it| (it.sh_offset(LE), it.sh_size(LE)));

    let parts = headers.into_iter().chain(segments).chain(sections);
    let ends = parts.map(|(start, size)| start.checked_add(size));
    let end = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    usize::try_from(end).ok()
}
