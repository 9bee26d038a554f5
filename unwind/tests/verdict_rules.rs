//! The names and counts of verdicts, where the expected part of a truth starts, and which true
//! frame a frame matches.

use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::verdict::{Verdict, align_chain, expected_from};

#[test]
fn every_verdict_has_its_letter_word_and_numbers() {
    let (count, at) = (3, 7);

    // (verdict, shown, word, at, count, judged, wrong)
    let cases = [
        (Verdict::Ok, ".", "ok", None, None, true, false),
        (
            Verdict::OkUnproven,
            "~",
            "ok-unproven",
            None,
            None,
            true,
            false,
        ),
        (
            Verdict::Missing { count, at },
            "m3@7",
            "missing",
            Some(7),
            Some(3),
            true,
            true,
        ),
        (
            Verdict::Extra { count, at },
            "x3@7",
            "extra",
            Some(7),
            Some(3),
            true,
            true,
        ),
        (
            Verdict::Wrong { at },
            "w@7",
            "wrong",
            Some(7),
            None,
            true,
            true,
        ),
        (
            Verdict::Truncated { at },
            "t@7",
            "truncated",
            Some(7),
            None,
            true,
            true,
        ),
        (Verdict::Refused, "r", "refused", None, None, true, true),
        (Verdict::Looped, "l", "looped", None, None, true, true),
        (
            Verdict::Unsupported,
            "u",
            "unsupported",
            None,
            None,
            false,
            false,
        ),
        (Verdict::Unjudged, "?", "unjudged", None, None, false, false),
    ];

    // What is shown begins with the letter, and the list of all has the same order.
    for (verdict, shown, word, at, count, is_judged, is_wrong) in cases {
        assert_eq!(verdict.to_string(), shown);
        assert_eq!(verdict.letter(), shown.chars().next().unwrap());
        assert_eq!(verdict.as_str(), word);
        assert_eq!((verdict.at(), verdict.count()), (at, count), "{shown}");
        assert_eq!(verdict.is_judged(), is_judged, "{shown}");
        assert_eq!(verdict.is_wrong(), is_wrong, "{shown}");
    }

    let words = cases.map(|(verdict, _, word, ..)| (verdict.letter(), word));
    assert_eq!(Verdict::WORDS, words);
}

fn true_frame(pc: u64, cfa: u64, kind: TrueKind) -> TrueFrame {
    TrueFrame {
        pc,
        cfa,
        kind,
        saved: None,
    }
}

/// Four frames whose CFAs are 0x1010, 0x1020, 0x1030 and 0x1040.
fn truth() -> Truth {
    Truth::Complete(vec![
        true_frame(1, 0x1010, TrueKind::Top),
        true_frame(2, 0x1020, TrueKind::Call),
        true_frame(3, 0x1030, TrueKind::Call),
        true_frame(4, 0x1040, TrueKind::Call),
    ])
}

#[test]
fn a_walk_with_a_mark_should_find_the_frames_above_it() {
    // sp in frame n is the CFA of its callee; the innermost frame never counts.
    for (mark, expected) in [
        (None, 0),
        (Some(0), 1),
        (Some(0x1000), 1),
        (Some(0x100f), 1),
        (Some(0x1010), 2),
        (Some(0x101f), 2),
        (Some(0x1020), 3),
        (Some(0x102f), 3),
        (Some(0x1030), 4),
        (Some(u64::MAX), 4),
    ] {
        assert_eq!(expected_from(&truth(), 0x1000, mark), expected, "{mark:x?}");
    }

    assert_eq!(expected_from(&Truth::Unknown, 0x1000, Some(0)), 0);

    // An exact address counts like any other frame.
    for kind in [TrueKind::Interrupted, TrueKind::Trapped] {
        let two = Truth::Complete(vec![
            true_frame(1, 0x1010, TrueKind::Top),
            true_frame(2, 0x1020, kind),
        ]);
        assert_eq!(expected_from(&two, 0x1000, Some(0x100f)), 1, "{kind:?}");
        assert_eq!(expected_from(&two, 0x1000, Some(0x1010)), 2, "{kind:?}");
    }
}

/// A frame: pc, sp (0 if unknown), and the slot that it was read from.
fn frame(pc: u64, sp: u64, slot: Option<u64>) -> Frame {
    Frame {
        pc: CodeAddress::Return(pc),
        sp,
        slot,
        found: FoundBy::External,
    }
}

#[test]
fn frames_are_aligned_by_slot_or_by_pc_and_sp_and_never_backwards() {
    let aligned = |frames: &[Frame], from| {
        let mut chain = Chain::default();
        chain.frames = frames.to_vec();
        align_chain(&chain, &truth(), from)
    };

    let top = frame(1, 0, None);
    // The slots are at CFA - 8 of the callee.
    let second = frame(2, 0, Some(0x1008));
    let third = frame(3, 0, Some(0x1018));
    let last = frame(4, 0, Some(0x1028));

    let all = [top, second, third, last];
    assert_eq!(aligned(&all, 0), [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!(aligned(&all[1..], 1), [Some(1), Some(2), Some(3)]);
    assert_eq!(aligned(&all[2..], 1), [Some(2), Some(3)]);
    assert_eq!(aligned(&[top, last], 0), [Some(0), Some(3)]);

    // After a frame, no earlier one matches.
    let backwards = [third, second, last];
    assert_eq!(aligned(&backwards, 0), [Some(2), None, Some(3)]);
    assert_eq!(aligned(&[last, last], 0), [Some(3), None]);
    assert_eq!(aligned(&[], 0), []);

    // (pc, sp, slot) of one frame, and the frame that it matches.
    for (pc, sp, slot, expected) in [
        (9, 0, Some(0x1018), Some(2)),
        (3, 0, Some(0x2000), None),
        // The return address was kept elsewhere: same pc, same sp.
        (3, 0x1020, Some(0x2000), Some(2)),
        (3, 0x1021, Some(0x2000), None),
        (9, 0x1020, Some(0x2000), None),
        // Without a slot the pc decides.
        (3, 0, None, Some(2)),
        (3, 0x9999, None, Some(2)),
        (9, 0x1020, None, None),
    ] {
        let found = aligned(&[frame(pc, sp, slot)], 0);
        assert_eq!(found, [expected], "{pc} {sp:#x} {slot:x?}");
    }
}
