//! Sections by symbols and by headers.

use super::{CodeSection, is_mark, sections};
use crate::kernel::KernelSymbols;

fn symbols() -> KernelSymbols {
    let map = "ffffffff81000000 T _stext\n\
               ffffffff81000100 T __entry_text_start\n\
               ffffffff81000100 T entry_SYSCALL_64\n\
               ffffffff81000200 T __entry_text_end\n\
               ffffffff81000300 T __sched_text_start\n\
               ffffffff81000300 T __sched_text_end\n\
               ffffffff81000400 T _etext\n\
               ffffffff81001000 T _sinittext\n\
               ffffffff81001010 T _einittext\n";
    KernelSymbols::from_map(map.as_bytes()).expect("a System.map")
}

fn text(sections: &[CodeSection]) -> Vec<(&str, u64, u64)> {
    let base = 0xffff_ffff_8100_0000;
    let all = sections.iter();
    all.map(|s| (&*s.name, s.range.start - base, s.range.end - base))
        .collect()
}

/// Empty parts and those without symbols are left out.
#[test]
fn symbols_say_where_sections_are_if_no_header_does() {
    assert_eq!(
        text(&sections(Vec::new(), &symbols())),
        [
            (".text", 0, 0x400),
            (".init.text", 0x1000, 0x1010),
            (".entry.text", 0x100, 0x200),
        ]
    );
}

#[test]
fn headers_come_first() {
    let header = |name: &str, from: u64, to: u64| CodeSection {
        name: name.to_owned(),
        range: 0xffff_ffff_8100_0000 + from..0xffff_ffff_8100_0000 + to,
    };
    let headers = vec![
        header(".text", 0, 0x1000),
        header(".entry.text", 0x100, 0x180),
    ];
    assert_eq!(
        text(&sections(headers, &symbols())),
        [(".text", 0, 0x1000), (".entry.text", 0x100, 0x180)]
    );
}

#[test]
fn marks_are_no_functions() {
    assert!(is_mark("__entry_text_end") && is_mark("_etext"));
    assert!(!is_mark("entry_SYSCALL_64"));
}
