//! Images: deduplicated, read in place, split over blocks, with additions.

use crate::model::ImageIndex;
use crate::trace::{BlockType, Meta, OutputOptions, Trace, TraceWriter, WriteError};
use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Doubt, Image, ImageParts, Section, SectionKind, Symbol};

fn section(kind: SectionKind, address: u64, length: usize) -> Section {
    let bytes = (0..length)
        .map(|i| ((i as u64 * 0x9e37_79b9) >> 13) as u8)
        .collect();
    Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    }
}

fn parts(name: &str) -> ImageParts {
    ImageParts {
        name: name.into(),
        build_id: vec![7; 20],
        text: std::iter::once(0x1000..0x2000).collect(),
        sections: vec![section(SectionKind::EhFrame, 0x5000, 300)],
        symbols: vec![Symbol {
            address: 0x1000,
            size: 1,
            name: "main".into(),
        }],
    }
}

fn writer(images_in_place: bool) -> TraceWriter<Vec<u8>> {
    let options = OutputOptions {
        images_in_place,
        ..OutputOptions::default()
    };
    TraceWriter::with_options(Vec::new(), &Meta::default(), options).unwrap()
}

fn contents(image: &Image) -> Vec<(SectionKind, u64, Vec<u8>)> {
    image
        .sections()
        .iter()
        .map(|s| (s.kind, s.address, s.data.to_vec()))
        .collect()
}

#[test]
fn one_content_is_written_once_under_its_first_name() {
    let mut writer = writer(false);
    let image = Image::new(parts("/usr/lib/a"));
    assert_eq!(writer.add_image(&image).unwrap(), ImageIndex(0));

    // What was written already must not be written again, also under another name.
    let size = writer.get_mut().len();
    assert_eq!(writer.add_image(&image).unwrap(), ImageIndex(0));
    assert_eq!(
        writer.add_image(&Image::new(parts("/lib/a"))).unwrap(),
        ImageIndex(0)
    );
    assert_eq!(writer.get_mut().len(), size);

    // All parts but the name say which image it is.
    let changes: [fn(&mut ImageParts); 4] = [
        |p| p.build_id[0] = 8,
        |p| p.text[0].end += 1,
        |p| p.sections[0].address += 1,
        |p| p.symbols[0].size += 1,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut other = parts("/usr/lib/a");
        change(&mut other);
        let index = writer.add_image(&Image::new(other)).unwrap();
        assert_eq!(index, ImageIndex(i as u32 + 1));
    }

    let trace = Trace::from_bytes(writer.finish().unwrap()).unwrap();
    assert_eq!(trace.images().len(), 5);
    assert_eq!(trace.images()[0].name(), "/usr/lib/a");
}

#[test]
fn sections_in_one_uncompressed_block_are_not_copied() {
    // The first two fit into a block of 1 MiB each, but not together; the third needs several.
    let mut with = parts("a");
    with.sections
        .push(section(SectionKind::Text, 0x1000, 900_000));
    with.sections
        .push(section(SectionKind::DebugFrame, 0, 300_000));
    with.sections
        .push(section(SectionKind::OrcUnwind, 0, 3 << 20));
    with.sections.push(section(SectionKind::Got, 0x9000, 0));

    let image = Image::new(with);
    for in_place in [true, false] {
        let mut writer = writer(in_place);
        writer.add_image(&image).unwrap();
        // The location of a static slice is known.
        let file: &'static [u8] = writer.finish().unwrap().leak();
        let trace = Trace::from_bytes(file).unwrap();
        let read = &trace.images()[0];
        assert_eq!(contents(read), contents(&image));

        let file = addresses(file);
        for s in read.sections().iter().filter(|s| !s.data.is_empty()) {
            let inside = file.contains(&addresses(&s.data).start);
            let whole = s.data.len() <= 1 << 20;
            assert_eq!(inside, in_place && whole, "{:?}", s.kind);
        }
    }
}

fn addresses(bytes: &[u8]) -> Range<usize> {
    let range = bytes.as_ptr_range();
    range.start as usize..range.end as usize
}

#[test]
fn images_can_be_added_to() {
    let mut writer = writer(false);
    let index = writer.add_image(&Image::new(parts("a"))).unwrap();

    let more = ImageParts {
        text: std::iter::once(0x8000..0x9000).collect(),
        sections: vec![section(SectionKind::Text, 0x1100, 64)],
        symbols: vec![Symbol {
            address: 0x1100,
            size: 64,
            name: "leaf".into(),
        }],
        ..ImageParts::default()
    };

    writer.extend_image(index, &more).unwrap();
    // Only an image that was written can be added to.
    let error = writer.extend_image(ImageIndex(1), &more).unwrap_err();
    assert!(matches!(error, WriteError::NoImage(1)));

    // The image no longer has the content under which it was registered.
    assert_eq!(
        writer.add_image(&Image::new(parts("b"))).unwrap(),
        ImageIndex(1)
    );

    let trace = Trace::from_bytes(writer.finish().unwrap()).unwrap();
    let image = &trace.images()[0];
    // The name in what was added, which is empty, does not count.
    assert_eq!((image.name(), image.text().len()), ("a", 2));
    assert_eq!(image.text_bytes(0x1100, 64).len(), 64);
    assert_eq!(image.symbol(0x1110).unwrap().name, "leaf");
    assert_eq!(trace.images()[1].symbols().len(), 1);
}

/// The mark of a doubt is kept, and makes a second image of the same content.
#[test]
fn doubts_are_kept() {
    let mut writer = writer(false);
    let image = Image::new(parts("a"));
    let doubts = [None, Some(Doubt::Likely), Some(Doubt::Certain)];
    for doubt in doubts {
        let marked = doubt.map(|doubt| image.with_doubt(doubt));
        writer.add_image(marked.as_ref().unwrap_or(&image)).unwrap();
    }
    let trace = Trace::from_bytes(writer.finish().unwrap()).unwrap();
    let kept = trace.images().iter().map(|image| image.doubt());
    assert_eq!(kept.collect::<Vec<_>>(), doubts);
}

#[test]
fn many_symbols_and_many_pieces_of_text() {
    let mut many = parts("a");
    let symbol = |i: u64| Symbol {
        address: i * 16,
        size: 16,
        name: format!("symbol_{i}"),
    };
    many.symbols = (0..100_000).map(symbol).collect();
    many.sections = (0..5000)
        .map(|i| section(SectionKind::Text, i * 4096, 40))
        .collect();
    let image = Image::new(many);
    let mut writer = writer(false);
    writer.add_image(&image).unwrap();
    let trace = Trace::from_bytes(writer.finish().unwrap()).unwrap();
    assert_eq!(trace.images()[0].symbols(), image.symbols());
    assert_eq!(contents(&trace.images()[0]), contents(&image));
    let symbols = trace
        .blocks()
        .filter(|b| b.block_type == Some(BlockType::Symbols));
    assert!(symbols.count() > 1);
}

#[test]
fn what_exceeds_the_format_is_refused() {
    let mut writer = writer(false);
    let mut long = parts("a");
    long.symbols[0].name = "x".repeat(65537);
    let error = writer.add_image(&Image::new(long)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bytes in the name of a symbol: 65537 is more than the 65536 that a trace can hold"
    );
    assert_eq!(
        writer.add_image(&Image::new(parts("a"))).unwrap(),
        ImageIndex(0)
    );
    let trace = Trace::from_bytes(writer.finish().unwrap()).unwrap();
    assert_eq!(trace.images().len(), 1);
}
