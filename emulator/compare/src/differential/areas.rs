//! What some instructions read in memory besides numbers: the header of an XSAVE area, and the
//! selectors of far pointers.

use super::generate::in_window;
use super::subject::{AREA_SIZE, TestInstruction, address};
use super::values::Random;
use iced_x86::{Code, Mnemonic};
use unwind_sim_emulator_native::single::NativeCase;

const RAX: usize = 0;
const RDX: usize = 2;
const RSP: usize = 4;
/// Components that both sides may have: x87, SSE and AVX.
const COMPONENTS: u64 = 7;
/// Bits that stand for no component on any processor, but the highest, which says that an area is
/// compacted.
const NOT_COMPONENTS: u64 = u64::MAX << 24 >> 1;
const IS_COMPACTED: u64 = 1 << 63;
/// Offset of MXCSR in the area, and of the header's words.
const MXCSR: usize = 24;
const HEADER: usize = 512;

/// Whether the instruction saves or restores an XSAVE area.
pub(super) fn has_area(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Xrstor | Xrstor64
    )
}

/// Requests components of those that both sides may have, and usually makes the header of the area
/// valid.
pub(super) fn xsave(subject: &TestInstruction, random: &mut Random, case: &mut NativeCase) {
    if !has_area(subject.insn.mnemonic()) {
        return;
    }

    // edx:eax is the bitmap of requested components.
    let bits = random.bits();
    let mut requested = bits & COMPONENTS;
    if bits >> 8 & 3 == 0 {
        requested |= random.bits() & (NOT_COMPONENTS | IS_COMPACTED);
    }
    // The area's address may depend on them.
    let uses = |number| {
        let register = iced_x86::Register::RAX + number;
        let insn = &subject.insn;
        insn.memory_base().full_register() == register
            || insn.memory_index().full_register() == register
    };

    if !uses(0) {
        case.state.gpr[RAX] = random.bits() << 32 | requested & 0xffff_ffff;
    } else {
        case.state.gpr[RAX] &= !(0xffff_ffff & !COMPONENTS & !NOT_COMPONENTS);
    }
    if !uses(RDX as u32) {
        case.state.gpr[RDX] = random.bits() << 32 | requested >> 32;
    }

    let Some(access) = subject.accesses.first() else {
        return;
    };
    let Some(at) = in_window(case, address(subject, access, case), AREA_SIZE as usize) else {
        return;
    };

    let window = &mut case.state.window;

    // The upper half of MXCSR is reserved, and `xrstor` would nearly always raise #GP.
    if bits >> 10 & 15 != 0 {
        window[at + MXCSR + 2..at + MXCSR + 4].fill(0);
    }

    let form = match bits >> 14 & 3 {
        0 | 1 => 0,
        2 => IS_COMPACTED | (bits >> 16 & COMPONENTS),
        _ => IS_COMPACTED | COMPONENTS,
    };

    // XSTATE_BV and XCOMP_BV. In the compacted form, the first must not have bits that the second
    // lacks (SDM volume 2, XRSTOR).
    let mut words = [0; 8];
    words[0] = bits >> 24 & COMPONENTS;
    if form != 0 && bits >> 28 & 7 != 0 {
        words[0] &= form;
    }
    words[1] = form;
    // A bit that must not be set.
    match bits >> 32 & 31 {
        0 => words[0] |= random.bits() & NOT_COMPONENTS,
        1 => words[1] |= random.bits() & NOT_COMPONENTS,
        2 | 3 => words[random.below(6) + 2] |= 1 << (bits >> 40 & 63),
        _ => {}
    }

    let header = window[at + HEADER..at + HEADER + 64].as_chunks_mut::<8>().0;
    for (to, word) in header.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// The selector of the code segment that a process starts in, `__USER_CS`, and of the stack's,
/// `__USER_DS`.
const CODE: u16 = 0x33;
const STACK: u16 = 0x2b;
/// The number of `__USER32_CS` in the table of descriptors.
const CODE32: u16 = 4;
/// The flags that `iret` may load here: all that are not reserved, except TF.
const LOADED: u64 = 0x24_4ed5;
/// The flag for alignment checks. On an Intel processor, an `iret` whose frame is not aligned and
/// that loads it never ends under Linux 6.18: #AC is raised while the kernel's flag is clear, so
/// Linux takes it for a split lock, and starts the instruction again.
const AC: u64 = 1 << 18;

/// Gives far transfers a selector, usually that of the present segment, and `iret` a frame. The
/// offset is already there.
pub(super) fn far(subject: &TestInstruction, random: &mut Random, case: &mut NativeCase) {
    let (size, is_return) = match subject.insn.code() {
        Code::Jmp_m1616 | Code::Call_m1616 => (2, false),
        Code::Jmp_m1632 | Code::Call_m1632 => (4, false),
        Code::Jmp_m1664 | Code::Call_m1664 => (8, false),
        Code::Retfw | Code::Retfw_imm16 | Code::Iretw => (2, true),
        Code::Retfd | Code::Retfd_imm16 | Code::Iretd => (4, true),
        Code::Retfq | Code::Retfq_imm16 | Code::Iretq => (8, true),
        _ => return,
    };

    let start = match subject.accesses.iter().find(|access| !access.written) {
        Some(access) if !is_return => address(subject, access, case),
        _ => case.state.gpr[RSP],
    };

    let selector = selector(random, CODE);
    let window = case.window();

    let mut put = |number: u64, value: u64| {
        let place = start.wrapping_add(number * size as u64);
        if let Some(at) = in_window(case, place, size) {
            case.state.window[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
    };

    // A far pointer in memory: the offset, then a selector of 16 bits.
    if !is_return {
        let place = start.wrapping_add(size as u64);
        if let Some(at) = in_window(case, place, 2) {
            case.state.window[at..at + 2].copy_from_slice(&selector.to_le_bytes());
        }
        return;
    }
    // What is above 16 bits does not matter.
    put(1, random.bits() << 16 | u64::from(selector));

    // In 64-bit mode, `iret` always pops rip, cs, rflags, rsp and ss (SDM volume 2, IRET).
    if subject.is_iret() {
        let mut flags = random.bits() & LOADED;
        if !start.is_multiple_of(size as u64) {
            flags &= !AC;
        }
        put(2, flags);
        let stack = if random.chance(128) {
            window
        } else {
            random.bits()
        };
        put(3, stack);
        put(4, self::selector(random, STACK).into());
    }
}

/// Usually `usual`; otherwise any but the 32-bit code segment, which the machine does not model.
fn selector(random: &mut Random, usual: u16) -> u16 {
    const OTHERS: [u16; 12] = [0, 1, 2, 3, 0x10, 0x2b, 0x33, 0x28, 0x30, 0x32, 0x37, 0x7b];
    let bits = random.bits();
    let other = match bits >> 56 {
        0..16 => *random.pick(&OTHERS),
        16..24 => bits as u16,
        _ => return usual,
    };
    if other >> 3 == CODE32 || other >> 2 == CODE32 << 1 {
        usual
    } else {
        other
    }
}
