//! What each reader rejects, at its limits and one beyond.

use super::*;
use alloc::vec::Vec;

const TEXT: Range<u64> = 0x1000..0x2000;

/// A sorted V3 section, loaded at 0, with one function of `size` bytes at 0x1000.
fn v3(size: u32, info: u8, info2: u8, rep_size: u8, fres: &[&[u8]]) -> Vec<u8> {
    let rows = fres.concat();
    let mut out = Vec::from([0xe2, 0xde, 3, 5, 3, 0, 0xf8, 0, 1, 0, 0, 0]);
    out.extend((fres.len() as u32).to_le_bytes());
    out.extend((rows.len() as u32 + 5).to_le_bytes());
    out.extend([0, 0, 0, 0, 16, 0, 0, 0]);
    out.extend((0x1000_i64 - 28).to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend([0; 4]);
    out.extend((fres.len() as u16).to_le_bytes());
    out.extend([info, info2, rep_size]);
    out.extend(rows);
    out
}

const ROW: &[u8] = &[0, 0x03, 8];

fn refused(result: Result<(), Malformed>) -> Option<&'static str> {
    result.err().map(|error| error.what)
}

/// Why `profile` rejects the table after `changes` (offset, new byte). V2 descriptors have another
/// size, so its counts are zero.
fn table(profile: Profile, changes: &[(usize, u8)]) -> Option<&'static str> {
    let mut bytes = v3(8, 0, 0, 0, &[ROW]);
    for &(at, new) in changes {
        bytes[at] = new;
    }
    let table = Table::parse(&bytes, 0).expect("a table");
    refused(profile.check_table(&table))
}

/// Why `profile` rejects the first function's rows up to the one at `offset`.
fn rows(profile: Profile, bytes: &[u8], offset: u64) -> Option<&'static str> {
    let table = Table::parse(bytes, 0).expect("a table");
    let fde = table.fde(0).expect("one").expect("a function");
    refused(profile.check_rows(&table, &fde, offset, &[TEXT]))
}

const LINUX: [Profile; 2] = [Profile::KernelV3, Profile::KernelV3Validate];

