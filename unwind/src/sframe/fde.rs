//! Function descriptors: the addresses of a function, and the location of its rows.
//!
//! There are three layouts on disk, but one [`Fde`]. V3 splits the descriptor into an entry of the
//! searched array and five bytes before the rows.

use super::header::{FLAG_FUNC_START_PCREL, Header, Malformed, Version, get, u16_at, u32_at};

/// V1 has no `rep_size`: its repeated blocks are the PLT's, 16 bytes each on x86-64.
pub const V1_REP_SIZE: u8 = 16;

/// Size of a V3 function's attributes, which directly precede its rows, bytes.
pub const V3_ATTRIBUTE_LEN: u64 = 5;

/// How the start addresses of rows are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FreType {
    /// One byte.
    Addr1,
    /// Two bytes.
    Addr2,
    /// Four bytes.
    Addr4,
}

impl FreType {
    /// The size of a start address, bytes.
    pub const fn byte_len(self) -> u64 {
        match self {
            FreType::Addr1 => 1,
            FreType::Addr2 => 2,
            FreType::Addr4 => 4,
        }
    }

    /// The type that GNU as chooses for a function of `size` bytes.
    pub const fn for_size(size: u32) -> FreType {
        match size {
            0..0x100 => FreType::Addr1,
            0x100..0x1_0000 => FreType::Addr2,
            _ => FreType::Addr4,
        }
    }
}

/// A function descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fde {
    /// Index in the array.
    pub index: u32,
    /// Offset of the array entry in the section, bytes.
    pub offset: u64,
    /// Start address (svma).
    pub start: u64,
    /// Size, bytes.
    pub size: u32,
    /// Offset of the first row in the section, bytes.
    pub fres: u64,
    /// Number of rows.
    pub num_fres: u32,
    /// How the rows' start addresses are stored.
    pub fre_type: FreType,
    /// The size of the block that the rows repeat for, bytes (`PCMASK`); `None` for `PCINC`.
    pub rep_size: Option<u8>,
    /// Whether the rows have control words (`SFRAME_FDE_TYPE_FLEX`).
    pub flex: bool,
    /// Whether this is a signal frame, whose caller's pc is exact.
    pub signal: bool,
}

impl Fde {
    /// Whether the function contains `svma`.
    pub const fn contains(&self, svma: u64) -> bool {
        svma >= self.start && svma - self.start < self.size as u64
    }

    /// The offset for looking up rows, from the start of the function or of the repeated block.
    /// (libsframe and Linux count blocks from the function's start; the specification has
    /// `PC % REP_BLOCK_SIZE`.)
    pub fn row_offset(&self, svma: u64) -> u64 {
        let offset = svma.wrapping_sub(self.start);
        match self.rep_size {
            Some(size) if size != 0 => offset % u64::from(size),
            _ => offset,
        }
    }

    /// The number of bytes that the rows cover: those of the function, or of the repeated block.
    pub const fn row_limit(&self) -> u32 {
        match self.rep_size {
            Some(size) if (size as u32) < self.size => size as u32,
            _ => self.size,
        }
    }
}

/// The start address of the function whose entry is at `offset`.
pub(crate) fn start(header: &Header, bytes: &[u8], address: u64, offset: u64) -> Option<u64> {
    let relative = match header.version {
        Version::V1 | Version::V2 => i64::from(u32_at(bytes, offset)? as i32),
        Version::V3 => i64::from_le_bytes(get(bytes, offset)?),
    };
    let base = if header.has(FLAG_FUNC_START_PCREL) {
        address.wrapping_add(offset)
    } else {
        address
    };
    Some(base.wrapping_add(relative as u64))
}

/// The descriptor at `index`; `None` if there are fewer.
pub(crate) fn read(
    header: &Header,
    bytes: &[u8],
    address: u64,
    index: u32,
) -> Option<Result<Fde, Malformed>> {
    if index >= header.num_fdes {
        return None;
    }
    let offset = header.fdes + u64::from(index) * header.version.fde_len();
    let fde = read_at(header, bytes, address, index, offset);
    Some(fde.unwrap_or(Err(Malformed::new(
        offset,
        "the section ends within an FDE",
    ))))
}

fn read_at(
    header: &Header,
    bytes: &[u8],
    address: u64,
    index: u32,
    offset: u64,
) -> Option<Result<Fde, Malformed>> {
    let start = start(header, bytes, address, offset)?;

    // The start has 64 bits since V3; so what follows is four bytes further on.
    let field = if header.version == Version::V3 { 8 } else { 4 };
    let size = u32_at(bytes, offset + field)?;
    let fre_off = u32_at(bytes, offset + field + 4)?;

    // In 64 bits the sum cannot overflow, so it can be compared with the end later.
    let mut fres = header.fres + u64::from(fre_off);
    let outside = Malformed::new(offset + field + 4, "the FDE's rows lie outside the FREs");

    // V3 keeps these in an attribute in front of the function's rows, not in the FDE.
    let (num_fres, info, info2, rep_size) = match header.version {
        // V1 has no field for the size of the repeated block.
        Version::V1 => {
            let [info] = get(bytes, offset + 16)?;
            (u32_at(bytes, offset + 12)?, info, 0, V1_REP_SIZE)
        }
        Version::V2 => {
            let [info, rep_size] = get(bytes, offset + 16)?;
            (u32_at(bytes, offset + 12)?, info, 0, rep_size)
        }
        Version::V3 => {
            if fres + V3_ATTRIBUTE_LEN > header.fres_end() {
                return Some(Err(outside));
            }
            let [info, info2, rep_size] = get(bytes, fres + 2)?;
            let num_fres = u16_at(bytes, fres)?;
            fres += V3_ATTRIBUTE_LEN;
            (num_fres.into(), info, info2, rep_size)
        }
    };

    // An FDE without rows may point to the very end.
    if fres > header.fres_end() {
        return Some(Err(outside));
    }

    // The low four bits; the values are the widths of a row's start address.
    let fre_type = match info & 0xf {
        0 => FreType::Addr1,
        1 => FreType::Addr2,
        2 => FreType::Addr4,
        _ => {
            return Some(Err(Malformed::new(
                offset,
                "the FDE's FRE type is not 0, 1 or 2",
            )));
        }
    };

    // The FDE's type is in a second info byte, which only V3 has: the others are default ones.
    let flex = match info2 & 0x1f {
        0 => false,
        1 => true,
        _ => return Some(Err(Malformed::new(offset, "the FDE's type is not 0 or 1"))),
    };

    // Offsets into the function are taken modulo `rep_size`.
    let mask = info & 0x10 != 0;
    if mask && rep_size == 0 {
        return Some(Err(Malformed::new(offset, "a PCMASK FDE with rep_size 0")));
    }

    Some(Ok(Fde {
        index,
        offset,
        start,
        size,
        fres,
        num_fres,
        fre_type,
        rep_size: mask.then_some(rep_size),
        flex,
        // Bit 7 is unused before V3.
        signal: header.version == Version::V3 && info & 0x80 != 0,
    }))
}

#[cfg(test)]
mod tests;
