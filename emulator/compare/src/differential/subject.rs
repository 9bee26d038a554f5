//! An encoded instruction with what is needed to choose a state for it: its memory accesses, jump
//! target and use of the x87, SSE and AVX state.

use super::areas::has_area;
use super::values::Element;
use iced_x86::{
    Code, CodeSize, ConstantOffsets, CpuidFeature, Decoder, EncodingKind, FlowControl, Instruction,
    InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};
use unwind_sim_emulator::Processor;
use unwind_sim_emulator_native::single::{Mode, Native, NativeCase};

/// Maximum length of an instruction in bytes.
pub(super) const LENGTH_MAX: usize = 15;

/// A base or index register of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressRegister {
    /// No register.
    Nothing,
    /// The address of the next instruction.
    Rip,
    /// A general register.
    Register(u8),
}

/// A memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The base.
    pub base: AddressRegister,
    /// The index.
    pub index: AddressRegister,
    /// The factor of the index, a power of two.
    pub scale: u8,
    /// The displacement.
    pub displacement: u64,
    /// Size in bytes.
    pub size: u32,
    /// Whether the address has 32 bits.
    pub small: bool,
    /// Whether the access is a write.
    pub written: bool,
}

impl Access {
    /// Whether the address depends on no register but rip.
    pub fn is_constant(&self) -> bool {
        matches!(self.base, AddressRegister::Nothing | AddressRegister::Rip)
            && self.index == AddressRegister::Nothing
    }
}

/// Where an instruction transfers control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jump {
    /// To the next instruction.
    None,
    /// To an address relative to the next instruction.
    Relative,
    /// To an address in a register.
    Register(u8),
    /// To an address in memory, read by the first access.
    Memory,
}

/// An instruction to execute.
#[derive(Clone, Debug)]
pub struct TestInstruction {
    /// The instruction's bytes.
    pub bytes: [u8; LENGTH_MAX],
    /// The decoded instruction.
    pub insn: Instruction,
    /// Offsets of its displacement and immediate.
    pub offsets: ConstantOffsets,
    /// Its memory accesses.
    pub accesses: Vec<Access>,
    /// Where it transfers control.
    pub jump: Jump,
    /// The least mode that has all the registers it uses: `Plain`, `Fx` or `Avx`.
    pub mode: Mode,
    /// What its vectors hold.
    pub element: Element,
}

impl TestInstruction {
    /// Analyses an instruction and its bytes, as `processor` decodes them.
    pub fn new(
        processor: &Processor,
        insn: Instruction,
        bytes: [u8; LENGTH_MAX],
        mode: Mode,
        factory: &mut InstructionInfoFactory,
    ) -> TestInstruction {
        // The offsets are those of the last decoded instruction.
        let mut decoder = Decoder::with_ip(64, &bytes, insn.ip(), processor.decoder_options());
        let insn = decoder.decode();
        let offsets = decoder.get_constant_offsets(&insn);

        let info = factory.info(&insn);

        // iced lists implicit accesses too, such as those of `push` and of string instructions.
        let accesses = info.used_memory().iter().map(|memory| Access {
            base: if insn.is_ip_rel_memory_operand() && memory.base() == Register::None {
                AddressRegister::Rip
            } else {
                part(memory.base())
            },
            index: part(memory.index()),
            scale: memory.scale() as u8,
            displacement: memory.displacement(),
            size: memory.memory_size().size() as u32,
            small: memory.address_size() == CodeSize::Code32,
            written: !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead),
        });

        let mut accesses: Vec<_> = accesses.collect();
        if has_area(insn.mnemonic()) {
            // iced does not say how large it is.
            accesses.truncate(1);
            accesses
                .iter_mut()
                .for_each(|access| access.size = AREA_SIZE);
        }

        // rax may hold any address in the line that is cleared (APM volume 3, CLZERO).
        if insn.mnemonic() == Mnemonic::Clzero {
            accesses = vec![cache_line(insn.code() != Code::Clzeroq)];
        }

