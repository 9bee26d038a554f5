//! Where functions have saved the registers of their callers. The truth has the values of registers,
//! but not their places.

use std::ops::Range;
use unwind_sim_judge::check::Subject;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Value};
use unwind_sim_unwind::step::find_row;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};

/// Bytes of a word.
const WORD: u64 = 8;
/// The maximum number of words of one frame that are searched for saved registers.
const FRAME_WORDS_MAX: u64 = 1 << 12;

/// The addresses of the words of true frame `index`, which begins at `low`, that hold registers of its
/// caller. None if the caller or its registers are not known.
pub(crate) fn saved_registers(
    view: &View<'_>,
    subject: &Subject<'_>,
    (dwarf, cache): (&Dwarf, &mut Cache),
    (index, low): (usize, u64),
) -> Vec<(u64, Reg)> {
    let frames = view.sample.truth.frames();
    let (Some(frame), Some(caller)) = (frames.get(index), frames.get(index + 1)) else {
        return Vec::new();
    };
    let Some(values) = caller.saved else {
        return Vec::new();
    };

    // The row is used only where it is right: a wrong one would put names on the wrong words. Else
    // words with the right values are searched.
    let is_right = subject.check_frame(dwarf, index, cache).is_empty();
    let row = is_right.then(|| by_row(view, frame, dwarf, cache));
    row.flatten()
        .unwrap_or_else(|| by_value(view, low..frame.cfa, caller, &values))
}

/// Where a frame keeps its caller's registers, as its DWARF row says, if there is one.
fn by_row(
    view: &View<'_>,
    frame: &TrueFrame,
    dwarf: &Dwarf,
    cache: &mut Cache,
) -> Option<Vec<(u64, Reg)>> {
    let address = frame.address().lookup(Lookup::InsideCall);
    let mapping = view.space.find(address)?;
    let row = find_row(dwarf as &dyn Finder, mapping, address, cache).ok()?;
    let rules = Reg::CALLEE_SAVED.into_iter().zip(row.rule.saved);
    let loads = rules.filter_map(|(reg, rule)| match rule {
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => Some((frame.cfa.wrapping_add_signed(offset.into()), reg)),
        _ => None,
    });
    Some(loads.collect())
}

/// The words of a frame with the value that a register has in the caller.
fn by_value(
    view: &View<'_>,
    range: Range<u64>,
    caller: &TrueFrame,
    values: &[u64; 6],
) -> Vec<(u64, Reg)> {
    // The registers of interrupted code are in a signal frame, not where a function saves them.
    let is_call = caller.kind == TrueKind::Call;

    let bytes = range.end.checked_sub(range.start);

    // In a very large frame, a search takes long, and finds words by chance.
    if !is_call || bytes.is_none_or(|bytes| bytes / WORD > FRAME_WORDS_MAX) {
        return Vec::new();
    }

    let memory = view.sample.memory();
    let zeros = values.iter().filter(|value| **value == 0).count();
    let mut found = Vec::new();

    // The last word before the CFA is the return address.
    for address in (range.start..range.end.saturating_sub(WORD)).step_by(WORD as usize) {
        let Ok(word) = memory.read_u64(address) else {
            continue;
        };
        // Zero is too frequent to be a name, except where a frame pointer lies.
        let is_link = address.wrapping_add(2 * WORD) == range.end && zeros == 1;
        let reg = Reg::CALLEE_SAVED
            .iter()
            .zip(values)
            .find(|(reg, value)| word == **value && (word != 0 || is_link && **reg == Reg::Rbp));
        found.extend(reg.map(|(reg, _)| (address, *reg)));
    }
    found
}
