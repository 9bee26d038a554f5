//! ORC entries out of `.eh_frame`, in the numbers of Linux 7.1 (the only ones with rax).
//!
//! Held: CFA from rsp or rbp with an offset of 16 bits, from r10, r13, rdi, rdx or rax as it
//! stands, `*(rsp) + offset` and `*(rbp + offset)`; the return address at CFA - 8 only; rbp at
//! `*(CFA + offset)` or `*(rbp + offset)`; the root; PLTs, entry by entry. A signal frame is held
//! by type REGS, and then it is a `struct pt_regs`: the kernel's, at an address that `.eh_frame`
//! does not state. User space's `rt_sigreturn` frame is none, and so a loss
//! ([`Loss::SignalFrame`]).

use super::entry::Entry;
use super::layout::{Encoding, Layout};
use crate::derived::{Format, Loss};
use crate::row::TableKind;
use crate::rule::Rule;

/// `struct orc_entry` of Linux 7.1, as [`crate::derived::find`] derives it.
#[derive(Clone, Copy, Debug)]
pub struct OrcEntry;

impl Format for OrcEntry {
    const TABLE: TableKind = TableKind::OrcDerived;

    const ROWS_MAX: usize = usize::MAX;

    fn transcribe(rule: &Rule) -> Result<Rule, Loss> {
        Entry::transcribe(rule, Encoding::since_5_12(Layout::V7_1))
    }
}
