//! Objects: what is shared, for how long, and what it counts.

use super::super::watch::CHANGES_MAX;
use super::super::{AddressSpace, FaultKind, MapError, MemoryKey, ObjectId, Permissions};
use super::{ObjectError, SIZE_MAX};

const A: u64 = 0x40_0000;
const B: u64 = 0x80_0000;
const P: u64 = 4096;

fn object(memory: &mut AddressSpace, content: &[u8]) -> ObjectId {
    memory.create_object(content.to_vec())
}

/// Two mappings of an object of three pages, both writable.
fn mapped_twice(pages_max: usize) -> (AddressSpace, ObjectId) {
    let mut memory = AddressSpace::new(pages_max);
    let object = object(&mut memory, b"the file");
    for at in [A, B] {
        let range = at..at + 3 * P;
        memory
            .map_shared(range, Permissions::READ_WRITE, object, 0)
            .expect("free");
    }
    (memory, object)
}

#[test]
fn all_mappings_see_a_store_at_once() {
    let (mut memory, object) = mapped_twice(100);
    assert_eq!(memory.load_bytes(B), Some(*b"the file"));
    memory.store_bytes(A + 4, *b"door").expect("writable");
    assert_eq!(memory.load_bytes(B), Some(*b"the door"));
    let parent = memory.id();
    let child = memory.fork();
    memory.store_bytes(B, *b"our").expect("writable");
    memory.switch_to(child);
    assert_eq!(memory.load_bytes(A), Some(*b"our door"));
    memory.store_bytes(A + 2 * P, *b"child").expect("writable");
    memory.switch_to(parent);
    assert_eq!(memory.load_bytes(B + 2 * P), Some(*b"child"));
    let mut file = [0; 8];
    memory.read_object(object, 0, &mut file).expect("there");
    assert_eq!(&file, b"our door");
    memory.write_object(object, P - 2, b"over").expect("room");
    assert_eq!(memory.load_bytes(A + P - 2), Some(*b"over"));
    // Two pages were read and written, and the third one by both.
    assert_eq!(memory.pages_in_use(), 3);
}

#[test]
fn a_private_mapping_shows_the_object_until_it_is_written() {
    let (mut memory, object) = mapped_twice(100);
    let private = B..B + 2 * P;
    memory
        .map_private(private.clone(), Permissions::READ_WRITE, object, 0)
        .expect("free");
    assert_eq!(memory.load_bytes(B), Some(*b"the file"));
    memory.store_bytes(A, *b"THE").expect("writable");
    assert_eq!(memory.load_bytes(B), Some(*b"THE file"));
    assert_eq!(memory.pages_in_use(), 1);
    memory.store_bytes(B + 4, *b"mine").expect("writable");
    memory.store_bytes(A + 4, *b"ours").expect("writable");
    assert_eq!(memory.load_bytes(B), Some(*b"THE mine"));
    assert_eq!(memory.load_bytes(A), Some(*b"THE ours"));
    assert_eq!(memory.pages_in_use(), 2);
    // A page that is written before it is read.
    memory.store_bytes(B + P, [7]).expect("writable");
    assert_eq!(memory.load_bytes(A + P), Some([0]));
    memory.discard(private).expect("in range");
    assert_eq!(memory.load_bytes(B), Some(*b"THE ours"));
    assert_eq!(memory.pages_in_use(), 2);
}

#[test]
fn an_object_lives_as_long_as_somebody_has_it() {
    let (mut memory, object) = mapped_twice(100);
    let parent = memory.id();

    memory.store_bytes(A, [1]).expect("writable");
    memory.release_object(object);
    let child = memory.fork();
    memory.unmap(A + P..A + 2 * P).expect("in range");
    memory.unmap(A..A + 3 * P).expect("in range");

    // It is mapped over by itself.
    memory
        .map_shared(B..B + P, Permissions::READ, object, 2 * P)
        .expect("there");
    memory
        .map(B..B + 3 * P, Permissions::READ)
        .expect("in range");

    assert!(memory.is_mapped(object), "by the child");
    memory.switch_to(child);
    assert_eq!(memory.load_bytes(B), Some([1]));

    let snapshot = memory.snapshot();
    memory.switch_to(parent);
    memory.remove_space(child);
    assert!(!memory.is_mapped(object));
    assert_eq!(memory.pages_in_use(), 0);

    // Nobody has it now.
    let gone = memory.map_shared(A..A + P, Permissions::READ, object, 0);
    assert_eq!(gone, Err(MapError::Object));
    let unknown = Err(ObjectError::Unknown);
    assert_eq!(memory.read_object(object, 0, &mut [0]), unknown);
    assert_eq!(memory.write_object(object, 0, &[0]), unknown);
    assert_eq!(memory.truncate_object(object, 0), unknown);

    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.load_bytes(B), Some([1]));
    assert_eq!(memory.pages_in_use(), 1);

    memory.remove_space(parent);
    memory.unmap(A..A + 3 * P).expect("in range");
    memory
        .map_shared(B..B + 3 * P, Permissions::READ, object, 0)
        .expect("the mapping that goes is the last one");
    assert_eq!(memory.load_bytes(B), Some([1]));
    memory.unmap(A..B + 3 * P).expect("in range");
    assert_eq!(memory.pages_in_use(), 0);
}

