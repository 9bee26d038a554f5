//! Tests of what followed stores into slots.

use super::*;

const WRITER: Writer = Writer {
    address: 0x1000,
    place: 2,
    call: None,
};

fn hit(address: u64, old: u64) -> Hit {
    Hit {
        frame: 0,
        is_live: true,
        address,
        old,
        slot: Slot::ReturnAddress,
        owner: address + 1,
        owner_place: place(address),
    }
}

/// Gives each hit slot a different owner.
fn place(address: u64) -> PlaceId {
    (address >> 4 & 0xff) as PlaceId
}

/// The counts: changes, stores of the same value, returns through stored values, restored values.
fn counts(store: &SlotStore) -> [u64; 4] {
    [store.count, store.same, store.taken, store.restored]
}

#[test]
fn the_first_change_is_told_and_all_are_counted() {
    let mut collector = Collector::default();
    // A store of the same value is reported as the first only until a change is seen.
    collector.add(&hit(0x7000, 5), WRITER, 10, 5);
    collector.add(&hit(0x7010, 6), WRITER, 11, 7);
    collector.add(&hit(0x7020, 8), WRITER, 12, 9);
    collector.add(&hit(0x7030, 8), WRITER, 13, 8);

    // One instruction made them all, so they are one entry.
    let stores = collector.finish();
    assert_eq!((stores.count(), stores.same()), (2, 2));

    let expected = SlotStore {
        writer: WRITER,
        slot: Slot::ReturnAddress,
        count: 2,
        same: 2,
        taken: 0,
        restored: 0,
        first: 11,
        address: 0x7010,
        owner: 0x7011,
        owner_place: place(0x7010),
        old: 6,
        new: 7,
    };

    assert_eq!(stores.all, [expected]);
}

#[test]
fn what_was_stored_is_taken_or_put_back_before() {
    let mut collector = Collector::default();
    assert!(!collector.is_waiting());
    for at in [0x7000, 0x7010, 0x7020, 0x7030] {
        collector.add(&hit(at, 5), WRITER, 1, 6);
    }
    assert!(collector.is_waiting());
    // Returns through the stored value, through another word, from another slot, and twice.
    collector.returned(0x7000, 6);
    collector.returned(0x7010, 9);
    collector.returned(0x7fff, 6);
    collector.returned(0x7000, 6);
    // One is put back; one is not put back but changed again, and then taken.
    collector.add(&hit(0x7020, 6), WRITER, 2, 5);
    collector.add(&hit(0x7030, 6), WRITER, 3, 7);
    collector.returned(0x7030, 7);
    assert!(!collector.is_waiting());
    let stores = collector.finish();
    assert_eq!(counts(&stores.all[0]), [5, 0, 2, 1]);
}

#[test]
fn only_return_addresses_are_waited_for_and_each_kind_has_its_place() {
    let mut collector = Collector::default();
    let saved = |index| Hit {
        slot: Slot::Saved(index),
        ..hit(0x7000, 5)
    };
    let second = Writer {
        address: 0x900,
        ..WRITER
    };
    collector.add(&saved(1), WRITER, 1, 6);
    collector.add(&saved(0), WRITER, 1, 6);
    collector.add(&saved(1), second, 1, 6);
    assert!(!collector.is_waiting());
    let stores = collector.finish();
    let found: Vec<_> = stores.all.iter().map(|s| (s.writer, s.slot)).collect();
    let expected = [
        (second, Slot::Saved(1)),
        (WRITER, Slot::Saved(0)),
        (WRITER, Slot::Saved(1)),
    ];
    assert_eq!(found, expected);
    assert_eq!((stores.count(), stores.same()), (3, 0));
}

#[test]
fn a_system_call_that_stored_nothing_is_not_told_of() {
    let mut collector = Collector::default();
    let call = Writer {
        call: Some("read"),
        ..WRITER
    };
    collector.add(&hit(0x7000, 5), call, 1, 5);
    assert!(collector.stores.all.is_empty());
    collector.add(&hit(0x7000, 5), call, 2, 6);
    assert_eq!(counts(&collector.stores.all[0]), [1, 0, 0, 0]);
    // Nor does it put back a value that is already there.
    collector.add(&hit(0x7000, 5), call, 3, 5);
    assert_eq!(counts(&collector.stores.all[0]), [1, 0, 0, 0]);
    assert!(collector.is_waiting());
}

#[test]
fn of_more_than_64_changed_return_addresses_the_oldest_is_not_waited_for() {
    let mut collector = Collector::default();
    for i in 0..64 {
        collector.add(&hit(0x7000 + 8 * i, 5), WRITER, i, 6);
    }
    assert_eq!(
        (collector.open.len(), collector.open[0].address),
        (64, 0x7000)
    );
    collector.add(&hit(0x9000, 5), WRITER, 64, 6);
    assert_eq!(
        (collector.open.len(), collector.open[0].address),
        (64, 0x7008)
    );
}
