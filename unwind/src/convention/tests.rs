//! What layers of spans, bytes, symbols and Go's table say.

use super::gopclntab::GoFunctions;
use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

fn span(range: Range<u64>, convention: Convention) -> Span {
    Span {
        range,
        convention,
        evidence: Evidence::Producer,
    }
}

fn of(spans: &[Span]) -> Conventions {
    let mut out = Conventions::default();
    out.overlay(spans.to_vec());
    out
}

/// The convention at each address below 12, by its first letter.
fn text(conventions: &Conventions) -> alloc::string::String {
    let letter = |at| conventions.at(at).0.as_str().chars().next();
    (0..12).filter_map(letter).collect()
}

#[test]
fn code_is_system_v_where_nothing_says_otherwise() {
    let none = Conventions::default();
    assert_eq!(none.at(7), (Convention::SystemV, Evidence::Nothing));
    assert!(none.is_system_v());
    let one = of(&[span(3..6, Convention::Go)]);
    assert_eq!(text(&one), "sssgggssssss");
    assert!(!one.is_system_v());
    assert_eq!(one.at(3), (Convention::Go, Evidence::Producer));
}

#[test]
fn a_layer_overrules_what_is_below_it_and_nothing_else() {
    use Convention::{Ghc, Go, Ocaml, SystemV, Zig};
    let mut all = of(&[span(1..5, Go), span(7..11, Ocaml)]);
    all.overlay(vec![span(3..8, Zig)]);
    assert_eq!(text(&all), "sggzzzzzooos");
    all.overlay(vec![span(8..9, SystemV), span(2..3, SystemV)]);
    assert_eq!(text(&all), "sgszzzzzsoos");
    // A span with a hole in it, and spans that overlap each other.
    let mut hole = of(&[span(0..12, Go)]);
    hole.overlay(vec![
        span(4..6, SystemV),
        span(5..8, Zig),
        span(9..9, Ocaml),
    ]);
    assert_eq!(text(&hole), "ggggsszzgggg");
    hole.overlay(vec![span(0..12, Ghc)]);
    assert_eq!(
        (text(&hole).as_str(), hole.spans().len()),
        ("gggggggggggg", 1)
    );
}

#[test]
fn bytes_give_the_same_conventions_and_damaged_ones_give_fewer() {
    let all: Vec<Span> = (0u64..)
        .zip(Convention::ALL)
        .map(|(n, c)| span(n * 8..n * 8 + 5, c))
        .collect();
    let all = of(&all);
    let bytes = all.encode();
    assert_eq!(Conventions::decode(&bytes), all);
    let count = all.spans().len();
    let cut = Conventions::decode(&bytes[..bytes.len() - 1]);
    assert_eq!(cut.spans(), &all.spans()[..count - 1]);
    for (at, byte) in [(16, 200), (17, 200)] {
        let mut bad = bytes.clone();
        bad[at] = byte;
        assert_eq!(Conventions::decode(&bad).spans().len(), count - 1, "{at}");
    }
    let mut wrapped = bytes.clone();
    wrapped[8..16].copy_from_slice(&[0xff; 8]);
    wrapped[0] = 1;
    assert_eq!(Conventions::decode(&wrapped).at(1).0, Convention::SystemV);
}

#[test]
fn ocaml_is_between_its_marks_but_for_what_c_calls() {
    for separator in ["__", ".", "$"] {
        let begin = alloc::format!("camlList{separator}code_begin");
        let end = alloc::format!("camlList{separator}code_end");

        let found = by_symbols(
            [
                (1, 0, begin.as_str()),
                (1, 2, "camlList.map"),
                (4, 0, end.as_str()),
                (4, 4, "main"),
                (8, 0, "caml_system__code_begin"),
                (8, 0, "caml_call_gc"),
                (9, 0, "caml_start_program"),
                (10, 0, "caml_raise_exn"),
                (11, 0, "caml_system__code_end"),
            ]
            .into_iter(),
        );

        // `o` for OCaml, `s` for System V, from address 0 on.
        assert_eq!(text(&found), "sooossssosos", "{separator}");
        assert_eq!(found.at(9).1, Evidence::Symbols);
    }

    // One mark alone says nothing, nor does a name that is only like one.
    let alone = [(1, 0, "camlList__code_begin"), (5, 0, "camlMap__code_end")];
    assert!(by_symbols(alone.iter().copied()).is_system_v());
    let others = [(1, 0, "mycode_begin"), (5, 0, "mycode_end")];
    assert!(by_symbols(others.iter().copied()).is_system_v());
    let swapped = [(5, 0, "camlList__code_begin"), (9, 0, "camlList__code_end")];
    assert_eq!(text(&by_symbols(swapped.iter().copied())), "sssssoooosss");
}

#[test]
fn go_needs_its_marks_and_its_runtime() {
    let all = [
        (1, 0, "runtime.text"),
        (3, 1, "runtime.goexit.abi0"),
        (6, 0, "runtime.etext"),
    ];
    assert_eq!(text(&by_symbols(all.iter().copied())), "sgggggssssss");
    for left_out in 0..all.len() {
        let mut some = all.to_vec();
        some.remove(left_out);
        assert!(by_symbols(some.iter().copied()).is_system_v(), "{left_out}");
    }
    let elsewhere = [
        (1, 0, "runtime.text"),
        (3, 0, "runtime.etext"),
        (6, 1, "runtime.goexit"),
    ];
    assert!(by_symbols(elsewhere.iter().copied()).is_system_v());
}

