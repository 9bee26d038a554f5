//! The weight of a sample in a block: writer and reader agree.

use super::*;
use crate::model::{KernelSample, RecordedChain};
use crate::trace::tests::support::{sample, stack};
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::truth::Truth;

fn chain(addresses: usize) -> RecordedChain {
    RecordedChain {
        source: "perf".into(),
        ips: vec![1; addresses],
        request: None,
    }
}

#[test]
fn the_size_of_each_part_of_a_sample_is_counted() {
    let frame = TrueFrame {
        pc: 1,
        cfa: 2,
        kind: TrueKind::Call,
        saved: None,
    };
    let ring = BranchStack {
        depth: 32,
        hw_index: None,
        entries: vec![Branch { from: 1, to: 2 }; 2],
    };
    let kernel = KernelSample {
        release: "6.1".into(),
        ..KernelSample::default()
    };
    // The three bytes of the release, and the struct itself.
    let kernel_bytes = 3 + size_of::<KernelSample>() as u64;

    // Each part alone, then all of them: a part that is missed cannot be made up for by another.
    let nothing = sample(1, Vec::new());
    assert_eq!(weight(&nothing), 0);
    let regions = vec![stack(0x1000, 24, &[]), stack(0x5000, 8, &[])];
    let mut all = sample(1, regions);
    assert_eq!(weight(&all), 32);
    let mut one = nothing.clone();
    one.truth = Truth::Known(vec![frame; 3]);
    assert_eq!(weight(&one), 3 * 80);
    all.truth = one.truth;
    let mut one = nothing.clone();
    one.recorded = vec![chain(3), chain(4)];
    assert_eq!(weight(&one), 7 * 8);
    all.recorded = one.recorded;
    let mut one = nothing.clone();
    one.kernel = Some(Box::new(kernel));
    assert_eq!(weight(&one), kernel_bytes);
    all.kernel = one.kernel;
    let mut one = nothing;
    one.branches = vec![ring];
    assert_eq!(weight(&one), 2 * 16);
    all.branches = one.branches;
    assert_eq!(weight(&all), 32 + 240 + 56 + kernel_bytes + 32);
}
