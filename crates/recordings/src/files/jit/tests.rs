//! Maps as tools write them.

use super::*;

fn names(text: &str) -> Vec<(u64, u64, String)> {
    let symbols = perf_map(text.as_bytes()).into_iter();
    symbols.map(|s| (s.address, s.size, s.name)).collect()
}

fn expect(text: &str, expected: &[(u64, u64, &str)]) {
    let found = names(text);
    let found: Vec<_> = found.iter().map(|(a, s, n)| (*a, *s, n.as_str())).collect();
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn numbers_and_names_as_tools_write_them() {
    // Linux's documentation, HotSpot, a list without sizes, one with more spaces.
    expect("100 c f\n", &[(0x100, 12, "f")]);
    expect(
        "0x0000000000000100 0xc int T.leaf(int)\n",
        &[(0x100, 12, "int T.leaf(int)")],
    );
    expect("100 f\n200 add\n", &[(0x100, 0, "f"), (0x200, 0, "add")]);
    expect(
        "  100   c\tname of words \r\n",
        &[(0x100, 12, "name of words")],
    );
    expect("100 add one\n", &[(0x100, 0xadd, "one")]);
    expect("100 operator new\n", &[(0x100, 0, "operator new")]);
    expect("x c f\n100\n100 c\n\n", &[(0x100, 0, "c")]);
}

#[test]
fn later_lines_replace_earlier_ones() {
    expect("100 10 a\n100 20 b\n", &[(0x100, 0x20, "b")]);
    expect("100 10 a\nf8 10 b\n", &[(0xf8, 0x10, "b")]);
    expect(
        "f8 10 a\n100 10 b\n",
        &[(0xf8, 0x10, "a"), (0x100, 0x10, "b")],
    );
    expect(
        "100 10 a\n120 10 b\n140 10 c\n100 50 d\n",
        &[(0x100, 0x50, "d")],
    );
    expect(
        "100 10 a\n110 10 b\n",
        &[(0x100, 0x10, "a"), (0x110, 0x10, "b")],
    );
    expect(
        "100 50 stubs\n120 10 inner\n",
        &[(0x100, 0x50, "stubs"), (0x120, 0x10, "inner")],
    );
}

#[test]
fn a_symbol_without_a_size_reaches_to_the_next() {
    let mut symbols = perf_map("100 a\n180 8 b\n190 c\n".as_bytes());
    fill_sizes(&mut symbols, 0x1000);
    let sizes: Vec<u64> = symbols.iter().map(|s| s.size).collect();
    assert_eq!(sizes, [0x80, 8, 0xe70]);
}

#[test]
fn the_highest_address_belongs_to_the_symbol_that_was_written_last() {
    let top = "ffffffffffffffff 8 first\nfffffffffffffff0 10 second\nffffffffffffffff third\n";
    let symbols = perf_map(top.as_bytes());

    let names: Vec<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    assert_eq!(names, ["second", "third"]);
}
