//! What a break in the C library's start code means for walks by rbp and by rows.

use super::*;
use std::sync::Arc;
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageParts, Mapping, Symbol};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;

const START: u64 = 0x1000;

/// The kind of a break at frame `frame`, in the start code, of the walk by this unwinder.
fn kind(unwinder: &str, frame: usize, what: whole::Fault) -> Option<Kind> {
    let mut space = AddressSpace::new();
    let start_code = Symbol {
        address: START,
        size: 0x100,
        name: "__libc_start_main@@GLIBC_2.34".into(),
    };
    space.map(Mapping {
        range: START..START + 0x1000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts {
            symbols: vec![start_code],
            ..ImageParts::default()
        }))),
        name: "/lib/libc.so.6".into(),
    });
    let sample = Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN));
    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };
    let found = Break {
        frame,
        pc: CodeAddress::Return(START + 0x20),
        what,
    };
    let made = Made::default();
    let fault = of_break(&view, found, Reading::of(unwinder, &made), || false);
    fault.map(|fault| fault.kind)
}

#[test]
fn start_code_is_to_blame_only_for_its_frame_pointer() {
    let beyond = Reason::Memory(MemoryError::BeyondCopy {
        address: 0x8000,
        end: 0x7000,
    });
    let cut = whole::Fault::Ended(beyond);
    assert_eq!(kind("fp", 1, cut), Some(Kind::StartCode));
    // Its rows are right, and the copy is too short.
    assert_eq!(kind("dwarf", 1, cut), None);
    let no_frame_pointer = whole::Fault::FramePointersEnd;
    assert_eq!(kind("dwarf+fp", 1, no_frame_pointer), Some(Kind::StartCode));
    // The sample itself is there.
    let innermost = kind("fp", 0, whole::Fault::NoFramePointer);
    assert_eq!(innermost, Some(Kind::NoFramePointer));
}
