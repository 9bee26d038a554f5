//! The bit layouts of ORC entries in all kernel versions.
//!
//! The six bytes changed their meaning three times, and one register kept its number but changed
//! its meaning (Linux `arch/x86/include/asm/orc_types.h`; `arch/x86/kernel/unwind_orc.c`).
//! Detecting the layout of a table is in `detect`.

/// The bit layout and register numbers of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layout {
    /// Linux 4.14 to 6.2: type in bits 8 and 9, `end` in bit 10 (since 4.16).
    V4_14,
    /// Linux 6.3: `signal` in bit 10, `end` in bit 11.
    V6_3,
    /// Linux 6.4 to 7.0: type in bits 8 to 10, `signal` in bit 11.
    V6_4,
    /// Since Linux 7.1: as 6.4, with the registers renumbered.
    V7_1,
}

/// The meaning of `ORC_REG_SP_INDIRECT`, which changed without a change of layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpIndirect {
    /// \*(sp + sp_offset), before Linux 5.12.
    LoadAtOffset,
    /// \*(sp) + sp_offset, since Linux 5.12 (commit 87ccc826bf1c).
    LoadThenAdd,
}

/// Everything needed to read an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Encoding {
    /// The bit layout.
    pub layout: Layout,
    /// The meaning of the register that the layout does not determine.
    pub sp_indirect: SpIndirect,
}

/// A register of an ORC entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum OrcReg {
    Undefined,
    PrevSp,
    Ax,
    Dx,
    Di,
    Bp,
    Sp,
    R10,
    R13,
    BpIndirect,
    SpIndirect,
}

use OrcReg as R;

/// `ORC_REG_*` by number, before 7.1. Number 10 was added late, in stable kernels that support
/// clang's frames realigned with rax.
const REGS_OLD: [R; 11] = [
    R::Undefined,
    R::PrevSp,
    R::Dx,
    R::Di,
    R::Bp,
    R::Sp,
    R::R10,
    R::R13,
    R::BpIndirect,
    R::SpIndirect,
    R::Ax,
];

/// `ORC_REG_*` by number, since 7.1.
const REGS_7_1: [R; 11] = [
    R::Undefined,
    R::Ax,
    R::Dx,
    R::Sp,
    R::Bp,
    R::Di,
    R::R10,
    R::R13,
    R::PrevSp,
    R::SpIndirect,
    R::BpIndirect,
];

/// The `.orc_header` of each layout that has one: a SHA-1 of the entry's definition.
const HASHES: [(Layout, [u8; 20]); 3] = [
    (
        Layout::V6_3,
        *b"\xdb\x84\xae\xd4\x10\x3b\x31\xdd\x51\xe0\x17\xf8\xf7\x97\x83\xca\x98\x5c\x2c\x51",
    ),
    (
        Layout::V6_4,
        *b"\xfe\x5d\x32\xbf\x58\x1b\xd6\x3b\x2c\xa9\xa5\xc6\x5b\xa5\xa6\x25\xea\xb3\xfe\x24",
    ),
    (
        Layout::V7_1,
        *b"\x13\x7c\x36\xad\x76\x27\xc4\xdd\x55\x93\x21\x76\xbb\x0e\xcd\xbd\x50\x41\xfc\x82",
    ),
];

impl Layout {
    /// All layouts, oldest first.
    pub const ALL: [Layout; 4] = [Layout::V4_14, Layout::V6_3, Layout::V6_4, Layout::V7_1];

