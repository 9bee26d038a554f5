//! Performance counters: Intel's architectural performance monitoring, version 2, as a Skylake has it,
//! without precise sampling (PEBS). Four general counters and three fixed ones count instructions and cycles
//! by privilege level, and interrupt when they overflow. Beside them are the last branch records.
//!
//! A cycle is an instruction. An overflow interrupts in front of the next instruction, without the skid of a
//! processor. Other events, and events with qualifiers (edge, inversion, threshold), count nothing.
//!
//! Source: Intel SDM volume 3, "performance monitoring", "last branch, interrupt, and exception recording";
//! volume 2, CPUID leaf 0xa; volume 4.

#[cfg(test)]
mod tests;

use super::last_branches::LastBranches;

/// How many general counters there are.
const GENERAL: usize = 4;
/// How many fixed counters there are: instructions, cycles, reference cycles.
const FIXED: usize = 3;
/// Bits of a counter.
const BITS: u32 = 48;
const VALUE: u64 = (1 << BITS) - 1;

/// `cpuid` leaf 0xa: version 2, the counters, and seven architectural events.
pub(super) const LEAF: [u32; 4] = [
    2 | (GENERAL as u32) << 8 | BITS << 16 | 7 << 24,
    // Not there: references to and misses of the last cache, branches, mispredicted branches.
    0b111_1000,
    0,
    FIXED as u32 | BITS << 5,
];
/// `cpuid` leaf 1, ecx: IA32_PERF_CAPABILITIES.
pub(super) const CAPABILITIES_ECX: u32 = 1 << 15;

/// IA32_PERF_CAPABILITIES: the format of last branch records that have cycles (5), and general counters that
/// can be written in full.
const CAPABILITIES: u64 = 5 | 1 << 13;

/// Fields of IA32_PERFEVTSEL.
mod select {
    pub(super) const EVENT: u64 = 0xffff;
    pub(super) const USER: u64 = 1 << 16;
    pub(super) const SYSTEM: u64 = 1 << 17;
    pub(super) const INTERRUPTS: u64 = 1 << 20;
    pub(super) const ENABLED: u64 = 1 << 22;
    /// Edge, inversion, threshold.
    pub(super) const QUALIFIERS: u64 = 1 << 18 | 1 << 23 | 0xff << 24;
    /// Those that exist.
    pub(super) const ALL: u64 = 0xffff_ffff;
}

/// What is counted, with its unit mask: cycles, reference cycles, instructions.
const EVENTS: [u64; 3] = [0x003c, 0x013c, 0x00c0];

/// A fixed counter's four bits in IA32_FIXED_CTR_CTRL.
mod fixed {
    pub(super) const SYSTEM: u64 = 1;
    pub(super) const USER: u64 = 1 << 1;
    pub(super) const INTERRUPTS: u64 = 1 << 3;
    pub(super) const ALL: u64 = 0xbbb;
}

/// Bits of IA32_DEBUGCTL.
mod debugctl {
    /// LBR.
    pub(super) const RECORDS: u64 = 1;
    /// FREEZE_LBRS_ON_PMI.
    pub(super) const FREEZES_RECORDS: u64 = 1 << 11;
    /// FREEZE_PERFMON_ON_PMI.
    pub(super) const FREEZES_COUNTERS: u64 = 1 << 12;
    /// Those that exist; BTF is the second.
    pub(super) const ALL: u64 = RECORDS | 1 << 1 | FREEZES_RECORDS | FREEZES_COUNTERS;
}

/// The first fixed counter's bit in the global registers.
const FIXED_SHIFT: usize = 32;
/// The bits of all counters in the global registers.
const COUNTERS: u64 = ((1 << GENERAL) - 1) | ((1 << FIXED) - 1) << FIXED_SHIFT;
/// Bits of IA32_PERF_GLOBAL_OVF_CTRL that clear what is never set here.
const STATUS_OTHERS: u64 = 3 << 62;

/// A model-specific register of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Register {
    General(usize),
    /// A general counter, of which all bits can be written.
    Full(usize),
    Select(usize),
    Debugctl,
    Fixed(usize),
    Capabilities,
    FixedControl,
    Status,
    Enabled,
    Clear,
}

impl Register {
    fn of(number: u32) -> Option<Register> {
        let from = |first: u32, count: usize| {
            let index = number.checked_sub(first)? as usize;
            (index < count).then_some(index)
        };
        if let Some(index) = from(0xc1, GENERAL) {
            return Some(Register::General(index));
        }
        if let Some(index) = from(0x4c1, GENERAL) {
            return Some(Register::Full(index));
        }
        if let Some(index) = from(0x186, GENERAL) {
            return Some(Register::Select(index));
        }
        if let Some(index) = from(0x309, FIXED) {
            return Some(Register::Fixed(index));
        }
        Some(match number {
            0x1d9 => Register::Debugctl,
            0x345 => Register::Capabilities,
            0x38d => Register::FixedControl,
            0x38e => Register::Status,
            0x38f => Register::Enabled,
            0x390 => Register::Clear,
            _ => return None,
        })
    }
}

/// The counters, and the last branch records.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    general: [u64; GENERAL],
    selects: [u64; GENERAL],
    fixed: [u64; FIXED],
    fixed_control: u64,
    enabled: u64,
    overflowed: u64,
    debugctl: u64,
    branches: LastBranches,
    /// How many instructions had been executed when they were counted last.
    counted: u64,
}

impl Counters {
    /// As they are after a reset, when so many instructions have been executed.
    pub(super) fn new(executed: u64) -> Counters {
        Counters {
            general: [0; GENERAL],
            selects: [0; GENERAL],
            fixed: [0; FIXED],
            fixed_control: 0,
            enabled: (1 << GENERAL) - 1,
            overflowed: 0,
            debugctl: 0,
            branches: LastBranches::default(),
            counted: executed,
        }
    }

