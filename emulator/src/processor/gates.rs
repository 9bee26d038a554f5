//! Instructions that exist and that control registers forbid all the same: of x87, MMX, SSE and AVX (CR0.EM,
//! CR0.TS, CR4.OSFXSR, CR4.OSXSAVE), of the bases of fs and gs (CR4.FSGSBASE), and `rdtsc` (CR4.TSD).
//!
//! They are decoded to an operation that leaves the instruction to [`crate::system::System`], so all others
//! need no check. Source: Intel SDM volume 3, "control registers"; volume 2, "exceptions class".

use iced_x86::{CpuidFeature, EncodingKind, Instruction, Mnemonic};

/// What control registers forbid; in user mode, nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Gates {
    /// CR0.EM: there is no x87.
    pub(crate) emulates: bool,
    /// CR0.TS: the registers of x87, MMX, SSE and AVX are another task's.
    pub(crate) switched: bool,
    /// CR0.MP: with TS, also `fwait`.
    pub(crate) waits: bool,
    /// CR4.OSFXSR is clear.
    pub(crate) no_sse: bool,
    /// CR4.OSXSAVE is clear.
    pub(crate) no_xsave: bool,
    /// CR4.FSGSBASE is clear.
    pub(crate) no_bases: bool,
    /// CR4.TSD.
    pub(crate) no_time: bool,
    /// IA32_TIME_STAMP_COUNTER or IA32_TSC_AUX was written.
    pub(crate) other_time: bool,
}

/// Why an instruction must not be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// #UD.
    Invalid,
    /// #NM.
    NotAvailable,
    /// #GP, but not in ring 0.
    Privileged,
    /// Nothing: it is executed, with what a kernel has written to its registers.
    Differs,
}

/// The kinds of instructions that differ in what forbids them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    X87,
    Wait,
    Mmx,
    Sse,
    /// `fxsave` and `fxrstor`.
    Fxsave,
    Avx,
    Xsave,
    /// `xgetbv` and `xsetbv`.
    Xcr,
    Bases,
    Time,
    /// `rdpid`.
    Number,
}

impl Gates {
    /// Whether the instruction must not be executed.
    pub(crate) fn refuse(&self, insn: &Instruction) -> Option<Refused> {
        if *self == Gates::default() {
            return None;
        }
        let kind = kind(insn)?;
        let is_invalid = match kind {
            Kind::Mmx => self.emulates,
            Kind::Sse => self.emulates || self.no_sse,
            Kind::Avx | Kind::Xsave | Kind::Xcr => self.no_xsave,
            Kind::Bases => self.no_bases,
            Kind::X87 | Kind::Wait | Kind::Fxsave | Kind::Time | Kind::Number => false,
        };
        if is_invalid {
            return Some(Refused::Invalid);
        }
        let is_unavailable = match kind {
            Kind::X87 | Kind::Fxsave => self.emulates || self.switched,
            Kind::Wait => self.waits && self.switched,
            Kind::Mmx | Kind::Sse | Kind::Avx | Kind::Xsave => self.switched,
            Kind::Xcr | Kind::Bases | Kind::Time | Kind::Number => false,
        };
        if is_unavailable {
            return Some(Refused::NotAvailable);
        }
        match kind {
            Kind::Time if self.no_time => Some(Refused::Privileged),
            Kind::Time | Kind::Number if self.other_time => Some(Refused::Differs),
            _ => None,
        }
    }
}

fn kind(insn: &Instruction) -> Option<Kind> {
    use Mnemonic::*;
    match insn.mnemonic() {
        Wait => return Some(Kind::Wait),
        Xgetbv | Xsetbv => return Some(Kind::Xcr),
        Rdtsc | Rdtscp => return Some(Kind::Time),
        Rdpid => return Some(Kind::Number),
        Rdfsbase | Rdgsbase | Wrfsbase | Wrgsbase => return Some(Kind::Bases),
        Fxsave | Fxsave64 | Fxrstor | Fxrstor64 => return Some(Kind::Fxsave),
        // They belong to SSE and use none of its registers.
        Sfence | Lfence | Mfence | Movnti | Pause | Clflush | Prefetchnta | Prefetcht0
        | Prefetcht1 | Prefetcht2 | Crc32 | Popcnt => return None,
        _ => {}
    }
    let registers = 0..insn.op_count();
    let uses_vector = registers
        .clone()
        .any(|n| insn.op_register(n).is_vector_register());
    let uses_mmx = registers.clone().any(|n| insn.op_register(n).is_mm());
    if insn.encoding() == EncodingKind::VEX {
        let is_avx =
            uses_vector || matches!(insn.mnemonic(), Vzeroupper | Vzeroall | Vldmxcsr | Vstmxcsr);
        return is_avx.then_some(Kind::Avx);
    }
    let features = insn.cpuid_features();
    let has = |wanted: &[CpuidFeature]| features.iter().any(|feature| wanted.contains(feature));
    if has(&[
        CpuidFeature::XSAVE,
        CpuidFeature::XSAVEOPT,
        CpuidFeature::XSAVEC,
    ]) {
        return Some(Kind::Xsave);
    }
    if has(&[
        CpuidFeature::FPU,
        CpuidFeature::FPU287,
        CpuidFeature::FPU387,
    ]) {
        return Some(Kind::X87);
    }
    if insn.mnemonic() == Ldmxcsr || insn.mnemonic() == Stmxcsr || uses_vector {
        return Some(Kind::Sse);
    }
    (uses_mmx || insn.mnemonic() == Emms).then_some(Kind::Mmx)
}
