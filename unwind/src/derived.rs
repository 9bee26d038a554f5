//! Derives rows of one format from another: SFrame and ORC from `.eh_frame`.
//!
//! Used for images without a table of that format. A derived row is not independent evidence: it
//! only shows what the format *could* express. A [`Format`] encodes a rule into its own row and
//! decodes it again, so no information survives that the format cannot express. Only ordinary
//! frames are not encoded where a test shows that they come back ([`Format::HOLDS_FRAMES`]). A row
//! that the format cannot hold is counted as a [`Loss`] and becomes "no row" ([`Reason::NotHeld`]),
//! never a wrong row.
//!
//! The formats themselves are in `sframe::derived` and `orc::derived`.

mod loss;
mod plain;

pub(crate) use loss::Lost;
pub use loss::{Derived, Loss, Losses};
pub use plain::{plt_threshold, repeated_cfa, simplify};

use crate::cache::{Cache, RowId, SingleRow, Transcript, UnitBuilder, UnitId, UnitKey};
use crate::dwarf::{self, Transcribe};
use crate::image::{Image, SectionKind};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::row::TableKind;
use crate::rule::{Rule, RuleKey, RuleKind, Value};
use core::marker::PhantomData;
use core::ops::Range;
use plain::expression;

/// Where rows come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tables {
    /// The image's own table; rows derived from its `.eh_frame` if it has none.
    #[default]
    RealOrDerived,
    /// Only the image's own table.
    Real,
    /// Always rows derived from `.eh_frame`.
    Derived,
}

/// The rule of addresses without a row in a unit.
pub(crate) const NO_ROW: Rule = Rule {
    kind: RuleKind::Call,
    by_frame_pointer: false,
    cfa: Value::Undefined,
    ra: Value::Unspecified,
    sp: Value::Undefined,
    saved: [Value::Unspecified; 6],
};

/// The maximum number of rows that a function's PLT formulas expand to.
pub const PLT_ROWS_MAX: usize = 1 << 16;

/// A format that rows are translated to.
pub trait Format {
    /// The kind of the derived rows.
    const TABLE: TableKind;

    /// The maximum number of rows of a function.
    const ROWS_MAX: usize;

    /// Whether the format holds every ordinary frame: a call whose CFA is rsp or rbp plus an offset
    /// of 16 bits, with the return address at CFA - 8 and rbp unchanged or in a slot of the frame.
    /// [`Format::transcribe`] then returns such a rule as it is, but for rbx and r12 to r15, which
    /// are unspecified, and is not asked.
    const HOLDS_FRAMES: bool = false;

    /// `rule` as expressed by the format, or the first part of it that the format cannot express.
    fn transcribe(rule: &Rule) -> Result<Rule, Loss>;
}

/// The derived row for `svma`. Compiles its function if necessary.
pub fn find<F: Format>(image: &Image, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
    let place = dwarf::FdePlace::find(image, svma, cache)?;
    let key = UnitKey {
        table: F::TABLE,
        image: Some(image.id()),
        offset: place.offset,
        block: 0,
    };

    // Most functions are asked for one row or two, so single rows come first.
    let unit = match cache.unit(&key).transpose()? {
        Some(unit) if cache.knows(unit, svma) => unit,
        Some(unit) => {
            let part = cache.next_part(unit, svma);
            compile::<F>(&place, key, part, cache)?
        }
        None => compile::<F>(&place, key, Some(SingleRow::first(svma)), cache)?,
    };

    // A removed row is there with `NO_ROW` as its rule, so that its addresses are covered.
    let row = cache.find_row(unit, svma)?;
    if *cache.rule(row) != NO_ROW {
        return Ok(row);
    }

    // The row was removed; use the original to find out why.
    let unit = dwarf::compile_unit(image, TableKind::EhFrame, place.offset, cache)?;
    let original = cache.find_row(unit, svma)?;
    let rule = simplify(cache.rule(original), place.section());

    let loss = match F::transcribe(&rule) {
        Err(loss) => loss,
        Ok(_) => Loss::TooManyRows,
    };

    Err(Reason::NotHeld {
        what: loss.description(),
    })
}

/// Derives the whole table into `cache` and returns what was lost. An image without `.eh_frame` has
/// no rows.
pub fn derive_all<F: Format>(image: &Image, cache: &mut Cache) -> Derived {
    // A malformed unit has no rows to lose.
    let section = image.section(SectionKind::EhFrame);
    let mut rows = Rows::<F>::new(section.map_or(&[], |s| &s.data[..]));
    dwarf::compile_all_as(image, TableKind::EhFrame, F::TABLE, &mut rows, cache);
    let derived = cache.derived(image.id(), F::TABLE);
    derived.add(&rows.completed);
    *derived
}

/// Compiles the function at `place`: all of it, or one row.
fn compile<F: Format>(
    place: &dwarf::FdePlace<'_>,
    key: UnitKey,
    part: Option<SingleRow>,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    let mut rows = Rows::<F>::new(place.section());
    // Each row takes at least a byte of the FDE, so a short FDE cannot have too many.
    let start = usize::try_from(place.offset).unwrap_or(usize::MAX);
    let len = rows.bytes.get(start..).and_then(<[u8]>::first_chunk);
    let len = len.map_or(u32::MAX, |len| u32::from_le_bytes(*len));
    let short = u32::try_from(F::ROWS_MAX).map_or(true, |max| len <= max);
    let unit = place.compile(key, part.filter(|_| short), &mut rows, cache)?;
    if let (true, Some(image)) = (rows.completed.rows != 0, key.image) {
        cache.derived(image, F::TABLE).add(&rows.completed);
    }
    Ok(unit)
}