#[test]
fn what_is_cut_off_is_zero_afterwards() {
    let (mut memory, object) = mapped_twice(100);
    memory.write(A, &[9; 3 * P as usize]).expect("room");
    let snapshot = memory.snapshot();
    memory.truncate_object(object, P + 2).expect("there");
    assert_eq!(memory.load_bytes(B + P), Some([9, 9, 0, 0]));
    assert_eq!(memory.load_bytes(A + 2 * P), Some([0]));
    memory.truncate_object(object, 4).expect("there");
    memory.truncate_object(object, 0).expect("there");
    assert_eq!(memory.load_bytes(A), Some([0; 8]), "nor is it the file");
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.load_bytes(A + 2 * P), Some([9]));
    // The content that nobody has read is cut off too.
    let unread = self::object(&mut memory, b"content");
    memory.truncate_object(unread, 3).expect("there");
    memory.truncate_object(unread, 1 << 40).expect("there");
    let mut bytes = [1; 5];
    memory.read_object(unread, 0, &mut bytes).expect("there");
    assert_eq!(&bytes, b"con\0\0");
}

#[test]
fn objects_count_once_and_are_bounded() {
    let (mut memory, object) = mapped_twice(2);

    // Two mappings of one object: one page for both.
    memory.store_bytes(A, [1]).expect("the first page");
    memory.store_bytes(B, [2]).expect("the same page");

    let too_large = memory.write_object(object, P - 1, &[1; P as usize + 2]);
    assert_eq!(too_large, Err(ObjectError::OutOfPages));
    assert_eq!(
        memory.load_bytes(B + P - 1),
        Some([0]),
        "nothing was written"
    );

    memory.store_bytes(B + P, [3]).expect("the second page");

    // The limit holds for pages of objects, too.
    let full = memory.write(A + 2 * P, &[4]).unwrap_err();
    assert_eq!(full.kind, FaultKind::OutOfPages);
    assert_eq!(memory.pages_in_use(), 2);

    // Mappings that would end behind the largest object are refused.
    let end = SIZE_MAX - 2 * P;
    let mut map = |offset| memory.map_shared(A..A + 2 * P, Permissions::READ, object, offset);
    assert_eq!(map(end), Ok(()));
    for offset in [end + P, u64::MAX - P + 1, 1] {
        assert_eq!(map(offset), Err(MapError::Object), "{offset:#x}");
    }

    assert_eq!(memory.load_bytes::<1>(A), None, "no page is left");
    let range = Err(ObjectError::Range);
    assert_eq!(memory.read_object(object, SIZE_MAX - 1, &mut [0; 2]), range);
    assert_eq!(memory.write_object(object, u64::MAX, &[0; 2]), range);
}

#[test]
fn moved_mappings_keep_their_pages() {
    let (mut memory, object) = mapped_twice(100);
    memory
        .map(B + P..B + 2 * P, Permissions::READ_WRITE)
        .expect("in range");
    memory.store_bytes(B + P, *b"own").expect("writable");
    memory.store_bytes(B, *b"THE").expect("writable");

    let pages = memory.pages_in_use();
    let child = memory.fork();

    memory.move_range(B..B + 3 * P, A + P).expect("apart");
    assert!(memory.area(B).is_none() && memory.area(B + 2 * P).is_none());
    assert_eq!(memory.load_bytes(A + P), Some(*b"THE file"));
    assert_eq!(memory.load_bytes(A + 2 * P), Some(*b"own"));

    memory.store_bytes(A, *b"tHE").expect("writable");
    assert_eq!(memory.load_bytes(A + P), Some(*b"tHE file"));
    assert_eq!(memory.pages_in_use(), pages, "nothing was copied");

    let places: Vec<_> = (0..4).map(|page| memory.place(A + page * P + 8)).collect();
    let shared = |offset| Some(MemoryKey::Shared { object, offset });
    let space = memory.id();
    let own = MemoryKey::Private {
        space,
        address: A + 2 * P + 8,
    };
    assert_eq!(places, [shared(8), shared(8), Some(own), shared(2 * P + 8)]);

    assert_eq!(memory.place(B), None);

    // As mremap(2): the new range may not overlap the old one.
    let overlap = memory.move_range(A..A + 2 * P, A + P);
    let (start, end) = (A + P, A + 3 * P);
    assert_eq!(overlap, Err(MapError::Range { start, end }));

    // The child has what was there before the move.
    memory.switch_to(child);
    assert_eq!(memory.load_bytes(B + P), Some(*b"own"));
}

