//! Boundaries of image blocks, and the limits on images.

use super::*;
use crate::trace::block::Block;
use crate::trace::output::OutputOptions;
use unwind_sim_unwind::image::{Bytes, ImageParts};

fn output() -> Output<Vec<u8>> {
    let options = OutputOptions {
        level: None,
        images_in_place: true,
    };
    Output::new(Vec::new(), options).expect("writing to a Vec")
}

fn section(length: usize) -> Section {
    Section {
        kind: SectionKind::Text,
        address: 0,
        data: Bytes::from_vec(vec![1; length]),
    }
}

/// A symbol that takes `bytes` bytes, at most 16,388.
fn symbol(bytes: usize) -> Symbol {
    // Address and size take one byte each, the name's length one, two or three.
    let length = match bytes - 2 {
        most if most <= 128 => 1,
        most if most <= 16_385 => 2,
        _ => 3,
    };
    Symbol {
        address: 0,
        size: 0,
        name: "x".repeat(bytes - 2 - length),
    }
}

/// The lengths of the blocks for sections of `lengths` bytes.
fn data_blocks(lengths: &[usize]) -> Vec<usize> {
    let sections: Vec<_> = lengths.iter().map(|length| section(*length)).collect();
    let mut out = output();
    let blocks = write_data(&mut out, &sections).expect("writing to a Vec");
    let bytes = out.into_inner();
    let length = |at: &u64| Block::at(&bytes, *at).map(|b| b.length() as usize);
    let lengths = blocks.iter().map(length);
    lengths.collect::<Result<_, _>>().expect("blocks are there")
}

#[test]
fn sections_share_blocks_and_are_torn_only_where_they_must() {
    const MAX: usize = 1 << 20;
    assert_eq!(data_blocks(&[]), [0; 0]);
    assert_eq!(data_blocks(&[0, 0]), [0; 0]);
    assert_eq!(data_blocks(&[8, 16]), [24]);
    // Full to the last byte, and one byte more.
    assert_eq!(data_blocks(&[8, MAX - 8]), [MAX]);
    assert_eq!(data_blocks(&[8, MAX - 7]), [8, MAX - 7]);
    // The largest section that fits into a block, and one that does not.
    assert_eq!(data_blocks(&[8, MAX]), [8, MAX]);
    assert_eq!(data_blocks(&[8, MAX + 1]), [MAX, 9]);
}

/// The number of symbols in each block, for symbols of `sizes` bytes.
fn symbol_blocks(sizes: &[usize]) -> Vec<u32> {
    let symbols: Vec<_> = sizes.iter().map(|bytes| symbol(*bytes)).collect();
    let mut out = output();
    let blocks = write_symbols(&mut out, &symbols).expect("writing to a Vec");
    let bytes = out.into_inner();
    let count = |at: &u64| Block::at(&bytes, *at).map(|b| b.count());
    let counts = blocks.iter().map(count);
    counts.collect::<Result<_, _>>().expect("blocks are there")
}

#[test]
fn a_symbols_block_is_closed_where_the_longest_name_would_not_fit() {
    // The maximum size at which a block stays open.
    const MOST: usize = (1 << 20) - (1 << 16) - 64;
    let largest = symbol(5 + 65_536);
    assert_eq!(largest.name.len(), 65_536);
    let sizes = |last: usize| {
        let mut sizes = vec![10_000; MOST / 10_000];
        sizes.push(MOST % 10_000 + last);
        sizes
    };
    assert_eq!(symbol_blocks(&[]), [0; 0]);
    assert_eq!(symbol_blocks(&[4, 4, 4]), [3]);
    let most = [sizes(0), vec![65_541]].concat();
    assert_eq!(symbol_blocks(&most), [100], "the longest name fits");
    let more = [sizes(1), vec![4]].concat();
    assert_eq!(symbol_blocks(&more), [99, 1]);
    assert_eq!(symbol_blocks(&sizes(1)), [99], "no empty block");
}

