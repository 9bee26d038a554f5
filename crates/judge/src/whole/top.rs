//! The top of a stack of its own: memory ends above a frame, and no return address is between.

use super::code::Tables;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::memory::Memory as _;

/// How far above a frame the end of its stack is looked for, bytes. Ruby has 128 KiB of a stack of its own
/// between.
const SEARCH_MAX: u64 = 256 << 10;

/// Whether nothing called the frame with this stack pointer: from there to the end of the memory
/// that it lies in, no word is the address behind a call. Where the recording's memory ends because
/// no more was copied, this is not known, and false.
pub(super) fn is_top(view: &View<'_>, tables: &mut Tables<'_, '_>, sp: u64) -> bool {
    let Some(end) = end(view, sp) else {
        return false;
    };
    if sp == 0 || end.wrapping_sub(sp) > SEARCH_MAX {
        return false;
    }
    let memory = view.sample.memory();
    let mut words = (sp..end.saturating_sub(7)).step_by(8);
    !words.any(|at| {
        let word = memory.read_u64(at);
        word.is_ok_and(|word| tables.is_behind_call(word))
    })
}

/// Whether `address`, which could not be read, is the place right above the stack that holds `sp`.
pub(super) fn is_beyond(view: &View<'_>, sp: u64, address: u64) -> bool {
    const NEAR: u64 = 64;
    end(view, sp)
        .is_some_and(|end| (end.saturating_sub(8)..end.saturating_add(NEAR)).contains(&address))
}

/// The end of the mapping that holds `sp`, if the recording has the memory up to there.
fn end(view: &View<'_>, sp: u64) -> Option<u64> {
    let regions = view.sample.regions.iter().map(|region| {
        let end = region.address.wrapping_add(region.bytes.len() as u64);
        (region.address..end, region.bounds.end == end)
    });
    let process = view.sample.process_memory.iter();
    let extents = process
        .filter(|memory| memory.is_whole)
        .flat_map(|memory| memory.memory.extents())
        .map(|extent| (extent, true));
    let mut all = regions
        .chain(extents)
        .filter(|(range, _)| range.contains(&sp));
    all.find_map(|(range, is_end)| is_end.then_some(range.end))
}

/// Whether memory can have this address: 57 bits at most, the upper ones alike.
pub(crate) fn is_canonical(address: u64) -> bool {
    const UPPER: u32 = 7;
    let signed = address as i64;
    signed << UPPER >> UPPER == signed
}
