//! What is shared with the previous sample, the limits of a sample, and its weight.

use super::*;

/// `new` frames of two bytes each.
fn frames(script: &mut Script, new: u64, shared: u64) {
    script.numbers(&[0, new, shared]);
    (0..new).for_each(|_| {
        script.byte(1).differences(&[1, 1]);
    });
}

#[test]
fn outer_frames_are_shared_with_the_sample_before() {
    let mut script = Script::new(KNOWN);
    frames(&mut script, 4, 0);
    script.thread(1, 0, KNOWN).no_regs();
    frames(&mut script, 2, 3);
    let pcs = |truth: Truth| -> Vec<u64> { truth.frames().iter().map(|f| f.pc).collect() };
    let decoder = script.decode(2).unwrap();
    assert_eq!(pcs(decoder.sample().truth), [1, 2, 2, 3, 4]);
    script.thread(1, 0, KNOWN).no_regs();
    let mut beyond = script.clone();
    frames(&mut script, 0, 5);
    let decoder = script.decode(3).unwrap();
    assert_eq!(pcs(decoder.sample().truth), [1, 2, 2, 3, 4]);
    frames(&mut beyond, 0, 6);
    let what = "more frames shared with the previous chain than it has";
    beyond.refused(3, what);
}

#[test]
fn a_true_chain_may_have_131072_frames_and_not_one_more() {
    const MAX: u64 = 131_072;
    let mut most = Script::new(KNOWN);
    frames(&mut most, MAX, 0);
    most.thread(1, 0, KNOWN).no_regs();
    let mut again = most.clone();
    frames(&mut again, 1, MAX - 1);
    let decoder = again.decode(2).unwrap();
    assert_eq!(decoder.sample().truth.frames().len() as u64, MAX);
    frames(&mut most, 1, MAX);
    let what = "more frames shared with the previous chain than it has";
    most.refused(2, what);
    let mut more = Script::new(KNOWN);
    more.numbers(&[0, MAX + 1]);
    more.refused(1, "more frames than a true chain may have");
}

/// One recorded chain of `new` consecutive addresses and `shared` addresses of the previous one.
fn chain(script: &mut Script, new: u64, shared: u64) {
    script.numbers(&[new, shared]);
    (0..new).for_each(|_| {
        script.differences(&[1]);
    });
}

fn source(script: &mut Script, name: &str) {
    script.numbers(&[0]);
    put_bytes(&mut script.records, name.as_bytes());
}

#[test]
fn recorded_chains_have_sources_and_share_their_outer_part_by_place() {
    let mut script = Script::new(presence::RECORDED);
    script.numbers(&[0, 2]);
    source(&mut script, "perf");
    chain(&mut script, 3, 0);
    source(&mut script, "gdb");
    chain(&mut script, 1, 0);

    // The two sources have changed places, so each chain shares with that of the other.
    script.thread(1, 0, presence::RECORDED).no_regs();
    // No regions; two chains; the first is of the second source.
    script.numbers(&[0, 2, 2]);
    chain(&mut script, 2, 2);
    script.numbers(&[1]);
    chain(&mut script, 0, 1);

    let recorded = |count| {
        let mut decoder = Decoder::default();
        let mut records = Cursor::new(&script.records, 0);
        for _ in 0..count {
            let mut literals = Cursor::new(&[], 0);
            decoder.step(&mut records, &mut literals).unwrap();
        }
        let chains = decoder.sample().recorded;
        chains
            .into_iter()
            .map(|c| (c.source, c.ips))
            .collect::<Vec<_>>()
    };

    let pair = |source: &str, ips: &[u64]| (source.to_owned(), ips.to_vec());
    assert_eq!(recorded(1), [pair("perf", &[1, 2, 3]), pair("gdb", &[1])]);
    assert_eq!(
        recorded(2),
        [pair("gdb", &[1, 2, 2, 3]), pair("perf", &[1])]
    );

    let mut script = Script::new(presence::RECORDED);
    // Number 1 is the first source that was named, and none was.
    script.numbers(&[0, 1, 1]);
    script.refused(1, "a source that was not named before");

    let mut script = Script::new(presence::RECORDED);
    script.numbers(&[0, 1]);
    source(&mut script, "perf");
    script.numbers(&[0, 1]);
    // The first chain of a thread has nothing to share.
    let what = "more addresses shared with the previous chain than it has";
    script.refused(1, what);
}

#[test]
fn a_sample_may_have_16_recorded_chains_and_not_one_more() {
    let mut script = Script::new(presence::RECORDED);
    script.numbers(&[0, 16]);
    source(&mut script, "perf");
    chain(&mut script, 0, 0);
    (0..15).for_each(|_| {
        script.numbers(&[1]);
        chain(&mut script, 0, 0);
    });
    assert_eq!(script.decode(1).unwrap().sample().recorded.len(), 16);
    let mut script = Script::new(presence::RECORDED);
    script.numbers(&[0, 17]);
    script.refused(1, "more recorded chains than allowed");
}