#[test]
fn stores_are_only_slow_where_there_is_code() {
    let (mut memory, object) = mapped_twice(1);
    memory.store_bytes(B, [0]).expect("no code yet");
    memory.watch_code(A..A + 8);
    assert_eq!(memory.store_bytes(B, [1]), None, "it has to be forgotten");
    assert!(memory.take_refusal().is_some());
    memory.write(B + 2, &[1, 2]).expect("writable");
    assert_eq!(memory.take_code_changes(), vec![A + 2..A + 4; 1]);
    // That was all.
    let (parent, child) = (memory.id(), memory.fork());
    memory.switch_to(child);
    memory.switch_to(parent);
    assert!(!memory.has_code_changes());
    memory.with_space(child, |memory| memory.write(B, &[3]));
    assert_eq!(memory.take_code_changes(), vec![A..A + P; 1]);
    // Another page gets the frame.
    memory.remove_space(child);
    memory.release_object(object);
    memory
        .map(A..B + 3 * P, Permissions::READ_WRITE)
        .expect("in range");
    assert_eq!(memory.store_bytes(B, [1]), Some(()));
}

#[test]
fn code_that_had_no_page_when_it_was_decoded_is_watched_too() {
    let (mut memory, _) = mapped_twice(1);
    let other = 0x10_0000..0x10_0000 + P;
    memory.map(other.clone(), Permissions::ALL).expect("free");
    memory.write(other.start, &[1]).expect("the only page");
    memory.watch_code(A..A + 8);
    memory.unmap(other).expect("in range");
    memory.watch_code(B..B + 8);
    for at in [A, B] {
        memory.write(at + 1, &[1]).expect("room again");
        let changes = memory.take_code_changes();
        assert_eq!(changes, [A + 1..A + 2, B + 1..B + 2]);
    }
    memory.unwatch_code();
    assert_eq!(memory.write(A, &[1]), Ok(()));
    assert!(!memory.has_code_changes());
    // Another space may have decoded it.
    assert_eq!(memory.store_bytes(A, [1]), None);
}

/// A program whose code is written again and again, but which does not run.
#[test]
fn changes_of_code_are_bounded() {
    let (mut memory, _) = mapped_twice(100);
    memory.map(B..B + P, Permissions::ALL).expect("in range");
    for at in [A, A + P, B] {
        memory.watch_code(at..at + 8);
    }
    for _ in 0..3 * CHANGES_MAX {
        for at in [A, A + P, B] {
            memory.write(at, &[1]).expect("writable");
        }
    }
    let changes = memory.take_code_changes();
    assert!((CHANGES_MAX..CHANGES_MAX + 10).contains(&changes.len()));
    for at in [A, A + P, B] {
        assert!(changes.contains(&(at..at + P)), "{at:#x}");
    }
}

#[test]
fn the_pages_that_are_stored_to_are_noted_until_they_are_taken() {
    let (mut memory, object) = mapped_twice(100);
    memory.store_bytes(A, [1]).expect("writable");
    assert_eq!(memory.take_stored(object), []);
    memory.note_stores(object);
    // The page is in the table of recent translations.
    memory.store_bytes(A, [2]).expect("writable");
    memory.write(B + 2 * P, &[3]).expect("writable");
    assert_eq!(memory.take_stored(object), [0, 2 * P]);
    memory.write_object(object, P, &[4]).expect("room");
    assert_eq!(memory.load_bytes(A + P), Some([4]));
    assert_eq!(memory.take_stored(object), []);
    // Another space stores, and what was noted is restored with memory.
    let snapshot = memory.snapshot();
    let child = memory.fork();
    memory.switch_to(child);
    memory.store_bytes(B, [5]).expect("writable");
    assert_eq!(memory.take_stored(object), [0]);
    memory.restore(&snapshot).expect("there is a way back");
    assert_eq!(memory.take_stored(object), []);
    memory.store_bytes(B, [6]).expect("writable");
    assert_eq!(memory.clone().take_stored(object), [0]);
}
