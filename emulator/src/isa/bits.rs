//! Bit operations and counts: bt, bts, btr, btc, bsf, bsr, tzcnt, lzcnt, popcnt, crc32.

use crate::core::Core;
use crate::flags::{self, Flags, sign_extend};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, by_width, form, width};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    match insn.mnemonic() {
        Mnemonic::Bt => test::<Test>(insn),
        Mnemonic::Bts => test::<Set>(insn),
        Mnemonic::Btr => test::<Reset>(insn),
        Mnemonic::Btc => test::<Complement>(insn),
        Mnemonic::Bsf => count::<Bsf>(insn),
        Mnemonic::Bsr => count::<Bsr>(insn),
        Mnemonic::Tzcnt => count::<Tzcnt>(insn),
        Mnemonic::Lzcnt => count::<Lzcnt>(insn),
        Mnemonic::Popcnt => count::<Popcnt>(insn),
        Mnemonic::Crc32 => {
            // The first operand has 32 or 64 bits; only the low 32 count.
            Some(match form(insn) {
                Form::RR => by_width!(width(insn, 1), crc32_rr),
                Form::RM => by_width!(width(insn, 1), crc32_rm),
                _ => return None,
            })
        }
        _ => None,
    }
}

/// What an instruction does with the bit that it copies to CF.
trait Change {
    /// Whether the bit is changed.
    const WRITES: bool = true;

    /// `value` with the bit changed that is set in `bit`.
    fn apply(value: u64, bit: u64) -> u64;
}

struct Test;
impl Change for Test {
    const WRITES: bool = false;
    fn apply(value: u64, _: u64) -> u64 {
        value
    }
}

struct Set;
impl Change for Set {
    fn apply(value: u64, bit: u64) -> u64 {
        value | bit
    }
}

struct Reset;
impl Change for Reset {
    fn apply(value: u64, bit: u64) -> u64 {
        value & !bit
    }
}

struct Complement;
impl Change for Complement {
    fn apply(value: u64, bit: u64) -> u64 {
        value ^ bit
    }
}

fn test<C: Change>(insn: &Instruction) -> Option<Run> {
    Some(match form(insn) {
        Form::RR => by_width!(width(insn, 0), test_rr, C),
        Form::RI => by_width!(width(insn, 0), test_ri, C),
        Form::MI => by_width!(width(insn, 0), test_mi, C),
        Form::MR => by_width!(width(insn, 0), test_mr, C),
        _ => return None,
    })
}

#[inline(always)]
fn test_register<C: Change, const W: u32>(core: &mut Core, op: &Op, number: u64) -> Flow {
    let bit = 1 << (number % u64::from(W));
    let value = core.state.get::<W>(op.dst);
    if C::WRITES {
        core.state.set::<W>(op.dst, C::apply(value, bit));
    }
    core.state.flags.set_cf(value & bit != 0);
    Flow::Next
}

#[inline(always)]
fn test_memory<C: Change, const W: u32>(core: &mut Core, address: u64, number: u64) -> Flow {
    let bit = 1 << (number % u64::from(W));
    let loaded = if C::WRITES {
        core.load_to_store::<W>(address)
    } else {
        core.load::<W>(address)
    };
    let Some(value) = loaded else {
        return Flow::Stop;
    };
    if C::WRITES && core.store::<W>(address, C::apply(value, bit)).is_none() {
        return Flow::Stop;
    }
    core.state.flags.set_cf(value & bit != 0);
    Flow::Next
}

fn test_rr<C: Change, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let number = core.state.get::<W>(op.src);
    test_register::<C, W>(core, op, number)
}

fn test_ri<C: Change, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    test_register::<C, W>(core, op, op.imm())
}

fn test_mi<C: Change, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    test_memory::<C, W>(core, address, op.imm())
}

