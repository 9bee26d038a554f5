//! The addresses of a kallsyms table: finds their location and form.

use super::{Form, Plain};
use std::ops::Range;

/// The inputs of the search for addresses.
pub(super) struct Values<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) address: u64,
    pub(super) count: usize,
    pub(super) plain: &'a Plain,
    pub(super) text: &'a [Range<u64>],
}

impl Values<'_> {
    /// Finds the addresses, which end at `before` or start at `behind`.
    pub(super) fn find(&self, before: usize, behind: usize) -> Option<(Form, Vec<u64>)> {
        let offsets = (4 * self.count).next_multiple_of(8);
        let old = before.checked_sub(offsets + 8);
        for start in old.into_iter().chain([behind]) {
            let Some(area) = self.bytes.get(start..start + 4 * self.count) else {
                continue;
            };

            let (words, _) = area.as_chunks::<4>();
            let values = || words.iter().map(|w| i32::from_le_bytes(*w));
            let base = self
                .bytes
                .get(start + offsets..)
                .and_then(<[u8]>::first_chunk);
            let base = base.map_or(0, |b| u64::from_le_bytes(*b));

            // A negative value counts down from the base; others are absolute
            // (`kallsyms_sym_address`).
            let percpu = values().map(|v| match u64::try_from(v) {
                Ok(absolute) => absolute,
                Err(_) => base.wrapping_sub(1).wrapping_sub(i64::from(v) as u64),
            });

            let relative = values().map(|v| base.wrapping_add(u64::from(v.cast_unsigned())));
            let place = self.address.wrapping_add(start as u64);
            let places = (0..).map(|i: u64| place.wrapping_add(4 * i));
            let placed = values().zip(places);
            let placed = placed.map(|(v, place)| place.wrapping_add(i64::from(v) as u64));

            // The image does not say which form it is, so each is tried and checked.
            let found = self
                .check(Form::AbsolutePercpu, percpu)
                .or_else(|| self.check(Form::BaseRelative, relative))
                .or_else(|| self.check(Form::PlaceRelative, placed));
            if found.is_some() {
                return found;
            }
        }

        // Without CONFIG_KALLSYMS_BASE_RELATIVE, the table has whole addresses.
        let start = before.checked_sub(8 * self.count)?;
        let (words, _) = self.bytes.get(start..before)?.as_chunks::<8>();
        self.check(
            Form::Addresses,
            words.iter().map(|w| u64::from_le_bytes(*w)),
        )
    }

    /// Decodes `values`; `None` unless they are sorted and 90 % of the code symbols are in the
    /// text.
    fn check(&self, form: Form, values: impl Iterator<Item = u64>) -> Option<(Form, Vec<u64>)> {
        let mut out: Vec<u64> = Vec::with_capacity(self.count);
        let (mut start, mut code, mut inside) = (0, 0_u64, 0_u64);
        for (value, end) in values.zip(&self.plain.ends) {
            if out.last().is_some_and(|last| *last > value) {
                return None;
            }
            if matches!(self.plain.names.as_bytes().get(start), Some(b't' | b'T')) {
                code += 1;
                let holds = |r: &Range<u64>| r.start <= value && value <= r.end;
                inside += u64::from(self.text.iter().any(holds));
            }
            start = *end;
            out.push(value);
        }
        (code > 0 && inside >= code - code / 10).then_some((form, out))
    }
}
