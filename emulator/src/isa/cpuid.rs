//! Information about the processor: cpuid, rdtsc, rdtscp, rdpid, xgetbv. It reports exactly the features
//! that the machine executes.

use super::save;
use crate::core::Core;
use crate::op::{Flow, Op, Run, raise, stop};
use crate::processor::{Feature, Generation, Pointers, Processor, Vendor};
use crate::state::reg;
use crate::stop::{Exception, Stop};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match insn.mnemonic() {
        Mnemonic::Cpuid => cpuid,
        Mnemonic::Rdtsc => rdtsc,
        Mnemonic::Rdtscp => rdtscp,
        Mnemonic::Rdpid => rdpid,
        Mnemonic::Xgetbv => xgetbv,
        _ => return None,
    })
}

/// The brand string without the level.
const BRAND: &str = "unwind-sim x86-64-";

const LEAF_MAX: u32 = 0xd;
const EXTENDED_LEAF_MAX: u32 = 0x8000_0008;

// Features by SDM volume 2, CPUID, tables 3-8, 3-10 and 3-11, and APM volume 3, appendix E, except
// those that only a kernel can use.

/// Leaf 1, edx; also `AT_HWCAP`.
pub(crate) const FEATURES_EDX: u32 = bits(&[
    0,  // FPU
    4,  // TSC
    8,  // CMPXCHG8B
    15, // CMOV
    19, // CLFLUSH
    23, // MMX
    24, // FXSAVE
    25, // SSE
    26, // SSE2
]);
/// Leaf 1, ecx: the bits of features.
const FEATURES_ECX: [(Feature, u32); 15] = [
    (Feature::Sse3, 0),
    (Feature::Pclmulqdq, 1),
    (Feature::Ssse3, 9),
    (Feature::Fma, 12),
    (Feature::Cx16, 13),
    (Feature::Sse41, 19),
    (Feature::Sse42, 20),
    (Feature::Movbe, 22),
    (Feature::Popcnt, 23),
    (Feature::Aes, 25),
    (Feature::Xsave, 26),
    (Feature::Xsave, 27), // OSXSAVE
    (Feature::Avx, 28),
    (Feature::F16c, 29),
    (Feature::Rdrand, 30),
];
/// Leaf 7, ebx: the bits of features.
const STRUCTURED_EBX: [(Feature, u32); 9] = [
    (Feature::Fsgsbase, 0),
    (Feature::Bmi1, 3),
    (Feature::Avx2, 5),
    (Feature::Bmi2, 8),
    (Feature::Rdseed, 18),
    (Feature::Adx, 19),
    (Feature::Clflushopt, 23),
    (Feature::Clwb, 24),
    (Feature::Sha, 29),
];
/// Leaf 7, ecx: the bits of features.
const STRUCTURED_ECX: [(Feature, u32); 4] = [
    (Feature::Gfni, 8),
    (Feature::Vaes, 9),
    (Feature::Vpclmulqdq, 10),
    (Feature::Rdpid, 22),
];
/// Leaf 7, ebx, on Intel's processors.
const STRUCTURED_EBX_INTEL: u32 = bits(&[
    6,  // FDP is written only by x87 instructions that raise
    13, // FCS and FDS are 0
]);
/// Leaf 0xd, subleaf 1, eax: the bits of features.
const XSAVE_EAX: [(Feature, u32); 3] = [
    (Feature::Xsaveopt, 0),
    (Feature::Xsavec, 1),
    (Feature::Xsave, 2), // XGETBV of XINUSE
];
/// Leaf 0x8000_0001, edx.
const EXTENDED_EDX: u32 = bits(&[
    11, // SYSCALL
    20, // NX
    29, // 64-bit mode
]);
/// The bits of leaf 1, edx, that AMD's processors repeat in leaf 0x8000_0001.
const REPEATED_EDX: u32 = 0x0183_f3ff;
/// Leaf 0x8000_0001, ecx.
const EXTENDED_ECX: u32 = bits(&[
    8, // PREFETCHW
]);
/// Leaf 0x8000_0001, ecx, on AMD's processors.
const EXTENDED_ECX_AMD: u32 = bits(&[
    7, // MXCSR.MM: SSE operands need not be aligned
]);
/// Leaf 0x8000_0001, ecx: the bits of features.
const EXTENDED_ECX_FEATURES: [(Feature, u32); 3] =
    [(Feature::Lahf, 0), (Feature::Lzcnt, 5), (Feature::Sse4a, 6)];
/// Leaf 0x8000_0008, ebx: the x87 pointers are always stored and loaded (XSaveErPtr).
const ERROR_POINTERS: u32 = bits(&[2]);

const fn bits(numbers: &[u32]) -> u32 {
    let mut all = 0;
    let mut i = 0;
    while i < numbers.len() {
        all |= 1 << numbers[i];
        i += 1;
    }
    all
}

