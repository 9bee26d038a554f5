//! Limits on the total size of all images: at the limit and just beyond.

use super::*;
use crate::trace::index;
use crate::trace::layout::FLAG_ZSTD;
use crate::trace::tests::forged::Forged;
use crate::trace::varint::put;

/// Reads the images of a file after others with this many bytes and symbols; returns the sums.
fn read_after(file: &[u8], bytes: u64, symbols: u64) -> Result<(u64, u64), String> {
    let file: Owner = Arc::new(file.to_vec());
    let entries = index::find(&file).entries;
    let mut reader = Reader {
        file: &file,
        entries: &entries,
        images: Vec::new(),
        data_end: 0,
        bytes,
        symbols,
    };
    for entry in entries.iter().filter(|e| e.is(BlockType::Image)) {
        reader.read(entry).map_err(|error| error.to_string())?;
    }
    Ok((reader.bytes, reader.symbols))
}

/// A file with an image that has these section lengths and data and symbols block offsets.
fn with_image(mut forged: Forged, lengths: &[u64], data: &[u64], symbols: &[u64]) -> Vec<u8> {
    let at = forged.at();
    let mut payload = vec![0, 0, 0, 0];
    put(&mut payload, lengths.len() as u64);
    for length in lengths {
        payload.extend([SectionKind::Text as u8, 0]);
        put(&mut payload, *length);
    }
    for blocks in [data, symbols] {
        put(&mut payload, blocks.len() as u64);
        blocks
            .iter()
            .for_each(|block| put(&mut payload, at - block));
    }
    forged.block(BlockType::Image, 0, &payload);
    forged.finish()
}

/// Data of 300 bytes, compressed or not, in a block at 16.
fn data(is_compressed: bool) -> Forged {
    let plain = [7; 300];
    let mut forged = Forged::new();
    if is_compressed {
        let packed = zstd::bulk::compress(&plain, 1).expect("it is compressed");
        forged.raw(BlockType::Data, 0, FLAG_ZSTD, 300, &packed);
    } else {
        forged.block(BlockType::Data, 0, &plain);
    }
    forged
}

/// A section of 16 bytes, split over two blocks.
fn torn() -> Vec<u8> {
    let mut forged = Forged::new();
    let first = forged.at();
    forged.block(BlockType::Data, 0, &[1; 10]);
    let second = forged.at();
    forged.block(BlockType::Data, 0, &[2; 6]);
    with_image(forged, &[16], &[first, second], &[])
}

#[test]
fn only_bytes_that_are_not_read_in_place_count() {
    let one = |is_compressed, lengths: &[u64]| {
        read_after(
            &with_image(data(is_compressed), lengths, &[16], &[]),
            1000,
            0,
        )
    };
    assert_eq!(one(false, &[300]), Ok((1000, 0)));
    assert_eq!(one(false, &[100, 200]), Ok((1000, 0)));
    assert_eq!(one(true, &[300]), Ok((1300, 0)));
    assert_eq!(one(true, &[100, 200]), Ok((1300, 0)), "once per block");
    assert_eq!(read_after(&torn(), 1000, 0), Ok((1016, 0)));
}

#[test]
fn a_gibibyte_of_sections_is_read_and_not_one_byte_more() {
    const MAX: u64 = 1 << 30;
    let message = "the images need more than 1073741824 bytes of memory for their sections";
    let packed = with_image(data(true), &[300], &[16], &[]);
    for (file, bytes) in [(packed, 300), (torn(), 16)] {
        assert_eq!(read_after(&file, MAX - bytes, 0), Ok((MAX, 0)));
        let error = read_after(&file, MAX - bytes + 1, 0).expect_err("too many bytes");
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn eight_mebi_symbols_are_read_and_not_one_more() {
    const MAX: u64 = 1 << 23;
    let mut forged = Forged::new();
    let symbols = forged.at();
    // Address, size and name of each symbol.
    let payload = b"\x02\x01\x01a\x02\x01\x01b";
    forged.block(BlockType::Symbols, 2, payload);
    let file = with_image(forged, &[], &[], &[symbols]);
    assert_eq!(read_after(&file, 0, 1000), Ok((0, 1002)));
    assert_eq!(read_after(&file, 0, MAX - 2), Ok((0, MAX)));
    let error = read_after(&file, 0, MAX - 1).expect_err("too many symbols");
    let message = "the images need more than 8388608 symbols";
    assert!(error.contains(message), "{error}");
}

#[test]
fn sections_use_their_data_to_the_last_byte() {
    let file = |length| with_image(data(false), &[length], &[16], &[]);
    assert_eq!(read_after(&file(300), 0, 0), Ok((0, 0)));
    for (length, message) in [
        (299, "the data blocks have more bytes than the sections"),
        (301, "sections are longer than the data blocks"),
    ] {
        let error = read_after(&file(length), 0, 0).expect_err(message);
        assert!(error.contains(message), "{error}");
    }
}
