//! The emulated processor: its level, vendor, generation and features.
//!
//! [`Processor`] is written `LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]`, for example
//! `v2,amd:zen4,+movbe`. Not here: the answers of `cpuid` (`isa/cpuid.rs`), and the differences
//! that a comparison with a processor allows ([`crate::differences`]).

mod amd;
mod feature;
mod gates;
mod generation;
pub mod host;

pub use feature::Feature;
pub(crate) use gates::{Gates, Refused};
pub use generation::Generation;

use iced_x86::{Code, DecoderOptions, Instruction, Mnemonic};
use std::fmt;
use std::str::FromStr;

/// A microarchitecture level of the x86-64 psABI (section 3.1.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// x86-64: up to SSE2.
    V1,
    /// x86-64-v2: up to SSE4.2.
    V2,
    /// x86-64-v3: up to AVX2, FMA, BMI1 and BMI2.
    V3,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 3] = [Level::V1, Level::V2, Level::V3];

    /// The name in [`Processor`]'s grammar.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::V1 => "v1",
            Level::V2 => "v2",
            Level::V3 => "v3",
        }
    }
}

/// The vendor whose manual the machine follows where the manuals differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vendor {
    /// Intel: the SDM.
    Intel,
    /// AMD: the APM.
    Amd,
}

impl Vendor {
    /// All vendors.
    pub const ALL: [Vendor; 2] = [Vendor::Intel, Vendor::Amd];

    /// The name in [`Processor`]'s grammar.
    pub fn as_str(self) -> &'static str {
        match self {
            Vendor::Intel => "intel",
            Vendor::Amd => "amd",
        }
    }

    /// The 12 characters that `cpuid` returns.
    pub(crate) fn cpuid(self) -> &'static [u8; 12] {
        match self {
            Vendor::Intel => b"GenuineIntel",
            Vendor::Amd => b"AuthenticAMD",
        }
    }

    /// The vendor whose manual a processor with this `cpuid` name follows. Hygon's processors are
    /// AMD's Zen; Zhaoxin's and Centaur's follow Intel, and so, by assumption, do all others.
    pub fn closest(cpuid: &str) -> Vendor {
        match cpuid.trim() {
            "AuthenticAMD" | "HygonGenuine" | "AMDisbetter!" => Vendor::Amd,
            _ => Vendor::Intel,
        }
    }
}

/// The emulated processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Processor {
    level: Level,
    generation: Generation,
    /// The features, one bit for each [`Feature`].
    features: u64,
    /// What control registers forbid, in system mode.
    gates: Gates,
}

impl Default for Processor {
    /// `v3,intel`, on every host.
    fn default() -> Processor {
        Processor::new(Vendor::Intel)
    }
}

/// The MXCSR bits of Intel's processors (SDM volume 1).
const MXCSR_INTEL: u32 = 0xffff;
/// MXCSR.MM of AMD's processors: SSE operands need not be aligned (APM volume 1).
pub(crate) const MXCSR_MISALIGNED: u32 = 1 << 17;

impl Processor {
    /// A vendor's processor of the default level, v3, with the features of that level.
    pub fn new(vendor: Vendor) -> Processor {
        Processor::of_level(Level::V3, vendor)
    }

    /// A vendor's processor of a level, with the features of that level.
    pub fn of_level(level: Level, vendor: Vendor) -> Processor {
        let of_level = |f: &Feature| f.level().is_some_and(|first| first <= level);
        Processor {
            level,
            generation: Generation::of(level, vendor),
            features: Feature::all().filter(of_level).map(bit).sum(),
            gates: Gates::default(),
        }
    }

    /// The closest processor to the one in the text of a `/proc/cpuinfo`: with its vendor, and with
    /// its features that the machine has too. The level is v3 if it has all of its features.
    pub fn of_cpuinfo(cpuinfo: &str) -> Processor {
        let field = |name: &str| {
            let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let mut fields = fields.filter(|(key, _)| key.trim() == name);
            fields.next().map(|(_, value)| value.trim())
        };
        let number = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let vendor = Vendor::closest(field("vendor_id").unwrap_or_default());
        let mut processor = Processor::of_level(Level::V2, vendor);
        processor.generation = Generation::closest(vendor, number("cpu family"), number("model"));
        if let Some(flags) = field("flags") {
            for feature in Feature::all() {
                let has = flags.split_whitespace().any(|f| f == feature.cpuinfo());
                processor.set(feature, has);
            }
            let highest = Processor::of_level(Level::V3, vendor);
            if processor.features & highest.features == highest.features {
                processor.level = Level::V3;
            }
        }
        processor
    }

