//! Archives that a kernel unpacks as its first root file system: writes the smallest useful one, and
//! checks one that somebody else made.
//!
//! Source: `Documentation/driver-api/early-userspace/buffer-format.rst` and `init/initramfs.c`,
//! Linux 6.12. The format is cpio's "newc": a header of 110 characters, the name with its NUL, the
//! contents; name and contents are padded to four bytes.

#[cfg(test)]
mod tests;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::program_header::PT_INTERP;
use goblin::elf::{Elf, ProgramHeader};

/// The magic number of an entry, and of one with a checksum.
const MAGIC: &[u8; 6] = b"070701";
const MAGIC_CHECKSUM: &[u8; 6] = b"070702";
/// The magic number of cpio's older portable format (`-H odc`), which the kernel refuses.
const MAGIC_ODC: &[u8; 6] = b"070707";
/// The fields after the magic number, of eight hexadecimal digits each.
const FIELDS: usize = 13;
/// Size of a field, bytes.
const FIELD: usize = 8;
/// Size of a header, bytes.
const HEADER: usize = MAGIC.len() + FIELDS * FIELD;
/// Index of `c_filesize` and of `c_namesize` in the fields.
const FILE_SIZE: usize = 6;
const NAME_SIZE: usize = 11;
/// Headers, names and contents are aligned to this, bytes.
const ALIGNMENT: usize = 4;
/// Linux `PATH_MAX`: the kernel skips entries with longer names.
const PATH_MAX: usize = 4096;
/// The name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// How the compressed formats that a kernel reads start. Source: `lib/decompress.c`.
const COMPRESSED: [[u8; 2]; 8] = [
    // gzip, and an older one.
    [0x1f, 0x8b],
    [0x1f, 0x9e],
    // bzip2
    [0x42, 0x5a],
    // lzma
    [0x5d, 0x00],
    // xz
    [0xfd, 0x37],
    // lzo
    [0x89, 0x4c],
    // lz4
    [0x02, 0x21],
    // zstd
    [0x28, 0xb5],
];

/// File types and permissions (`S_IFDIR`, `S_IFCHR`, `S_IFREG`).
const DIRECTORY: u32 = 0o040_755;
const CONSOLE: u32 = 0o020_600;
const PROGRAM: u32 = 0o100_755;
/// Major and minor number of `/dev/console`.
const CONSOLE_DEVICE: (u32, u32) = (5, 1);

/// An archive with `program` as `/init`, which the kernel starts as its first process, with
/// `/dev/console`, from which that process has its standard streams, and with the empty directories
/// `/proc`, `/sys` and `/tmp`.
///
/// The program is at most 4 GiB: the format has no larger files.
pub fn with_init(program: &[u8]) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.entry("init", PROGRAM, (0, 0), program);
    archive.entry("dev", DIRECTORY, (0, 0), &[]);
    archive.entry("dev/console", CONSOLE, CONSOLE_DEVICE, &[]);
    for directory in ["proc", "sys", "tmp"] {
        archive.entry(directory, DIRECTORY, (0, 0), &[]);
    }
    archive.entry(TRAILER, 0, (0, 0), &[]);
    archive.bytes
}

/// The program that the kernel starts for `program`, which the archive of [`with_init`] does not have:
/// its dynamic linker. `None` of a static program, and of what is not an ELF file.
pub fn interpreter(program: &[u8]) -> Option<String> {
    let header = Elf::parse_header(program).ok()?;
    let context = Ctx::new(Container::Big, Endian::Little);
    let (start, count) = (header.e_phoff as usize, header.e_phnum as usize);
    let all = ProgramHeader::parse(program, start, count, context).ok()?;
    let found = all.iter().find(|it| it.p_type == PT_INTERP)?;

    let start = usize::try_from(found.p_offset).ok()?;
    let end = start.checked_add(usize::try_from(found.p_filesz).ok()?)?;
    let name = program.get(start..end)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// An archive that is being written.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    /// The last inode number.
    inode: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        // Entries with the same inode number and more than one link are hard links.
        self.inode += 1;
        let (inode, links) = (self.inode, 1);
        let (size, name_size) = (contents.len(), name.len() + 1);
        let (major, minor) = device;

        self.bytes.extend(MAGIC);
        // inode, mode, uid, gid, links, mtime, size, device of the file system, device, size of the
        // name, checksum
        let start = format!(
            "{inode:08X}{mode:08X}{0:08X}{0:08X}{links:08X}{0:08X}{size:08X}",
            0
        );
        let end = format!(
            "{0:08X}{0:08X}{major:08X}{minor:08X}{name_size:08X}{0:08X}",
            0
        );
        self.bytes.extend(start.bytes().chain(end.bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        let size = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(size, 0);
    }
}

/// Why a kernel would not unpack an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("initial RAM disk at {offset:#x}: {what}")]
#[non_exhaustive]
pub struct InitramfsError {
    /// What is wrong.
    pub what: InitramfsErrorKind,
    /// Offset of the header in the archive, bytes.
    pub offset: usize,
}

/// The kinds of [`InitramfsError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitramfsErrorKind {
    /// There is no entry.
    #[error("the archive is empty")]
    Empty,
    /// Neither an entry nor a compressed archive.
    #[error("neither a cpio header nor compressed; make it with cpio -o -H newc")]
    NotCpio,
    /// cpio's older portable format.
    #[error("cpio's odc format, which Linux does not read; make it with cpio -o -H newc")]
    OldFormat,
    /// A header that is not at a multiple of four bytes.
    #[error("a header that is not at a multiple of 4; pad the archive before it with zeros")]
    Unaligned,
    /// The header, the name or the contents are not in the archive.
    #[error("the entry needs {0} bytes, which is more than there are; is the archive complete?")]
    Cut(u64),
    /// Not a hexadecimal digit.
    #[error("field {0} of the header is not 8 hexadecimal digits")]
    NotHexadecimal(usize),
    /// The name is empty, longer than 4096 bytes, or does not end with a NUL.
    #[error("a name of {0} bytes, not of 1 to 4096 with a NUL as the last")]
    Name(u32),
}

