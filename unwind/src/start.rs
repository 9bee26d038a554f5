//! How walks start: the registers that an unwinder starts with, and the stack address up to which
//! frames are skipped.
//!
//! A hardware sample (interrupt, NMI, exception) has all registers of the sampled code. A
//! tracepoint has none: `perf_arch_fetch_caller_regs` makes *fake registers* in the function that
//! takes the sample (the fetching function): the ip of its caller, an sp, cs, flags = 0. What the
//! kernel did with them changed over time (Linux `arch/x86/events/core.c`, `perf_callchain_kernel`;
//! `arch/x86/include/asm/perf_event.h`):
//!
//! - up to 5.1: bp = `caller_frame_pointer()` (the caller's in a `CONFIG_FRAME_POINTER` kernel,
//!   otherwise the fetching function's *own*), sp = the live rsp, treated as real registers;
//! - Kairui Song's v3 of April 2019 (never merged): without frame pointers, flags without
//!   `PERF_EFLAGS_SNAP` start the unwinder from its own registers, with sp (the live rsp) as the
//!   mark;
//! - 5.2 (d15d356887e7): sp = `__builtin_frame_address(0)` of the fetching function (its CFA - 16)
//!   is the mark in every configuration; ip is not stored but found by the walk;
//! - 83f44ae0f8af (2019) to 6d08340d1e35 (2025): the same, but ip is always stored first.
//!
//! Each unwinder skips frames itself (see `walk`).

use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::{Reg, RegMask, Regs};

/// How the kernel starts its unwinder from fake registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FakeVariant {
    /// Linux up to 5.1.
    V5_1,
    /// The third version of the patch series, April 2019.
    V3_2019,
    /// Linux 5.2, and current kernels.
    V5_2,
    /// Mid-2019 to 2025: ip always stored.
    AlwaysIp,
}

/// How a walk is started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Variant {
    /// From hardware registers.
    #[default]
    Hardware,
    /// From fake registers.
    Fake(FakeVariant),
}

impl Variant {
    /// All variants.
    pub const ALL: [Variant; 5] = [
        Variant::Hardware,
        Variant::Fake(FakeVariant::V5_1),
        Variant::Fake(FakeVariant::V3_2019),
        Variant::Fake(FakeVariant::V5_2),
        Variant::Fake(FakeVariant::AlwaysIp),
    ];

    /// The stable name, as used on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Variant::Hardware => "hw",
            Variant::Fake(FakeVariant::V5_1) => "fake:v5.1",
            Variant::Fake(FakeVariant::V3_2019) => "fake:v3-2019",
            Variant::Fake(FakeVariant::V5_2) => "fake:v5.2",
            Variant::Fake(FakeVariant::AlwaysIp) => "fake:always-ip",
        }
    }

    /// The variant with this name; plain `fake` is the current one.
    pub fn from_name(name: &str) -> Option<Variant> {
        if name == "fake" {
            return Some(Variant::Fake(FakeVariant::V5_2));
        }
        Self::ALL.into_iter().find(|v| v.as_str() == name)
    }
}

/// The register sets of one sample, by role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleRegs {
    /// The registers in the sample: hardware registers, or fake ones (flags without
    /// `X86_EFLAGS_FIXED`, ip of the fetching function's caller, sp = the fetching function's CFA -
    /// 16).
    pub sampled: Regs,
    /// Live registers of the fetching function when it made the fake ones.
    pub fetch: Option<Regs>,
    /// Live registers where the unwinder itself starts: in the fetching function or deeper.
    pub own: Option<Regs>,
}

/// What a walk starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The registers.
    pub regs: Regs,
    /// Frames up to this stack address are skipped (`first_frame` of `unwind_start`).
    pub first_frame: Option<u64>,
    /// Reported before the walk starts.
    pub sampled_ip: Option<u64>,
}

impl Start {
    /// Starts from these registers and skips nothing.
    pub const fn from_regs(regs: Regs) -> Start {
        Start {
            regs,
            first_frame: None,
            sampled_ip: None,
        }
    }
}

fn need(regs: &Regs, reg: Reg) -> Result<u64, Reason> {
    regs.get(reg).ok_or(Reason::RegistersMissing { reg })
}

impl SampleRegs {
    /// A sample with hardware registers only.
    pub const fn hardware(regs: Regs) -> SampleRegs {
        SampleRegs {
            sampled: regs,
            fetch: None,
            own: None,
        }
    }

    /// Whether this sample has fake registers.
    pub const fn is_fake(&self) -> bool {
        !self.sampled.is_hardware()
    }

    /// The innermost live registers at the moment of the sample: what `hw` starts from, and where
    /// the ground truth starts.
    pub const fn live(&self) -> Option<&Regs> {
        if self.is_fake() {
            self.own.as_ref()
        } else {
            Some(&self.sampled)
        }
    }

