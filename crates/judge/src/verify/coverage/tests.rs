//! A small kernel with a section within another one, and addresses that were executed.

use super::{Coverage, Executed, of_addresses};
use unwind_sim_recordings::kernel::{CodeSection, KernelImage, KernelSymbols};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};

const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Where the table's addresses are.
const IPS: u64 = TEXT + 0x1000;

/// A section with another one inside, and one behind them, with functions and rows at these offsets.
fn kernel() -> KernelImage {
    let symbol = |&(offset, name): &(u64, &str)| Symbol {
        address: TEXT + offset,
        size: 0,
        name: name.to_owned(),
    };
    let functions = [
        (0, "first"),
        (0, "alias"),
        (0x10, "__pfx_inner"),
        (0x20, "__entry_text_start"),
        (0x20, "inner"),
        (0x40, "__entry_text_end"),
        (0x50, "last"),
        (0x100, "init"),
    ];
    let rows = [0u64, 4, 0x20, 0x28, 0x50, 0x100];
    let ips = rows.iter().enumerate().flat_map(|(number, row)| {
        let at = IPS + 4 * number as u64;
        ((TEXT + row).wrapping_sub(at) as i32).to_le_bytes()
    });
    let section = |kind, address, data: Vec<u8>| Section {
        kind,
        address,
        data: Bytes::from_vec(data),
    };
    let image = Image::new(ImageParts {
        text: vec![TEXT..TEXT + 0x80, TEXT + 0x100..TEXT + 0x110],
        symbols: functions.iter().map(symbol).collect(),
        sections: vec![
            section(SectionKind::OrcUnwindIp, IPS, ips.collect()),
            section(
                SectionKind::OrcUnwind,
                IPS + 0x100,
                [8, 0, 0, 0, 5, 0].repeat(6),
            ),
        ],
        ..ImageParts::default()
    });
    let named = |name: &str, from: u64, to: u64| CodeSection {
        name: name.to_owned(),
        range: TEXT + from..TEXT + to,
    };
    KernelImage {
        image: image.into(),
        sections: vec![
            named(".init.text", 0x100, 0x110),
            named(".text", 0, 0x80),
            named(".entry.text", 0x20, 0x40),
        ],
        ..KernelImage::of_symbols(KernelSymbols::default(), None)
    }
}

fn section(name: &str, functions: (u64, u64), rows: (u64, u64), addresses: u64) -> Coverage {
    let executed = |(executed, all)| Executed { executed, all };
    Coverage {
        section: name.to_owned(),
        functions: executed(functions),
        rows: executed(rows),
        addresses,
    }
}

#[test]
fn what_was_executed_counts_where_it_is() {
    // In `first`, in the first row of it and in its second one; in the middle of `inner`; and nowhere.
    let executed = [0, 5, 7, 0x2f, 0x300].map(|offset| TEXT + offset);
    let found = of_addresses(&kernel(), &executed);
    let wanted = [
        section(".text", (1, 2), (2, 3), 3),
        section(".entry.text", (1, 1), (1, 2), 1),
        section(".init.text", (0, 1), (0, 1), 0),
    ];
    assert_eq!(found, wanted);
    assert_eq!(Coverage::total(&found), section("", (2, 4), (3, 6), 4));
}

#[test]
fn shares_are_rounded_down() {
    let share = |executed, all| Executed { executed, all }.share();
    assert_eq!(share(2, 3), Some(6666));
    assert_eq!(share(3, 3), Some(10_000));
    assert_eq!(share(0, 0), None);
}
