//! The unwinders of a run, and the rows that they have compiled.

use super::mapped::Mapped;
use crate::engine::Engine;
use crate::unwinders::may_err;
use crate::verify::code::Tables;
use crate::verify::marks::Marks;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::ImageId;
use unwind_sim_unwind::regs::Reg;

/// The compiled rows of one unwinder are dropped when they have this many bytes, and this many for
/// each distinct instruction. Rows are needed only for new code and for walks, and then only those
/// of a few functions.
pub(super) const CACHE_MIN: usize = 128 << 10;
const CACHE_PER_INSTRUCTION: usize = 4;

/// The unwinders. Each list has one entry for each of them, in the order of the run, so that an
/// unwinder has the same index everywhere.
pub(super) struct Unwinders<'a> {
    pub(super) engines: &'a [Engine],
    pub(super) finders: Vec<&'a dyn Finder>,
    pub(super) caches: Vec<Cache>,
    /// The rows that executed instructions met.
    rows: Vec<Marks<ImageId>>,
    /// The unwinder whose rows say where registers are saved: the first one that carries all of
    /// them.
    pub(super) carries_all: Option<usize>,
}

impl<'a> Unwinders<'a> {
    /// All `engines` must read tables.
    pub(super) fn new(engines: &'a [Engine]) -> Unwinders<'a> {
        let finders: Vec<_> = engines.iter().filter_map(Engine::finder).collect();
        Unwinders {
            engines,
            caches: finders.iter().map(|_| Cache::new()).collect(),
            rows: finders.iter().map(|_| Marks::new()).collect(),
            carries_all: finders.iter().position(|finder| {
                let carried = finder.carries();
                Reg::CALLEE_SAVED.iter().all(|&reg| carried.contains(reg))
            }),
            finders,
        }
    }

    /// The number of unwinders.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.finders.len()
    }

    /// A bit for each unwinder that is expected to err.
    pub(super) fn expected(&self) -> u8 {
        let all = self.engines.iter().zip(0..);
        let expected = all.filter(|(engine, _)| may_err(engine.name()));
        expected.fold(0, |bits, (_, which)| bits | 1 << which)
    }

    /// Drops compiled rows if there are too many for this number of distinct instructions.
    pub(super) fn bound_caches(&mut self, instructions: usize) {
        let most = CACHE_MIN.max(instructions * CACHE_PER_INSTRUCTION);
        for cache in &mut self.caches {
            if cache.bytes() > most {
                cache.forget_units();
            }
        }
    }

    /// The tables in which rows of the mapped images are looked up.
    pub(super) fn tables<'b>(&'b mut self, mapped: &'b mut Mapped) -> Tables<'b> {
        Tables {
            finders: &self.finders,
            caches: &mut self.caches,
            space: &mapped.space,
            places: &mut mapped.places,
            rows: &mut self.rows,
        }
    }

    /// The number of distinct rows of an unwinder that executed instructions met.
    pub(super) fn rows_met(&self, which: usize) -> u64 {
        self.rows[which].count()
    }

    /// The heap memory of the compiled rows, in bytes.
    pub(super) fn cache_bytes(&self) -> usize {
        self.caches.iter().map(Cache::bytes).sum()
    }

    /// The heap memory of the marks of rows that were met, in bytes.
    pub(super) fn marks_bytes(&self) -> usize {
        self.rows.iter().map(Marks::bytes).sum()
    }
}