    /// What a walk of `variant` starts with. `frame_pointer_kernel` is `CONFIG_FRAME_POINTER`.
    ///
    /// Fails with [`Reason::RegistersMissing`] if the recording does not contain what the variant
    /// needs.
    pub fn start<M: Memory + ?Sized>(
        &self,
        variant: Variant,
        frame_pointer_kernel: bool,
        memory: &M,
    ) -> Result<Start, Reason> {
        let variant = match variant {
            Variant::Hardware => {
                let live = self
                    .live()
                    .ok_or(Reason::RegistersMissing { reg: Reg::Rip })?;
                need(live, Reg::Rip)?;
                need(live, Reg::Rsp)?;
                return Ok(Start::from_regs(*live));
            }
            Variant::Fake(variant) => variant,
        };

        // The other variants start from what only a tracepoint records.
        if !self.is_fake() {
            return Err(Reason::RegistersMissing { reg: Reg::Rip });
        }

        let ip = need(&self.sampled, Reg::Rip)?;
        let frame_address = need(&self.sampled, Reg::Rsp)?;
        let own = self.own.ok_or(Reason::RegistersMissing { reg: Reg::Rip })?;

        // The rsp of the fetching function; the unwinder's own rsp is deeper.
        let fetch = self.fetch.as_ref();
        let live_sp = fetch.map_or(Err(Reason::RegistersMissing { reg: Reg::Rsp }), |fetch| {
            need(fetch, Reg::Rsp)
        });

        // Up to 5.1 the fake registers were used as if they were real.
        let as_real = |bp| -> Result<Start, Reason> {
            let live_sp = live_sp?;
            let regs = Regs::frame(ip, live_sp, bp);
            Ok(Start {
                regs,
                first_frame: None,
                sampled_ip: None,
            })
        };

        // Since then the unwinder starts in itself, and skips frames up to the mark.
        let from_own = |first_frame, sampled_ip| Start {
            regs: own.restricted(RegMask::CALLEE_SAVED),
            first_frame: Some(first_frame),
            sampled_ip,
        };

        // The fetching function's rbp: what it knew of its own frame does not depend on the sp that
        // it recorded.
        let fetch_bp = self.fetch.and_then(|fetch| fetch.get(Reg::Rbp));
        // `caller_frame_pointer()`: the word that the fetching function's rbp points to.
        let caller_bp = || {
            let frame = fetch_bp.unwrap_or(frame_address);
            memory.read_u64(frame).map_err(Reason::from)
        };

        Ok(match variant {
            FakeVariant::V5_1 | FakeVariant::V3_2019 if frame_pointer_kernel => {
                as_real(caller_bp()?)?
            }
            FakeVariant::V5_1 => as_real(frame_address)?,
            // Without sp nothing was walked: no frame is above this mark.
            FakeVariant::V3_2019 if frame_address == 0 => from_own(u64::MAX, None),
            FakeVariant::V3_2019 => from_own(live_sp?, None),
            FakeVariant::V5_2 => from_own(frame_address, None),
            FakeVariant::AlwaysIp => from_own(frame_address, Some(ip)),
        })
    }
}

