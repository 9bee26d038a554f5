//! The system registers: control registers, descriptor table registers, debug registers, and the
//! model-specific registers, which are in one table.
//!
//! Source: Intel SDM volume 3, "control registers", and volume 4; AMD APM volume 2, appendix A.

use super::counters::Counters;
use super::devices::Devices;
use crate::processor::{Processor, Vendor};
use hashbrown::HashMap;

/// Bits of CR0.
pub(super) mod cr0 {
    pub(in crate::system) const PE: u64 = 1;
    pub(in crate::system) const MP: u64 = 1 << 1;
    pub(in crate::system) const EM: u64 = 1 << 2;
    pub(in crate::system) const TS: u64 = 1 << 3;
    pub(in crate::system) const ET: u64 = 1 << 4;
    pub(in crate::system) const NE: u64 = 1 << 5;
    pub(in crate::system) const WP: u64 = 1 << 16;
    pub(in crate::system) const AM: u64 = 1 << 18;
    pub(in crate::system) const NW: u64 = 1 << 29;
    pub(in crate::system) const CD: u64 = 1 << 30;
    pub(in crate::system) const PG: u64 = 1 << 31;
    /// Those that exist.
    pub(in crate::system) const ALL: u64 = PE | MP | EM | TS | ET | NE | WP | AM | NW | CD | PG;
}

/// Bits of CR4.
pub(super) mod cr4 {
    pub(in crate::system) const TSD: u64 = 1 << 2;
    pub(in crate::system) const DE: u64 = 1 << 3;
    pub(in crate::system) const PAE: u64 = 1 << 5;
    pub(in crate::system) const PCE: u64 = 1 << 8;
    pub(in crate::system) const OSFXSR: u64 = 1 << 9;
    pub(in crate::system) const UMIP: u64 = 1 << 11;
    pub(in crate::system) const FSGSBASE: u64 = 1 << 16;
    pub(in crate::system) const OSXSAVE: u64 = 1 << 18;
    pub(in crate::system) const SMEP: u64 = 1 << 20;
    pub(in crate::system) const SMAP: u64 = 1 << 21;
    /// VME, PVI, TSD, DE, PSE, PAE, MCE, PGE, PCE, OSFXSR, OSXMMEXCPT and those above: what `cpuid`
    /// announces.
    pub(in crate::system) const ALL: u64 = 0x7ff | UMIP | FSGSBASE | OSXSAVE | SMEP | SMAP;
}

/// Bits of EFER.
pub(super) mod efer {
    pub(in crate::system) const SCE: u64 = 1;
    pub(in crate::system) const LME: u64 = 1 << 8;
    pub(in crate::system) const LMA: u64 = 1 << 10;
    pub(in crate::system) const NXE: u64 = 1 << 11;
    /// Those that can be written.
    pub(in crate::system) const WRITABLE: u64 = SCE | LME | NXE;
}

/// Numbers of model-specific registers.
pub(super) mod msr {
    pub(in crate::system) const TSC: u32 = 0x10;
    pub(in crate::system) const BIOS_SIGN_ID: u32 = 0x8b;
    pub(in crate::system) const SYSENTER_CS: u32 = 0x174;
    pub(in crate::system) const EFER: u32 = 0xc000_0080;
    pub(in crate::system) const STAR: u32 = 0xc000_0081;
    pub(in crate::system) const LSTAR: u32 = 0xc000_0082;
    pub(in crate::system) const CSTAR: u32 = 0xc000_0083;
    pub(in crate::system) const FMASK: u32 = 0xc000_0084;
    pub(in crate::system) const FS_BASE: u32 = 0xc000_0100;
    pub(in crate::system) const GS_BASE: u32 = 0xc000_0101;
    pub(in crate::system) const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub(in crate::system) const TSC_AUX: u32 = 0xc000_0103;
    pub(in crate::system) const PAT: u32 = 0x277;
}

/// A register that only keeps what is written to it: its number, its value after reset, and the bits
/// that can be written. Writing any other bit raises #GP.
struct Kept(u32, u64, u64);

