//! What is news, and what ways know together.

use super::*;

fn is_news(state: &mut State, change: impl FnOnce(&mut State)) -> bool {
    let before = state.version();
    change(state);
    state.version() != before
}

#[test]
fn a_call_is_news_if_it_loses_what_a_row_can_name() {
    let mut state = State::entry();
    assert!(!is_news(&mut state, |s| s.call(RegMask::CALLEE_SAVED)));
    state.set(Reg::Rax, Value::entry(Reg::Rbx));
    assert!(
        is_news(&mut state, |s| s.call(RegMask::CALLEE_SAVED)),
        "rbx in rax"
    );
    state.set(Reg::R10, Value::frame(8));
    assert!(
        is_news(&mut state, |s| s.call(RegMask::CALLEE_SAVED)),
        "the CFA in r10"
    );
    state.set(Reg::Rsp, Value::frame(-8));
    state.store(Value::frame(-16), 8, Value::entry(Reg::Rbx));
    assert!(
        is_news(&mut state, |s| s.call(RegMask::CALLEE_SAVED)),
        "a slot below rsp"
    );
    assert!(!is_news(&mut state, |s| s.call(RegMask::CALLEE_SAVED)));
}

#[test]
fn a_meeting_is_news_if_rows_may_turn_out_otherwise() {
    let mut state = State::entry();
    state.set(Reg::Rax, Value::Const(1));
    let mut other = state.clone();
    other.set(Reg::Rax, Value::Const(2));
    let mut changed = None;
    assert!(!is_news(&mut state, |s| changed = s.join(&other)));
    assert_eq!(
        (changed, state.reg(Reg::Rax)),
        (Some(true), Value::Computed)
    );
    assert_eq!(state.join(&other), Some(false));
    other.store(Value::frame(0), 8, Value::Computed);
    assert!(is_news(&mut state, |s| changed = s.join(&other)));
    assert_eq!(changed, Some(true));
    other.set(Reg::Rsp, Value::frame(-8));
    assert_eq!(state.join(&other), None);
}

#[test]
fn a_meeting_weakens_the_registers_that_differ() {
    for changed in Reg::ALL.into_iter().take(16).filter(|&r| r != Reg::Rsp) {
        let mut state = State::entry();
        for reg in Reg::ALL.into_iter().take(16).filter(|&r| r != Reg::Rsp) {
            state.set(reg, Value::Const(1));
        }
        let mut other = state.clone();
        assert_eq!(state.join(&other), Some(false));
        other.set(changed, Value::Const(2));
        assert_eq!(state.join(&other), Some(true), "{changed}");
        other.set(changed, Value::Const(1));
        assert_eq!(state.reg(changed), Value::Computed);
        state.set(changed, Value::Const(1));
        assert!(state == other, "only {changed}");
    }
}

#[test]
fn that_a_value_was_loaded_is_news_of_a_stack_address_only() {
    let join = |value| {
        let mut state = State::entry();
        state.set(Reg::Rdi, value);
        let mut other = state.clone();
        other.set_loaded(Reg::Rdi, Value::frame(-32));
        let changed = state.join(&other);
        (changed, state.join(&other), state.is_loaded(Reg::Rdi))
    };
    assert_eq!(join(Value::frame(-32)), (Some(true), Some(false), true));
    assert_eq!(join(Value::Varies), (Some(false), Some(false), false));
}

#[test]
fn only_what_a_row_can_name_makes_another_row() {
    let entry = State::entry();
    let is_same = |change: fn(&mut State)| {
        let mut other = entry.clone();
        change(&mut other);
        entry.is_same_for_rows(&other)
    };
    assert!(is_same(|s| s.set(Reg::Rax, Value::Const(1))));
    assert!(!is_same(|s| s.set(Reg::Rax, Value::Unknown)));
    assert!(!is_same(|s| s.set(Reg::R12, Value::Computed)));
    assert!(!is_same(|s| s.set(Reg::Rsp, Value::frame(-8))));
    assert!(!is_same(|s| s.store(
        Value::frame(-8),
        8,
        Value::entry(Reg::Rbx)
    )));
    assert!(!is_same(|s| s.is_lossy = true));
}

/// There is room for few words. One that gave way is not known, whatever it held.
#[test]
fn a_word_that_gives_way_is_not_known() {
    for kept in [Value::Unknown, Value::entry(Reg::Rbx), Value::frame(-64)] {
        let mut state = State::entry();
        for word in 1..=SLOTS_MAX as i32 {
            state.store(Value::frame(-8 * word), 8, kept);
        }
        let left = (1..=SLOTS_MAX as i32).map(|word| state.load(Value::frame(-8 * word), 8));
        let gone = left.filter(|value| *value != kept).collect::<Vec<_>>();
        assert_eq!(state.load(Value::frame(0), 8), Value::ReturnAddress);
        assert!(
            gone.iter().all(|value| *value == Value::Unknown),
            "{gone:?}"
        );
        assert!(state.is_lossy, "{kept:?}");
    }
}
