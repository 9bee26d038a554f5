//! Memory operands: their addresses, and what must not change if they cannot be accessed.

use super::*;

const RAX: usize = reg::RAX;
const RBX: usize = reg::RBX;

/// Checks that nothing changed and the instruction is still the next one.
#[track_caller]
fn nothing_happened(code: &[u8], registers: &[(usize, u64)], expected: Exit) {
    let (exit, after) = run(code, registers);
    assert_eq!(exit, expected);
    assert_eq!(after.core.state.rip, CODE);
    let mut before = machine(code);
    for &(number, value) in registers {
        before.core.state.set_gpr(number, value);
    }
    assert_eq!(everything(&after), everything(&before));
}

#[test]
fn changes_of_memory_that_cannot_be_written_fault_as_writes() {
    let protected = fault(READ_ONLY + 8, Access::Write, FaultKind::Protected);
    let unmapped = fault(END, Access::Write, FaultKind::Unmapped);

    for code in [
        &[0xd1, 0x23][..],   // shll (%rbx)
        &[0xc1, 0x23, 0],    // shll $0, (%rbx)
        &[0x0f, 0xa5, 0x03], // shld %cl, %eax, (%rbx)
        &[0x0f, 0xab, 0x03], // bts %eax, (%rbx)
        &[0x0f, 0xc1, 0x03], // xadd %eax, (%rbx)
        &[0x0f, 0xb1, 0x03], // cmpxchg %eax, (%rbx)
        &[0x0f, 0xc7, 0x0b], // cmpxchg8b (%rbx)
        &[0x87, 0x03],       // xchg %eax, (%rbx)
        &[0x01, 0x03],       // add %eax, (%rbx)
        &[0xff, 0x03],       // incl (%rbx)
    ] {
        nothing_happened(code, &[(RBX, READ_ONLY + 8)], protected);
        nothing_happened(code, &[(RBX, END)], unmapped);
    }

    // cmp %eax, (%rbx); bt %eax, (%rbx); mul (%rbx): they only read.
    for code in [&[0x39, 0x03][..], &[0x0f, 0xa3, 0x03], &[0xf7, 0x23]] {
        assert_eq!(run(code, &[(RBX, READ_ONLY + 8)]).0, Exit::Limit);
        nothing_happened(
            code,
            &[(RBX, END)],
            fault(END, Access::Read, FaultKind::Unmapped),
        );
    }
}

#[test]
fn an_operand_over_the_end_of_all_addresses_is_not_canonical() {
    let last = 0x7fff_ffff_fffd;
    let exit = fault(0x8000_0000_0000, Access::Read, FaultKind::NonCanonical);
    // mov (%rbx), %eax
    nothing_happened(&[0x8b, 0x03], &[(RBX, last)], exit);
}

#[test]
fn bit_numbers_move_the_address() {
    // btc %rax, (%rbx)
    for (number, at, bit) in [
        (65_i64, 8, 1),
        (63, 0, 63),
        (-1, -8, 63),
        (-64, -8, 0),
        (-65, -16, 63),
    ] {
        let registers = [(RAX, number.cast_unsigned()), (RBX, DATA + 0x100)];
        let (exit, after) = run(&[0x48, 0x0f, 0xbb, 0x03], &registers);
        assert_eq!(exit, Exit::Limit);

        let at = (DATA + 0x100).wrapping_add_signed(at);
        let old = u64::from_le_bytes(bytes(&machine(&[]), at));
        assert_eq!(u64::from_le_bytes(bytes(&after, at)), old ^ 1 << bit);
        assert_eq!(after.core.state.rflags() & 1, old >> bit & 1, "{number}");
    }

    // btc %ax, (%ebx): only 16 bits of the number count, and 32 bits of the address.
    let registers = [
        (RAX, 0x1234_5678_0000_fff0),
        (RBX, (0xffff_ffff << 32) | (DATA + 2)),
    ];
    let (exit, after) = run(&[0x67, 0x66, 0x0f, 0xbb, 0x03], &registers);
    assert_eq!(exit, Exit::Limit);
    let [old] = bytes(&machine(&[]), DATA);
    assert_eq!(bytes(&after, DATA), [old ^ 1]);

    // bt $33, (%rbx): an immediate does not move the address.
    let (_, after) = run(&[0x0f, 0xba, 0x23, 33], &[(RBX, DATA)]);
    assert_eq!(after.core.state.rflags() & 1, u64::from(old >> 1 & 1));
}

#[test]
fn segments_are_added_behind_the_cut() {
    // xlat %fs:(%ebx) and btc %eax, %fs:(%ebx): 0xffff_fff0 + 0x20 is 0x10.
    let mut table = machine(&[0x64, 0x67, 0xd7]);
    table.core.state.set_gpr(reg::FS, DATA);
    table.core.state.set_gpr(RBX, 0xffff_fff0);
    table.core.state.set_gpr(RAX, 0x20);
    assert_eq!(table.run(1, &mut ()), Exit::Limit);
    let [byte] = bytes(&table, DATA + 0x10);
    assert_eq!(table.core.state.gpr(RAX), byte.into());
    let mut bit = machine(&[0x64, 0x67, 0x0f, 0xbb, 0x03]);
    bit.core.state.set_gpr(reg::FS, DATA);
    bit.core.state.set_gpr(RBX, 0xffff_fff0);
    bit.core.state.set_gpr(RAX, 0x100);
    assert_eq!(bit.run(1, &mut ()), Exit::Limit);
    assert_eq!(bytes(&bit, DATA + 0x10), [byte ^ 1]);
}

