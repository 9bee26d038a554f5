//! What the processor says of itself: cpuid, rdtsc, rdtscp, xgetbv. It is an x86-64-v2 of our own
//! that has nothing else than what the machine executes.

use super::save::{self, XCR0};
use crate::op::{Flow, Op, Run, raise};
use crate::state::{State, reg};
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match insn.mnemonic() {
        Mnemonic::Cpuid => cpuid,
        Mnemonic::Rdtsc => rdtsc,
        Mnemonic::Rdtscp => rdtscp,
        Mnemonic::Xgetbv => xgetbv,
        _ => return None,
    })
}

/// Whose processor it is said to be: programs know how to ask such a one for its caches.
const VENDOR: &[u8; 12] = b"GenuineIntel";
/// What it is.
const BRAND: &[u8; 48] =
    b"unwind-sim x86-64-v2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Family 6, model 0x1a, stepping 3: the first that was x86-64-v2.
const SIGNATURE: u32 = 0x106a3;

const LEAF_MAX: u32 = 0xd;
const EXTENDED_LEAF_MAX: u32 = 0x8000_0008;

// The features, by SDM volume 2, CPUID, tables 3-8, 3-10 and 3-11. What only a kernel can use is
// left out.

/// Leaf 1, edx; `AT_HWCAP` too.
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
/// Leaf 1, ecx.
const FEATURES_ECX: u32 = bits(&[
    0,  // SSE3
    9,  // SSSE3
    13, // CMPXCHG16B
    19, // SSE4.1
    20, // SSE4.2
    22, // MOVBE
    23, // POPCNT
    26, // XSAVE
    27, // OSXSAVE
]);
/// Leaf 7, ebx.
const STRUCTURED_EBX: u32 = bits(&[
    0,  // FSGSBASE
    6,  // FDP only of x87 instructions that raise
    13, // FCS and FDS are 0
]);
/// Leaf 0xd, subleaf 1, eax.
const XSAVE_EAX: u32 = bits(&[
    0, // XSAVEOPT
    1, // XSAVEC
    2, // XGETBV of XINUSE
]);
/// Leaf 0x8000_0001, edx.
const EXTENDED_EDX: u32 = bits(&[
    11, // SYSCALL
    20, // NX
    27, // RDTSCP
    29, // 64-bit mode
]);
/// Leaf 0x8000_0001, ecx.
const EXTENDED_ECX: u32 = bits(&[
    0, // LAHF and SAHF
    8, // PREFETCHW
]);

const fn bits(numbers: &[u32]) -> u32 {
    let mut all = 0;
    let mut i = 0;
    while i < numbers.len() {
        all |= 1 << numbers[i];
        i += 1;
    }
    all
}

/// Bytes of a line of any cache.
const LINE: u32 = 64;

/// A cache as leaf 4 describes it.
struct Cache {
    /// 1 data, 2 instructions, 3 both.
    kind: u32,
    level: u32,
    ways: u32,
    /// Bytes.
    size: u32,
}

const CACHES: [Cache; 4] = [
    cache(1, 1, 8, 32 << 10),
    cache(2, 1, 4, 32 << 10),
    cache(3, 2, 8, 256 << 10),
    cache(3, 3, 16, 8 << 20),
];

const fn cache(kind: u32, level: u32, ways: u32, size: u32) -> Cache {
    Cache {
        kind,
        level,
        ways,
        size,
    }
}

/// Bytes of the area that xsave uses.
const XSAVE_SIZE: u32 = save::XSAVE_SIZE as u32;

/// eax, ebx, ecx and edx of a leaf.
fn leaf(leaf: u32, subleaf: u32) -> [u32; 4] {
    let text = |bytes: &[u8], word: usize| {
        let at = bytes.get(4 * word..4 * word + 4);
        at.and_then(|at| at.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };
    match leaf {
        0 => [LEAF_MAX, text(VENDOR, 0), text(VENDOR, 2), text(VENDOR, 1)],
        // ebx: one logical processor, lines of clflush in units of 8 bytes.
        1 => [
            SIGNATURE,
            1 << 16 | (LINE / 8) << 8,
            FEATURES_ECX,
            FEATURES_EDX,
        ],
        // Descriptor 0xff: see leaf 4. 0xf0: prefetches 64 bytes.
        2 => [0xff01, 0xf0, 0, 0],
        4 => match CACHES.get(subleaf as usize) {
            Some(cache) => {
                let sets = cache.size / cache.ways / LINE;
                // Initializes itself.
                let eax = cache.kind | cache.level << 5 | 1 << 8;
                [eax, (cache.ways - 1) << 22 | (LINE - 1), sets - 1, 0]
            }
            None => [0; 4],
        },
        7 if subleaf == 0 => [0, STRUCTURED_EBX, 0, 0],
        0xd if subleaf == 0 => [XCR0 as u32, XSAVE_SIZE, XSAVE_SIZE, 0],
        0xd if subleaf == 1 => [XSAVE_EAX, XSAVE_SIZE, 0, 0],
        0x8000_0000 => [EXTENDED_LEAF_MAX, 0, 0, 0],
        0x8000_0001 => [0, 0, EXTENDED_ECX, EXTENDED_EDX],
        0x8000_0002..=0x8000_0004 => {
            let first = (leaf - 0x8000_0002) as usize * 4;
            [0, 1, 2, 3].map(|word| text(BRAND, first + word))
        }
        // The second cache: KiB, 8 ways, bytes of a line.
        0x8000_0006 => [0, 0, (CACHES[2].size >> 10) << 16 | 6 << 12 | LINE, 0],
        // Bits of addresses: virtual, physical.
        0x8000_0008 => [48 << 8 | 40, 0, 0, 0],
        _ => [0; 4],
    }
}

fn cpuid(state: &mut State, _: &Op) -> Flow {
    let ask = |number| state.gpr[number] as u32;
    let [eax, ebx, ecx, edx] = leaf(ask(reg::RAX), ask(reg::RCX));
    for (number, value) in [
        (reg::RAX, eax),
        (reg::RBX, ebx),
        (reg::RCX, ecx),
        (reg::RDX, edx),
    ] {
        state.gpr[number] = value.into();
    }
    Flow::Next
}

/// A tick is an instruction.
fn rdtsc(state: &mut State, _: &Op) -> Flow {
    state.set::<32>(reg::RAX as u8, state.time);
    state.set::<32>(reg::RDX as u8, state.time >> 32);
    Flow::Next
}

/// The number of the processor, in rcx, is 0.
fn rdtscp(state: &mut State, op: &Op) -> Flow {
    state.gpr[reg::RCX] = 0;
    rdtsc(state, op)
}

/// The states that xsave saves, or those of them that are in use.
fn xgetbv(state: &mut State, _: &Op) -> Flow {
    let states = match state.gpr[reg::RCX] as u32 {
        0 => XCR0,
        1 => save::in_use(state),
        _ => return raise(state, Exception::GeneralProtection),
    };
    state.gpr[reg::RAX] = states;
    state.gpr[reg::RDX] = 0;
    Flow::Next
}
