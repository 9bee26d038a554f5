//! Addresses without code to which a program jumped, called or returned.

use super::kind::Kind;
use super::stack::{called_before, may_be_behind_call, stack_bounds};
use crate::whole::is_canonical;
use std::ops::Range;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::regs::Reg;

/// Nothing is mapped below (`vm.mmap_min_addr`), so code there is a null pointer with an offset.
const NULL_PAGE: u64 = 4096;

/// Where a program went instead of code.
pub(super) struct Gone {
    /// What broke the stack.
    pub(super) kind: Kind,
    /// The code to blame, or the address itself.
    pub(super) pc: CodeAddress,
    /// How it got there.
    pub(super) note: String,
}

/// A sample whose pc is not in code: the program jumped, called or returned there. If it called, the
/// return address is at rsp, and its caller is to blame. `is_profile` if mappings may be missing.
pub(super) fn bad_jump(view: &View<'_>, is_profile: bool) -> Option<Gone> {
    let rip = view.sample.regs.live()?.get(Reg::Rip)?;
    // Nothing is ever mapped at 0.
    let is_elsewhere = !view.space.is_text(rip) && (!is_profile || rip < NULL_PAGE);

    if !is_elsewhere || view.sample.kernel.is_some() {
        return None;
    }

    // If it called, the pushed return address is still at rsp: nothing has been executed since.
    let word = read_word(view, view.live().get(Reg::Rsp)?);
    let called_from = word.filter(|&word| view.space.is_text(word));
    if let Some(gone) = returned(view, rip, called_from) {
        return Some(gone);
    }

    let pc = called_from.map_or(CodeAddress::Instruction(rip), CodeAddress::Return);

    // A direct call leads to code, which then jumped without a return address of its own.
    let called = called_from.and_then(|ret| called_before(view, ret));
    let called = called.filter(|&called| view.space.is_text(called));

    let from = match called_from {
        Some(_) if called.is_some() => {
            let jumped = called.map_or(pc, CodeAddress::Instruction);
            format!(
                "; {} called {}, which jumped there",
                Location::of(view.space, pc),
                Location::of(view.space, jumped)
            )
        }
        Some(_) => format!(
            "; the return address at rsp is that of {}",
            Location::of(view.space, pc)
        ),
        None if word.is_none() => "; the word at rsp was not recorded".to_owned(),
        None => "; the word at rsp is not a return address".to_owned(),
    };

    let what = if rip < NULL_PAGE {
        "a null pointer"
    } else {
        "not an address of code"
    };

    Some(Gone {
        kind: Kind::BadJump,
        pc: called.map_or(pc, CodeAddress::Instruction),
        note: format!("the pc is {rip:#x}, {what}{from}"),
    })
}

/// A `ret` that led to where no code is: the word that it took lies right below rsp. Which function
/// returned is not known any more.
fn returned(view: &View<'_>, rip: u64, called_from: Option<u64>) -> Option<Gone> {
    // After a call, the word at rsp is the address behind it, and what lies below is of before; 0 often
    // lies there.
    let may_have_called =
        called_from.is_some_and(|word| rip < NULL_PAGE || may_be_behind_call(view, word));
    if may_have_called {
        return None;
    }

    let rsp = view.live().get(Reg::Rsp)?;
    let taken = read_word(view, rsp.checked_sub(8)?)?;
    if taken != rip {
        return None;
    }

    let (kind, what) = match unmapped_code(view, rip) {
        Some(what) => (Kind::UnmappedCode, what),
        None => (Kind::OverwrittenReturn, overwritten_by(rip)),
    };
    Some(Gone {
        kind,
        pc: CodeAddress::Instruction(rip),
        note: format!(
            "a function returned there: {what}; the word right below rsp is that address"
        ),
    })
}

/// A word of the sample's memory.
fn read_word(view: &View<'_>, address: u64) -> Option<u64> {
    view.sample.memory().read_u64(address).ok()
}

/// What to say of a return address that is not in code, and that an overwrite must have put there.
pub(super) fn overwritten_by(address: u64) -> String {
    format!("the return address is {address:#x}, which is not in code")
}

/// Whether a debugger called the function that returns to `address`: gdb puts a breakpoint on the stack,
/// to which it returns (gdb's `infcall.c`, `ON_STACK`).
pub(super) fn is_debuggers_call(view: &View<'_>, address: u64) -> bool {
    const INT3: u64 = 0xcc;
    let stack = stack_bounds(view, view.live().rsp());
    // Its bytes need not be aligned, and lie in whole words of the stack.
    stack.is_some_and(|stack| stack.contains(&address))
        && read_word(view, address & !7)
            .is_some_and(|word| word >> (8 * (address & 7)) & 0xff == INT3)
}

/// What to say of a return address where a core lists no mapping, but which lies near a library's code:
/// one that was unloaded leaves such ones on the stack.
pub(super) fn unmapped_code(view: &View<'_>, address: u64) -> Option<String> {
    // Linux maps libraries one below the other; the largest have a few hundred MiB.
    const NEAR: u64 = 256 << 20;
    let process = view.sample.process_memory.as_ref()?;

    let is_address = address >= NULL_PAGE && is_canonical(address);
    if !is_address || !process.is_whole || process.is_mapped(address) {
        return None;
    }

    let files = view.space.mappings().iter();
    // Programs lie elsewhere.
    let files =
        files.filter(|mapping| mapping.name.starts_with('/') && mapping.name.contains(".so"));
    let (gap, near) = files
        .map(|mapping| {
            let Range { start, end } = mapping.range;
            let gap = start.saturating_sub(address);
            (gap.max(address.saturating_sub(end)), mapping)
        })
        .min_by_key(|(gap, _)| *gap)?;
    (gap <= NEAR).then(|| {
        format!(
            "the return address is {address:#x}, where nothing is mapped, near {}",
            near.name
        )
    })
}

#[cfg(test)]
mod tests;
