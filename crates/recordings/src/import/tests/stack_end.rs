//! Where the copy of a stack ends, and where the stack does.

use super::*;
use unwind_sim_perf_data::regs::{PERF_REG_X86_IP, PERF_REG_X86_SP};
use unwind_sim_perf_data::sample_type as st;
use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, StackCopy, Writer};

const RSP: u64 = 0x7ffc_0000;

/// The bounds of a stack of which `length` of 64 bytes were copied.
fn bounds(length: usize) -> std::ops::Range<u64> {
    let event = EventSpec {
        sample_type: st::IP | st::TID | st::TIME | st::REGS_USER | st::STACK_USER,
        sample_regs_user: 1 << PERF_REG_X86_IP | 1 << PERF_REG_X86_SP,
        sample_stack_user: 64,
        ..EventSpec::software("cpu-clock", 0)
    };

    let mut writer = Writer::new(vec![event]);
    let (bytes, id) = (
        vec![7; length],
        Id {
            pid: 7,
            tid: 7,
            ..Id::default()
        },
    );

    // A sample has the size that was asked for, and how much of it was copied (`dyn_size`,
    // perf_event_open(2)).
    let sample = SampleData {
        // In the order of the mask's bits: sp is 7, ip is 8
        // (`arch/x86/include/uapi/asm/perf_regs.h`).
        user_regs: &[RSP, 0x401000],
        user_stack: StackCopy {
            bytes: &bytes,
            size: 64,
        },
        ..SampleData::default()
    };
    writer.record(&Body::Sample(sample), &id).expect("a record");

    let (taken, _) = take(writer.finish(), &nowhere()).expect("perf.data");
    taken.samples[0].regions[0].bounds.clone()
}

/// The kernel copies less than was asked for where it finds no more of the stack.
#[test]
fn a_stack_ends_where_less_was_copied_than_asked_for() {
    assert_eq!(bounds(24), RSP..RSP + 24);
    assert!(bounds(64).is_empty(), "the stack may go on");
}