/// Those of all processors.
const KEPT: [Kept; 12] = [
    Kept(msr::BIOS_SIGN_ID, 0, u64::MAX),
    Kept(msr::SYSENTER_CS, 0, 0xffff_ffff), // IA32_SYSENTER_CS
    Kept(0x175, 0, u64::MAX),               // IA32_SYSENTER_ESP
    Kept(0x176, 0, u64::MAX),               // IA32_SYSENTER_EIP
    Kept(msr::PAT, 0x0007_0406_0007_0406, u64::MAX), // IA32_PAT
    Kept(0x1d9, 0, 0b11),                   // IA32_DEBUGCTL: LBR, BTF
    Kept(msr::STAR, 0, u64::MAX),
    Kept(msr::LSTAR, 0, u64::MAX),
    Kept(msr::CSTAR, 0, u64::MAX),
    Kept(msr::FMASK, 0, 0xffff_ffff),
    Kept(msr::KERNEL_GS_BASE, 0, u64::MAX),
    Kept(msr::TSC_AUX, 0, 0xffff_ffff),
];

/// Those of Intel's.
const KEPT_INTEL: [Kept; 4] = [
    Kept(0x17, 0, 0),          // IA32_PLATFORM_ID
    Kept(0x3a, 1, 0),          // IA32_FEATURE_CONTROL: locked
    Kept(0x1a0, 1, 0x40_0001), // IA32_MISC_ENABLE: fast strings; limit of CPUID
    Kept(0x10a, ARCH_CAPABILITIES, 0),
];

/// IA32_ARCH_CAPABILITIES: the processor is not vulnerable to Meltdown, L1TF, SSB, MDS, TAA, machine checks
/// on page size changes, MMIO stale data and the like, which an interpreter has none of.
const ARCH_CAPABILITIES: u64 = 1 // RDCL_NO
    | 1 << 3 // SKIP_L1DFL_VMENTRY
    | 1 << 4 // SSB_NO
    | 1 << 5 // MDS_NO
    | 1 << 6 // IF_PSCHANGE_MC_NO
    | 1 << 8 // TAA_NO
    | 1 << 13 // SBDR_SSDP_NO
    | 1 << 14 // FBSDP_NO
    | 1 << 15 // PSDP_NO
    | 1 << 20 // BHI_NO
    | 1 << 24 // PBRSB_NO
    | 1 << 26 // GDS_NO
    | 1 << 27; // RFDS_NO

/// Those of AMD's.
const KEPT_AMD: [Kept; 6] = [
    Kept(0xc001_0010, 0, u64::MAX),      // SYSCFG
    Kept(0xc001_0015, 0, u64::MAX),      // HWCR
    Kept(0xc001_0114, 0, u64::MAX),      // VM_CR
    Kept(0xc001_1022, 0, u64::MAX),      // DC_CFG
    Kept(0xc001_1029, 1 << 1, u64::MAX), // DE_CFG: lfence serializes
    Kept(0xc001_102d, 0, u64::MAX),      // LS_CFG
];

/// The most unknown numbers that are kept.
const UNKNOWN_MAX: usize = 256;

/// Base and limit of a descriptor table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    pub(super) base: u64,
    pub(super) limit: u16,
}

/// A segment of the system: the local descriptor table, or the task state segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SystemSegment {
    pub(super) selector: u16,
    pub(super) base: u64,
    pub(super) limit: u32,
}

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub(super) cr0: u64,
    pub(super) cr2: u64,
    pub(super) cr3: u64,
    pub(super) cr4: u64,
    pub(super) efer: u64,
    pub(super) debug: [u64; 8],
    pub(super) gdt: Table,
    pub(super) idt: Table,
    pub(super) ldt: SystemSegment,
    pub(super) task: SystemSegment,
    /// What was written to [`msr::TSC`], less the time then.
    pub(super) tsc_offset: u64,
    /// Performance counters, if the processor has them.
    pub(super) counters: Option<Box<Counters>>,
    /// The revision of the microcode that firmware has loaded; 0 for none.
    pub(super) microcode: u32,
    kept: HashMap<u32, (u64, u64)>,
    /// Numbers that do not exist, each with how often it was asked for.
    pub(super) unknown: HashMap<u32, u64>,
}

