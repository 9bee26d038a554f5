//! Every verdict, and random true chains with known edits.

use super::*;
use crate::address::CodeAddress;
use crate::memory::MemoryError;
use crate::regs::Reg;
use crate::truth::TrueFrame;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use quickcheck::{Arbitrary, Gen, QuickCheck};

/// [`judge_against`], where the reference is right about its end.
fn against(chain: &Chain, reference: &Chain) -> (Verdict, Ground) {
    let is_whole = reference.end.reason == Reason::RootReached;
    judge_against(chain, reference, is_whole)
}

mod boundary;
mod words;

const STACK: u64 = 0x7ffe_0000;

/// A true chain: the pc and CFA of each frame.
#[derive(Clone, Debug)]
struct True(Vec<(u64, u64)>);

impl True {
    /// Frames with different pcs, 32 bytes each.
    fn of(len: u64) -> True {
        True(
            (0..len)
                .map(|i| (0x1000 + i * 0x10, STACK + (i + 1) * 32))
                .collect(),
        )
    }

    fn truth(&self, complete: bool) -> Truth {
        let kind = |i| {
            if i == 0 {
                TrueKind::Top
            } else {
                TrueKind::Call
            }
        };
        let frames = self.0.iter().enumerate().map(|(i, &(pc, cfa))| TrueFrame {
            pc,
            cfa,
            kind: kind(i),
            saved: None,
        });
        if complete {
            Truth::Complete(frames.collect())
        } else {
            Truth::Known(frames.collect())
        }
    }

    /// The chain of a walk that finds all frames and reports the root.
    fn chain(&self) -> Chain {
        let slot = |i: usize| Some(self.0[i.checked_sub(1)?].1 - 8);
        let frames = self.0.iter().enumerate();
        let frames = frames.map(|(i, &(pc, _))| frame(pc, slot(i)));
        let mut chain = Chain::ended(Reason::RootReached);
        chain.frames.extend(frames);
        chain
    }
}

impl Arbitrary for True {
    /// 2 to 12 frames; pcs repeat, as in recursion.
    fn arbitrary(g: &mut Gen) -> True {
        let len = 2 + usize::arbitrary(g) % 11;
        let mut cfa = STACK;
        let frame = |_| {
            cfa += 16 + 8 * (u64::arbitrary(g) % 4);
            (0x1000 + u64::arbitrary(g) % 6, cfa)
        };
        True((0..len).map(frame).collect())
    }
}

fn frame(pc: u64, slot: Option<u64>) -> Frame {
    Frame {
        pc: CodeAddress::Return(pc),
        sp: slot.map_or(0, |slot| slot + 8),
        slot,
        found: FoundBy::External,
    }
}

/// A frame that no true chain here has.
fn stranger() -> Frame {
    frame(0xdead, Some(0x10))
}

fn verdict(chain: &Chain, truth: &Truth) -> String {
    judge(chain, truth, 0).0.to_string()
}

fn check(property: fn(True, usize) -> bool) {
    QuickCheck::new()
        .tests(2000)
        .quickcheck(property as fn(_, _) -> _);
}

/// The verdict on a chain of five true frames after `edit`.
fn edited(edit: impl FnOnce(&mut Vec<Frame>)) -> String {
    let five = True::of(5);
    let mut chain = five.chain();
    edit(&mut chain.frames);
    verdict(&chain, &five.truth(true))
}

#[test]
fn the_short_forms_of_verdicts() {
    assert_eq!(edited(|_| {}), ".");
    // Too few frames: the end is missing.
    assert_eq!(edited(|f| f.truncate(2)), "t@2");
    assert_eq!(edited(Vec::clear), "t@0");
    assert_eq!(
        edited(|f| {
            f.remove(1);
        }),
        "m1@1"
    );
    assert_eq!(
        edited(|f| {
            f.drain(1..3);
        }),
        "m2@1"
    );
    assert_eq!(
        edited(|f| {
            f.remove(3);
            f.remove(1);
        }),
        "m2@1"
    );

    // Too many frames: the count, and where the first one is.
    assert_eq!(edited(|f| f.insert(1, stranger())), "x1@1");
    assert_eq!(edited(|f| f.push(stranger())), "x1@5");
    assert_eq!(
        edited(|f| {
            f.push(stranger());
            f.insert(2, stranger());
        }),
        "x2@2"
    );

    // As many frames as there are, but another one among them.
    assert_eq!(edited(|f| f[2] = stranger()), "w@2");
    assert_eq!(edited(|f| f[1].pc = CodeAddress::Return(0xdead)), "w@1");
    assert_eq!(
        edited(|f| {
            f.truncate(2);
            f.push(stranger());
        }),
        "w@2"
    );
}