fn transcribe<F: Format>(rule: &Rule) -> Transcript {
    match F::transcribe(rule) {
        Ok(derived) => {
            let unsaid = |v: Value| matches!(v, Value::Same | Value::Unspecified);
            let lost = |reg| !unsaid(rule.saved(reg)) && unsaid(derived.saved(reg));
            let regs = [Reg::Rbx, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
            let call = derived.kind != RuleKind::Outermost;
            Transcript {
                rule: derived,
                lost: Lost {
                    row: None,
                    registers: call && regs.into_iter().any(lost),
                },
            }
        }
        Err(loss) => no_row(loss),
    }
}

fn no_row(loss: Loss) -> Transcript {
    Transcript {
        rule: NO_ROW,
        lost: Lost {
            row: Some(loss),
            registers: false,
        },
    }
}

/// Translates the rows of functions and counts them.
struct Rows<'a, F> {
    bytes: &'a [u8],
    /// Number of rows that `.eh_frame` has for the current function.
    read: usize,
    /// What was derived so far, including the current function.
    so_far: Derived,
    /// What was derived for all completed functions.
    completed: Derived,
    /// Rows written for PLTs so far.
    written: usize,
    /// Whether the current function is a PLT that was left out because there were too many rows.
    left_out: bool,
    format: PhantomData<F>,
}

impl<'a, F: Format> Rows<'a, F> {
    fn new(bytes: &'a [u8]) -> Self {
        Rows {
            bytes,
            read: 0,
            so_far: Derived::default(),
            completed: Derived::default(),
            written: 0,
            left_out: false,
            format: PhantomData,
        }
    }

    /// Adds a row whose rule has no short form.
    #[cold]
    fn rare(&mut self, unit: &mut UnitBuilder<'_>, range: Range<u64>, offset: u64, rule: &Rule) {
        let rule = simplify(rule, self.bytes);
        if let Value::Expression(e) = rule.cfa
            && let Some(threshold) = plt_threshold(expression(self.bytes, e))
        {
            return self.plt(unit, &rule, range, offset, threshold);
        }
        self.push(unit, range.start, offset, transcribe::<F>(&rule));
    }

    fn push(&mut self, unit: &mut UnitBuilder<'_>, start: u64, offset: u64, made: Transcript) {
        let lost = unit.push_transcript(start, offset, None, || made);
        self.so_far.count(lost);
    }

    /// The number of rows of the current function.
    fn function_rows(&self) -> u32 {
        self.so_far.rows - self.completed.rows
    }

    /// Adds the rows of a PLT. Its CFA is rsp + 8 in the first bytes of every 16, and rsp + 16 in
    /// the others (SFrame: `PCMASK`).
    fn plt(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        rule: &Rule,
        range: Range<u64>,
        offset: u64,
        threshold: u8,
    ) {
        let [before, after] = [8, 16].map(|cfa| {
            let cfa = Value::reg(Reg::Rsp, cfa);
            transcribe::<F>(&Rule { cfa, ..*rule })
        });

        let mut start = range.start;
        // A program has a few PLTs, but an FDE of 30 bytes can claim one of a megabyte. If a table
        // claims too many, the rest are left out here and compiled when looked up.
        let left_out = self.written >= PLT_ROWS_MAX + self.bytes.len();
        self.left_out |= left_out;

        while start < range.end && !left_out && (self.function_rows() as usize) < PLT_ROWS_MAX {
            let pushed = start % 16 >= threshold.into();
            self.push(unit, start, offset, if pushed { after } else { before });
            self.written += 1;

            // The pattern repeats every 16 bytes, the size of a PLT entry.
            let block = start & !15;
            let next = if pushed { 16 } else { threshold.into() };
            start = match block.checked_add(next) {
                Some(next) => next,
                None => return,
            };
        }

        // The rest of the range has a row too, which says why there is none.
        if start < range.end {
            self.push(unit, start, offset, no_row(Loss::TooManyRows));
        }
    }
}

impl<F: Format> Transcribe for Rows<'_, F> {
    #[inline]
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<RuleKey>,
        rule: impl FnOnce() -> Rule,
    ) {
        // Counted as read, whatever becomes of it: the format's limit is on this number.
        self.read += 1;
        let start = addresses.start;

        if !is_small(&unit.range()) {
            return self.push(unit, start, offset, no_row(Loss::TooLarge));
        }

        if key.is_none() {
            return self.rare(unit, addresses, offset, &rule());
        }

        // A rule with a short form cannot be simplified.
        if F::HOLDS_FRAMES
            && let Some((short, registers)) = key.and_then(RuleKey::of_frame)
        {
            unit.push_short(start, offset, Some(short), || short.frame_rule());
            let row = None;
            return self.so_far.count(Lost { row, registers });
        }

        // The same rule occurs in many functions; its translation is kept by its short form.
        let made = || transcribe::<F>(&rule());
        let lost = unit.push_transcript(start, offset, key, made);
        self.so_far.count(lost);
    }

    fn complete(&mut self, unit: UnitId, cache: &mut Cache) {
        // A PLT's formula expands to one `PCMASK` function of a few rows, so it is not counted
        // here.
        if self.read > F::ROWS_MAX {
            cache.overrule(unit, &NO_ROW);
            let rows = self.function_rows();
            self.so_far.losses = self.completed.losses;
            self.so_far.losses.add(Loss::TooManyRows, rows);
        }
        if core::mem::take(&mut self.left_out) {
            cache.forget(unit);
        }
        self.completed = self.so_far;
        self.read = 0;
    }
}

/// Whether the offsets of rows in `range` fit 32 bits.
fn is_small(range: &Range<u64>) -> bool {
    u32::try_from(range.end - range.start).is_ok()
}

#[cfg(test)]
mod tests;