    /// Like [`FromStr`]; `host` at the start of the text stands for the result of the function.
    ///
    /// # Errors
    /// If the text does not follow the grammar.
    pub fn parse(text: &str, host: impl FnOnce() -> Processor) -> Result<Processor, ParseError> {
        let mut words = text.split(',').peekable();
        let mut processor = match words.next() {
            // Only called if needed: finding out about this computer costs time.
            Some("host") => host(),
            word => {
                let name = word.unwrap_or_default();

                let level = Level::ALL.into_iter().find(|l| l.as_str() == name);
                let level = level.ok_or_else(|| ParseError::Level(name.to_owned()))?;

                // A vendor has no sign, a feature has one.
                let is_vendor = |word: &&str| !word.starts_with(['+', '-']);
                match words.next_if(is_vendor) {
                    Some(word) => vendor(level, word)?,
                    None => Processor::of_level(level, Vendor::Intel),
                }
            }
        };

        // In order, so that of `+movbe,-movbe` the last one counts.
        for word in words {
            let (has, name) = match (word.strip_prefix('+'), word.strip_prefix('-')) {
                (Some(name), _) => (true, name),
                (_, Some(name)) => (false, name),
                _ => return Err(ParseError::Sign(word.to_owned())),
            };

            let feature = Feature::from_name(name);
            let feature = feature.ok_or_else(|| ParseError::Feature(name.to_owned()))?;
            processor.set(feature, has);
        }

        Ok(processor)
    }

    /// Adds or removes a feature.
    pub fn set(&mut self, feature: Feature, has: bool) {
        self.features &= !bit(feature);
        if has {
            self.features |= bit(feature);
        }
    }

    /// Whether it has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features & bit(feature) != 0
    }

    /// The vendor whose manual it follows.
    pub fn vendor(&self) -> Vendor {
        self.generation.vendor()
    }

    /// The level, without regard to features that were added or removed.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The states that the operating system has enabled: XCR0 (SDM volume 1).
    pub(crate) fn xcr0(&self) -> u64 {
        const X87_SSE: u64 = 0b011;
        const AVX: u64 = 0b100;
        if self.has(Feature::Avx) {
            X87_SSE | AVX
        } else {
            X87_SSE
        }
    }

    /// Whether user mode cannot read the kernel's tables (UMIP): since AMD's Zen 2, and Intel's
    /// Cannon Lake.
    pub(crate) fn has_umip(&self) -> bool {
        match self.generation {
            Generation::Nehalem | Generation::Skylake | Generation::Zen => false,
            Generation::Zen3 | Generation::Zen4 | Generation::Zen5 => true,
        }
    }

    /// What control registers forbid.
    pub(crate) fn gates(&self) -> Gates {
        self.gates
    }

    /// Sets what control registers forbid. Decoded code may then be wrong.
    pub(crate) fn set_gates(&mut self, gates: Gates) {
        self.gates = gates;
    }

    /// The generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The decoder's options: AMD's processors honour a 66 prefix of near branches (APM volume 1,
    /// table 3-9), Intel's ignore it (SDM volume 1).
    pub fn decoder_options(&self) -> u32 {
        match self.vendor() {
            Vendor::Intel => DecoderOptions::NONE,
            Vendor::Amd => DecoderOptions::AMD,
        }
    }

    /// The MXCSR bits that can be set: MXCSR_MASK.
    pub(crate) fn mxcsr_mask(&self) -> u32 {
        match self.vendor() {
            Vendor::Intel => MXCSR_INTEL,
            Vendor::Amd => MXCSR_INTEL | MXCSR_MISALIGNED,
        }
    }

    /// What `fxsave` and related instructions do with the x87 pointers.
    pub(crate) fn pointers(&self) -> Pointers {
        match self.generation {
            Generation::Nehalem | Generation::Skylake => Pointers::Always,
            Generation::Zen => Pointers::Kept,
            Generation::Zen3 | Generation::Zen4 | Generation::Zen5 => Pointers::Zero,
        }
    }

    /// Whether `bytes`, which `insn` was decoded from, are an instruction of this processor. It may
    /// be one although `insn` is invalid.
    pub fn has_instruction(&self, insn: &Instruction, bytes: &[u8]) -> bool {
        self.adapt(&mut insn.clone(), bytes)
    }

    /// Turns the instruction into the one that this processor decodes from `bytes`. Returns false
    /// if that is not an instruction (#UD).
    pub(crate) fn adapt(&self, insn: &mut Instruction, bytes: &[u8]) -> bool {
        match insn.mnemonic() {
            Mnemonic::Lzcnt if !self.has(Feature::Lzcnt) => scan(insn, SCAN_REVERSE),
            Mnemonic::Tzcnt if !self.has(Feature::Bmi1) => scan(insn, SCAN_FORWARD),
            _ => {}
        }
        if self.vendor() == Vendor::Amd {
            amd::adapt(self.generation, insn, bytes);
        }
        !insn.is_invalid() && feature::has_features(self, insn)
    }
}

