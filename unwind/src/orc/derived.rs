//! Derives ORC entries from `.eh_frame`, with the register numbers of Linux 7.1 (the only ones with
//! rax).
//!
//! ORC can express: a CFA based on rsp or rbp with a 16-bit offset, on r10, r13, rdi, rdx or rax
//! without offset, `*(rsp) + offset` and `*(rbp + offset)`; a return address at CFA - 8 only; rbp
//! at `*(CFA + offset)` or `*(rbp + offset)`; the root; PLTs, entry by entry. For a signal frame,
//! ORC has type REGS, which means a `struct pt_regs` of the kernel, whose address `.eh_frame` does
//! not state. User space's `rt_sigreturn` frame is not a `struct pt_regs`, so it is lost
//! ([`Loss::SignalFrame`]).

use super::entry::Entry;
use super::layout::{Encoding, Layout};
use crate::derived::{Format, Loss};
use crate::row::TableKind;
use crate::rule::Rule;

/// `struct orc_entry` of Linux 7.1, for [`crate::derived::find`].
#[derive(Clone, Copy, Debug)]
pub struct OrcEntry;

impl Format for OrcEntry {
    const TABLE: TableKind = TableKind::OrcDerived;

    const ROWS_MAX: usize = usize::MAX;

    const HOLDS_FRAMES: bool = true;

    fn transcribe(rule: &Rule) -> Result<Rule, Loss> {
        Entry::transcribe(rule, Encoding::since_5_12(Layout::V7_1))
    }
}
