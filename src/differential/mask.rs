//! What the manual leaves undefined: flags, and a few results. Nothing else is forgiven.

use super::subject::{Access, Part, Subject};
use iced_x86::{Mnemonic, OpKind, RflagsBits};
use unwind_sim_host::native::{Mode, NativeCase, NativeState, Outcome, WINDOW, WINDOW_SIZE};

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const OF: u64 = 1 << 11;
const RCX: usize = 1;

/// A reason, other than iced's table of flags, for which a difference is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// `shld` and `shrd` of 16 bits by more than 16: the result and all flags (Intel SDM volume
    /// 2B, SHLD).
    DoubleShift,
    /// A rotation by more than 1: OF (volume 2B, RCL/RCR/ROL/ROR).
    Rotation,
    /// `bsf` and `bsr` of 0: the destination (volume 2A, BSF).
    BitScan,
    /// An instruction that accesses memory in several parts: which of them faults first, and
    /// whether others are written before.
    FaultOrder,
    /// The last opcode and operand of x87, which processors keep for unmasked exceptions only, if
    /// at all (Intel SDM volume 1, sections 8.1.8 and 8.1.9).
    LastOperand,
    /// x87 transcendental functions: one unit in the last place, and C1, which says how the
    /// result was rounded (volume 1, section 8.3.10).
    Transcendental,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 6] = [
        Rule::DoubleShift,
        Rule::Rotation,
        Rule::BitScan,
        Rule::FaultOrder,
        Rule::LastOperand,
        Rule::Transcendental,
    ];

    /// Flags that it leaves open.
    pub fn flags(self) -> u64 {
        match self {
            Rule::DoubleShift => CF | PF | AF | ZF | SF | OF,
            Rule::Rotation => OF,
            Rule::BitScan | Rule::FaultOrder | Rule::LastOperand | Rule::Transcendental => 0,
        }
    }
}

/// iced's flags as bits of rflags.
pub(crate) fn bits(flags: u32) -> u64 {
    if flags == 0 {
        return 0;
    }
    let pairs = [
        (RflagsBits::CF, CF),
        (RflagsBits::PF, PF),
        (RflagsBits::AF, AF),
        (RflagsBits::ZF, ZF),
        (RflagsBits::SF, SF),
        (RflagsBits::OF, OF),
    ];
    let set = pairs.into_iter().filter(|&(flag, _)| flags & flag != 0);
    set.fold(0, |bits, (_, bit)| bits | bit)
}

/// The rule that is about this case, if there is one; the machine's result becomes the
/// processor's where the rule says that it is open.
pub(super) fn apply(
    subject: &Subject,
    case: &NativeCase,
    native: &(Outcome, NativeState),
    machine: &mut (Outcome, NativeState),
) -> Option<Rule> {
    if native.0 != machine.0 {
        let same = in_parts(subject) && is_memory_fault(native.0) && is_memory_fault(machine.0);
        if !same {
            return None;
        }
        machine.0 = native.0;
    }
    if in_parts(subject) && is_memory_fault(native.0) {
        for access in subject.accesses.iter().filter(|access| access.written) {
            let begin = address(subject, access, case).saturating_sub(WINDOW);
            let begin = begin.min(WINDOW_SIZE as u64) as usize;
            let end = (begin + access.size as usize).min(WINDOW_SIZE);
            machine.1.window[begin..end].copy_from_slice(&native.1.window[begin..end]);
        }
        return Some(Rule::FaultOrder);
    }
    let (native, machine) = (&native.1, &mut machine.1);
    let insn = &subject.insn;
    let count = || match insn.op_kind(insn.op_count() - 1) {
        OpKind::Register => case.state.gpr[RCX] & 31,
        OpKind::Immediate8 => u64::from(insn.immediate8()) & 31,
        _ => 0,
    };
    match insn.mnemonic() {
        Mnemonic::Shld | Mnemonic::Shrd if insn.op1_register().size() == 2 && count() > 16 => {
            if insn.op0_kind() == OpKind::Register {
                copy_register(insn.op0_register().number(), 0xffff, native, machine);
            } else {
                let at = address(subject, subject.accesses.first()?, case).wrapping_sub(WINDOW);
                let at = at.min(WINDOW_SIZE as u64 - 2) as usize;
                machine.window[at..at + 2].copy_from_slice(&native.window[at..at + 2]);
            }
            Some(Rule::DoubleShift)
        }
        Mnemonic::Rcl | Mnemonic::Rcr | Mnemonic::Rol | Mnemonic::Ror => Some(Rule::Rotation),
        Mnemonic::Bsf | Mnemonic::Bsr if native.rflags & ZF != 0 => {
            copy_register(insn.op0_register().number(), u64::MAX, native, machine);
            Some(Rule::BitScan)
        }
        mnemonic if subject.fx && case.mode != Mode::Plain => {
            let transcendental = is_transcendental(mnemonic) && forgive_last_place(native, machine);
            // FOP and FDP.
            for range in [6..8, 16..24] {
                machine.fx[range.clone()].copy_from_slice(&native.fx[range]);
            }
            Some(if transcendental {
                Rule::Transcendental
            } else {
                Rule::LastOperand
            })
        }
        _ => None,
    }
}

