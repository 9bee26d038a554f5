//! True frames, and the location of their pc.

use super::*;

#[test]
fn truth_says_how_much_of_it_is_known() {
    let truth = |presence| {
        let mut script = Script::new(presence);
        script
            .numbers(&[0, 1, 0])
            .byte(0)
            .differences(&[0x40, 0x50]);
        script.decode(1).unwrap().sample().truth
    };
    let frame = TrueFrame {
        pc: 0x40,
        cfa: 0x50,
        kind: TrueKind::Top,
        saved: None,
    };
    assert_eq!(truth(KNOWN), Truth::Known(vec![frame]));
    assert_eq!(truth(COMPLETE), Truth::Complete(vec![frame]));
    // The truth of an earlier sample is not reused for a sample without truth.
    let mut script = Script::new(KNOWN);
    script.numbers(&[0, 1, 0]).byte(0).differences(&[1, 1]);
    script.thread(1, 0, 0).no_regs().numbers(&[0]);
    assert_eq!(script.decode(2).unwrap().sample().truth, Truth::Unknown);
}

#[test]
fn true_frames_are_differences_to_the_frame_inside() {
    let mut script = Script::default();
    let known = RegMask::of(&[Reg::Rip, Reg::Rsp, Reg::Rbx, Reg::R15]);
    script.new_thread(PID, TID, 10, COMPLETE);
    let values = [
        (Reg::Rbx, 3),
        (Reg::Rsp, 0x1000),
        (Reg::R15, 15),
        (Reg::Rip, 7),
    ];
    script.regs(known, &values).numbers(&[0, 4, 0]);

    // The top frame's pc is rip; its saved registers are the live ones.
    script.byte(frame::PC_FROM_STACK | frame::SAVED);
    script.differences(&[0x10]);

    // All six registers differ, each by its index.
    let all = frame::SAVED | frame::SAVED_DIFFER;
    script.byte(1 | all).differences(&[1, 0x10]).byte(0x3f);
    script.differences(&[1, 2, 3, 4, 5, 6]);

    // Unknown here; the frame outside it is relative to the last known values.
    script.byte(1).differences(&[1, 0x10]);
    script.byte(3 | all).differences(&[-4, -8]).byte(1 << 1);
    script.differences(&[-2]);

    let frame = |pc, cfa, kind, saved| TrueFrame {
        pc,
        cfa,
        kind,
        saved,
    };
    let expected = vec![
        frame(7, 0x1010, TrueKind::Top, Some([3, 0, 0, 0, 0, 15])),
        frame(8, 0x1020, TrueKind::Call, Some([4, 2, 3, 4, 5, 21])),
        frame(9, 0x1030, TrueKind::Call, None),
        frame(5, 0x1028, TrueKind::Trapped, Some([4, 0, 3, 4, 5, 21])),
    ];

    let decoder = script.decode(1).unwrap();
    assert_eq!(decoder.sample().truth, Truth::Complete(expected));
}

#[test]
fn each_saved_register_has_a_bit_and_there_are_six() {
    for i in 0..6 {
        let mut script = Script::new(KNOWN);
        script.numbers(&[0, 1, 0]);
        script.byte(frame::SAVED | frame::SAVED_DIFFER);
        script.differences(&[0, 0]).byte(1 << i).differences(&[9]);
        let mut saved = [0; 6];
        saved[i] = 9;
        let decoder = script.decode(1).unwrap();
        assert_eq!(decoder.sample().truth.frames()[0].saved, Some(saved));
    }
    for bit in [0x40, 0x80] {
        let mut script = Script::new(KNOWN);
        script.numbers(&[0, 1, 0]);
        script.byte(frame::SAVED | frame::SAVED_DIFFER);
        script.differences(&[0, 0]).byte(bit);
        script.refused(1, "registers that do not exist");
    }
}

#[test]
fn true_frames_of_unknown_kind_are_refused() {
    for head in [0x20, 0x40, 0x80, 0x21] {
        let mut script = Script::new(KNOWN);
        script.numbers(&[0, 1, 0]).byte(head).differences(&[1, 1]);
        script.refused(1, "a true frame of unknown kind");
    }
    let kind = |head| {
        let mut script = Script::new(KNOWN);
        script.numbers(&[0, 1, 0]).byte(head).differences(&[1, 1]);
        script.decode(1).unwrap().sample().truth.frames()[0].kind
    };
    let kinds = [0, 1, 2, 3].map(kind);
    let expected = [
        TrueKind::Top,
        TrueKind::Call,
        TrueKind::Interrupted,
        TrueKind::Trapped,
    ];
    assert_eq!(kinds, expected);
}

