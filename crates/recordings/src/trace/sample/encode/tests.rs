//! The size limits of a record, where the excess goes, and which slot a region gets.

use super::*;
use crate::model::RegionRole;
use crate::trace::sample::decode::Decoder;
use crate::trace::tests::support;
use crate::trace::varint::Cursor;
use std::borrow::Cow;
use unwind_sim_unwind::start::SampleRegs;

/// A sample without registers.
fn sample() -> Sample<'static> {
    Sample {
        regs: SampleRegs::hardware(Regs::UNKNOWN),
        ..support::sample(1, Vec::new())
    }
}

/// Encodes and decodes the samples, and returns the number of literal bytes of each.
#[track_caller]
fn literals_of(samples: &[Sample<'static>]) -> Vec<usize> {
    let mut encoder = Encoder::default();
    let (mut records, mut literals) = (Vec::new(), Vec::new());
    let mut sizes = Vec::new();
    for sample in samples {
        let before = literals.len();
        encoder.sample(sample, &mut records, &mut literals);
        sizes.push(literals.len() - before);
    }
    let mut decoder = Decoder::default();
    let (mut record, mut literal) = (Cursor::new(&records, 0), Cursor::new(&literals, 0));
    for sample in samples {
        decoder
            .step(&mut record, &mut literal)
            .expect("it is read again");
        assert!(decoder.sample() == *sample, "another sample came back");
    }
    sizes
}

/// A region of `words` words, all 7; if `is_changed`, every other one is 8.
fn region(address: u64, words: usize, is_changed: bool) -> Region<'static> {
    let odd = if is_changed { 8u64 } else { 7 };
    let word = |i: usize| if i.is_multiple_of(2) { 7 } else { odd };
    let bytes: Vec<u8> = (0..words).flat_map(|i| word(i).to_le_bytes()).collect();
    Region {
        role: RegionRole::Stack,
        bounds: 0..0,
        next_sp: 0,
        address,
        bytes: Cow::Owned(bytes),
    }
}

/// The literal words of a second sample in which every other word of each region has changed.
#[track_caller]
fn changed_words(regions: &[usize]) -> usize {
    let sample = |is_changed| {
        let places = (1u64..).map(|i| i << 32);
        let regions = places.zip(regions);
        Sample {
            regions: regions
                .map(|(place, words)| region(place, *words, is_changed))
                .collect(),
            ..sample()
        }
    };
    let sizes = literals_of(&[sample(false), sample(true)]);
    assert_eq!(sizes[0], 8 * regions.iter().sum::<usize>());
    assert_eq!(sizes[1] % 8, 0);
    sizes[1] / 8
}

#[test]
fn runs_of_64_kib_are_written_and_not_one_more() {
    assert_eq!(RUNS_BYTES_MAX, 65_536);
    // Two words take one run of two bytes.
    assert_eq!(changed_words(&[65_536]), 32_768);
    assert_eq!(changed_words(&[65_537]), 65_537, "written whole");
}

#[test]
fn all_regions_of_a_sample_share_the_runs() {
    assert_eq!(changed_words(&[32_768, 32_768]), 16_384 + 16_384);
    // The second region is written as literals, so the third can use the whole remaining budget.
    let third = [32_768, 32_769, 32_768];
    assert_eq!(changed_words(&third), 16_384 + 32_769 + 16_384);
    // No budget is left for the second region.
    assert_eq!(changed_words(&[65_536, 2]), 32_768 + 2);
}

/// Number of frames of a chain that are written, and whether the chain is still complete.
fn kept(frames: Vec<TrueFrame>) -> (usize, bool) {
    let mut written = sample();
    written.truth = Truth::Complete(frames);
    let kept = kept_frames(&written);
    let (mut records, mut literals) = (Vec::new(), Vec::new());
    Encoder::default().sample(&written, &mut records, &mut literals);
    assert!(records.len() < 512 << 10, "{}", records.len());
    let mut decoder = Decoder::default();
    let mut record = Cursor::new(&records, 0);
    decoder
        .step(&mut record, &mut Cursor::new(&literals, 0))
        .expect("it is read again");
    let truth = decoder.sample().truth;
    assert_eq!(truth.frames(), &written.truth.frames()[..kept]);
    (kept, truth.is_complete())
}

#[test]
fn a_true_chain_of_320_kib_is_written_and_not_one_byte_more() {
    assert_eq!(TRUTH_BYTES_MAX, 327_680);
    // Ten bytes each: one for the head, five for the pc, four for the CFA.
    let frame = |i: u64| TrueFrame {
        pc: i << 30,
        cfa: i << 24,
        kind: TrueKind::Call,
        saved: None,
    };
    let mut frames: Vec<_> = (1..=32_768).map(frame).collect();
    assert_eq!(kept(frames.clone()), (32_768, true));
    // One more byte for the last frame's CFA.
    frames[32_767].cfa += 1 << 30;
    assert_eq!(kept(frames), (32_767, false));
}