/// Is the memory of an instruction more than one datum?
fn in_parts(subject: &Subject) -> bool {
    let single = |access: &Access| access.size <= 16 && access.size.is_power_of_two();
    subject.accesses.len() > 1 || !subject.accesses.iter().all(single)
}

fn is_memory_fault(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Signal {
            trapno: 12..=14,
            ..
        }
    )
}

fn is_transcendental(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{F2xm1, Fcos, Fpatan, Fptan, Fsin, Fsincos, Fyl2x, Fyl2xp1};
    matches!(
        mnemonic,
        F2xm1 | Fcos | Fpatan | Fptan | Fsin | Fsincos | Fyl2x | Fyl2xp1
    )
}

/// Takes over the processor's C1, and ST(0) and ST(1) where they are neighbours of the machine's.
/// Was there something to forgive?
fn forgive_last_place(native: &NativeState, machine: &mut NativeState) -> bool {
    const C1: u8 = 1 << 1;
    let mut forgiven = (native.fx[3] ^ machine.fx[3]) & C1 != 0;
    machine.fx[3] = machine.fx[3] & !C1 | native.fx[3] & C1;
    for range in [32..42, 48..58] {
        let value = |fx: &[u8; 512]| {
            let mut bytes = [0; 16];
            bytes[..10].copy_from_slice(&fx[range.clone()]);
            u128::from_le_bytes(bytes)
        };
        let (one, other) = (value(&native.fx), value(&machine.fx));
        // Between one power of two and the next the integer bit is in the way.
        let carry = |low: u128, high: u128| {
            low as u64 == u64::MAX && high as u64 == 1 << 63 && (high >> 64) == (low >> 64) + 1
        };
        if one.abs_diff(other) == 1 || carry(one, other) || carry(other, one) {
            machine.fx[range.clone()].copy_from_slice(&native.fx[range.clone()]);
            forgiven = true;
        }
    }
    forgiven
}

fn copy_register(number: usize, bits: u64, native: &NativeState, machine: &mut NativeState) {
    machine.gpr[number] = machine.gpr[number] & !bits | native.gpr[number] & bits;
}

/// The address of an access.
pub(super) fn address(subject: &Subject, access: &Access, case: &NativeCase) -> u64 {
    let part = |part| match part {
        Part::Nothing => 0,
        Part::Rip => case.state.rip + u64::from(case.code_len),
        Part::Register(number) => case.state.gpr[usize::from(number)],
    };
    let mut displacement = access.displacement;
    let size = subject.offsets.displacement_size();
    if access.is_constant() && size != 0 {
        // It was written anew for the case.
        let offset = subject.offsets.displacement_offset();
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&case.code[offset..offset + size]);
        displacement = u64::from_le_bytes(bytes);
        if size == 4 {
            displacement = displacement as i32 as u64;
        }
    }
    let insn = &subject.insn;
    if matches!(
        insn.mnemonic(),
        Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
    ) && insn.op1_kind() == OpKind::Register
    {
        let register = insn.op1_register();
        let value = case.state.gpr[register.number()];
        let unused = 64 - 8 * register.size();
        let offset = (value << unused).cast_signed() >> unused >> 3;
        displacement = displacement.wrapping_add(offset.cast_unsigned());
    }
    let sum = part(access.base)
        .wrapping_add(part(access.index).wrapping_mul(access.scale.into()))
        .wrapping_add(displacement);
    if access.small { sum & 0xffff_ffff } else { sum }
}
