//! A second table as the fallback of the first.

use super::*;
use crate::row::TableKind;
use crate::rule::Base;

#[test]
fn a_fallback_is_an_event_with_its_cause() {
    let mut finder = Rows::new(vec![(0x1000, RSP16), (0x1800, Rule::OUTERMOST)]);
    // The first table has no row below 0x1200.
    finder.rows[0].0 = 0x1200;

    let mut second = Rows::new(vec![(0x1000, Rule::FRAME_POINTER)]);
    second.table = TableKind::Sframe;
    finder.fallback = Some(Box::new(second));

    let words = [
        STACK + 32,
        pc(0x1200),
        0,
        pc(0x1180),
        STACK + 64,
        pc(0x1900),
    ];
    let (space, mut cache) = (space(), Cache::new());
    let at = start(pc(0x1100), STACK, STACK);

    // First cold, then from the hot table, with the same result.
    for _ in 0..2 {
        let chain = chain_in(&finder, &space, &at, &words, &mut cache);

        let fallbacks: Vec<_> = chain
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Fallback { pc, cause } => Some((pc.value(), *cause)),
                _ => None,
            })
            .collect();
        let cause = |svma| Reason::NoRow { pc: pc(svma) };
        let expected = [
            (pc(0x1100), cause(0x1100)),
            (pc(0x1200), cause(0x11ff)),
            (pc(0x1180), cause(0x117f)),
        ];
        assert_eq!(fallbacks[..1], expected[..1]);

        let How::Rule { row, .. } = chain.step(1).how else {
            panic!("{:?}", chain.step(1));
        };
        let source = row.source();
        assert_eq!(
            (source.table, source.fallback),
            (TableKind::Sframe, Some(expected[0].1))
        );
        assert_eq!(fallbacks, expected[..fallbacks.len()]);
    }
}

#[test]
fn a_frame_found_by_a_fallback_is_marked_even_before_a_common_rule() {
    let mut finder = Rows::new(vec![(0x1200, RSP16), (0x1800, Rule::OUTERMOST)]);
    finder.carries = RegMask::FRAME;
    let mut second = Rows::all(Rule::FRAME_POINTER);
    second.table = TableKind::Sframe;
    finder.fallback = Some(Box::new(second));
    let words = [STACK + 32, pc(0x1300), 0, pc(0x1900)];
    let (space, mut cache) = (space(), Cache::new());
    let at = start(pc(0x1100), STACK, STACK);
    for _ in 0..2 {
        let chain = chain_in(&finder, &space, &at, &words, &mut cache);
        let cause = Some(Reason::NoRow { pc: pc(0x1100) });
        assert_eq!(served(&chain), [None, cause, None]);
    }
}

#[test]
fn both_failing_gives_both_reasons() {
    let mut finder = Rows::new(vec![(0x1800, RSP16)]);
    let mut second = Rows::new(vec![(0x1900, RSP16)]);
    second.table = TableKind::Sframe;
    finder.fallback = Some(Box::new(second));
    let chain = chain_of(&finder, &start(pc(0x1100), STACK, 0), &[]);
    let reason = Reason::NoRow { pc: pc(0x1100) };
    let fallback = Some(reason);
    let end = End {
        fallback,
        ..reason.into()
    };
    assert_eq!(chain.end, end);
}

fn with_frame_pointer(mut first: Rows) -> Rows {
    let mut second = Rows::all(Rule::FRAME_POINTER);
    second.table = TableKind::FramePointer;
    first.fallback = Some(Box::new(second));
    first
}

/// For each frame, the cause if it was found by the fallback.
fn served(chain: &Chain) -> Vec<Option<Reason>> {
    let cause = |step: Step<'_>| match step.how {
        How::Rule { row, .. } => row.source().fallback,
        _ => None,
    };
    chain.steps().map(cause).collect()
}

fn events(chain: &Chain) -> Vec<Reason> {
    let causes = chain.events.iter().filter_map(|event| match event {
        Event::Fallback { cause, .. } => Some(*cause),
        _ => None,
    });
    causes.collect()
}

/// After `pop %rbp`, the row still says that rbp is saved below the CFA. That is below rsp, which a
/// profiler's copy does not contain. The register has the caller's value already.
#[test]
fn a_popped_frame_pointer_leads_on_where_its_slot_is_not_in_the_copy() {
    let popped = Rule::call(Value::reg(Reg::Rsp, 8)).with_saved(Reg::Rbp, Value::at_cfa(-16));
    let rows = || {
        Rows::new(vec![
            (0x1000, popped),
            (0x1200, RSP16),
            (0x1400, Rule::FRAME_POINTER),
            (0x1800, Rule::OUTERMOST),
        ])
    };
    let at = start(pc(0x1100), STACK, STACK + 24);

    // The slot of the popped rbp is below rsp, where the copy has nothing.
    let words = [
        pc(0x1300),
        0,
        pc(0x1500),
        STACK + 40,
        pc(0x1500),
        0,
        pc(0x1900),
    ];
    let below = Reason::Memory(MemoryError::BelowCopy {
        address: STACK - 8,
        start: STACK,
    });
    let inner = [pc(0x1100), pc(0x1300), pc(0x1500)];
    for carries in [RegMask::CALLEE_SAVED, RegMask::FRAME] {
        let mut alone = rows();
        alone.carries = carries;
        let chain = chain_of(&alone, &at, &words);
        assert_eq!((pcs(&chain), chain.end), (inner.to_vec(), below.into()));

        let mut both = with_frame_pointer(rows());
        both.carries = carries;
        let (space, mut cache) = (space(), Cache::new());
        // First cold, then from the hot table.
        for _ in 0..2 {
            let chain = chain_in(&both, &space, &at, &words, &mut cache);
            assert_eq!(pcs(&chain)[..3], inner);
            assert_eq!(pcs(&chain)[3..], [pc(0x1500), pc(0x1900)]);
            assert_eq!(chain.end, Reason::RootReached.into());
            // Only for the frame that needed it; the others come from the table.
            assert_eq!(served(&chain), [None, None, None, Some(below), None]);
            assert_eq!(events(&chain), [below]);
        }
    }
}

