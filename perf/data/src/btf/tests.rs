//! Members, sizes, and sections that are damaged.

use super::*;

/// A section with these types and strings.
fn section(types: &[u32], strings: &[u8]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|w| w.to_le_bytes()).collect();
    let len = types.len() as u32;
    let header = [24, 0, len, len, strings.len() as u32];
    let mut out = vec![0x9f, 0xeb, 1, 0];
    out.extend(header.iter().flat_map(|w| w.to_le_bytes()));
    out.extend(types);
    out.extend(strings);
    out
}

const STRINGS: &[u8] = b"\0int\0s\0a\0b\0c\0d\0t\0p\0";
const INT: u32 = 1;
const S: u32 = 5;
const A: u32 = 7;
const B: u32 = 9;
const C: u32 = 11;
const D: u32 = 13;
const T: u32 = 15;
const P: u32 = 17;

/// `struct s { int a; union { int b; }; const t c[3]; int d : 3; t *p; }` with
/// `typedef struct { int a; int b; } t`.
fn example() -> Vec<u8> {
    let kind = |kind: u32, len: u32| kind << 24 | len;
    let types = [
        &[INT, kind(KIND_INT, 0), 4, 32][..],
        &[0, kind(KIND_UNION, 1), 4, B, 1, 0],
        &[0, kind(KIND_STRUCT, 2), 8, A, 1, 0, B, 1, 32],
        &[T, kind(KIND_TYPEDEF, 0), 3],
        &[0, kind(KIND_CONST, 0), 4],
        &[0, kind(KIND_ARRAY, 0), 0, 5, 1, 3],
        &[S, kind(KIND_STRUCT, 5) | 1 << 31, 48],
        &[A, 1, 0, 0, 2, 32, C, 6, 64, D, 1, 3 << 24 | 256, P, 8, 320],
        &[0, kind(KIND_PTR, 0), 4],
    ];
    section(&types.concat(), STRINGS)
}

#[test]
fn a_function_has_the_names_of_its_parameters() {
    let kind = |kind: u32, len: u32| kind << 24 | len;
    let types = [
        &[INT, kind(KIND_INT, 0), 4, 32][..],
        &[0, kind(KIND_FUNC_PROTO, 3), 1, B, 1, A, 1, 0, 1],
        &[S, kind(KIND_FUNC, 1), 2],
        // A function whose type is not one.
        &[T, kind(KIND_FUNC, 1), 1],
    ];
    let bytes = section(&types.concat(), STRINGS);
    let btf = Btf::parse(&bytes[..]).expect("sound");
    assert_eq!(btf.parameters("s"), Some(vec!["b", "a", ""]));
    for other in ["t", "a", "int", ""] {
        assert_eq!(btf.parameters(other), None, "{other:?}");
    }
}

#[test]
fn members_are_found_by_path_through_arrays_and_unnamed_unions() {
    let bytes = example();
    let btf = Btf::parse(&bytes[..]).expect("sound");
    assert_eq!(btf.extent("s", "a"), Some((0, 4)));
    assert_eq!(btf.extent("s", "b"), Some((4, 4)));
    assert_eq!(btf.extent("s", "c"), Some((8, 24)));
    assert_eq!(btf.extent("s", "c.b"), Some((12, 4)));
    assert_eq!(btf.extent("s", "d"), None, "a bit-field");
    assert_eq!(btf.extent("s", "e"), None);
    assert_eq!(btf.extent("t", "a"), None, "not a separate struct");
    assert_eq!(btf.extent("s", "p"), Some((40, 8)));
    assert_eq!(btf.size_of("s"), Some(48));
    // All of a name counts, and nothing behind it.
    for other in ["", "s\0", "s\0a", "st", "in"] {
        assert_eq!(btf.size_of(other).is_some(), other.is_empty(), "{other:?}");
    }
}

#[test]
fn the_first_structure_with_members_has_the_name() {
    let kind = |kind: u32, len: u32| kind << 24 | len;
    let types = [
        &[INT, kind(KIND_INT, 0), 4, 32][..],
        &[S, kind(KIND_STRUCT, 0), 0],
        &[S, kind(KIND_STRUCT, 1), 4, A, 1, 0],
        &[S, kind(KIND_STRUCT, 1), 8, A, 1, 32],
    ];
    let bytes = section(&types.concat(), STRINGS);
    let btf = Btf::parse(&bytes[..]).expect("sound");
    assert_eq!(btf.extent("s", "a"), Some((0, 4)));
    // A name that ends with the strings.
    let bytes = section(&types.concat(), &STRINGS[..S as usize + 1]);
    let btf = Btf::parse(&bytes[..]).expect("sound");
    assert_eq!(btf.size_of("s"), Some(4));
}

#[test]
fn a_type_that_holds_itself_ends() {
    let kind = KIND_STRUCT << 24 | 2;
    let own = section(&[S, kind, 8, 0, 1, 0, 0, 1, 0], STRINGS);
    let btf = Btf::parse(&own[..]).expect("readable");
    assert_eq!(btf.extent("s", "a"), None);
    let alias = section(&[S, KIND_TYPEDEF << 24, 1], STRINGS);
    let btf = Btf::parse(&alias[..]).expect("readable");
    assert!(btf.size(1).is_err());
}

#[test]
fn cut_short_or_overwritten_sections_do_not_panic() {
    let whole = example();
    for len in 0..whole.len() {
        let _ = Btf::parse(&whole[..len]).expect_err("cut short");
    }
    for at in 0..whole.len() {
        for byte in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if let Ok(btf) = Btf::parse(&bytes[..]) {
                let _ = (btf.extent("s", "c.b"), btf.size_of("s"));
            }
        }
    }
}
