//! Counts words, and catches a panic.
use std::collections::BTreeMap;
fn main() {
    let mut counts = BTreeMap::new();
    for word in "a b a c b a".split(' ') {
        *counts.entry(word).or_insert(0) += 1;
    }
    println!("{counts:?}");
    let caught = std::panic::catch_unwind(|| panic!("a panic"));
    println!("{}", caught.is_err());
}
