//! Tests of claims of common rules, field by field: what is right, what is wrong, and what a second
//! check may reuse from the first.

use super::*;
use unwind_sim_emulator::Permissions;
use unwind_sim_unwind::truth::{Cpu, Tracker};

/// A page of stack.
const STACK: Range<u64> = 0x7000_0000..0x7000_1000;
/// rsp at the entry of the function; its return address is there.
const SLOT: u64 = 0x7000_0800;
const CFA_TRUE: u64 = SLOT + 8;
const RETURN: u64 = 0x40_1234;
/// rbx, rbp, r12 to r15 of the caller.
const SAVED_TRUE: [u64; 6] = [0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5];
const NUMBERS: [usize; 6] = [3, 5, 12, 13, 14, 15];

fn caller() -> ShadowFrame {
    let cpu = Cpu {
        rip: 0x40_2000,
        rsp: SLOT,
        saved: SAVED_TRUE,
    };
    Tracker::function_entry(&cpu, RETURN, STACK.end).frames()[0]
}

/// The stack, with the return address, and the first registers saved below it in their order.
fn memory() -> AddressSpace {
    let mut memory = AddressSpace::default();
    memory.map(STACK, Permissions::READ_WRITE).expect("a page");
    let mut put = |address: u64, word: u64| {
        memory
            .write(address, &word.to_le_bytes())
            .expect("on the stack");
    };
    put(SLOT, RETURN);
    for (index, word) in (1..).zip(SAVED_TRUE) {
        put(SLOT - 8 * index, word);
    }
    memory
}

/// The function's registers at its entry.
fn gpr() -> [u64; 16] {
    let mut gpr = [0; 16];
    for (number, value) in NUMBERS.into_iter().zip(SAVED_TRUE) {
        gpr[number] = value;
    }
    gpr[4] = SLOT;
    gpr
}

const CALL: Rule = Rule::call(Value::reg(Reg::Rsp, 8));

/// The rule as one of the frame-pointer convention.
fn by_rbp(rule: Rule) -> Rule {
    Rule {
        by_frame_pointer: true,
        ..rule
    }
}

fn of(rule: &Rule) -> Simple {
    simple(rule, RegMask::CALLEE_SAVED).expect("the common shape")
}

fn wrong(simple: &Simple, gpr: &[u64; 16]) -> Wrong {
    let wrong = simple.wrong(&|number| gpr[number], &memory(), &caller());
    let (judged, cfa) = simple.judge(&|number| gpr[number], &memory(), &caller());
    assert_eq!(judged, wrong);
    let base = gpr[simple.base as usize];
    assert_eq!(cfa, base.wrapping_add_signed(simple.offset.into()));
    wrong
}

#[test]
fn each_thing_that_is_claimed_may_be_wrong() {
    assert_eq!(wrong(&of(&CALL), &gpr()), 0);
    for (offset, bits) in [(16, NOTHING), (0, CFA | RA)] {
        let rule = Rule {
            ra: Value::at_cfa(-8),
            ..Rule::call(Value::reg(Reg::Rsp, offset))
        };
        // Above the return address there is 0, below it a register.
        assert_eq!(wrong(&of(&rule), &gpr()), bits, "{offset}");
    }

    // The right slot, counted from a CFA that is 8 bytes too high.
    let cfa_only = Rule {
        ra: Value::at_cfa(-16),
        ..Rule::call(Value::reg(Reg::Rsp, 16))
    };
    assert_eq!(wrong(&of(&cfa_only), &gpr()), CFA);

    // Above the page of stack, so the word cannot be read.
    let unmapped = Rule {
        ra: Value::at_cfa(0x1000),
        ..CALL
    };
    assert_eq!(wrong(&of(&unmapped), &gpr()), NOTHING);

    for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
        let slot = -16 - 8 * index as i32;
        let bit = SAVED << index;

        // The register is in the slot or not, and unchanged or not.
        let saved = |value| of(&CALL.with_saved(reg, value));
        let (here, there) = (saved(Value::at_cfa(slot)), saved(Value::at_cfa(-8)));
        let mut changed = gpr();
        changed[NUMBERS[index]] = 7;

        assert_eq!(
            (wrong(&here, &changed), wrong(&there, &changed)),
            (0, bit),
            "{reg}"
        );

        let (same, nothing) = (saved(Value::Same), saved(Value::Undefined));
        assert_eq!(
            (wrong(&same, &changed), wrong(&nothing, &changed)),
            (bit, 0),
            "{reg}"
        );
        assert_eq!(wrong(&of(&CALL), &changed), bit, "{reg}");

        // A slot that cannot be read makes its register wrong, and nothing else.
        let outside = saved(Value::at_cfa(0x1000));
        assert_eq!(wrong(&outside, &gpr()), bit, "{reg}");
    }
}

