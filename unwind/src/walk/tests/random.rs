//! Random rules and stacks: both paths and both sinks agree.

use super::*;

/// Any rule, usually a plausible one.
impl Arbitrary for Rule {
    fn arbitrary(g: &mut Gen) -> Rule {
        let regs = [Reg::Rsp, Reg::Rsp, Reg::Rbp, Reg::Rbx, Reg::R11];

        // Usual rules for the most part, so that walks get beyond their first frame.
        let value = |g: &mut Gen| {
            let offset = i32::from(i8::arbitrary(g)) / 8 * 8;
            let base = match u8::arbitrary(g) % 4 {
                0 => Base::Reg(*g.choose(&regs).expect("one")),
                _ => Base::Cfa,
            };
            let addend = i32::from(u8::arbitrary(g) == 0);
            match u8::arbitrary(g) % 8 {
                0 => Value::Undefined,
                1 => Value::Same,
                2 | 3 => Value::Unspecified,
                4 => Value::Offset { base, offset },
                5 => Value::Load {
                    base,
                    offset,
                    addend,
                },
                _ => Value::at_cfa(offset),
            }
        };

        let usually = |g: &mut Gen, usual, other: fn(&mut Gen) -> Value| {
            if u8::arbitrary(g) % 16 == 0 {
                other(g)
            } else {
                usual
            }
        };

        let cfa = Value::reg(
            *g.choose(&regs).expect("one"),
            i32::from(u8::arbitrary(g) % 8) * 8,
        );
        let any: fn(&mut Gen) -> Value = |g| Value::Offset {
            base: Base::Cfa,
            offset: i32::from(i8::arbitrary(g)),
        };

        // Kinds that end a walk are rare.
        Rule {
            kind: match u8::arbitrary(g) % 32 {
                0 => RuleKind::Signal,
                1 => RuleKind::Outermost,
                _ => RuleKind::Call,
            },
            by_frame_pointer: u8::arbitrary(g) % 8 == 0,
            cfa: usually(g, cfa, |g| Value::Load {
                base: Base::Reg(Reg::Rsp),
                offset: i32::from(u8::arbitrary(g)),
                addend: 0,
            }),
            ra: usually(g, Value::at_cfa(-8), any),
            sp: usually(g, Value::Unspecified, any),
            saved: core::array::from_fn(|_| value(g)),
        }
    }
}

/// Two rules in a row that look for rbp in the same slot, outside the copy.
#[test]
fn a_register_lost_twice_for_one_reason_is_reported_once() {
    let rule =
        |cfa, slot| Rule::call(Value::reg(Reg::Rsp, cfa)).with_saved(Reg::Rbp, Value::at_cfa(slot));
    let words = [0, 0, pc(TEXT.start) + 0x17, 0, pc(0x20000)];
    for fast in [true, false] {
        let rows = vec![
            (TEXT.start, rule(24, -72)),
            (TEXT.start + 0x10, rule(16, -88)),
        ];
        let mut finder = Rows::new(rows);
        finder.fast = fast;
        let at = start(pc(TEXT.start), STACK, STACK);
        let chain = chain_in(&finder, &space(), &at, &words, &mut Cache::new());
        let is_lost = |event: &&Event| matches!(event, Event::RegisterLost { reg: Reg::Rbp, .. });
        assert_eq!(
            chain.events.iter().filter(is_lost).count(),
            1,
            "fast: {fast}"
        );
        assert_eq!(chain.frames.len(), 2, "fast: {fast}, {:?}", chain.end);
    }
}

/// Compares the fast with the generic path, and pcs only with full provenance, on random rules and
/// stacks.
#[test]
fn both_paths_and_both_sinks_agree() {
    fn property(rules: Vec<Rule>, stack: Vec<u8>, rsp: u8, rbp: u8, few: bool) -> bool {
        let rows: Vec<_> = (TEXT.start..).step_by(16).zip(rules).collect();
        // For the most part return addresses, and some pointers into the stack.
        let words: Vec<u64> = stack
            .iter()
            .map(|&byte| match byte % 8 {
                0 => u64::from(byte),
                1 | 2 => STACK + u64::from(byte),
                _ => pc(TEXT.start) + u64::from(byte),
            })
            .collect();

        let mut regs = Regs::UNKNOWN;
        RegMask::ALL.iter().for_each(|reg| regs.set(reg, STACK));
        regs.set(Reg::Rip, pc(TEXT.start) + u64::from(rsp));
        regs.set(Reg::Rsp, STACK + u64::from(rsp) / 4 * 8);
        regs.set(Reg::Rbp, STACK + u64::from(rbp));

        let (space, at) = (space(), Start::from_regs(regs));
        let mut finder = Rows::new(rows);
        if few {
            finder.carries = RegMask::FRAME;
        }

        // A cache for each path, so that neither learns from the other one.
        let (mut fast, mut slow) = (Cache::new(), Cache::new());
        let bytes = bytes(&words);
        let memory = MemoryCopy::new(STACK, &bytes);
        let place = WalkTarget {
            space: &space,
            memory: &memory,
        };

        let mut used = Chain::default();
        // The second time, everything is hot.
        for _ in 0..2 {
            finder.fast = true;
            let by_fast = chain_in(&finder, &space, &at, &words, &mut fast);

            let mut out = Addresses::default();
            let end = walk(
                &finder,
                &place,
                &at,
                &Limits::default(),
                &mut fast,
                &mut out,
            );

            // Addresses alone take another loop, which must end alike.
            assert_eq!((&out.0, end), (&pcs(&by_fast), by_fast.end));

            finder.fast = false;
            let by_slow = chain_in(&finder, &space, &at, &words, &mut slow);
            assert_eq!(by_fast, by_slow);

            for cache in [&mut slow, &mut fast] {
                let empty = used.emptied();
                used = chain_again(&finder, &space, &at, &words, cache, empty);
                assert_eq!(used, by_slow);
            }
        }

        true
    }

    QuickCheck::new()
        .tests(5000)
        .quickcheck(property as fn(Vec<Rule>, Vec<u8>, u8, u8, bool) -> bool);
}