const SCAN_FORWARD: [Code; 3] = [Code::Bsf_r16_rm16, Code::Bsf_r32_rm32, Code::Bsf_r64_rm64];
const SCAN_REVERSE: [Code; 3] = [Code::Bsr_r16_rm16, Code::Bsr_r32_rm32, Code::Bsr_r64_rm64];

/// The instruction without its F3 prefix (SDM volume 2, LZCNT and TZCNT).
fn scan(insn: &mut Instruction, to: [Code; 3]) {
    insn.set_code(match insn.op0_register().size() {
        2 => to[0],
        4 => to[1],
        _ => to[2],
    });
}

/// What `fxsave` and related instructions store as the last x87 instruction, operand and opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pointers {
    /// The pointers, always (SDM volume 1).
    Always,
    /// Nothing, unless an exception is pending. They are loaded under the same condition (APM
    /// volume 5, FXSAVE and FXRSTOR; without XSaveErPtr, CPUID 8000_0008 EBX bit 2).
    Kept,
    /// Zero, unless an exception is pending. They are loaded under the same condition (seen on AMD
    /// EPYCs, family 25, models 1 and 17).
    Zero,
}

fn bit(feature: Feature) -> u64 {
    1 << feature as u32
}

fn vendor(level: Level, word: &str) -> Result<Processor, ParseError> {
    let (name, generation) = match word.split_once(':') {
        Some((name, generation)) => (name, Some(generation)),
        None => (word, None),
    };
    let vendor = Vendor::ALL.into_iter().find(|v| v.as_str() == name);
    let vendor = vendor.ok_or_else(|| ParseError::Vendor(name.to_owned()))?;
    let mut processor = Processor::of_level(level, vendor);
    if let Some(name) = generation {
        let mut known = Generation::ALL.into_iter();
        let generation = known.find(|g| g.vendor() == vendor && g.as_str() == name);
        processor.generation = generation.ok_or_else(|| ParseError::Generation {
            vendor: vendor.as_str(),
            generation: name.to_owned(),
        })?;
    }
    Ok(processor)
}

impl FromStr for Processor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Processor, ParseError> {
        if text.starts_with("host") {
            Err(ParseError::Level(text.to_owned()))
        } else {
            Processor::parse(text, Processor::default)
        }
    }
}

/// In the grammar, without defaults.
impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Processor::of_level(self.level, self.vendor());
        write!(f, "{},{}", self.level.as_str(), self.vendor().as_str())?;
        if self.generation != plain.generation {
            write!(f, ":{}", self.generation.as_str())?;
        }
        for feature in Feature::all() {
            if self.has(feature) != plain.has(feature) {
                let sign = if self.has(feature) { '+' } else { '-' };
                write!(f, ",{sign}{}", feature.as_str())?;
            }
        }
        Ok(())
    }
}

/// Why a text is not a processor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Unknown level.
    #[error("unknown level `{0}`; known: v1, v2, v3, or host for this computer's processor")]
    Level(String),
    /// Unknown vendor.
    #[error("unknown vendor `{0}`; known: intel, amd")]
    Vendor(String),
    /// Unknown generation.
    #[error(
        "unknown generation `{generation}` of {vendor}; known: intel:nehalem, intel:skylake, amd:zen, amd:zen3, amd:zen4, amd:zen5"
    )]
    Generation {
        /// The vendor.
        vendor: &'static str,
        /// The unknown word.
        generation: String,
    },
    /// A feature without `+` or `-`.
    #[error("`{0}` is not a feature; write +NAME or -NAME")]
    Sign(String),
    /// Unknown feature.
    #[error("unknown feature `{0}`; known: {names}", names = names())]
    Feature(String),
}

fn names() -> String {
    let names: Vec<&str> = Feature::all().map(Feature::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
