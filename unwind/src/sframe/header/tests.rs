//! Headers: the position of each field, and the minimum size of a section.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

/// A header of `version` with `num_fdes` descriptors after it, then `fre_len` bytes of rows.
fn bytes(version: Version, num_fdes: u8, fre_len: u8) -> Vec<u8> {
    let mut bytes = Vec::from([0; 28]);
    bytes[..3].copy_from_slice(&[0xe2, 0xde, version as u8]);
    bytes[4..7].copy_from_slice(&[ABI_AMD64, 0xf0, 0xf8]);
    bytes[8] = num_fdes;
    bytes[12] = 5;
    bytes[16] = fre_len;
    bytes[24] = num_fdes * version.fde_len() as u8;
    bytes
}

fn refusal(bytes: &[u8]) -> (u64, &'static str) {
    let error = Header::parse(bytes).expect_err("a bad header");
    (error.offset, error.what)
}

#[test]
fn every_field_has_its_place() {
    let mut bytes = bytes(Version::V2, 0, 0);
    // Flags, the length of the auxiliary header, then the five words from offset 8 on.
    bytes[3] = 1;
    bytes[7] = 2;
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&0x0102_0304u32.to_le_bytes());
    bytes[16..20].copy_from_slice(&0x105u32.to_le_bytes());
    bytes[20..24].copy_from_slice(&0x201u32.to_le_bytes());
    bytes[24..28].copy_from_slice(&0x301u32.to_le_bytes());
    bytes.resize(2000, 0);

    // The two offsets count from the end of the header with its auxiliary part: 28 and 2 bytes.
    let header = Header {
        version: Version::V2,
        flags: 1,
        cfa_fixed_fp_offset: -16,
        cfa_fixed_ra_offset: -8,
        auxhdr_len: 2,
        num_fdes: 2,
        num_fres: 0x0102_0304,
        fre_len: 0x105,
        fdes: 30 + 0x201,
        fres: 30 + 0x301,
    };

    assert_eq!(Header::parse(&bytes), Ok(header));
    assert_eq!(header.fdes_end(), 30 + 0x201 + 40);
    assert_eq!(header.fres_end(), 30 + 0x301 + 0x105);
}

#[test]
fn a_section_holds_its_descriptors_and_its_rows_to_the_last_byte() {
    for version in [Version::V1, Version::V2, Version::V3] {
        let len = version.fde_len() as usize;

        // Without FDEs, with FDEs only, and with both.
        for (num_fdes, fre_len) in [(0, 0), (2, 0), (2, 9)] {
            let mut bytes = bytes(version, num_fdes, fre_len);
            let fdes = 28 + len * usize::from(num_fdes);
            bytes.resize(fdes + usize::from(fre_len), 0);
            assert!(Header::parse(&bytes).is_ok(), "{version:?} {num_fdes}");

            if fre_len != 0 {
                bytes.pop();
                let what = "the section ends within the FREs";
                assert_eq!(refusal(&bytes), (16, what), "{version:?}");
            }

            if num_fdes != 0 {
                bytes.truncate(fdes - 1);
                let what = "the section ends within the FDE array";
                assert_eq!(refusal(&bytes), (8, what), "{version:?}");
            }
        }
    }

    assert_eq!(
        refusal(&[0xe2; 27]),
        (0, "the section is shorter than its header")
    );
}

#[test]
fn other_formats_are_told_apart() {
    let changed = |at: usize, new: &[u8]| {
        let mut bytes = bytes(Version::V3, 0, 0);
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let big_endian = "big-endian; only AMD64 is supported";
    assert_eq!(refusal(&changed(0, &[0xde, 0xe2])), (0, big_endian));
    let no_magic = "no SFrame magic (0xdee2)";
    for magic in [[0xe2, 0xe2], [0, 0], [0xe3, 0xde], [0xe2, 0xdf]] {
        assert_eq!(refusal(&changed(0, &magic)), (0, no_magic), "{magic:x?}");
    }
    for version in [0, 4, 0xff] {
        let error = (2, "version is not 1, 2 or 3");
        assert_eq!(refusal(&changed(2, &[version])), error);
    }
    for abi in [0, 1, 2, 4] {
        let error = (4, "abi_arch is not AMD64 (3)");
        assert_eq!(refusal(&changed(4, &[abi])), error);
    }
}

#[test]
fn each_version_has_its_flags() {
    for (version, defined) in [(Version::V1, 3), (Version::V2, 7), (Version::V3, 5)] {
        for flags in 0..=0x0f {
            let mut bytes = bytes(version, 0, 0);
            bytes[3] = flags;
            match Header::parse(&bytes) {
                Ok(header) => {
                    assert_eq!(flags & !defined, 0, "{version:?} {flags:#x}");
                    let set = |flag: u8| header.has(1 << flag);
                    let found = (0..8).filter(|f| set(*f)).map(|f| 1 << f).sum::<u8>();
                    assert_eq!(found, flags);
                }
                Err(error) => {
                    assert_ne!(flags & !defined, 0, "{version:?} {flags:#x}");
                    assert_eq!(error, Malformed::new(3, "undefined flag"));
                }
            }
        }
    }
}

#[test]
fn an_error_says_where_it_stands() {
    let error = Malformed::new(0x1c, "undefined flag");
    assert_eq!(error.to_string(), ".sframe+0x1c: undefined flag");
    let reason = Reason::MalformedRow {
        section: ".sframe",
        offset: 0x1c,
        what: "undefined flag",
    };
    assert_eq!(Reason::from(error), reason);
}
