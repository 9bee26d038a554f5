//! The emulated processor: its level, vendor, generation and features.
//!
//! [`Processor`] is written `LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]`, for example
//! `v2,amd:zen4,+movbe`. Not here: the answers of `cpuid` (`isa/cpuid.rs`), and the differences
//! that a comparison with a processor allows ([`crate::differences`]).

mod amd;

use iced_x86::{Code, CpuidFeature, DecoderOptions, Instruction, Mnemonic};
use std::fmt;
use std::str::FromStr;

/// A microarchitecture level of the x86-64 psABI (section 3.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// x86-64-v2: up to SSE4.2.
    V2,
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
}

impl Generation {
    /// All generations, the oldest of each vendor first.
    pub const ALL: [Generation; 5] = [
        Generation::Nehalem,
        Generation::Skylake,
        Generation::Zen,
        Generation::Zen3,
        Generation::Zen4,
    ];

    /// The name in [`Processor`]'s grammar.
    pub fn as_str(self) -> &'static str {
        match self {
            Generation::Nehalem => "nehalem",
            Generation::Skylake => "skylake",
            Generation::Zen => "zen",
            Generation::Zen3 => "zen3",
            Generation::Zen4 => "zen4",
        }
    }

    /// The vendor of the generation.
    pub fn vendor(self) -> Vendor {
        match self {
            Generation::Nehalem | Generation::Skylake => Vendor::Intel,
            Generation::Zen | Generation::Zen3 | Generation::Zen4 => Vendor::Amd,
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
        }
    }

    /// The default generation of a vendor: the one whose behaviour was measured, or the first with
    /// the level.
    fn of(vendor: Vendor) -> Generation {
        match vendor {
            Vendor::Intel => Generation::Nehalem,
            Vendor::Amd => Generation::Zen4,
        }
    }

    /// The vendor's newest generation that is not newer than this family and model, or else its
    /// oldest.
    fn closest(vendor: Vendor, family: u32, model: u32) -> Generation {
        let of_vendor = || Generation::ALL.into_iter().filter(|g| g.vendor() == vendor);
        let older = |g: &Generation| g.identity()[..2] <= [family, model][..];
        let found = of_vendor().rfind(older).or(of_vendor().next());
        found.unwrap_or(Generation::of(vendor))
    }
}

/// A feature that not every x86-64 processor has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// SSE3.
    Sse3,
    /// SSSE3.
    Ssse3,
    /// CMPXCHG16B.
    Cx16,
    /// SSE4.1.
    Sse41,
    /// SSE4.2.
    Sse42,
    /// POPCNT.
    Popcnt,
    /// LAHF and SAHF in 64-bit mode.
    Lahf,
    /// XSAVE, XRSTOR, XGETBV.
    Xsave,
    /// XSAVEOPT.
    Xsaveopt,
    /// XSAVEC.
    Xsavec,
    /// RDFSBASE and related instructions.
    Fsgsbase,
    /// RDTSCP.
    Rdtscp,
    /// MOVBE.
    Movbe,
    /// LZCNT. Without it, its bytes are BSR.
    Lzcnt,
    /// TZCNT. Without it, its bytes are BSF. `cpuid` announces it only as a part of BMI1, which the
    /// machine does not have, so programs cannot detect it.
    Tzcnt,
    /// CLFLUSHOPT.
    Clflushopt,
    /// CLWB.
    Clwb,
}

/// A feature, its name, its name in `/proc/cpuinfo`, and whether the default processor has it.
type Row = (Feature, &'static str, &'static str, bool);

