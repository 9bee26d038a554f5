//! The generations of processors that the machine follows.

use super::{Level, Vendor};

/// A generation of a vendor's processors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Generation {
    /// Intel's first x86-64-v2 processors.
    Nehalem,
    /// Intel's Skylake. Its servers, Cascade Lake and Cooper Lake execute the same instructions in the
    /// same way, and AVX-512, which the machine has not.
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

    /// Whether its performance counters are modelled: see `system::counters`.
    pub fn has_counters(self) -> bool {
        self == Generation::Skylake
    }

    /// Family, model and stepping, as `/proc/cpuinfo` shows them. Programs choose code by the model
    /// alone (GCC's `arch=` of `target_clones` does), so a generation of which some models have
    /// AVX-512 and some do not is one of those without. That of Skylake is the client's: the servers'
    /// model, 0x55, stands for AVX-512.
    pub fn identity(self) -> [u32; 3] {
        match self {
            Generation::Nehalem => [6, 0x1a, 3],
            Generation::Skylake => [6, 0x5e, 3],
            Generation::Zen => [23, 1, 2],
            Generation::Zen3 => [25, 1, 1],
            Generation::Zen4 => [25, 17, 1],
            Generation::Zen5 => [26, 2, 1],
        }
    }

    /// The lowest family and model.
    fn first(self) -> [u32; 2] {
        match self {
            // The client with the smallest number, 0x4e; that of the servers is 0x55.
            Generation::Skylake => [6, 0x4e],
            other => {
                let [family, model, _] = other.identity();
                [family, model]
            }
        }
    }

    /// The default generation of a vendor, none of whose models has what the machine does not
    /// execute: the newest without AVX-512 whose behaviour was measured, or the first with the level.
    pub(super) fn of(level: Level, vendor: Vendor) -> Generation {
        match vendor {
            Vendor::Intel if level >= Level::V3 => Generation::Skylake,
            Vendor::Intel => Generation::Nehalem,
            Vendor::Amd => Generation::Zen3,
        }
    }

    /// The vendor's newest generation that is not newer than this family and model, or else its
    /// oldest.
    pub(super) fn closest(vendor: Vendor, family: u32, model: u32) -> Generation {
        let of_vendor = || Generation::ALL.into_iter().filter(|g| g.vendor() == vendor);
        let older = |g: &Generation| g.first() <= [family, model];
        let found = of_vendor().rfind(older).or(of_vendor().next());
        found.unwrap_or(Generation::of(Level::V2, vendor))
    }
}
