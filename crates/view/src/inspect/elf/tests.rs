//! Tests of SFrame tables that would take far longer to read than their size suggests.

use super::*;
use unwind_sim_unwind::image::{Bytes, ImageParts};

/// A V2 section of `functions` functions of `size` bytes that all share `rows` rows, which start at
/// 0, 1, 2 and so on (as four-byte offsets).
fn shared(functions: u32, size: u32, rows: u32) -> Section {
    let mut data = vec![0xe2, 0xde, 2, 0, 3, 0, 0xf8, 0];
    let words = [functions, rows, 6 * rows, 0, 20 * functions];
    data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    for number in 0..functions {
        let words = [0x1000 + number * size, size, 0, rows];
        data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        data.extend([2, 0, 0, 0]);
    }
    for start in 0..rows {
        data.extend(start.to_le_bytes());
        data.extend([3, 8]);
    }
    Section {
        kind: SectionKind::Sframe,
        address: 0,
        data: Bytes::from_vec(data),
    }
}

fn text(section: &Section) -> String {
    let image = Image::new(ImageParts {
        sections: vec![section.clone()],
        ..ImageParts::default()
    });
    let mut out = String::new();
    sframe_table(&mut out, &image, section);
    out
}

#[test]
fn rows_that_a_few_functions_share_are_read_for_each() {
    let out = text(&shared(8, 100, 100));
    assert!(out.contains("  FDEs          8 of 8: 0 flexible"), "{out}");
    assert!(out.contains("  FREs          100 of 100\n"), "{out}");
    assert!(out.contains("  malformed     0\n"), "{out}");
}

/// Reading every row for every function would take 240 million reads.
#[test]
fn rows_that_all_functions_share_are_not_read_for_all() {
    // In functions of one byte only the first row applies, but the others count too.
    for size in [12_000, 1] {
        let section = shared(20_000, size, 12_000);
        let budget = section.data.len() as u64 * ROWS_PER_BYTE_MAX;
        let cost = 12_000 + u64::from(size);
        let unread = 20_000 - budget.div_ceil(cost);
        let out = text(&section);
        assert!(out.contains("  FDEs          20000 of 20000: "), "{out}");
        assert!(out.contains("  FREs          12000 of 12000\n"), "{out}");
        let unread = format!("those of {unread} were not read");
        assert!(out.contains(&unread), "{size}: {out}");
    }
}