#[test]
fn frames_that_need_the_most_bytes_are_counted_too() {
    // 82 bytes each: every difference takes ten.
    let frame = |i: u64| {
        let far = (i % 2) << 63;
        TrueFrame {
            pc: far,
            cfa: far,
            kind: TrueKind::Call,
            saved: Some([far; 6]),
        }
    };
    let frames = |count| (1..=count).map(frame).collect();
    assert_eq!(327_680 / 82, 3996);
    assert_eq!(kept(frames(3996)), (3996, true));
    assert_eq!(kept(frames(3997)), (3996, false));
}

#[test]
fn of_a_chain_of_more_than_131072_frames_the_inner_ones_are_written() {
    // Two bytes each: the pc is rip.
    let frame = |i: u64| TrueFrame {
        pc: 0,
        cfa: i,
        kind: TrueKind::Top,
        saved: None,
    };
    let frames = |count| (0..count).map(frame).collect();
    assert_eq!(kept(frames(131_072)), (131_072, true));
    assert_eq!(kept(frames(131_073)), (131_072, false));
}

#[test]
fn a_thread_keeps_64_slots() {
    assert_eq!(SLOTS_MAX, 64);
    let place = region(0x1000, 1, false);
    let choose = |slots: usize, used: &[usize]| {
        let slots: Vec<_> = (0..slots).map(|_| Slot::default()).collect();
        let mut is_used = [false; REGIONS_MAX];
        used.iter().for_each(|i| is_used[*i] = true);
        choose_slot(&slots, &place, &is_used)
    };
    assert_eq!(choose(0, &[]), 0);
    assert_eq!(choose(63, &[]), 63, "a new one");
    assert_eq!(choose(64, &[]), 0, "one that is there");
    assert_eq!(choose(64, &[0, 1]), 2);
    let all: Vec<_> = (0..64).collect();
    assert_eq!(choose(64, &all), 64, "each region of a sample has its own");
}

#[test]
fn a_region_goes_where_it_continues_what_was_there() {
    let sample = |addresses: &[u64]| Sample {
        regions: addresses.iter().map(|a| region(*a, 4, false)).collect(),
        ..sample()
    };
    // The first region moves, and the rest of the second one starts a word later.
    let samples = [sample(&[0x1000, 0x2000]), sample(&[0x9000, 0x2008])];
    assert_eq!(literals_of(&samples), [64, 32 + 8]);
}

/// The message with which a sample is rejected.
fn refused(change: impl FnOnce(&mut Sample<'static>)) -> Option<String> {
    let mut sample = sample();
    change(&mut sample);
    check(&sample).err().map(|error| error.to_string())
}

#[test]
fn the_limits_of_a_sample_are_exact() {
    const SAYS: &str = "that a trace can hold";
    // Empty regions: only their number counts.
    let regions = |n| refused(|s| s.regions = vec![region(0, 0, false); n]);
    assert_eq!(regions(255), None);
    let message = format!("regions of a sample: 256 is more than the 255 {SAYS}");
    assert_eq!(regions(256), Some(message));

    // Two regions, because the limit is on their sum.
    let bytes = |n: usize, rest: usize| {
        refused(|s| {
            let mut large = region(0, 0, false);
            large.bytes = Cow::Owned(vec![0; n - rest]);
            let mut small = large.clone();
            small.bytes = Cow::Owned(vec![0; rest]);
            s.regions = vec![large, small];
        })
    };
    // Half of the 64 MiB that a block may decode to.
    assert_eq!(bytes(33_554_432, 1), None);
    let most = format!("33554433 is more than the 33554432 {SAYS}");
    let message = format!("bytes in the regions of a sample: {most}");
    assert_eq!(bytes(33_554_433, 1), Some(message));

    // The end is exclusive, and must be an address, too.
    let end = |address| refused(|s| s.regions = vec![region(address, 1, false)]);
    assert_eq!(end(u64::MAX - 8), None);
    let message = "a region of 8 bytes at 0xfffffffffffffff8 extends past the last address";
    assert_eq!(end(u64::MAX - 7), Some(message.into()));

    let chains = |chains: &[usize], source: usize| {
        let chain = |ips: &usize| RecordedChain {
            source: "x".repeat(source),
            ips: vec![1; *ips],
            request: None,
        };
        refused(|s| s.recorded = chains.iter().map(chain).collect())
    };
    assert_eq!(chains(&[0; 16], 4096), None);
    let message = format!("recorded chains of a sample: 17 is more than the 16 {SAYS}");
    assert_eq!(chains(&[0; 17], 1), Some(message));
    let what = "bytes in the name of a recorded chain's source";
    let message = format!("{what}: 4097 is more than the 4096 {SAYS}");
    assert_eq!(chains(&[0], 4097), Some(message));
    // The limit is on all chains of a sample together.
    assert_eq!(chains(&[8191, 1], 1), None);
    let what = "addresses in a sample's recorded chains";
    let message = format!("{what}: 8193 is more than the 8192 {SAYS}");
    assert_eq!(chains(&[8191, 2], 1), Some(message));
}
