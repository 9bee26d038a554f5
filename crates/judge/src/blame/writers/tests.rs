//! Tests of who wrote code.

use super::*;

#[test]
fn compilers_and_linkers_are_told_apart() {
    let comment = b"\0Linker: LLD 15.0.6\0GCC: (GNU) 14.2.0\0clang version 15.0.6\0\
                    mold 2.30.0 (compatible with GNU ld)\0GCC: (GNU) 14.2.0\0";
    let (compilers, linkers) = tools(comment);
    assert_eq!(compilers, ["GCC: (GNU) 14.2.0", "clang version 15.0.6"]);
    assert_eq!(
        linkers,
        ["LLD 15.0.6", "mold 2.30.0 (compatible with GNU ld)"]
    );
    assert_eq!(gold_version(b"\x04\0\0\0GNU\0gold 1.16\0"), "gold 1.16");
    assert_eq!(gold_version(b""), "gold");
}

#[test]
fn a_producer_is_shown_without_its_options() {
    let shown = without_options("GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2");
    assert_eq!(shown, "GNU C17 12.2.0");
    let rust = "clang LLVM (rustc version 1.95.0 (abc 2026-04-01))";
    assert_eq!(without_options(rust), rust);
}

#[test]
fn an_author_is_shown_with_the_evidence() {
    let writer = |kind, tools: &[&str], source: Option<&str>, evidence| {
        let tools: Vec<String> = tools.iter().map(|&tool| tool.into()).collect();
        let source = source.map(str::to_owned);
        Writer {
            kind,
            tools,
            source,
            evidence,
        }
    };

    let gcc = "GNU C17 12.2.0";
    let all = [
        (
            writer(Kind::Compiler, &[gcc], None, Evidence::DebugInfo),
            "by GNU C17 12.2.0 (DW_AT_producer)",
        ),
        (
            writer(
                Kind::Either,
                &["GCC: 12", "clang 15"],
                None,
                Evidence::Comment,
            ),
            "by GCC: 12 or clang 15, or by hand (.comment)",
        ),
        (
            writer(
                Kind::Hand,
                &["GNU AS 2.40"],
                Some("a.S"),
                Evidence::DebugInfo,
            ),
            "by hand (a.S, GNU AS 2.40) (DW_AT_producer)",
        ),
        (
            writer(Kind::Linker, &["LLD 15"], None, Evidence::Section),
            "by LLD 15 (section)",
        ),
        (
            writer(
                Kind::Either,
                // Four are named (`NAMED_MAX`), the others counted.
                &["a", "b", "c", "d", "e", "f"],
                None,
                Evidence::Comment,
            ),
            "by a or b or c or d or 2 more, or by hand (.comment)",
        ),
    ];

    for (writer, shown) in all {
        assert_eq!(writer.to_string(), shown);
    }

    // `.comment` is of the whole file, and a person may have written a part of it.
    let either = writer(Kind::Either, &["GCC: 12"], None, Evidence::Comment);
    assert!(either.may_be(&["GCC"]) && !either.may_be(&["clang"]) && either.may_be_hand());

    // Whose tool is not known may be of any family.
    let unknown = writer(Kind::Unknown, &[], None, Evidence::None);
    assert!(unknown.may_be(&["clang"]) && unknown.may_be_hand());

    let linker = writer(Kind::Linker, &["LLD"], None, Evidence::Section);
    assert!(!linker.may_be_hand());
}