#[test]
fn the_true_chain_is_right() {
    check(|t, _| {
        let (verdict, ground) = judge(&t.chain(), &t.truth(true), 0);
        let frames = t.0.len() as u32;
        let whole = Ground {
            known: frames,
            found: frames,
            complete: true,
            end_not_claimed: false,
            at_last: true,
        };
        (verdict, ground) == (Verdict::Ok, whole)
    });
}

#[test]
fn frames_that_are_left_out_in_the_middle_are_missing() {
    check(|t, n| {
        let mut chain = t.chain();
        if chain.frames.len() < 3 {
            return true;
        }
        let at = 1 + n % (chain.frames.len() - 2);
        let count = 1 + n / 7 % (chain.frames.len() - 1 - at);
        chain.frames.drain(at..at + count);
        let (verdict, ground) = judge(&chain, &t.truth(true), 0);
        let (at, count) = (at as u32, count as u32);
        verdict == Verdict::Missing { count, at } && ground.found + count == ground.known
    });
}

#[test]
fn frames_that_are_put_in_are_extra() {
    check(|t, n| {
        let mut chain = t.chain();
        let at = n % (chain.frames.len() + 1);
        let count = 1 + n / 13 % 3;
        (0..count).for_each(|_| chain.frames.insert(at, stranger()));
        let (verdict, ground) = judge(&chain, &t.truth(true), 0);
        let (at, count) = (at as u32, count as u32);
        verdict == Verdict::Extra { count, at } && ground.found == ground.known
    });
}

#[test]
fn another_frame_in_the_place_of_a_true_one_is_wrong() {
    check(|t, n| {
        let mut chain = t.chain();
        let at = n % chain.frames.len();
        // The innermost frame has no slot: with recursion, the nearest frame with its pc is
        // matched.
        if at == 0 && t.0[1..].iter().any(|f| f.0 == t.0[0].0) {
            return true;
        }
        chain.frames[at] = match n / 31 % 2 {
            0 => stranger(),
            _ => frame(0xdead, chain.frames[at].slot),
        };
        let (verdict, ground) = judge(&chain, &t.truth(true), 0);
        verdict == Verdict::Wrong { at: at as u32 } && ground.found + 1 == ground.known
    });
}

/// Whether or not a chain that is too short claims that its end is a root.
#[test]
fn a_chain_that_stops_early_is_truncated_even_if_it_claims_a_root() {
    check(|t, n| {
        let mut chain = t.chain();
        let at = n % chain.frames.len();
        chain.frames.truncate(at);
        chain.end = ends()[n / 17 % ends().len()].0;
        let (verdict, ground) = judge(&chain, &t.truth(true), 0);
        let is_early = verdict == Verdict::Truncated { at: at as u32 } && !ground.at_last;
        is_early && ground.found == at as u32
    });
}