/// The bits in `table` of the features that the processor has.
fn features(processor: &Processor, table: &[(Feature, u32)]) -> u32 {
    let has = table.iter().filter(|(feature, _)| processor.has(*feature));
    has.fold(0, |all, (_, bit)| all | 1 << bit)
}

/// Family, model and stepping in the format of leaf 1 (SDM volume 2, CPUID, figure 3-6).
fn signature(processor: &Processor) -> u32 {
    let [family, model, stepping] = processor.generation().identity();
    let (extended_family, family) = (family.saturating_sub(0xf), family.min(0xf));
    extended_family << 20 | model >> 4 << 16 | family << 8 | (model & 0xf) << 4 | stepping
}

/// Line size of all caches, bytes.
const LINE: u32 = 64;

/// A cache in the terms of leaf 4.
struct Cache {
    /// 1: data, 2: instructions, 3: both.
    kind: u32,
    level: u32,
    ways: u32,
    /// Bytes.
    size: u32,
}

/// The caches that a core of the generation has or shares: for data, for instructions, of the second
/// and of the third level. They are those of an i7-920, i7-6700, Ryzen 7 1800X, EPYC 7763, EPYC 9654
/// and EPYC 9755.
fn caches(generation: Generation) -> [Cache; 4] {
    const KIB: u32 = 1 << 10;
    const MIB: u32 = 1 << 20;
    let [data, instructions, second, third] = match generation {
        Generation::Nehalem => [(8, 32 * KIB), (4, 32 * KIB), (8, 256 * KIB), (16, 8 * MIB)],
        Generation::Skylake => [(8, 32 * KIB), (8, 32 * KIB), (4, 256 * KIB), (16, 8 * MIB)],
        Generation::Zen => [(8, 32 * KIB), (4, 64 * KIB), (8, 512 * KIB), (16, 8 * MIB)],
        Generation::Zen3 => [(8, 32 * KIB), (8, 32 * KIB), (8, 512 * KIB), (16, 32 * MIB)],
        Generation::Zen4 => [(8, 32 * KIB), (8, 32 * KIB), (8, MIB), (16, 32 * MIB)],
        Generation::Zen5 => [(12, 48 * KIB), (8, 32 * KIB), (16, MIB), (16, 32 * MIB)],
    };
    let cache = |kind, level, (ways, size)| Cache {
        kind,
        level,
        ways,
        size,
    };
    [
        cache(1, 1, data),
        cache(2, 1, instructions),
        cache(3, 2, second),
        cache(3, 3, third),
    ]
}

/// The number of ways in leaf 0x8000_0006 (APM volume 3, appendix E).
fn ways_code(ways: u32) -> u32 {
    match ways {
        0..=2 => ways,
        3..=4 => 4,
        5..=8 => 6,
        _ => 8,
    }
}

/// Size of the xsave area with all states that are enabled, bytes.
fn xsave_size(processor: &Processor) -> u32 {
    save::size(processor.xcr0()) as u32
}