impl InitramfsErrorKind {
    const fn at(self, offset: usize) -> InitramfsError {
        InitramfsError { what: self, offset }
    }
}

/// Checks that a kernel would unpack `archive`. What is compressed, and what follows it, is accepted
/// without being read.
///
/// # Errors
/// If an entry is malformed, the first one.
pub fn check(archive: &[u8]) -> Result<(), InitramfsError> {
    let mut offset = 0;
    let mut is_empty = true;

    // Every iteration advances by at least a byte.
    while let Some(rest) = archive.get(offset..).filter(|rest| !rest.is_empty()) {
        // As `unpack_to_rootfs`: between entries, zeros are skipped.
        if let Some(zeros) = zeros(rest) {
            offset += zeros;
            continue;
        }
        if rest
            .first_chunk()
            .is_some_and(|start| COMPRESSED.contains(start))
        {
            return Ok(());
        }

        let size = entry_size(rest, offset).map_err(|what| what.at(offset))?;
        is_empty = false;
        // The padding of the last entry may be missing.
        offset = (offset + size).next_multiple_of(ALIGNMENT);
    }

    if is_empty {
        return Err(InitramfsErrorKind::Empty.at(0));
    }
    Ok(())
}

/// How many zeros there are at the start; `None` if there are none.
fn zeros(rest: &[u8]) -> Option<usize> {
    let count = rest.iter().take_while(|byte| **byte == 0).count();
    Some(count).filter(|count| *count > 0)
}

/// The size of the entry at the start of `rest`, without the padding after it.
fn entry_size(rest: &[u8], offset: usize) -> Result<usize, InitramfsErrorKind> {
    match rest.first_chunk() {
        Some(MAGIC | MAGIC_CHECKSUM) => {}
        Some(MAGIC_ODC) => return Err(InitramfsErrorKind::OldFormat),
        _ => return Err(InitramfsErrorKind::NotCpio),
    }
    if !offset.is_multiple_of(ALIGNMENT) {
        return Err(InitramfsErrorKind::Unaligned);
    }

    let Some(fields) = rest.get(MAGIC.len()..HEADER) else {
        return Err(InitramfsErrorKind::Cut(HEADER as u64));
    };
    let mut values = [0; FIELDS];
    let digits = fields.chunks_exact(FIELD);
    for (index, (value, digits)) in values.iter_mut().zip(digits).enumerate() {
        *value = number(digits).ok_or(InitramfsErrorKind::NotHexadecimal(index))?;
    }

    // Neither sum overflows 64 bits: both are of 32-bit numbers.
    let (name_size, size) = (values[NAME_SIZE], values[FILE_SIZE]);
    let named = HEADER as u64 + u64::from(name_size);
    let end = named.next_multiple_of(ALIGNMENT as u64) + u64::from(size);
    if name_size == 0 || name_size as usize > PATH_MAX {
        return Err(InitramfsErrorKind::Name(name_size));
    }
    // An entry without contents needs no padding after its name, if it is the last.
    let needed = if size == 0 { named } else { end };
    if needed > rest.len() as u64 {
        return Err(InitramfsErrorKind::Cut(needed));
    }
    if rest.get(named as usize - 1) != Some(&0) {
        return Err(InitramfsErrorKind::Name(name_size));
    }
    Ok(needed as usize)
}

/// The value of hexadecimal digits, without a sign.
fn number(digits: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(digits).ok()?;
    // `from_str_radix` accepts a sign.
    let digits = digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then_some(digits)?;
    u32::from_str_radix(digits, 16).ok()
}