/// Ends, and the verdict on a chain with all five true frames that ends this way.
fn ends() -> [(End, &'static str); 14] {
    let reg = Reg::Rbx;
    let (address, pc) = (0x10, 0x10);
    let memory = |error| End::from(Reason::Memory(error));
    let offset = 0;
    let what = "";
    [
        (Reason::RootReached.into(), "."),
        (Reason::NotText { address }.into(), "x1@5"),
        (memory(MemoryError::Unmapped { address }), "x1@5"),
        (memory(MemoryError::BeyondCopy { address, end: 8 }), "x1@5"),
        (Reason::SpDidNotAdvance { from: 8, to: 8 }.into(), "x1@5"),
        (Reason::RegisterNotCarried { reg }.into(), "x1@5"),
        (Reason::ExpressionFailed { offset, what }.into(), "x1@5"),
        (Reason::NotAtRoot.into(), "t@5"),
        (Reason::NoRow { pc }.into(), "t@5"),
        (Reason::NoTable { pc }.into(), "t@5"),
        (Reason::NoImage { pc }.into(), "t@5"),
        (Reason::UndefinedByTable { reg }.into(), "t@5"),
        (Reason::FrameLimit { limit: 5 }.into(), "t@5"),
        (Reason::LbrDepth { depth: 5 }.into(), "t@5"),
    ]
}

#[test]
fn a_chain_with_all_true_frames_is_right_only_if_its_end_is() {
    let five = True::of(5);
    for (end, want) in ends() {
        let mut chain = five.chain();
        chain.end = end;
        let (found, ground) = judge(&chain, &five.truth(true), 0);
        assert_eq!(found.to_string(), want, "{end:?}");
        assert_eq!(ground.found, 5, "{end:?}");
        assert!(!ground.end_not_claimed, "{end:?}");
        // A reference gives the same result.
        assert_eq!(against(&chain, &five.chain()), (found, ground));
    }
}

#[test]
fn a_format_that_cannot_mark_a_root_need_not() {
    let five = True::of(5);
    for (end, _) in ends() {
        let mut chain = five.chain();
        chain.end = End::unmarked(end.reason);
        let (found, ground) = judge(&chain, &five.truth(true), 0);
        assert_eq!(found, Verdict::Ok, "{end:?}");
        let claimed = end.reason == Reason::RootReached;
        assert_eq!(ground.end_not_claimed, !claimed, "{end:?}");
        // This excuses nothing else.
        chain.frames.push(stranger());
        let (found, ground) = judge(&chain, &five.truth(true), 0);
        assert_eq!(
            (found.to_string().as_str(), ground.end_not_claimed),
            ("x1@5", false)
        );
        chain.frames.truncate(4);
        let (found, ground) = judge(&chain, &five.truth(true), 0);
        assert_eq!(
            (found.to_string().as_str(), ground.end_not_claimed),
            ("t@4", false)
        );
    }
}

/// Beyond the known depth nothing is judged; within it everything is.
#[test]
fn a_truth_known_to_a_depth_judges_nothing_beyond_it() {
    check(|t, n| {
        let known = 1 + n % t.0.len();
        let inner = True(t.0[..known].to_vec());

        let mut chain = t.chain();
        let whole = judge(&chain, &inner.truth(false), 0);

        // All known frames and more: what follows and how it ends does not matter.
        chain.end = ends()[n / 17 % ends().len()].0;
        chain
            .frames
            .truncate(known + n / 5 % (t.0.len() - known + 1));
        let beyond = chain.frames.len() > known;
        let as_far = judge(&chain, &inner.truth(false), 0);

        chain.frames.push(stranger());
        let and_more = judge(&chain, &inner.truth(false), 0);

        let ground = Ground {
            known: known as u32,
            found: known as u32,
            complete: false,
            end_not_claimed: false,
            at_last: false,
        };
        let ended_there = Ground {
            at_last: !beyond,
            ..ground
        };

        let as_far = as_far == (Verdict::Unjudged, ended_there);
        as_far && [whole.0, and_more.0] == [Verdict::Unjudged; 2] && and_more.1 == ground
    });
}

#[test]
fn within_the_known_depth_a_divergence_is_judged() {
    let five = True::of(5);
    let judged = |edit: fn(&mut Vec<Frame>)| {
        let mut chain = True::of(9).chain();
        edit(&mut chain.frames);

        let by_truth = judge(&chain, &five.truth(false), 0);

        // A reference that ended there gives the same result.
        let mut reference = five.chain();
        reference.end = Reason::NoTable { pc: 1 }.into();
        assert_eq!(against(&chain, &reference), by_truth);
        by_truth.0.to_string()
    };

    assert_eq!(judged(|_| {}), "?");
    assert_eq!(
        judged(|f| {
            f.remove(5);
        }),
        "?"
    );
    assert_eq!(
        judged(|f| {
            f.remove(2);
        }),
        "m1@2"
    );
    assert_eq!(judged(|f| f.insert(4, stranger())), "x1@4");
    assert_eq!(judged(|f| f[4] = stranger()), "w@4");
    assert_eq!(judged(|f| f.truncate(4)), "t@4");
    assert_eq!(judged(|f| f.truncate(5)), "?");

    // A frame after the known part is not a gap in it.
    assert_eq!(judged(|f| f.insert(5, stranger())), "?");
}

#[test]
fn a_reference_proves_what_lies_before_its_root() {
    let five = True::of(5);
    let mut longer = five.chain();
    longer.frames.push(stranger());
    assert_eq!(against(&longer, &five.chain()).0.to_string(), "x1@5");
    for (end, _) in &ends()[1..] {
        let mut reference = five.chain();
        reference.end = *end;
        for chain in [&longer, &five.chain()] {
            let (verdict, ground) = against(chain, &reference);
            assert_eq!(verdict, Verdict::Unjudged, "{end:?}");
            assert_eq!((ground.known, ground.found, ground.complete), (5, 5, false));
        }
    }
    let nothing = Chain::default();
    let judged = against(&longer, &nothing);
    assert_eq!(judged, (Verdict::Unjudged, Ground::default()));
}

#[test]
fn right_addresses_from_wrong_slots_are_luck() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.frames[2].slot = Some(STACK + 0x1000);
    chain.frames[2].sp = STACK + 0x1008;
    assert_eq!(verdict(&chain, &five.truth(true)), "~");
    // If the root is unknown, this may be luck, or more may follow.
    assert_eq!(verdict(&chain, &five.truth(false)), "?");
    chain.frames.push(stranger());
    assert_eq!(verdict(&chain, &five.truth(true)), "w@2");
    assert_eq!(verdict(&chain, &five.truth(false)), "?");
    // A chain that is too short is not lucky.
    chain.frames.truncate(4);
    assert_eq!(verdict(&chain, &five.truth(false)), "w@2");
}

