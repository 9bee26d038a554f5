//! Lists and trees in memory, whole and damaged.

use super::*;

/// Memory in pieces.
#[derive(Clone, Default)]
struct Pieces(Vec<(u64, Vec<u8>)>);

impl Pieces {
    fn put(&mut self, address: u64, bytes: Vec<u8>) {
        self.0.push((address, bytes));
    }

    fn words(&mut self, address: u64, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        self.put(address, bytes.collect());
    }

    /// An object whose table is at `table`.
    fn object(&mut self, at: u64, table: u64, flags: u64, next: u64) {
        self.words(at, &[u64::MAX, 0, 0, table, UNKNOWN_ENCODING | flags, next]);
    }

    /// A node with entries of these words.
    fn node(&mut self, at: u64, kind: u32, entries: &[&[u64]]) {
        let mut words = vec![2, entries.len() as u64 | u64::from(kind) << 32];
        words.extend(entries.concat());
        words.resize(NODE_SIZE as usize / 8, 0);
        self.words(at, &words);
    }

    /// Where tables are found that lists in `DATA` lead to.
    fn found(&self) -> Vec<Range<u64>> {
        let read = |address: u64, size: u64| -> &[u8] {
            let bytes = self.0.iter().find_map(|(start, bytes)| {
                let at = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(at..).filter(|bytes| !bytes.is_empty())
            });
            let bytes = bytes.unwrap_or_default();
            &bytes[..bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX))]
        };
        let found = tables(std::slice::from_ref(&DATA), &read).into_iter();
        let ranges = found.map(|s| s.address..s.address + s.data.len() as u64);
        ranges.collect()
    }
}

/// Data of libgcc.
const DATA: Range<u64> = 0x1000..0x1100;
/// `DW_EH_PE_omit` in the flags, until the table is sorted.
const UNKNOWN_ENCODING: u64 = 0xff << 3;
/// Two tables.
const FIRST: u64 = 0x8000;
const SECOND: u64 = 0x9000;

/// Addresses are absolute.
fn cie() -> Vec<u8> {
    let mut out = vec![16, 0, 0, 0, 0, 0, 0, 0, 1];
    out.extend(b"zR\0\x01\x78\x10\x01\0\x0c\x07\x08");
    out
}

/// The code of the FDEs of a table, and where they are.
const CODE: [Range<u64>; 2] = [0x7000..0x7010, 0x7010..0x7030];
const FDES: [u64; 2] = [20, 48];

/// A CIE, two FDEs of it, and a terminator.
fn table() -> Vec<u8> {
    let mut out = cie();
    for code in CODE {
        let back = out.len() as u32 + 4;
        out.extend(24_u32.to_le_bytes());
        out.extend(back.to_le_bytes());
        out.extend(code.start.to_le_bytes());
        out.extend((code.end - code.start).to_le_bytes());
        out.extend([0; 4]);
    }
    out.extend([0; 4]);
    out
}

fn range(start: u64) -> Range<u64> {
    start..start + table().len() as u64
}

/// Both tables.
fn two() -> Pieces {
    let mut pieces = Pieces::default();
    pieces.put(FIRST, table());
    pieces.put(SECOND, table());
    pieces
}

/// Two objects, the first of them sorted: its vector has what was registered.
fn list() -> Pieces {
    let mut pieces = two();
    pieces.words(DATA.start, &[7, 0x2000]);
    pieces.object(0x2000, 0x3000, SORTED, 0x2040);
    pieces.words(0x3000, &[FIRST, 2, FIRST + 16, FIRST + 40]);
    pieces.object(0x2040, SECOND, 0, 0);
    pieces
}

#[test]
fn lists_have_sorted_objects_and_arrays() {
    assert_eq!(list().found(), [range(FIRST), range(SECOND)]);

    // __register_frame_table: the array is of the one object.
    for flags in [FROM_ARRAY, FROM_ARRAY | SORTED] {
        let mut array = two();
        array.words(DATA.start, &[0x2000]);
        array.object(
            0x2000,
            if flags == FROM_ARRAY { 0x4000 } else { 0x3000 },
            flags,
            0,
        );
        array.words(0x3000, &[0x4000, 4]);
        array.words(0x4000, &[FIRST, SECOND, 0]);
        assert_eq!(array.found(), [range(FIRST), range(SECOND)]);
    }
}

