//! Buffered bytes are counted exactly, and the limit holds.

use super::*;

/// A sample whose chain has `words` words.
fn sample(key: u64, words: usize) -> Stitched {
    Stitched {
        key,
        time: Some(key),
        tid: 1,
        cookie: None,
        chain: vec![7; words],
        how: Stitch::NotDeferred,
    }
}

fn keys(out: &mut DeliveredSamples) -> Vec<u64> {
    out.ready.drain(..).map(|stitched| stitched.key).collect()
}

#[test]
fn the_bytes_of_all_that_is_held_are_counted() {
    let (mut held, mut out) = (SampleQueue::new(usize::MAX), DeliveredSamples::default());
    held.add(sample(0, 9), false, &mut out);
    assert_eq!((held.bytes, keys(&mut out)), (0, vec![0]), "nothing waits");
    let first = held.add(sample(1, 2), true, &mut out);
    let second = held.add(sample(2, 3), true, &mut out);
    held.add(sample(3, 4), false, &mut out);
    assert_eq!(held.bytes, 3 * SLOT_BYTES + 8 * (2 + 3 + 4));
    held.settle(second, |stitched| stitched.chain.push(7));
    assert_eq!(held.bytes, 3 * SLOT_BYTES + 8 * (2 + 4 + 4));
    held.release(&mut out);
    assert_eq!(keys(&mut out), [0; 0], "the first still waits");
    held.settle(first, |stitched| stitched.chain.clear());
    assert_eq!(held.bytes, 3 * SLOT_BYTES + 8 * (4 + 4));
    let last = held.add(sample(4, 5), true, &mut out);
    held.release(&mut out);
    assert_eq!(keys(&mut out), [1, 2, 3]);
    assert_eq!(held.bytes, SLOT_BYTES + 8 * 5);
    held.settle(first, |_| panic!("it is no longer held"));
    held.settle(last, |_| ());
    held.release(&mut out);
    assert_eq!((held.bytes, keys(&mut out)), (0, vec![4]));
}

#[test]
fn the_bound_may_be_reached_and_not_passed() {
    let most = 2 * SLOT_BYTES + 8 * (2 + 3);
    let (mut held, mut out) = (SampleQueue::new(most), DeliveredSamples::default());
    held.add(sample(1, 2), true, &mut out);
    let second = held.add(sample(2, 3), true, &mut out);
    assert_eq!((held.bytes, held.bound(&mut out)), (most, None));
    assert_eq!(keys(&mut out), [0; 0]);
    held.settle(second, |stitched| stitched.chain.push(7));
    // First, order is given up: the second sample is settled.
    assert_eq!((held.bytes, held.bound(&mut out)), (most + 8, None));
    assert_eq!(keys(&mut out), [2]);
    assert_eq!(held.bytes, SLOT_BYTES + 8 * 2);
    // Then the older half of the waiting samples.
    let last = held.add(sample(3, 9), true, &mut out);
    assert_eq!(held.bound(&mut out), Some(last));
    let given_up = out.ready.pop_front().expect("the older one");
    let expected = (1, Stitch::Missing(MissingReason::GivenUp));
    assert_eq!((given_up.key, given_up.how), expected);
    assert_eq!(held.bytes, SLOT_BYTES + 8 * 9);
}