#[test]
fn a_frame_pointer_of_nought_says_that_there_is_no_caller() {
    let rule = Rule::call(Value::reg(Reg::Rbp, 16));
    let mut at = gpr();
    at[5] = 0;

    for (frame_pointer, address, bits) in [
        (true, 0, NOTHING),
        (true, SLOT - 8, 0),
        (false, SLOT - 8, 0),
        (true, SLOT, NOTHING),
    ] {
        at[5] = address;
        let rule = rule.with_saved(Reg::Rbp, Value::Undefined);
        let rule = if frame_pointer { by_rbp(rule) } else { rule };
        let claim = of(&rule);
        assert_eq!(wrong(&claim, &at), bits, "{frame_pointer} {address:#x}");
    }

    // If rbp is not used as a frame pointer, 0 is an address like any other.
    let from_nought = Rule {
        ra: Value::at_cfa(-8),
        ..Rule::call(Value::reg(Reg::Rbp, CFA_TRUE as i32))
    };

    at[5] = 0;
    let plain = of(&from_nought.with_saved(Reg::Rbp, Value::Undefined));
    assert_eq!(wrong(&plain, &at), 0);
}

#[test]
fn only_the_common_shape_is_checked_this_way() {
    let load = Value::Load {
        base: Base::Cfa,
        offset: -8,
        addend: 1,
    };

    for rule in [
        Rule::OUTERMOST,
        Rule::call(Value::at_cfa(-8)),
        Rule {
            kind: RuleKind::Signal,
            ..CALL
        },
        Rule {
            sp: Value::Same,
            ..CALL
        },
        Rule {
            ra: Value::reg(Reg::Rdx, 0),
            ..CALL
        },
        Rule { ra: load, ..CALL },
        by_rbp(CALL),
        CALL.with_saved(Reg::Rbx, Value::reg(Reg::Rdx, 0)),
    ] {
        let claim = Claim::of(&rule, RegMask::CALLEE_SAVED);
        assert_eq!((claim, claim.depends()), (Claim::Slow, ALL), "{rule}");
    }

    // A register that is not carried is not claimed, whatever the rule says.
    let odd = CALL.with_saved(Reg::Rbx, Value::reg(Reg::Rdx, 0));
    assert!(matches!(Claim::of(&odd, RegMask::FRAME), Claim::Simple(_)));
}

#[test]
fn a_claim_depends_on_its_base_on_what_is_unchanged_and_on_the_slots() {
    let parts = |rule: &Rule, carries| Claim::of(rule, carries).depends();
    let always = FRAME | SLOTS;
    assert_eq!(Claim::Missing.depends(), always);
    assert_eq!(always, 0x300);

    // Only rbp is carried, the second callee-saved register.
    assert_eq!(parts(&CALL, RegMask::FRAME), always | RSP | 1 << 1);
    assert_eq!(parts(&CALL, RegMask::CALLEE_SAVED), always | RSP | 0x3f);

    // Without rbp, which is in a slot, and r15, of which nothing is claimed.
    let saved = CALL
        .with_saved(Reg::Rbp, Value::at_cfa(-16))
        .with_saved(Reg::R15, Value::Undefined);
    assert_eq!(parts(&saved, RegMask::CALLEE_SAVED), always | RSP | 0x1d);

    let by = |reg| {
        parts(
            &Rule::call(Value::reg(reg, 8)).with_saved(Reg::Rbp, Value::at_cfa(-16)),
            RegMask::FRAME,
        )
    };

    for (reg, part) in [
        (Reg::Rax, OTHER),
        (Reg::R11, OTHER),
        (Reg::Rbx, 1),
        (Reg::Rbp, 1 << 1),
        (Reg::R12, 1 << 2),
        (Reg::R13, 1 << 3),
        (Reg::R14, 1 << 4),
        (Reg::R15, 1 << 5),
    ] {
        assert_eq!(by(reg), always | part, "{reg}");
    }
}

