//! The generations of processors that the machine follows.

use super::{Level, Vendor};

/// A generation of a vendor's processors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Generation {
    /// Intel's first x86-64-v2 processors.
    Nehalem,
    /// Intel's Skylake, Cascade Lake and Cooper Lake servers.
    Skylake,
    /// AMD's first Zen.
    Zen,
    /// AMD's third Zen.
    Zen3,
    /// AMD's fourth Zen.
    Zen4,
    /// AMD's fifth Zen.
    Zen5,
}

impl Generation {
    /// All generations, the oldest of each vendor first.
    pub const ALL: [Generation; 6] = [
        Generation::Nehalem,
        Generation::Skylake,
        Generation::Zen,
        Generation::Zen3,
        Generation::Zen4,
        Generation::Zen5,
    ];

    /// The name in [`super::Processor`]'s grammar.
    pub fn as_str(self) -> &'static str {
        match self {
            Generation::Nehalem => "nehalem",
            Generation::Skylake => "skylake",
            Generation::Zen => "zen",
            Generation::Zen3 => "zen3",
            Generation::Zen4 => "zen4",
            Generation::Zen5 => "zen5",
        }
    }

    /// The vendor of the generation.
    pub fn vendor(self) -> Vendor {
        match self {
            Generation::Nehalem | Generation::Skylake => Vendor::Intel,
            Generation::Zen | Generation::Zen3 | Generation::Zen4 | Generation::Zen5 => Vendor::Amd,
        }
    }

    /// Family, model and stepping, as `/proc/cpuinfo` shows them.
    pub fn identity(self) -> [u32; 3] {
        match self {
            Generation::Nehalem => [6, 0x1a, 3],
            Generation::Skylake => [6, 0x55, 7],
            Generation::Zen => [23, 1, 2],
            Generation::Zen3 => [25, 1, 1],
            Generation::Zen4 => [25, 17, 1],
            Generation::Zen5 => [26, 2, 1],
        }
    }

    /// The default generation of a vendor: the one whose behaviour was measured, or the first with
    /// the level.
    pub(super) fn of(level: Level, vendor: Vendor) -> Generation {
        match vendor {
            Vendor::Intel if level >= Level::V3 => Generation::Skylake,
            Vendor::Intel => Generation::Nehalem,
            Vendor::Amd => Generation::Zen4,
        }
    }

    /// The vendor's newest generation that is not newer than this family and model, or else its
    /// oldest.
    pub(super) fn closest(vendor: Vendor, family: u32, model: u32) -> Generation {
        let of_vendor = || Generation::ALL.into_iter().filter(|g| g.vendor() == vendor);
        let older = |g: &Generation| g.identity()[..2] <= [family, model][..];
        let found = of_vendor().rfind(older).or(of_vendor().next());
        found.unwrap_or(Generation::of(Level::V2, vendor))
    }
}
