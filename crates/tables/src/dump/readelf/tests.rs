//! The names of registers, as the psABI numbers them.

use super::names;
use crate::dump::output::Text;

fn text(write: impl Fn(&mut Text<&mut Vec<u8>>)) -> String {
    let mut out = Vec::new();
    let mut text = Text::new(&mut out);
    write(&mut text);
    text.flush().expect("a vector");
    drop(text);
    String::from_utf8(out).expect("text")
}

#[test]
fn registers_have_the_names_of_the_psabi() {
    // The numbers at which ranges of registers begin and end, and some without a name.
    for (number, name) in [
        (0, "rax"),
        (1, "rdx"),
        (6, "rbp"),
        (16, "rip"),
        (17, "xmm0"),
        (32, "xmm15"),
        (33, "st0"),
        (41, "mm0"),
        (49, "rflags"),
        (56, "r56"),
        (59, "gs.base"),
        (66, "fsw"),
        (67, "xmm16"),
        (82, "xmm31"),
        (83, "r83"),
        (118, "k0"),
        (129, "bnd3"),
        (130, "r16"),
        (145, "r31"),
        (146, "r146"),
    ] {
        assert_eq!(text(|out| names::write(number, out)), name, "{number}");
    }
}

#[test]
fn a_register_in_a_register_is_shown_with_its_number() {
    assert_eq!(text(|out| names::write_source(0, out)), "r0 (rax)");
    assert_eq!(text(|out| names::write_source(60, out)), "r60");
    assert_eq!(text(|out| names::write_source(131, out)), "r131 (r17)");
}

#[test]
fn numbers_are_written_as_readelf_writes_them() {
    let shown = |value| text(|out| out.signed(value));
    assert_eq!(shown(0), "+0");
    assert_eq!(shown(-16), "-16");
    assert_eq!(shown(i64::MIN), "-9223372036854775808");
    assert_eq!(text(|out| out.hex::<8>(0x1_2345_abcd)), "2345abcd");
    assert_eq!(text(|out| out.hex::<16>(0x1f)), "000000000000001f");
    let padded = text(|out| {
        let mark = out.mark();
        out.text("c-8");
        out.pad(mark, 5);
        let mark = out.mark();
        out.text("r0 (rax)");
        out.pad(mark, 5);
    });
    assert_eq!(padded, "c-8   r0 (rax) ");
}
