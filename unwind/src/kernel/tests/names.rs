//! Changes by release, and names.

use crate::kernel::{
    Context, Generated, GraphSearch, StackType, UnwinderKind, UserEnd, UserOutcome, Version,
};
use crate::memory::MemoryError;
use crate::orc::{Encoding, Layout};
use crate::regs::Reg;
use alloc::string::ToString;

fn version(name: &str) -> Version {
    Version::from_name(name).expect("a version")
}

type VersionPredicate = fn(Version) -> bool;

#[test]
fn each_change_came_with_its_release() {
    let changes: [(&str, &str, VersionPredicate); 9] = [
        ("4.17", "4.18", Version::tells_end_from_error),
        ("5.1", "5.2", Version::falls_back_to_frame_pointer),
        ("5.6", "5.7", Version::has_prev_regs),
        ("5.9", "5.10", Version::maps_ftrace_trampolines),
        ("5.15", "5.16", Version::recovers_kretprobes),
        ("6.2", "6.3", Version::takes_signal_from_entry),
        ("6.5", "6.6", Version::has_ret_from_fork_asm),
        ("6.9", "6.10", |v| v.graph_search() == GraphSearch::Newest),
        ("6.19", "7.0", Version::knows_bpf_frame_pointers),
    ];
    for (before, since, has) in changes {
        assert!(!has(version(before)), "{before}");
        assert!(!has(version("4.14")), "{since} in 4.14");
        assert!(has(version(since)), "{since}");
        assert!(has(version("7.9")), "{since} in 7.9");
    }
}

#[test]
fn the_interrupt_stack_ends_after_its_last_word() {
    assert_eq!(version("5.11").irq_stack_end(0x1000), 0x1000);
    assert_eq!(version("5.12").irq_stack_end(0x0ff8), 0x1000);
}

#[test]
fn a_version_may_read_its_entries_otherwise() {
    let told = Encoding::since_5_12(Layout::V7_1);
    let changed = version("6.1").with_encoding(told);
    assert_ne!(version("6.1").encoding(), told);
    assert_eq!(changed.encoding(), told);
    // Nothing else changes.
    assert_eq!(changed.to_string(), "6.1");
    assert!(!changed.takes_signal_from_entry());
}

#[test]
fn markers_are_those_of_perf_event_h() {
    let markers = [
        (Context::Kernel, "PERF_CONTEXT_KERNEL", -128),
        (Context::User, "PERF_CONTEXT_USER", -512),
        (Context::UserDeferred, "PERF_CONTEXT_USER_DEFERRED", -640),
    ];
    for (context, name, value) in markers {
        assert_eq!(context.as_str(), name);
        assert_eq!(context.value().cast_signed(), value);
    }
}

#[test]
fn things_have_names() {
    assert_eq!(
        UnwinderKind::ALL.map(UnwinderKind::as_str),
        ["orc", "fp", "guess"]
    );
    assert_eq!(StackType::Irq.to_string(), StackType::Irq.as_str());
    assert_eq!(version("6.12").to_string(), "6.12");
    for saves_regs in [false, true] {
        let name = Generated::ftrace_name(saves_regs);
        assert_eq!(
            Generated::from_name(&name),
            Some(Generated::Ftrace { saves_regs })
        );
    }
}

#[test]
fn an_end_says_where() {
    let end = |end: UserEnd| UserOutcome::Walked(end).to_string();
    let address = 0x1234;
    let unmapped = MemoryError::Unmapped { address };

    let texts = [
        (
            UserEnd::NotUser { address },
            "fault: 0x1234 is not a user-space address",
        ),
        (
            UserEnd::FpBelowSp { fp: 1, sp: 2 },
            "fp < sp: 0x1 is below 0x2",
        ),
        (
            UserEnd::CfaNotAboveSp { cfa: 1, sp: 2 },
            "cfa <= sp: 0x1 is not above 0x2",
        ),
        (UserEnd::Misaligned { cfa: 3 }, "misaligned: cfa 0x3"),
        (
            UserEnd::MaxStack { max: 127 },
            "max_stack: 127 addresses are stored",
        ),
        (UserEnd::Vm86, "virtual 8086 mode"),
        (UserEnd::RegisterMissing(Reg::Rbp), "rbp is not recorded"),
    ];

    for (why, text) in texts {
        assert_eq!(end(why), text);
    }

    assert_eq!(
        end(UserEnd::Fault(unmapped)),
        alloc::format!("fault: {unmapped}")
    );

    let texts = [
        (
            UserOutcome::NoRoomForContext,
            "max_contexts: no room for the marker",
        ),
        (UserOutcome::NotAsked, "not requested"),
        (
            UserOutcome::NoUserSpace,
            "the task has no user space (mm is NULL)",
        ),
        (
            UserOutcome::CrossTask,
            "the event belongs to another task (crosstask)",
        ),
        (
            UserOutcome::NotRecorded,
            "the user-space registers are not recorded",
        ),
    ];
    for (outcome, text) in texts {
        assert_eq!(outcome.to_string(), text);
    }
}