/// The table of two functions, 16 and 32 bytes long, from `text` on; the second one calls
/// `runtime.deferreturn` at its byte 7.
fn go_table(magic: u32, text: u64, said: u64) -> Vec<u8> {
    let mut out = magic.to_le_bytes().to_vec();
    // Two zeros, the least instruction size, the size of a pointer.
    out.extend([0, 0, 1, 8]);
    let is_old = magic == 0xffff_fffb;
    let is_short = matches!(magic, 0xffff_fff0 | 0xffff_fff1);

    let words: &[u64] = match (is_old, is_short) {
        (true, _) => &[2],
        (_, true) => &[2, 1, said, 0, 0, 0, 0, 72],
        _ => &[2, 1, 0, 0, 0, 0, 64],
    };
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));

    let list = out.len();
    let size = if is_short { 8 } else { 16 };
    let descriptions = 2 * size + size;
    let base = if is_old { list } else { 0 };
    // Behind the last function stands where it ends.
    for (index, start) in [0u64, 16, 48].into_iter().enumerate() {
        let description = (base + descriptions + 32 * index) as u64;
        if is_short {
            out.extend((start as u32).to_le_bytes());
            out.extend((description as u32).to_le_bytes());
        } else {
            out.extend((text + start).to_le_bytes());
            out.extend(description.to_le_bytes());
        }
    }

    for deferreturn in [0u32, 7] {
        let start = out.len();
        out.extend(vec![0; if is_short { 12 } else { 16 }]);
        out.extend(deferreturn.to_le_bytes());
        out.resize(start + 32, 0);
    }

    out
}

#[test]
fn every_version_of_gos_table_is_read() {
    for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
        let table = go_table(magic, 0x1000, 0x1000);
        let functions = GoFunctions::read(&table, || None).expect("a table");
        assert_eq!(functions.range(), Some(0x1000..0x1030), "{magic:#x}");
        let deferring: Vec<(u64, u64)> = functions.deferreturns().collect();
        assert_eq!(deferring, [(0x1010, 0x1017)], "{magic:#x}");
    }
    // The loader puts the address into the header.
    let table = go_table(0xffff_fff1, 0x1000, 0);
    assert!(GoFunctions::read(&table, || None).is_none());
    let functions = GoFunctions::read(&table, || Some(0x5000)).expect("a table");
    assert_eq!(functions.range(), Some(0x5000..0x5030));
}

#[test]
fn what_is_not_gos_table_is_none() {
    let good = go_table(0xffff_fff1, 0x1000, 0x1000);

    let is_read = |table: &[u8]| GoFunctions::read(table, || None).is_some();
    assert!(is_read(&good));

    // Magic number, zero, instruction size, pointer size, count, and where the list is.
    for (at, byte) in [
        (0, 0xf2),
        (4, 1),
        (6, 4),
        (7, 4),
        (8, 0),
        (15, 0x80),
        (64, 0xff),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(!is_read(&bad), "{at}");
    }

    // A count beyond the end, starts that descend.
    let mut long = good.clone();
    long[8] = 100;
    assert!(!is_read(&long));
    let mut descends = good.clone();
    descends[72 + 8] = 64;
    assert!(!is_read(&descends));

    for len in 0..good.len() - 64 {
        let _ = is_read(&good[..len]);
    }
}

#[test]
fn what_a_row_has_no_rule_for_is_claimed_if_the_function_keeps_it() {
    let bare = Rule::call(Value::reg(Reg::Rsp, 8));

    let unclaimed = |convention: Convention, rule: &Rule| {
        let lost = |reg: &Reg| convention.claimed(rule, true).saved(*reg) == Value::Undefined;
        Reg::CALLEE_SAVED
            .into_iter()
            .filter(lost)
            .collect::<Vec<Reg>>()
    };

    // With System V, an unmentioned register is kept; other conventions keep fewer or none.
    assert_eq!(unclaimed(Convention::SystemV, &bare), []);
    assert_eq!(unclaimed(Convention::Ocaml, &bare), Reg::CALLEE_SAVED);
    let but_rbp = [Reg::Rbx, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
    assert_eq!(unclaimed(Convention::Zig, &bare), but_rbp);

    // What a row says itself counts, whatever the convention.
    let said = bare
        .with_saved(Reg::R12, Value::at_cfa(-24))
        .with_saved(Reg::R13, Value::Same);
    let left = [Reg::Rbx, Reg::Rbp, Reg::R14, Reg::R15];
    assert_eq!(unclaimed(Convention::Go, &said), left);
    assert_eq!(Convention::Go.claimed(&said, true).cfa, said.cfa);

    // In SFrame and ORC, no word for a register is the word for an unchanged one.
    let unchanged = |is_dwarf| Convention::Ocaml.claimed(&said, is_dwarf).saved(Reg::R13);
    assert_eq!(
        (unchanged(true), unchanged(false)),
        (Value::Same, Value::Undefined)
    );
}

#[test]
fn names_and_numbers_come_back() {
    for (number, convention) in Convention::ALL.into_iter().enumerate() {
        assert_eq!(convention as usize, number);
        assert_eq!(Convention::from_name(convention.as_str()), Some(convention));
        // What a row claims without a rule, the function keeps.
        let claims = convention.claims();
        let kept = |reg: &Reg| convention.preserves().contains(*reg);
        let mut claimed = Reg::CALLEE_SAVED
            .into_iter()
            .filter(|reg| claims.contains(*reg));
        assert!(claimed.all(|reg| kept(&reg)), "{}", convention.as_str());
    }
    for (number, evidence) in Evidence::ALL.into_iter().enumerate() {
        assert_eq!(evidence as usize, number);
    }
    assert_eq!(Convention::from_name("cdecl"), None);
}
