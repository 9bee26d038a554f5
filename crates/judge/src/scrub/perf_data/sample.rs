//! The body of a sample's record after scrubbing.

use crate::scrub::address::is_address;
use crate::scrub::apply::stand_in;
use std::ops::Range;
use unwind_sim_perf_data::callchain::PERF_CONTEXT_USER_DEFERRED;
use unwind_sim_perf_data::{PerfError, RawRecord, Sample, le, regs, sample_type as st};
use unwind_sim_recordings::model;
use unwind_sim_unwind::regs::{Reg, Regs};

/// A sample before and after scrubbing.
pub(super) type BeforeAndAfter<'a> = (&'a model::Sample<'a>, &'a model::Sample<'static>);

/// The type of events that are tracepoints (`PERF_TYPE_TRACEPOINT`), and what every tracepoint's
/// data starts with: its number, flags and pid.
const TRACEPOINT: u32 = 2;
const COMMON_FIELDS: usize = 8;

/// What stands for a word of a callchain that is no address: the same one for all.
pub(super) fn no_address(word: u64) -> u64 {
    stand_in(word, 0)
}

/// The body of the record. Without `scrubbed` nothing was read of the sample.
pub(super) fn body(
    raw: &RawRecord<'_>,
    sample: &Sample<'_>,
    scrubbed: Option<BeforeAndAfter<'_>>,
) -> Result<Vec<u8>, PerfError> {
    let mut body = raw.body.to_vec();
    let attr = sample.attr();

    if let Some(place) = sample.place(st::CALLCHAIN)? {
        callchain(&mut body[place]);
    }

    if let Some(place) = sample.place(st::RAW)? {
        // `struct trace_entry`: a tracepoint's data starts with its number, flags and pid.
        let kept = if attr.kind == TRACEPOINT {
            COMMON_FIELDS
        } else {
            0
        };
        zero(&mut body, place, 4 + kept, 0);
    }

    if let Some(place) = sample.place(st::BRANCH_STACK)? {
        branches(&mut body[place]);
    }

    // A sample may have the registers of user code and those at the interrupt, each with its mask.
    let masks = [
        (st::REGS_USER, attr.sample_regs_user),
        (st::REGS_INTR, attr.sample_regs_intr),
    ];
    for (field, mask) in masks {
        if let Some(place) = sample.place(field)? {
            let before = scrubbed.map(|(before, after)| (before.regs.sampled, after.regs.sampled));
            registers(&mut body[place], mask, before);
        }
    }

    // `perf_event.h`: the size, that many bytes, and `dyn_size`, how many of them are valid.
    if let Some(place) = sample.place(st::STACK_USER)? {
        let stack = scrubbed.and_then(|(_, after)| after.regions.first());
        let copied = sample.user_stack()?.map_or(0, |stack| stack.bytes.len());
        let bytes = stack.map_or(&[][..], |region| &region.bytes);
        let start = place.start + 8;
        // The last word says how many bytes are valid.
        zero(&mut body, place, 8, 8);

        let len = bytes.len().min(copied);
        body[start..start + len].copy_from_slice(&bytes[..len]);
    }

    // `perf_event.h`: a size, then a part of a hardware trace, which nothing here reads.
    if let Some(place) = sample.place(st::AUX)? {
        zero(&mut body, place, 8, 0);
    }

    Ok(body)
}

/// Zeroes the part of a field that is neither in its first nor in its last bytes.
fn zero(body: &mut [u8], place: Range<usize>, first: usize, last: usize) {
    let field = &mut body[place];
    let end = field.len().saturating_sub(last);
    if let Some(rest) = field.get_mut(first..end) {
        rest.fill(0);
    }
}

fn words(field: &mut [u8]) -> impl Iterator<Item = &mut [u8; 8]> {
    field.as_chunks_mut::<8>().0.iter_mut()
}

/// A callchain: its count, then addresses and context markers. The cookie of a deferred chain is no
/// address.
fn callchain(field: &mut [u8]) {
    let mut last = 0;
    for bytes in words(field).skip(1) {
        let word = u64::from_le_bytes(*bytes);
        if !is_address(word) && last != PERF_CONTEXT_USER_DEFERRED {
            *bytes = no_address(word).to_le_bytes();
        }
        last = word;
    }
}

/// Branch records: counts and flags stay, which are small or have few bits.
fn branches(field: &mut [u8]) {
    for bytes in words(field).skip(1) {
        let word = u64::from_le_bytes(*bytes);
        if !is_address(word) {
            *bytes = no_address(word).to_le_bytes();
        }
    }
}

/// Registers: the ABI, then those of the mask in order.
fn registers(field: &mut [u8], mask: u64, scrubbed: Option<(Regs, Regs)>) {
    let numbers = (0..u64::BITS).filter(|number| mask & (1 << number) != 0);
    for (number, bytes) in numbers.zip(words(field).skip(1)) {
        let value = le::u64_at(&bytes[..], 0).unwrap_or(0);
        *bytes = register(number, value, scrubbed).to_le_bytes();
    }
}

fn register(number: u32, value: u64, scrubbed: Option<(Regs, Regs)>) -> u64 {
    const SELECTOR_MAX: u64 = u16::MAX as u64;
    let general = regs::dwarf_number(number).and_then(Reg::from_dwarf);
    let is_own = |(before, after): (Regs, Regs)| {
        let (before, after) = (before.get(general?)?, after.get(general?)?);
        (before == value).then_some(after)
    };
    match (scrubbed.and_then(is_own), general) {
        (Some(after), _) => after,
        (None, Some(Reg::Rip | Reg::Rsp)) if is_address(value) => value,
        (None, None) if number == regs::PERF_REG_X86_FLAGS => value & u64::from(u32::MAX),
        // Segment selectors.
        (None, None) if number < regs::PERF_REG_X86_64_MAX && value <= SELECTOR_MAX => value,
        _ => 0,
    }
}