/// eax, ebx, ecx and edx of a leaf.
pub(crate) fn leaf(processor: &Processor, leaf: u32, subleaf: u32) -> [u32; 4] {
    let text = |bytes: &[u8], word: usize| {
        let at = bytes.get(4 * word..4 * word + 4);
        at.and_then(|at| at.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };

    let vendor = processor.vendor().cpuid();
    let is_intel = processor.vendor() == Vendor::Intel;
    let has_xsave = processor.has(Feature::Xsave);

    match leaf {
        // The vendor's name is in ebx, edx, ecx, in this order.
        0 => [LEAF_MAX, text(vendor, 0), text(vendor, 2), text(vendor, 1)],
        // ebx: one logical processor; the clflush line size in units of 8 bytes.
        1 => [
            signature(processor),
            1 << 16 | (LINE / 8) << 8,
            features(processor, &FEATURES_ECX),
            FEATURES_EDX,
        ],
        // Descriptor 0xff: see leaf 4. 0xf0: 64-byte prefetching.
        2 if is_intel => [0xff01, 0xf0, 0, 0],
        4 if is_intel => match caches(processor.generation()).get(subleaf as usize) {
            // Ways, line size and sets are stored less 1 (SDM volume 2, CPUID).
            Some(cache) => {
                let sets = cache.size / cache.ways / LINE;
                // Self-initializing.
                let eax = cache.kind | cache.level << 5 | 1 << 8;
                [eax, (cache.ways - 1) << 22 | (LINE - 1), sets - 1, 0]
            }
            None => [0; 4],
        },
        // Structured extended features.
        7 if subleaf == 0 => {
            let ebx = features(processor, &STRUCTURED_EBX);
            let ebx = ebx | if is_intel { STRUCTURED_EBX_INTEL } else { 0 };
            [0, ebx, features(processor, &STRUCTURED_ECX), 0]
        }
        // Subleaf 0: the components in XCR0, the size of an area with those, and with all that
        // exist.
        0xd if has_xsave => {
            let size = xsave_size(processor);
            match subleaf {
                0 => [processor.xcr0() as u32, size, size, 0],
                1 => [features(processor, &XSAVE_EAX), size, 0, 0],
                // Size and offset of the upper halves of ymm.
                2 if processor.has(Feature::Avx) => {
                    [save::AVX_SIZE as u32, save::AVX_OFFSET as u32, 0, 0]
                }
                _ => [0; 4],
            }
        }
        0x8000_0000 if is_intel => [EXTENDED_LEAF_MAX, 0, 0, 0],
        // AMD repeats the vendor here.
        0x8000_0000 => {
            let [_, ebx, ecx, edx] = self::leaf(processor, 0, 0);
            [EXTENDED_LEAF_MAX, ebx, ecx, edx]
        }
        0x8000_0001 => {
            let ecx = EXTENDED_ECX | features(processor, &EXTENDED_ECX_FEATURES);
            let edx = EXTENDED_EDX | features(processor, &[(Feature::Rdtscp, 27)]);
            match processor.vendor() {
                Vendor::Intel => [0, 0, ecx, edx],
                Vendor::Amd => {
                    // AMD repeats some of leaf 1's bits here; Intel reserves them.
                    let edx = edx | FEATURES_EDX & REPEATED_EDX;
                    [signature(processor), 0, ecx | EXTENDED_ECX_AMD, edx]
                }
            }
        }
        // 16 bytes of the brand string in each leaf.
        0x8000_0002..=0x8000_0004 => {
            let first = (leaf - 0x8000_0002) as usize * 4;
            let brand = [BRAND, processor.level().as_str(), "\0\0"].concat();
            [0, 1, 2, 3].map(|word| text(brand.as_bytes(), first + word))
        }
        // The first-level caches, data and instructions: KiB, ways, lines per tag, line size.
        0x8000_0005 if !is_intel => {
            let first = |c: &Cache| (c.size >> 10) << 24 | c.ways << 16 | 1 << 8 | LINE;
            let [data, instructions, ..] = caches(processor.generation());
            [0, 0, first(&data), first(&instructions)]
        }
        // The second-level cache: KiB, ways, line size. The third-level cache: units of 512 KiB, ways.
        0x8000_0006 => {
            let [_, _, second, third] = caches(processor.generation());
            // Skylake says 8 ways here, although leaf 4 says 4.
            let ways = if is_intel { 8 } else { second.ways };
            let second = (second.size >> 10) << 16 | ways_code(ways) << 12 | LINE;
            let third = (third.size >> 19) << 18 | ways_code(third.ways) << 12 | 1 << 8 | LINE;
            [0, 0, second, if is_intel { 0 } else { third }]
        }
        // Address bits: virtual, physical.
        0x8000_0008 => {
            // RstrFpErrPtrs: the pointers are always saved and restored (APM volume 3, CPUID).
            let ebx = match processor.pointers() {
                Pointers::Zero => ERROR_POINTERS,
                Pointers::Always | Pointers::Kept => 0,
            };
            let ebx = ebx | features(processor, &[(Feature::Clzero, 0)]);
            [save::LINEAR_BITS << 8 | 40, ebx, 0, 0]
        }
        _ => [0; 4],
    }
}

fn cpuid(core: &mut Core, _: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let ask = |number| core.state.gpr[number] as u32;
    let [eax, ebx, ecx, edx] = leaf(&core.processor, ask(reg::RAX), ask(reg::RCX));
    for (number, value) in [
        (reg::RAX, eax),
        (reg::RBX, ebx),
        (reg::RCX, ecx),
        (reg::RDX, edx),
    ] {
        core.state.gpr[number] = value.into();
    }
    Flow::Next
}

/// A tick is an instruction; `imm` is the number of instructions before it in the block.
fn rdtsc(core: &mut Core, op: &Op) -> Flow {
    let time = core.time + op.imm();
    core.state.set::<32>(reg::RAX as u8, time);
    core.state.set::<32>(reg::RDX as u8, time >> 32);
    Flow::Next
}

/// rcx gets the processor's number, 0.
fn rdtscp(core: &mut Core, op: &Op) -> Flow {
    core.state.gpr[reg::RCX] = 0;
    rdtsc(core, op)
}

/// The processor's number, 0.
fn rdpid(core: &mut Core, op: &Op) -> Flow {
    core.state.set::<64>(op.dst, 0);
    Flow::Next
}

/// The states that xsave can save, or those that are in use.
fn xgetbv(core: &mut Core, _: &Op) -> Flow {
    let states = match core.state.gpr[reg::RCX] as u32 {
        0 => core.processor.xcr0(),
        1 => save::in_use(core),
        _ => return raise(core, Exception::GeneralProtection),
    };
    core.state.gpr[reg::RAX] = states;
    core.state.gpr[reg::RDX] = 0;
    Flow::Next
}
