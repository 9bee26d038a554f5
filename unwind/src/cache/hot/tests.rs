//! Hot addresses one by one: their keys, places and costs.

use super::*;
use crate::regs::Reg;
use crate::rule::{Key, Rule, Value};

const ROW: RowId = RowId(7);

fn packed() -> Packed {
    let rule = Rule::call(Value::reg(Reg::Rsp, 8));
    Packed::of(&Key::of(&rule).expect("a short form"))
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
        packed: packed(),
    };
    table.entries[at(2)] = entry;
    assert!(table.get(other).is_none());
    table.entries[at(1)] = Hot { key: 5, ..entry };
    assert!(table.get(other).is_some());
    // If the home place is free, an entry in the next place is not found.
    table.entries[at(0)] = Hot::NONE;
    table.entries[at(1)] = entry;
    assert!(table.get(other).is_none());
}
