//! Return addresses in registers, and an sp that the table says is lost.

use super::*;

/// A function that was jumped to with its return address in this register.
fn linked(reg: Reg) -> Rule {
    Rule {
        ra: Value::reg(reg, 0),
        ..Rule::call(Value::reg(Reg::Rsp, 0))
    }
}

#[test]
fn sp_need_not_advance_where_the_return_address_is_in_a_register() {
    // A leaf was called by a function that returns by r13.
    let leaf = Rule::call(Value::reg(Reg::Rsp, 8));
    let finder = Rows::new(vec![
        (0x1000, leaf),
        (0x1200, linked(Reg::R13)),
        (0x1400, RSP16),
        (0x1800, Rule::OUTERMOST),
    ]);
    let mut at = start(pc(0x1100), STACK, 0);
    at.regs.set(Reg::R13, pc(0x1500));
    let chain = chain_of(&finder, &at, &[pc(0x1300), 0, pc(0x1900)]);
    let found = [pc(0x1100), pc(0x1300), pc(0x1500), pc(0x1900)];
    assert_eq!(pcs(&chain), found);
    let sps: Vec<u64> = chain.frames.iter().map(|f| f.sp).collect();
    assert_eq!(sps, [STACK, STACK + 8, STACK + 8, STACK + 24]);
    assert_eq!(chain.end.reason, Reason::RootReached);
    let is_change = |e: &Event| matches!(e, Event::StackChanged { .. });
    assert!(!chain.events.iter().any(is_change));
}

#[test]
fn return_addresses_in_registers_do_not_lead_in_circles() {
    // A frame that is its own caller, and two that are each other's.
    let mut at = start(pc(0x1100), STACK, 0);
    at.regs.set(Reg::R12, pc(0x1100));
    at.regs.set(Reg::R13, pc(0x1300));
    let alone = Rows::all(linked(Reg::R12));
    let both = Rows::new(vec![(0x1000, linked(Reg::R13)), (0x1200, linked(Reg::R12))]);
    for (finder, found) in [(alone, &[0x1100][..]), (both, &[0x1100, 0x1300])] {
        let chain = chain_of(&finder, &at, &[]);
        let found: Vec<u64> = found.iter().map(|&svma| pc(svma)).collect();
        assert_eq!(pcs(&chain), found);
        let cycle = Reason::Cycle {
            pc: pc(0x1100),
            sp: STACK,
        };
        assert_eq!(chain.end.reason, cycle);
    }
}

#[test]
fn an_undefined_sp_leaves_the_cfa() {
    let lost = |rule| Rule {
        sp: Value::Undefined,
        ..rule
    };
    let finder = Rows::new(vec![
        (0x1000, lost(Rule::FRAME_POINTER)),
        (0x1200, lost(RSP16)),
        (0x1400, Rule::OUTERMOST),
    ]);
    let words = [STACK + 400, pc(0x1300), 0, pc(0x1500)];
    let chain = chain_of(&finder, &start(pc(0x1100), STACK, STACK), &words);
    assert_eq!(pcs(&chain), [pc(0x1100), pc(0x1300), pc(0x1500)]);
    assert_eq!(chain.end.reason, Reason::RootReached);
    // It must advance as every ordinary rule.
    let from = STACK + 64;
    let chain = chain_of(&finder, &start(pc(0x1100), from, STACK), &words);
    let to = STACK + 16;
    assert_eq!(chain.end.reason, Reason::SpDidNotAdvance { from, to });
}