/// All features. The default is x86-64-v2 (psABI, table 3.1) and what a libc also requires.
const FEATURES: [Row; 17] = [
    (Feature::Sse3, "sse3", "pni", true),
    (Feature::Ssse3, "ssse3", "ssse3", true),
    (Feature::Cx16, "cx16", "cx16", true),
    (Feature::Sse41, "sse4.1", "sse4_1", true),
    (Feature::Sse42, "sse4.2", "sse4_2", true),
    (Feature::Popcnt, "popcnt", "popcnt", true),
    (Feature::Lahf, "lahf", "lahf_lm", true),
    (Feature::Xsave, "xsave", "xsave", true),
    (Feature::Xsaveopt, "xsaveopt", "xsaveopt", true),
    (Feature::Xsavec, "xsavec", "xsavec", true),
    (Feature::Fsgsbase, "fsgsbase", "fsgsbase", true),
    (Feature::Rdtscp, "rdtscp", "rdtscp", true),
    (Feature::Movbe, "movbe", "movbe", false),
    (Feature::Lzcnt, "lzcnt", "abm", false),
    (Feature::Tzcnt, "tzcnt", "bmi1", false),
    (Feature::Clflushopt, "clflushopt", "clflushopt", false),
    (Feature::Clwb, "clwb", "clwb", false),
];

impl Feature {
    /// All features.
    pub fn all() -> impl Iterator<Item = Feature> {
        FEATURES.iter().map(|row| row.0)
    }

    /// The name in [`Processor`]'s grammar.
    pub fn as_str(self) -> &'static str {
        FEATURES[self as usize].1
    }

    fn from_name(name: &str) -> Option<Feature> {
        let row = FEATURES.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
    }

    /// The feature that an instruction requires, if any.
    fn of(insn: &Instruction) -> Option<Feature> {
        if matches!(insn.mnemonic(), Mnemonic::Lahf | Mnemonic::Sahf) {
            return Some(Feature::Lahf);
        }
        insn.cpuid_features().iter().find_map(|feature| {
            Some(match feature {
                CpuidFeature::SSE3 => Feature::Sse3,
                CpuidFeature::SSSE3 => Feature::Ssse3,
                CpuidFeature::CMPXCHG16B => Feature::Cx16,
                CpuidFeature::SSE4_1 => Feature::Sse41,
                CpuidFeature::SSE4_2 => Feature::Sse42,
                CpuidFeature::POPCNT => Feature::Popcnt,
                CpuidFeature::XSAVE => Feature::Xsave,
                CpuidFeature::XSAVEOPT => Feature::Xsaveopt,
                CpuidFeature::XSAVEC => Feature::Xsavec,
                CpuidFeature::FSGSBASE => Feature::Fsgsbase,
                CpuidFeature::RDTSCP => Feature::Rdtscp,
                CpuidFeature::MOVBE => Feature::Movbe,
                CpuidFeature::CLFLUSHOPT => Feature::Clflushopt,
                CpuidFeature::CLWB => Feature::Clwb,
                _ => return None,
            })
        })
    }
}

/// The emulated processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Processor {
    level: Level,
    generation: Generation,
    /// The features, one bit for each [`Feature`].
    features: u32,
}

impl Default for Processor {
    /// `v2,intel`, on every host.
    fn default() -> Processor {
        Processor::new(Vendor::Intel)
    }
}

/// The MXCSR bits of Intel's processors (SDM volume 1, section 10.2.3).
const MXCSR_INTEL: u32 = 0xffff;
/// MXCSR.MM of AMD's processors: SSE operands need not be aligned (APM volume 1, section 4.2.2).
pub(crate) const MXCSR_MISALIGNED: u32 = 1 << 17;

impl Processor {
    /// A vendor's processor of level v2, with the features of that level.
    pub fn new(vendor: Vendor) -> Processor {
        let bit = |row: &Row| u32::from(row.3) << row.0 as u32;
        Processor {
            level: Level::V2,
            generation: Generation::of(vendor),
            features: FEATURES.iter().map(bit).sum(),
        }
    }

