//! A second table behind the first.

use super::*;

#[test]
fn a_fallback_is_an_event_with_its_cause() {
    let mut finder = Rows::new(vec![(0x1000, RSP16), (0x1800, Rule::OUTERMOST)]);
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
    // Cold, then out of the hot table: the same.
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
        let Found::Rule { source, .. } = &chain.frames[1].found else {
            panic!("{:?}", chain.frames[1]);
        };
        assert_eq!(
            (source.table, source.fallback),
            (TableKind::Sframe, Some(expected[0].1))
        );
        assert_eq!(fallbacks, expected[..fallbacks.len()]);
    }
}

#[test]
fn what_a_fallback_found_says_so_in_front_of_a_common_rule() {
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
        let causes = chain.frames.iter().map(|frame| match &frame.found {
            Found::Rule { source, .. } => source.fallback,
            _ => None,
        });
        let cause = Some(Reason::NoRow { pc: pc(0x1100) });
        assert_eq!(causes.collect::<Vec<_>>(), [None, cause, None]);
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
    assert_eq!(chain.end, End { reason, fallback });
}