#[test]
fn recorded_chains_may_have_8192_addresses_together_and_not_one_more() {
    const MAX: u64 = 8192;

    // New and shared addresses count alike, across all chains.
    let script = |new: [u64; 2], shared: u64| {
        let mut script = Script::new(presence::RECORDED);
        script.numbers(&[0, 2]);
        source(&mut script, "perf");
        chain(&mut script, MAX - 1, 0);
        script.numbers(&[1]);
        chain(&mut script, 1, 0);
        script.thread(1, 0, presence::RECORDED).no_regs();
        script.numbers(&[0, 2, 1]);
        chain(&mut script, new[0], shared);
        script.numbers(&[1]);
        chain(&mut script, new[1], 0);
        script
    };

    let lengths = |script: &Script| {
        let recorded = script.decode(2).unwrap().sample().recorded;
        recorded.iter().map(|c| c.ips.len() as u64).sum::<u64>()
    };
    assert_eq!(lengths(&script([MAX, 0], 0)), MAX);
    assert_eq!(lengths(&script([5, 3], MAX - 8)), MAX);

    let (too_many, too_shared) = (
        "more recorded addresses than allowed",
        "more addresses shared with the previous chain than it has",
    );
    script([MAX + 1, 0], 0).refused(2, too_many);
    script([5, 4], MAX - 8).refused(2, too_many);
    // What the new ones leave of the limit bounds how many may be shared.
    script([6, 0], MAX - 5).refused(2, too_shared);
}

#[test]
fn kernel_and_branches_arrive_and_do_not_stay() {
    let mut script = Script::new(presence::KERNEL | presence::BRANCHES);
    script.numbers(&[0]);
    put_kernel(&mut script);
    // One ring of depth 32 with one record.
    script.numbers(&[1, 32, 0, 1, 0]).differences(&[5, 6]);
    let decoder = script.decode(1).unwrap();
    let sample = decoder.sample();
    assert_eq!(sample.kernel.unwrap().release, "6.1");
    assert_eq!((sample.branches.len(), sample.branches[0].depth), (1, 32));
    script.thread(1, 0, 0).no_regs().numbers(&[0]);
    let decoder = script.decode(2).unwrap();
    let sample = decoder.sample();
    assert_eq!((sample.kernel, sample.branches.len()), (None, 0));
}

fn put_kernel(script: &mut Script) {
    let kernel = KernelSample {
        release: "6.1".into(),
        ..KernelSample::default()
    };
    kernel::put_kernel(&kernel, &mut script.records);
}

/// Checks the weight of the samples, and that exactly this much fits under the limit.
fn weighs(script: &Script, expected: u64) {
    assert_eq!(script.decode(1).unwrap().weight, expected);
    let with = |weight| {
        let mut decoder = Decoder {
            weight,
            ..Decoder::default()
        };
        let mut records = Cursor::new(&script.records, 0);
        let mut literals = Cursor::new(&script.literals, 0);
        let step = decoder.step(&mut records, &mut literals);
        step.map_err(|bad| bad.what)
    };
    assert_eq!(CHUNK_DECODED_BYTES_MAX, 67_108_864);
    assert_eq!(with(CHUNK_DECODED_BYTES_MAX - expected), Ok(()));
    assert_eq!(with(CHUNK_DECODED_BYTES_MAX - expected + 1), Err(TOO_MUCH));
    assert_eq!(with(u64::MAX), Err(TOO_MUCH));
}

#[test]
fn the_size_of_each_part_of_a_sample_is_counted() {
    let mut regions = Script::new(0);
    regions.numbers(&[2]).region(0, 0x1000, &[1, 2, 3]);
    weighs(regions.region(1, 0x5000, &[4]), 32);

    // 80 bytes for each true frame, 8 for each address, 16 for each branch record
    // (`docs/trace-format.md`, "Sizes").
    let mut truth = Script::new(KNOWN);
    frames(&mut truth, 3, 0);
    weighs(&truth, 3 * 80);

    let mut recorded = Script::new(presence::RECORDED);
    recorded.numbers(&[0, 2]);
    source(&mut recorded, "perf");
    chain(&mut recorded, 3, 0);
    recorded.numbers(&[1]);
    chain(&mut recorded, 4, 0);
    weighs(&recorded, 7 * 8);

    let mut kernel = Script::new(presence::KERNEL);
    kernel.numbers(&[0]);
    put_kernel(&mut kernel);
    weighs(&kernel, 3 + size_of::<KernelSample>() as u64);

    let mut branches = Script::new(presence::BRANCHES);
    // No regions; one ring of 32 without the place of the newest; two new records, none shared.
    branches.numbers(&[0, 1, 32, 0, 2, 0]);
    weighs(branches.differences(&[5, 6, 5, 6]), 2 * 16);

    // All of them together.
    let all = presence::RECORDED | presence::KERNEL | presence::BRANCHES | KNOWN;
    let mut script = Script::new(all);
    script.numbers(&[1]).region(0, 0x1000, &[1, 2, 3]);
    // One new frame and none shared: a call, its pc and its CFA.
    script.numbers(&[1, 0]).byte(1).differences(&[1, 1]);
    script.numbers(&[1]);
    source(&mut script, "perf");
    chain(&mut script, 1, 0);
    put_kernel(&mut script);
    script.numbers(&[1, 32, 0, 1, 0]).differences(&[5, 6]);
    let kernel = 3 + size_of::<KernelSample>() as u64;
    weighs(&script, 24 + 80 + 8 + kernel + 16);
}

#[test]
fn shared_parts_count_as_much_as_new_ones() {
    let weight = |script: &Script| script.decode(2).unwrap().weight;
    let mut truth = Script::new(KNOWN);
    frames(&mut truth, 3, 0);
    truth.thread(1, 0, KNOWN).no_regs();
    frames(&mut truth, 0, 3);
    assert_eq!(weight(&truth), 6 * 80);
    let mut recorded = Script::new(presence::RECORDED);
    recorded.numbers(&[0, 1]);
    source(&mut recorded, "perf");
    chain(&mut recorded, 3, 0);
    recorded.thread(1, 0, presence::RECORDED).no_regs();
    recorded.numbers(&[0, 1, 1]);
    chain(&mut recorded, 0, 3);
    assert_eq!(weight(&recorded), 6 * 8);
}
