//! Every operation allowed in call frame information, on hand-made bytes.

extern crate std;

use super::*;
use crate::memory::{MemoryCopy, MemoryError};
use crate::regs::{RegMask, Regs};
use alloc::vec::Vec;
use quickcheck::QuickCheck;

const STACK: u64 = 0x7000;
const BYTES: [u8; 16] = [
    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5, 6, 7, 8,
];
/// -n as a word.
const fn neg(n: i64) -> u64 {
    -n as u64
}

fn run_in(frame: &Frame, bytes: &[u8], initial: Option<u64>) -> Result<u64, ExpressionError> {
    evaluate(
        bytes,
        frame,
        initial,
        0x10_0000,
        &MemoryCopy::new(STACK, &BYTES),
    )
}

fn frame() -> Frame {
    let mut regs = Regs::frame(0x401000, STACK, 0x7008);
    regs.set(Reg::R11, 100);
    Frame::top(regs)
}

fn run(bytes: &[u8]) -> Result<u64, ExpressionError> {
    run_in(&frame(), bytes, None)
}

#[track_caller]
fn check(bytes: &[u8], value: u64) {
    assert_eq!(run(bytes), Ok(value), "{bytes:x?}");
}

#[track_caller]
fn fails(bytes: &[u8], what: &'static str) {
    assert_eq!(
        run(bytes),
        Err(ExpressionError::Malformed(what)),
        "{bytes:x?}"
    );
}

