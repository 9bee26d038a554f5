//! Which entries are ordinary, and which are valid.

use super::*;

const CALL: Entry = Entry::NULL;

#[test]
fn ordinary_entries_are_calls_and_registers_a_few_words_above_a_pointer() {
    let regs = Entry {
        kind: EntryType::Regs,
        signal: true,
        ..CALL
    };

    let partial = Entry {
        kind: EntryType::RegsPartial,
        ..regs
    };

    let sp = |sp_reg, sp_offset| Entry {
        sp_reg,
        sp_offset,
        ..CALL
    };
    let bp = |bp_reg, bp_offset| Entry {
        bp_reg,
        bp_offset,
        ..CALL
    };

    let cases = [
        (CALL, true),
        (sp(OrcReg::Sp, 16), true),
        (sp(OrcReg::Bp, 16), true),
        // A call's frame has at least the return address, and is made of words.
        (sp(OrcReg::Sp, 0), false),
        (sp(OrcReg::Sp, -8), false),
        (sp(OrcReg::Sp, 9), false),
        (sp(OrcReg::Sp, 12), false),
        (sp(OrcReg::R10, 8), false),
        (sp(OrcReg::SpIndirect, 8), false),
        // rbp is saved in a word below the return address.
        (bp(OrcReg::PrevSp, -16), true),
        (bp(OrcReg::PrevSp, -24), true),
        (bp(OrcReg::PrevSp, -15), false),
        (bp(OrcReg::PrevSp, -8), false),
        (bp(OrcReg::PrevSp, 16), false),
        // Without a register the offset is zero.
        (bp(OrcReg::Undefined, 8), false),
        (bp(OrcReg::Undefined, -16), false),
        (bp(OrcReg::Bp, 0), true),
        (
            Entry {
                signal: true,
                ..CALL
            },
            false,
        ),
        (regs, true),
        // Saved registers may be at any offset.
        (
            Entry {
                sp_offset: 0,
                ..regs
            },
            true,
        ),
        (
            Entry {
                sp_offset: -8,
                ..regs
            },
            true,
        ),
        (
            Entry {
                signal: false,
                ..regs
            },
            false,
        ),
        (
            Entry {
                sp_reg: OrcReg::Bp,
                ..regs
            },
            false,
        ),
        (
            Entry {
                bp_offset: 8,
                ..regs
            },
            false,
        ),
        (partial, false),
    ];

    for (entry, expected) in cases {
        assert_eq!(is_ordinary(&entry), expected, "{entry} {entry:?}");
    }
}

#[test]
fn valid_entries_have_the_registers_that_their_type_needs() {
    let bare = Entry::UNDEFINED;
    let end = Entry {
        kind: EntryType::EndOfStack,
        ..bare
    };

    let with_sp = |entry| Entry {
        sp_reg: OrcReg::Sp,
        ..entry
    };
    for layout in Layout::ALL {
        let old = layout <= Layout::V6_3;
        for entry in [bare, end] {
            assert_eq!(is_valid(&entry, layout), Some(false), "{layout:?}");
            let expected = old.then_some(false);
            assert_eq!(is_valid(&with_sp(entry), layout), expected, "{layout:?}");
        }

        assert_eq!(is_valid(&CALL, layout), Some(true));
        for bp_reg in [OrcReg::Undefined, OrcReg::PrevSp, OrcReg::Bp] {
            assert_eq!(is_valid(&Entry { bp_reg, ..CALL }, layout), Some(true));
        }
        for bp_reg in [OrcReg::Sp, OrcReg::BpIndirect, OrcReg::Ax] {
            assert_eq!(is_valid(&Entry { bp_reg, ..CALL }, layout), None);
        }

        for sp_reg in [OrcReg::Undefined, OrcReg::PrevSp] {
            assert_eq!(is_valid(&Entry { sp_reg, ..CALL }, layout), None);
        }
    }
}

#[test]
fn of_two_layouts_that_fit_alike_the_older_is_taken() {
    let by = |entries: &[u8], ips: &[u8]| {
        let table = Table::new(entries, ips, 0).expect("a table");
        by_entries(&table)
    };
    assert_eq!(by(&[], &[]), Some(Layout::V4_14));
    let call = CALL.encode(Layout::V7_1);
    assert_eq!(by(&call, &[0; 4]), Some(Layout::V7_1));
    let call = CALL.encode(Layout::V6_4);
    assert_eq!(by(&call, &[0; 4]), Some(Layout::V6_4));
}
