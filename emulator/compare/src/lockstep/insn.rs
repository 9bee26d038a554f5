//! Analyses an instruction before it is executed: what must be compared afterwards.

use iced_x86::{
    CpuidFeature, Decoder, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use std::ops::Range;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::state::reg;

/// Maximum length of an instruction in bytes (Intel SDM volume 2).
const INSN_MAX: usize = 15;
const PAGE: u64 = 4096;

/// The next instruction.
pub(super) struct NextInstruction {
    pub(super) insn: Instruction,
    /// The instruction's bytes, as many as can be fetched.
    pub(super) bytes: [u8; INSN_MAX],
    /// Whether the processor takes over the machine's result.
    pub(super) led: bool,
    /// Whether it may change x87, MMX, SSE or AVX registers.
    pub(super) fx: bool,
    /// Whether it accesses memory in several parts.
    pub(super) in_parts: bool,
    /// Whether it belongs to AVX, FMA or another extension with VEX.
    pub(super) vex: bool,
}

/// Analyses instructions, reusing its buffers.
pub(super) struct Reader {
    info: InstructionInfoFactory,
    /// The memory that the next instruction may store to by its operands.
    pub(super) stores: Vec<Range<u64>>,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            info: InstructionInfoFactory::new(),
            stores: Vec::new(),
        }
    }

    /// Analyses the next instruction of this state.
    pub(super) fn next(&mut self, core: &Core) -> NextInstruction {
        let mut bytes = [0; INSN_MAX];
        let rip = core.state.rip;
        let mut len = INSN_MAX;
        if core.memory.fetch(rip, &mut bytes).is_err() {
            // 15 bytes may reach into a page that cannot be fetched.
            len = len.min((PAGE - rip % PAGE) as usize);
            if core.memory.fetch(rip, &mut bytes[..len]).is_err() {
                len = 0;
            }
        }

        // AMD's and Intel's processors decode some prefixes differently.
        let options = core.processor().decoder_options();
        let insn = Decoder::with_ip(64, &bytes[..len], rip, options).decode();

        // What is written must be known before the instruction runs: afterwards its base register
        // may have changed.
        self.stores.clear();
        let info = self.info.info(&insn);
        let mut in_parts = info.used_memory().len() > 1;
        for memory in info.used_memory() {
            let size = memory.memory_size().size() as u64;
            // Some parts of such an access may be done before another one faults.
            in_parts |= size > 32 || !size.is_power_of_two();
            if writes(memory.access())
                && let Some(at) = memory.virtual_address(0, |r, _, _| value(r, core))
            {
                self.stores.push(at..at.wrapping_add(size));
            }
        }

        let mnemonic = insn.mnemonic();
        NextInstruction {
            bytes,
            led: is_led(mnemonic),
            fx: insn.encoding() == EncodingKind::VEX || insn.cpuid_features().iter().any(is_fx),
            in_parts,
            vex: insn.encoding() == EncodingKind::VEX,
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

fn value(register: Register, core: &Core) -> Option<u64> {
    Some(match register {
        Register::FS => core.state.gpr(reg::FS),
        Register::GS => core.state.gpr(reg::GS),
        r if r.is_gpr64() => core.state.gpr(r.number()),
        r if r.is_gpr32() => core.state.gpr(r.number()) & 0xffff_ffff,
        _ => 0,
    })
}

/// Whether the result is the kernel's, random, or specific to a processor. `xsave` is: it saves all
/// state that the processor has, which may be more than the machine has.
fn is_led(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cpuid, Int, Lsl, Rdpid, Rdrand, Rdseed, Rdtsc, Rdtscp, Sgdt, Sidt, Sldt, Smsw, Str,
        Syscall, Sysenter, Xgetbv, Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64,
    };
    matches!(
        mnemonic,
        Cpuid | Int | Rdtsc | Rdtscp | Syscall | Sysenter | Xgetbv
    ) || matches!(
        mnemonic,
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64
    ) || matches!(
        mnemonic,
        Lsl | Rdpid | Rdrand | Rdseed | Sgdt | Sidt | Sldt | Smsw | Str
    )
}

fn is_fx(feature: &CpuidFeature) -> bool {
    use CpuidFeature::{
        AES, FPU, FPU287, FPU387, FXSR, GFNI, MMX, PCLMULQDQ, SHA, SSE, SSE2, SSE3, SSE4_1, SSE4_2,
        SSE4A, SSSE3, XSAVE,
    };
    matches!(
        feature,
        // What may change x87, MMX or XMM registers. VEX instructions are recognized by their
        // encoding.
        AES | FPU
            | FPU287
            | FPU387
            | FXSR
            | GFNI
            | MMX
            | PCLMULQDQ
            | SHA
            | SSE
            | SSE2
            | SSE3
            | SSE4_1
            | SSE4_2
            | SSE4A
            | SSSE3
            | XSAVE
    )
}
