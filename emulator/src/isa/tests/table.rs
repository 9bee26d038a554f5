//! The decode table has every instruction that a group knows.

use crate::isa::*;
use crate::op::{self, Op, Run};
use crate::state::reg;
use iced_x86::{Decoder, DecoderOptions, EncodingKind, Instruction, OpKind};
use std::collections::HashSet;

const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
const PREFIXES: [&[u8]; 5] = [&[], &[0x66], &[0xf3], &[0xf2], &[0x67]];

fn op() -> Op {
    Op {
        run: op::unsupported,
        disp: 0,
        imm: 0,
        offset: 0,
        base: reg::ZERO as u8,
        index: reg::ZERO as u8,
        scale: 0,
        dst: 0,
        src: 0,
        len: 0,
        extra: 0,
        more: 0,
    }
}

/// One instruction of each code and kind of operands.
fn instructions() -> Vec<Instruction> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();

    let mut add = |bytes: &[u8]| {
        let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let kinds: Vec<OpKind> = (0..insn.op_count()).map(|n| insn.op_kind(n)).collect();
        if !insn.is_invalid() && seen.insert((insn.code(), kinds)) {
            all.push(insn);
        }
    };

    // Each value of ModRM.reg with a memory operand, and each pair of registers.
    let modrms = || (0..8).map(|n| n << 3).chain(0xc0..=0xff);

    for prefix in PREFIXES {
        for rex in [&[][..], &[0x48]] {
            for map in MAPS {
                for opcode in 0..=255 {
                    for modrm in modrms() {
                        add(&[prefix, rex, map, &[opcode, modrm], &[0; 8]].concat());
                    }
                }
            }
        }
    }

    // VEX: W, L and pp vary; vvvv is always 1.
    for map in 1..=3 {
        for third in (0..16).map(|n| 0x70 | n & 7 | n >> 3 << 7) {
            for opcode in 0..=255 {
                for modrm in modrms() {
                    add(&[&[0xc4, 0xe0 | map, third, opcode, modrm], &[0; 8][..]].concat());
                }
            }
        }
    }
    all
}

/// The groups, in any order.
const GROUPS: [fn(&Instruction, &mut Op) -> Option<Run>; 23] = [
    alu::select,
    mov::select,
    branch::select,
    stack::select,
    |insn, _| shift::select(insn),
    |insn, _| muldiv::select(insn),
    |insn, _| bits::select(insn),
    string::select,
    |insn, _| atomic::select(insn),
    |insn, _| flag::select(insn),
    segment::select,
    |insn, _| cpuid::select(insn),
    mmx::select,
    x87::select,
    save::select,
    system::select,
    bmi::select,
    crypto::select,
    |insn, _| sse4a::select(insn),
    |insn, _| random::select(insn),
    far::select,
    |insn, op| match insn.encoding() {
        EncodingKind::Legacy => sse::select(insn, op),
        _ => None,
    },
    |insn, op| match insn.encoding() {
        EncodingKind::VEX => avx::select(insn, op),
        _ => None,
    },
];

/// Whether there is a function that does more than to raise #UD.
fn is_valid(run: Option<Run>) -> bool {
    run.is_some_and(|run| !std::ptr::fn_addr_eq(run, op::invalid as Run))
}

/// What a group knows, the table finds, and nothing else.
#[test]
fn no_instruction_of_a_group_is_missing() {
    let mut known = 0;
    for insn in instructions() {
        let mut groups = GROUPS.iter();
        let has = groups.any(|group| is_valid(group(&insn, &mut op())));
        let found = is_valid(select(&insn, &mut op()));
        assert_eq!(found, has, "{:?}", insn.code());
        known += usize::from(has);
    }
    assert!(known > 1500, "{known}");
}
