//! Instructions on registers compared with recorded results of a CPU; those with memory operands
//! one at a time.

use crate::address_space::{FaultKind, Permissions};
use crate::flags;
use crate::machine::{Exit, Machine};
use crate::state::reg;
use crate::stop::Exception;

pub(in crate::isa) const CODE: u64 = 0x10000;
/// A page; nothing is mapped after it.
pub(in crate::isa) const DATA: u64 = 0x20000;
const DATA_END: u64 = DATA + 0x1000;

/// A machine about to execute `code`.
fn machine(code: &[u8]) -> Machine {
    let mut machine = Machine::empty();
    let memory = &mut machine.core.memory;
    memory
        .map(CODE..CODE + 0x1000, Permissions::READ_EXECUTE)
        .unwrap();
    memory.map(DATA..DATA_END, Permissions::READ_WRITE).unwrap();
    memory.poke(CODE, code).unwrap();
    machine.core.state.rip = CODE;
    machine
}

/// The same, with an address in rdi, and with values in xmm0 to xmm2.
fn machine_at(code: &[u8], address: u64) -> Machine {
    let mut machine = machine(code);
    machine.core.state.set_gpr(reg::RDI, address);
    for (number, byte) in [(0, 0xa0), (1, 0xb0), (2, 0xc0)] {
        let bytes = std::array::from_fn(|i| byte + i as u8);
        machine
            .core
            .state
            .vectors
            .set_xmm(number, u128::from_le_bytes(bytes));
    }
    machine
}

fn fill(machine: &mut Machine, address: u64, value: u128, size: usize) {
    let bytes = value.to_le_bytes();
    machine.core.memory.poke(address, &bytes[..size]).unwrap();
}

fn peek(machine: &Machine, address: u64) -> u128 {
    let mut bytes = [0; 16];
    machine.core.memory.peek(address, &mut bytes).unwrap();
    u128::from_le_bytes(bytes)
}

pub(in crate::isa) fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Sets the register named `name`.
fn set(machine: &mut Machine, name: &str, value: u128) {
    let core = &mut machine.core;
    match name {
        "rax" => core.state.set_gpr(reg::RAX, value as u64),
        "rcx" => core.state.set_gpr(reg::RCX, value as u64),
        "rdx" => core.state.set_gpr(reg::RDX, value as u64),
        "mxcsr" => core.state.mxcsr = value as u32,
        "flags" => core.state.set_rflags(value as u64),
        "xmm0" => core.state.vectors.set_xmm(0, value),
        "xmm1" => core.state.vectors.set_xmm(1, value),
        "xmm2" => core.state.vectors.set_xmm(2, value),
        name => panic!("{name}"),
    }
}

/// The part of the state that instructions on registers change.
fn visible(machine: &Machine) -> String {
    let core = &machine.core;
    let gpr: [u64; 16] = std::array::from_fn(|number| core.state.gpr(number));
    let (flags, mxcsr) = (core.state.rflags(), core.state.mxcsr);
    format!(
        "{gpr:x?} {:x?} {flags:x} {mxcsr:x}",
        core.state.vectors.lower()
    )
}

#[test]
fn recorded_results() {
    let lines = include_str!("tests/vectors.txt").lines();
    let mut count = 0;

    for line in lines.filter(|line| !line.starts_with('#')) {
        let (before, after) = line.split_once('>').unwrap();
        // The first word is the instruction's name.
        let mut before = before.split_whitespace().skip(1);
        let mut machine = machine(&bytes(before.next().unwrap()));
        let mut exit = Exit::Limit;

        let mut assign = |machine: &mut Machine, words: &mut dyn Iterator<Item = &str>| {
            for word in words {
                match word.split_once('=') {
                    Some((name, value)) => {
                        set(machine, name, u128::from_str_radix(value, 16).unwrap());
                    }
                    None => exit = Exit::Exception(Exception::Simd),
                }
            }
        };
        assign(&mut machine, &mut before);

        // The same machine with the recorded changes.
        let mut expected = Machine::new(machine.core.clone());
        assign(&mut expected, &mut after.split_whitespace());

        assert_eq!(machine.run(1, &mut ()), exit, "{line}");
        assert_eq!(visible(&machine), visible(&expected), "{line}");
        count += 1;
    }

    assert!(count > 500);
}

