//! Forks, and what they cost.

use super::super::{AddressSpace, Change, FaultKind, Permissions, RestoreError};
use super::SpaceId;

const BASE: u64 = 0x40_0000;
const P: u64 = 4096;

/// A memory with this number of pages, each written with its number.
fn memory(pages_max: usize, pages: u64) -> AddressSpace {
    let mut memory = AddressSpace::new(pages_max);
    let range = BASE..BASE + pages * P;
    memory.map(range, Permissions::READ_WRITE).expect("free");
    for page in 0..pages {
        memory
            .store_bytes(BASE + page * P, [page as u8])
            .expect("writable");
    }
    memory
}

fn byte(memory: &AddressSpace, space: SpaceId, page: u64) -> u8 {
    let mut byte = [0];
    memory
        .peek_in(space, BASE + page * P, &mut byte)
        .expect("mapped");
    byte[0]
}

#[test]
fn forks_use_pages_only_when_one_side_writes() {
    let mut memory = memory(1 << 16, 3000);
    let parent = memory.id();

    // A chain: each is the child of the one before.
    let chain: Vec<SpaceId> = (0..5)
        .map(|_| {
            let child = memory.fork();
            assert!(memory.switch_to(child));
            child
        })
        .collect();

    assert_eq!((memory.pages_in_use(), memory.resident()), (3000, 3000));

    // The last of the chain runs, so the page that is copied is its own.
    memory.store_bytes(BASE + 7 * P, [100]).expect("writable");
    assert_eq!(memory.pages_in_use(), 3001);

    memory.switch_to(parent);
    memory.store_bytes(BASE + 7 * P, [101]).expect("writable");
    memory.store_bytes(BASE + 8 * P, [102]).expect("writable");
    assert_eq!(memory.pages_in_use(), 3003);

    let seven: Vec<u8> = [parent]
        .iter()
        .chain(&chain)
        .map(|&s| byte(&memory, s, 7))
        .collect();
    assert_eq!(seven, [101, 7, 7, 7, 7, 100]);

    // Each page goes with the last space that has it.
    for &space in &chain {
        assert!(memory.remove_space(space));
    }
    assert_eq!(memory.pages_in_use(), 3000);
    assert_eq!(byte(&memory, parent, 9), 9);

    memory.unmap(BASE..BASE + 3000 * P).expect("in range");
    assert_eq!((memory.pages_in_use(), memory.resident()), (0, 0));
}

#[test]
fn the_last_owner_writes_in_place() {
    let mut memory = memory(10, 10);
    let child = memory.fork();
    let out_of_pages = memory.write(BASE, &[1]).map_err(|fault| fault.kind);
    assert_eq!(out_of_pages, Err(FaultKind::OutOfPages));
    assert_eq!(memory.store_bytes(BASE, [1]), None);
    assert!(memory.take_refusal().is_some());
    memory.remove_space(child);
    memory.write(BASE, &[1]).expect("no copy is needed");
    memory
        .store_bytes(BASE + P, [1])
        .expect("no copy is needed");
    assert_eq!(memory.pages_in_use(), 10);
}

#[test]
fn a_write_without_room_for_all_copies_changes_nothing() {
    let mut memory = memory(5, 4);
    memory.fork();
    let failed = memory.write(BASE + P - 4, &[9; 8]).unwrap_err();
    assert_eq!(
        (failed.address, failed.kind),
        (BASE + P, FaultKind::OutOfPages)
    );
    assert_eq!(byte(&memory, memory.id(), 0), 0);
    assert_eq!(memory.pages_in_use(), 4);
    memory.write(BASE, &[9; 8]).expect("room for one");
    assert_eq!(memory.pages_in_use(), 5);
}

#[test]
fn only_spaces_that_are_there_can_be_used() {
    let mut memory = memory(10, 1);
    let parent = memory.id();
    let child = memory.fork();
    assert_eq!(memory.spaces().collect::<Vec<_>>(), [parent, child]);

    assert!(!memory.remove_space(parent), "it runs");

    // Switching to the space that runs already changes nothing.
    assert!(memory.switch_to(child) && memory.switch_to(child));
    assert_eq!(memory.spaces().collect::<Vec<_>>(), [parent, child]);

    assert!(memory.remove_space(parent) && !memory.remove_space(parent));
    assert!(!memory.switch_to(parent));
    assert_eq!(memory.with_space(parent, |_| ()), None);
    assert!(memory.peek_in(parent, BASE, &mut [0]).is_err());

    // A number is not used again, and a new space is empty.
    let created = memory.create();
    assert_ne!(created, parent);
    assert!(memory.peek_in(created, BASE, &mut [0]).is_err());

    // Another space runs only for the time of the closure.
    let kept = memory.with_space(created, |memory| {
        memory
            .map(BASE..BASE + P, Permissions::READ_WRITE)
            .expect("free");
        memory.write(BASE, &[5]).expect("mapped");
        memory.id()
    });

    assert_eq!((kept, memory.id()), (Some(created), child));
    assert_eq!(byte(&memory, created, 0), 5);
    assert_eq!(byte(&memory, child, 0), 0);
}