#[test]
fn names_lead_back_to_their_profiles() {
    let names = Profile::ALL.map(Profile::as_str);
    let expected = [
        "spec",
        "callsite",
        "kernel-v3",
        "kernel-v3-validate",
        "libsframe",
    ];
    assert_eq!(names, expected);

    for profile in Profile::ALL {
        assert_eq!(Profile::from_name(profile.as_str()), Some(profile));
    }
    assert_eq!(Profile::from_name("sframe"), None);

    // Each description says by a word of its own which reader is meant.
    let said = Profile::ALL.map(Profile::description);
    let words = [
        "specification",
        "ra - 1",
        "V3 reader",
        "CONFIG_SFRAME_VALIDATION",
        "libsframe",
    ];
    for (said, word) in said.into_iter().zip(words) {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn linux_rejects_a_table_that_it_cannot_search() {
    let order = "Linux needs a sorted table with PC-relative starts";
    let none = "Linux rejects a table without functions or rows";
    for profile in LINUX {
        assert_eq!(table(profile, &[]), None);
        for flags in [0, 1, 4] {
            assert_eq!(table(profile, &[(3, flags)]), Some(order), "{flags}");
        }
        assert_eq!(table(profile, &[(8, 0)]), Some(none), "no function");
        assert_eq!(table(profile, &[(12, 0)]), Some(none), "no row");
        // The rows start where the descriptors end; one byte earlier they overlap.
        let overlap = Some("the FREs overlap the FDEs");
        assert_eq!(table(profile, &[(24, 15)]), overlap);
        assert_eq!(table(profile, &[(24, 17), (16, 7)]), None);
    }
}

#[test]
fn libsframe_requires_the_rows_after_the_descriptors() {
    let lie_before = Some("the FREs lie before the FDEs");
    let at = |fdes, fres| table(Profile::Libsframe, &[(20, fdes), (24, fres)]);
    assert_eq!(at(0, 16), None);
    assert_eq!(at(4, 4), None);
    assert_eq!(at(5, 4), lie_before);
    assert_eq!(at(8, 0), lie_before);
}

#[test]
fn a_row_is_read_up_to_the_one_looked_for() {
    let bytes = v3(8, 0, 0, 0, &[ROW, &[4, 0x03, 8], &[4, 0x03, 8]]);
    let repeated = Some("row starts do not increase");
    for profile in LINUX {
        assert_eq!(rows(profile, &bytes, 3), None);
        assert_eq!(rows(profile, &bytes, 4), repeated);
    }
    assert_eq!(rows(Profile::Libsframe, &bytes, 4), None);
}

#[test]
fn linux_requires_rows_inside_the_function_or_its_block() {
    let outside = Some("Linux rejects a row that starts past the end of its function");
    for (info, rep_size, limit) in [(0, 0, 40), (0x10, 16, 16)] {
        for (start, expected) in [(limit - 1, None), (limit, outside)] {
            let bytes = v3(40, info, 0, rep_size, &[ROW, &[start, 0x03, 8]]);
            assert_eq!(rows(Profile::KernelV3, &bytes, u64::MAX), expected);
            assert_eq!(rows(Profile::Libsframe, &bytes, u64::MAX), None);
        }
    }
}

#[test]
fn libsframe_takes_six_data_words() {
    let row = |count: u8| {
        let mut row = Vec::from([0, count << 1]);
        row.resize(2 + usize::from(count), 0);
        v3(8, 0, 0, 0, &[&row])
    };
    let too_many = Some("libsframe accepts at most 6 data words");
    assert_eq!(rows(Profile::Libsframe, &row(6), 0), None);
    assert_eq!(rows(Profile::Libsframe, &row(7), 0), too_many);
    assert_eq!(rows(Profile::Libsframe, &row(9), 0), too_many);
}

#[test]
fn linux_allows_at_most_one_row_per_byte() {
    let too_many = Some("more rows than the function has bytes");
    let two: &[&[u8]] = &[ROW, &[1, 0x03, 8]];
    for (size, expected) in [(3, None), (2, None), (1, too_many)] {
        assert_eq!(
            rows(Profile::KernelV3, &v3(size, 0, 0, 0, two), 0),
            expected
        );
    }
    let three: &[&[u8]] = &[ROW, &[1, 0x03, 8], &[2, 0x03, 8]];
    assert_eq!(rows(Profile::KernelV3, &v3(1, 0, 0, 0, three), 0), too_many);
}

#[test]
fn linux_rejects_padding_words_at_the_end() {
    let ends = Some("a flexible row ends in a padding word");
    let cases: [(&[u8], Option<&'static str>); 5] = [
        (&[0x39, 8], None),
        (&[0x39, 8, 0], ends),
        (&[0x39, 8, 0, 2, 0xf0], None),
        (&[0x39, 8, 2, 0xf8, 0], ends),
        (&[0x39, 8, 0, 0], ends),
    ];
    for (words, expected) in cases {
        let row = [&[0, (words.len() as u8) << 1], words].concat();
        let bytes = v3(8, 0, 1, 0, &[&row]);
        assert_eq!(rows(Profile::KernelV3, &bytes, 0), expected, "{words:x?}");
        assert_eq!(rows(Profile::Libsframe, &bytes, 0), None, "{words:x?}");
    }
}

#[test]
fn linux_requires_a_cfa_that_is_a_multiple_of_eight() {
    let unaligned = Some("the CFA is not aligned to 8");
    for (offset, expected) in [(8, None), (12, unaligned), (-4, unaligned)] {
        for reg in [Reg::Rsp, Reg::Rbp] {
            let rule = Rule::call(Value::reg(reg, offset));
            for profile in LINUX {
                assert_eq!(refused(profile.check_cfa(&rule, || 3)), expected);
            }
            assert_eq!(refused(Profile::Spec.check_cfa(&rule, || 3)), None);
        }
        // The value of another register is unknown.
        let rule = Rule::call(Value::reg(Reg::R10, offset));
        assert_eq!(refused(Profile::KernelV3.check_cfa(&rule, || 3)), None);
    }
    let rule = Rule::call(Value::reg(Reg::Rsp, 1));
    let error = Profile::KernelV3.check_cfa(&rule, || 3);
    assert_eq!(error.map_err(|error| error.offset), Err(3));
}
