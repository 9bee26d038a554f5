//! Tables in stored and sorted order: lengths, positions, errors.

use super::*;
use crate::orc::EntryType;
use alloc::string::ToString;

const LAYOUT: Layout = Layout::V6_4;

/// Three entries at these distances from the slots of their addresses.
fn bytes(relative: [i32; 3]) -> (Vec<u8>, Vec<u8>) {
    let entry = Entry::NULL.encode(LAYOUT);
    (
        [entry; 3].concat(),
        relative.iter().flat_map(|r| r.to_le_bytes()).collect(),
    )
}

#[test]
fn a_table_has_as_many_entries_as_addresses() {
    let (entries, ips) = bytes([0x10, 0x20, 0x30]);
    let table = Table::new(&entries, &ips, 0x1000).expect("a table");
    assert_eq!((table.len(), table.is_empty()), (3, false));

    // An address is relative to its own word, four bytes behind the one before.
    let starts = [0, 1, 2, 3].map(|i| table.ip(i));
    assert_eq!(starts, [Some(0x1010), Some(0x1024), Some(0x1038), None]);
    let empty = Table::new(&[], &[], 0).expect("a table");
    assert_eq!((empty.len(), empty.is_empty()), (0, true));

    // Neither section may end within an element, and both have as many.
    let wrong = |entries, ips| {
        Table::new(entries, ips, 0)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        wrong(&entries[..17], &ips),
        ".orc_unwind+0xc: the section ends within an entry"
    );
    assert_eq!(
        wrong(&entries, &ips[..9]),
        ".orc_unwind_ip+0x8: the section ends within an address"
    );
    let uneven = ".orc_unwind_ip+0x8: number of addresses differs from number of entries";
    assert_eq!(wrong(&entries, &ips[..8]), uneven);
    assert_eq!(wrong(&entries[..12], &ips), uneven);
}

#[test]
fn an_entry_that_says_nothing_is_named_by_its_place() {
    let (mut entries, ips) = bytes([0; 3]);
    entries[2 * ENTRY_LEN + 5] = 7;
    let table = Table::new(&entries, &ips, 0).expect("a table");
    let kind = |index| table.entry(index, LAYOUT).map(|e| e.map(|e| e.kind));
    assert_eq!(kind(1), Some(Ok(EntryType::Call)));
    let error = Malformed {
        section: ".orc_unwind",
        offset: 12,
        what: "unknown type",
    };
    assert_eq!(kind(2), Some(Err(error)));
    assert_eq!(kind(3), None);
}

#[test]
fn positions_end_with_the_table() {
    let (entries, ips) = bytes([0x30, 0x1c, 8]);
    let table = Table::new(&entries, &ips, 0x1000).expect("a table");
    let stored = Sorted::new(table, None);
    assert_eq!((stored.len(), stored.is_empty()), (3, false));
    let at = |sorted: &Sorted<'_>| [0, 2, 3].map(|position| sorted.stored(position));
    assert_eq!(at(&stored), [Some(0), Some(2), None]);
    let order = table.order(LAYOUT).expect("it is not sorted");
    let sorted = Sorted::new(table, Some(&order));
    assert_eq!(at(&sorted), [Some(2), Some(0), None]);
    let none: &[u32] = &[];
    let empty = Sorted::new(Table::new(&[], &[], 0).expect("a table"), Some(none));
    assert!(empty.is_empty() && empty.find(5).is_none());
}

/// Linux's search (`unwind_init`, `orc_find`): in the entries from that of the block's start to
/// that of the next block's.
fn by_slots(table: &Sorted<'_>, text: &core::ops::Range<u64>, svma: u64) -> Option<usize> {
    let count = (text.end - text.start).div_ceil(LOOKUP_BLOCK_SIZE);
    let block = svma.checked_sub(text.start)? / LOOKUP_BLOCK_SIZE;
    let slot = |block: u64| {
        if block < count {
            table.find(text.start + block * LOOKUP_BLOCK_SIZE)
        } else {
            table.find(text.end)
        }
    };
    let range = slot(block).filter(|_| block < count)?..=slot(block + 1)?;
    let before = |position: &usize| table.ip(*position).is_some_and(|ip| ip <= svma);
    Some(range.clone().rfind(before).unwrap_or(*range.start()))
}

#[test]
fn a_search_of_all_entries_ends_where_linux_ends_in_a_block() {
    // Entries before, in and behind the text, several at one address, blocks without entries.
    let starts = [
        0x0f00, 0x0ff8, 0x1004, 0x1040, 0x1040, 0x10ff, 0x1100, 0x1101, 0x13fe, 0x1500, 0x1504,
        0x1508, 0x150c, 0x1600,
    ];
    for skip in 0..starts.len() {
        let starts = &starts[skip..];

        let entries = [Entry::NULL.encode(LAYOUT)].repeat(starts.len()).concat();
        // Each word is the distance from itself to the code.
        let slots = (0..).map(|i| 0x9000 + 4 * i);
        let ips = starts.iter().zip(slots).map(|(ip, slot)| ip - slot);
        let ips: Vec<u8> = ips.flat_map(i32::to_le_bytes).collect();
        let table = Table::new(&entries, &ips, 0x9000).expect("a table");

        let sorted = Sorted::new(table, None);
        for text in [
            0x1000..0x1508,
            0x1000..0x1500,
            0x1010..0x1015,
            0x1000..0x1000,
        ] {
            let blocks = Blocks::new(&sorted, text.start, text.end).expect("a table");
            for svma in 0xf00..0x1800 {
                let (found, linux) = (blocks.find(&sorted, svma), by_slots(&sorted, &text, svma));
                assert_eq!(found, linux, "{svma:#x} in {text:x?} from {skip}");
            }
        }
    }

    let empty = Sorted::new(Table::new(&[], &[], 0).expect("a table"), None);
    assert!(Blocks::new(&empty, 0x1000, 0x1500).is_none());
}

#[test]
fn a_table_is_valid_if_all_its_flags_are() {
    let (mut entries, ips) = bytes([0; 3]);
    let valid = |entries: &[u8], layout| {
        let table = Table::new(entries, &ips, 0).expect("a table");
        let all = (0..3).all(|i| matches!(table.entry(i, layout), Some(Ok(_))));
        assert_eq!(table.is_valid(layout), all);
        all
    };
    assert!(valid(&entries, LAYOUT));
    // Offsets do not matter.
    entries[ENTRY_LEN..ENTRY_LEN + 4].fill(0xff);
    assert!(valid(&entries, LAYOUT));
    // An unused bit, the last register, a type that does not exist: each in another entry.
    for (at, byte) in [(5, 0x80), (ENTRY_LEN + 4, 0x0f), (3 * ENTRY_LEN - 1, 7)] {
        let mut wrong = entries.clone();
        wrong[at] = byte;
        assert!(!valid(&wrong, LAYOUT), "{at}");
    }
    for layout in [Layout::V4_14, Layout::V6_3, Layout::V7_1] {
        valid(&entries, layout);
    }
    assert!(Table::new(&[], &[], 0).expect("a table").is_valid(LAYOUT));
}
