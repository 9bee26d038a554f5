//! What is known of an instruction before it is executed: what has to be compared afterwards.

use crate::differential::flag_bits;
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use std::ops::Range;
use unwind_sim_emulator::State;
use unwind_sim_emulator::state::reg;

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const OF: u64 = 1 << 11;

/// The longest instruction, bytes (Intel SDM volume 2, section 2.3.11).
const INSN_MAX: usize = 15;
const PAGE: u64 = 4096;

/// The next instruction.
pub(super) struct Next {
    pub(super) insn: Instruction,
    /// Its bytes, or as many as can be fetched.
    pub(super) bytes: [u8; INSN_MAX],
    /// What it does is not the processor's to decide.
    pub(super) led: bool,
    /// May it change x87, MMX or SSE registers?
    pub(super) fx: bool,
    /// Flags that the manual leaves open.
    pub(super) undefined: u64,
    /// A general register that the manual may leave open.
    pub(super) open: Option<usize>,
}

/// Finds that out; keeps memory for the next one.
pub(super) struct Reader {
    info: InstructionInfoFactory,
    /// What the next instruction may store by its operands.
    pub(super) stores: Vec<Range<u64>>,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            info: InstructionInfoFactory::new(),
            stores: Vec::new(),
        }
    }

    /// Looks at the next instruction of this state.
    pub(super) fn next(&mut self, state: &State) -> Next {
        let mut bytes = [0; INSN_MAX];
        let rip = state.rip;
        let mut len = INSN_MAX;
        if state.memory.fetch(rip, &mut bytes).is_err() {
            len = len.min((PAGE - rip % PAGE) as usize);
            if state.memory.fetch(rip, &mut bytes[..len]).is_err() {
                len = 0;
            }
        }
        let insn = Decoder::with_ip(64, &bytes[..len], rip, DecoderOptions::NONE).decode();
        self.stores.clear();
        let info = self.info.info(&insn);
        for memory in info.used_memory() {
            let size = memory.memory_size().size() as u64;
            if writes(memory.access())
                && let Some(at) = memory.virtual_address(0, |r, _, _| value(r, state))
            {
                self.stores.push(at..at.wrapping_add(size));
            }
        }
        let mnemonic = insn.mnemonic();
        let double = matches!(mnemonic, Mnemonic::Shld | Mnemonic::Shrd);
        let small_double = double && insn.op1_register().size() == 2;
        let mut undefined = flag_bits(insn.rflags_undefined());
        match mnemonic {
            _ if small_double => undefined |= CF | PF | AF | ZF | SF | OF,
            Mnemonic::Rcl | Mnemonic::Rcr | Mnemonic::Rol | Mnemonic::Ror => undefined |= OF,
            _ => {}
        }
        let is_open = small_double || matches!(mnemonic, Mnemonic::Bsf | Mnemonic::Bsr);
        let is_open = is_open && insn.op0_kind() == OpKind::Register;
        Next {
            bytes,
            led: is_led(mnemonic),
            fx: insn.cpuid_features().iter().any(is_fx),
            undefined,
            open: is_open.then(|| insn.op0_register().number()),
            insn,
        }
    }
}

fn writes(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

fn value(register: Register, state: &State) -> Option<u64> {
    Some(match register {
        Register::FS => state.gpr(reg::FS),
        Register::GS => state.gpr(reg::GS),
        r if r.is_gpr64() => state.gpr(r.number()),
        r if r.is_gpr32() => state.gpr(r.number()) & 0xffff_ffff,
        _ => 0,
    })
}

/// Is it the kernel's business, or what this very processor says of itself? `xsave` is: it saves
/// what there is, which may be more than the machine has.
fn is_led(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cpuid, Int, Rdtsc, Rdtscp, Syscall, Sysenter, Xgetbv, Xsave, Xsave64, Xsavec, Xsavec64,
        Xsaveopt, Xsaveopt64,
    };
    matches!(
        mnemonic,
        Cpuid | Int | Rdtsc | Rdtscp | Syscall | Sysenter | Xgetbv
    ) || matches!(
        mnemonic,
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64
    )
}

fn is_fx(feature: &CpuidFeature) -> bool {
    use CpuidFeature::{
        FPU, FPU287, FPU387, FXSR, MMX, SSE, SSE2, SSE3, SSE4_1, SSE4_2, SSSE3, XSAVE,
    };
    matches!(
        feature,
        FPU | FPU287 | FPU387 | FXSR | MMX | SSE | SSE2 | SSE3 | SSE4_1 | SSE4_2 | SSSE3 | XSAVE
    )
}

/// Is the result an approximation, of which the manual only says how good it is (Intel SDM volume
/// 2, RCPSS)?
pub(super) fn is_approximate(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Rcpps, Rcpss, Rsqrtps, Rsqrtss};
    matches!(mnemonic, Rcpps | Rcpss | Rsqrtps | Rsqrtss)
}

/// Parts of the x87 and SSE state in memory that processors fill in differently: where the last
/// x87 instruction and its operand were, which some give only if it raised an unmasked exception
/// (AMD APM volume 2, 11.5.2), MXCSR_MASK, and what is not stored at all. `None`: the instruction
/// stores no such thing.
pub(super) fn open_bytes(mnemonic: Mnemonic) -> Option<&'static [Range<usize>]> {
    use Mnemonic::{Fnsave, Fnstenv, Fsave, Fstenv, Fxsave, Fxsave64};
    Some(match mnemonic {
        Fxsave | Fxsave64 => &[6..24, 28..32, 416..512],
        // Instruction and opcode; operand.
        Fnstenv | Fstenv | Fnsave | Fsave => &[12..20, 20..28],
        _ => return None,
    })
}