#[test]
fn the_same_pc_and_sp_from_another_slot_is_the_same_frame() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.frames[2].slot = Some(STACK + 0x1000);
    assert_eq!(verdict(&chain, &five.truth(true)), ".");
    chain.frames[2].pc = CodeAddress::Return(0xdead);
    assert_eq!(verdict(&chain, &five.truth(true)), "w@2");
}

#[test]
fn a_scanned_frame_is_luck_at_best() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.end = End::unmarked(Reason::NotAtRoot);
    chain.frames[3].found = FoundBy::Guess;
    let (found, ground) = judge(&chain, &five.truth(true), 0);
    assert_eq!((found, ground.end_not_claimed), (Verdict::OkUnproven, true));
    chain.frames.insert(2, stranger());
    assert_eq!(verdict(&chain, &five.truth(true)), "x1@2");
}

#[test]
fn an_unwinder_that_calls_itself_unreliable_is_never_right() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.refused = true;
    assert_eq!(verdict(&chain, &five.truth(true)), "~");
    chain.end = Reason::NotAtRoot.into();
    assert_eq!(verdict(&chain, &five.truth(true)), "r");
    chain.frames.truncate(2);
    assert_eq!(verdict(&chain, &five.truth(true)), "r");
    assert_eq!(verdict(&chain, &True::of(2).truth(false)), "?");
}

#[test]
fn a_walk_that_never_started_is_unsupported() {
    let five = True::of(5);
    let empty = |reason: Reason| Chain::ended(reason);
    let reg = Reg::Rsp;
    let missing = Reason::RegistersMissing { reg };
    for truth in [five.truth(true), five.truth(false), Truth::Unknown] {
        assert_eq!(verdict(&empty(missing), &truth), "u");
        assert_eq!(verdict(&empty(Reason::NoBranchRecords), &truth), "u");
    }
    // A walk that found its first frame did start.
    let mut chain = five.chain();
    chain.frames.truncate(1);
    chain.end = missing.into();
    assert_eq!(verdict(&chain, &five.truth(true)), "t@1");
    // Without branch records, the sampled pc is the whole chain.
    chain.end = Reason::NoBranchRecords.into();
    assert_eq!(verdict(&chain, &five.truth(true)), "u");
}

