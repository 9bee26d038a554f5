//! What the SDM says about performance counters and last branch records.

use super::{COUNTERS, Counters, VALUE};
use crate::system::last_branches::{Branch, Kind, LastBranches};

const PMC: u32 = 0xc1;
const FULL: u32 = 0x4c1;
const SELECT: u32 = 0x186;
const FIXED: u32 = 0x309;
const FIXED_CONTROL: u32 = 0x38d;
const STATUS: u32 = 0x38e;
const ENABLED: u32 = 0x38f;
const CLEAR: u32 = 0x390;
const DEBUGCTL: u32 = 0x1d9;

/// Instructions, in both kinds of mode, with an interrupt.
const INSTRUCTIONS: u64 = 0x53_00c0;

fn written(writes: &[(u32, u64)]) -> Counters {
    let mut counters = Counters::new(0);
    for &(number, value) in writes {
        assert_eq!(counters.write(number, value), Some(()), "{number:#x}");
    }
    counters
}

#[test]
fn a_counter_counts_at_its_privilege_levels() {
    for (select, of_kernel, of_user) in [
        (INSTRUCTIONS, 5, 8),
        (INSTRUCTIONS & !(1 << 16), 5, 5),
        (INSTRUCTIONS & !(1 << 17), 0, 3),
        // Disabled, another event, with a threshold.
        (INSTRUCTIONS & !(1 << 22), 0, 0),
        (0x53_00c4, 0, 0),
        (INSTRUCTIONS | 1 << 24, 0, 0),
    ] {
        let mut counters = written(&[(SELECT, select)]);
        assert!(!counters.count(5, 0));
        assert_eq!(counters.read(PMC), Some(of_kernel), "{select:#x}");
        assert!(!counters.count(3, 3));
        assert_eq!(counters.read(PMC), Some(of_user), "{select:#x}");
        assert_eq!(counters.counter(0), Some(of_user));
    }
    let mut counters = written(&[(SELECT, INSTRUCTIONS), (ENABLED, 0)]);
    assert!(!counters.count(5, 0));
    assert_eq!(counters.read(PMC), Some(0));
}

#[test]
fn an_overflow_is_seen_in_advance_and_interrupts_if_it_should() {
    let mut counters = written(&[(SELECT, INSTRUCTIONS), (PMC, -7i64 as u64)]);
    assert_eq!(counters.until_overflow(0), 7);
    assert!(!counters.count(6, 0));
    assert_eq!(
        (counters.until_overflow(3), counters.read(STATUS)),
        (1, Some(0))
    );
    assert!(counters.count(1, 3));
    assert_eq!(
        (counters.read(PMC), counters.read(STATUS)),
        (Some(0), Some(1))
    );
    assert_eq!(counters.write(CLEAR, 1), Some(()));
    assert_eq!(counters.read(STATUS), Some(0));

    // One that does not interrupt, and the fixed counter of instructions in user mode.
    let mut counters = written(&[
        (SELECT + 3, INSTRUCTIONS & !(1 << 20)),
        (FULL + 3, VALUE),
        (FIXED, VALUE),
        (FIXED_CONTROL, 0b1010),
        (ENABLED, COUNTERS),
    ]);
    assert_eq!(counters.counter(1 << 30), Some(VALUE));
    assert!(!counters.count(1, 0));
    assert_eq!(counters.read(STATUS), Some(1 << 3));
    assert!(counters.count(1, 3));
    assert_eq!(counters.read(STATUS), Some(1 << 32 | 1 << 3));
}

#[test]
fn what_freezes_at_an_interrupt_does() {
    let writes = [
        (SELECT, INSTRUCTIONS),
        (FULL, VALUE),
        (DEBUGCTL, 1 << 12 | 1 << 11 | 1),
    ];
    let mut counters = written(&writes);
    assert!(counters.is_recording() && counters.count(1, 0));
    assert!(!counters.is_recording());
    assert_eq!(counters.read(ENABLED), Some(0));
    assert_eq!(counters.until_overflow(0), u64::MAX);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let mut counters = Counters::new(0);
    for (number, value) in [
        (FULL, VALUE + 1),
        (FIXED, VALUE + 1),
        (SELECT, 1 << 32),
        (FIXED_CONTROL, 0b100),
        (STATUS, 0),
        (ENABLED, 1 << 4),
        (CLEAR, 1 << 4),
        (DEBUGCTL, 1 << 2),
        (0x345, 0),
        (0x1c8, 1 << 10),
        (0x1c9, 32),
        (0x680, 1 << 47),
    ] {
        assert_eq!(counters.write(number, value), None, "{number:#x}");
    }
    assert_eq!(counters.counter(4), None);
    assert_eq!(counters.counter(1 << 30 | 3), None);
    // Bit 31 is repeated.
    assert_eq!(counters.write(PMC, 0x1234_8000_0000), Some(()));
    assert_eq!(counters.read(PMC), Some(0xffff_8000_0000));
    assert!(!Counters::is_msr(0xc5) && !Counters::is_msr(0x6e0));
}

fn branch(kind: Kind, from: u64, to: u64) -> Branch {
    Branch {
        kind,
        from,
        to,
        next: from + 5,
        privilege: 3,
        executed: from,
    }
}

/// The records, newest first, as the kernel reads them.
fn records(branches: &LastBranches) -> Vec<(u64, u64, u64)> {
    let top = branches.read(0x1c9).expect("it is there") as u32;
    let places = (0..32).map(|age| (top + 32 - age) % 32);
    let read = |number| branches.read(number).expect("it is there");
    let all = places.map(|at| (read(0x680 + at), read(0x6c0 + at), read(0xdc0 + at)));
    all.take_while(|record| record.0 != 0).collect()
}

#[test]
fn branches_that_pass_the_filter_are_recorded() {
    let mut branches = LastBranches::default();
    // Neither in ring 0, nor conditional ones.
    assert_eq!(branches.write(0x1c8, 0b101), Some(()));
    branches.record(branch(Kind::Jump, 10, 20));
    branches.record(branch(Kind::Conditional, 30, 40));
    branches.record(Branch {
        privilege: 0,
        ..branch(Kind::Far, 50, 60)
    });
    branches.record(branch(Kind::Return, 70, 80));
    assert_eq!(records(&branches), [(70, 80, 60), (10, 20, 10)]);
    for at in 0..40 {
        branches.record(branch(Kind::Call, 100 + at, 1));
    }
    let all = records(&branches);
    assert_eq!((all.len(), all[0].0, all[31].0), (32, 139, 108));
}

#[test]
fn in_call_stack_mode_a_return_takes_its_call() {
    let mut branches = LastBranches::default();
    // What the kernel writes for user space: calls and returns are not suppressed.
    assert_eq!(branches.write(0x1c8, 0x3c5), Some(()));
    branches.record(branch(Kind::Call, 10, 100));
    branches.record(branch(Kind::IndirectCall, 110, 200));
    branches.record(branch(Kind::Jump, 210, 220));
    // Not of a function: the pc is read.
    branches.record(branch(Kind::Call, 220, 225));
    branches.record(branch(Kind::Call, 230, 300));
    assert_eq!(records(&branches).len(), 3);
    branches.record(branch(Kind::Return, 310, 235));
    // Its place is empty: the kernel stops reading there when more has returned than was called.
    assert_eq!(branches.read(0x680 + 3), Some(0));
    let calls: Vec<_> = records(&branches).iter().map(|record| record.0).collect();
    assert_eq!(calls, [110, 10]);
    for _ in 0..3 {
        branches.record(branch(Kind::Return, 310, 235));
    }
    assert_eq!(records(&branches), []);
}
