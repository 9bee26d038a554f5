//! The kernel's other stack traces: `arch_stack_walk`, `arch_stack_walk_reliable` (Linux
//! `arch/x86/kernel/stacktrace.c`) and `show_trace_log_lvl` (`arch/x86/kernel/dumpstack.c`).

use super::entry_regs::EntryRegs;
use super::hijack::{self, Cursors};
use super::perf::Begin;
use super::stacks::{PAGE_SIZE, StackInfo, StackType, get_stack_info};
use super::{FindCache, Kernel, StartFrom, Unwind, UnwinderKind};
use crate::memory::Memory;
use crate::pt_regs::offset_of;
use crate::reason::Reason;
use crate::regs::Reg;
use alloc::vec::Vec;

/// Starts a trace: from registers, from where an inactive task left the processor, or from the
/// unwinder's own registers, each with its mark.
fn start<'k, M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'k, M>,
    begin: Begin<'k>,
    finds: &'k mut FindCache,
) -> Unwind<'k, M> {
    let Begin {
        from, first_frame, ..
    } = begin;
    Unwind::start(kind, kernel, from, first_frame, finds, &mut |_| {})
}

/// `arch_stack_walk`: at most `max` addresses.
pub fn stack_walk<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    begin: Begin<'_>,
    max: usize,
    finds: &mut FindCache,
) -> Vec<u64> {
    let mut out = Vec::new();
    if let StartFrom::Regs(regs) = begin.from {
        out.push(regs.rip());
    }
    let mut unwind = start(kind, kernel, begin, finds);
    while let Some(address) = unwind.return_address()
        && out.len() < max
    {
        out.push(address);
        unwind.next_frame();
    }
    out
}

/// Why a stack trace is not reliable (`-EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreliable {
    /// The unwinder reports an error.
    Error(Reason),
    /// The kernel's registers are on the stack; frame pointers cannot be trusted there.
    KernelRegs,
    /// An address is not kernel text.
    NotText(u64),
    /// There are more addresses than the caller has room for.
    TooMany,
}

/// `arch_stack_walk_reliable`: at most `max` addresses, if all of them are reliable.
///
/// # Errors
/// If the trace is not reliable.
pub fn stack_walk_reliable<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    begin: Begin<'_>,
    max: usize,
    finds: &mut FindCache,
) -> Result<Vec<u64>, Unreliable> {
    let mut out = Vec::new();
    let mut unwind = start(kind, kernel, begin, finds);

    while !unwind.state().is_done() && !unwind.state().is_error() {
        if unwind.entry_regs().is_some() {
            // The walk has got to where the task entered the kernel.
            if unwind.in_user_regs() {
                return Ok(out);
            }
            // The interrupt may have come before the function had set up its frame.
            if kind == UnwinderKind::Fp {
                return Err(Unreliable::KernelRegs);
            }
        }

        // Generated code that the kernel does not know as text.
        let Some(address) = unwind.return_address() else {
            return Err(Unreliable::NotText(unwind.ip()));
        };

        if out.len() == max {
            return Err(Unreliable::TooMany);
        }
        out.push(address);
        unwind.next_frame();
    }

    if unwind.state().is_error() {
        let reason = unwind.ended().map_or(Reason::NotAtRoot, |e| e.reason());
        Err(Unreliable::Error(reason))
    } else {
        Ok(out)
    }
}

/// A line printed by `show_trace_log_lvl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A stack starts: `<IRQ>`. The task's own stack is not announced by old kernels.
    StackBegin(StackType),
    /// A stack ends: `</IRQ>`.
    StackEnd(StackType),
    /// Saved registers.
    Regs(EntryRegs),
    /// A word that is kernel text.
    Address {
        /// The word, or the original return address that a tracer keeps.
        address: u64,
        /// Whether the unwinder found it. If not, it is printed after a question mark.
        reliable: bool,
    },
}

/// `show_trace_log_lvl`: every word on the stacks that is kernel text, and whether the unwinder
/// found it.
pub fn show<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    begin: Begin<'_>,
    finds: &mut FindCache,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut unwind = start(kind, kernel, begin, finds);
    let (mut info, mut mask) = (StackInfo::default(), 0);
    let mut cursors = Cursors::default();

    // The scan goes over all words; the unwinder runs beside it and says which of them it uses.
    let mut sp = begin.first_frame;
    let mut regs = unwind.entry_regs();

    while sp != 0 {
        sp = sp.wrapping_add(7) & !7;
        let mut find = |sp| {
            let task = kernel.task;
            get_stack_info(&task.stacks, task.is_current, sp, &mut info, &mut mask)
        };
        // An overflow ends in the guard page below a stack, so the next page up is tried
        // (`show_trace_log_lvl`).
        if find(sp).is_err() {
            sp = sp.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
            if find(sp).is_err() {
                break;
            }
        }

        let named = info.kind != StackType::Task || kernel.code.version().names_task_stack();
        if named {
            lines.push(Line::StackBegin(info.kind));
        }
        lines.extend(on_stack(&info, regs));

        while sp < info.end {
            let Ok(word) = kernel.memory.read_u64(sp) else {
                return lines;
            };
            let at = sp;
            sp = sp.wrapping_add(8);
            if !kernel.code.is_text(word) {
                continue;
            }

            // `on_stack` has shown the ip of these registers.
            let in_regs = regs
                .and_then(|r| r.at.address())
                .map(|a| a + offset_of(Reg::Rip));
            if in_regs != Some(at) {
                let reliable = unwind.return_address_ptr() == Some(at);
                let address =
                    hijack::recover_graph(kernel.code, kernel.task, &mut cursors, word, at);
                // Both are shown, and the one that a tracer put there is never reliable.
                if address != word {
                    let reliable = false;
                    lines.push(Line::Address {
                        address: word,
                        reliable,
                    });
                }
                lines.push(Line::Address { address, reliable });
                if !reliable {
                    continue;
                }
            }

            // Only now: a word that the unwinder did not use must not move it.
            unwind.next_frame();
            regs = unwind.entry_regs();
            lines.extend(on_stack(&info, regs));
        }

        if named {
            lines.push(Line::StackEnd(info.kind));
        }

        // The link of an exception or interrupt stack; 0 on all others ends the scan.
        sp = info.next_sp;
    }

    lines
}

/// `show_regs_if_on_stack`
fn on_stack(info: &StackInfo, regs: Option<EntryRegs>) -> Option<Line> {
    use crate::pt_regs::{IRET_FRAME_LEN, IRET_FRAME_OFFSET, PT_REGS_LEN};
    let regs = regs?;
    let at = regs.at.address()?;
    let (address, len) = if regs.partial {
        (at.wrapping_add(IRET_FRAME_OFFSET), IRET_FRAME_LEN)
    } else {
        (at, PT_REGS_LEN)
    };
    info.holds(address, len).then_some(Line::Regs(regs))
}
