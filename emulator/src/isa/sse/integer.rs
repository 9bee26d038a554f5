//! Integer arithmetic, comparisons and logic on lanes. Not here: shifts and shuffles.

use super::lanes::{Lane, compare, horizontal, in_memory, zip};
use super::packed::packed_table;
use crate::op::Run;
use iced_x86::Instruction;

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    packed_function(insn)
}

packed_table! {
    Pand | Andps | Andpd => |a, b, _| a & b;
    Pandn | Andnps | Andnpd => |a, b, _| !a & b;
    Por | Orps | Orpd => |a, b, _| a | b;
    Pxor | Xorps | Xorpd => |a, b, _| a ^ b;

    Paddb => zip(u8::wrapping_add);
    Paddw => zip(u16::wrapping_add);
    Paddd => zip(u32::wrapping_add);
    Paddq => zip(u64::wrapping_add);
    Psubb => zip(u8::wrapping_sub);
    Psubw => zip(u16::wrapping_sub);
    Psubd => zip(u32::wrapping_sub);
    Psubq => zip(u64::wrapping_sub);
    Paddsb => zip(i8::saturating_add);
    Paddsw => zip(i16::saturating_add);
    Paddusb => zip(u8::saturating_add);
    Paddusw => zip(u16::saturating_add);
    Psubsb => zip(i8::saturating_sub);
    Psubsw => zip(i16::saturating_sub);
    Psubusb => zip(u8::saturating_sub);
    Psubusw => zip(u16::saturating_sub);
    Phaddw => horizontal(u16::wrapping_add);
    Phaddd => horizontal(u32::wrapping_add);
    Phaddsw => horizontal(i16::saturating_add);
    Phsubw => horizontal(u16::wrapping_sub);
    Phsubd => horizontal(u32::wrapping_sub);
    Phsubsw => horizontal(i16::saturating_sub);

    Pavgb => zip(|a: u8, b| (u16::from(a) + u16::from(b)).div_ceil(2) as u8);
    Pavgw => zip(|a: u16, b| (u32::from(a) + u32::from(b)).div_ceil(2) as u16);
    Pminub => zip::<u8>(Ord::min);
    Pminuw => zip::<u16>(Ord::min);
    Pminud => zip::<u32>(Ord::min);
    Pminsb => zip::<i8>(Ord::min);
    Pminsw => zip::<i16>(Ord::min);
    Pminsd => zip::<i32>(Ord::min);
    Pmaxub => zip::<u8>(Ord::max);
    Pmaxuw => zip::<u16>(Ord::max);
    Pmaxud => zip::<u32>(Ord::max);
    Pmaxsb => zip::<i8>(Ord::max);
    Pmaxsw => zip::<i16>(Ord::max);
    Pmaxsd => zip::<i32>(Ord::max);
    Pabsb => zip(|_, b: i8| b.wrapping_abs());
    Pabsw => zip(|_, b: i16| b.wrapping_abs());
    Pabsd => zip(|_, b: i32| b.wrapping_abs());
    Psignb => zip(|a: i8, b: i8| a.wrapping_mul(b.signum()));
    Psignw => zip(|a: i16, b: i16| a.wrapping_mul(b.signum()));
    Psignd => zip(|a: i32, b: i32| a.wrapping_mul(b.signum()));

    Pmullw => zip(u16::wrapping_mul);
    Pmulld => zip(u32::wrapping_mul);
    Pmulhw => zip(|a: i16, b| ((i32::from(a) * i32::from(b)) >> 16) as i16);
    Pmulhuw => zip(|a: u16, b| ((u32::from(a) * u32::from(b)) >> 16) as u16);
    Pmulhrsw => zip(|a: i16, b| ((((i32::from(a) * i32::from(b)) >> 14) + 1) >> 1) as i16);
    Pmuludq => zip(|a: u64, b| (a & 0xffff_ffff) * (b & 0xffff_ffff));
    Pmuldq => zip(|a: i64, b| i64::from(a as i32) * i64::from(b as i32));
    Pmaddwd => zip(|a: i32, b: i32| {
        let low = i32::from(a as i16) * i32::from(b as i16);
        low.wrapping_add((a >> 16) * (b >> 16))
    });
    // The bytes of the first operand are unsigned, those of the second one signed.
    Pmaddubsw => zip(|a: i16, b: i16| {
        let low = (a & 0xff) * i16::from(b as i8);
        low.saturating_add((a >> 8 & 0xff) * (b >> 8))
    });
    Psadbw => zip(|a: u64, b: u64| {
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        pairs.map(|(a, b)| u64::from(a.abs_diff(b))).sum()
    });
    Mpsadbw => in_memory(|a, b, imm, result| {
        let from = usize::from(imm >> 2 & 1) * 4;
        let block = usize::from(imm & 3) * 4;
        for i in 0..u16::COUNT {
            let pair = |k: usize| a[from + i + k].abs_diff(b[block + k]);
            (0..4).map(|k| u16::from(pair(k))).sum::<u16>().put(result, i);
        }
    });
    // The minimum, and the number of the first lane that has it.
    Phminposuw => in_memory(|_, b, _, result| {
        let least = (0..8).map(|i| (u16::get(b, i), i)).min();
        let (value, number) = least.unwrap_or_default();
        value.put(result, 0);
        (number as u16).put(result, 1);
    });

    Pcmpeqb => compare::<u8>(PartialEq::eq);
    Pcmpeqw => compare::<u16>(PartialEq::eq);
    Pcmpeqd => compare::<u32>(PartialEq::eq);
    Pcmpeqq => compare::<u64>(PartialEq::eq);
    Pcmpgtb => compare::<i8>(PartialOrd::gt);
    Pcmpgtw => compare::<i16>(PartialOrd::gt);
    Pcmpgtd => compare::<i32>(PartialOrd::gt);
    Pcmpgtq => compare::<i64>(PartialOrd::gt);
}
