//! Where entries stand, the lookup table, and what encodings say differently.

use super::*;
use unwind_sim_unwind::orc::{Blocks, Sorted, Table};

const ENCODING: Encoding = Encoding::since_5_12(Layout::V6_4);

fn cfa(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

fn add(writer: &mut OrcWriter, start: u64, size: u32, rules: &[(u32, Rule)]) {
    let row = |rule: &Rule| writer.row(rule).expect("an entry");
    let rows: Vec<_> = rules.iter().map(|(at, rule)| (*at, row(rule))).collect();
    let function = Function {
        start,
        size,
        repeat: None,
        signal: false,
        rows: &rows,
    };
    writer.function(&function).expect("a function");
}

#[test]
fn gaps_and_both_ends_of_the_text_are_undefined() {
    let mut writer = OrcWriter::new(ENCODING, 0x1000..0x2000);
    add(&mut writer, 0x1010, 16, &[(0, cfa(8)), (4, cfa(16))]);
    // The entry goes on where the next function starts with the same one.
    add(&mut writer, 0x1020, 16, &[(0, cfa(16))]);
    add(&mut writer, 0x1040, 16, &[(0, cfa(16))]);
    let shown = writer.terminated().into_iter();
    let shown: Vec<_> = shown.map(|(at, entry)| format!("{at:x} {entry}")).collect();
    let expected = [
        "1000 (und)",
        "1010 type:call sp:sp+8 bp:(und) signal:0",
        "1014 type:call sp:sp+16 bp:(und) signal:0",
        "1030 (und)",
        "1040 type:call sp:sp+16 bp:(und) signal:0",
        "1050 (und)",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn the_lookup_table_is_the_one_that_linux_fills() {
    let text = 0x1000..0x5080;
    let mut writer = OrcWriter::new(ENCODING, text.clone());
    for i in 0..100 {
        let start = 0x1010 + i * 0x90;
        add(&mut writer, start, 0x40, &[(0, cfa(8)), (3, cfa(16))]);
    }

    let sections = writer.finish(0x8002).expect("sections");
    let [ips, entries, lookup, header] = &sections[..] else {
        panic!("{} sections", sections.len());
    };

    // The address that was asked for is not aligned, as the words have to be.
    assert_eq!(ips.address, 0x8004);
    assert_eq!(header.bytes.len(), 20);
    let table = Table::new(&entries.bytes, &ips.bytes, ips.address).expect("a table");
    let sorted = Sorted::new(table, None);
    assert_eq!(table.order(Layout::V6_4), None, "it is sorted");
    let blocks = Blocks::new(&sorted, text.start, text.end).expect("blocks");

    let slots = lookup
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|slot| u32::from_le_bytes(*slot));
    let slots: Vec<u32> = slots.collect();

    // One slot more than blocks, since a block is searched up to the next one's entry.
    assert_eq!(
        slots.len() as u64,
        (text.end - text.start).div_ceil(256) + 1
    );

    for address in text.step_by(7) {
        // As orc_find: within the slots of the block.
        let block = ((address - 0x1000) / 256) as usize;
        let found = blocks.find(&sorted, address).expect("an entry");
        let range = slots[block] as usize..=slots[block + 1] as usize;
        assert!(range.contains(&found), "{address:#x}: {found} in {range:?}");
        assert_eq!(Some(found), sorted.find(address));
    }
}

#[test]
fn text_is_limited_to_what_linux_maps() {
    let result = |size| {
        let mut writer = OrcWriter::new(ENCODING, 0x1000..0x1000 + size);
        add(&mut writer, 0x1010, 16, &[(0, cfa(8))]);
        writer.finish(0x8000).map(|_| ())
    };
    assert_eq!(result(TEXT_MAX), Ok(()));
    assert!(matches!(
        result(TEXT_MAX + 1),
        Err(WriteError::TextTooLarge { .. })
    ));
}

#[test]
fn an_indirect_sp_means_another_word_before_5_12() {
    let loaded = |offset, addend| Rule {
        cfa: Value::Load {
            base: Base::Reg(Reg::Rsp),
            offset,
            addend,
        },
        ..cfa(0)
    };
    let old = Encoding::ALL[0];

    // An addend in one, an offset in the other: each encoding has only one of the two.
    for (encoding, rule, fits) in [
        (old, loaded(8, 0), true),
        (old, loaded(0, 8), false),
        (ENCODING, loaded(0, 8), true),
        (ENCODING, loaded(8, 0), false),
    ] {
        let made = entry(&rule, encoding);
        assert_eq!(made.is_ok(), fits, "{encoding:?} {rule}");
        if let Ok(entry) = made {
            assert_eq!(
                entry.rule(encoding.sp_indirect),
                Ok(rule.with_saved(Reg::Rbp, Value::Same))
            );
        }
    }
}

#[test]
fn rax_and_signal_calls_need_their_layouts() {
    let rax = Rule::call(Value::reg(Reg::Rax, 0));
    let signal = Rule {
        kind: RuleKind::Signal,
        ..cfa(8)
    };
    let fits = |encoding: Encoding| {
        let writer = OrcWriter::new(encoding, 0..16);
        [rax, signal].map(|rule| writer.row(&rule).is_ok())
    };
    let all = Encoding::ALL.map(fits);
    let [t, f] = [true, false];
    assert_eq!(all, [[f, f], [f, f], [f, t], [f, t], [t, t]]);
}
