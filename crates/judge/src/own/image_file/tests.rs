//! Tests that read the files back with our own ELF reader and with readelf.

use super::*;
use std::process::Command;
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, ReadOptions};
use unwind_sim_unwind::image::{Bytes, ImageParts, Section, Symbol};

fn again(file: &[u8]) -> elf::Elf {
    let options = ReadOptions {
        symbols: true,
        plt: false,
        producers: false,
    };
    elf::read("again", Arc::new(file.to_vec()), &options).expect("an ELF file")
}

fn of_this_program() -> Image {
    let bytes = std::fs::read("/proc/self/exe").expect("this program");
    elf::image_from_elf("tests", Arc::new(bytes), &ReadOptions::default()).expect("an ELF file")
}

#[test]
fn what_is_written_is_read_back() {
    let image = of_this_program();
    let file = elf_file(&image).expect("not that large");

    let read = again(&file);
    assert_eq!(read.problems, []);
    let read = read.into_image();

    for section in image.sections() {
        let found = read.sections().iter().find(|s| s.kind == section.kind);
        match section.kind {
            kind if !kind.has_contents() => assert!(found.is_none()),
            // There may be several.
            SectionKind::Text => {
                // The start of a section shows that it is in its place.
                let length = section.data.len().min(64);
                let (at, bytes) = (section.address, &section.data[..length]);
                assert_eq!(read.text_bytes(at, length), bytes, "{at:#x}");
            }
            kind => {
                let found = found.expect("written");
                assert_eq!(found.address, section.address, "{kind:?}");
                assert_eq!(&found.data[..], &section.data[..], "{kind:?}");
            }
        }
    }

    let names = |image: &Image| {
        let symbols = image.symbols().iter();
        symbols
            .map(|s| (s.address, s.size, s.name.clone()))
            .collect::<Vec<_>>()
    };

    assert!(!image.symbols().is_empty());
    assert_eq!(names(&read), names(&image));
    assert!(image.text().iter().all(|range| read.is_text(range.start)));
}

#[test]
fn readelf_finds_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.elf");
    let file = elf_file(&of_this_program()).expect("not that large");
    std::fs::write(&path, file).expect("a file");
    let output = Command::new("readelf")
        .args(["-W", "-h", "-l", "-S", "-s"])
        .arg(&path)
        .output();
    let output = output.expect("readelf");
    let (text, faults) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );

    // readelf writes warnings to standard error, and may exit with 0 all the same.
    assert_eq!(faults, "");
    for part in ["GNU_EH_FRAME", ".eh_frame_hdr", ".symtab", ".shstrtab"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn code_that_is_not_known_has_its_addresses() {
    let table = Bytes::from_vec(vec![0; 4]);
    let image = Image::new(ImageParts {
        name: "/usr/bin/program".into(),
        text: vec![0x1000..0x1800, 0x2000..0x2100],
        sections: vec![
            Section {
                kind: SectionKind::Text,
                address: 0x1010,
                data: Bytes::from_vec(vec![0x90; 16]),
            },
            Section {
                kind: SectionKind::EhFrame,
                // Close to the last address, where its end must not overflow.
                address: u64::MAX - 8,
                data: table,
            },
        ],
        symbols: vec![Symbol {
            address: 0x1010,
            size: 4,
            name: "main".into(),
        }],
        ..ImageParts::default()
    });

    let read = again(&elf_file(&image).expect("small"));
    let spans: Vec<_> = read
        .segments
        .iter()
        .map(|s| (s.address, s.file_size))
        .collect();

    // Code without bytes has a segment at its address, with nothing of it in the file.
    assert_eq!(spans, [(0x1010, 16), (0x2000, 0), (u64::MAX - 8, 4)]);
    assert_eq!(read.parts.symbols[0].name, "main");
}