/// Checks a load of `size` bytes at the end of memory, from [rdi] to xmm1.
#[track_caller]
fn assert_load(code: &[u8], size: usize, expected: u128) {
    let address = DATA_END - size as u64;
    let mut machine = machine_at(code, address);
    fill(&mut machine, address, SOURCE, size);
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(
        machine.core.state.vectors.xmm(1),
        expected,
        "{:x}",
        machine.core.state.vectors.xmm(1)
    );
}

const SOURCE: u128 = 0x0f0e_0d0c_0b0a_0908_8786_8584_8382_8180;
const XMM1: u128 = 0xbfbe_bdbc_bbba_b9b8_b7b6_b5b4_b3b2_b1b0;
const LOW: u128 = u64::MAX as u128;

#[test]
fn loads_read_what_they_need_and_no_more() {
    assert_load(&[0x0f, 0x10, 0x0f], 16, SOURCE); // movups
    assert_load(&[0x66, 0x0f, 0x6f, 0x0f], 16, SOURCE); // movdqa
    assert_load(&[0xf2, 0x0f, 0xf0, 0x0f], 16, SOURCE); // lddqu
    assert_load(&[0x66, 0x0f, 0x38, 0x2a, 0x0f], 16, SOURCE); // movntdqa
    assert_load(&[0xf3, 0x0f, 0x10, 0x0f], 4, 0x8382_8180); // movss
    assert_load(&[0xf2, 0x0f, 0x10, 0x0f], 8, SOURCE & LOW); // movsd
    assert_load(&[0x66, 0x0f, 0x6e, 0x0f], 4, 0x8382_8180); // movd
    assert_load(&[0x66, 0x48, 0x0f, 0x6e, 0x0f], 8, SOURCE & LOW); // movq
    assert_load(&[0xf3, 0x0f, 0x7e, 0x0f], 8, SOURCE & LOW); // movq
    assert_load(&[0x0f, 0x12, 0x0f], 8, XMM1 & !LOW | SOURCE & LOW); // movlps
    assert_load(&[0x66, 0x0f, 0x16, 0x0f], 8, XMM1 & LOW | SOURCE << 64); // movhpd
    assert_load(&[0xf2, 0x0f, 0x12, 0x0f], 8, SOURCE & LOW | SOURCE << 64); // movddup
    let word = XMM1 & !0xffff_0000 | 0x8180_0000;
    assert_load(&[0x66, 0x0f, 0xc4, 0x0f, 1], 2, word); // pinsrw
    let lane = XMM1 & !0xffff_ffff_ffff_ffff | 0x8382_8180 << 32;
    assert_load(&[0x66, 0x0f, 0x3a, 0x21, 0x0f, 0xd1], 4, lane); // insertps
    let lanes = 0xffff_ffff_ffff_ff81_ffff_ffff_ffff_ff80;
    assert_load(&[0x66, 0x0f, 0x38, 0x22, 0x0f], 2, lanes); // pmovsxbq
    let lanes = 0x83_0000_0082_0000_0081_0000_0080;
    assert_load(&[0x66, 0x0f, 0x38, 0x31, 0x0f], 4, lanes); // pmovzxbd
    let sum = XMM1 & !0xffff_ffff | 0xb3b2_b1b0;
    assert_load(&[0xf3, 0x0f, 0x58, 0x0f], 4, sum); // addss with a tiny number
}