#[test]
fn all_images_together_have_a_gibibyte_and_eight_mebi_symbols() {
    // As after many images: the limits are on the sums.
    let mut images = ImageWriter {
        bytes: (1 << 30) - 300,
        symbols: (1 << 23) - 2,
        ..ImageWriter::default()
    };

    let mut write = |sections: &[Section], symbols: &[Symbol]| {
        let part = Part {
            name: "a",
            build_id: &[],
            text: &[],
            sections,
            symbols,
        };
        let written = images.write(&mut output(), ImageIndex(0), &part);
        let sums = (images.bytes, images.symbols);
        (written.err().map(|error| error.to_string()), sums)
    };

    let most = (1 << 30, 1 << 23);
    let (two, one) = ([symbol(4), symbol(4)], [symbol(4)]);
    assert_eq!(write(&[section(300)], &two), (None, most));

    let bytes = "bytes in the sections of all images: 1073741825 is more than the 1073741824 that \
                 a trace can hold";
    let symbols = "symbols: 8388609 is more than the 8388608 that a trace can hold";
    // What is refused does not count.
    assert_eq!(write(&[section(1)], &[]), (Some(bytes.into()), most));
    assert_eq!(write(&[], &one), (Some(symbols.into()), most));
    assert_eq!(write(&[], &[]), (None, most), "nothing more is all right");
}

#[test]
fn a_trace_may_have_1048576_images_and_not_one_more() {
    let mut images = ImageWriter {
        count: (1 << 20) - 1,
        ..ImageWriter::default()
    };
    let image = |id: u8| {
        Image::new(ImageParts {
            build_id: vec![id],
            ..ImageParts::default()
        })
    };
    let mut out = output();
    let last = images.add(&mut out, &image(1)).expect("it is the last");
    assert_eq!((last, images.count()), (ImageIndex((1 << 20) - 1), 1 << 20));
    let error = images.add(&mut out, &image(2)).expect_err("one too many");
    let message = "images: 1048577 is more than the 1048576 that a trace can hold";
    assert_eq!(error.to_string(), message);
}

/// An image with these bytes and this name, which is not part of its content.
fn named(name: &str, bytes: &[u8]) -> Arc<Image> {
    Arc::new(Image::new(ImageParts {
        name: name.to_owned(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: 0,
            data: Bytes::from_vec(bytes.to_vec()),
        }],
        ..ImageParts::default()
    }))
}

#[test]
fn images_are_kept_once_like_images_that_are_written() {
    let images = [
        named("a", b"one"),
        named("b", b"two"),
        named("c", b"one"),
        named("d", b"longer"),
        named("e", b"two"),
    ];
    let (mut kept, mut written, mut out) =
        (ImageWriter::default(), ImageWriter::default(), output());
    for (image, expected) in images.iter().zip([0, 1, 0, 2, 1]) {
        for _ in 0..2 {
            let index = kept.keep(image.clone()).expect("few images");
            assert_eq!(index, ImageIndex(expected), "{}", image.name());
            let other = written.add(&mut out, image).expect("writing to a Vec");
            assert_eq!(index, other);
        }
    }
    assert_eq!(kept.count(), 3);
    let names = kept.take_kept();
    let names: Vec<_> = names.iter().map(|image| image.name()).collect();
    assert_eq!(names, ["a", "b", "d"]);
}

#[test]
fn images_that_are_kept_have_the_limits_of_a_trace() {
    let mut images = ImageWriter {
        bytes: (1 << 30) - 3,
        ..ImageWriter::default()
    };
    images.keep(named("a", b"one")).expect("it fits");
    let error = images.keep(named("b", b"1")).expect_err("a byte too many");
    let message = "bytes in the sections of all images: 1073741825 is more than the 1073741824 that \
                   a trace can hold";
    assert_eq!(error.to_string(), message);
    images.count = 1 << 20;
    let error = images.keep(named("c", b"")).expect_err("one too many");
    assert!(error.to_string().starts_with("images: 1048577"), "{error}");
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    images.count = 1;
    let error = images.keep(named(&long, b"")).expect_err("too long a name");
    assert!(
        error.to_string().starts_with("bytes in the name"),
        "{error}"
    );
}
