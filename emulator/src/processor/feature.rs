//! The features of processors: their names, the level that includes each, and the instructions that
//! require it.

use super::{Level, Processor};
use iced_x86::{CpuidFeature, EncodingKind, Instruction, Mnemonic};

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
    /// BMI1. Without it, the bytes of TZCNT are BSF.
    Bmi1,
    /// CLFLUSHOPT.
    Clflushopt,
    /// CLWB.
    Clwb,
    /// AVX, and every other VEX instruction with vector registers.
    Avx,
    /// AVX2.
    Avx2,
    /// FMA3.
    Fma,
    /// Conversions between half and single precision.
    F16c,
    /// BMI2.
    Bmi2,
    /// ADCX and ADOX.
    Adx,
    /// AES-NI.
    Aes,
    /// PCLMULQDQ.
    Pclmulqdq,
    /// AES of ymm registers.
    Vaes,
    /// PCLMULQDQ of ymm registers.
    Vpclmulqdq,
    /// SHA-1 and SHA-256.
    Sha,
    /// Galois fields.
    Gfni,
    /// RDRAND.
    Rdrand,
    /// RDSEED.
    Rdseed,
    /// RDPID.
    Rdpid,
    /// CLZERO. Only AMD has it.
    Clzero,
    /// SSE4A. Only AMD has it.
    Sse4a,
}

/// A feature, its name, its name in `/proc/cpuinfo`, the feature of its instructions, and the first
/// level that has it.
type FeatureRow = (
    Feature,
    &'static str,
    &'static str,
    Option<CpuidFeature>,
    Option<Level>,
);

const V2: Option<Level> = Some(Level::V2);
const V3: Option<Level> = Some(Level::V3);

/// All features. The levels are those of the psABI, table 3.1; `v2` also has what a libc requires,
/// and what its processors have that programs use without asking.
#[rustfmt::skip]
const FEATURES: [FeatureRow; 34] = [
    (Feature::Sse3, "sse3", "pni", Some(CpuidFeature::SSE3), V2),
    (Feature::Ssse3, "ssse3", "ssse3", Some(CpuidFeature::SSSE3), V2),
    (Feature::Cx16, "cx16", "cx16", Some(CpuidFeature::CMPXCHG16B), V2),
    (Feature::Sse41, "sse4.1", "sse4_1", Some(CpuidFeature::SSE4_1), V2),
    (Feature::Sse42, "sse4.2", "sse4_2", Some(CpuidFeature::SSE4_2), V2),
    (Feature::Popcnt, "popcnt", "popcnt", Some(CpuidFeature::POPCNT), V2),
    (Feature::Lahf, "lahf", "lahf_lm", None, V2),
    (Feature::Xsave, "xsave", "xsave", Some(CpuidFeature::XSAVE), V2),
    (Feature::Xsaveopt, "xsaveopt", "xsaveopt", Some(CpuidFeature::XSAVEOPT), V2),
    (Feature::Xsavec, "xsavec", "xsavec", Some(CpuidFeature::XSAVEC), V2),
    (Feature::Fsgsbase, "fsgsbase", "fsgsbase", Some(CpuidFeature::FSGSBASE), V2),
    (Feature::Rdtscp, "rdtscp", "rdtscp", Some(CpuidFeature::RDTSCP), V2),
    (Feature::Movbe, "movbe", "movbe", Some(CpuidFeature::MOVBE), V3),
    (Feature::Lzcnt, "lzcnt", "abm", Some(CpuidFeature::LZCNT), V3),
    (Feature::Bmi1, "bmi1", "bmi1", Some(CpuidFeature::BMI1), V3),
    (Feature::Clflushopt, "clflushopt", "clflushopt", Some(CpuidFeature::CLFLUSHOPT), None),
    (Feature::Clwb, "clwb", "clwb", Some(CpuidFeature::CLWB), None),
    (Feature::Avx, "avx", "avx", Some(CpuidFeature::AVX), V3),
    (Feature::Avx2, "avx2", "avx2", Some(CpuidFeature::AVX2), V3),
    (Feature::Fma, "fma", "fma", Some(CpuidFeature::FMA), V3),
    (Feature::F16c, "f16c", "f16c", Some(CpuidFeature::F16C), V3),
    (Feature::Bmi2, "bmi2", "bmi2", Some(CpuidFeature::BMI2), V3),
    (Feature::Adx, "adx", "adx", Some(CpuidFeature::ADX), None),
    (Feature::Aes, "aes", "aes", Some(CpuidFeature::AES), None),
    (Feature::Pclmulqdq, "pclmulqdq", "pclmulqdq", Some(CpuidFeature::PCLMULQDQ), None),
    (Feature::Vaes, "vaes", "vaes", Some(CpuidFeature::VAES), None),
    (Feature::Vpclmulqdq, "vpclmulqdq", "vpclmulqdq", Some(CpuidFeature::VPCLMULQDQ), None),
    (Feature::Sha, "sha", "sha_ni", Some(CpuidFeature::SHA), None),
    (Feature::Gfni, "gfni", "gfni", Some(CpuidFeature::GFNI), None),
    (Feature::Rdrand, "rdrand", "rdrand", Some(CpuidFeature::RDRAND), None),
    (Feature::Rdseed, "rdseed", "rdseed", Some(CpuidFeature::RDSEED), None),
    (Feature::Rdpid, "rdpid", "rdpid", Some(CpuidFeature::RDPID), None),
    (Feature::Clzero, "clzero", "clzero", Some(CpuidFeature::CLZERO), None),
    (Feature::Sse4a, "sse4a", "sse4a", Some(CpuidFeature::SSE4A), None),
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

    /// The name in `/proc/cpuinfo`.
    pub(super) fn cpuinfo(self) -> &'static str {
        FEATURES[self as usize].2
    }

    /// The first level that has it.
    pub(super) fn level(self) -> Option<Level> {
        FEATURES[self as usize].4
    }

    pub(super) fn from_name(name: &str) -> Option<Feature> {
        match name {
            // The part of BMI1 that was modelled first.
            "tzcnt" => Some(Feature::Bmi1),
            _ => Feature::all().find(|feature| feature.as_str() == name),
        }
    }

    fn of(feature: CpuidFeature) -> Option<Feature> {
        let row = FEATURES.iter().find(|row| row.3 == Some(feature));
        row.map(|row| row.0)
    }
}

/// Whether a processor has the features that an instruction requires. Features that no processor
/// of the machine has do not count: their instructions are not modelled.
pub(super) fn has_features(processor: &Processor, insn: &Instruction) -> bool {
    let has = |feature| processor.has(feature);
    let is_vector = |number| insn.op_register(number).is_vector_register();
    let uses_avx = insn.encoding() == EncodingKind::VEX && (0..insn.op_count()).any(is_vector);
    let uses_lahf = matches!(insn.mnemonic(), Mnemonic::Lahf | Mnemonic::Sahf);
    let mut required = insn.cpuid_features().iter().map(|f| Feature::of(*f));
    (!uses_avx || has(Feature::Avx) && has(Feature::Xsave))
        && (!uses_lahf || has(Feature::Lahf))
        && required.all(|feature| feature.is_none_or(has))
}