/// GCC 13 and later. A leaf has each object twice: by its code, and by its table.
#[test]
fn trees_have_their_objects_in_leaves() {
    let mut tree = two();
    tree.words(DATA.start, &[0, 0x5000]);
    tree.node(0x5000, INNER, &[&[0x4fff, 0x5100], &[u64::MAX, 0x5200]]);
    tree.node(
        0x5100,
        LEAF,
        &[&[0x100, 0x40, 0x2000], &[0x4000, 1, 0x2000]],
    );
    tree.node(0x5200, LEAF, &[&[0x6000, 1, 0x2040]]);
    tree.object(0x2000, FIRST, 0, 0);
    tree.object(0x2040, SECOND, 0, 0);
    assert_eq!(tree.found(), [range(FIRST), range(SECOND)]);

    // Keys that fall, ranges that overlap, too many entries, an unknown type: no node.
    let leaf = |entries: &[&[u64]]| {
        let mut tree = tree.clone();
        tree.0
            .retain(|(address, _)| ![0x5000, 0x5100].contains(address));
        tree.words(DATA.start, &[0, 0x5100]);
        tree.0.rotate_right(1);
        tree.node(0x5100, LEAF, entries);
        tree.found()
    };
    assert_eq!(leaf(&[&[0x100, 0x40, 0x2000]]), [range(FIRST)]);
    assert!(leaf(&[&[0x200, 1, 0x2000], &[0x100, 1, 0x2040]]).is_empty());
    assert!(leaf(&[&[0x100, 2, 0x2000], &[0x101, 1, 0x2040]]).is_empty());
    assert!(leaf(&[&[0x100, 1, 0x2000][..]; 11]).is_empty());
    // No object is there.
    assert!(leaf(&[&[0x100, 1, 0x2080]]).is_empty());
    let mut free = tree.clone();
    free.0.retain(|(address, _)| *address != 0x5000);
    free.node(0x5000, 2, &[&[0x4fff, 0x5100]]);
    assert!(free.found().is_empty());

    // A child that leads back.
    let mut looping = tree.clone();
    looping.0.retain(|(address, _)| *address != 0x5000);
    looping.node(0x5000, INNER, &[&[0x4fff, 0x5100], &[u64::MAX, 0x5000]]);
    assert_eq!(looping.found(), [range(FIRST)]);
}

/// LLVM's libunwind: an entry for each FDE, with its code.
#[test]
fn arrays_have_an_entry_for_each_fde() {
    let array = |entries: &[[u64; 4]]| {
        let mut array = two();
        array.words(DATA.start, &[3, 0x6000]);
        array.words(0x6000, &entries.concat());
        array.found()
    };
    let [first, second] = CODE;
    let entry = |code: &Range<u64>, fde: u64| [fde, code.start, code.end, fde];
    let good = [
        entry(&first, FIRST + FDES[0]),
        entry(&second, SECOND + FDES[1]),
    ];
    assert_eq!(array(&good), [range(FIRST), range(SECOND)]);
    // The code must be that of an FDE, and the FDE one.
    let other = first.start..first.end + 1;
    assert_eq!(
        array(&[good[0], entry(&other, SECOND + FDES[0])]),
        [range(FIRST)]
    );
    assert!(array(&[entry(&other, FIRST + FDES[0]), good[1]]).is_empty());
    assert!(array(&[entry(&first, FIRST), good[1]]).is_empty());
    assert!(array(&[entry(&(first.end..first.start), FIRST + FDES[0])]).is_empty());
}

