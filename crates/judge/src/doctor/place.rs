//! Code for which no row is to be expected: start files, trampolines; and rows that are there, but not
//! found.

use crate::whole;
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{Image, Mapping};
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::step::find_row;

/// The functions of GCC's and the C library's start files (crtbegin.o, crti.o), which end up in every
/// program and library.
const START_FILES: [&str; 6] = [
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
    "_init",
    "_fini",
];

/// How far the functions of crtbegin.o extend, bytes. GCC 4.8 to 15 make 176 to 224.
const CRTBEGIN: u64 = 0x100;
/// How far `_init` and `_fini` extend, bytes.
const CRTI: u64 = 32;
/// `lea tm(%rip), %rdi; lea end(%rip), %rax; cmp %rdi, %rax`, with which crtbegin.o begins.
const BEGIN: [(usize, &[u8]); 3] = [
    (0, &[0x48, 0x8d, 0x3d]),
    (7, &[0x48, 0x8d, 0x05]),
    (14, &[0x48, 0x39, 0xf8]),
];
/// The same with addresses below 2 GiB: `mov $tm, %eax; cmp $end, %rax; je`.
const BEGIN_FIXED: [(usize, &[u8]); 3] = [(0, &[0xb8]), (5, &[0x48, 0x3d]), (11, &[0x74])];
/// `sub $8, %rsp`, with which `_init` and `_fini` begin, and how `_fini` ends.
const SUB: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const ADD_RET: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];

/// Whether a function is one of GCC's crtbegin.o; those of crti.o are the C library's.
pub(super) fn is_of_gcc(name: &str) -> bool {
    START_FILES[..4].contains(&name)
}

/// How far a symbol of a start file, none of which has a size, names the code behind it, bytes.
/// `frame_dummy` is a jump, `_fini` moves rsp forth and back.
fn extent(name: &str) -> u64 {
    match name {
        "frame_dummy" | "_fini" => 16,
        "_init" => CRTI,
        _ => 64,
    }
}

/// Whether the symbol that is nearest to `svma` does not name it: that of a start file, which has no size,
/// before code without names.
pub(super) fn is_beyond_start_file(image: &Image, svma: u64) -> bool {
    let symbol = image.symbol(svma);
    symbol.is_some_and(|symbol| {
        symbol.size == 0
            && START_FILES.contains(&symbol.name.as_str())
            && svma.wrapping_sub(symbol.address) >= extent(&symbol.name)
    })
}

/// Whether the code at `svma` is of the start files: by its name, or, where it has none, by the bytes
/// that begin them, which are the same in every program. A row is not expected there.
pub(super) fn is_start_file(image: &Image, svma: u64, name: &str) -> bool {
    START_FILES.contains(&name)
        || name.is_empty() && (is_crtbegin(image, svma) || is_crti(image, svma))
}

fn is_crtbegin(image: &Image, svma: u64) -> bool {
    let (code, at) = around(image, svma, CRTBEGIN as usize);
    let fits = |at: usize, pattern: &[(usize, &[u8])]| {
        let is = |(skip, bytes): &(usize, &[u8])| {
            code.get(at + skip..)
                .is_some_and(|code| code.starts_with(bytes))
        };
        pattern.iter().all(is)
    };
    let mut starts = (0..=at.min(code.len())).rev();
    let begin = starts.find(|&at| fits(at, &BEGIN) || fits(at, &BEGIN_FIXED));
    let end = begin.and_then(|begin| crtbegin_end(&code, begin));
    end.is_some_and(|end| at < end)
}

/// The code around `svma`, as far as it is there, at most so many bytes in each direction, and the index
/// of `svma` in it.
fn around(image: &Image, svma: u64, most: usize) -> (Vec<u8>, usize) {
    let before = whole::code_before(image, svma, most);
    let code = [before, image.text_bytes(svma, most)].concat();
    (code, before.len())
}

/// Where the functions that begin at `begin` end: `frame_dummy`, the last, is a jump to
/// `register_tm_clones`, the second.
fn crtbegin_end(code: &[u8], begin: usize) -> Option<usize> {
    const SECOND: std::ops::RangeInclusive<usize> = 0x20..=0x60;
    let end = code.len().min(begin + CRTBEGIN as usize);
    let mut jumps = (begin..end.saturating_sub(5)).filter(|&at| code[at] == 0xe9);
    let jump = jumps.find(|&at| {
        let offset = [1, 2, 3, 4].map(|n| code[at + n]);
        let target = (at as i64 + 5).saturating_add(i32::from_le_bytes(offset).into());
        let skip = usize::try_from(target)
            .ok()
            .and_then(|to| to.checked_sub(begin));
        skip.is_some_and(|skip| SECOND.contains(&skip))
    });
    jump.map(|at| at + 5)
}

