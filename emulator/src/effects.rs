//! What an instruction may change, known before it is executed: for observers that skip what cannot
//! have changed.

use crate::core::Core;
use crate::operands::register;
use crate::processor::Processor;
use crate::state::reg;
use iced_x86::{
    Code, Decoder, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// What an instruction may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effects {
    /// The general registers that it may write: bit `n` is register number `n`.
    pub registers: u16,
    /// Memory that it may write.
    pub stores: Stores,
    /// What it does with rsp, if that is all that it does.
    pub stack: Stack,
}

/// An instruction that does one thing with rsp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stack {
    /// Any other instruction, also one that moves rsp in another way.
    Other,
    /// It pushes a general register, by its hardware number.
    Push(u8),
    /// It pops a general register other than rsp.
    Pop(u8),
    /// It adds a constant.
    Add(i32),
    /// It copies rsp to rbp.
    ToFramePointer,
}

impl Stack {
    /// By how many bytes rsp moves; 0 if that is not known.
    #[inline]
    pub fn moves(self) -> i64 {
        match self {
            Stack::Push(_) => -8,
            Stack::Pop(_) => 8,
            Stack::Add(constant) => constant.into(),
            Stack::ToFramePointer | Stack::Other => 0,
        }
    }
}

/// Memory that an instruction may write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stores {
    /// No memory, or only memory below rsp before the instruction.
    Nothing,
    /// One operand.
    At(Operand),
    /// The destination of a string instruction: elements starting at rdi.
    String(Elements),
    /// Any memory: system calls, `xsave`.
    Anything,
}

/// The memory that a string instruction writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Elements {
    /// Size of an element, bytes.
    size: u8,
    /// Whether there are rcx elements, or one.
    repeated: bool,
}

impl Elements {
    /// The addresses, if the instruction is the next one, clipped to the address space.
    pub fn range(&self, core: &Core) -> Range<u64> {
        let count = if self.repeated {
            core.state.gpr(reg::RCX)
        } else {
            1
        };
        let (size, first) = (u64::from(self.size), core.state.gpr(reg::RDI));
        let bytes = count.saturating_mul(size);
        if core.state.rflags() & DIRECTION == 0 {
            return first..first.saturating_add(bytes);
        }
        let end = first.saturating_add(size);
        end.saturating_sub(bytes)..end
    }
}

/// The direction flag.
const DIRECTION: u64 = 1 << 10;

/// A memory operand: `base + (index << scale) + disp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    disp: u64,
    /// Size, bytes.
    pub size: u32,
    base: u8,
    index: u8,
    scale: u8,
    segment: u8,
}

impl Operand {
    /// The address of the operand, if the instruction is the next one.
    #[inline]
    pub fn address(&self, core: &Core) -> u64 {
        let part = |number: u8| core.state.gpr(number.into());
        part(self.base)
            .wrapping_add(part(self.index) << self.scale)
            .wrapping_add(self.disp)
            .wrapping_add(part(self.segment))
    }
}

/// All effects: for bytes that are not an instruction.
const ANYTHING: Effects = Effects {
    registers: u16::MAX,
    stores: Stores::Anything,
    stack: Stack::Other,
};

/// What the instruction at the start of `bytes`, located at `rip`, may change on `processor`.
pub fn effects(
    bytes: &[u8],
    rip: u64,
    processor: &Processor,
    info: &mut InstructionInfoFactory,
) -> Effects {
    let insn = Decoder::with_ip(64, bytes, rip, processor.decoder_options()).decode();

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

    // A push only stores below rsp, which `stack` tells.
    let stores = match (written.next(), written.next(), elements(&insn)) {
        (None, ..) => Stores::Nothing,
        (Some(_), None, _) if pushes(&insn) => Stores::Nothing,
        (Some(_), _, Some(elements)) => Stores::String(elements),
        (Some(memory), None, None) => operand(&insn, memory.memory_size().size()),
        _ => Stores::Anything,
    };

    Effects {
        registers,
        stores,
        stack: stack(&insn),
    }
}

