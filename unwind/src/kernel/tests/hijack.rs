//! Which words are return addresses replaced by a tracer, and which originals are found.

use super::support::{Small, TASK, TEXT, call};
use crate::image::AddressSpace;
use crate::kernel::hijack::{recover_graph, recover_rethook};
use crate::kernel::{Code, Cursors, GraphReturn, Rethook};
use alloc::vec::Vec;

const SLOT: u64 = TASK.start + 0x3000;
const TRAMPOLINE: u64 = TEXT + 0xe40;
const RET: u64 = TEXT + 0x10;

/// A kernel of this version whose task has replaced addresses of both kinds at [`SLOT`] and at the
/// slot above.
fn traced(version: &str) -> Small {
    let mut small = Small::new(version, &[(0, call(8))]);
    let slots = [(SLOT, RET), (SLOT + 8, RET + 1)];
    small.task.rethooks = slots
        .map(|(frame, ret_addr)| Rethook { ret_addr, frame })
        .into();
    small.task.graph = slots.map(|(retp, ret)| GraphReturn { ret, retp }).into();
    small
}

/// A kernel without tracers has 0 for their addresses: a zero word is not one of theirs.
#[test]
fn a_zero_word_belongs_to_no_tracer_where_the_kernel_has_none() {
    let small = traced("6.12");
    let code = Code::new(&AddressSpace::new(), small.version, None);
    assert_eq!(code.known().return_to_handler, 0);
    let cursors = &mut Cursors::default();
    assert_eq!(recover_graph(&code, &small.task, cursors, 0, SLOT), 0);
    assert_eq!(recover_rethook(&code, &small.task, cursors, 0, SLOT), 0);
    assert_eq!(*cursors, Cursors::default());
}

#[test]
fn kretprobes_are_looked_up_since_5_16() {
    for (version, expected) in [("5.15", TRAMPOLINE), ("5.16", RET)] {
        let small = traced(version);
        let (code, cursors) = (small.code(), &mut Cursors::default());
        let found = recover_rethook(&code, &small.task, cursors, TRAMPOLINE, SLOT);
        assert_eq!(found, expected, "{version}");
    }
}

/// `kr_cur` moves past every entry examined, so that none is used twice.
#[test]
fn a_taken_address_is_used_once() {
    let small = traced("6.12");
    let (code, mut cursors) = (small.code(), Cursors::default());
    let mut seen = Vec::new();
    for slot in [SLOT, SLOT + 8, SLOT] {
        let found = recover_rethook(&code, &small.task, &mut cursors, TRAMPOLINE, slot);
        seen.push((found, cursors.rethook));
    }
    assert_eq!(seen, [(RET, 1), (RET + 1, 2), (0, 2)]);
}