/// A top frame with this CFA, and an outer frame whose pc is in its slot, with these regions.
fn from_stack(cfa: u64, regions: &[(u64, &[u64])]) -> Result<u64, &'static str> {
    let mut script = Script::new(KNOWN);
    script.numbers(&[regions.len() as u64]);
    for (slot, (address, words)) in regions.iter().enumerate() {
        script.region(slot as u64, *address, words);
    }
    script
        .numbers(&[2, 0])
        .byte(0)
        .differences(&[1, cfa as i64]);
    script.byte(1 | frame::PC_FROM_STACK).differences(&[8]);
    let decoder = script.decode(1).map_err(|bad| bad.what)?;
    Ok(decoder.sample().truth.frames()[1].pc)
}

#[test]
fn a_pc_from_the_stack_is_the_whole_word_inside_one_region() {
    let absent = Err("a true frame's pc is not in the sample's memory");
    let stack: [(u64, &[u64]); 1] = [(0x1000, &[0x11, 0x22, 0x33])];

    for (slot, expected) in [
        (0xff8, absent),
        (0xfff, absent),
        (0x1000, Ok(0x11)),
        (0x1008, Ok(0x22)),
        (0x1010, Ok(0x33)),
        (0x1011, absent),
        (0x1018, absent),
        (u64::MAX - 7, absent),
        (u64::MAX - 3, absent),
    ] {
        // A call's return address is the word below the inner frame's CFA.
        let cfa = slot.wrapping_add(8);
        assert_eq!(from_stack(cfa, &stack), expected, "{slot:#x}");
    }

    // The first region that contains the whole word, whatever its position in the list.
    let three: [(u64, &[u64]); 3] = [
        (0x1000, &[0x11]),
        (0x0ff8, &[0, 0x12, 0x13]),
        (0x1000, &[0x14, 0x15]),
    ];
    assert_eq!(from_stack(0x1008, &three), Ok(0x11));
    assert_eq!(from_stack(0x1010, &three), Ok(0x13));

    // Each of two adjacent regions has half of the word.
    let two: [(u64, &[u64]); 2] = [(0x1000, &[0x11]), (0x1008, &[0x12])];
    assert_eq!(from_stack(0x100c, &two), absent);
}

#[test]
fn memory_of_an_earlier_sample_is_not_this_samples() {
    let sample = |start: i64, cfa: i64| {
        let mut script = Script::new(0);
        script.numbers(&[1]).region(0, 0x1000, &[0x11, 0x22, 0x33]);
        // Of the three words, the region has the middle one or the last two.
        script.thread(1, 0, KNOWN).no_regs().numbers(&[1]).byte(0);
        script.numbers(&[0]).differences(&[start, -8]);
        script.numbers(&[((0x10 - start) / 8) as u64, 0]);
        script.numbers(&[2, 0]).byte(0).differences(&[1, cfa]);
        script.byte(1 | frame::PC_FROM_STACK).differences(&[8]);
        script.decode(2).map(|d| d.sample().truth.frames()[1].pc)
    };
    let absent = "a true frame's pc is not in the sample's memory";
    let what = |r: Result<u64, Bad>| r.map_err(|bad| bad.what);
    assert_eq!(what(sample(8, 0x1010)), Ok(0x22));
    assert_eq!(what(sample(8, 0x1008)), Err(absent), "below the region");
    assert_eq!(what(sample(8, 0x1018)), Err(absent), "above the region");
    assert_eq!(what(sample(0, 0x1008)), Ok(0x11));
}

#[test]
fn where_a_pc_from_the_stack_is_depends_on_the_kind() {
    let pc = |kind: TrueKind| {
        let mut script = Script::new(KNOWN);
        let words: Vec<u64> = (0..64).map(|i| 0x100 + i).collect();
        script.numbers(&[1]).region(0, 0x1000, &words);
        script.numbers(&[3, 0]).byte(0).differences(&[1, 0x1010]);
        script.byte(1).differences(&[1, 0x20]);
        script.byte(kind as u8 | frame::PC_FROM_STACK);
        script.differences(&[8]);
        let decoded = script.decode(1).map_err(|bad| bad.what)?;
        Ok(decoded.sample().truth.frames()[2].pc)
    };

    let absent = Err("a true frame's pc is not in the sample's memory");

    // The pc of the inner frame; the word below its CFA; the word 168 above the CFA of the frame
    // two further in.
    assert_eq!(pc(TrueKind::Top), Ok(2));
    assert_eq!(pc(TrueKind::Call), Ok(0x105));
    assert_eq!(pc(TrueKind::Interrupted), Ok(0x100 + (0x10 + 168) / 8));
    assert_eq!(pc(TrueKind::Trapped), absent);

    // Without an inner frame there is no slot.
    let mut script = Script::new(KNOWN);
    script.numbers(&[0, 1, 0]).byte(1 | frame::PC_FROM_STACK);
    assert_eq!(
        script.decode(1).map(|_| ()).map_err(|b| b.what),
        absent.map(drop)
    );
}
