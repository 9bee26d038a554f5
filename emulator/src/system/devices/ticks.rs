//! The unit of virtual time.

/// Ticks of virtual time in a second: an instruction is a tick and a nanosecond. The frequency of the TSC.
pub const TICKS_PER_SECOND: u64 = 1_000_000_000;
/// The frequency of the crystal, Hz: the clock of the local APIC's timer (SDM volume 2, CPUID leaf 0x15).
pub const CRYSTAL: u32 = 25_000_000;
