//! Source lines below frames.

use super::*;
use unwind_sim_recordings::symbols::Symbol;

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
    let place = Place {
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
    assert_eq!(said(&file(b"/opt/lined"), 0x1000), "\n  a.c:7");
    assert_eq!(said(&file(b"/opt/lined"), 0x2000), "");
    assert_eq!(
        said(&file(b"/lib/libc.so.6"), 0x1000),
        "\n  libc.so.6[1010]"
    );
    assert_eq!(said(&file(b"[vdso]"), 0x600), "\n  [vdso][610]");
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
