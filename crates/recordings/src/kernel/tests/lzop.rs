//! Output of lzop(1), version 1.04, complete and damaged.

use crate::kernel::lzop::{Bad, unpack};
use std::io::ErrorKind;

/// `lzop -9` of [`text`], as called by Linux's build: LZO1X-999, Adler-32 of the unpacked data.
const BEST: &str = "894c5a4f000d0a1a0a104020a0094003090300000d000000006b02202b0000000000257f022e0000016a\
     0000004eb1f87ba92f6c696e652030206f6620612074657874207468617420726570656174730a950331\
     3b7500323b7500333b7500343b7500353b7500363b7500373b7500383b7500393c34043db00437b40411\
     000000000000";

/// `lzop -1 -CC --crc32` of [`text`]: LZO1X-1(15), CRC-32 of packed and unpacked data.
const FAST: &str = "894c5a4f000d0a1a0a104020a0100102010300130c000000006b02202b0000000000f5437e880000016a\
     0000005eadb240f601ca0711000c6c696e652030206f6620612074657874207468617420726570656174\
     730a9503313b7500323b7500333b7500343b7500353b7500363b7500373b7500383b7500393b7500313d\
     b0042ab4040a7468617420726570656174730a11000000000000";

/// `lzop -9` of 24 incompressible bytes.
const STORED: &str = "894c5a4f000d0a1a0a104020a0094003090300000d000000006b02202b0000000000257f022e00000018\
     0000001897b40c69006e9e9044baf2eca82666682cb2fa04d05eaec0942a829c00000000";

/// Offset of the first block in these.
const HEADER: usize = 38;

fn text() -> Vec<u8> {
    let lines = (0..12).map(|n| format!("line {n} of a text that repeats\n"));
    lines.collect::<String>().into_bytes()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let pairs = digits.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("two digits"))
        .collect()
}

fn unpacked(data: &[u8]) -> Result<Vec<u8>, Bad> {
    let mut out = Vec::new();
    unpack(data, &mut out, 1 << 20).map(|()| out)
}

#[test]
fn lzop_files_are_unpacked() {
    assert_eq!(unpacked(&bytes(BEST)), Ok(text()));
    assert_eq!(unpacked(&bytes(FAST)), Ok(text()));
    let noise: Vec<u8> = (0..24_u32).map(|n| (n * n * 97 + 13 * n) as u8).collect();
    assert_eq!(unpacked(&bytes(STORED)), Ok(noise));
    // Data after the end is ignored.
    let more = [bytes(BEST), vec![1; 7]].concat();
    assert_eq!(unpacked(&more), Ok(text()));
}

#[test]
fn a_cut_says_where_the_data_ended() {
    for hex in [BEST, FAST, STORED] {
        let whole = bytes(hex);
        for len in 0..whole.len() {
            let (at, why) = unpacked(&whole[..len]).expect_err("cut");
            assert!(at <= len, "{at} of {len}");
            assert_eq!(why, ErrorKind::UnexpectedEof);
        }
    }
}

#[test]
fn no_bit_of_a_block_can_change_undetected() {
    for hex in [BEST, STORED] {
        let whole = bytes(hex);
        let original = unpacked(&whole).expect("as lzop wrote it");
        for bit in HEADER * 8..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            match unpacked(&changed) {
                Err((at, _)) => assert!(at >= HEADER, "{bit}: {at}"),
                // A match copied from a greater distance may be the same.
                Ok(same) => assert_eq!(same, original, "{bit}"),
            }
        }
    }
}

#[test]
fn other_methods_and_filters_are_not_supported() {
    let mut zlib = bytes(BEST);
    zlib[15] = 0x80;
    assert_eq!(unpacked(&zlib), Err((15, ErrorKind::Unsupported)));
    let mut filtered = bytes(BEST);
    filtered[19] |= 8;
    assert_eq!(unpacked(&filtered), Err((17, ErrorKind::Unsupported)));
}

#[test]
fn no_more_than_the_limit_and_a_block_is_unpacked() {
    let block = &bytes(BEST)[HEADER..][..90];
    let many = [&bytes(BEST)[..HEADER], &block.repeat(10)].concat();
    let mut out = Vec::new();
    assert_eq!(unpack(&many, &mut out, 1000), Ok(()));
    assert_eq!(out.len(), 3 * text().len());
}
