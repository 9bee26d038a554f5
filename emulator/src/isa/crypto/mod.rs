//! AES, carry-less products, Galois fields and SHA on xmm and ymm registers.
//!
//! Each instruction is a function of two 128-bit lanes and an immediate.

mod aes;
mod galois;
mod sha;
#[cfg(test)]
mod tests;

use super::sse::packed::packed_table;
use super::sse::registers::{aligned, set_xmm, xmm};
use crate::core::Core;
use crate::op::{Flow, Op, Run};
use crate::operands::Form;
use crate::processor::Vendor;
use iced_x86::{Instruction, OpKind};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let is_register = insn.op_count() > 2 && insn.op2_kind() == OpKind::Register;
    if !Form::has_memory(insn) && !is_register {
        // The last source operand is always in `extra`.
        op.extra = op.src;
    }
    packed_function(insn).or_else(|| sha_function(insn))
}

packed_table! {
    Aesenc | Vaesenc => |a, key, _| aes::encrypt(a, key);
    Aesenclast | Vaesenclast => |a, key, _| aes::encrypt_last(a, key);
    Aesdec | Vaesdec => |a, key, _| aes::decrypt(a, key);
    Aesdeclast | Vaesdeclast => |a, key, _| aes::decrypt_last(a, key);
    Aesimc | Vaesimc => |_, key, _| aes::invert_mix(key);
    Aeskeygenassist | Vaeskeygenassist => |_, key, round| aes::assist(key, round);
    Pclmulqdq | Vpclmulqdq => galois::product;
    Gf2p8mulb | Vgf2p8mulb => |a, b, _| galois::multiply(a, b);
    Gf2p8affineqb | Vgf2p8affineqb => galois::affine;
    Gf2p8affineinvqb | Vgf2p8affineinvqb => galois::affine_of_inverse;
}

/// A function of two registers, xmm0 and the immediate.
trait Sha {
    fn apply(a: u128, b: u128, xmm0: u128, imm: u8) -> u128;
}

macro_rules! sha_table {
    ($($name:ident => |$a:ident, $b:ident, $xmm0:ident, $imm:ident| $result:expr;)*) => {
        $(
            struct $name;
            impl Sha for $name {
                fn apply($a: u128, $b: u128, $xmm0: u128, $imm: u8) -> u128 {
                    $result
                }
            }
        )*

        fn sha_function(insn: &Instruction) -> Option<Run> {
            use iced_x86::Mnemonic;
            Some(match (insn.mnemonic(), Form::has_memory(insn)) {
                $(
                    (Mnemonic::$name, false) => sha_r::<$name>,
                    (Mnemonic::$name, true) => sha_m::<$name>,
                )*
                _ => return None,
            })
        }
    };
}

sha_table! {
    Sha1nexte => |a, b, _xmm0, _imm| sha::next_e(a, b);
    Sha1msg1 => |a, b, _xmm0, _imm| sha::message1_1(a, b);
    Sha1msg2 => |a, b, _xmm0, _imm| sha::message1_2(a, b);
    Sha1rnds4 => |a, b, _xmm0, imm| sha::rounds1(a, b, imm);
    Sha256msg1 => |a, b, _xmm0, _imm| sha::message256_1(a, b);
    Sha256msg2 => |a, b, _xmm0, _imm| sha::message256_2(a, b);
    Sha256rnds2 => |a, b, xmm0, _imm| sha::rounds256(a, b, xmm0);
}

fn change<S: Sha>(core: &mut Core, op: &Op, b: u128) -> Flow {
    let result = S::apply(xmm(core, op.dst), b, xmm(core, 0), op.imm as u8);
    set_xmm(core, op.dst, result);
    Flow::Next
}

fn sha_r<S: Sha>(core: &mut Core, op: &Op) -> Flow {
    let b = xmm(core, op.src);
    change::<S>(core, op, b)
}

/// AMD's processors do not require the operand to be aligned (seen on an EPYC, family 26, model 2).
fn sha_m<S: Sha>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    if core.processor.vendor() == Vendor::Intel && aligned(core, address, 16).is_none() {
        return Flow::Stop;
    }
    match core.memory.load_bytes(address) {
        Some(bytes) => change::<S>(core, op, u128::from_le_bytes(bytes)),
        None => Flow::Stop,
    }
}
