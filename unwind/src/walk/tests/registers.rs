//! Registers carried from frame to frame.

use super::*;

#[test]
fn a_register_comes_back_from_its_slot_if_it_is_carried() {
    let saves = Rule::call(Value::reg(Reg::Rsp, 32))
        .with_saved(Reg::Rbx, Value::at_cfa(-16))
        .with_saved(Reg::Rbp, Value::at_cfa(-24));
    let mut finder = Rows::new(vec![
        (0x1000, saves),
        (0x1400, RSP16),
        (0x1800, Rule::FRAME_POINTER),
        (0x1c00, Rule::call(Value::reg(Reg::Rbx, 16))),
    ]);

    // The rule at 0x1800 needs rbp, that at 0x1c00 rbx.
    let (rbx, rbp) = (STACK + 72, STACK + 56);
    let first = [0, rbp, rbx, pc(0x1500)];
    let rest = [0, pc(0x1900), 0, 5, pc(0x1d00), 0, 0];
    let words = [&first[..], &rest[..]].concat();

    let needs_rbx = Reason::RegisterNotCarried { reg: Reg::Rbx };
    for (carries, reason) in [
        (RegMask::CALLEE_SAVED, Reason::NotAtRoot),
        (RegMask::FRAME, needs_rbx),
    ] {
        finder.carries = carries;
        let (space, mut cache) = (space(), Cache::new());

        // First cold, then from the hot table.
        for _ in 0..2 {
            let at = start(pc(0x1100), STACK, 0);
            let chain = chain_in(&finder, &space, &at, &words, &mut cache);
            let want = [0x1100, 0x1500, 0x1900, 0x1d00].map(pc);
            assert_eq!((pcs(&chain), chain.end.reason), (want.to_vec(), reason));
        }
    }
}

#[test]
fn a_lost_register_ends_the_walk_only_where_it_is_needed() {
    // rbp's slot is below the copy; two frames later a rule needs rbp.
    let loses = Rule::call(Value::reg(Reg::Rsp, 16)).with_saved(Reg::Rbp, Value::at_cfa(-24));
    let rows = vec![
        (0x1000, loses),
        (0x1200, RSP16),
        (0x1400, Rule::FRAME_POINTER),
    ];

    // Three frames: the loss is in the first, and counts in the third.
    let words = [0, pc(0x1300), 0, pc(0x1500), 0];
    for fast in [true, false] {
        let mut finder = Rows::new(rows.clone());
        finder.fast = fast;

        let chain = chain_of(&finder, &start(pc(0x1100), STACK, 1), &words);
        assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1300), pc(0x1500)]);

        let cause = Reason::Memory(MemoryError::BelowCopy {
            address: STACK - 8,
            start: STACK,
        });
        assert_eq!(chain.end.reason, cause);

        let lost = Event::RegisterLost {
            pc: CodeAddress::Instruction(pc(0x1100)),
            reg: Reg::Rbp,
            cause,
        };
        assert_eq!(chain.events[1..], [lost], "fast: {fast}");
    }
}
