//! One stack written by a program (`programs/snapshot.h`), for repeated walks.

use std::path::Path;

use super::image::{Elf, Image};

/// Number of registers in a snapshot, in DWARF order: rbp is 6, rsp 7, the return address 16.
pub(crate) const REGS: usize = 17;
pub(crate) const RBP: usize = 6;
pub(crate) const RSP: usize = 7;
pub(crate) const RIP: usize = 16;

/// Stack bytes that start at address `base`.
#[derive(Clone, Copy)]
pub(crate) struct Stack<'a> {
    pub(crate) base: u64,
    pub(crate) bytes: &'a [u8],
}

impl Stack<'_> {
    /// The word at `address`, if the copy holds it.
    #[inline]
    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.wrapping_sub(self.base)).ok()?;
        self.bytes
            .get(offset..)?
            .first_chunk()
            .map(|word| u64::from_le_bytes(*word))
    }
}

/// Registers, stack bytes and images of one stopped thread.
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) regs: [u64; REGS],
    pub(crate) stack: Vec<u8>,
    pub(crate) images: Vec<Image>,
}

impl Snapshot {
    pub(crate) fn stack(&self) -> Stack<'_> {
        Stack {
            base: self.regs[RSP],
            bytes: &self.stack,
        }
    }

    /// Reads the file written by a program of `programs/`; `Err` says what is wrong with it.
    pub(crate) fn load(name: &str, path: &Path) -> Result<Snapshot, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let short = || format!("{}: incomplete snapshot", path.display());
        let rest = bytes.strip_prefix(b"UWSNAP1\0").ok_or_else(short)?;
        let (head, rest) = rest.split_at_checked((REGS + 2) * 8).ok_or_else(short)?;
        let mut words = head
            .chunks_exact(8)
            .map(|c| c.try_into().map_or(0, u64::from_le_bytes));
        let regs = std::array::from_fn(|_| words.next().unwrap_or(0));
        let mut len = || words.next().and_then(|n| usize::try_from(n).ok());
        let (stack_len, maps_len) = (len().ok_or_else(short)?, len().ok_or_else(short)?);
        let (stack, rest) = rest.split_at_checked(stack_len).ok_or_else(short)?;
        let maps = rest.get(..maps_len).ok_or_else(short)?;
        let maps = std::str::from_utf8(maps).map_err(|e| format!("{}: {e}", path.display()))?;
        let images = maps.lines().filter_map(image_of_maps_line).collect();
        Ok(Snapshot {
            name: name.to_owned(),
            regs,
            stack: stack.to_owned(),
            images,
        })
    }
}

/// The image of one executable file mapping of `/proc/PID/maps`.
fn image_of_maps_line(line: &str) -> Option<Image> {
    let mut fields = line.split_ascii_whitespace();
    let (range, perms, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let path = fields.nth(2).filter(|path| path.starts_with('/'))?;
    if !perms.contains('x') {
        return None;
    }
    let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    Image::of_mapping(Elf::open(Path::new(path))?, start, offset)
}
