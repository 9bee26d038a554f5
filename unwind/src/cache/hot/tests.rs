//! Hot addresses one by one: their keys, places and costs.

use super::*;
use crate::regs::Reg;
use crate::rule::{Rule, RuleKey, Value};

const ROW: RowId = RowId(7);

fn packed() -> Packed {
    let rule = Rule::call(Value::reg(Reg::Rsp, 8));
    Packed::of(&RuleKey::of(&rule).expect("a short form"))
}

fn table(space: &AddressSpace) -> HotTable {
    let mut table = HotTable::default();
    assert_eq!(table.bytes(), 0);
    table.select(space);
    table
}

#[test]
fn heap_bytes_are_those_of_the_parts() {
    let mut table = table(&AddressSpace::new());
    let entries = ENTRIES_MIN * size_of::<Hot>();
    let spaces = table.spaces.allocation_size();
    assert!(spaces > 0);
    assert_eq!(table.bytes(), entries + spaces);
    table.insert(0x1000, ROW, packed(), Some(Reason::NotAtRoot));
    let fallbacks = table.fallbacks.allocation_size();
    assert!(fallbacks > 0);
    assert_eq!(table.bytes(), entries + spaces + fallbacks);
}

#[test]
fn an_address_belongs_to_one_space_only() {
    let (one, other) = (AddressSpace::new(), AddressSpace::new());
    let mut table = table(&one);
    // Bits 48 and above belong to the space; in an upper-half address they are set.
    for address in [0x1000, 0xffff_8000_0000_1000] {
        table.select(&one);
        table.insert(address, ROW, packed(), None);
        assert!(table.get(address).is_some());
        table.select(&other);
        assert!(table.get(address).is_none(), "{address:#x}");
        let number = table.space >> 48;
        assert_eq!(number, 2);
        assert_eq!(table.key(address) ^ address, 2 << 48);
    }
}

#[test]
fn a_full_table_forgets_all_but_the_space_in_use() {
    let space = AddressSpace::new();
    let mut table = table(&space);
    table.insert(0x1000, ROW, packed(), Some(Reason::NotAtRoot));
    table.entries.resize(HOT_ENTRIES_MAX, Hot::NONE);
    table.used = HOT_ENTRIES_MAX / 2 - 1;
    table.insert(0x2000, ROW, packed(), None);
    assert_eq!(table.len(), HOT_ENTRIES_MAX / 2);
    table.insert(0x3000, ROW, packed(), None);
    // Only the new one is left, with its space.
    assert_eq!((table.len(), table.entries.len()), (1, HOT_ENTRIES_MAX));
    assert_eq!(table.space, 1 << 48);
    let found = [0x1000, 0x2000, 0x3000].map(|at| table.get(at).is_some());
    assert_eq!(found, [false, false, true]);
    assert_eq!(table.fallback(0x1000), None);
    table.select(&space);
    assert!(table.get(0x3000).is_some());
    table.select(&AddressSpace::new());
    assert!(table.get(0x3000).is_none());
}

#[test]
fn looking_for_an_address_ends_at_a_free_place() {
    let mut table = table(&AddressSpace::new());
    table.insert(0x1000, ROW, packed(), None);
    let key = table.key(0x1000);
    let home = table.home(key);

    // The next place is free, so an entry after it is not found.
    let at = |steps: usize| (home + steps) % ENTRIES_MIN;

    let mut other = (1..).map(|i| 0x1000 + 8 * i);
    let same_home = |table: &HotTable, address| table.home(table.key(address)) == home;
    let other = other.find(|&a| same_home(&table, a)).expect("one");

    let entry = Hot {
        key: table.key(other),
        row: ROW,
        next: NO_PLACE,
        packed: packed(),
    };
    table.entries[at(2)] = entry;
    assert!(table.get(other).is_none());

    // No free place is left before it.
    table.entries[at(1)] = Hot { key: 5, ..entry };
    assert!(table.get(other).is_some());

    // If the home place is free, an entry in the next place is not found.
    table.entries[at(0)] = Hot::NONE;
    table.entries[at(1)] = entry;
    assert!(table.get(other).is_none());
}

/// The index of the entry for `address`.
fn place(table: &HotTable, address: u64) -> u32 {
    let key = table.key(address);
    let at = table.entries.iter().position(|hot| hot.key == key);
    at.expect("an entry") as u32
}

#[test]
fn callers_are_guessed_from_the_last_time_and_checked() {
    let mut table = table(&AddressSpace::new());
    for row in 1..=3 {
        table.insert(u64::from(row) << 12, RowId(row), packed(), None);
    }

    let mut walk = |addresses: [u64; 3]| {
        let mut callers = table.callers();
        let found = addresses.map(|address| callers.next(address).map(|(row, _)| row.0));
        let next = table.get(0x1000).map(|hot| hot.next);
        (found, next)
    };

    // Known and unknown callers, the same as before and others, and a function that calls itself.
    let (found, two) = walk([0x1000, 0x2000, 0x3000]);
    assert_eq!(found, [Some(1), Some(2), Some(3)]);
    assert_eq!(walk([0x1000, 0x2000, 0x3000]), (found, two));

    let (found, three) = walk([0x1000, 0x3000, 0x1000]);
    assert_eq!(found, [Some(1), Some(3), Some(1)]);
    assert_eq!(walk([0x1000, 0x4000, 0x3000]).0, [Some(1), None, Some(3)]);
    assert_eq!(
        walk([0x1000, 0x1000, 0x2000]).0,
        [Some(1), Some(1), Some(2)]
    );

    // The guess is the entry found last time, by its place in the table.
    let places = [two, three].map(|place| place.expect("an entry"));
    assert_eq!(places, [place(&table, 0x2000), place(&table, 0x3000)]);
}

#[test]
fn a_guess_from_another_space_is_not_trusted() {
    let (one, other) = (AddressSpace::new(), AddressSpace::new());
    let mut table = table(&one);
    table.insert(0x1000, ROW, packed(), None);
    table.select(&other);
    table.insert(0x2000, ROW, packed(), None);
    let guess = place(&table, 0x2000);
    let alias = table.key(0x2000);
    table.select(&one);
    let callee = place(&table, 0x1000) as usize;
    table.entries[callee].next = guess;
    // An address that no processor can use, whose key is that of the other space's address.
    let alias = table.key(alias);
    let mut callers = table.callers();
    assert!(callers.next(0x1000).is_some());
    assert!(callers.next(alias).is_none());
    assert!(callers.next(0x2000).is_none());
}
