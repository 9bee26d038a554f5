//! Functions of lanes without a legacy form: shifts by a count for each element, `vpermilps` and
//! `vpermilpd`.

use crate::isa::sse::lanes::{Lane, in_memory, pick, zip};
use crate::isa::sse::packed::{Packed, packed, packed_table};
use crate::isa::sse::wide::YmmForm;
use crate::op::Run;
use iced_x86::{Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    let by_immediate = insn.op_count() == 3 && insn.op_kind(2) == OpKind::Immediate8;
    match insn.mnemonic() {
        Mnemonic::Vpermilps if by_immediate => packed::<PickSingles>(insn),
        Mnemonic::Vpermilpd if by_immediate => packed::<PickDoubles>(insn),
        _ => packed_function(insn),
    }
}

packed_table! {
    Vpsllvd => zip(|a: u32, count| a.checked_shl(count).unwrap_or(0));
    Vpsllvq => zip(|a: u64, count| a.checked_shl(clamp(count)).unwrap_or(0));
    Vpsrlvd => zip(|a: u32, count| a.checked_shr(count).unwrap_or(0));
    Vpsrlvq => zip(|a: u64, count| a.checked_shr(clamp(count)).unwrap_or(0));
    Vpsravd => zip(|a: i32, count| a >> count.cast_unsigned().min(31));
    Vpermilps => in_memory(|a, b, _, result| {
        for i in 0..u32::COUNT {
            u32::get(a, u32::get(b, i) as usize & 3).put(result, i);
        }
    });
    Vpermilpd => in_memory(|a, b, _, result| {
        for i in 0..u64::COUNT {
            u64::get(a, u64::get(b, i) as usize >> 1 & 1).put(result, i);
        }
    });
}

/// A count as a `u32`: those that are too large stay too large.
fn clamp(count: u64) -> u32 {
    count.min(64) as u32
}

/// `vpermilps` with an immediate.
struct PickSingles;

impl Packed for PickSingles {
    #[inline(always)]
    fn apply(a: u128, b: u128, imm: u8) -> u128 {
        pick::<u32>(|i, imm| 4 + (imm >> (2 * i) & 3))(a, b, imm)
    }
}

/// `vpermilpd` with an immediate.
struct PickDoubles;

impl Packed for PickDoubles {
    const WIDE: YmmForm = YmmForm::Lanes(2);

    #[inline(always)]
    fn apply(a: u128, b: u128, imm: u8) -> u128 {
        pick::<u64>(|i, imm| 2 + (imm >> i & 1))(a, b, imm)
    }
}
