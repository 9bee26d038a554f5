//! The load address of a table.

use super::*;

#[test]
fn a_table_keeps_its_address() {
    let mut bytes = [0; 30];
    bytes[..5].copy_from_slice(&[0xe2, 0xde, 3, 0, 3]);
    bytes[29] = 9;
    let table = Table::parse(&bytes, 0x40_3000).expect("a table");
    assert_eq!(table.address(), 0x40_3000);
    assert_eq!(table.tail(), [0, 9]);
}

#[test]
fn what_is_behind_the_table_is_noticed_unless_it_is_padding() {
    let mut bytes = [0; 40];
    bytes[..5].copy_from_slice(&[0xe2, 0xde, 3, 0, 3]);
    let behind = |bytes: &[u8]| Table::parse(bytes, 0).expect("a table").behind();
    assert_eq!(behind(&bytes), None);
    bytes[39] = 1;
    let found = behind(&bytes).expect("a byte");
    assert_eq!(found.offset, 28);
    assert!(found.what.contains("concatenated"), "{}", found.what);
}
