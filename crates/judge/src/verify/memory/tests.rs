//! Tests of the total and of its text.

use super::*;

#[test]
fn all_parts_are_in_the_sum_and_are_shown_in_kib() {
    let used = MemoryUse {
        decoded: 1024,
        known: 2048,
        claims: 3 * 1024 + 1,
        findings: 5 * 1024,
        met: 6 * 1024,
        rows: 7 * 1024,
    };
    assert_eq!(used.total(), 24 * 1024 + 1);
    assert_eq!(
        used.to_string(),
        "25 KiB: decoded code 1, instructions 2, claims 4, findings 5, addresses and rows met 6, \
         compiled rows 7"
    );
}

#[test]
fn a_list_has_the_bytes_that_it_has_allocated() {
    assert_eq!(list_bytes(&Vec::<u64>::new()), 0);
    let mut list: Vec<u64> = Vec::with_capacity(5);
    list.push(1);
    assert_eq!(list_bytes(&list), 5 * 8);
}
