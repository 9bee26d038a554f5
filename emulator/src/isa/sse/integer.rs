//! Integer arithmetic, comparisons and logic on lanes. Not here: shifts and shuffles.

use super::lanes::{Lane, compare, horizontal, in_memory, zip};
use super::packed::packed_table;
use super::wide::YmmForm;
use crate::op::Run;
use iced_x86::Instruction;

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    packed_function(insn)
}

packed_table! {
    Pand | Andps | Andpd | Vpand | Vandps | Vandpd => |a, b, _| a & b;
    Pandn | Andnps | Andnpd | Vpandn | Vandnps | Vandnpd => |a, b, _| !a & b;
    Por | Orps | Orpd | Vpor | Vorps | Vorpd => |a, b, _| a | b;
    Pxor | Xorps | Xorpd | Vpxor | Vxorps | Vxorpd => |a, b, _| a ^ b;

    Paddb | Vpaddb => zip(u8::wrapping_add);
    Paddw | Vpaddw => zip(u16::wrapping_add);
    Paddd | Vpaddd => zip(u32::wrapping_add);
    Paddq | Vpaddq => zip(u64::wrapping_add);
    Psubb | Vpsubb => zip(u8::wrapping_sub);
    Psubw | Vpsubw => zip(u16::wrapping_sub);
    Psubd | Vpsubd => zip(u32::wrapping_sub);
    Psubq | Vpsubq => zip(u64::wrapping_sub);
    Paddsb | Vpaddsb => zip(i8::saturating_add);
    Paddsw | Vpaddsw => zip(i16::saturating_add);
    Paddusb | Vpaddusb => zip(u8::saturating_add);
    Paddusw | Vpaddusw => zip(u16::saturating_add);
    Psubsb | Vpsubsb => zip(i8::saturating_sub);
    Psubsw | Vpsubsw => zip(i16::saturating_sub);
    Psubusb | Vpsubusb => zip(u8::saturating_sub);
    Psubusw | Vpsubusw => zip(u16::saturating_sub);
    Phaddw | Vphaddw => horizontal(u16::wrapping_add);
    Phaddd | Vphaddd => horizontal(u32::wrapping_add);
    Phaddsw | Vphaddsw => horizontal(i16::saturating_add);
    Phsubw | Vphsubw => horizontal(u16::wrapping_sub);
    Phsubd | Vphsubd => horizontal(u32::wrapping_sub);
    Phsubsw | Vphsubsw => horizontal(i16::saturating_sub);

    Pavgb | Vpavgb => zip(|a: u8, b| (u16::from(a) + u16::from(b)).div_ceil(2) as u8);
    Pavgw | Vpavgw => zip(|a: u16, b| (u32::from(a) + u32::from(b)).div_ceil(2) as u16);
    Pminub | Vpminub => zip::<u8>(Ord::min);
    Pminuw | Vpminuw => zip::<u16>(Ord::min);
    Pminud | Vpminud => zip::<u32>(Ord::min);
    Pminsb | Vpminsb => zip::<i8>(Ord::min);
    Pminsw | Vpminsw => zip::<i16>(Ord::min);
    Pminsd | Vpminsd => zip::<i32>(Ord::min);
    Pmaxub | Vpmaxub => zip::<u8>(Ord::max);
    Pmaxuw | Vpmaxuw => zip::<u16>(Ord::max);
    Pmaxud | Vpmaxud => zip::<u32>(Ord::max);
    Pmaxsb | Vpmaxsb => zip::<i8>(Ord::max);
    Pmaxsw | Vpmaxsw => zip::<i16>(Ord::max);
    Pmaxsd | Vpmaxsd => zip::<i32>(Ord::max);
    Pabsb | Vpabsb => zip(|_, b: i8| b.wrapping_abs());
    Pabsw | Vpabsw => zip(|_, b: i16| b.wrapping_abs());
    Pabsd | Vpabsd => zip(|_, b: i32| b.wrapping_abs());
    Psignb | Vpsignb => zip(|a: i8, b: i8| a.wrapping_mul(b.signum()));
    Psignw | Vpsignw => zip(|a: i16, b: i16| a.wrapping_mul(b.signum()));
    Psignd | Vpsignd => zip(|a: i32, b: i32| a.wrapping_mul(b.signum()));

    Pmullw | Vpmullw => zip(u16::wrapping_mul);
    Pmulld | Vpmulld => zip(u32::wrapping_mul);
    Pmulhw | Vpmulhw => zip(|a: i16, b| ((i32::from(a) * i32::from(b)) >> 16) as i16);
    Pmulhuw | Vpmulhuw => zip(|a: u16, b| ((u32::from(a) * u32::from(b)) >> 16) as u16);
    Pmulhrsw | Vpmulhrsw => zip(|a: i16, b| ((((i32::from(a) * i32::from(b)) >> 14) + 1) >> 1) as i16);
    Pmuludq | Vpmuludq => zip(|a: u64, b| (a & 0xffff_ffff) * (b & 0xffff_ffff));
    Pmuldq | Vpmuldq => zip(|a: i64, b| i64::from(a as i32) * i64::from(b as i32));
    Pmaddwd | Vpmaddwd => zip(|a: i32, b: i32| {
        let low = i32::from(a as i16) * i32::from(b as i16);
        low.wrapping_add((a >> 16) * (b >> 16))
    });
    // The bytes of the first operand are unsigned, those of the second one signed.
    Pmaddubsw | Vpmaddubsw => zip(|a: i16, b: i16| {
        let low = (a & 0xff) * i16::from(b as i8);
        low.saturating_add((a >> 8 & 0xff) * (b >> 8))
    });
    Psadbw | Vpsadbw => zip(|a: u64, b: u64| {
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        pairs.map(|(a, b)| u64::from(a.abs_diff(b))).sum()
    });
    Mpsadbw | Vmpsadbw [YmmForm::Lanes(3)] => in_memory(|a, b, imm, result| {
        let from = usize::from(imm >> 2 & 1) * 4;
        let block = usize::from(imm & 3) * 4;
        for i in 0..u16::COUNT {
            let pair = |k: usize| a[from + i + k].abs_diff(b[block + k]);
            (0..4).map(|k| u16::from(pair(k))).sum::<u16>().put(result, i);
        }
    });
    // The minimum, and the number of the first lane that has it.
    Phminposuw | Vphminposuw => in_memory(|_, b, _, result| {
        let least = (0..8).map(|i| (u16::get(b, i), i)).min();
        let (value, number) = least.unwrap_or_default();
        value.put(result, 0);
        (number as u16).put(result, 1);
    });

    Pcmpeqb | Vpcmpeqb => compare::<u8>(PartialEq::eq);
    Pcmpeqw | Vpcmpeqw => compare::<u16>(PartialEq::eq);
    Pcmpeqd | Vpcmpeqd => compare::<u32>(PartialEq::eq);
    Pcmpeqq | Vpcmpeqq => compare::<u64>(PartialEq::eq);
    Pcmpgtb | Vpcmpgtb => compare::<i8>(PartialOrd::gt);
    Pcmpgtw | Vpcmpgtw => compare::<i16>(PartialOrd::gt);
    Pcmpgtd | Vpcmpgtd => compare::<i32>(PartialOrd::gt);
    Pcmpgtq | Vpcmpgtq => compare::<i64>(PartialOrd::gt);
}