    /// Whether a model-specific register is one of these.
    pub(super) fn is_msr(number: u32) -> bool {
        Register::of(number).is_some() || LastBranches::is_msr(number)
    }

    /// Reads one of them.
    pub(super) fn read(&self, number: u32) -> Option<u64> {
        let Some(register) = Register::of(number) else {
            return self.branches.read(number);
        };
        Some(match register {
            Register::General(index) | Register::Full(index) => self.general[index],
            Register::Select(index) => self.selects[index],
            Register::Debugctl => self.debugctl,
            Register::Fixed(index) => self.fixed[index],
            Register::Capabilities => CAPABILITIES,
            Register::FixedControl => self.fixed_control,
            Register::Status => self.overflowed,
            Register::Enabled => self.enabled,
            Register::Clear => 0,
        })
    }

    /// Writes one of them. `None`: #GP, and nothing was written.
    pub(super) fn write(&mut self, number: u32, value: u64) -> Option<()> {
        let Some(register) = Register::of(number) else {
            return self.branches.write(number, value);
        };
        let only = |mask: u64| (value & !mask == 0).then_some(value);
        match register {
            // Bit 31 is repeated above it, whatever was written there.
            Register::General(index) => {
                let value = i64::from(value as u32 as i32);
                self.general[index] = value.cast_unsigned() & VALUE;
            }
            Register::Full(index) => self.general[index] = only(VALUE)?,
            Register::Select(index) => self.selects[index] = only(select::ALL)?,
            Register::Debugctl => self.debugctl = only(debugctl::ALL)?,
            Register::Fixed(index) => self.fixed[index] = only(VALUE)?,
            Register::FixedControl => self.fixed_control = only(fixed::ALL)?,
            Register::Enabled => self.enabled = only(COUNTERS)?,
            Register::Clear => self.overflowed &= !only(COUNTERS | STATUS_OTHERS)?,
            Register::Capabilities | Register::Status => return None,
        }
        Some(())
    }

    /// The counter with this number for `rdpmc`. `None`: #GP.
    pub(super) fn counter(&self, number: u32) -> Option<u64> {
        const FIXED_ONE: u32 = 1 << 30;
        let index = (number & !FIXED_ONE) as usize;
        if number & FIXED_ONE != 0 {
            self.fixed.get(index).copied()
        } else {
            self.general.get(index).copied()
        }
    }

    /// Whether a general counter counts at this privilege level.
    fn counts(&self, index: usize, privilege: u8) -> bool {
        let value = self.selects[index];
        let level = if privilege == 0 {
            select::SYSTEM
        } else {
            select::USER
        };
        self.enabled & 1 << index != 0
            && value & select::ENABLED != 0
            && value & level != 0
            && value & select::QUALIFIERS == 0
            && EVENTS.contains(&(value & select::EVENT))
    }

    /// Whether a fixed counter counts at this privilege level.
    fn counts_fixed(&self, index: usize, privilege: u8) -> bool {
        let value = self.fixed_control >> (4 * index);
        let level = if privilege == 0 {
            fixed::SYSTEM
        } else {
            fixed::USER
        };
        self.enabled & 1 << (FIXED_SHIFT + index) != 0 && value & level != 0
    }

    /// How many instructions at this privilege level there are until a counter overflows.
    pub(super) fn until_overflow(&self, privilege: u8) -> u64 {
        let general = (0..GENERAL).filter(|&index| self.counts(index, privilege));
        let fixed = (0..FIXED).filter(|&index| self.counts_fixed(index, privilege));
        let values = general
            .map(|index| self.general[index])
            .chain(fixed.map(|index| self.fixed[index]));
        values
            .map(|value| VALUE - value + 1)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// [`Counters::count`], up to so many instructions that were executed in all.
    pub(super) fn count_to(&mut self, executed: u64, privilege: u8) -> bool {
        let count = executed - self.counted;
        self.counted = executed;
        self.count(count, privilege)
    }

    /// Counts instructions that were executed at this privilege level. Returns whether a counter that interrupts
    /// has overflowed.
    fn count(&mut self, instructions: u64, privilege: u8) -> bool {
        let mut interrupts = false;
        let mut overflowed = 0;
        for index in 0..GENERAL {
            if self.counts(index, privilege) && add(&mut self.general[index], instructions) {
                overflowed |= 1 << index;
                interrupts |= self.selects[index] & select::INTERRUPTS != 0;
            }
        }
        for index in 0..FIXED {
            if self.counts_fixed(index, privilege) && add(&mut self.fixed[index], instructions) {
                overflowed |= 1 << (FIXED_SHIFT + index);
                interrupts |= self.fixed_control >> (4 * index) & fixed::INTERRUPTS != 0;
            }
        }
        self.overflowed |= overflowed;
        if interrupts {
            if self.debugctl & debugctl::FREEZES_RECORDS != 0 {
                self.debugctl &= !debugctl::RECORDS;
            }
            if self.debugctl & debugctl::FREEZES_COUNTERS != 0 {
                self.enabled = 0;
            }
        }
        interrupts
    }

    /// The last branch records, if branches are recorded.
    pub(super) fn recording(&mut self) -> Option<&mut LastBranches> {
        (self.debugctl & debugctl::RECORDS != 0).then_some(&mut self.branches)
    }

    /// Whether branches are recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.debugctl & debugctl::RECORDS != 0
    }
}

/// Adds to a counter. Returns whether it has overflowed.
fn add(value: &mut u64, instructions: u64) -> bool {
    let sum = *value + instructions;
    *value = sum & VALUE;
    sum > VALUE
}
