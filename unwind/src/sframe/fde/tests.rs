//! Descriptors of each version, field by field, and their limits.

use super::*;
use crate::sframe::header::get as bytes_at;
use alloc::vec::Vec;

/// A 28-byte header, one descriptor, then `fres` bytes of rows.
fn header(version: Version, flags: u8, fre_len: u32) -> Header {
    Header {
        version,
        flags,
        cfa_fixed_fp_offset: 0,
        cfa_fixed_ra_offset: -8,
        auxhdr_len: 0,
        num_fdes: 1,
        num_fres: 1,
        fre_len,
        fdes: 28,
        fres: 28 + version.fde_len(),
    }
}

/// The section: start, size, offset of the rows, and the rest of the descriptor.
fn section(version: Version, start: i64, size: u32, fre_off: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from([0; 28]);
    match version {
        Version::V3 => bytes.extend(start.to_le_bytes()),
        Version::V1 | Version::V2 => bytes.extend((start as i32).to_le_bytes()),
    }
    bytes.extend(size.to_le_bytes());
    bytes.extend(fre_off.to_le_bytes());
    bytes.extend(rest);
    bytes.resize(100, 0);
    bytes
}

/// Number of rows, info and block size, as in version 2.
fn v2(num_fres: u32, info: u8, rep_size: u8) -> Vec<u8> {
    let mut rest = num_fres.to_le_bytes().to_vec();
    rest.extend([info, rep_size, 0, 0]);
    rest
}

fn what(result: Option<Result<Fde, Malformed>>) -> Result<Fde, &'static str> {
    result.expect("there is one").map_err(|m| m.what)
}

#[test]
fn versions_1_and_2_have_all_in_one_place() {
    for (version, rep_size) in [(Version::V1, V1_REP_SIZE), (Version::V2, 24)] {
        let header = header(version, 0, 40);
        let read = |info| {
            let bytes = section(version, -0x100, 0x55, 7, &v2(3, info, 24));
            what(read(&header, &bytes, 0x40_0000, 0))
        };

        let expected = Fde {
            index: 0,
            offset: 28,
            start: 0x40_0000 - 0x100,
            size: 0x55,
            fres: header.fres + 7,
            num_fres: 3,
            fre_type: FreType::Addr1,
            rep_size: None,
            flex: false,
            signal: false,
        };
        assert_eq!(read(0), Ok(expected));

        // The low four bits of the info byte.
        let typed = |fre_type| {
            Ok(Fde {
                fre_type,
                ..expected
            })
        };
        assert_eq!(read(1), typed(FreType::Addr2));
        assert_eq!(read(2), typed(FreType::Addr4));
        assert_eq!(read(3), Err("the FDE's FRE type is not 0, 1 or 2"));

        let rep_size = Some(rep_size);
        let masked = Ok(Fde {
            rep_size,
            ..expected
        });
        // PCMASK. V1 has no field for the size of a block.
        assert_eq!(read(0x10), masked);

        // Only version 3 has signal frames and flexible rows.
        assert_eq!(read(0x80), Ok(expected));
    }
}

#[test]
fn version_3_has_five_bytes_before_the_rows() {
    let header = header(Version::V3, 0, 40);
    let at = header.fres as usize + 7;
    let read = |info, info2, rep_size| {
        let mut bytes = section(Version::V3, 0x1_0000_0000, 0x55, 7, &[]);
        // The number of rows (0x103), info, info2, rep_size.
        bytes[at..at + 5].copy_from_slice(&[3, 1, info, info2, rep_size]);
        what(read(&header, &bytes, 0x40_0000, 0))
    };

    let expected = Fde {
        index: 0,
        offset: 28,
        start: 0x1_0040_0000,
        size: 0x55,
        fres: header.fres + 7 + 5,
        num_fres: 0x103,
        fre_type: FreType::Addr1,
        rep_size: None,
        flex: false,
        signal: false,
    };

    assert_eq!(read(0, 0, 24), Ok(expected));
    let flex = true;
    assert_eq!(read(0, 1, 0), Ok(Fde { flex, ..expected }));
    // The type is in the low five bits.
    assert_eq!(read(0, 0xe1, 0), Ok(Fde { flex, ..expected }));
    assert_eq!(read(0, 2, 0), Err("the FDE's type is not 0 or 1"));
    assert_eq!(read(0, 0x10, 0), Err("the FDE's type is not 0 or 1"));

    let signal = true;
    assert_eq!(read(0x80, 0, 0), Ok(Fde { signal, ..expected }));

    let rep_size = Some(24);
    let masked = Ok(Fde {
        rep_size,
        ..expected
    });
    assert_eq!(read(0x10, 0, 24), masked);
    assert_eq!(read(0x10, 0, 0), Err("a PCMASK FDE with rep_size 0"));
}

