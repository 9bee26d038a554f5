//! Rows of one format made from another's: SFrame and ORC out of `.eh_frame`.
//!
//! For images that have no table of that format. A derived row is a transcript, not a witness: it
//! says what the format *could* say. A [`Format`] encodes every rule into its own row and decodes
//! that again, so nothing passes that the format has no word for; what it cannot hold is a
//! [`Loss`], counted, and the row becomes "no row" ([`Reason::NotHeld`]), never a wrong one.
//!
//! Not here: the formats themselves (`sframe::derived`, `orc::derived`).

mod loss;
mod plain;

pub use loss::{Loss, Losses};
pub use plain::simplify;

use crate::cache::{Cache, NewRow, RowId, TableKind, Transcript, UnitId, UnitKey};
use crate::dwarf;
use crate::image::{Image, SectionKind};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::rule::{Rule, RuleKind, Value};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use plain::{expression, plt_threshold};

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

/// Stands in a unit for addresses without a row.
pub(crate) const NO_ROW: Rule = Rule {
    kind: RuleKind::Call,
    cfa: Value::Undefined,
    ra: Value::Unspecified,
    sp: Value::Undefined,
    saved: [Value::Unspecified; 6],
};

/// The rows that a PLT's formula is written out into, at most.
pub const PLT_ROWS_MAX: usize = 1 << 16;

#[derive(Default)]
struct Counts {
    rows: AtomicU32,
    losses: [AtomicU32; Loss::ALL.len()],
}

/// What one function's rows lost.
#[derive(Default)]
struct Tally([u32; Loss::ALL.len()]);

impl Tally {
    fn add(&mut self, loss: Option<Loss>, registers_left_out: bool) {
        if let Some(loss) = loss {
            self.0[loss as usize] += 1;
        }
        self.0[Loss::CalleeSaved as usize] += u32::from(registers_left_out);
    }
}