        TestInstruction {
            accesses,
            jump: jump(&insn),
            bytes,
            element: element(&insn),
            insn,
            offsets,
            mode,
        }
    }
}

/// Size of an XSAVE area with the components that both sides have (`cpuid`, leaf 0xd).
pub(super) const AREA_SIZE: u32 = 832;
/// Size of the line that `clzero` clears (APM volume 3, CLZERO; CPUID 1, EBX).
const CACHE_LINE: u32 = 64;

/// What the vectors of an instruction hold. iced says it of the operand that may be in memory, also
/// if it is a register.
fn element(insn: &Instruction) -> Element {
    match insn.memory_size().element_type() {
        MemorySize::Float32 => Element::Single,
        MemorySize::Float64 => Element::Double,
        _ => Element::Other,
    }
}

/// What `clzero` writes, which iced does not say.
fn cache_line(small: bool) -> Access {
    Access {
        base: AddressRegister::Register(0),
        index: AddressRegister::Nothing,
        scale: 1,
        displacement: 0,
        size: CACHE_LINE,
        small,
        written: true,
    }
}

impl TestInstruction {
    /// Number of bytes of code; all, if they are not an instruction: the processor decides how many
    /// it looks at.
    pub(super) fn len(&self) -> u8 {
        if self.insn.is_invalid() {
            LENGTH_MAX as u8
        } else {
            self.insn.len() as u8
        }
    }

    /// Whether it saves or restores an XSAVE area.
    pub(super) fn has_area(&self) -> bool {
        has_area(self.insn.mnemonic())
    }

    /// Whether it is `iret`.
    pub(super) fn is_iret(&self) -> bool {
        matches!(
            self.insn.mnemonic(),
            Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq
        )
    }

    /// Whether it returns to an address on the stack.
    pub(super) fn pops(&self) -> bool {
        self.is_iret() || matches!(self.insn.mnemonic(), Mnemonic::Ret | Mnemonic::Retf)
    }

    /// Whether it loads a code segment.
    pub(super) fn is_far(&self) -> bool {
        self.is_iret() || self.insn.mnemonic() == Mnemonic::Retf || is_far_pointer(&self.insn)
    }

    /// Whether it accesses memory in more than one part.
    pub(super) fn in_parts(&self) -> bool {
        let single = |access: &Access| access.size <= 32 && access.size.is_power_of_two();
        self.accesses.len() > 1 || !self.accesses.iter().all(single)
    }
}

/// The address of an access.
pub fn address(subject: &TestInstruction, access: &Access, case: &NativeCase) -> u64 {
    let part = |part| match part {
        AddressRegister::Nothing => 0,
        AddressRegister::Rip => case.state.rip + u64::from(case.code_len),
        AddressRegister::Register(number) => case.state.gpr[usize::from(number)],
    };

    let mut displacement = access.displacement;
    let size = subject.offsets.displacement_size();
    if access.is_constant() && size != 0 {
        // `generate` has rewritten the displacement for this case.
        let offset = subject.offsets.displacement_offset();
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&case.code[offset..offset + size]);
        displacement = u64::from_le_bytes(bytes);
        if size == 4 {
            displacement = displacement as i32 as u64;
        }
    }

    // A bit number in a register is signed and reaches beyond the operand, by whole operands (SDM
    // volume 2, BT).
    let insn = &subject.insn;
    if matches!(
        insn.mnemonic(),
        Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
    ) && insn.op1_kind() == OpKind::Register
    {
        let register = insn.op1_register();
        let value = case.state.gpr[register.number()];
        let size = register.size();
        let unused = 64 - 8 * size;
        let bytes = (value << unused).cast_signed() >> unused >> 3;
        let operands = bytes.cast_unsigned() & !(size as u64 - 1);
        displacement = displacement.wrapping_add(operands);
    }

    let sum = part(access.base)
        .wrapping_add(part(access.index).wrapping_mul(access.scale.into()))
        .wrapping_add(displacement);
    let sum = if access.small { sum & 0xffff_ffff } else { sum };

    // `clzero` clears the line that holds the address.
    match insn.mnemonic() {
        Mnemonic::Clzero => sum & !u64::from(CACHE_LINE - 1),
        _ => sum,
    }
}