/// Tables that lack only their terminator, and words that lead to them: all of it is read once or twice,
/// not once for each word.
#[test]
fn what_is_tried_has_a_limit() {
    const FDES: usize = 1 << 12;
    const TRIED_MAX: u64 = 1 << 20;
    let mut bytes = cie();
    for _ in 0..FDES {
        let back = bytes.len() as u32 + 4;
        bytes.extend(4_u32.to_le_bytes());
        bytes.extend(back.to_le_bytes());
    }

    let objects = 1 << 12;
    let words: Vec<u64> = (0..objects).map(|n| 0x100_0000 + 48 * n).collect();
    // All objects have the same table, which has no terminator.
    let object = [0, 0, 0, 0x1000_0000, 0, 0_u64];
    let all: Vec<u8> = object.iter().flat_map(|word| word.to_le_bytes()).collect();
    let all = all.repeat(objects as usize);
    let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();

    let pieces = [
        (0x10_0000_u64, data),
        (0x100_0000, all),
        (0x1000_0000, bytes),
    ];

    let read = Cell::new(0_u64);
    let memory = |address: u64, size: u64| -> &[u8] {
        let bytes = pieces.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..)
        });
        let bytes = bytes.unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(size as usize)];
        // 24 bytes are the head of a CIE.
        read.set(read.get() + u64::from(bytes.len() == 24));
        bytes
    };

    let data = 0x10_0000..0x10_0000 + 8 * objects;
    assert!(find(std::slice::from_ref(&data), &memory, TRIED_MAX).is_empty());

    // Each attempt reads the head of the CIE once.
    let attempts = TRIED_MAX / (8 * FDES as u64);
    assert!(read.get() >= attempts);
    assert!(read.get() <= 2 * attempts, "{} of {attempts}", read.get());
}

/// What start files register begins behind the CIE that a linker kept of the objects before it.
#[test]
fn a_table_begins_with_the_cie_that_its_rows_name() {
    let behind = cie().len() as u64;
    let mut pieces = two();
    pieces.words(DATA.start, &[0x2000]);
    pieces.object(0x2000, FIRST + behind, 0, 0);
    assert_eq!(pieces.found(), [range(FIRST)]);
    // What lies between must be records, too.
    pieces.0.remove(0);
    let mut broken = table();
    broken[0] += 4;
    pieces.put(FIRST, broken);
    assert!(pieces.found().is_empty());
}

#[test]
fn what_only_looks_like_a_list_is_not_taken() {
    let changed = |at: u64, offset: usize, byte: u8| {
        let mut pieces = list();
        let piece = pieces.0.iter_mut().find(|(start, _)| *start == at);
        piece.expect("a piece").1[offset] = byte;
        pieces.found()
    };

    let second = vec![range(SECOND)];
    assert!(changed(0x2000, 36, 1).is_empty(), "bits that no object has");
    assert!(
        changed(0x2000, 32, 0x31).is_empty(),
        "no encoding of pointers"
    );
    assert!(changed(0x3000, 0, 8).is_empty(), "another place");
    assert!(changed(FIRST, 8, 2).is_empty(), "no version of a CIE");
    assert!(changed(FIRST, 9, 7).is_empty(), "no augmentation");
    assert!(changed(FIRST, 24, 16).is_empty(), "no CIE of an FDE");

    // A table ends with a length of 0 (LSB Core, `.eh_frame`).
    let end = table().len() - 4;
    assert!(changed(FIRST, end, 9).is_empty(), "no terminator");
    // The link, at 40, then leads to no object.
    assert_eq!(changed(0x2000, 41, 0), [range(FIRST)], "another next");

    // The second object can be reached by itself.
    let mut apart = list();
    apart.words(DATA.start, &[0x2040]);
    apart.0.rotate_right(1);
    assert_eq!(apart.found(), second);

    // And a list may end in itself.
    let mut looping = list();
    looping.object(0x2040, SECOND, 0, 0x2000);
    looping.0.rotate_right(1);
    assert_eq!(looping.found().len(), 2);
}

#[test]
fn changed_memory_never_panics() {
    let (pieces, mut fewer) = (list(), 0);
    for piece in 0..pieces.0.len() {
        for offset in 0..pieces.0[piece].1.len() {
            for bit in [1, 0x80] {
                let mut pieces = pieces.clone();
                pieces.0[piece].1[offset] ^= bit;
                fewer += usize::from(pieces.found().len() < 2);
            }
        }
    }
    assert!(fewer > 50, "{fewer}");
}