#[test]
fn a_cycle_is_a_cycle_wherever_there_is_memory() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.end = Reason::Cycle { pc: 1, sp: 1 }.into();
    assert_eq!(verdict(&chain, &five.truth(true)), "l");
    assert_eq!(verdict(&chain, &five.truth(false)), "l");
    assert_eq!(verdict(&chain, &Truth::Unknown), "?");
}

#[test]
fn one_missing_frame_of_a_recursion_is_one() {
    let same = True((0..6).map(|i| (0x1000, STACK + (i + 1) * 32)).collect());
    let mut chain = same.chain();
    chain.frames.remove(2);
    assert_eq!(verdict(&chain, &same.truth(true)), "m1@2");
}

#[test]
fn addresses_alone() {
    let judge = |found: &[u64], truth: &[u64], complete| {
        let (verdict, ground) = judge_addresses(found, truth, complete);
        (format!("{verdict}"), ground.known, ground.found)
    };
    assert_eq!(judge(&[10, 20], &[10, 20], true), (".".into(), 2, 2));
    assert_eq!(judge(&[10, 20], &[10, 20], false), ("?".into(), 2, 2));
    assert_eq!(judge(&[10, 20, 30], &[10, 20], false), ("?".into(), 2, 2));
    assert_eq!(judge(&[10, 20, 30], &[10, 20], true), ("x1@2".into(), 2, 2));
    assert_eq!(judge(&[10, 30], &[10, 20], false), ("w@1".into(), 2, 1));
    assert_eq!(judge(&[10], &[10, 20], false), ("t@1".into(), 2, 1));
    assert_eq!(judge(&[10], &[], true), ("?".into(), 0, 0));
    assert_eq!(judge(&[], &[10], true), ("t@0".into(), 1, 0));
    assert!(judge_addresses(&[10], &[10], true).1.complete);
    assert!(!judge_addresses(&[10], &[], true).1.complete);
}

#[test]
fn a_share_says_something_only_of_more_than_the_sampled_frame() {
    let of = |known, found, complete| {
        let ground = Ground {
            known,
            found,
            complete,
            ..Ground::default()
        };
        ground.share()
    };
    assert_eq!(of(0, 0, false), None);
    assert_eq!(of(0, 0, true), None);
    assert_eq!(of(1, 1, false), None);
    assert_eq!(of(1, 1, true), Some(1_000_000));
    assert_eq!(of(2, 1, false), Some(500_000));
    assert_eq!(of(3, 2, true), Some(666_666));
}

#[test]
fn frames_below_the_mark_are_not_expected() {
    let five = True::of(5).truth(true);
    let from = |mark| expected_from(&five, STACK, mark);
    assert_eq!(from(None), 0);
    // Never the innermost frame, which is at the live sp.
    assert_eq!(from(Some(STACK - 8)), 1);
    assert_eq!(from(Some(STACK + 31)), 1);
    assert_eq!(from(Some(STACK + 32)), 2);
    assert_eq!(from(Some(STACK + 33)), 2);
    assert_eq!(from(Some(STACK + 4 * 32 - 1)), 4);
    assert_eq!(from(Some(STACK + 4 * 32)), 5);
    let mut outer = True::of(5).chain();
    outer.frames.drain(..2);
    let (verdict, ground) = judge(&outer, &five, 2);
    assert_eq!((verdict, ground.known), (Verdict::Ok, 3));
    assert_eq!(judge(&outer, &five, 5).0, Verdict::Unjudged);
}

#[test]
fn frames_are_numbered_as_in_the_whole_truth() {
    let five = True::of(5);
    let mut chain = five.chain();
    chain.frames.drain(..2);
    chain.frames.insert(1, stranger());
    let aligned = align_chain(&chain, &five.truth(true), 2);
    assert_eq!(aligned, [Some(2), None, Some(3), Some(4)]);
}
