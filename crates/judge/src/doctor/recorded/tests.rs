//! Chains without registers.

use super::*;
use std::sync::Arc;
use unwind_sim_recordings::model::{RecordedChain, Sample};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::{Image, ImageParts, Mapping};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;

/// What becomes of a chain of `length` user addresses in a file without table, behind a kernel part
/// of `kernel` addresses.
fn judged(kernel: usize, length: usize, max_stack: u16) -> Judged {
    const PERF_CONTEXT_KERNEL: u64 = -128_i64 as u64;
    const PERF_CONTEXT_USER: u64 = -512_i64 as u64;

    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0x1000..0x10_0000,
        bias: 0,
        image: Some(Arc::new(Image::new(ImageParts::default()))),
        name: "/bin/a".into(),
    });

    // `perf_event.h`: a marker says which context the addresses behind it belong to.
    let inside = std::iter::once(PERF_CONTEXT_KERNEL)
        .chain(std::iter::repeat_n(0xffff_ffff_8100_0000, kernel))
        .chain([PERF_CONTEXT_USER]);
    let ips = inside.chain((0..length as u64).map(|n| 0x2000 + 16 * n));

    let sample = Sample {
        recorded: vec![RecordedChain {
            source: "perf".into(),
            ips: ips.collect(),
            request: None,
        }],
        ..Sample::of_regs(SampleRegs::hardware(Regs::UNKNOWN))
    };

    let view = View {
        number: 0,
        sample: &sample,
        space: &space,
        pristine: None,
        stitched: &[],
        world: None,
    };

    let made = Made {
        max_stack,
        ..Made::default()
    };

    judge(&view, &made, &Dwarf::new(), &mut Cache::new()).expect("a chain")
}

/// Context markers do not count, kernel addresses do.
#[test]
fn a_full_chain_was_cut() {
    let is_cut = |kernel, length, max_stack| match judged(kernel, length, max_stack) {
        Judged::Broken(fault) => fault.kind == Kind::ChainCut,
        _ => false,
    };
    assert!(is_cut(0, 127, 0));
    assert!(is_cut(27, 100, 0));
    assert!(!is_cut(0, 126, 0));
    assert!(!is_cut(0, 300, 0), "the limit was another");
    assert!(is_cut(0, 40, 40));
    assert!(!is_cut(0, 127, 300));
    assert!(is_cut(0, 300, 300));
}