#[test]
fn starts_count_from_the_section_or_from_the_descriptor() {
    for version in [Version::V2, Version::V3] {
        for (flags, start) in [(0, 0x40_0010), (FLAG_FUNC_START_PCREL, 0x40_0010 + 28)] {
            let header = header(version, flags, 40);
            let bytes = section(version, 0x10, 1, 0, &v2(1, 0, 0));
            let fde = what(read(&header, &bytes, 0x40_0000, 0)).map(|f| f.start);
            assert_eq!(fde, Ok(start), "{version:?}");
        }
    }
}

#[test]
fn rows_must_lie_inside_the_fres() {
    let outside = "the FDE's rows lie outside the FREs";
    for (version, room) in [(Version::V2, 0), (Version::V3, 5)] {
        for (offset, fits) in [(40 - room, true), (40 - room + 1, false)] {
            let header = header(version, 0, 40);
            let bytes = section(version, 0, 1, offset, &v2(1, 0, 0));
            let found = read(&header, &bytes, 0, 0).expect("one");
            assert_eq!(found.is_ok(), fits, "{version:?} {offset}");
            if let Err(malformed) = found {
                let field = if version == Version::V3 { 8 } else { 4 };
                assert_eq!(malformed, Malformed::new(28 + field + 4, outside));
            }
        }
    }
}

#[test]
fn a_descriptor_after_the_last_is_none_and_a_truncated_one_is_an_error() {
    let header = header(Version::V2, 0, 0);
    let bytes = section(Version::V2, 0, 1, 0, &v2(1, 0, 0));
    assert_eq!(read(&header, &bytes, 0, 1), None);

    // At every field the section may end; only the padding at the end is not needed.
    let cut = |len: usize| what(read(&header, &bytes[..len], 0, 0));
    assert!(cut(28 + 18).is_ok());
    for len in [28, 31, 35, 39, 43, 45] {
        assert_eq!(cut(len), Err("the section ends within an FDE"), "{len}");
    }

    // The second descriptor follows the first.
    let two = Header {
        num_fdes: 2,
        ..header
    };
    let mut bytes = bytes;
    bytes.resize(28, 0);

    let len = Version::V2.fde_len() as usize;
    for start in [0x11, 0x22] {
        let one = section(Version::V2, start, 1, 0, &v2(1, 0, 0));
        bytes.extend_from_slice(&one[28..28 + len]);
    }

    let starts = [0, 1].map(|i| what(read(&two, &bytes, 0, i)).map(|f| (f.index, f.start)));
    assert_eq!(starts, [Ok((0, 0x11)), Ok((1, 0x22))]);
    assert_eq!(bytes_at::<1>(&bytes, 28), Some([0x11]));
}

#[test]
fn a_function_holds_its_addresses_and_repeats_its_blocks() {
    let bytes = section(Version::V2, 0x1000, 0x55, 0, &v2(1, 0x10, 16));
    let fde = what(read(&header(Version::V2, 0, 40), &bytes, 0, 0)).expect("an FDE");
    let inside = [0xfff, 0x1000, 0x1054, 0x1055].map(|pc| fde.contains(pc));
    assert_eq!(inside, [false, true, true, false]);
    let offsets = |fde: &Fde| [0x1000, 0x100f, 0x1010, 0x1025].map(|pc| fde.row_offset(pc));
    assert_eq!(offsets(&fde), [0, 15, 0, 5]);
    let rep_size = |rep_size, size| Fde {
        rep_size,
        size,
        ..fde
    };
    assert_eq!(offsets(&rep_size(None, 0x55)), [0, 15, 16, 0x25]);
    assert_eq!(offsets(&rep_size(Some(0), 0x55)), [0, 15, 16, 0x25]);
    let limits = [
        (Some(16), 0x55),
        (Some(16), 16),
        (Some(16), 9),
        (None, 0x55),
    ];
    let limits = limits.map(|(rep, size)| rep_size(rep, size).row_limit());
    assert_eq!(limits, [16, 16, 9, 0x55]);
}

#[test]
fn starts_of_rows_are_as_long_as_the_function_needs() {
    for (size, fre_type, len) in [
        (0, FreType::Addr1, 1),
        (0xff, FreType::Addr1, 1),
        (0x100, FreType::Addr2, 2),
        (0xffff, FreType::Addr2, 2),
        (0x1_0000, FreType::Addr4, 4),
    ] {
        assert_eq!(FreType::for_size(size), fre_type, "{size:#x}");
        assert_eq!(fre_type.byte_len(), len);
    }
}
