//! Tests of what proofs share.

use super::*;
use unwind_sim_unwind::image::{Bytes, ImageParts, Section, Symbol};

/// An image of one instruction, `ret`, behind `before` bytes of `nop`.
fn image(before: usize, name: &str, symbol: &str) -> Arc<Image> {
    let code = [vec![0x90; before], vec![0xc3], vec![0xcc; 8 - before]].concat();
    let text = Section {
        kind: SectionKind::Text,
        address: 0x1000,
        data: Bytes::from_vec(code),
    };
    let start = Symbol {
        address: 0x1000,
        size: 8,
        name: symbol.into(),
    };
    Arc::new(Image::new(ImageParts {
        name: name.into(),
        text: std::iter::once(0x1000..0x1009).collect(),
        sections: vec![text],
        symbols: vec![start],
        ..ImageParts::default()
    }))
}

/// A recording that is read again has other images of the same files, whose code is followed once; what
/// differs in a byte or a name is not mistaken for the same.
#[test]
fn images_with_the_same_contents_are_proven_once() {
    let shelf = FileArena::default();
    let mut proofs = Proofs::new(&shelf, FinderOptions::default());
    for (image, places) in [
        (image(1, "a", "f"), 1),
        (image(1, "a", "f"), 1),
        (image(2, "a", "f"), 2),
        (image(1, "b", "f"), 3),
        (image(1, "a", "g"), 4),
        (image(2, "a", "f"), 4),
    ] {
        let place = proofs.place(&image);
        assert_eq!(place.image.symbols(), image.symbols());
        assert_eq!(
            place.image.sections()[0].data[..],
            image.sections()[0].data[..]
        );
        assert_eq!(place.image.name(), image.name());
        assert_eq!(proofs.places.len(), places);
    }
}
