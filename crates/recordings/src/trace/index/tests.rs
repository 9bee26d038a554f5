//! Indexes of more than one block, and indexes with false locations.

use super::*;
use crate::trace::output::{Output, OutputOptions};
use crate::trace::tests::forged::Forged;
use std::sync::Arc;

/// The positions of the index blocks in the block list of a file with `blocks` other blocks.
fn indexes_among(blocks: usize) -> Vec<usize> {
    let options = OutputOptions {
        level: None,
        images_in_place: true,
    };
    let mut out = Output::new(Vec::new(), options).expect("writing to a Vec");
    for number in 0..blocks {
        let count = number as u32;
        let written = out.block(BlockType::Data, count, b"");
        written.expect("writing to a Vec");
    }
    out.finish().expect("writing to a Vec");
    let file: Owner = Arc::new(out.into_inner());
    let entries = from_index(&file).expect("a footer").expect("an index");
    let is_index = |i: &usize| entries[*i].is(BlockType::Index);
    let indexes: Vec<_> = (0..entries.len()).filter(is_index).collect();
    let others = entries.iter().filter(|e| e.is(BlockType::Data));
    let counts: Vec<_> = others.map(|e| e.count as usize).collect();
    assert_eq!(counts, (0..blocks).collect::<Vec<_>>(), "in order");
    assert_eq!(entries.len(), blocks + indexes.len());
    indexes
}

#[test]
fn after_65536_blocks_another_index_starts() {
    assert_eq!(indexes_among(65_535), [65_535]);
    assert_eq!(indexes_among(65_536), [65_536, 65_537]);
}

/// The entry of an empty block of this type at the start of a file.
fn first(block_type: BlockType) -> Entry {
    Entry {
        offset: FILE_HEADER_BYTES,
        number: block_type as u16,
        length: 0,
        count: 0,
    }
}

/// Reads a file with an invalid index; returns the error and the number of blocks found.
fn refused(file: Vec<u8>) -> (TraceErrorKind, usize) {
    let file: Owner = Arc::new(file);
    let blocks = find(&file);
    let cut = blocks.cut.expect("the index is refused");
    (cut.kind, blocks.entries.len())
}

#[test]
fn an_index_reaches_to_the_footer() {
    let mut forged = Forged::new();
    forged.block(BlockType::Data, 0, b"");
    let at = forged.at();
    let payload = encode(0, FILE_HEADER_BYTES, &[first(BlockType::Data)]);
    forged.block(BlockType::Index, 0, &payload);
    forged.block(BlockType::Data, 0, b"after the index");
    let (kind, blocks) = refused(forged.footer(at));
    assert!(matches!(kind, TraceErrorKind::IndexDiffers), "{kind}");
    assert_eq!(blocks, 3, "the block after it is found");
}

#[test]
fn another_block_is_not_an_index_whatever_it_holds() {
    let mut forged = Forged::new();
    forged.block(BlockType::Data, 0, b"");
    let at = forged.at();
    let payload = encode(0, FILE_HEADER_BYTES, &[first(BlockType::Data)]);
    forged.block(BlockType::Data, 0, &payload);
    let (kind, blocks) = refused(forged.footer(at));
    assert!(matches!(kind, TraceErrorKind::IndexDiffers), "{kind}");
    assert_eq!(blocks, 2);
}

#[test]
fn the_index_before_ends_where_this_one_starts() {
    // Two indexes with a block between them that the second one does or does not list.
    for (is_listed, is_sound) in [(true, true), (false, false)] {
        let mut forged = Forged::new();
        let before = forged.at();
        forged.block(BlockType::Index, 0, &encode(0, FILE_HEADER_BYTES, &[]));
        let between = forged.at();
        forged.block(BlockType::Data, 0, b"");
        let start = if is_listed { between } else { forged.at() };
        let entry = Entry {
            offset: between,
            ..first(BlockType::Data)
        };
        let listed = if is_listed { &[entry][..] } else { &[] };
        let file: Owner = Arc::new(forged.index(&encode(before, start, listed)));
        let blocks = find(&file);
        assert_eq!(blocks.cut.is_none(), is_sound);
        assert_eq!(blocks.entries.len(), 3);
    }
}