impl Registers {
    /// As they are where 64-bit code starts.
    pub(super) fn new(processor: &Processor) -> Registers {
        let own: &[Kept] = match processor.vendor() {
            Vendor::Intel => &KEPT_INTEL,
            Vendor::Amd => &KEPT_AMD,
        };
        let kept = KEPT.iter().chain(own);
        Registers {
            cr0: cr0::PE | cr0::MP | cr0::ET | cr0::NE | cr0::WP | cr0::PG,
            cr2: 0,
            cr3: 0,
            cr4: cr4::PAE,
            efer: efer::LME | efer::LMA,
            debug: [0, 0, 0, 0, 0, 0, 0xffff_0ff0, 0x400],
            gdt: Table::default(),
            idt: Table::default(),
            ldt: SystemSegment::default(),
            task: SystemSegment::default(),
            tsc_offset: 0,
            counters: None,
            microcode: 0,
            kept: kept
                .map(|&Kept(number, value, mask)| (number, (value, mask)))
                .collect(),
            unknown: HashMap::new(),
        }
    }

    /// A register that only keeps its value.
    pub(super) fn kept(&self, number: u32) -> u64 {
        self.kept.get(&number).map_or(0, |kept| kept.0)
    }

    /// Sets it, as `swapgs` does.
    pub(super) fn set_kept(&mut self, number: u32, value: u64) {
        if let Some(kept) = self.kept.get_mut(&number) {
            kept.0 = value;
        }
    }

    /// Reads a register. `None`: #GP.
    pub(super) fn read(&mut self, number: u32, devices: &mut Devices, now: u64) -> Option<u64> {
        if Devices::is_msr(number) {
            return devices.msr_read(number, now);
        }
        if let Some(counters) = self.counters_with(number) {
            return counters.read(number);
        }
        match (number, self.kept.get(&number)) {
            (msr::EFER, _) => Some(self.efer),
            (msr::TSC, _) => Some(now.wrapping_add(self.tsc_offset)),
            (_, Some(&(value, _))) => Some(value),
            _ => {
                self.count_unknown(number);
                None
            }
        }
    }

    /// Writes a register. `None`: #GP.
    pub(super) fn write(
        &mut self,
        number: u32,
        value: u64,
        devices: &mut Devices,
        now: u64,
    ) -> Option<()> {
        if Devices::is_msr(number) {
            return devices.msr_write(number, value, now);
        }
        if let Some(counters) = self.counters_with(number) {
            return counters.write(number, value);
        }
        // Addresses must be canonical.
        let is_address = matches!(
            number,
            msr::LSTAR | msr::CSTAR | msr::KERNEL_GS_BASE | 0x175 | 0x176
        );
        if is_address && !is_canonical(value) {
            return None;
        }
        if number == msr::PAT && !value.to_le_bytes().into_iter().all(is_memory_type) {
            return None;
        }
        match (number, self.kept.get_mut(&number)) {
            (msr::EFER, _) => {
                let fixed = !efer::WRITABLE;
                // LMA is the processor's own; LME cannot change while paging is on.
                let changes = (value ^ self.efer) & (fixed & !efer::LMA | efer::LME);
                if changes != 0 {
                    return None;
                }
                self.efer = value & !efer::LMA | self.efer & efer::LMA;
                Some(())
            }
            (msr::TSC, _) => {
                self.tsc_offset = value.wrapping_sub(now);
                Some(())
            }
            (_, Some((kept, mask))) => {
                if (value ^ *kept) & !*mask != 0 {
                    return None;
                }
                *kept = value;
                Some(())
            }
            _ => {
                self.count_unknown(number);
                None
            }
        }
    }

    /// The performance counters, if they have the register.
    fn counters_with(&mut self, number: u32) -> Option<&mut Counters> {
        let counters = self.counters.as_deref_mut();
        counters.filter(|_| Counters::is_msr(number))
    }

    fn count_unknown(&mut self, number: u32) {
        if self.unknown.len() < UNKNOWN_MAX || self.unknown.contains_key(&number) {
            *self.unknown.entry(number).or_default() += 1;
        }
    }
}

/// Whether an entry of IA32_PAT is a type of memory: UC, WC, WT, WP, WB, UC-.
fn is_memory_type(entry: u8) -> bool {
    matches!(entry, 0 | 1 | 4..=7)
}

pub(super) fn is_canonical(address: u64) -> bool {
    matches!(address.cast_signed() >> 47, 0 | -1)
}
