//! Details come back, unknown ones are skipped, and hostile ones refused.

use crate::model::{CallchainRequest, Item, KernelSample, RecordedChain, Sample};
use crate::trace::layout::{BlockType, URETPROBES_MAX};
use crate::trace::sample::details::check;
use crate::trace::tests::forged::Forged;
use crate::trace::tests::support::{open, read, uncompressed, write};
use unwind_sim_unwind::kernel::{Uretprobes, UserSpace};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;

/// Two samples without anything in them.
const SAMPLES: &[u8] = b"\x0e\x00\x00\x01\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00";

fn request() -> CallchainRequest {
    CallchainRequest {
        kernel: true,
        user: false,
        add_mark: true,
        crosstask: false,
        max_stack: 4,
        cookie: None,
    }
}

fn sample(request: Option<CallchainRequest>, originals: &[u64]) -> Sample<'static> {
    let mut sample = Sample::of_regs(SampleRegs::hardware(Regs::frame(1, 2, 3)));
    sample.recorded = vec![RecordedChain {
        source: "perf".into(),
        ips: vec![1, 2],
        request,
    }];
    sample.kernel = Some(Box::new(KernelSample {
        user: Some(UserSpace {
            uretprobes: Some(Uretprobes {
                trampoline: 0x7fff_ffff_e000,
                originals: originals.to_vec(),
            }),
            ..UserSpace::default()
        }),
        ..KernelSample::default()
    }));
    sample
}

/// The trace with this details block before two samples, and what reading it says.
fn forged(count: u32, payload: &[u8]) -> Result<usize, String> {
    let mut forged = Forged::new();
    forged.block(BlockType::Details, count, payload);
    let bytes = forged.block(BlockType::Samples, 2, SAMPLES).finish();
    let trace = open(&bytes).expect("the blocks are sound");
    let items: Result<Vec<_>, _> = trace.items().collect();
    items.map(|items| items.len()).map_err(|e| e.to_string())
}

#[test]
fn details_come_back_with_their_samples() {
    let cookie = Some(0x3_0000_0001);
    let deferred = CallchainRequest {
        user: true,
        cookie,
        ..request()
    };

    let items: Vec<Item<'static>> = [
        // An empty list says that return probes took nothing, so it is written.
        sample(None, &[]),
        sample(Some(request()), &[0x40_1000]),
        sample(Some(deferred), &[7; URETPROBES_MAX]),
    ]
    .map(Item::Sample)
    .into();

    let trace = open(&write(&items, &[], uncompressed())).expect("sound");
    assert_eq!(read(&trace), items);
    for (number, item) in items.iter().enumerate() {
        let found = trace.sample(number as u64).expect("sound");
        assert_eq!(Item::Sample(found), *item);
    }

    // What return probes took from all three, and what was asked for in two.
    let kinds = trace
        .blocks()
        .filter(|b| b.block_type == Some(BlockType::Details));
    assert_eq!(kinds.map(|b| b.count).collect::<Vec<_>>(), [5]);
}

#[test]
fn many_details_close_their_block() {
    // 4096 samples with 64 addresses of 10 bytes each do not fit into one block.
    let one = sample(Some(request()), &[u64::MAX; URETPROBES_MAX]);
    let items = vec![Item::Sample(one); 2000];
    let trace = open(&write(&items, &[], uncompressed())).expect("sound");
    assert_eq!(read(&trace), items);
    assert!(trace.chunks().len() > 3);
}

#[test]
fn what_a_reader_does_not_know_is_skipped() {
    assert_eq!(forged(0, b""), Ok(2));
    assert_eq!(forged(2, b"\x00\x63\x03abc\x01\x63\x00"), Ok(2));
    // A later version may add to a field that is known, but then it must be of a chain.
    let without_a_chain = forged(1, b"\x00\x01\x03\x00\x07\x04");
    let what = "a request for a chain that the sample lacks";
    assert!(without_a_chain.is_err_and(|e| e.contains(what)));
}

#[test]
fn hostile_details_are_refused() {
    // A detail: place of its sample, number of the field, length, content. 0x63 is not a known
    // field.
    for (count, payload, what) in [
        (
            1,
            &b"\x02\x63\x00"[..],
            "a detail of more samples than there are",
        ),
        (
            2,
            // The second place is 2^32 - 1 after the first.
            b"\x01\x63\x00\xff\xff\xff\xff\x0f\x63\x00",
            "more samples",
        ),
        // Five bytes, of which three are there.
        (1, b"\x00\x63\x05abc", "past the end"),
        (1, b"\x00\x63\x00\x00", "bytes are left"),
        // Chains are counted from 0, and there are at most 16.
        (1, b"\x00\x01\x03\x10\x07\x04", "a chain that cannot be"),
        (1, b"\x00\x01\x03\x00\x20\x04", "unknown bits"),
        // A request ends behind its bits, without `max_stack`.
        (1, b"\x00\x01\x02\x00\x07", "inside a record"),
        // 0x41 is 65, one more than the limit.
        (1, b"\x00\x02\x02\x01\x41", "too many return addresses"),
        (1, b"\x00\x02\x02\x01\x02", "inside a record"),
        (1, b"\x00\x02\x02\x01\x00", "without a task's user space"),
        (1, b"\x00\x03\x01\x07", "unknown unwinder"),
        (1, b"\x00\x03\x01\x02", "without a kernel"),
        // The count alone must not allocate anything.
        (u32::MAX, b"\x00\x63\x00", "inside a record"),
    ] {
        let found = forged(count, payload);
        assert!(
            found.as_ref().is_err_and(|e| e.contains(what)),
            "{what}: {found:?}"
        );
    }

    let mut twice = Forged::new();
    twice.block(BlockType::Details, 0, b"");
    twice.block(BlockType::Details, 0, b"");
    let bytes = twice.block(BlockType::Samples, 2, SAMPLES).finish();
    let found = open(&bytes)
        .expect("the blocks are sound")
        .sample(0)
        .map(drop);
    assert!(found.is_err_and(|e| e.to_string().contains("more than one details block")));
}

#[test]
fn more_than_the_kernel_keeps_is_not_written() {
    let most = sample(None, &[1; URETPROBES_MAX]);
    assert!(check(&most).is_ok());
    let more = sample(None, &[1; URETPROBES_MAX + 1]);
    let error = check(&more).map_err(|e| e.to_string());
    let what = "return addresses taken by return probes: 65 is more than the 64";
    assert!(error.is_err_and(|e| e.contains(what)));
}
