//! Source lines below frames.

use super::*;
use crate::symbols::Symbol;
use unwind_sim_perf_data::{Mmap, MmapIdentity, PerfFile, misc};

/// Source lines of one file.
struct OneFile;

impl Symbols for OneFile {
    fn symbol(&mut self, _: &Object<'_>, _: u64) -> Option<Symbol<'_>> {
        None
    }

    fn source_line(&mut self, object: &Object<'_>, address: u64) -> SourceLine<'_> {
        match (object, address) {
            (Object::File { path, .. }, _) if !path.ends_with(b"lined") => {
                SourceLine::NoLines { address }
            }
            (Object::File { .. }, 0x1010) => SourceLine::Line {
                file: b"a.c",
                line: 7,
            },
            (Object::File { .. }, _) => SourceLine::Unknown,
            _ => SourceLine::NoLines { address },
        }
    }
}

fn said(object: &Object<'_>, address: u64) -> String {
    let place = LineKey {
        address,
        bias: 0x10,
        object: 1,
    };
    let mut out = Vec::new();
    source_line(&mut out, &mut OneFile, object, place);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_line_is_below_its_frame_and_what_has_none_is_named_in_short() {
    let file = |path| Object::File {
        path,
        build_id: b"",
    };

    // The file has lines for a part of its addresses.
    assert_eq!(said(&file(b"/opt/lined"), 0x1000), "\n  a.c:7");
    assert_eq!(said(&file(b"/opt/lined"), 0x2000), "");
    assert_eq!(
        said(&file(b"/lib/libc.so.6"), 0x1000),
        "\n  libc.so.6[1010]"
    );
    assert_eq!(said(&file(b"[vdso]"), 0x600), "\n  [vdso][610]");

    // The map of a JIT compiler is named by its process.
    let anonymous = |path| Object::Anonymous { path };
    assert_eq!(
        said(&anonymous(b"/tmp/perf-77.map"), 0),
        "\n  [JIT] tid 77[10]"
    );
    assert_eq!(said(&anonymous(b"[heap]"), 0), "\n  [heap][10]");

    let kernel = Object::Kernel(KernelPart::Core);
    assert_eq!(said(&kernel, 0), "\n  [kernel.kallsyms][10]");
    assert_eq!(said(&Object::Kernel(KernelPart::Module(b"ext4")), 0), "");

    let program = Object::Generated {
        name: b"bpf_prog_1",
        length: 64,
    };
    assert_eq!(said(&program, 0), "\n  bpf_prog_1[10]");
}

/// One symbol for all addresses.
struct OneSymbol;

impl Symbols for OneSymbol {
    fn symbol(&mut self, _: &Object<'_>, _: u64) -> Option<Symbol<'_>> {
        Some(Symbol {
            name: b"f",
            range: 0..u64::MAX,
        })
    }
}

/// Lines of all lengths around those of a block, asked for again after the cache was cleared, and
/// places that differ only in their object or only in their bias.
#[test]
fn each_place_has_its_own_line_of_any_length() {
    let bytes = include_bytes!("../../corpus/perfdata/dwarf.data");
    let mut tasks = Tasks::new(&PerfFile::parse(bytes).unwrap());
    let mut maps = Vec::new();

    // Paths of every length up to a limit, since a cached line has its length in front.
    for length in 0..200 {
        let path = [b"/".to_vec(), vec![b'x'; length]].concat();
        let mmap = Mmap {
            pid: 7,
            tid: 7,
            address: 0x1000,
            length: 0x1000,
            file_offset: 0,
            identity: MmapIdentity::Path,
            protection: 0,
            flags: 0,
            path: &path,
        };
        tasks.mmap(&mmap, misc::CPUMODE_USER);
        maps.push((tasks.maps(7)[0], String::from_utf8(path).unwrap()));
    }

    let mut lines = Lines::new(Fields::SYM.and(Fields::SYM_OFFSET).and(Fields::DSO), false);
    let mut out = Vec::new();
    for round in 0..3 {
        for (map, path) in &maps {
            // The same address of the process at two places of the file.
            for bias in [0, 0x10] {
                let map = Map { bias, ..*map };

                out.clear();
                lines.append(&tasks, &mut OneSymbol, Some(&map), 0x1234, &mut out);
                let offset = 0x1234 + bias;
                let expected = format!("            1234 f+0x{offset:x} ({path})");
                let text = String::from_utf8_lossy(&out);
                assert_eq!(text, format!("\t{expected}\n"), "round {round}");
                let place = lines.place(&tasks, &mut OneSymbol, Some(&map), 0x1234);
                assert_eq!(place, expected.as_bytes());
            }
        }
        out.clear();

        // An address outside of every mapping.
        lines.append(&tasks, &mut OneSymbol, None, 0, &mut out);
        assert_eq!(out, b"\t               0 [unknown] ([unknown])\n");
        assert!(lines.text.len() < 2 * KEPT_MAX, "{}", lines.text.len());
    }
}
