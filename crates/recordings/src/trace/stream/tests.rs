//! The limit on the literal data of a samples block.

use super::*;
use crate::trace::layout::FLAG_ZSTD;
use crate::trace::tests::forged::Forged;

#[test]
fn literals_of_64_mib_are_gathered_and_not_one_byte_more() {
    const BLOCK: usize = 1 << 20;
    // Compressed, so that the file itself stays small.
    let packed = zstd::bulk::compress(&vec![7; BLOCK], 1).expect("it is compressed");
    let mut forged = Forged::new();
    let mut places = Vec::new();
    for _ in 0..64 {
        places.push(forged.at());
        forged.raw(BlockType::Data, 0, FLAG_ZSTD, BLOCK as u32, &packed);
    }
    places.push(forged.at());
    forged.block(BlockType::Data, 0, b"x");
    let samples = forged.at();
    // Refers to no data block: `gather` is called with the distances instead.
    forged.block(BlockType::Samples, 0, b"\x00\x00");
    let trace = Trace::from_bytes(forged.finish()).expect("it opens");
    let block = Block::at((*trace.file).as_ref(), samples).expect("it is there");
    let distances: Vec<_> = places.iter().map(|place| samples - place).collect();

    let own = b"its own";
    let most = gather(&trace, &block, &distances[..64], own).expect("64 MiB");
    assert_eq!(most.len(), 64 * BLOCK + own.len());
    assert!(most.ends_with(own) && most[64 * BLOCK - 1] == 7);
    drop(most);
    let error = gather(&trace, &block, &distances, own).expect_err("one byte more");
    let what = "the samples of a block come to more than 64 MiB";
    assert!(error.to_string().contains(what), "{error}");
}