/// A register that was lost in another way does not have the caller's value.
#[test]
fn only_a_popped_frame_pointer_is_kept() {
    let rule = |slot| Rule::call(Value::reg(Reg::Rsp, 8)).with_saved(Reg::Rbp, slot);
    let at = start(pc(0x1100), STACK, STACK + 8);
    for (slot, kept) in [
        (Value::at_cfa(-16), true),
        (Value::at_cfa(0x4000), false),
        (Value::Undefined, false),
    ] {
        let rows = Rows::new(vec![(0x1000, rule(slot)), (0x1200, Rule::FRAME_POINTER)]);
        let finder = with_frame_pointer(rows);
        let chain = chain_of(&finder, &at, &[pc(0x1300), 0, pc(0x1300), 0]);
        let found = chain.frames.len() == 3;
        assert_eq!(found, kept, "{slot:?}: {chain:?}");
    }
}

/// The fallback is used after every failure of a rule, with an event that has the cause.
#[test]
fn the_fallback_is_tried_whatever_a_rule_fails_for() {
    let at = start(pc(0x1100), STACK, STACK + 16);
    let words = [0x10, 0, 0, pc(0x1900)];

    let load = |offset| Value::Load {
        base: Base::Reg(Reg::Rsp),
        offset,
        addend: 0,
    };
    let rsp8 = Value::reg(Reg::Rsp, 8);

    // Each fails for the reason with this code.
    let rules = [
        (RSP16, "US402"),
        (Rule::call(rsp8), "US206"),
        (Rule::call(Value::reg(Reg::Rsp, -8)), "US204"),
        (Rule::call(Value::reg(Reg::Rsp, 0x4000)), "US202"),
        (Rule::call(load(-8)), "US203"),
        (Rule::call(Value::Undefined), "US104"),
        (Rule::call(Value::reg(Reg::Rdi, 8)), "US301"),
    ];

    // Each rule is the first frame's; the fallback then finds the outermost one.
    for (rule, code) in rules {
        let finder = with_frame_pointer(Rows::new(vec![(0x1000, rule), (0x1800, Rule::OUTERMOST)]));
        let (space, mut cache) = (space(), Cache::new());
        for _ in 0..2 {
            let chain = chain_in(&finder, &space, &at, &words, &mut cache);
            assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1900)], "{code}");
            assert_eq!(chain.end.reason, Reason::RootReached, "{code}");

            let causes: Vec<_> = events(&chain).iter().map(|c| c.code().as_str()).collect();
            assert_eq!(causes, [code]);
            assert_eq!(served(&chain)[1], Some(events(&chain)[0]));

            // Both sinks see the same frames and the same end.
            let bytes = bytes(&words);
            let place = WalkTarget {
                space: &space,
                memory: &MemoryCopy::new(STACK, &bytes),
            };
            let (limits, mut out) = (Limits::default(), Addresses::default());
            let end = walk(&finder, &place, &at, &limits, &mut cache, &mut out);
            assert_eq!((out.0, end), (pcs(&chain), chain.end), "{code}");
        }
    }
}

#[test]
fn a_root_has_no_caller_to_look_up() {
    let rows = Rows::new(vec![(0x1000, Rule::OUTERMOST)]);
    let finder = with_frame_pointer(rows);
    let at = start(pc(0x1100), STACK, STACK);
    let chain = chain_of(&finder, &at, &[0, pc(0x1200)]);
    assert_eq!(
        (chain.frames.len(), chain.end),
        (1, Reason::RootReached.into())
    );
    assert!(events(&chain).is_empty());
}

#[test]
fn if_both_rules_fail_the_end_has_both_reasons() {
    let finder = with_frame_pointer(Rows::new(vec![(0x1000, RSP16)]));
    // rbp points below sp.
    let at = start(pc(0x1100), STACK, STACK - 32);
    let chain = chain_of(&finder, &at, &[0, 0]);
    let end = End {
        fallback: Some(Reason::SpDidNotAdvance {
            from: STACK,
            to: STACK - 16,
        }),
        ..Reason::NotAtRoot.into()
    };
    assert_eq!((pcs(&chain), chain.end), (vec![pc(0x1100)], end));
}

/// The fallback's own failure is reported next to the first one, and the fallback is not tried
/// again.
#[test]
fn a_fallback_that_fails_is_reported() {
    let finder = with_frame_pointer(Rows::new(vec![(0x1000, RSP16)]));
    // rbp leads to a word that is not a code address.
    let at = start(pc(0x1100), STACK, STACK + 16);
    let chain = chain_of(&finder, &at, &[0, 0, 0, 0x77]);
    let not_text = Reason::NotText { address: 0x77 };
    let end = End {
        fallback: Some(not_text),
        ..Reason::NotAtRoot.into()
    };
    assert_eq!((chain.frames.len(), chain.end), (1, end));
    // rbp is zero, which marks a root.
    let at = start(pc(0x1100), STACK, 0);
    let chain = chain_of(&finder, &at, &[0, 0, 0, 0x77]);
    assert_eq!(chain.end, Reason::RootReached.into());
    assert_eq!(events(&chain), [Reason::NotAtRoot]);
}
