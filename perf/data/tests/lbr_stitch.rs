//! `perf report --stitch-lbr`, by perf's text.

use unwind_sim_perf_data::lbr_stitch::{LbrStitcher, Stack};
use unwind_sim_perf_data::{BranchEntry, Order, Record};

/// The branch stacks of the recording, stitched.
#[test]
fn stitch_lbr_is_as_perf_does_it() {
    let bytes = crate::common::recording("LBR-stitch-grow.data");
    let file = unwind_sim_perf_data::PerfFile::parse(&bytes).unwrap();
    let caps = file.features().cpu_pmu_caps().unwrap().unwrap();

    // The depth of the ring is in the file, as a capability of the PMU.
    let (_, depth) = caps.iter().find(|(name, _)| *name == b"branches").unwrap();
    let depth: u32 = std::str::from_utf8(depth).unwrap().parse().unwrap();

    let mut stitcher: LbrStitcher<BranchEntry> = LbrStitcher::new(depth);
    let mut found = String::new();
    crate::common::each(&bytes, Order::Time, |event| {
        let Record::Sample(sample) = event.record else {
            return;
        };
        let branches = sample.branch_stack().unwrap().unwrap();
        let stack = Stack {
            entries: branches.entries().collect(),
            hw_index: branches.hw_index.unwrap(),
        };
        for address in stitcher.chain(sample.ip().unwrap(), stack) {
            found += &format!("{address:x} ");
        }
        found.push('\n');
    });

    // `perf script --stitch-lbr` 7.2 says so.
    let expected = [
        "400820 400710 400610 400510 400410 400310 400210 400110 400010 \n",
        "400b20 400a10 400910 400810 400710 400610 400510 400410 400310 400210 400110 400010 \n",
        "400d20 400c10 400b10 400a10 400910 400810 400710 400610 400510 400410 400310 400210 \
         400110 400010 \n",
    ];
    assert_eq!(found, expected.concat());
}