#[test]
fn exchanges_of_two_registers_with_memory() {
    let rcx = 0x0102_0304_0506_0708;
    let at = DATA + 0x20;
    let old = u128::from_le_bytes(bytes(&machine(&[]), at));
    let (low, high) = (old as u64, (old >> 64) as u64);

    // lock cmpxchg16b (%rsi)
    let code = [0xf0, 0x48, 0x0f, 0xc7, 0x0e];
    let equal = [
        (reg::RSI, at),
        (RAX, low),
        (reg::RDX, high),
        (RBX, 5),
        (reg::RCX, rcx),
    ];

    let (exit, after) = run(&code, &equal);
    assert_eq!(exit, Exit::Limit);
    assert_eq!(
        u128::from_le_bytes(bytes(&after, at)),
        u128::from(rcx) << 64 | 5
    );
    assert_ne!(after.core.state.rflags() & crate::flags::ZF, 0);

    // The registers differ from memory: they get what is there.
    let (exit, after) = run(&code, &[(reg::RSI, at), (RBX, 5)]);
    assert_eq!(exit, Exit::Limit);
    assert_eq!(u128::from_le_bytes(bytes(&after, at)), old);
    assert_eq!(
        (after.core.state.gpr(RAX), after.core.state.gpr(reg::RDX)),
        (low, high)
    );
    assert_eq!(after.core.state.rflags() & crate::flags::ZF, 0);

    // It has to be aligned to 16 bytes.
    let general = Exit::Exception(Exception::GeneralProtection);
    nothing_happened(&code, &[(reg::RSI, at + 8)], general);

    // cmpxchg8b (%rsi): if it fails, the upper halves of the registers are cleared.
    let ones = u64::MAX;
    let (_, after) = run(
        &[0x0f, 0xc7, 0x0e],
        &[(reg::RSI, at + 1), (RAX, ones), (reg::RDX, ones)],
    );
    let found = u64::from_le_bytes(bytes(&after, at + 1));
    let pair = (after.core.state.gpr(RAX), after.core.state.gpr(reg::RDX));
    assert_eq!(pair, (found & 0xffff_ffff, found >> 32));
}

#[test]
fn enter_and_pop() {
    let rsp = DATA + 0x800;

    // enter $0x10, $3
    let words = [(reg::RSP, rsp), (reg::RBP, DATA + 0x400)];
    let (exit, after) = run(&[0xc8, 0x10, 0, 3], &words);
    assert_eq!(exit, Exit::Limit);
    assert_eq!(after.core.state.gpr(reg::RSP), rsp - 4 * 8 - 0x10);
    assert_eq!(after.core.state.gpr(reg::RBP), rsp - 8);
    let word = |at| u64::from_le_bytes(bytes(&after, at));
    assert_eq!(word(rsp - 8), DATA + 0x400);
    assert_eq!(word(rsp - 16), word(DATA + 0x400 - 8));
    assert_eq!(word(rsp - 24), word(DATA + 0x400 - 16));
    assert_eq!(word(rsp - 32), rsp - 8);

    // enter $0x1000, $0: the new top of the stack must be mapped.
    nothing_happened_to_registers(&[0xc8, 0, 0x10, 0], &words, DATA - 0x808);

    // pop %fs:8(%rsp), popw 8(%esp): the address uses rsp after the pop.
    for (code, at) in [
        (&[0x64, 0x8f, 0x44, 0x24, 8][..], rsp + 16),
        (&[0x67, 0x66, 0x8f, 0x44, 0x24, 8], rsp + 10),
    ] {
        let (exit, after) = run(code, &words);
        assert_eq!(exit, Exit::Limit);
        let popped: [u8; 2] = bytes(&after, rsp);
        assert_eq!(bytes(&after, at), popped);
    }
}

#[track_caller]
fn nothing_happened_to_registers(code: &[u8], registers: &[(usize, u64)], address: u64) {
    let (exit, after) = run(code, registers);
    assert_eq!(exit, fault(address, Access::Write, FaultKind::Unmapped));
    for &(number, value) in registers {
        assert_eq!(after.core.state.gpr(number), value);
    }
}

#[test]
fn a_call_to_no_address_has_pushed_already() {
    // call *%rbx
    let registers = [(RBX, 1 << 60), (reg::RSP, DATA + 0x80)];
    let (exit, after) = run(&[0xff, 0xd3], &registers);
    assert_eq!(exit, Exit::Exception(Exception::GeneralProtection));
    assert_eq!(after.core.state.gpr(reg::RSP), DATA + 0x80);
    assert_eq!(after.core.state.rip, CODE);
    assert_eq!(u64::from_le_bytes(bytes(&after, DATA + 0x78)), CODE + 2);
}
