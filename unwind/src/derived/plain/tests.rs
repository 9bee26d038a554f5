//! Which expressions are only a register, an offset and a load.

use super::*;

fn rsp(offset: i32) -> Option<Value> {
    Some(Value::reg(Reg::Rsp, offset))
}

fn load(offset: i32, addend: i32) -> Option<Value> {
    Some(Value::Load {
        base: Base::Reg(Reg::Rsp),
        offset,
        addend,
    })
}

#[test]
fn registers_with_offsets_and_one_load_are_linear() {
    // DW_OP_breg7 is 0x77, DW_OP_plus_uconst 0x23, DW_OP_deref 0x06.
    let cases: [(&[u8], bool, Option<Value>); 20] = [
        (&[0x77, 0], false, rsp(0)),
        (&[0x77, 8], false, rsp(8)),
        (&[0x77, 0x78], false, rsp(-8)),
        (&[0x77, 0x3f], false, rsp(63)),
        (&[0x77, 0x40], false, rsp(-64)),
        (&[0x77, 0x80, 1], false, rsp(128)),
        (&[0x77, 0x80, 0x7f], false, rsp(-128)),
        (&[0x77, 8, 0x23, 4], false, rsp(12)),
        (&[0x77, 8, 0x23, 4, 0x23, 0x80, 1], false, rsp(140)),
        (&[0x77, 8], true, load(8, 0)),
        (&[0x77, 8, 0x06], false, load(8, 0)),
        (&[0x77, 8, 0x06, 0x23, 4], false, load(8, 4)),
        (
            &[0x77, 8, 0x23, 1, 0x06, 0x23, 4, 0x23, 5],
            false,
            load(9, 9),
        ),
        // Two loads, another operation, another first operation, and truncated expressions.
        (&[0x77, 8, 0x06], true, None),
        (&[0x77, 8, 0x06, 0x06], false, None),
        (&[0x77, 8, 0x22], false, None),
        (&[0x06], false, None),
        (&[0x77], false, None),
        (&[0x77, 8, 0x23], false, None),
        (&[], false, None),
    ];

    for (bytes, is_load, expected) in cases {
        assert_eq!(linear(bytes, is_load), expected, "{bytes:x?} {is_load}");
    }

    // breg0 to breg16 are accepted, the opcodes before and after are not.
    assert_eq!(linear(&[0x70, 0], false), Some(Value::reg(Reg::Rax, 0)));
    assert_eq!(linear(&[0x80, 0], false), Some(Value::reg(Reg::Rip, 0)));
    assert_eq!(linear(&[0x6f, 0], false), None);
    assert_eq!(linear(&[0x81, 0], false), None);
}

#[test]
fn leb_has_at_most_four_bytes() {
    let cases: [(&[u8], Option<i64>, Option<i64>); 8] = [
        (&[0x7f], Some(127), Some(-1)),
        (&[0x80, 0x01], Some(128), Some(128)),
        (&[0xff, 0x7f], Some(16383), Some(-1)),
        (&[0x80, 0x80, 0x01], Some(1 << 14), Some(1 << 14)),
        (&[0x80, 0x80, 0x80, 0x3f], Some(63 << 21), Some(63 << 21)),
        (&[0x80, 0x80, 0x80, 0x40], Some(64 << 21), Some(-(64 << 21))),
        (&[0x80, 0x80, 0x80, 0x80, 0x01], None, None),
        (&[0x80], None, None),
    ];
    for (bytes, unsigned, signed) in cases {
        assert_eq!(uleb(&mut &bytes[..]), unsigned, "{bytes:x?}");
        assert_eq!(sleb(&mut &bytes[..]), signed, "{bytes:x?}");
    }
    let mut bytes = &[0x81, 0x01, 9][..];
    assert_eq!((uleb(&mut bytes), bytes), (Some(129), &[9][..]));
}