#[test]
fn constants() {
    check(&[0x30], 0);
    check(&[0x4f], 31);
    check(&[0x03, 0, 0x10, 0, 0, 0, 0, 0, 0], 0x10_1000);
    check(&[0x08, 0xff], 0xff);
    check(&[0x09, 0xff], neg(1));
    check(&[0x0a, 1, 0x80], 0x8001);
    check(&[0x0b, 1, 0x80], neg(0x7fff));
    check(&[0x0c, 1, 0, 0, 0x80], 0x8000_0001);
    check(&[0x0d, 0, 0, 0, 0x80], neg(0x8000_0000));
    check(&[0x0e, 1, 2, 3, 4, 5, 6, 7, 8], 0x0807_0605_0403_0201);
    check(
        &[0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        neg(1),
    );
    check(&[0x10, 0x80, 1], 128);
    check(&[0x11, 0x7f], neg(1));
}

#[test]
fn registers() {
    check(&[0x77, 0x10], STACK + 16);
    check(&[0x76, 0x78], 0x7000);
    check(&[0x92, 11, 1], 101);
    // Column 16 is the pc.
    check(&[0x80, 0], 0x401000);
    fails(&[0x92, 17, 0], "not a general register");
    let missing = Reason::RegistersMissing { reg: Reg::Rax };
    assert_eq!(run(&[0x70, 0]), Err(ExpressionError::Unavailable(missing)));
    let mut caller = frame();
    caller.topmost = false;
    let lost = Reason::RegisterNotCarried { reg: Reg::Rax };
    let result = run_in(&caller, &[0x70, 0], None);
    assert_eq!(result, Err(ExpressionError::Unavailable(lost)));
}

#[test]
fn the_stack() {
    // 0x31 to 0x33 are `DW_OP_lit1` to `DW_OP_lit3`, 0x12 to 0x17 `dup` to `rot`.
    check(&[0x31, 0x32, 0x12, 0x22], 4);
    check(&[0x31, 0x32, 0x13], 1);
    check(&[0x31, 0x32, 0x14], 1);
    check(&[0x31, 0x32, 0x33, 0x15, 2], 1);
    check(&[0x31, 0x32, 0x16], 1);
    // Rotation: the top becomes the third entry.
    check(&[0x31, 0x32, 0x33, 0x17], 2);
    check(&[0x31, 0x32, 0x33, 0x17, 0x13], 1);
    check(&[0x31, 0x32, 0x33, 0x17, 0x13, 0x13], 3);

    for bytes in [
        &[0x12][..],
        &[0x31, 0x14],
        &[0x31, 0x16],
        &[0x31, 0x32, 0x17],
    ] {
        fails(bytes, "stack index out of range");
    }

    fails(&[0x31, 0x15, 1], "stack index out of range");
    fails(&[0x13], "stack underflow");
    fails(&[], "stack underflow");

    let deep = |n| core::iter::repeat_n(0x31, n).collect::<Vec<u8>>();
    check(&deep(STACK_MAX), 1);
    fails(&deep(STACK_MAX + 1), "stack overflow");
}

#[test]
fn the_initial_value_is_below_all() {
    assert_eq!(run_in(&frame(), &[0x23, 8], Some(0x100)), Ok(0x108));
    assert_eq!(run_in(&frame(), &[], Some(0x100)), Ok(0x100));
}

#[test]
fn arithmetic() {
    check(&[0x09, 0xf8, 0x19], 8);
    check(&[0x35, 0x33, 0x1a], 1);
    check(&[0x09, 0xf8, 0x32, 0x1b], neg(4));
    check(&[0x31, 0x33, 0x1c], neg(2));
    check(&[0x38, 0x33, 0x1d], 2);
    check(&[0x09, 0xff, 0x3a, 0x1d], u64::MAX % 10);
    check(&[0x34, 0x35, 0x1e], 20);
    check(&[0x31, 0x1f], neg(1));
    check(&[0x30, 0x20], u64::MAX);
    check(&[0x35, 0x33, 0x21], 7);
    check(&[0x35, 0x32, 0x22], 7);
    check(&[0x35, 0x23, 0x80, 1], 133);
    check(&[0x31, 0x34, 0x24], 16);
    check(&[0x09, 0xff, 0x08, 60, 0x25], 15);
    check(&[0x09, 0xf0, 0x32, 0x26], neg(4));
    check(&[0x35, 0x33, 0x27], 6);
    fails(&[0x31, 0x30, 0x1b], "division by zero");
    fails(&[0x31, 0x30, 0x1d], "division by zero");
    // The only quotient that overflows.
    check(&[0x31, 0x08, 63, 0x24, 0x09, 0xff, 0x1b], 1 << 63);
    check(&[0x31, 0x08, 63, 0x24, 0x19], 1 << 63);
}

#[test]
fn shifts_by_more_than_a_word_leave_nothing() {
    check(&[0x31, 0x08, 64, 0x24], 0);
    check(&[0x31, 0x09, 0xff, 0x24], 0);
    check(&[0x09, 0xff, 0x08, 64, 0x25], 0);
    check(&[0x09, 0xff, 0x08, 200, 0x26], neg(1));
    check(&[0x31, 0x08, 200, 0x26], 0);
}

#[test]
fn comparisons_are_signed() {
    // (operation, -1 ? 1, 1 ? 1)
    for (op, less, equal) in [
        (0x29, 0, 1),
        (0x2a, 0, 1),
        (0x2b, 0, 0),
        (0x2c, 1, 1),
        (0x2d, 1, 0),
        (0x2e, 1, 0),
    ] {
        check(&[0x09, 0xff, 0x31, op], less);
        check(&[0x31, 0x31, op], equal);
    }
}

#[test]
fn branches() {
    check(&[0x31, 0x2f, 1, 0, 0x13, 0x96], 1);
    check(&[0x35, 0x31, 0x28, 1, 0, 0x13, 0x96], 5);
    check(&[0x35, 0x36, 0x30, 0x28, 1, 0, 0x13, 0x96], 5);
    // 5 + 4 + 3 + 2 + 1, with a loop: sum counter; sum += counter; counter -= 1; repeat.
    let sum = [
        0x30, 0x35, 0x16, 0x14, 0x22, 0x16, 0x31, 0x1c, 0x12, 0x28, 0xf6, 0xff, 0x13,
    ];
    check(&sum, 15);
    // A branch to the very end ends the expression; a branch beyond it is an error.
    check(&[0x31, 0x2f, 0, 0], 1);
    fails(
        &[0x31, 0x2f, 1, 0],
        "branch target is outside the expression",
    );
    fails(
        &[0x31, 0x2f, 0xfb, 0xff],
        "branch target is outside the expression",
    );
    fails(&[0x2f, 0xfd, 0xff], "too many steps");
}

#[test]
fn loads() {
    check(&[0x77, 0, 0x06], 0x8877_6655_4433_2211);
    check(&[0x77, 8, 0x94, 1], 1);
    check(&[0x77, 8, 0x94, 2], 0x0201);
    check(&[0x77, 8, 0x94, 4], 0x0403_0201);
    check(&[0x77, 8, 0x94, 8], 0x0807_0605_0403_0201);
    fails(&[0x77, 8, 0x94, 9], "loads more than 8 bytes");
    let beyond = MemoryError::BeyondCopy {
        address: STACK + 12,
        end: STACK + 16,
    };
    let result = run(&[0x77, 12, 0x06]);
    assert_eq!(result, Err(ExpressionError::Unavailable(beyond.into())));
}

#[test]
fn operations_not_allowed_in_call_frame_information() {
    fails(&[0x9c], "DW_OP_call_frame_cfa is not allowed in a rule");
    fails(&[0x50], "DW_OP_regN is not allowed in a rule");
    fails(&[0x90, 3], "DW_OP_regN is not allowed in a rule");

    // `DW_OP_xderef`, `DW_OP_deref_type` and `DW_OP_regval_type`.
    fails(
        &[0x31, 0x32, 0x18],
        "typed operations and address spaces are not supported",
    );
    fails(
        &[0x31, 0xa6, 8, 1],
        "typed operations and address spaces are not supported",
    );
    fails(&[0xa5, 0, 1], "typed operations are not supported");

    // `stack_value`, `piece`, `push_object_address`, `form_tls_address`, `fbreg`, `implicit_value`.
    for bytes in [
        &[0x9f][..],
        &[0x93, 8],
        &[0x97],
        &[0x9b],
        &[0x91, 0],
        &[0x9e, 1, 0],
    ] {
        fails(bytes, "operation not allowed in call frame information");
    }

    fails(&[0x02], "unknown operation");
    fails(&[0x0e, 1], "ends within an operation");
    fails(&[0x77], "ends within an operation");
}

/// The expression of a linker's PLT entries: rsp + 8 + ((rip & 15) >= 11) << 3.
#[test]
fn the_plt_rule() {
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    for (rip, offset) in [(0x401000, 8), (0x40100a, 8), (0x40100b, 16), (0x40100f, 16)] {
        let frame = Frame::top(Regs::frame(rip, STACK, 0));
        assert_eq!(run_in(&frame, &plt, None), Ok(STACK + offset));
    }
}

#[test]
fn random_bytes_never_panic() {
    fn property(bytes: Vec<u8>, initial: Option<u64>) -> bool {
        let mut regs = Regs::UNKNOWN;
        RegMask::ALL.iter().for_each(|reg| regs.set(reg, STACK));
        let _ = run_in(&Frame::top(regs), &bytes, initial);
        true
    }
    QuickCheck::new()
        .tests(20_000)
        .quickcheck(property as fn(Vec<u8>, Option<u64>) -> bool);
}
