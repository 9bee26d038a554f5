//! String instructions: repeated at once or singly, interrupted, overlapping.

use super::*;

const RCX: usize = reg::RCX;
const RSI: usize = reg::RSI;
const RDI: usize = reg::RDI;

/// rep movs and rep stos of 1, 2, 4 and 8 bytes.
const REPEATED: [&[u8]; 8] = [
    &[0xf3, 0xa4],
    &[0x66, 0xf3, 0xa5],
    &[0xf3, 0xa5],
    &[0xf3, 0x48, 0xa5],
    &[0xf3, 0xaa],
    &[0x66, 0xf3, 0xab],
    &[0xf3, 0xab],
    &[0xf3, 0x48, 0xab],
];

fn prepared(code: &[u8], from: u64, to: u64, count: u64, down: bool) -> Machine {
    let mut machine = machine(code);
    machine.core.state.set_gpr(reg::RAX, 0x8877_6655_4433_2211);
    machine.core.state.set_gpr(RSI, from);
    machine.core.state.set_gpr(RDI, to);
    machine.core.state.set_gpr(RCX, count);
    let flags = machine.core.state.rflags();
    machine.core.state.set_rflags(if down {
        flags | crate::flags::DF
    } else {
        flags
    });
    machine
}

/// Whole pages at once give the same result as single elements, wherever they are.
#[test]
fn at_once_as_one_by_one() {
    let middle = DATA + 0x1000;
    for code in REPEATED {
        for distance in [
            -0x1000, -300, -8, -7, -3, -1, 0, 1, 3, 4, 7, 8, 9, 100, 0x0ffd_i64,
        ] {
            for (from, down) in [(middle - 29, false), (middle + 31, true), (middle, false)] {
                let to = from.wrapping_add_signed(distance);
                let mut fast = prepared(code, from, to, 40, down);
                let mut slow = prepared(code, from, to, 40, down);
                slow.core.state.single_iteration = true;
                let exit = fast.run(1, &mut ());
                let steps = slow.run(40, &mut ());
                assert_eq!(exit, steps, "{code:x?} {distance} {from:x}");
                assert_eq!(everything(&fast), everything(&slow), "{code:x?} {distance}");
                assert_eq!(fast.core.state.rip, slow.core.state.rip);
            }
        }
    }
}

#[test]
fn one_iteration_after_the_other() {
    let mut machine = prepared(&[0xf3, 0xa4], DATA, DATA + 0x100, 3, false);
    machine.core.state.single_iteration = true;

    for left in [2, 1] {
        assert_eq!(machine.run(1, &mut ()), Exit::Limit);
        assert_eq!(
            (machine.core.state.gpr(RCX), machine.core.state.rip),
            (left, CODE)
        );
    }

    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(
        (machine.core.state.gpr(RCX), machine.core.state.rip),
        (0, CODE + 2)
    );
    // Each iteration counts as an instruction.
    assert_eq!(machine.executed(), 3);

    // A count of zero is one step too.
    let mut none = prepared(&[0xf3, 0xa4], DATA, DATA + 0x100, 0, false);
    none.core.state.single_iteration = true;
    assert_eq!(none.run(1, &mut ()), Exit::Limit);
    assert_eq!(
        (none.core.state.gpr(RDI), none.core.state.rip),
        (DATA + 0x100, CODE + 2)
    );
}

#[test]
fn a_fault_in_the_middle() {
    // rep stosl into the read-only page
    let to = READ_ONLY - 10;
    let mut machine = prepared(&[0xf3, 0xab], 0, to, 100, false);
    let exit = machine.run(1, &mut ());
    assert_eq!(exit, fault(READ_ONLY, Access::Write, FaultKind::Protected));

    let core = &machine.core;
    assert_eq!((core.state.gpr(RCX), core.state.gpr(RDI)), (98, to + 8));
    assert_eq!(core.state.rip, CODE);

    // Nothing of the element that does not fit is written.
    let old: [u8; 2] = bytes(&super::machine(&[]), to + 8);
    let value = 0x4433_2211_u32.to_le_bytes();
    assert_eq!(bytes(&machine, to), value);
    assert_eq!(bytes(&machine, to + 4), value);
    assert_eq!(bytes(&machine, to + 8), old);

    // It continues after the fault is handled.
    let range = READ_ONLY..END;
    let memory = &mut machine.core.memory;
    memory
        .protect(range, Permissions::READ_WRITE)
        .expect("mapped");

    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(
        (machine.core.state.gpr(RCX), machine.core.state.rip),
        (0, CODE + 2)
    );
    assert_eq!(machine.core.state.gpr(RDI), to + 400);
    assert_eq!(bytes(&machine, to + 396), value);
}