#[test]
fn what_claims_no_more_than_another_is_a_part_of_it() {
    let full = CALL.with_saved(Reg::Rbx, Value::at_cfa(-16));
    let carried = |rule: &Rule, carries| simple(rule, carries).expect("common");
    let (all, few) = (of(&full), carried(&full, RegMask::FRAME));

    // rbp is claimed by both, the others by one.
    let claims = NOTHING | CFA | RA | SAVED << 1;
    assert_eq!(few.part_of(&all), Some(claims));

    assert_eq!(all.part_of(&few), None);
    assert_eq!(all.part_of(&all), Some(NOTHING | CFA | RA | (0x3f * SAVED)));

    for other in [
        Rule::call(Value::reg(Reg::Rbp, 8)),
        Rule::call(Value::reg(Reg::Rsp, 16)),
        Rule {
            ra: Value::at_cfa(-16),
            ..CALL
        },
        full.with_saved(Reg::Rbp, Value::at_cfa(-24)),
    ] {
        assert_eq!(few.part_of(&of(&other)), None, "{other}");
    }

    // Both give the same, but only one of them says that rbp = 0 is the end.
    let full = Rule::call(Value::reg(Reg::Rbp, 16));
    let (first, second) = (of(&full), of(&by_rbp(full)));
    assert_eq!(first.part_of(&second), None);

    let judged = judged(&all, CFA | SAVED);
    assert_eq!(judged.part(CFA | RA), (CFA, CFA_TRUE));
}

fn judged(simple: &Simple, wrong: Wrong) -> Judged {
    let mut judged = Judged::NOTHING;
    judged.set(5, simple, (wrong, CFA_TRUE));
    judged
}

#[test]
fn a_judgement_remembers_its_claim() {
    let claim = of(&CALL.with_saved(Reg::Rbx, Value::at_cfa(-24)));
    let kept = judged(&claim, RA);
    let found = (kept.claim, kept.wrong, kept.cfa, kept.lowest);
    assert_eq!(found, (5, RA, CFA_TRUE, CFA_TRUE - 24));
    let none = Judged::without_cfa(7, NOTHING);
    let found = (none.claim, none.wrong, none.cfa, none.lowest);
    assert_eq!(found, (7, NOTHING, 0, u64::MAX));
}

#[test]
fn a_second_look_takes_over_what_cannot_have_changed() {
    // The results of the first check are kept, right or not, which shows what was checked again.
    let before = of(&CALL.with_saved(Reg::Rbx, Value::at_cfa(-8)));
    let last = judged(&before, CFA | RA | SAVED | SAVED << 2);

    let again = |now: &Simple, last: &Judged, changed: Parts, gpr: &[u64; 16]| {
        now.judge_again(
            &|number| gpr[number],
            &memory(),
            &caller(),
            (&before, last, changed),
        )
    };

    let kept = (CFA | RA | SAVED | SAVED << 2, CFA_TRUE);
    assert_eq!(again(&before, &last, 0, &gpr()), kept);

    // A register that may have changed is checked again; one that is in a slot is not.
    let looked = (CFA | RA | SAVED, CFA_TRUE);
    assert_eq!(again(&before, &last, 1 << 2, &gpr()), looked);
    assert_eq!(again(&before, &last, 1, &gpr()), kept);

    let mut changed = gpr();
    changed[13] = 7;
    let found = (CFA | RA | SAVED | SAVED << 2 | SAVED << 3, CFA_TRUE);
    assert_eq!(again(&before, &last, 1 << 3, &changed), found);

    // What a new rule claims differently is checked too.
    let other = of(&CALL.with_saved(Reg::Rbx, Value::at_cfa(-16)));
    assert_eq!(
        again(&other, &last, 0, &gpr()),
        (CFA | RA | SAVED << 2, CFA_TRUE)
    );

    // Everything is checked if the CFA differs, nothing was known, or the return address has
    // another slot.
    let elsewhere = Judged { cfa: 1, ..last };
    assert_eq!(again(&before, &elsewhere, 0, &gpr()), (SAVED, CFA_TRUE));
    let nothing = judged(&before, NOTHING);
    assert_eq!(again(&before, &nothing, 0, &gpr()), (SAVED, CFA_TRUE));

    let moved = Rule {
        ra: Value::at_cfa(-16),
        ..CALL
    };
    assert_eq!(again(&of(&moved), &last, 0, &gpr()), (RA, CFA_TRUE));
}