/// The fake registers of Linux 5.2 and current kernels, as made by `perf_arch_fetch_caller_regs`:
/// `caller_ip` is the return address of the fetching function, `cfa` its CFA.
pub const fn fetch_caller_regs(caller_ip: u64, cfa: u64) -> Regs {
    const KERNEL_CS: u64 = 0x10;
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, caller_ip);
    regs.set(Reg::Rsp, cfa.wrapping_sub(16));
    regs.set(Reg::Cs, KERNEL_CS);
    regs.set(Reg::Rflags, 0);
    regs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryCopy;
    use crate::regs::X86_EFLAGS_FIXED;

    const CFA: u64 = 0x7fff_1000;
    const IP: u64 = 0x40_1234;
    const CALLER_BP: u64 = 0x7fff_2000;
    const LIVE_SP: u64 = CFA - 0x40;

    /// A tracepoint sample: the fetching function has pushed rbp, and the unwinder runs deeper.
    fn tracepoint() -> SampleRegs {
        let frame_address = CFA - 16;
        let mut own = Regs::frame(0x40_2000, CFA - 0x100, CFA - 0xf0);
        own.set(Reg::Rbx, 7);
        own.set(Reg::Rax, 8);
        SampleRegs {
            sampled: fetch_caller_regs(IP, CFA),
            fetch: Some(Regs::frame(0x40_1f00, LIVE_SP, frame_address)),
            own: Some(own),
        }
    }

    fn start(variant: FakeVariant, frame_pointer_kernel: bool) -> Result<Start, Reason> {
        let word = CALLER_BP.to_le_bytes();
        let memory = MemoryCopy::new(CFA - 16, &word);
        tracepoint().start(Variant::Fake(variant), frame_pointer_kernel, &memory)
    }

    fn as_real(bp: u64) -> Result<Start, Reason> {
        Ok(Start::from_regs(Regs::frame(IP, LIVE_SP, bp)))
    }

    fn from_own(first_frame: u64, sampled_ip: Option<u64>) -> Result<Start, Reason> {
        // Of its own registers, the unwinder uses those that survive a call.
        let mut regs = Regs::frame(0x40_2000, CFA - 0x100, CFA - 0xf0);
        regs.set(Reg::Rbx, 7);
        Ok(Start {
            regs,
            first_frame: Some(first_frame),
            sampled_ip,
        })
    }

    #[test]
    fn the_fake_registers_are_those_that_the_kernel_makes() {
        let regs = fetch_caller_regs(IP, CFA);
        assert_eq!((regs.rip(), regs.rsp()), (IP, CFA - 16));
        assert_eq!(
            (regs.get(Reg::Cs), regs.get(Reg::Rflags)),
            (Some(0x10), Some(0))
        );
        assert!(!regs.is_hardware() && regs.get(Reg::Rbp).is_none());
    }

    #[test]
    fn each_kernel_starts_from_them_in_its_own_way() {
        assert_eq!(start(FakeVariant::V5_1, false), as_real(CFA - 16));
        assert_eq!(start(FakeVariant::V5_1, true), as_real(CALLER_BP));
        assert_eq!(start(FakeVariant::V3_2019, true), as_real(CALLER_BP));
        assert_eq!(start(FakeVariant::V3_2019, false), from_own(LIVE_SP, None));
        for frame_pointers in [false, true] {
            assert_eq!(
                start(FakeVariant::V5_2, frame_pointers),
                from_own(CFA - 16, None)
            );
            assert_eq!(
                start(FakeVariant::AlwaysIp, frame_pointers),
                from_own(CFA - 16, Some(IP))
            );
        }
    }

    /// Before 5.2, sp was 0 in a task that was not walked.
    #[test]
    fn without_sp_the_patch_of_2019_walks_nothing() {
        let mut sample = tracepoint();
        sample.sampled.set(Reg::Rsp, 0);
        let (old, nothing) = (Variant::Fake(FakeVariant::V3_2019), MemoryCopy::new(0, &[]));
        let start = sample.start(old, false, &nothing);
        assert_eq!(start, from_own(u64::MAX, None));
        sample.sampled.set(Reg::Rsp, 1);
        let start = sample.start(old, false, &nothing);
        assert_eq!(start, from_own(LIVE_SP, None));
    }

    #[test]
    fn hardware_means_the_live_registers() {
        let nothing = MemoryCopy::new(0, &[]);
        let sample = tracepoint();
        let own = sample.own.expect("own registers");
        let hardware = sample.start(Variant::Hardware, false, &nothing);
        assert_eq!(hardware, Ok(Start::from_regs(own)));
        let mut regs = Regs::frame(1, 2, 3);
        regs.set(Reg::Rflags, X86_EFLAGS_FIXED);
        let sample = SampleRegs::hardware(regs);
        let hardware = sample.start(Variant::Hardware, false, &nothing);
        assert_eq!(hardware, Ok(Start::from_regs(regs)));
    }

    #[test]
    fn unrecorded_values_are_not_invented() {
        let nothing = MemoryCopy::new(0, &[]);
        let missing = |reg| Err(Reason::RegistersMissing { reg });
        let fake = Variant::Fake(FakeVariant::V5_2);
        let hardware = SampleRegs::hardware(Regs::frame(1, 2, 3));
        assert_eq!(hardware.start(fake, false, &nothing), missing(Reg::Rip));

        // Without the unwinder's own registers, no start is possible from fake ones.
        let alone = SampleRegs {
            own: None,
            ..tracepoint()
        };
        for variant in Variant::ALL {
            assert_eq!(alone.start(variant, false, &nothing), missing(Reg::Rip));
        }

        // 5.1 and the 2019 patch start from the fetching function's rsp.
        let unfetched = SampleRegs {
            fetch: None,
            ..tracepoint()
        };
        for variant in [FakeVariant::V5_1, FakeVariant::V3_2019] {
            let start = unfetched.start(Variant::Fake(variant), false, &nothing);
            assert_eq!(start, missing(Reg::Rsp));
        }
        for variant in [FakeVariant::V5_2, FakeVariant::AlwaysIp] {
            assert!(
                unfetched
                    .start(Variant::Fake(variant), false, &nothing)
                    .is_ok()
            );
        }

        let mut without_sp = tracepoint();
        without_sp.sampled.forget(Reg::Rsp);
        assert_eq!(without_sp.start(fake, false, &nothing), missing(Reg::Rsp));

        // The last value is read from memory, which has nothing.
        let old = Variant::Fake(FakeVariant::V5_1);
        let error = tracepoint().start(old, true, &nothing);
        assert!(matches!(error, Err(Reason::Memory(_))), "{error:?}");
    }

    #[test]
    fn names_come_back() {
        for variant in Variant::ALL {
            assert_eq!(Variant::from_name(variant.as_str()), Some(variant));
        }
        let today = Some(Variant::Fake(FakeVariant::V5_2));
        assert_eq!(Variant::from_name("fake"), today);
        assert_eq!(Variant::from_name("fake:v5.3"), None);
    }
}
