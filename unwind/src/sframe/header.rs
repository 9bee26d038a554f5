//! The header of a `.sframe` section, and access to its bytes.
//!
//! The header has 28 bytes in V1, V2 and V3 (binutils `include/sframe.h`; "The SFrame format",
//! section "SFrame Header"). Function descriptors are in `fde`, rows in `fre` and `row`.

use crate::reason::Reason;

/// The first two bytes of a section, in this machine's byte order.
pub const MAGIC: u16 = 0xdee2;

/// Size of the header without the auxiliary header that follows it, bytes.
pub const HEADER_LEN: u64 = 28;

/// `SFRAME_ABI_AMD64_ENDIAN_LITTLE`, the only supported `abi_arch`.
pub const ABI_AMD64: u8 = 3;

/// What is wrong with a section, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error(".sframe+{offset:#x}: {what}")]
pub struct Malformed {
    /// Offset in the section, bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: &'static str,
}

impl Malformed {
    pub(crate) const fn new(offset: u64, what: &'static str) -> Self {
        Malformed { offset, what }
    }
}

impl From<Malformed> for Reason {
    fn from(m: Malformed) -> Self {
        Reason::MalformedRow {
            section: ".sframe",
            offset: m.offset,
            what: m.what,
        }
    }
}

/// A version of the format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Version {
    /// binutils 2.40.
    V1 = 1,
    /// binutils 2.41 to 2.45, clang 21 and 22.
    V2 = 2,
    /// binutils 2.46 on.
    V3 = 3,
}

impl Version {
    /// The version with this number.
    pub const fn from_number(number: u8) -> Option<Version> {
        match number {
            1 => Some(Version::V1),
            2 => Some(Version::V2),
            3 => Some(Version::V3),
            _ => None,
        }
    }

    /// The size of a function descriptor in the searched array, bytes.
    pub const fn fde_len(self) -> u64 {
        match self {
            Version::V1 => 17,
            Version::V2 => 20,
            Version::V3 => 16,
        }
    }
}

/// `SFRAME_F_FDE_SORTED`: the function descriptors are sorted by address.
pub const FLAG_FDE_SORTED: u8 = 1;
/// `SFRAME_F_FRAME_POINTER`: V1 and V2 only; no tool sets it.
pub const FLAG_FRAME_POINTER: u8 = 2;
/// `SFRAME_F_FDE_FUNC_START_PCREL`: function starts are relative to their own field. V2 errata 1
/// and V3; without it they are relative to the section.
pub const FLAG_FUNC_START_PCREL: u8 = 4;

/// A parsed header. Offsets are converted to be relative to the section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The format's version.
    pub version: Version,
    /// `FLAG_*`.
    pub flags: u8,
    /// The fixed offset of the caller's rbp from the CFA; 0 if the rows have it.
    pub cfa_fixed_fp_offset: i8,
    /// The fixed offset of the return address from the CFA; 0 if the rows have it. -8 on x86-64.
    pub cfa_fixed_ra_offset: i8,
    /// Size of the auxiliary header, bytes.
    pub auxhdr_len: u8,
    /// Number of function descriptors.
    pub num_fdes: u32,
    /// Number of rows, as stated in the header.
    pub num_fres: u32,
    /// Size of the row sub-section, bytes.
    pub fre_len: u32,
    /// Offset of the first function descriptor in the section, bytes.
    pub fdes: u64,
    /// Offset of the row sub-section in the section, bytes.
    pub fres: u64,
}

/// `N` bytes at `at`.
pub(crate) fn get<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    bytes
        .get(usize::try_from(at).ok()?..)?
        .first_chunk()
        .copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: u64) -> Option<u16> {
    get(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    get(bytes, at).map(u32::from_le_bytes)
}

impl Header {
    /// Parses the header and checks its counts against the section's length. A longer section is
    /// valid, because the segment may end in zeros.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        let Some(h) = get::<28>(bytes, 0) else {
            return Err(Malformed::new(0, "the section is shorter than its header"));
        };

        // Checked first, since all that follows is read in this byte order.
        match u16::from_le_bytes([h[0], h[1]]) {
            MAGIC => {}
            // The magic number tells the byte order, too.
            m if m == MAGIC.swap_bytes() => {
                return Err(Malformed::new(0, "big-endian; only AMD64 is supported"));
            }
            _ => return Err(Malformed::new(0, "no SFrame magic (0xdee2)")),
        }

        // Every check gives the offset of its field, so that a damaged byte can be found.
        let version = Version::from_number(h[2]);
        let version = version.ok_or(Malformed::new(2, "version is not 1, 2 or 3"))?;

        // V2 brought the flag for PC-relative starts, V3 dropped the one for frame pointers.
        let defined = match version {
            Version::V1 => FLAG_FDE_SORTED | FLAG_FRAME_POINTER,
            Version::V2 => FLAG_FDE_SORTED | FLAG_FRAME_POINTER | FLAG_FUNC_START_PCREL,
            Version::V3 => FLAG_FDE_SORTED | FLAG_FUNC_START_PCREL,
        };
        if h[3] & !defined != 0 {
            return Err(Malformed::new(3, "undefined flag"));
        }

        if h[4] != ABI_AMD64 {
            return Err(Malformed::new(4, "abi_arch is not AMD64 (3)"));
        }

        let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        // `sfh_fdeoff` and `sfh_freoff` count from the end of the header with its auxiliary part.
        let end = HEADER_LEN + u64::from(h[7]);
        let header = Header {
            version,
            flags: h[3],
            cfa_fixed_fp_offset: h[5] as i8,
            cfa_fixed_ra_offset: h[6] as i8,
            auxhdr_len: h[7],
            num_fdes: word(8),
            num_fres: word(12),
            fre_len: word(16),
            fdes: end + u64::from(word(20)),
            fres: end + u64::from(word(24)),
        };

        // Only the ends are checked: the two arrays may lie in any order, and may have a gap
        // between them.
        let len = bytes.len() as u64;
        if header.fdes_end() > len {
            return Err(Malformed::new(8, "the section ends within the FDE array"));
        }
        if header.fres_end() > len {
            return Err(Malformed::new(16, "the section ends within the FREs"));
        }

        Ok(header)
    }

    /// Whether `flag` (a `FLAG_*`) is set.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Offset after the last function descriptor, bytes.
    pub const fn fdes_end(&self) -> u64 {
        self.fdes + self.num_fdes as u64 * self.version.fde_len()
    }

    /// Offset after the row sub-section, bytes.
    pub const fn fres_end(&self) -> u64 {
        self.fres + self.fre_len as u64
    }
}

#[cfg(test)]
mod tests;