/// The bit number is signed and can be outside the operand: the address moves by whole operands.
fn test_mr<C: Change, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let number = sign_extend::<W>(core.state.get::<W>(op.src)).cast_signed();
    let operands = number.div_euclid(i64::from(W)).cast_unsigned();
    let address = op.address_moved(core, operands.wrapping_mul(u64::from(W / 8)));
    test_memory::<C, W>(core, address, number.cast_unsigned())
}

/// A function of the second operand that counts bits.
trait Count {
    /// The new value of the destination, if it changes, and the flags.
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags);
}

fn count<C: Count>(insn: &Instruction) -> Option<Run> {
    Some(match form(insn) {
        Form::RR => by_width!(width(insn, 0), count_rr, C),
        Form::RM => by_width!(width(insn, 0), count_rm, C),
        _ => return None,
    })
}

#[inline(always)]
fn set_count<C: Count, const W: u32>(core: &mut Core, op: &Op, a: u64) -> Flow {
    let (result, flags) = C::apply::<W>(a);
    if let Some(result) = result {
        core.state.set::<W>(op.dst, result);
    }
    core.state.flags = flags;
    Flow::Next
}

fn count_rr<C: Count, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.src);
    set_count::<C, W>(core, op, a)
}

fn count_rm<C: Count, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(a) => set_count::<C, W>(core, op, a),
        None => Flow::Stop,
    }
}

/// The result of `bsf` and `bsr`. Only ZF is defined: it says that no bit is set. Then the SDM
/// leaves the destination undefined; processors do not change any of its 64 bits.
#[inline(always)]
fn scanned(a: u64, number: u32) -> (Option<u64>, Flags) {
    if a == 0 {
        return (None, Flags::logic::<64>(0));
    }
    // PF is that of the number; ZF is clear.
    let flags = Flags::logic::<64>(1 << 8 | u64::from(number));
    (Some(number.into()), flags)
}

struct Bsf;
impl Count for Bsf {
    #[inline(always)]
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags) {
        scanned(a, a.trailing_zeros())
    }
}

struct Bsr;
impl Count for Bsr {
    #[inline(always)]
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags) {
        scanned(a, 63_u32.wrapping_sub(a.leading_zeros()))
    }
}

/// The result of `tzcnt` and `lzcnt`: CF says that no bit is set, ZF that the result is 0; the
/// others are clear.
#[inline(always)]
fn counted(a: u64, number: u32) -> (Option<u64>, Flags) {
    let mut flags = Flags::from_bits(if number == 0 { flags::ZF } else { 0 });
    flags.set_carries(a == 0, false);
    (Some(number.into()), flags)
}

struct Tzcnt;
impl Count for Tzcnt {
    #[inline(always)]
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags) {
        counted(a, a.trailing_zeros().min(W))
    }
}

struct Lzcnt;
impl Count for Lzcnt {
    #[inline(always)]
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags) {
        counted(a, a.leading_zeros() - (64 - W))
    }
}

struct Popcnt;
impl Count for Popcnt {
    #[inline(always)]
    fn apply<const W: u32>(a: u64) -> (Option<u64>, Flags) {
        // ZF says that the operand, and so the result, is 0; the others are clear.
        let flags = Flags::from_bits(if a == 0 { flags::ZF } else { 0 });
        (Some(a.count_ones().into()), flags)
    }
}

/// The remainder for each byte, for CRC-32C: polynomial 0x11edc6f41, bits reflected.
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[inline(always)]
fn crc32<const W: u32>(core: &mut Core, op: &Op, a: u64) -> Flow {
    let mut crc = core.state.gpr[(op.dst & 31) as usize] as u32;
    for byte in &a.to_le_bytes()[..W as usize / 8] {
        crc = crc >> 8 ^ CRC32C[usize::from(crc as u8 ^ byte)];
    }
    core.state.set::<64>(op.dst, crc.into());
    Flow::Next
}

fn crc32_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.src);
    crc32::<W>(core, op, a)
}

fn crc32_rm<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(a) => crc32::<W>(core, op, a),
        None => Flow::Stop,
    }
}
