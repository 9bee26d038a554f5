//! What a sample's stack and code show of a break.

use crate::engine::Outcome;
use crate::whole;
use std::ops::Range;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::insn::{self, INSN_BYTES_MAX, Insn, ends_with_call};
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::step::find_row;

/// The number of innermost frames by which endless recursion is known, and how many different
/// return addresses they may have at most.
const RECURSION_FRAMES: usize = 1000;
const RECURSION_CALLS_MAX: usize = 16;

/// The row for `pc`.
pub(super) fn row(
    space: &AddressSpace,
    pc: CodeAddress,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Option<Row> {
    let at = pc.lookup(finder.lookup());
    find_row(finder, space.find(at)?, at, cache).ok()
}

/// Whether the function at `pc` is a root, or one that only roots call, by its name.
pub(super) fn is_near_root(space: &AddressSpace, pc: CodeAddress) -> bool {
    let function = Location::of(space, pc).function;
    function.is_some_and(|name| whole::is_near_root(&name))
}

/// The function that the direct call before the return address `ret` leads to.
pub(super) fn called_before(view: &View<'_>, ret: u64) -> Option<u64> {
    let mapping = view.space.find(ret.wrapping_sub(1))?;
    let call = ret.checked_sub(5)?;
    let bytes = mapping.image.as_ref()?.text_bytes(mapping.svma(call), 5);
    let [0xe8, offset @ ..] = <[u8; 5]>::try_from(bytes).ok()? else {
        return None;
    };
    let offset = i64::from(i32::from_le_bytes(offset));
    Some(ret.wrapping_add(offset as u64))
}

/// Whether `address` is behind a call instruction, or its code is not there.
pub(super) fn may_be_behind_call(view: &View<'_>, address: u64) -> bool {
    const BEFORE: u64 = 8;
    let start = address.wrapping_sub(BEFORE);
    let mapping = view.space.find(start);
    let code = mapping.and_then(|m| Some(m.image.as_ref()?.text_bytes(m.svma(start), 8)));
    code.and_then(<[u8]>::first_chunk)
        .is_none_or(|&bytes| ends_with_call(bytes))
}

/// The bounds of the memory that holds `sp`, if the recording says.
pub(super) fn stack_bounds(view: &View<'_>, sp: u64) -> Option<Range<u64>> {
    let regions = view.sample.regions.iter().map(|region| &region.bounds);
    let process = view.sample.process_memory.iter();
    let mapped = process.flat_map(|process| process.mapped.iter());
    regions.chain(mapped).find(|r| r.contains(&sp)).cloned()
}

/// Whether the copy of the sampled stack reaches to the stack's end.
pub(super) fn has_stack_end(view: &View<'_>) -> bool {
    let stack = view.sample.regions.first();
    stack.is_some_and(|stack| {
        let end = stack.address.wrapping_add(stack.bytes.len() as u64);
        stack.bounds.end == end
    })
}

/// Whether the frames in which a walk reached its limit are those of a few calls that go on.
pub(super) fn is_endless(view: &View<'_>, outcome: &Outcome) -> bool {
    let frames = &outcome.chain.frames;
    let Some(start) = frames.len().checked_sub(RECURSION_FRAMES) else {
        return false;
    };
    let mut calls: Vec<u64> = frames[start..].iter().map(|f| f.pc.value()).collect();
    calls.sort_unstable();
    calls.dedup();
    // What ended by itself, however deep, has left the recursion, and the stack is not used up.
    let function = |pc: CodeAddress| Location::of(view.space, pc).function;
    let is_in = frames.first().is_some_and(|frame| {
        let innermost = function(frame.pc);
        calls
            .iter()
            .any(|&call| innermost.is_some() && function(CodeAddress::Return(call)) == innermost)
    });
    calls.len() <= RECURSION_CALLS_MAX && (is_in || is_used_up(view, frames[start].sp))
}

/// Whether the innermost frame, which is the only one, is at a `ret`.
pub(super) fn is_at_return(view: &View<'_>, outcome: &Outcome) -> bool {
    let [frame] = &outcome.chain.frames[..] else {
        return false;
    };
    let code = view.space.find(frame.pc.value()).and_then(|mapping| {
        let image = mapping.image.as_ref()?;
        Some(image.text_bytes(mapping.svma(frame.pc.value()), INSN_BYTES_MAX))
    });
    code.is_some_and(|code| !code.is_empty() && insn::classify(code) == Insn::Ret)
}

/// Whether the stack is as large as Linux lets one grow by default (8 MiB), but for what the kernel
/// keeps free at its end.
fn is_used_up(view: &View<'_>, sp: u64) -> bool {
    const STACK: u64 = 8 << 20;
    const GAP: u64 = 256 << 10;
    let regions = view
        .sample
        .regions
        .iter()
        .map(|region| region.bounds.clone());
    let process = view.sample.process_memory.iter();
    let extents = process.flat_map(|memory| memory.memory.extents());
    let mut stacks = regions.chain(extents).filter(|range| range.contains(&sp));
    stacks.any(|range| range.end - range.start + GAP >= STACK)
}
