//! What `cpuid` says in system mode: what it says to programs, and what only a kernel can use.
//!
//! Source: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.

use super::counters;
use super::devices::{CRYSTAL, TICKS_PER_SECOND};
use super::registers::{Registers, cr4};
use crate::isa::cpuid;
use crate::processor::{Processor, Vendor};

/// Leaf 1, edx: PSE, MSR, PAE, APIC, SEP, PGE, PAT, TSC.
const EDX: u32 = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13 | 1 << 16;
/// Leaf 1, ecx: the TSC deadline of the local APIC's timer.
const ECX: u32 = 1 << 24;
/// Leaf 1, ecx: whether CR4.OSXSAVE is set.
const OSXSAVE: u32 = 1 << 27;
/// Leaf 7, ebx: SMEP, SMAP.
const STRUCTURED_EBX: u32 = 1 << 7 | 1 << 20;
/// Leaf 7, ecx: UMIP.
const STRUCTURED_ECX: u32 = 1 << 2;
/// Leaf 7, edx, of Intel's: IA32_ARCH_CAPABILITIES.
const STRUCTURED_EDX_INTEL: u32 = 1 << 29;
/// The last leaf: the processor's frequency.
const LEAF_MAX: u32 = 0x16;
/// Leaf 6, eax: the timer of the local APIC never stops.
const ALWAYS_RUNNING_TIMER: u32 = 1 << 2;
/// Leaf 0x8000_0007, edx: the TSC never stops, and does not change its rate.
const INVARIANT_TSC: u32 = 1 << 8;

/// eax, ebx, ecx and edx of a leaf.
pub(super) fn leaf(
    processor: &Processor,
    registers: &Registers,
    leaf: u32,
    subleaf: u32,
) -> [u32; 4] {
    let is_intel = processor.vendor() == Vendor::Intel;
    let [eax, ebx, ecx, edx] = cpuid::leaf(processor, leaf, subleaf);
    let hertz = TICKS_PER_SECOND as u32;
    match leaf {
        0 => [LEAF_MAX, ebx, ecx, edx],
        1 => {
            let has_xsave = registers.cr4 & cr4::OSXSAVE != 0;
            let ecx = ecx & !OSXSAVE | if has_xsave { OSXSAVE } else { 0 };
            let counters = if registers.counters.is_some() {
                counters::CAPABILITIES_ECX
            } else {
                0
            };
            [eax, ebx, ecx | ECX | counters, edx | EDX]
        }
        6 => [ALWAYS_RUNNING_TIMER, 0, 0, 0],
        7 if subleaf == 0 => {
            let own = if is_intel { STRUCTURED_EDX_INTEL } else { 0 };
            [eax, ebx | STRUCTURED_EBX, ecx | STRUCTURED_ECX, edx | own]
        }
        0xa if registers.counters.is_some() => counters::LEAF,
        // The ratio of the TSC to the crystal, and the crystal's frequency.
        0x15 if is_intel => [1, hertz / CRYSTAL, CRYSTAL, 0],
        // MHz: of the processor, at most, and of the bus.
        0x16 if is_intel => [hertz / 1_000_000, hertz / 1_000_000, 100, 0],
        0x8000_0007 => [0, 0, 0, INVARIANT_TSC],
        _ => [eax, ebx, ecx, edx],
    }
}
