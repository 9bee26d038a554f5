//! Tests of the numbers of values, and of the unused part of lists.

use super::*;

#[test]
fn equal_values_have_one_number() {
    let mut numbered = Numbered::new();
    let numbers: Vec<_> = (0..1000u64).map(|i| numbered.number(i % 300)).collect();
    let expected: Vec<_> = (0..1000u32).map(|i| i % 300).collect();
    assert_eq!(numbers, expected);
    assert_eq!((numbered.get(299), numbered.get(300)), (Some(&299), None));
    // The values, and at least four bytes of index for each.
    let bytes = numbered.bytes();
    assert!((300 * (8 + 4)..300 * 64).contains(&bytes), "{bytes}");
}

#[test]
fn at_most_an_eighth_and_eight_of_a_list_are_unused() {
    let mut list = Vec::new();
    let mut capacities = Vec::new();
    for i in 0..100u64 {
        push_tight(&mut list, i);
        if capacities.last() != Some(&list.capacity()) {
            capacities.push(list.capacity());
        }
    }
    // From 0 by 8, from 8 by 9, from 17 by 10...
    assert_eq!(capacities, [8, 17, 27, 38, 50, 64, 80, 98, 118]);
    reserve_tight(&mut list, 18);
    assert_eq!(list.capacity(), 118, "18 are unused");
    reserve_tight(&mut list, 19);
    assert_eq!(list.capacity(), 120, "an eighth and eight are 20");
    reserve_tight(&mut list, 50);
    assert_eq!(list.capacity(), 150, "more is reserved if it is wanted");
    grow_tight(&mut list, 151, 7);
    assert_eq!((list.len(), list.capacity(), list[150]), (151, 151, 7));
}