fn stack(insn: &Instruction) -> Stack {
    let (first, second) = (insn.op0_register(), insn.op1_register());
    let constant = match insn.code() {
        Code::Push_r64 => return Stack::Push(register(first)),
        Code::Pop_r64 if first != Register::RSP => return Stack::Pop(register(first)),
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64
            if (first, second) == (Register::RBP, Register::RSP) =>
        {
            return Stack::ToFramePointer;
        }
        _ if first != Register::RSP => None,
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 => Some(insn.immediate(1) as i64),
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => (insn.immediate(1) as i64).checked_neg(),
        Code::Lea_r64_m
            if insn.memory_base() == Register::RSP && insn.memory_index() == Register::None =>
        {
            Some(insn.memory_displacement64() as i64)
        }
        _ => None,
    };
    let constant = constant.and_then(|constant| i32::try_from(constant).ok());
    constant.map_or(Stack::Other, Stack::Add)
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

fn elements(insn: &Instruction) -> Option<Elements> {
    use Mnemonic::{Movsb, Movsd, Movsq, Movsw, Stosb, Stosd, Stosq, Stosw};
    let size = match insn.mnemonic() {
        Movsb | Stosb => 1,
        Movsw | Stosw => 2,
        Movsd | Stosd if insn.is_string_instruction() => 4,
        Movsq | Stosq => 8,
        _ => return None,
    };
    // With 32-bit addresses, these are edi and ecx.
    let wide = [OpKind::MemoryESRDI, OpKind::MemorySegRSI];
    let is_wide = (0..2).any(|n| wide.contains(&insn.op_kind(n)));
    is_wide.then_some(Elements {
        size,
        repeated: insn.has_rep_prefix() || insn.has_repne_prefix(),
    })
}

fn operand(insn: &Instruction, size: usize) -> Stores {
    let explicit = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
    let number = |r: Register| match r {
        Register::None | Register::RIP => Some(reg::ZERO as u8),
        // Addresses of 32 bits are rare in 64-bit code, and count as unknown.
        r if r.is_gpr64() => Some(register(r)),
        _ => None,
    };

    let registers = (number(insn.memory_base()), number(insn.memory_index()));
    let (true, true, (Some(base), Some(index))) = (explicit, size > 0, registers) else {
        return Stores::Anything;
    };

    // The address of a bit instruction depends on the bit's number, and that of `pop` on rsp after
    // the pop.
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
    use crate::address_space::{AddressSpace, PAGE_SIZE, Permissions};
    use crate::machine::{Exit, Machine};
    use crate::test_random::Random;

    fn of(bytes: &[u8]) -> Effects {
        let processor = Processor::default();
        effects(
            bytes,
            0x1000,
            &processor,
            &mut InstructionInfoFactory::new(),
        )
    }

    #[test]
    fn registers_and_operands() {
        // mov %rax, 8(%rsp,%rcx,4)
        let Stores::At(operand) = of(&[0x48, 0x89, 0x44, 0x8c, 8]).stores else {
            panic!("an operand");
        };

        let mut core = Core::new(AddressSpace::default());
        core.state.set_gpr(reg::RSP, 0x100);
        core.state.set_gpr(reg::RCX, 2);

        assert_eq!((operand.address(&core), operand.size), (0x110, 8));

        // pop %rbx
        let effects = of(&[0x5b]);
        assert_eq!(effects.stores, Stores::Nothing);
        assert_eq!(effects.registers, 1 << reg::RBX | 1 << reg::RSP);

        // push %rbp
        assert_eq!(of(&[0x55]).stores, Stores::Nothing);

        // rep stos %rax
        let Stores::String(elements) = of(&[0xf3, 0x48, 0xab]).stores else {
            panic!("elements");
        };
        core.state.set_gpr(reg::RDI, 0x1000);
        assert_eq!(elements.range(&core), 0x1000..0x1010);
        core.state.set_rflags(core.state.rflags() | DIRECTION);
        assert_eq!(elements.range(&core), 0xff8..0x1008);

        // stos %al, addressed by edi
        assert_eq!(of(&[0x67, 0xaa]).stores, Stores::Anything);
        // syscall
        assert_eq!(of(&[0x0f, 0x05]), ANYTHING);

        // cmp %rax, (%rdi)
        let effects = of(&[0x48, 0x39, 0x07]);
        assert_eq!((effects.stores, effects.registers), (Stores::Nothing, 0));
    }

    #[test]
    fn what_is_done_with_rsp() {
        for (bytes, stack) in [
            (&[0x53][..], Stack::Push(3)),                        // push rbx
            (&[0x41, 0x57], Stack::Push(15)),                     // push r15
            (&[0x54], Stack::Push(4)),                            // push rsp
            (&[0x41, 0x5c], Stack::Pop(12)),                      // pop r12
            (&[0x5c], Stack::Other),                              // pop rsp
            (&[0x66, 0x53], Stack::Other),                        // push bx
            (&[0x6a, 1], Stack::Other),                           // push 1
            (&[0x48, 0x83, 0xec, 0x18], Stack::Add(-0x18)),       // sub rsp, 0x18
            (&[0x48, 0x83, 0xc4, 0xf8], Stack::Add(-8)),          // add rsp, -8
            (&[0x48, 0x81, 0xc4, 0, 1, 0, 0], Stack::Add(0x100)), // add rsp, 0x100
            (&[0x48, 0x81, 0xec, 0, 0, 0, 0x80], Stack::Other),   // sub rsp, -0x80000000
            (&[0x83, 0xc4, 8], Stack::Other),                     // add esp, 8
            (&[0x48, 0x83, 0xc3, 8], Stack::Other),               // add rbx, 8
            (&[0x48, 0x83, 0xe4, 0xf0], Stack::Other),            // and rsp, -16
            (&[0x48, 0x8d, 0x64, 0x24, 0xf8], Stack::Add(-8)),    // lea rsp, [rsp - 8]
            (&[0x48, 0x8d, 0x64, 0x04, 8], Stack::Other),         // lea rsp, [rsp + rax + 8]
            (&[0x48, 0x8d, 0x63, 8], Stack::Other),               // lea rsp, [rbx + 8]
            (&[0x67, 0x48, 0x8d, 0x64, 0x24, 8], Stack::Other),   // lea rsp, [esp + 8]
            (&[0x48, 0x89, 0xe5], Stack::ToFramePointer),         // mov rbp, rsp
            (&[0x48, 0x8b, 0xec], Stack::ToFramePointer),         // the other encoding
            (&[0x89, 0xe5], Stack::Other),                        // mov ebp, esp
            (&[0x48, 0x89, 0xec], Stack::Other),                  // mov rsp, rbp
        ] {
            assert_eq!(of(bytes).stack, stack, "{bytes:02x?}");
        }
    }

    /// Random instructions change only what was predicted.
    #[test]
    fn nothing_else_is_changed() {
        const CODE: u64 = 0x40_0000;
        const DATA: u64 = 0x50_0000;
        const MIDDLE: u64 = DATA + PAGE_SIZE / 2;
        const RSP: u8 = reg::RSP as u8;
        let mut random = Random::new(2026);

        let mut info = InstructionInfoFactory::new();
        let mut space = AddressSpace::default();
        for (start, permissions) in [(CODE, Permissions::ALL), (DATA, Permissions::READ_WRITE)] {
            let mapped = space.map(start..start + PAGE_SIZE, permissions);
            mapped.expect("user space");
        }
        let (mut ran, mut stored, mut moved) = (0, 0, 0);
        let mut machine = Machine::new(Core::new(space));

        for _ in 0..40_000 {
            let code: Vec<u8> = (0..2).flat_map(|_| random.bits().to_le_bytes()).collect();

            // All bytes are equal, so that a change shows.
            let data = vec![0x5a; PAGE_SIZE as usize];
            machine.core.memory.poke(CODE, &code).expect("mapped");
            machine.core.memory.poke(DATA, &data).expect("mapped");
            machine.core.state.rip = CODE;
            // IF, and bit 1, which is always set.
            machine.core.state.set_rflags(0x202);
            for number in 0..16 {
                // Into the data page, so that most memory operands are mapped.
                let pointer = MIDDLE + random.below_u64(64) * 8;
                machine.core.state.set_gpr(number, pointer);
            }

            let before = machine.core.clone();
            // Many random bytes are not an instruction, or fault. The counts at the end say that
            // enough ran.
            if machine.run(1, &mut ()) != Exit::Limit {
                continue;
            }
            ran += 1;

            let core = &machine.core;
            // No instruction is longer than 15 bytes.
            let effects = effects(&code[..15], CODE, &machine.core.processor(), &mut info);
            for number in 0..16 {
                let changed = before.state.gpr(number) != core.state.gpr(number);
                let said = effects.registers & 1 << number != 0;
                assert!(said || !changed, "register {number}: {code:02x?}");
            }

            let gpr = |core: &Core, number: u8| core.state.gpr(number.into());
            let word = |core: &Core, address| {
                let mut bytes = [0; 8];
                core.memory.peek(address, &mut bytes).expect("mapped");
                u64::from_le_bytes(bytes)
            };

            let (old, new) = (gpr(&before, RSP), gpr(core, RSP));
            moved += usize::from(effects.stack != Stack::Other);
            match effects.stack {
                Stack::Push(number) => {
                    assert_eq!((new, word(core, new)), (old - 8, gpr(&before, number)));
                }
                Stack::Pop(number) => {
                    assert_eq!((new, gpr(core, number)), (old + 8, word(&before, old)));
                }
                Stack::Add(constant) => {
                    assert_eq!(new, old.wrapping_add_signed(constant.into()));
                }
                Stack::ToFramePointer => assert_eq!(gpr(core, 5), old),
                Stack::Other => {}
            }

            // All that the data page may show as changed.
            let allowed = match effects.stores {
                Stores::Nothing => 0..0,
                Stores::At(operand) => {
                    let address = operand.address(&before);
                    address..address + u64::from(operand.size)
                }
                Stores::String(elements) => elements.range(&before),
                Stores::Anything => 0..u64::MAX,
            };

            let mut after = data.clone();
            core.memory.peek(DATA, &mut after).expect("mapped");
            for (offset, _) in after.iter().enumerate().filter(|(_, byte)| **byte != 0x5a) {
                let address = DATA + offset as u64;
                // What a push stores is not in `stores`.
                let pushed = address < before.state.gpr(reg::RSP);
                assert!(
                    allowed.contains(&address) || pushed,
                    "{address:#x}: {code:02x?}"
                );
                stored += 1;
            }
        }
        assert!(ran > 8_000 && stored > 2_000, "{ran} {stored}");
        assert!(moved > 500, "{moved}");
    }
}