    /// The stable name: the first kernel that uses it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Layout::V4_14 => "4.14",
            Layout::V6_3 => "6.3",
            Layout::V6_4 => "6.4",
            Layout::V7_1 => "7.1",
        }
    }

    /// The layout with this name.
    pub fn from_name(name: &str) -> Option<Layout> {
        Self::ALL.into_iter().find(|l| l.as_str() == name)
    }

    /// The layout with this `.orc_header`: a SHA-1 of the entry's definition (Linux
    /// `scripts/orc_hash.sh`, since 6.4 and 6.3.10). A kernel with its own definition has its own
    /// hash.
    pub fn from_hash(hash: &[u8]) -> Option<Layout> {
        let found = HASHES.iter().find(|(_, h)| h == hash);
        found.map(|(layout, _)| *layout)
    }

    /// The `.orc_header` of kernels with this layout; `None` if they have none. It is that of 6.4
    /// without `ORC_REG_AX`, which some stable kernels have.
    pub fn hash(self) -> Option<[u8; 20]> {
        let found = HASHES.iter().find(|(layout, _)| *layout == self);
        found.map(|(_, hash)| *hash)
    }

    const fn regs(self) -> &'static [R; 11] {
        match self {
            Layout::V7_1 => &REGS_7_1,
            _ => &REGS_OLD,
        }
    }

    /// The register with this number.
    pub fn reg(self, number: u8) -> Option<OrcReg> {
        self.regs().get(usize::from(number)).copied()
    }

    /// The register's number.
    pub fn number(self, reg: OrcReg) -> u16 {
        // Both tables contain every register.
        self.regs().iter().position(|r| *r == reg).unwrap_or(0) as u16
    }

    /// Bits that no kernel with this layout sets.
    pub const fn unused_bits(self) -> u16 {
        match self {
            Layout::V4_14 => 0xf800,
            _ => 0xf000,
        }
    }

    /// Whether these flags mark an entry that yields to another one at the same address (the test
    /// for "undefined" in sorttable and module loading).
    pub const fn is_weak(self, flags: u16) -> bool {
        let mask = match self {
            Layout::V4_14 => 0x40f,
            Layout::V6_3 => 0x80f,
            Layout::V6_4 | Layout::V7_1 => 0x700,
        };
        flags & mask == 0
    }
}

impl Encoding {
    /// All encodings, each named after the first kernel that uses it.
    pub const ALL: [Encoding; 5] = [
        Encoding {
            layout: Layout::V4_14,
            sp_indirect: SpIndirect::LoadAtOffset,
        },
        Encoding::since_5_12(Layout::V4_14),
        Encoding::since_5_12(Layout::V6_3),
        Encoding::since_5_12(Layout::V6_4),
        Encoding::since_5_12(Layout::V7_1),
    ];

    /// The encoding of `layout` in kernels since 5.12.
    pub const fn since_5_12(layout: Layout) -> Encoding {
        Encoding {
            layout,
            sp_indirect: SpIndirect::LoadThenAdd,
        }
    }

    /// The stable name: the first kernel that uses it.
    pub const fn as_str(self) -> &'static str {
        match (self.layout, self.sp_indirect) {
            (Layout::V4_14, SpIndirect::LoadThenAdd) => "5.12",
            (layout, _) => layout.as_str(),
        }
    }

    /// The encoding used by this kernel version: `6.1`, `6.1.0-48-amd64`, `5.14.0-570.el9`. `None`
    /// if it is not a version, or older than ORC (4.14).
    pub fn from_kernel_version(version: &str) -> Option<Encoding> {
        let mut parts = version.split(|c: char| !c.is_ascii_digit());
        let mut number = || parts.next()?.parse::<u32>().ok();
        let (major, minor) = (number()?, number()?);
        let layout = match (major, minor) {
            _ if rhel9_release(version).is_some_and(|release| release >= 517) => Layout::V6_4,
            (0..4, _) | (4, 0..14) => return None,
            (4 | 5, _) | (6, 0..=2) => Layout::V4_14,
            (6, 3) => Layout::V6_3,
            (6, _) | (7, 0) => Layout::V6_4,
            _ => Layout::V7_1,
        };
        let sp_indirect = if (major, minor) < (5, 12) {
            SpIndirect::LoadAtOffset
        } else {
            SpIndirect::LoadThenAdd
        };
        Some(Encoding {
            layout,
            sp_indirect,
        })
    }
}

/// N in `5.14.0-N...el9`: RHEL 9 adopted the layout of 6.4 in 5.14.0-517.
fn rhel9_release(version: &str) -> Option<u32> {
    let release = version
        .strip_prefix("5.14.0-")
        .filter(|v| v.contains(".el9"))?;
    let digits = release.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
