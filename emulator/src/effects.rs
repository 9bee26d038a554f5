//! What an instruction may change, known before it is executed: for observers that want to know
//! what cannot have changed.

use crate::lower::register;
use crate::state::{State, reg};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

/// What an instruction may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effects {
    /// General registers, by number, that it may write, a bit for each.
    pub registers: u16,
    /// Memory that it may write.
    pub stores: Stores,
}

/// Memory that an instruction may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    /// None, or only below rsp as it was before.
    Nothing,
    /// One operand.
    At(Operand),
    /// Whatever it likes: string instructions, system calls.
    Anything,
}

/// A memory operand: `base + (index << scale) + disp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    disp: u64,
    /// Bytes.
    pub size: u32,
    base: u8,
    index: u8,
    scale: u8,
    segment: u8,
}

impl Operand {
    /// Its address, if the instruction is the next one.
    #[inline]
    pub fn address(&self, state: &State) -> u64 {
        let part = |number: u8| state.gpr(number.into());
        part(self.base)
            .wrapping_add(part(self.index) << self.scale)
            .wrapping_add(self.disp)
            .wrapping_add(part(self.segment))
    }
}

/// Everything: for bytes that are no instruction.
const ANYTHING: Effects = Effects {
    registers: u16::MAX,
    stores: Stores::Anything,
};

/// What the instruction at the start of `bytes`, which is at `rip`, may change.
pub fn effects(bytes: &[u8], rip: u64, info: &mut InstructionInfoFactory) -> Effects {
    let insn = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    // What the kernel does is not in the instruction.
    if insn.is_invalid() || matches!(insn.mnemonic(), Mnemonic::Syscall | Mnemonic::Int) {
        return ANYTHING;
    }
    let info = info.info(&insn);
    let mut registers = 0;
    for used in info.used_registers() {
        if writes(used.access()) && used.register().is_gpr() {
            registers |= 1 << used.register().full_register().number();
        }
    }
    let mut written = info.used_memory().iter().filter(|m| writes(m.access()));
    let stores = match (written.next(), written.next()) {
        (None, _) => Stores::Nothing,
        (Some(_), None) if pushes(&insn) => Stores::Nothing,
        (Some(memory), None) => operand(&insn, memory.memory_size().size()),
        _ => Stores::Anything,
    };
    Effects { registers, stores }
}

fn writes(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    )
}

fn pushes(insn: &Instruction) -> bool {
    use Mnemonic::{Call, Enter, Push, Pushf, Pushfq};
    matches!(insn.mnemonic(), Call | Enter | Push | Pushf | Pushfq)
}

fn operand(insn: &Instruction, size: usize) -> Stores {
    let explicit = (0..insn.op_count()).any(|n| insn.op_kind(n) == iced_x86::OpKind::Memory);
    let number = |r: Register| match r {
        Register::None | Register::RIP => Some(reg::ZERO as u8),
        r if r.is_gpr64() => Some(register(r)),
        _ => None,
    };
    let registers = (number(insn.memory_base()), number(insn.memory_index()));
    let (true, true, (Some(base), Some(index))) = (explicit, size > 0, registers) else {
        return Stores::Anything;
    };
    // The address that bit instructions use hangs on the bit's number; and that of `pop` on rsp
    // behind it.
    let moved = matches!(
        insn.mnemonic(),
        Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc | Mnemonic::Pop
    );
    if moved {
        return Stores::Anything;
    }
    Stores::At(Operand {
        disp: insn.memory_displacement64(),
        size: size as u32,
        base,
        index,
        scale: insn.memory_index_scale().trailing_zeros() as u8,
        segment: match insn.memory_segment() {
            Register::FS => reg::FS as u8,
            Register::GS => reg::GS as u8,
            _ => reg::ZERO as u8,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::AddressSpace;

    fn of(bytes: &[u8]) -> Effects {
        effects(bytes, 0x1000, &mut InstructionInfoFactory::new())
    }

    #[test]
    fn registers_and_operands() {
        // mov %rax, 8(%rsp,%rcx,4)
        let Stores::At(operand) = of(&[0x48, 0x89, 0x44, 0x8c, 8]).stores else {
            panic!("an operand");
        };
        let mut state = State::new(AddressSpace::default());
        state.set_gpr(reg::RSP, 0x100);
        state.set_gpr(reg::RCX, 2);
        assert_eq!((operand.address(&state), operand.size), (0x110, 8));
        // pop %rbx
        let effects = of(&[0x5b]);
        assert_eq!(effects.stores, Stores::Nothing);
        assert_eq!(effects.registers, 1 << reg::RBX | 1 << reg::RSP);
        // push %rbp
        assert_eq!(of(&[0x55]).stores, Stores::Nothing);
        // rep stos
        assert_eq!(of(&[0xf3, 0x48, 0xab]).stores, Stores::Anything);
        // syscall
        assert_eq!(of(&[0x0f, 0x05]), ANYTHING);
        // cmp %rax, (%rdi)
        let effects = of(&[0x48, 0x39, 0x07]);
        assert_eq!((effects.stores, effects.registers), (Stores::Nothing, 0));
    }
}
