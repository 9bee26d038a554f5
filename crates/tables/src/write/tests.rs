//! Order and limits that all writers share.

use super::*;

fn function(start: u64, size: u32, rows: &[(u32, u8)]) -> Function<'_, u8> {
    Function {
        start,
        size,
        repeat: None,
        signal: false,
        rows,
    }
}

#[test]
fn functions_come_in_order_and_start_with_a_row() {
    let rows = [(0, 1), (4, 2)];
    let mut order = OrderCheck::default();
    assert_eq!(order.accept("X", &function(0x1000, 8, &rows)), Ok(()));
    assert_eq!(order.accept("X", &function(0x1008, 8, &rows)), Ok(()));
    for start in [0x1008, 0x100f, 0x10] {
        let error = order.accept("X", &function(start, 8, &rows));
        let (format, before) = ("X", 0x1008);
        assert_eq!(
            error,
            Err(WriteError::Overlap {
                format,
                before,
                start
            })
        );
    }
    for rows in [&[][..], &[(1, 1)]] {
        let error = order.accept("X", &function(0x2000, 8, rows));
        let (format, start) = ("X", 0x2000);
        assert_eq!(error, Err(WriteError::NoFirstRow { format, start }));
    }
}

#[test]
fn distances_have_31_bits_and_a_sign() {
    let far = 1 << 31;
    assert_eq!(relative32("X", far - 1, 0), Ok(i32::MAX));
    assert_eq!(relative32("X", 0, far), Ok(i32::MIN));
    let error = relative32("X", far, 0).expect_err("too far");
    assert_eq!(
        error.to_string(),
        "X: the function at 0x80000000 lies 0x80000000 bytes from the table; its offset has 32 bits"
    );
    assert!(relative32("X", 0, far + 1).is_err());
}
