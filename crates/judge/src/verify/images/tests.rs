//! Tests of finding images and of replacing the program's tables.

use super::*;
use crate::verify::fixture::program;
use unwind_sim_unwind::image::{Bytes, Section, Symbol};

const AT: Range<u64> = 0x70_0000..0x70_1000;
/// `nop; ret`
const CODE: [u8; 2] = [0x90, 0xc3];

/// A root with `/program` and `/library`, both with this code.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for name in ["program", "library"] {
        std::fs::write(root.path().join(name), program(&CODE)).expect("written");
    }
    root
}

fn mapping(images: &mut Images, path: &[u8]) -> Mapping {
    let file = MappedFile { path, offset: 0 };
    images.mapping(AT, Permissions::READ_EXECUTE, file)
}

fn section(kind: SectionKind, byte: u8) -> Section {
    Section {
        kind,
        address: u64::from(byte),
        data: Bytes::from_vec(vec![byte]),
    }
}

/// An image with code and a table that consist of this byte.
fn of_byte(byte: u8) -> Image {
    Image::new(ImageParts {
        name: format!("/lib/{byte}"),
        build_id: vec![byte],
        text: std::iter::once(0..u64::from(byte)).collect(),
        sections: vec![
            section(SectionKind::Text, byte),
            section(SectionKind::EhFrame, byte),
            section(SectionKind::Sframe, byte),
        ],
        symbols: vec![Symbol {
            address: u64::from(byte),
            size: 1,
            name: byte.to_string(),
        }],
    })
}

fn bytes(image: &Image, kind: SectionKind) -> Vec<Vec<u8>> {
    let sections = image.sections().iter().filter(|s| s.kind == kind);
    sections.map(|s| s.data.to_vec()).collect()
}

#[test]
fn a_mapped_file_below_the_root_has_its_image() {
    let root = root();
    let mut images = Images::new(Some(root.path().into()));
    let found = mapping(&mut images, b"/program");
    assert_eq!((found.range.clone(), &*found.name), (AT, "/program"));
    // The file says that its first byte is at 0x400000.
    assert_eq!(found.bias, AT.start - 0x40_0000);
    let image = found.image.expect("an image");
    assert_eq!(image.name(), "/program");
    assert_eq!(image.text_bytes(0x40_0078, 15), CODE);
    let again = mapping(&mut images, b"/program").image.expect("an image");
    assert_eq!(again.id(), image.id());
    let other = mapping(&mut images, b"/library").image.expect("an image");
    assert_ne!(other.id(), image.id());
}

#[test]
fn a_file_that_is_not_there_leaves_its_offsets() {
    let root = root();
    let mut images = Images::new(Some(root.path().into()));
    let file = MappedFile {
        path: b"/nothing\xff",
        offset: 0x3000,
    };
    let found = images.mapping(AT, Permissions::READ, file);
    assert!(found.image.is_none());
    assert_eq!((found.range, found.bias), (AT, AT.start - 0x3000));
    assert_eq!(found.name, "/nothing\u{fffd}");
}

#[test]
fn only_the_programs_tables_are_replaced_and_once() {
    let root = root();
    let mut images = Images::new(Some(root.path().into()));
    let own = mapping(&mut images, b"/program").image.expect("an image");
    images.replace_tables(b"/program".to_vec(), Arc::new(of_byte(7)));
    let replaced = mapping(&mut images, b"/program").image.expect("an image");
    assert_ne!(replaced.id(), own.id());
    assert_eq!(replaced.name(), "/program");
    assert_eq!(replaced.text_bytes(0x40_0078, 15), CODE);
    assert_eq!(bytes(&replaced, SectionKind::EhFrame), [[7]]);
    let again = mapping(&mut images, b"/program").image.expect("an image");
    assert_eq!(again.id(), replaced.id(), "made once");
    let library = mapping(&mut images, b"/library").image.expect("an image");
    assert_eq!(library.name(), "/library");
    assert_eq!(bytes(&library, SectionKind::EhFrame), [[0_u8; 0]; 0]);
    // Without a file there is nothing whose tables could be replaced.
    images.replace_tables(b"/nothing".to_vec(), Arc::new(of_byte(7)));
    assert!(mapping(&mut images, b"/nothing").image.is_none());
}

#[test]
fn code_and_names_stay_and_tables_are_the_others() {
    let (own, other) = (of_byte(1), of_byte(2));
    let made = with_tables(&own, &other);
    assert_eq!((made.name(), made.build_id()), ("/lib/1", &[1][..]));
    assert_eq!((made.text(), made.symbols()), (own.text(), own.symbols()));
    assert_eq!(bytes(&made, SectionKind::Text), [[1]]);
    assert_eq!(bytes(&made, SectionKind::EhFrame), [[2]]);
    assert_eq!(bytes(&made, SectionKind::Sframe), [[2]]);
    assert_eq!(made.sections().len(), 3);
}
