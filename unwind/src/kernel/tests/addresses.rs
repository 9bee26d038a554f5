//! Walks that keep only addresses skip over common steps. Every [`Small::chain`] compares them with
//! the walk whose states are visited; here are the places where a step is not common.

use super::support::{Small, TASK, TEXT, TEXT_LEN, call, of_kind};
use crate::kernel::{GraphReturn, UnwinderKind};
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::{KernelReason, Reason};
use crate::regs::Reg;
use alloc::vec::Vec;

/// Return addresses in the functions at [`TEXT`], at [`TEXT`] + 0x100 and so on.
const INSIDE: [u64; 3] = [TEXT + 0x10, TEXT + 0x110, TEXT + 0x210];

/// Walks from the first function with this sp and bp.
fn walk(small: &Small, sp: u64, bp: u64) -> (Vec<u64>, Reason) {
    let (ips, _, reason) = small.walk_from(UnwinderKind::Orc, [TEXT + 4, sp, bp]);
    (ips, reason)
}

#[test]
fn a_frame_must_end_on_the_stack() {
    let mut small = Small::new("6.12", &[(0, call(16))]);
    // The memory behind the stack has more frames.
    let sp = TASK.end - 0x40;
    for slot in (sp..TASK.end + 0x100).step_by(8) {
        small.put(slot, &[INSIDE[0]]);
    }
    let (ips, reason) = walk(&small, sp, 0);
    assert_eq!(ips.len(), 5);
    let address = TASK.end + 8;
    assert_eq!(reason, Reason::Kernel(KernelReason::NotOnStack { address }));
}

#[test]
fn a_saved_rbp_must_be_on_the_stack() {
    let below = Entry {
        bp_reg: OrcReg::PrevSp,
        bp_offset: -48,
        ..call(8)
    };
    let mut small = Small::new("6.12", &[(0, call(8)), (0x100, below)]);
    for slot in (TASK.start - 0x80..TASK.start + 0x80).step_by(8) {
        small.put(slot, &[INSIDE[1]]);
    }
    // One step is not common: it starts from registers.
    let (ips, reason) = walk(&small, TASK.start, 0);
    assert_eq!(ips, [TEXT + 4, INSIDE[1]]);
    let address = TASK.start + 16 - 48;
    assert_eq!(reason, Reason::Kernel(KernelReason::NotOnStack { address }));
}

#[test]
fn a_frame_must_end_above_sp() {
    let by_bp = Entry {
        sp_reg: OrcReg::Bp,
        ..call(16)
    };
    let mut small = Small::new("6.12", &[(0, call(16)), (0x100, by_bp)]);
    let sp = TASK.start + 0x100;
    for slot in (TASK.start..TASK.end).step_by(8) {
        small.put(slot, &[INSIDE[1]]);
    }
    let (ips, reason) = walk(&small, sp, sp - 0x80);
    assert_eq!(ips, [TEXT + 4, INSIDE[1]]);
    let ip = INSIDE[1];
    assert_eq!(reason, Reason::Kernel(KernelReason::WrongDirection { ip }));
}

#[test]
fn an_exact_address_is_not_looked_up_inside_the_call() {
    // The function at 0x100 ends with a call, behind which the next function starts.
    let interrupted = Entry {
        signal: true,
        ..call(16)
    };
    let entries = [
        (0, call(16)),
        (0x100, call(32)),
        (0x200, call(16)),
        (0x300, interrupted),
        (0x400, of_kind(EntryType::EndOfStack, 0)),
    ];

    let mut small = Small::new("6.12", &entries);
    let sp = TASK.start + 0x1000;
    let next = TEXT + 0x200;
    // From the start, by a call before 0x200, whose frame is that of 0x100.
    small.put(sp, &[0, next]);
    small.put(sp + 16, &[0, 0, 0, TEXT + 0x310]);
    // Interrupted at 0x200, whose frame is its own. That of 0x100 would lead elsewhere.
    small.put(sp + 48, &[0, next, 0, TEXT + 0x410, 0, TEXT + 0x10]);

    let (ips, reason) = walk(&small, sp, 0);
    assert_eq!(ips, [TEXT + 4, next, TEXT + 0x310, next, TEXT + 0x410]);
    assert_eq!(reason, Reason::RootReached);
}

#[test]
fn registers_of_user_space_end_the_walk_whatever_their_address() {
    let saved = Entry {
        signal: false,
        ..of_kind(EntryType::Regs, 0)
    };
    let mut small = Small::new("6.12", &[(0, call(16)), (0x100, saved)]);
    let (sp, regs) = (TASK.start + 0x1000, TASK.start + 0x1020);
    small.put(sp, &[0, INSIDE[0], 0, INSIDE[1]]);
    let inside = [
        (Reg::Rip, INSIDE[0]),
        (Reg::Rsp, regs + 168),
        (Reg::Cs, 0x33),
    ];
    small.put_regs(regs, &inside);
    small.put(regs + 168, &[0, INSIDE[1], 0, INSIDE[0]]);
    let (ips, reason) = walk(&small, sp, 0);
    assert_eq!(ips, [TEXT + 4, INSIDE[0], INSIDE[1], INSIDE[0]]);
    assert_eq!(reason, Reason::RootReached);
}

#[test]
fn an_address_behind_the_text_is_not_stored() {
    let mut small = Small::new("6.12", &[(0, call(16))]);
    let (sp, behind) = (TASK.start + 0x1000, TEXT + TEXT_LEN);
    small.put(sp, &[0, INSIDE[0], 0, behind, 0, INSIDE[0], 0, INSIDE[0]]);
    // The start is looked up at the last address of the text, as its return address would be.
    let (ips, _, reason) = small.walk_from(UnwinderKind::Orc, [behind - 1, sp, 0]);
    assert_eq!(ips, [behind - 1, INSIDE[0]]);
    assert_eq!(reason, Reason::NotText { address: behind });
}

#[test]
fn an_address_that_a_tracer_took_is_recovered_wherever_it_is() {
    let handler = TEXT + 0xe00;
    let entries = [(0, call(16)), (0x200, of_kind(EntryType::EndOfStack, 0))];
    let mut small = Small::new("6.12", &entries);
    let sp = TASK.start + 0x1000;
    small.entries.push((0xd00, call(16)));
    small.put(sp, &[0, INSIDE[0], 0, handler, 0, INSIDE[2]]);
    small.task.graph = Vec::from([GraphReturn {
        ret: INSIDE[1],
        retp: sp + 24,
    }]);
    // The start is looked up where the handler's return address would be.
    let (ips, _, reason) = small.walk_from(UnwinderKind::Orc, [handler - 1, sp, 0]);
    assert_eq!(ips, [handler - 1, INSIDE[0], INSIDE[1], INSIDE[2]]);
    assert_eq!(reason, Reason::RootReached);
}

#[test]
fn common_steps_count_towards_the_limit() {
    let mut small = Small::new("6.12", &[(0, call(8))]);
    for slot in (TASK.start..TASK.start + 0x800).step_by(8) {
        small.put(slot, &[INSIDE[0]]);
    }
    let (ips, reason) = walk(&small, TASK.start, 0);
    assert_eq!(ips.len(), 100);
    assert_eq!(reason, Reason::FrameLimit { limit: 100 });
}