#[test]
fn stores_write_what_they_say() {
    for (code, size, value) in [
        (&[0x0f, 0x11, 0x0f][..], 16, XMM1),                 // movups
        (&[0x66, 0x0f, 0xe7, 0x0f], 16, XMM1),               // movntdq
        (&[0xf3, 0x0f, 0x11, 0x0f], 4, XMM1),                // movss
        (&[0x66, 0x0f, 0x13, 0x0f], 8, XMM1),                // movlpd
        (&[0x0f, 0x17, 0x0f], 8, XMM1 >> 64),                // movhps
        (&[0x66, 0x0f, 0xd6, 0x0f], 8, XMM1),                // movq
        (&[0x66, 0x0f, 0x7e, 0x0f], 4, XMM1),                // movd
        (&[0x66, 0x0f, 0x3a, 0x14, 0x0f, 3], 1, 0xb3),       // pextrb
        (&[0x66, 0x0f, 0x3a, 0x15, 0x0f, 6], 2, XMM1 >> 96), // pextrw
        (&[0x66, 0x0f, 0x3a, 0x17, 0x0f, 1], 4, XMM1 >> 32), // extractps
        (&[0x48, 0x0f, 0xc3, 0x3f], 8, DATA.into()),         // movnti
    ] {
        let mut machine = machine_at(code, DATA);
        fill(&mut machine, DATA, u128::MAX, 16);
        assert_eq!(machine.run(1, &mut ()), Exit::Limit, "{code:x?}");
        let written = u128::MAX >> (128 - 8 * size);
        let expected = !written | value & written;
        assert_eq!(peek(&machine, DATA), expected, "{code:x?}");
    }
}

#[test]
fn operands_of_16_bytes_are_aligned_but_for_some() {
    let aligned: [&[u8]; 8] = [
        &[0x0f, 0x28, 0x0f],             // movaps
        &[0x66, 0x0f, 0x7f, 0x0f],       // movdqa, a store
        &[0x66, 0x0f, 0x38, 0x2a, 0x0f], // movntdqa
        &[0x0f, 0x2b, 0x0f],             // movntps
        &[0x66, 0x0f, 0xef, 0x0f],       // pxor
        &[0x0f, 0x58, 0x0f],             // addps
        &[0x66, 0x0f, 0x38, 0x10, 0x0f], // pblendvb
        &[0x66, 0x0f, 0x38, 0x17, 0x0f], // ptest
    ];
    let unaligned: [&[u8]; 5] = [
        &[0x0f, 0x10, 0x0f],                // movups
        &[0xf3, 0x0f, 0x7f, 0x0f],          // movdqu, a store
        &[0xf2, 0x0f, 0xf0, 0x0f],          // lddqu
        &[0xf3, 0x0f, 0xe6, 0x0f],          // cvtdq2pd, of 8 bytes
        &[0x66, 0x0f, 0x3a, 0x63, 0x0f, 0], // pcmpistri
    ];

    for code in aligned {
        // Neither address is mapped: the alignment is checked first.
        let mut machine = machine_at(code, 8);
        let before = visible(&machine);
        let exit = machine.run(1, &mut ());
        assert_eq!(
            exit,
            Exit::Exception(Exception::GeneralProtection),
            "{code:x?}"
        );
        assert_eq!(visible(&machine), before, "{code:x?}");
        assert_eq!(machine_at(code, DATA).run(1, &mut ()), Exit::Limit);
    }

    // The same instructions without that rule, at an address that is mapped.
    for code in unaligned {
        assert_eq!(
            machine_at(code, DATA + 8).run(1, &mut ()),
            Exit::Limit,
            "{code:x?}"
        );
    }
}

#[test]
fn nothing_changes_if_memory_faults() {
    let codes: [&[u8]; 6] = [
        &[0x0f, 0x10, 0x0f],             // movups
        &[0x0f, 0x11, 0x0f],             // movups, a store
        &[0x0f, 0x16, 0x0f],             // movhps
        &[0xf2, 0x0f, 0x59, 0x0f],       // mulsd
        &[0x66, 0x0f, 0x2e, 0x0f],       // ucomisd
        &[0xf2, 0x48, 0x0f, 0x2d, 0x3f], // cvtsd2si rdi
    ];
    for code in codes {
        let mut machine = machine_at(code, DATA_END - 4);
        let before = visible(&machine);
        match machine.run(1, &mut ()) {
            Exit::Exception(Exception::Memory(fault)) => {
                assert_eq!((fault.address, fault.kind), (DATA_END, FaultKind::Unmapped));
            }
            exit => panic!("{code:x?}: {exit:?}"),
        }
        assert_eq!(visible(&machine), before, "{code:x?}");
        assert_eq!(peek(&machine, DATA_END - 16), 0);
    }
}

