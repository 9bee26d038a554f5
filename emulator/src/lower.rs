//! Translates a decoded instruction into operations: operands here, functions in [`crate::isa`].

use crate::isa::{self, element_address};
use crate::length::is_too_long;
use crate::op::{self, Op};
use crate::operands::{register, segment};
use crate::processor::Processor;
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Appends the operations of an instruction. Its bytes are the first of `bytes`; its block starts
/// at `block`. Returns its length in bytes, which is not that of `insn` if the processor decodes
/// another instruction from them.
pub(crate) fn lower(
    insn: &Instruction,
    bytes: &[u8],
    block: u64,
    processor: &Processor,
    out: &mut Vec<Op>,
) -> u64 {
    let mut insn = *insn;
    // iced decodes for all processors. This one may lack the instruction, or have another.
    let exists = processor.adapt(&mut insn, bytes);
    let insn = &insn;

    let length = insn.len() as u64;
    let mut op = Op {
        run: op::unsupported,
        disp: 0,
        imm: 0,
        offset: insn.ip().wrapping_sub(block) as u16,
        base: reg::ZERO as u8,
        index: reg::ZERO as u8,
        scale: 0,
        dst: 0,
        src: 0,
        len: insn.len() as u8,
        extra: 0,
        more: 0,
    };

    // The length is checked first: #GP beyond 15 bytes, otherwise #UD.
    if !exists {
        op.run = if insn.is_invalid() && is_too_long(bytes, processor) {
            op::too_long
        } else {
            op::invalid
        };
        out.push(op);
        return length;
    }

    if processor.gates().refuse(insn).is_some() {
        op.run = op::system_only;
        out.push(op);
        return length;
    }

    if depends_on_time(insn) {
        // The number of instructions before it in the block.
        op.imm = out.iter().map(Op::instructions).sum::<u64>() as i32;
    }

    operands(insn, &mut op, out);
    if let Some(run) = isa::select(insn, &mut op) {
        op.run = run;
    }

    out.push(op);
    length
}

fn operands(insn: &Instruction, op: &mut Op, out: &mut Vec<Op>) {
    let mut registers = 0;
    for number in 0..insn.op_count() {
        match insn.op_kind(number) {
            // The first operand is the destination; the others follow in order.
            OpKind::Register => {
                let place = match (number, registers) {
                    (0, _) => &mut op.dst,
                    (_, 0 | 1) if registers == 0 || number == 1 => &mut op.src,
                    _ => &mut op.extra,
                };
                *place = register(insn.op_register(number));
                registers += 1;
            }
            OpKind::Memory => memory(insn, op, out),
            OpKind::NearBranch64 => op.disp = insn.near_branch64(),
            OpKind::NearBranch16 => op.disp = insn.near_branch16().into(),
            // `imm` has 32 bits only.
            OpKind::Immediate64 => op.disp = insn.immediate64(),
            // The second immediate of `enter`.
            OpKind::Immediate8_2nd => op.extra = insn.immediate8_2nd(),
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => op.imm = insn.immediate(number) as i32,
            // Implied by the instruction, or not modelled.
            _ => {}
        }
    }
}

fn memory(insn: &Instruction, op: &mut Op, out: &mut Vec<Op>) {
    let number = |register: Register| match register {
        // `xlat` adds al itself.
        Register::None | Register::RIP | Register::EIP | Register::AL => reg::ZERO as u8,
        register => register.number() as u8,
    };

    op.base = number(insn.memory_base());
    op.index = number(insn.memory_index());
    op.scale = insn.memory_index_scale().trailing_zeros() as u8;
    op.disp = insn.memory_displacement64();

    let segment = segment(insn);
    let small = has_small_address(insn);
    if insn.is_vsib() || isa::has_mask(insn) {
        // Each element has its own address: see `isa/avx/gather.rs` and `masked.rs`.
        op.imm = element_address(segment, small);
    } else if insn.mnemonic() == Mnemonic::Lea {
        // `lea` uses no segment, and truncates a 32-bit address itself.
        op.extra = u8::from(small);
    } else if moves_address(insn) {
        op.imm = segment as i32;
        op.extra = u8::from(small);
    } else if segment != reg::ZERO && op.index == reg::ZERO as u8 && !small {
        // A segment's base is added like an index.
        op.index = segment as u8;
        op.scale = 0;
    } else if segment != reg::ZERO || small {
        // Otherwise an operation before this one computes the address.
        out.push(Op {
            run: op::address,
            imm: segment as i32,
            extra: u8::from(small),
            len: 0,
            ..*op
        });
        op.base = reg::ADDRESS as u8;
        op.index = reg::ZERO as u8;
        op.disp = 0;
    }
}

/// Whether the result depends on the number of instructions executed.
fn depends_on_time(insn: &Instruction) -> bool {
    use Mnemonic::{Rdrand, Rdseed, Rdtsc, Rdtscp};
    matches!(insn.mnemonic(), Rdtsc | Rdtscp | Rdrand | Rdseed)
}

/// Whether the instruction adds something to the address with [`Op::address_moved`].
fn moves_address(insn: &Instruction) -> bool {
    use Mnemonic::{Bt, Btc, Btr, Bts, Xlatb};
    match insn.mnemonic() {
        Bt | Btc | Btr | Bts => insn.op_kind(1) == OpKind::Register,
        mnemonic => mnemonic == Xlatb,
    }
}

/// Whether the address has 32 bits.
fn has_small_address(insn: &Instruction) -> bool {
    let small = |register: Register| register == Register::EIP || register.is_gpr32();
    small(insn.memory_base())
        || small(insn.memory_index())
        || (insn.memory_base() == Register::None
            && (insn.memory_index() == Register::None || insn.is_vsib())
            && insn.memory_displ_size() == 4)
}