/// As an Intel processor does.
#[test]
fn flags_of_comparisons_are_set_at_the_end() {
    // repne scasb for a byte that is not there
    let mut machine = prepared(&[0xf2, 0xae], 0, END - 3, 9, false);
    machine.core.state.set_rflags(0x8d5);
    let rest: [u8; 3] = bytes(&machine, END - 3);
    let absent = (0..=255)
        .find(|byte| !rest.contains(byte))
        .expect("three of 256");
    machine.core.state.set_gpr(reg::RAX, absent.into());

    let exit = machine.run(1, &mut ());
    assert_eq!(exit, fault(END, Access::Read, FaultKind::Unmapped));
    assert_eq!(machine.core.state.rflags() & 0x8d5, 0x8d5);
    assert_eq!(
        (machine.core.state.gpr(RCX), machine.core.state.gpr(RDI)),
        (6, END)
    );

    // The same, and the last byte is found.
    machine.core.state.set_gpr(RDI, END - 3);
    machine.core.state.set_gpr(RCX, 9);
    machine.core.state.set_gpr(reg::RAX, rest[2].into());
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);

    // ZF and PF: the difference is 0.
    assert_eq!(machine.core.state.rflags() & 0x8d5, 0x44);
    assert_eq!(
        (machine.core.state.gpr(RCX), machine.core.state.gpr(RDI)),
        (6, END)
    );
}

#[test]
fn comparisons_end_where_they_should() {
    // repe cmpsb of two copies that differ in one byte
    let mut machine = prepared(&[0xf3, 0xa6], DATA, DATA + 0x800, 0x100, false);
    let same: [u8; 0x100] = bytes(&machine, DATA);

    let memory = &mut machine.core.memory;
    memory.poke(DATA + 0x800, &same).expect("mapped");
    memory
        .poke(DATA + 0x810, &[same[16].wrapping_add(1)])
        .expect("mapped");

    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(machine.core.state.gpr(RCX), 0x100 - 17);
    assert_eq!(machine.core.state.gpr(RSI), DATA + 17);

    // The first minus the second is -1: CF, AF, SF, PF.
    assert_eq!(machine.core.state.rflags() & 0x8d5, 0x95);

    // To the end: there are no more differences.
    machine.core.state.rip = CODE;
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    assert_eq!(
        (
            machine.core.state.gpr(RCX),
            machine.core.state.rflags() & 0x8d5
        ),
        (0, 0x44)
    );
}

#[test]
fn addresses_of_32_bits() {
    let high = 0xabcd << 32;

    // addr32 rep movsb
    let code = [0x67, 0xf3, 0xa4];
    let mut machine = prepared(&code, high | DATA, high | (DATA + 0x100), high | 5, false);
    assert_eq!(machine.run(1, &mut ()), Exit::Limit);
    let core = &machine.core;
    assert_eq!(
        (
            core.state.gpr(RSI),
            core.state.gpr(RDI),
            core.state.gpr(RCX)
        ),
        (DATA + 5, DATA + 0x105, 0)
    );
    let copied: [u8; 5] = bytes(&machine, DATA);
    assert_eq!(bytes(&machine, DATA + 0x100), copied);

    // A count of 0 clears upper halves on Intel's processors.
    let mut none = prepared(&code, high | DATA, high | (DATA + 0x100), high, false);
    assert_eq!(none.run(1, &mut ()), Exit::Limit);
    let core = &none.core;
    assert_eq!(
        (
            core.state.gpr(RSI),
            core.state.gpr(RDI),
            core.state.gpr(RCX)
        ),
        (DATA, DATA + 0x100, 0)
    );

    // lods %fs:(%esi), %al
    let mut one = prepared(&[0x64, 0x67, 0xac], high | 0x10, 0, 0, true);
    one.core.state.set_gpr(reg::FS, DATA);
    assert_eq!(one.run(1, &mut ()), Exit::Limit);
    let [byte] = bytes(&one, DATA + 0x10);
    assert_eq!(one.core.state.gpr(reg::RAX) & 0xff, byte.into());
    assert_eq!(one.core.state.gpr(RSI), 0xf);
}

/// An instruction that overwrites decoded instructions, including itself, finishes.
#[test]
fn over_its_own_code() {
    // rep stosb, then ud2, which becomes hlt
    let mut machine = prepared(&[0xf3, 0xaa, 0x0f, 0x0b], 0, CODE + 2, 0x30, false);
    let range = CODE..CODE + 0x1000;
    let memory = &mut machine.core.memory;
    memory.protect(range, Permissions::ALL).expect("mapped");
    machine.core.state.set_gpr(reg::RAX, 0xf4);
    assert_eq!(machine.run(9, &mut ()), Exit::Halt);
    assert_eq!(
        (machine.core.state.gpr(RCX), machine.core.state.rip),
        (0, CODE + 3)
    );
    assert_eq!(machine.executed(), 2);
}