#[test]
fn mxcsr_has_no_bits_above_16() {
    let (load, store) = ([0x0f, 0xae, 0x17], [0x0f, 0xae, 0x1f]);
    let mut machine = machine_at(&load, DATA);
    fill(&mut machine, DATA, 0xffbf, 4);
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(machine.core.state.mxcsr, 0xffbf);

    let mut machine = machine_at(&load, DATA);
    fill(&mut machine, DATA, 0x1_1f80, 4);
    let exit = machine.run(1, &mut ());
    assert_eq!(exit, Exit::Exception(Exception::GeneralProtection));
    assert_eq!(machine.core.state.mxcsr, 0x1f80);

    let mut machine = machine_at(&store, DATA);
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(peek(&machine, DATA), 0x1f80);
}

#[test]
fn masked_moves_store_bytes_that_have_the_sign() {
    // maskmovdqu xmm1, xmm2; with gs and a 32-bit address.
    for code in [
        &[0x66, 0x0f, 0xf7, 0xca][..],
        &[0x65, 0x67, 0x66, 0x0f, 0xf7, 0xca],
    ] {
        let small = code.len() > 4;
        let address = if small { 5 << 32 | 3 } else { DATA + 3 };

        let mut machine = machine_at(code, address);
        machine
            .core
            .state
            .set_gpr(reg::GS, if small { DATA } else { 1 << 40 });
        machine.core.state.vectors.set_xmm(2, 0x80 << 120 | 0xff7f);

        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        assert_eq!(peek(&machine, DATA), 0xb1 << 32);
        assert_eq!(peek(&machine, DATA + 16), 0xbf << 16);
    }

    // All 16 bytes must be mapped; the upper half is checked first.
    for (address, fault) in [(DATA_END - 12, DATA_END), (DATA_END, DATA_END + 8)] {
        let mut machine = machine_at(&[0x66, 0x0f, 0xf7, 0xca], address);
        machine.core.state.vectors.set_xmm(2, 0x80);
        match machine.run(1, &mut ()) {
            Exit::Exception(Exception::Memory(found)) => assert_eq!(found.address, fault),
            exit => panic!("{exit:?}"),
        }
        assert_eq!(peek(&machine, DATA_END - 16), 0);
    }
}

#[test]
fn comparisons_clear_the_other_flags() {
    // ptest xmm1, xmm2 and ucomiss xmm1, xmm2; then pcmpistri.
    let codes: [&[u8]; 3] = [
        &[0x66, 0x0f, 0x38, 0x17, 0xca],
        &[0x0f, 0x2e, 0xca],
        &[0x66, 0x0f, 0x3a, 0x63, 0xca, 8],
    ];
    for code in codes {
        let mut machine = machine_at(code, 0);
        machine.core.state.set_rflags(flags::ARITHMETIC);
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        assert_eq!(
            machine.core.state.rflags() & flags::ARITHMETIC,
            0,
            "{code:x?}"
        );
    }
}

#[test]
fn other_registers_are_not_sse() {
    // paddb mm1, mm2; movdq2q; cvtpi2ps; sha1nexte; aesenc; extrq (SSE4A).
    let codes: [&[u8]; 6] = [
        &[0x0f, 0xfc, 0xca],
        &[0xf2, 0x0f, 0xd6, 0xca],
        &[0x0f, 0x2a, 0xca],
        &[0x0f, 0x38, 0xc8, 0xca],
        &[0x66, 0x0f, 0x38, 0xdc, 0xca],
        &[0x66, 0x0f, 0x79, 0xca],
    ];
    for code in codes {
        let insn = iced_x86::Decoder::with_ip(64, code, CODE, 0).decode();
        let mut ops = Vec::new();
        crate::lower::lower(&insn, code, CODE, &Default::default(), &mut ops);
        assert!(super::select(&insn, &mut ops[0]).is_none(), "{insn:?}");
    }
}
