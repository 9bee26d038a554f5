//! A single step of a walk: finding the rule for a frame, and applying it.
//!
//! The walk is an optimized loop. This is the same step in its plain form, for checks and
//! explanations that apply a rule to registers of their choice.

#[cfg(feature = "truth")]
mod confirm;

#[cfg(feature = "truth")]
pub use confirm::first_doubt;

use crate::apply;
use crate::cache::Cache;
use crate::chain::ReadWords;
use crate::finder::Finder;
use crate::frame::Frame;
use crate::image::Mapping;
use crate::memory::Memory;
use crate::reason::Reason;
use crate::row::{Row, RowSource};
use crate::walk::WalkTarget;

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// The rule that was found.
    pub row: Result<Row, Reason>,
    /// The caller's frame, or why there is none.
    pub caller: Result<Frame, Reason>,
    /// The CFA according to the rule, if known, even if the rest of the rule cannot be applied.
    pub cfa: Option<u64>,
    /// The stack words read.
    pub words: ReadWords,
}

/// Looks up the row for the frame at `address` in the finder, then in its fallback.
///
/// # Errors
/// If neither has one: no table, no row, or a damaged one.
///
/// The rows of an ELF file, here of this program's own:
///
/// ```
/// # #[cfg(all(feature = "elf", target_os = "linux", target_arch = "x86_64"))] {
/// use std::sync::Arc;
/// use unwind_sim_unwind::elf::{self, ReadOptions};
/// use unwind_sim_unwind::{Cache, Dwarf, Mapping, step::find_row};
///
/// let file = std::fs::read("/proc/self/exe").expect("this program's file");
/// let image = elf::image_from_elf("example", Arc::new(file), &ReadOptions::default());
/// let image = Arc::new(image.expect("an ELF file"));
/// let main = image.symbols().iter().find(|symbol| symbol.name == "main");
/// let main = main.expect("it is not stripped").address;
///
/// // With a bias of 0, addresses are those of the file.
/// let mapping = Mapping { range: 0..u64::MAX, bias: 0, image: Some(image), name: "example".into() };
/// let row = find_row(&Dwarf::new(), &mapping, main, &mut Cache::new()).expect("a row");
/// println!("{:#x}..{:#x}: {}", row.source.start, row.source.end, row.rule);
/// assert!((row.source.start..row.source.end).contains(&main));
/// # }
/// ```
pub fn find_row<F: Finder + ?Sized>(
    finder: &F,
    mapping: &Mapping,
    address: u64,
    cache: &mut Cache,
) -> Result<Row, Reason> {
    let svma = mapping.svma(address);
    let first = finder.find(mapping, svma, cache);
    let (id, fallback) = match (first, finder.fallback()) {
        (Ok(id), _) => (id, None),
        (Err(cause), Some(second)) => (second.find(mapping, svma, cache)?, Some(cause)),
        (Err(cause), None) => return Err(cause),
    };
    let source = RowSource {
        fallback,
        ..cache.source(id)
    };
    Ok(Row {
        rule: *cache.rule(id),
        source,
    })
}

/// Finds the rule for `frame` and applies it.
pub fn step<F: Finder + ?Sized, M: Memory + ?Sized>(
    finder: &F,
    place: &WalkTarget<'_, M>,
    frame: &Frame,
    cache: &mut Cache,
) -> Stepped {
    let mut words = ReadWords::new();
    let address = frame.pc.lookup(finder.lookup());

    let Some(mapping) = place.space.find(address) else {
        // Without a row there is neither a caller nor a CFA.
        let reason = Reason::NoImage { pc: address };
        return Stepped {
            row: Err(reason),
            caller: Err(reason),
            cfa: None,
            words,
        };
    };

    let row = match find_row(finder, mapping, address, cache) {
        Ok(row) => row,
        Err(reason) => {
            return Stepped {
                row: Err(reason),
                caller: Err(reason),
                cfa: None,
                words,
            };
        }
    };

    let (caller, cfa) = apply_row(finder, place, mapping, frame, &row, &mut words);
    Stepped {
        row: Ok(row),
        caller,
        cfa,
        words,
    }
}

/// Applies `row`; returns the caller and the CFA.
fn apply_row<F: Finder + ?Sized, M: Memory + ?Sized>(
    finder: &F,
    place: &WalkTarget<'_, M>,
    mapping: &Mapping,
    frame: &Frame,
    row: &Row,
    words: &mut ReadWords,
) -> (Result<Frame, Reason>, Option<u64>) {
    // Some unwinders accept certain rules only in the topmost frame, where all registers are known.
    if let Err(reason) = finder.permits(&row.rule, frame.topmost) {
        return (Err(reason), None);
    }

    // Expressions stay in the file's section; rules have only their offsets.
    let image = mapping.image.as_deref();
    let section = row
        .source
        .table
        .section()
        .and_then(|kind| image?.section(kind));

    let context = apply::Context {
        memory: place.memory,
        expressions: section.map_or(&[], |s| &s.data[..]),
        bias: mapping.bias,
        carries: finder.carries(),
    };

    let caller = apply::apply(&row.rule, frame, &context, words);
    let cfa = match &caller {
        Ok(caller) => Some(caller.regs.rsp()),
        // A rule may give the CFA although another part of it fails.
        Err(_) => apply::cfa(&row.rule, frame, &context),
    };

    (caller, cfa)
}

#[cfg(test)]
mod tests;