    /// The closest processor to the one in the text of a `/proc/cpuinfo`: with its vendor, and with
    /// its features that the machine has too.
    pub fn of_cpuinfo(cpuinfo: &str) -> Processor {
        let field = |name: &str| {
            let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let mut fields = fields.filter(|(key, _)| key.trim() == name);
            fields.next().map(|(_, value)| value.trim())
        };
        let number = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let vendor = Vendor::closest(field("vendor_id").unwrap_or_default());
        let mut processor = Processor::new(vendor);
        processor.generation = Generation::closest(vendor, number("cpu family"), number("model"));
        if let Some(flags) = field("flags") {
            for (feature, _, name, _) in FEATURES {
                let has = flags.split_whitespace().any(|flag| flag == name);
                processor.set(feature, has);
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
            Some("v2") => {
                let is_vendor = |word: &&str| !word.starts_with(['+', '-']);
                match words.next_if(is_vendor) {
                    Some(word) => vendor(word)?,
                    None => Processor::default(),
                }
            }
            Some("host") => host(),
            word => return Err(ParseError::Level(word.unwrap_or_default().to_owned())),
        };
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
        let bit = 1 << feature as u32;
        self.features = self.features & !bit | if has { bit } else { 0 };
    }

    /// Whether it has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features >> feature as u32 & 1 != 0
    }

    /// The vendor whose manual it follows.
    pub fn vendor(&self) -> Vendor {
        self.generation.vendor()
    }

    /// The generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The decoder's options: AMD's processors honour a 66 prefix of near branches (APM volume 1,
    /// table 3-9), Intel's ignore it (SDM volume 1, section 6.3.7).
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
            Generation::Zen3 | Generation::Zen4 => Pointers::Zero,
        }
    }

    /// Turns the instruction into the one that this processor decodes from `bytes`. Returns false
    /// if that is not an instruction (#UD).
    pub(crate) fn adapt(&self, insn: &mut Instruction, bytes: &[u8]) -> bool {
        match insn.mnemonic() {
            Mnemonic::Lzcnt if !self.has(Feature::Lzcnt) => scan(insn, SCAN_REVERSE),
            Mnemonic::Tzcnt if !self.has(Feature::Tzcnt) => scan(insn, SCAN_FORWARD),
            _ => {}
        }
        if self.vendor() == Vendor::Amd {
            amd::adapt(insn, bytes);
        }
        !insn.is_invalid() && Feature::of(insn).is_none_or(|feature| self.has(feature))
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
    /// The pointers, always (SDM volume 1, section 10.5.1).
    Always,
    /// Nothing, unless an exception is pending. They are loaded under the same condition (APM
    /// volume 5, FXSAVE and FXRSTOR; without XSaveErPtr, CPUID 8000_0008 EBX bit 2).
    Kept,
    /// Zero, unless an exception is pending. They are loaded under the same condition (seen on AMD
    /// EPYCs, family 25, models 1 and 17).
    Zero,
}

fn vendor(word: &str) -> Result<Processor, ParseError> {
    let (name, generation) = match word.split_once(':') {
        Some((name, generation)) => (name, Some(generation)),
        None => (word, None),
    };
    let vendor = Vendor::ALL.into_iter().find(|v| v.as_str() == name);
    let vendor = vendor.ok_or_else(|| ParseError::Vendor(name.to_owned()))?;
    let mut processor = Processor::new(vendor);
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
        match text.starts_with("host") {
            true => Err(ParseError::Level(text.to_owned())),
            false => Processor::parse(text, Processor::default),
        }
    }
}

/// In the grammar, without defaults.
impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Processor::new(self.vendor());
        let Level::V2 = self.level;
        write!(f, "v2,{}", self.vendor().as_str())?;
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
    #[error("unknown level `{0}`; known: v2, or host for this computer's processor")]
    Level(String),
    /// Unknown vendor.
    #[error("unknown vendor `{0}`; known: intel, amd")]
    Vendor(String),
    /// Unknown generation.
    #[error(
        "unknown generation `{generation}` of {vendor}; known: intel:nehalem, intel:skylake, amd:zen, amd:zen4"
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