fn is_crti(image: &Image, svma: u64) -> bool {
    let (code, at) = around(image, svma, CRTI as usize);
    let Some(begin) = code.windows(4).take(at + 1).rposition(|w| w == SUB) else {
        return false;
    };
    let after = &code[begin + 4..];
    let end = after.windows(5).position(|w| w == ADD_RET);
    // `_fini` does nothing; `_init` calls `__gmon_start__` if it is there: mov, test, je, call.
    end.is_some_and(|end| {
        let is_init = end == 14 && after.starts_with(&[0x48, 0x8b, 0x05]);
        (end == 0 || is_init) && begin + 4 + end + 5 > at
    })
}

/// Whether an unwind table leads a walk through the code at `svma`.
pub(super) fn has_row(image: &Arc<Image>, svma: u64) -> bool {
    row(image, svma).is_some()
}

/// The row for the code at `svma`.
pub(super) fn row(image: &Arc<Image>, svma: u64) -> Option<Row> {
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    };
    find_row(&Dwarf::new(), &mapping, svma, &mut Cache::new()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_unwind::image::{Bytes, ImageParts, Section, SectionKind};

    /// An image with `code` at 0x1000, behind and before other code.
    fn image(code: &[u8]) -> Image {
        let around = vec![0x90; 0x200];
        Image::new(ImageParts {
            text: std::iter::once(0xe00..0x2000).collect(),
            sections: vec![Section {
                kind: SectionKind::Text,
                address: 0xe00,
                data: Bytes::from_vec([&around[..], code, &around[..]].concat()),
            }],
            ..ImageParts::default()
        })
    }

    /// crtbegin.o as GCC 12 links it into a library: the first and the last instructions.
    fn crtbegin() -> Vec<u8> {
        let mut code = vec![
            0x48, 0x8d, 0x3d, 1, 2, 3, 4, 0x48, 0x8d, 0x05, 1, 2, 3, 4, 0x48, 0x39, 0xf8,
        ];
        code.resize(0xb0, 0x90);
        // frame_dummy: endbr64; jmp register_tm_clones.
        code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xe9]);
        let next = code.len() as i32 + 4;
        code.extend((0x30 - next).to_le_bytes());
        code
    }

    #[test]
    fn start_files_are_known_by_their_bytes_up_to_their_end() {
        let code = crtbegin();
        let image = image(&code);
        let is = |svma| is_start_file(&image, svma, "");
        let end = 0x1000 + code.len() as u64;
        assert!(is(0x1000) && is(0x1085) && is(end - 1));
        assert!(!is(0xfff) && !is(end) && !is(end + 8));
        // A name decides.
        assert!(!is_start_file(&image, 0x1085, "main"));
        assert!(is_start_file(&image, end + 8, "frame_dummy"));
    }

    #[test]
    fn init_and_fini_are_known_by_their_bytes() {
        let fini = [0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xc3];
        let is = |code: &[u8], svma| is_start_file(&image(code), svma, "");
        assert!(is(&fini, 0x1004) && is(&fini, 0x1008));
        assert!(!is(&fini, 0x1009) && !is(&[0x90; 9], 0x1004));
        // Some other function that keeps the stack aligned.
        let other = [&fini[..4], &[0x31, 0xc0], &fini[4..]].concat();
        assert!(!is(&other, 0x1004));
    }

    /// Symbols of start files have no size, and name what follows them up to the next symbol.
    #[test]
    fn a_start_file_does_not_name_the_code_behind_it() {
        let image = Image::new(ImageParts {
            symbols: ["frame_dummy", "labels_of_assembly"]
                .into_iter()
                .zip([0x1000, 0x2000])
                .map(|(name, address)| unwind_sim_unwind::image::Symbol {
                    address,
                    size: 0,
                    name: name.to_owned(),
                })
                .collect(),
            ..ImageParts::default()
        });
        assert!(!is_beyond_start_file(&image, 0x1008));
        assert!(is_beyond_start_file(&image, 0x1029));
        assert!(!is_beyond_start_file(&image, 0x2800));
    }

    #[test]
    fn rows_are_looked_up_where_they_are() {
        use crate::whole::one_row::{RSP, rows};
        let with = |sections| {
            Arc::new(Image::new(ImageParts {
                text: std::iter::once(0x1000..0x1200).collect(),
                sections,
                ..ImageParts::default()
            }))
        };
        let image = with(vec![rows(0x1000..0x1100, RSP)]);
        assert!(has_row(&image, 0x1080) && !has_row(&image, 0x1180));
        assert!(!has_row(&with(Vec::new()), 0x1080));
    }
}
