//! `fldenv`, `fnstenv`, `frstor`, `fnsave`, in the 16-bit and 32-bit protected-mode formats.
//!
//! Source: Intel SDM volume 1, figures 8-9 and 8-11.

use super::execute::wait;
use crate::core::Core;
use crate::float::Class;
use crate::float::x87::{F80, classify};
use crate::op::{Flow, Op, Run};
use crate::operands::width;
use crate::state::fpu::Fpu;
use iced_x86::{Instruction, Mnemonic};

/// Size of the environment in 16-bit and 32-bit words, bytes.
const ENVIRONMENT_16: usize = 14;
const ENVIRONMENT_32: usize = 28;
/// Size with the registers, 10 bytes each.
const STATE_16: usize = ENVIRONMENT_16 + 80;
const STATE_32: usize = ENVIRONMENT_32 + 80;

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::{Fldenv, Fnsave, Fnstenv, Frstor};
    Some(match (insn.mnemonic(), width(insn, 0) as usize / 8) {
        (Fldenv, ENVIRONMENT_16) => load::<ENVIRONMENT_16>,
        (Fldenv, ENVIRONMENT_32) => load::<ENVIRONMENT_32>,
        (Fnstenv, ENVIRONMENT_16) => store::<ENVIRONMENT_16>,
        (Fnstenv, ENVIRONMENT_32) => store::<ENVIRONMENT_32>,
        (Frstor, STATE_16) => load::<STATE_16>,
        (Frstor, STATE_32) => load::<STATE_32>,
        (Fnsave, STATE_16) => store::<STATE_16>,
        (Fnsave, STATE_32) => store::<STATE_32>,
        _ => return None,
    })
}

/// Size of a field in an image of `size` bytes.
const fn field(size: usize) -> usize {
    match size {
        ENVIRONMENT_16 | STATE_16 => 2,
        _ => 4,
    }
}

fn load<const SIZE: usize>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }

    let Some(bytes) = core.memory.load_bytes::<SIZE>(op.address(core)) else {
        return Flow::Stop;
    };

    // Words with a 16-bit operand, otherwise double words.
    let field = field(SIZE);
    let word = |number: usize| {
        let at = number * field;
        u16::from_le_bytes([bytes[at], bytes[at + 1]])
    };

    let fpu = &mut core.state.fpu;
    fpu.set_control_word(word(0));
    fpu.set_status_word(word(1));

    // Of a tag, only 3 counts, empty: the processor finds the others in the registers (SDM volume
    // 1).
    let tags = word(2);
    fpu.empty = (0..8).fold(0, |all, number| {
        all | u8::from(tags >> (2 * number) & 3 == 3) << number
    });

    // The 16-bit form has no opcode. Words 4 and 6 are selectors (SDM volume 1).
    if field == 2 {
        fpu.instruction = word(3).into();
        fpu.opcode = 0;
        fpu.data = word(5).into();
    } else {
        let pointer = |number: usize| {
            let high = &bytes[number * 4 + 2..];
            u32::from(word(number)) | u32::from(u16::from_le_bytes([high[0], high[1]])) << 16
        };
        fpu.instruction = pointer(3).into();
        fpu.opcode = (pointer(4) >> 16 & 0x7ff) as u16;
        fpu.data = pointer(5).into();
    }

    // Only `frstor` has registers, ST(0) first.
    let (registers, _) = bytes[7 * field..].as_chunks::<10>();
    for (position, bytes) in registers.iter().enumerate() {
        let number = (usize::from(fpu.top) + position) & 7;
        fpu.registers[number] = F80::from_bytes(*bytes);
    }

    Flow::Next
}

fn store<const SIZE: usize>(core: &mut Core, op: &Op) -> Flow {
    let fpu = &core.state.fpu;
    let mut bytes = [0xff; SIZE];

    // Words with a 16-bit operand, otherwise double words.
    let field = field(SIZE);
    let mut put = |number: usize, value: u64, size: usize| {
        let at = number * field;
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };

    put(0, fpu.control_word().into(), 2);
    put(1, fpu.status_word().into(), 2);
    put(2, tag_word(fpu).into(), 2);
    put(3, fpu.instruction, field);
    // The selectors of code and data are 0: newer processors do not keep them (CPUID leaf 7, EBX
    // bit 13).
    put(4, u64::from(fpu.opcode) << 16, field);
    put(5, fpu.data, field);
    put(6, 0, 2);

    let (registers, _) = bytes[7 * field..].as_chunks_mut::<10>();
    for (position, to) in registers.iter_mut().enumerate() {
        *to = fpu.content(position as u8).to_bytes();
    }

    if core.memory.store_bytes(op.address(core), bytes).is_none() {
        return Flow::Stop;
    }

    // `fnsave` initializes the x87 unit, `fnstenv` masks all exceptions (SDM volume 2).
    if SIZE > ENVIRONMENT_32 {
        core.state.fpu.initialize();
    } else {
        core.state.fpu.mask_exceptions();
    }

    Flow::Next
}

/// Two bits for each register, by its own number: 0 a number, 1 zero, 2 anything else, 3 empty.
fn tag_word(fpu: &Fpu) -> u16 {
    (0..8).fold(0, |tags, number: u16| {
        let tag = match classify(fpu.registers[usize::from(number)]).0 {
            _ if fpu.empty >> number & 1 != 0 => 3,
            Class::Normal => 0,
            Class::Zero => 1,
            _ => 2,
        };
        tags | tag << (2 * number)
    })
}
