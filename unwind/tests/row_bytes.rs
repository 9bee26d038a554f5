//! What tables store for their rows: on a file whose bytes the book explains, and on files of this machine.

use crate::common::{FILES, image};
use std::path::Path;
use std::sync::Arc;
use unwind_sim_unwind::cache::{Cache, RowId};
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::{self, Dwarf};
use unwind_sim_unwind::elf::{ReadOptions, image_from_elf};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::row::{Row, TableKind};
use unwind_sim_unwind::row_bytes::row_bytes;
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::step::find_row;

/// The function `vla` of the file: its rows start at these addresses.
const VLA: [u64; 4] = [0x11b0, 0x11b4, 0x11c3, 0x11e0];

fn mapping() -> Mapping {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/sframe/t_2.46");
    let bytes = std::fs::read(path).expect("a file of the corpus");
    let read = image_from_elf("t_2.46", Arc::new(bytes), &ReadOptions::default());
    Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(Arc::new(read.expect("an ELF file"))),
        name: String::new(),
    }
}

/// The bytes of the rows at these addresses.
fn bytes(finder: &dyn Finder, addresses: &[u64]) -> Vec<String> {
    let mapping = mapping();
    let image = mapping.image.as_deref().expect("an image");
    let mut cache = Cache::new();
    let found = addresses.iter().map(|&address| {
        let row = find_row(finder, &mapping, address, &mut cache).expect("a row");
        let bytes = row_bytes(image, &row).expect("bytes");
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.join(" ")
    });
    found.collect()
}

/// As in "One CIE and one FDE, byte by byte": the first row is the CIE's, and the padding behind the last one is
/// left out.
#[test]
fn cfi_instructions_of_a_function() {
    assert_eq!(
        bytes(&Dwarf::new(), &VLA),
        [
            "0c 07 08 90 01",
            "44 0e 10 86 02",
            "4f 0d 06",
            "5d 0c 07 08"
        ]
    );
    // An address in the middle of a row has its row's.
    assert_eq!(bytes(&Dwarf::new(), &[0x11c2]), ["44 0e 10 86 02"]);
}

/// As in "One SFrame function and one ORC entry in bytes". A derived row has the bytes of the assembler's.
#[test]
fn fres_of_a_function() {
    let fres = ["00 03 08", "04 05 10 f0", "13 04 10 f0", "30 05 08 f0"];
    let stored = Sframe::new(Profile::Spec, Tables::Real);
    assert_eq!(bytes(&stored, &VLA), fres);
    let derived = Sframe::new(Profile::Spec, Tables::Derived);
    assert_eq!(bytes(&derived, &VLA), fres);
}

/// The register numbers are those of Linux 7.1: 2 is sp, 1 is bp.
#[test]
fn orc_entries_of_a_function() {
    let derived = Orc::new(None, Tables::Derived);
    let entries = bytes(&derived, &VLA);
    assert!(entries[0].starts_with("08 00 00 00 "), "{entries:?}");
    assert!(entries[1].starts_with("10 00 f0 ff "), "{entries:?}");
    assert_ne!(entries[1], entries[2], "sp is not bp");
    assert!(
        entries.iter().all(|entry| entry.len() == 6 * 3 - 1),
        "{entries:?}"
    );
}

/// The bytes of all rows behind the first one are what its FDE has from there on, without its padding.
fn check_units(image: &Image) -> usize {
    let mut cache = Cache::new();
    let section = image.section(SectionKind::EhFrame).expect("a table");
    let mut checked = 0;
    for unit in dwarf::units(image, TableKind::EhFrame).flatten().take(500) {
        let made = dwarf::compile_unit(image, TableKind::EhFrame, unit.offset, &mut cache);
        let rows: Vec<RowId> = made.map_or(Vec::new(), |unit| cache.unit_rows(unit).collect());
        let mut joined = Vec::new();
        let mut start = None;
        for &id in rows.iter().skip(1) {
            let row = Row {
                rule: *cache.rule(id),
                source: cache.source(id),
            };
            let bytes = row_bytes(image, &row).expect("bytes");
            assert!(!bytes.is_empty());
            start.get_or_insert(row.source.row_offset as usize);
            joined.extend(bytes);
        }

        let Some(start) = start else { continue };
        let at = unit.offset as usize;
        let length = section.data[at..at + 4].try_into().expect("four bytes");
        let end = at + 4 + u32::from_le_bytes(length) as usize;
        let behind = start + joined.len();
        assert_eq!(
            section.data[start..behind],
            joined,
            "{}+{at:#x}",
            image.name()
        );
        let padding = &section.data[behind..end];
        assert!(
            padding.iter().all(|&byte| byte == 0),
            "{}+{at:#x}",
            image.name()
        );
        checked += rows.len();
    }
    checked
}

#[test]
fn rows_have_all_bytes_of_their_unit_and_no_others() {
    let own = mapping();
    assert!(check_units(own.image.as_deref().expect("an image")) >= 15);
    for image in FILES.iter().filter_map(|path| image(path)) {
        check_units(&image);
    }
}

/// What is not there has no bytes, and is no error.
#[test]
fn rows_that_no_table_has() {
    let mapping = mapping();
    let image = mapping.image.as_deref().expect("an image");
    let row = find_row(&Dwarf::new(), &mapping, VLA[1], &mut Cache::new()).expect("a row");
    for (unit, offset) in [
        (0, 1),
        (1, 1),
        (u64::MAX, u64::MAX),
        (row.source.unit_offset, 3),
    ] {
        for table in [
            TableKind::EhFrame,
            TableKind::DebugFrame,
            TableKind::Sframe,
            TableKind::SframeDerived,
            TableKind::Orc,
            TableKind::FramePointer,
        ] {
            let mut wrong = row;
            wrong.source.table = table;
            wrong.source.unit_offset = unit;
            wrong.source.row_offset = offset;
            let bytes = row_bytes(image, &wrong);
            let is_derived = table == TableKind::SframeDerived && unit == row.source.unit_offset;
            assert_eq!(
                bytes.is_some(),
                is_derived,
                "{table:?} {unit:#x} {offset:#x}"
            );
        }
    }
}