#[test]
fn a_snapshot_brings_ended_spaces_back() {
    let mut memory = memory(100, 10);
    let parent = memory.id();
    let child = memory.fork();
    memory.switch_to(child);
    memory.store_bytes(BASE, [50]).expect("writable");
    let snapshot = memory.snapshot();

    // The child ends, the parent writes, unmaps, and forks another child.
    memory.switch_to(parent);
    memory.remove_space(child);
    memory.store_bytes(BASE, [60]).expect("writable");
    memory.unmap(BASE + P..BASE + 10 * P).expect("in range");
    let second = memory.fork();
    memory
        .map(BASE..BASE + 40 * P, Permissions::READ_WRITE)
        .expect("in range");
    memory.write(BASE, &[70; 40 * P as usize]).expect("room");
    assert_eq!(memory.pages_in_use(), 41);

    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.id(), child);
    assert_eq!(memory.spaces().collect::<Vec<_>>(), [parent, child]);
    assert_eq!((memory.pages_in_use(), memory.history_bytes()), (11, 0));
    assert_eq!((byte(&memory, child, 0), byte(&memory, parent, 0)), (50, 0));
    assert_eq!((byte(&memory, child, 9), byte(&memory, parent, 9)), (9, 9));
    assert!(!memory.switch_to(second));

    // What a later snapshot saw is gone, but this one stays.
    let later = memory.snapshot();
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.restore(&later), Err(RestoreError::Undone));

    memory.switch_to(parent);
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!((memory.id(), memory.pages_in_use()), (child, 11));

    drop(snapshot);
    assert!(!memory.has_snapshots());
    assert_eq!(memory.history_bytes(), 0);
}

#[test]
fn a_page_that_two_spaces_have_is_saved_once() {
    let mut memory = memory(100, 10);
    let child = memory.fork();
    let snapshot = memory.snapshot();
    memory.remove_space(child);
    assert_eq!(memory.history_bytes(), 0, "nothing has changed");
    memory.write(BASE, &[1; 10 * P as usize]).expect("room");
    let saved = memory.history_bytes() as u64;
    assert!((10 * P..11 * P).contains(&saved), "{saved}");
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!((byte(&memory, child, 9), memory.pages_in_use()), (9, 10));
}

#[test]
fn a_copy_has_all_spaces_and_goes_its_own_way() {
    let mut memory = memory(100, 10);
    let parent = memory.id();
    let child = memory.fork();
    let mut copy = memory.clone();
    copy.switch_to(child);
    copy.store_bytes(BASE, [80]).expect("writable");
    copy.remove_space(parent);
    assert_eq!((copy.pages_in_use(), byte(&copy, child, 0)), (10, 80));
    assert_eq!((byte(&memory, child, 0), byte(&memory, parent, 0)), (0, 0));
    memory.store_bytes(BASE, [90]).expect("writable");
    assert_eq!((memory.pages_in_use(), byte(&memory, child, 0)), (11, 0));
}

#[test]
fn changes_are_noted_for_the_space_that_runs() {
    let mut memory = memory(100, 2);
    let parent = memory.id();
    memory.note_changes(true);
    let snapshot = memory.snapshot();

    let child = memory.fork();
    memory.switch_to(child);
    memory.store_bytes(BASE, [1]).expect("writable");
    memory.switch_to(parent);
    memory.store_bytes(BASE + P, [2]).expect("writable");

    let mut changes = Vec::new();
    memory.take_changes(&mut changes);
    assert_eq!(changes, [Change::Stored(BASE + P..BASE + P + 1)]);

    changes.clear();
    // The child is gone, and with it what it changed; the parent's page is what it was.
    memory.restore(&snapshot).expect("there is a way back");
    memory.take_changes(&mut changes);
    assert_eq!(changes, [Change::Mapped(BASE + P..BASE + 2 * P)]);

    // In place, and in an object.
    let object = memory.create_object(Vec::new());
    let range = BASE + 2 * P..BASE + 4 * P;
    memory
        .map_shared(range.clone(), Permissions::READ_WRITE, object, 0)
        .expect("free");
    let snapshot = memory.snapshot();

    memory.store_bytes(BASE, [3]).expect("writable");
    changes.clear();
    memory.take_changes(&mut changes);
    changes.clear();

    memory.restore(&snapshot).expect("there is a way back");
    memory.take_changes(&mut changes);
    assert_eq!(changes, [BASE..BASE + P, range].map(Change::Mapped));
}

/// A program that maps and unmaps ever other addresses keeps no page tables of them.
#[test]
fn empty_page_tables_are_dropped() {
    let mut memory = AddressSpace::default();
    memory
        .map(BASE..BASE + 64 * P, Permissions::READ_WRITE)
        .expect("free");
    for page in 0..64 {
        memory.store_bytes(BASE + page * P, [1]).expect("writable");
    }
    for page in 0..64 {
        let at = BASE + page * P;
        memory.unmap(at..at + P).expect("in range");
    }
    assert!(memory.own.table.is_empty());
}
