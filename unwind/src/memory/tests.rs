//! The bounds of copies, and the errors for addresses outside them.

use super::*;
use alloc::string::ToString;

const BYTES: [u8; 24] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];
const COPY: MemoryCopy<'static> = MemoryCopy::new(0x1000, &BYTES);
const FIRST: u64 = 0x0706_0504_0302_0100;
const LAST: u64 = 0x1716_1514_1312_1110;

fn below(address: u64, start: u64) -> MemoryError {
    MemoryError::BelowCopy { address, start }
}

fn beyond(address: u64, end: u64) -> MemoryError {
    MemoryError::BeyondCopy { address, end }
}

/// Reads words and bytes at the edges of [`COPY`] in `memory`.
fn check_edges(memory: &dyn Memory) {
    for (address, expected) in [
        (0xfff, Err(below(0xfff, 0x1000))),
        (0x1000, Ok(FIRST)),
        (0x1010, Ok(LAST)),
        // Only seven bytes are left.
        (0x1011, Err(beyond(0x1011, 0x1018))),
        (0x1018, Err(beyond(0x1018, 0x1018))),
    ] {
        assert_eq!(memory.read_u64(address), expected, "{address:#x}");

        let mut word = [0; 8];
        let read = memory.read(address, &mut word);
        assert_eq!(read.map(|()| u64::from_le_bytes(word)), expected);
    }

    // Single bytes and the whole copy, up to its end and one byte further.
    let mut byte = [0];
    assert_eq!(memory.read(0x1017, &mut byte), Ok(()));
    assert_eq!(byte, [23]);
    assert!(memory.read(0x1018, &mut byte).is_err());
    assert!(memory.read(0xfff, &mut byte).is_err());

    let mut all = [0; 24];
    assert_eq!(memory.read(0x1000, &mut all), Ok(()));
    assert_eq!(all, BYTES);
    assert!(memory.read(0x1000, &mut [0; 25]).is_err());

    // rsp may be at the end: then the stack is empty.
    for (sp, inside) in [
        (0xfff, false),
        (0x1000, true),
        (0x1018, true),
        (0x1019, false),
    ] {
        let bounds = inside.then_some(0x1000..0x1018);
        assert_eq!(memory.stack_bounds(sp), bounds, "{sp:#x}");
    }
}

#[test]
fn a_copy_is_read_from_its_first_byte_to_its_last() {
    check_edges(&COPY);
    check_edges(&&COPY);
    check_edges(&Regions::new(Vec::from([COPY])));
    assert_eq!(COPY.end(), 0x1018);
}

#[test]
fn a_window_is_cut_at_both_ends() {
    for (start, len, address, bytes) in [
        (0, 24, 0x1000, &BYTES[..]),
        (0x1000, 100, 0x1000, &BYTES),
        (0x1008, 8, 0x1008, &BYTES[8..16]),
        (0x1008, u64::MAX, 0x1008, &BYTES[8..]),
        (0x1018, 8, 0x1018, &[]),
        (0x2000, 8, 0x1018, &[]),
    ] {
        let window = COPY.window(start, len);
        assert_eq!(
            (window.address, window.bytes),
            (address, bytes),
            "{start:#x}"
        );
    }
}

#[test]
fn the_first_region_that_holds_an_address_is_read() {
    let other = MemoryCopy::new(0x1008, &[0xff; 24]);
    let both = Regions::new(Vec::from([COPY, other]));
    assert_eq!(both.read_u64(0x1008), COPY.read_u64(0x1008));
    // The first copy has only half of the word.
    assert_eq!(both.read_u64(0x1014), Ok(u64::MAX));
    let mut bytes = [0; 16];
    assert_eq!(both.read(0x1010, &mut bytes), Ok(()));
    assert_eq!(bytes, [0xff; 16]);
    assert_eq!(both.stack_bounds(0x1019), Some(0x1008..0x1020));
}

#[test]
fn a_profilers_copy_starts_at_rsp_and_has_nothing_else() {
    let other = MemoryCopy::new(0x5000, &BYTES);
    let both = Regions::new(Vec::from([COPY, other]));
    /// Address and length of each part.
    type Parts = &'static [(u64, usize)];
    let cases: [(u64, u64, Parts); 6] = [
        (0x1000, 24, &[(0x1000, 24)]),
        (0x1010, 100, &[(0x1010, 8)]),
        (0x1017, 4, &[(0x1017, 1)]),
        (0x1018, 8, &[]),
        (0xfff, 8, &[]),
        (0x5004, 8, &[(0x5004, 8)]),
    ];
    for (rsp, len, expected) in cases {
        let parts = both.profiler_copy(rsp, len).parts;
        let parts: Vec<_> = parts.iter().map(|p| (p.address, p.bytes.len())).collect();
        assert_eq!(parts, expected, "{rsp:#x}");
    }
}

#[test]
fn within_1_mib_of_a_region_a_larger_copy_had_helped() {
    const MIB: u64 = 1 << 20;
    let (low, high) = (0x1000_0000, 0x1000_0018);
    let regions = Regions::new(Vec::from([MemoryCopy::new(low, &BYTES)]));
    let unmapped = |address| MemoryError::Unmapped { address };

    for (address, expected) in [
        (low - 1, below(low - 1, low)),
        (low - MIB, below(low - MIB, low)),
        (low - MIB - 1, unmapped(low - MIB - 1)),
        (high - 7, beyond(high - 7, high)),
        (high, beyond(high, high)),
        (high + MIB, beyond(high + MIB, high)),
        (high + MIB + 1, unmapped(high + MIB + 1)),
        (0, unmapped(0)),
        (u64::MAX, unmapped(u64::MAX)),
    ] {
        assert_eq!(regions.read_u64(address), Err(expected), "{address:#x}");
    }

    // Of two regions, the first one nearby determines the error.
    let two = Regions::new(Vec::from([
        MemoryCopy::new(low, &BYTES),
        MemoryCopy::new(high + 0x100, &BYTES),
    ]));
    let between = high + 0x80;
    assert_eq!(two.read_u64(between), Err(beyond(between, high)));
    let far = high + MIB + 8;
    assert_eq!(two.read_u64(far), Err(beyond(far, high + 0x118)));

    // A longer read that starts inside but runs past the end is neither above nor below.
    for (inside, len) in [(high - 8, 16), (low, 32)] {
        let read = regions.read(inside, &mut [0; 32][..len]);
        assert_eq!(read, Err(unmapped(inside)));
    }
}

#[test]
fn errors_say_the_address_and_the_bound() {
    let cases = [
        (
            MemoryError::Unmapped { address: 0x10 },
            "0x10 is not mapped or not recorded",
        ),
        (
            beyond(0x20, 0x18),
            "0x20 lies beyond the stack copy, which ends at 0x18",
        ),
        (
            below(0x8, 0x10),
            "0x8 lies below the stack copy, which starts at 0x10",
        ),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(below(8, 16).address(), 8);
    assert_eq!(beyond(9, 16).address(), 9);
    assert_eq!(MemoryError::Unmapped { address: 7 }.address(), 7);
}

/// A memory without stack bounds.
struct Nothing;

impl Memory for Nothing {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        Err(MemoryError::Unmapped { address })
    }
    fn read(&self, address: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        Err(MemoryError::Unmapped { address })
    }
}

#[test]
fn a_memory_need_not_know_stacks() {
    assert_eq!(Nothing.stack_bounds(0x1000), None);
}