#[test]
fn a_second_look_at_a_frame_pointer_of_nought_finds_nothing() {
    let rule = Rule::call(Value::reg(Reg::Rbp, 16)).with_saved(Reg::Rbp, Value::Undefined);
    let before = simple(&by_rbp(rule), RegMask::FRAME).expect("common");
    let mut at = gpr();
    for (rbp, expected) in [(0, NOTHING), (SLOT - 8, CFA)] {
        at[5] = rbp;
        let mut last = Judged::NOTHING;
        last.set(5, &before, (CFA, rbp + 16));
        let pair = (&before, &last, 0);
        let found = before.judge_again(&|number| at[number], &memory(), &caller(), pair);
        assert_eq!(found, (expected, rbp + 16));
    }
}

#[test]
fn stores_touch_the_slots_that_they_overlap() {
    let rule = CALL
        .with_saved(Reg::Rbx, Value::at_cfa(-24))
        .with_saved(Reg::R12, Value::at_cfa(-16));
    let claim = of(&rule);
    let touched = |start: u64, end: u64| {
        let found: Vec<_> = claim.saved_in(0x1000, &(start..end)).collect();
        found
    };
    let (rbx, r12) = ((0, 0x1000 - 24), (2, 0x1000 - 16));
    assert_eq!(touched(0xf00, 0x1100), [rbx, r12]);
    for (start, end, hits) in [
        (0xfe0, 0xfe8, &[][..]),
        (0xfe0, 0xfe9, &[rbx]),
        (0xfef, 0xff0, &[rbx]),
        (0xff0, 0xff1, &[r12]),
        (0xfef, 0xff1, &[rbx, r12]),
        (0xff7, 0xff8, &[r12]),
        (0xff8, 0x1000, &[]),
    ] {
        assert_eq!(touched(start, end), hits, "{start:#x}..{end:#x}");
    }
}

#[test]
fn a_walk_can_apply_what_lies_above_its_callee_by_a_carried_register() {
    let rule = CALL.with_saved(Reg::Rbx, Value::at_cfa(-24));
    let at = gpr();
    let can = |claim: &Simple, callee| claim.can_be_walked(&|number| at[number], callee);
    let claim = of(&rule);
    let lowest = CFA_TRUE - 24;
    assert_eq!(claim.lowest(&|number| at[number]), lowest);
    let cans = [lowest - 1, lowest, lowest + 1].map(|callee| can(&claim, callee));
    assert_eq!(cans, [true, true, false]);
    let by = |reg, carries| {
        let rule = Rule::call(Value::reg(reg, 8)).with_saved(Reg::Rbp, Value::Undefined);
        can(&simple(&rule, carries).expect("common"), 0)
    };
    assert!(by(Reg::Rbp, RegMask::FRAME) && by(Reg::Rsp, RegMask::of(&[])));
    assert!(!by(Reg::Rax, RegMask::FRAME) && !by(Reg::Rbx, RegMask::FRAME));
    assert!(by(Reg::Rbx, RegMask::CALLEE_SAVED));
}
