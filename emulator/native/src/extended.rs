//! The registers that XSAVE saves, as far as cases and programs are compared: x87, SSE and AVX. Not
//! here: AVX-512, which the emulated machine does not have.

use std::sync::LazyLock;

/// The x87, SSE and AVX registers.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    /// The x87 and SSE state as FXSAVE64 stores it (Intel SDM volume 1).
    pub legacy: [u8; 512],
    /// The upper halves of YMM0 to YMM15. Zero where there is no AVX.
    pub upper: [u128; 16],
}

impl Default for Extended {
    /// As after a reset: exceptions masked, 64-bit precision, all registers zero.
    fn default() -> Extended {
        let mut legacy = [0; 512];
        legacy[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        legacy[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        Extended {
            legacy,
            upper: [0; 16],
        }
    }
}

impl Extended {
    /// A vector register, its lower half first. Numbers count modulo 16, here and below.
    pub fn ymm(&self, number: usize) -> [u128; 2] {
        let number = number % 16;
        let lower = self.legacy[XMM..].as_chunks::<16>().0[number];
        [u128::from_le_bytes(lower), self.upper[number]]
    }

    /// Sets a vector register.
    pub fn set_ymm(&mut self, number: usize, value: [u128; 2]) {
        let number = number % 16;
        self.legacy[XMM..].as_chunks_mut::<16>().0[number] = value[0].to_le_bytes();
        self.upper[number] = value[1];
    }

    /// MXCSR.
    pub fn mxcsr(&self) -> u32 {
        u32::from_le_bytes(self.legacy.as_chunks::<4>().0[MXCSR / 4])
    }

    /// Sets MXCSR.
    pub fn set_mxcsr(&mut self, value: u32) {
        self.legacy.as_chunks_mut::<4>().0[MXCSR / 4] = value.to_le_bytes();
    }
}

/// Offset of XMM0.
const XMM: usize = 160;
const MXCSR: usize = 24;

/// The bits of `XSTATE_BV`, XCR0 and the like for x87 and SSE, and for AVX.
pub(crate) const LEGACY_BITS: u64 = 3;
pub(crate) const AVX_BIT: u64 = 4;
/// Offset of the XSAVE header in the standard format (Intel SDM volume 1).
pub(crate) const HEADER: usize = 512;
/// Offset of the AVX state in the standard format, on every processor so far.
pub(crate) const UPPER: usize = 576;
/// Size of the AVX state.
pub(crate) const UPPER_SIZE: usize = 256;

/// Whether this processor and its kernel have AVX, with its state where this code expects it (Intel
/// SDM volume 1: CPUID leaf 0xd, subleaf 2).
pub(crate) fn has_avx() -> bool {
    // `cpuid` is slow under a hypervisor.
    static HAS_AVX: LazyLock<bool> = LazyLock::new(|| {
        if !std::arch::is_x86_feature_detected!("avx") {
            return false;
        }
        let layout = std::arch::x86_64::__cpuid_count(0xd, 2);
        (layout.eax as usize, layout.ebx as usize) == (UPPER_SIZE, UPPER)
    });
    *HAS_AVX
}