impl Counts {
    fn add(&self, rows: usize, tally: &Tally) {
        self.rows.fetch_add(rows as u32, Ordering::Relaxed);
        for (total, count) in self.losses.iter().zip(tally.0) {
            if count != 0 {
                total.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// What was derived for an image so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Derived {
    /// Rows read from `.eh_frame`.
    pub rows: u32,
    /// What became of them.
    pub losses: Losses,
}

/// A format that rows are transcribed into.
pub trait Format {
    /// The kind of the derived rows.
    const TABLE: TableKind;

    /// The most rows that a function can have.
    const ROWS_MAX: usize;

    /// `rule` as the format says it, or the first thing that it cannot say.
    fn transcribe(rule: &Rule) -> Result<Rule, Loss>;
}

/// The derived row for `svma`; the function that holds it is compiled if need be.
pub fn find<F: Format>(image: &Image, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
    let offset = dwarf::eh_frame_offset(image, svma, cache)?;
    let key = unit_key::<F>(image, offset);
    let unit = match cache.unit(&key).transpose()? {
        Some(unit) if cache.knows(unit, svma) => unit,
        Some(_) => compile::<F>(image, key, cache)?,
        // Most functions are asked for one row only.
        None => compile_for::<F>(image, key, svma, cache)?,
    };
    let row = cache.find_row(unit, svma)?;
    if *cache.rule(row) != NO_ROW {
        return Ok(row);
    }
    // The row was taken out: ask the original why.
    let unit = dwarf::compile_unit(image, TableKind::EhFrame, offset, cache)?;
    let original = cache.find_row(unit, svma)?;
    let rule = simplify(cache.rule(original), eh_frame(image));
    let loss = match F::transcribe(&rule) {
        Err(loss) => loss,
        Ok(_) => Loss::TooManyRows,
    };
    Err(Reason::NotHeld {
        what: loss.description(),
    })
}

/// Derives the whole table into `cache`, and says what was lost. An image without `.eh_frame`
/// has no rows.
pub fn derive_all<F: Format>(image: &Image, cache: &mut Cache) -> Derived {
    for unit in dwarf::units(image, TableKind::EhFrame).flatten() {
        // A malformed unit has no rows to lose.
        let key = unit_key::<F>(image, unit.offset);
        let complete = |unit| cache.is_complete(unit);
        if !matches!(cache.unit(&key), Some(Ok(unit)) if complete(unit)) {
            let _ = compile::<F>(image, key, cache);
        }
    }
    derived::<F>(image, cache)
}

/// What was derived for `image` into `cache` so far: of functions that were needed in one row
/// only, nothing is counted yet.
pub fn derived<F: Format>(image: &Image, cache: &mut Cache) -> Derived {
    let counts = cache.index(image.id(), F::TABLE, Counts::default);
    let load = |n: &AtomicU32| n.load(Ordering::Relaxed);
    Derived {
        rows: load(&counts.rows),
        losses: Losses(core::array::from_fn(|i| load(&counts.losses[i]))),
    }
}

fn unit_key<F: Format>(image: &Image, offset: u64) -> UnitKey {
    UnitKey {
        table: F::TABLE,
        image: Some(image.id()),
        offset,
    }
}

fn eh_frame(image: &Image) -> &[u8] {
    let section = image.section(SectionKind::EhFrame);
    section.map_or(&[], |s| &s.data[..])
}

/// As much of the function whose FDE is at `key.offset` of `.eh_frame` as `svma` needs.
fn compile_for<F: Format>(
    image: &Image,
    key: UnitKey,
    svma: u64,
    cache: &mut Cache,
) -> Result<UnitId, Reason> {
    // A row takes a byte of the FDE at least: a short one has not too many.
    let start = usize::try_from(key.offset).unwrap_or(usize::MAX);
    let len = eh_frame(image).get(start..).and_then(<[u8]>::first_chunk);
    let len = len.map_or(u32::MAX, |len| u32::from_le_bytes(*len));
    if u32::try_from(F::ROWS_MAX).is_ok_and(|max| len > max) {
        return compile::<F>(image, key, cache);
    }
    let unit = dwarf::compile_as(image, key, Some(svma), cache)?;
    if cache.is_complete(unit) {
        return Ok(exchange::<F>(image, key, unit, cache));
    }
    if is_small(cache, unit) && cache.transcribe_unit(unit, transcribe::<F>, |_, _| {}) {
        Ok(unit)
    } else {
        compile::<F>(image, key, cache)
    }
}

/// Offsets of rows have 32 bits.
fn is_small(cache: &Cache, unit: UnitId) -> bool {
    let range = cache.unit_range(unit);
    u32::try_from(range.end - range.start).is_ok()
}

/// The whole function whose FDE is at `key.offset` of `.eh_frame`.
fn compile<F: Format>(image: &Image, key: UnitKey, cache: &mut Cache) -> Result<UnitId, Reason> {
    let unit = dwarf::compile_as(image, key, None, cache)?;
    Ok(exchange::<F>(image, key, unit, cache))
}

/// Makes the derived unit out of `unit`, which holds all rows as `.eh_frame` has them.
fn exchange<F: Format>(image: &Image, key: UnitKey, unit: UnitId, cache: &mut Cache) -> UnitId {
    let counts = cache.index(image.id(), F::TABLE, Counts::default);
    let range = cache.unit_range(unit);
    let count = cache.unit_rows(unit).len();
    if count <= F::ROWS_MAX && is_small(cache, unit) {
        let mut tally = Tally::default();
        let each = |loss, left_out| tally.add(loss, left_out);
        if cache.transcribe_unit(unit, transcribe::<F>, each) {
            counts.add(count, &tally);
            return unit;
        }
    }
    let mut rows = Rows::<F>::default();
    let bytes = eh_frame(image);
    for row in cache.unit_rows(unit) {
        let at = cache.source(row);
        let rule = simplify(cache.rule(row), bytes);
        if let Value::Expression(e) = rule.cfa
            && let Some(threshold) = plt_threshold(expression(bytes, e))
        {
            rows.push_plt(&rule, at.start..at.end, at.row_offset, threshold);
        } else {
            rows.push(at.start, at.row_offset, &rule);
        }
    }
    // What a PLT's formula is written out into is one `PCMASK` function of a few rows.
    if count > F::ROWS_MAX {
        rows.lose_all(Loss::TooManyRows);
    } else if !is_small(cache, unit) {
        rows.lose_all(Loss::TooLarge);
    }
    counts.add(rows.rows.len(), &rows.tally);
    let error = cache.unit_error(unit);
    cache.add_unit(key, range, rows.rows, error)
}

fn transcribe<F: Format>(rule: &Rule) -> Transcript {
    // A rule without expressions asks for no bytes.
    let rule = simplify(rule, &[]);
    match F::transcribe(&rule) {
        Ok(derived) => {
            let unsaid = |v: Value| matches!(v, Value::Same | Value::Unspecified);
            let lost = |reg| !unsaid(rule.saved(reg)) && unsaid(derived.saved(reg));
            let regs = [Reg::Rbx, Reg::R12, Reg::R13, Reg::R14, Reg::R15];
            let call = derived.kind != RuleKind::Outermost;
            Transcript {
                rule: derived,
                loss: None,
                registers_left_out: call && regs.into_iter().any(lost),
            }
        }
        Err(loss) => Transcript {
            rule: NO_ROW,
            loss: Some(loss),
            registers_left_out: false,
        },
    }
}

/// Rows one by one, where they cannot be copied.
struct Rows<F> {
    rows: Vec<NewRow>,
    tally: Tally,
    format: PhantomData<F>,
}

impl<F> Default for Rows<F> {
    fn default() -> Self {
        Rows {
            rows: Vec::new(),
            tally: Tally::default(),
            format: PhantomData,
        }
    }
}

impl<F: Format> Rows<F> {
    fn push(&mut self, start: u64, offset: u64, rule: &Rule) {
        self.push_made(start, offset, &transcribe::<F>(rule));
    }

    fn push_made(&mut self, start: u64, offset: u64, made: &Transcript) {
        self.tally.add(made.loss, made.registers_left_out);
        let rule = made.rule;
        self.rows.push(NewRow {
            start,
            offset,
            rule,
        });
    }

    /// The rows of a PLT, whose CFA is rsp + 8 in the first bytes of every 16 and rsp + 16 in the
    /// others (`PCMASK` in SFrame's words).
    fn push_plt(&mut self, rule: &Rule, range: Range<u64>, offset: u64, threshold: u8) {
        let [before, after] = [8, 16].map(|cfa| {
            let cfa = Value::reg(Reg::Rsp, cfa);
            transcribe::<F>(&Rule { cfa, ..*rule })
        });
        let mut start = range.start;
        while start < range.end && self.rows.len() < PLT_ROWS_MAX {
            let pushed = start % 16 >= threshold.into();
            self.push_made(start, offset, if pushed { &after } else { &before });
            let block = start & !15;
            let next = if pushed { 16 } else { threshold.into() };
            start = match block.checked_add(next) {
                Some(next) => next,
                None => return,
            };
        }
        if start < range.end {
            self.tally.add(Some(Loss::TooManyRows), false);
            self.rows.push(NewRow {
                start,
                offset,
                rule: NO_ROW,
            });
        }
    }

    fn lose_all(&mut self, loss: Loss) {
        self.tally = Tally::default();
        for row in &mut self.rows {
            row.rule = NO_ROW;
            self.tally.add(Some(loss), false);
        }
    }
}
