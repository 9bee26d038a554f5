//! The unit of virtual time.

/// Ticks of virtual time in a second: an instruction is a tick and a nanosecond. The frequency of
/// the TSC and of the APIC timer before its divider.
pub const TICKS_PER_SECOND: u64 = 1_000_000_000;