/// What the elements of a gather add to its address; `None` for other instructions.
pub(super) fn elements(
    subject: &TestInstruction,
    case: &NativeCase,
) -> Option<impl Iterator<Item = u64>> {
    let insn = &subject.insn;
    if !insn.is_vsib() {
        return None;
    }
    let index = case.state.fx.ymm(insn.memory_index().number());
    let scale = u64::from(insn.memory_index_scale());
    // More than the gather uses does no harm.
    let words = index
        .into_iter()
        .flat_map(|half| [half as u64, (half >> 64) as u64]);
    let is_wide = insn.is_vsib64();
    let indexes = words.flat_map(move |word| {
        if is_wide {
            [word, word]
        } else {
            [word, word >> 32].map(|half| half as i32 as u64)
        }
    });
    Some(indexes.map(move |index| index.wrapping_mul(scale)))
}

fn part(register: Register) -> AddressRegister {
    match register {
        Register::RIP | Register::EIP => AddressRegister::Rip,
        // `xlat` adds it, but it is only a byte.
        Register::AL => AddressRegister::Nothing,
        register if register.is_gpr() => AddressRegister::Register(register.number() as u8),
        _ => AddressRegister::Nothing,
    }
}

fn jump(insn: &Instruction) -> Jump {
    if insn.is_jcc_short_or_near()
        || matches!(
            insn.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
    {
        return Jump::Relative;
    }
    let returns = matches!(
        insn.mnemonic(),
        Mnemonic::Ret | Mnemonic::Retf | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq
    );
    match (insn.flow_control(), insn.op0_kind()) {
        (FlowControl::IndirectBranch | FlowControl::IndirectCall, OpKind::Register) => {
            Jump::Register(insn.op0_register().number() as u8)
        }
        (FlowControl::IndirectBranch | FlowControl::IndirectCall, _) => Jump::Memory,
        (FlowControl::Return, _) if returns => Jump::Memory,
        _ => Jump::None,
    }
}

/// Whether the operand is a far pointer in memory.
fn is_far_pointer(insn: &Instruction) -> bool {
    use Code::*;
    matches!(
        insn.code(),
        Jmp_m1616 | Jmp_m1632 | Jmp_m1664 | Call_m1616 | Call_m1632 | Call_m1664
    )
}

/// The least mode that has all the registers that an instruction uses.
pub fn mode(code: Code) -> Mode {
    if code == Code::INVALID {
        // Whatever it does to a register is seen.
        return if Native::has_avx() {
            Mode::Avx
        } else {
            Mode::Fx
        };
    }
    if code.encoding() == EncodingKind::VEX {
        return if is_general(code) {
            Mode::Plain
        } else {
            Mode::Avx
        };
    }
    if uses_fx(code) { Mode::Fx } else { Mode::Plain }
}

/// Whether an instruction with a VEX prefix uses general registers only.
fn is_general(code: Code) -> bool {
    use CpuidFeature::{BMI1, BMI2, CMPCCXADD};
    let features = code.cpuid_features().iter();
    features
        .clone()
        .any(|feature| matches!(feature, BMI1 | BMI2 | CMPCCXADD))
}

/// Whether an instruction without a VEX prefix uses the x87 or SSE state.
fn uses_fx(code: Code) -> bool {
    use CpuidFeature::*;
    code.cpuid_features().iter().any(|feature| {
        matches!(
            feature,
            // VEX instructions are of another mode, so AVX and FMA are not in this list.
            FPU | FPU287
                | FPU387
                | MMX
                | SSE
                | SSE2
                | SSE3
                | SSSE3
                | SSE4_1
                | SSE4_2
                | SSE4A
                | AES
                | PCLMULQDQ
                | SHA
                | GFNI
                | FXSR
                | XSAVE
                | XSAVEC
                | XSAVEOPT
        )
        // `wait` reports a pending x87 exception, but belongs to no feature.
    }) || code.mnemonic() == Mnemonic::Wait
}
