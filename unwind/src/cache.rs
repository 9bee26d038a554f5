//! Compiled rows, owned by the caller: one cache per worker and unwinder.
//!
//! There are two levels. *Units* (usually the rows of one function, compiled from its table when
//! first needed) belong to an image and stay valid as long as the image lives. The *hot* table
//! (`hot`) maps a lookup address in an address space directly to a packed rule, so that a warm walk
//! touches neither table nor unit. It grows with use and is emptied at [`HOT_ENTRIES_MAX`].
//!
//! No result depends on what is in a cache: a warm walk finds what a cold one does, which the fuzz
//! target `walk` checks.

mod builder;
mod by_key;
mod hot;
mod rules;
mod sources;
#[cfg(feature = "kernel")]
mod space;
#[cfg(test)]
mod tests;
mod transcript;
mod unit;

pub use builder::UnitBuilder;
pub use hot::HOT_ENTRIES_MAX;
pub(crate) use hot::{Callers, Hot, HotTable};
pub(crate) use sources::Sources;
pub(crate) use transcript::Transcript;
pub(crate) use unit::SingleRow;
pub use unit::{NewRow, RowId, UnitId, UnitKey};

use crate::derived::{Derived, Lost};
use crate::dwarf::Common;
use crate::image::{AddressSpace, ImageId};
use crate::reason::Reason;
use crate::row::{RowSource, TableKind};
use crate::rule::{Packed, Rule, RuleKey};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use rules::Rules;
#[cfg(feature = "kernel")]
use space::SpaceCache;
use transcript::Transcripts;
use unit::{Row, Unit};

/// Tells apart caches, and the states of one in which the same [`RowId`] means another row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(usize);

impl Default for Version {
    /// One that no other cache has or had.
    fn default() -> Version {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Version(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The compiled rows and hot addresses of one unwinder and one worker.
///
/// Keep one for each unwinder and thread, for as long as you like: the first walk through a function
/// compiles its rows, later ones find them. What a walk gives does not depend on it.
///
/// ```
/// use unwind_sim_unwind::{AddressSpace, Cache, FramePointer, Mapping, MemoryCopy};
/// use unwind_sim_unwind::{Regs, Stack, Start, Unwinder};
///
/// /// Heap bytes at which the cache is emptied.
/// const CACHE_BYTES_MAX: usize = 64 << 20;
///
/// let bytes: Vec<u8> = [0u64, 0x401200].iter().flat_map(|word| word.to_le_bytes()).collect();
/// let memory = MemoryCopy::new(0x7000, &bytes);
/// let mut space = AddressSpace::new();
/// space.map(Mapping { range: 0x400000..0x500000, bias: 0, image: None, name: "program".into() });
///
/// let mut cache = Cache::new();
/// for pc in [0x401100, 0x401104, 0x401100] {
///     let start = Start::from_regs(Regs::frame(pc, 0x7000, 0x7000));
///     let chain = FramePointer.walk(&Stack::new(&start, &space, &memory), &mut cache);
///     assert_eq!(chain.frames.len(), 2);
///     if cache.bytes() > CACHE_BYTES_MAX {
///         cache.forget_units();
///     }
/// }
/// // The addresses that were looked up: two pcs and one return address.
/// assert_eq!(cache.hot_len(), 3);
/// ```
#[derive(Debug, Default)]
pub struct Cache {
    version: Version,
    hot: HotTable,
    rules: Rules,
    rows: Vec<Row>,
    units: Vec<Unit>,
    /// Indices into `units`, by key.
    unit_ids: HashTable<u32>,
    unit_hasher: DefaultHashBuilder,
    failed: HashMap<UnitKey, Reason>,
    /// The first malformed address of each malformed unit.
    errors: HashMap<UnitId, (u64, Reason)>,
    indices: HashMap<(ImageId, TableKind), Arc<dyn Any + Send + Sync>>,
    /// What compiling an image's table has cost so far, in the unit of the table's reader.
    spent: HashMap<(Option<ImageId>, TableKind), u64>,
    /// CIEs whose initial instructions have been run.
    commons: HashMap<UnitKey, Arc<Common>>,
    /// The one used last.
    last_common: Option<(UnitKey, Arc<Common>)>,
    /// Rules of one table translated to another table's format, and what the translation lost.
    transcripts: Transcripts,
    derived: HashMap<(ImageId, TableKind), Derived>,
    #[cfg(feature = "kernel")]
    of_space: SpaceCache,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries in the hot table.
    pub fn hot_len(&self) -> usize {
        self.hot.len()
    }

    /// Units compiled so far.
    pub fn unit_len(&self) -> usize {
        self.units.len()
    }

    /// Heap bytes of rules, rows and hot addresses. Excludes section indices, which workers share,
    /// and derived tables.
    pub fn bytes(&self) -> usize {
        fn of<T>(vec: &Vec<T>) -> usize {
            vec.capacity() * size_of::<T>()
        }
        let lists = of(&self.rows) + of(&self.units);
        let units = self.unit_ids.allocation_size() + self.failed.allocation_size();
        self.hot.bytes() + self.rules.bytes() + lists + units + self.commons.allocation_size()
    }

    /// Frees memory that rows and units have to spare, where no more will be added.
    pub fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
        self.units.shrink_to_fit();
    }

    /// Drops units, rows and hot addresses and frees their memory. They are compiled again when
    /// needed, and that cost is counted anew. Existing [`UnitId`]s and [`RowId`]s become invalid.
    pub fn forget_units(&mut self) {
        self.version = Version::default();
        self.hot = HotTable::default();
        self.rows = Vec::new();
        self.units = Vec::new();
        self.unit_ids = HashTable::new();
        self.failed = HashMap::new();
        self.errors = HashMap::new();
        self.commons = HashMap::new();
        self.last_common = None;
        self.spent = HashMap::new();
    }

    // --- the hot table ---

    /// Selects the address space of the hot addresses used from here on.
    #[inline]
    pub(crate) fn select(&mut self, space: &AddressSpace) {
        self.hot.select(space);
    }

    /// The packed rule for `address`, if it was looked up before.
    #[inline]
    pub(crate) fn hot(&self, address: u64) -> Option<&Hot> {
        self.hot.get(address)
    }

    /// Remembers that `row` covers `address`.
    pub(crate) fn insert_hot(
        &mut self,
        address: u64,
        row: RowId,
        fast: bool,
        fallback: Option<Reason>,
    ) -> Hot {
        let packed = if fast {
            self.rules.packed(self.rows[row.0 as usize].rule)
        } else {
            Packed::GENERIC
        };
        self.hot.insert(address, row, packed, fallback)
    }

    /// Why the first table had no rule at `address`, if the fallback's rule is used.
    #[inline]
    pub(crate) fn fallback_cause(&self, address: u64) -> Option<Reason> {
        self.hot.fallback(address)
    }

    // --- units and rows ---

    /// The unit if it was compiled, the error if it could not be compiled, `None` if it is new.
    pub fn unit(&self, key: &UnitKey) -> Option<Result<UnitId, Reason>> {
        match self.failed.get(key) {
            Some(reason) => Some(Err(*reason)),
            None => {
                let hash = key.hash_by_place(&self.unit_hasher);
                self.compiled(key, hash).map(Ok)
            }
        }
    }

    /// The unit's id, if it was ever compiled. `hash` is the key's.
    fn compiled(&self, key: &UnitKey, hash: u64) -> Option<UnitId> {
        let same = |id: &u32| self.units[*id as usize].key == *key;
        self.unit_ids.find(hash, same).copied().map(UnitId)
    }

    /// Remembers that this unit cannot be compiled.
    pub fn add_failed_unit(&mut self, key: UnitKey, reason: Reason) {
        self.failed.insert(key, reason);
    }

    /// Adds a unit that covers `start..end` (svma). Rows outside the unit or out of order are
    /// dropped. `error` gives the first malformed address and the reason.
    pub fn add_unit(
        &mut self,
        key: UnitKey,
        range: Range<u64>,
        rows: impl IntoIterator<Item = NewRow>,
        error: Option<(u64, Reason)>,
    ) -> UnitId {
        let mut unit = self.begin_unit(key, range);
        rows.into_iter().for_each(|row| unit.push(row));
        unit.finish(error)
    }

    /// Reserves space for `count` more units.
    pub(crate) fn reserve_units(&mut self, count: usize) {
        self.units.reserve(count);
        let hasher = |id: &u32| {
            self.units[*id as usize]
                .key
                .hash_by_place(&self.unit_hasher)
        };
        self.unit_ids.reserve(count, hasher);
    }

    /// Whether the rows of `unit` cover `svma`.
    pub(crate) fn knows(&self, unit: UnitId, svma: u64) -> bool {
        self.units[unit.0 as usize].known.contains(&svma)
    }

    /// The part of `unit` to compile for `svma`, which its rows do not cover; `None` if all of it
    /// is to be compiled. Most functions are asked for one row or two, those asked for a third one
    /// for more.
    pub(crate) fn next_part(&self, unit: UnitId, svma: u64) -> Option<SingleRow> {
        let Unit { known, second, .. } = &self.units[unit.0 as usize];
        let is_first = !second && !known.is_empty() && !self.is_complete(unit);
        is_first.then_some(SingleRow {
            svma,
            first: Some(unit),
        })
    }

    /// Makes the next lookup in `unit` compile it again.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        self.units[unit.0 as usize].known = 0..0;
    }

    /// Whether `unit` has all its rows.
    pub(crate) fn is_complete(&self, unit: UnitId) -> bool {
        self.units[unit.0 as usize].known == (0..u64::MAX)
    }

    /// The row of `unit` that covers `svma`.
    pub fn find_row(&self, unit: UnitId, svma: u64) -> Result<RowId, Reason> {
        let range = self.unit_range(unit);
        if !range.contains(&svma) {
            return Err(Reason::NoRow { pc: svma });
        }
        match self.unit_error(unit) {
            Some((from, reason)) if svma >= from => Err(reason),
            _ => self.row_at(unit, svma).ok_or(Reason::NoRow { pc: svma }),
        }
    }

    /// The last row of `unit` that starts at or before `svma`.
    fn row_at(&self, unit: UnitId, svma: u64) -> Option<RowId> {
        let unit = &self.units[unit.0 as usize];
        let rows = &self.rows[unit.rows.start as usize..unit.rows.end as usize];
        let after = rows.partition_point(|r| unit.start + u64::from(r.start) <= svma);
        Some(RowId(unit.rows.start + after.checked_sub(1)? as u32))
    }

    /// All rows of `unit`, by address.
    pub fn unit_rows(&self, unit: UnitId) -> impl ExactSizeIterator<Item = RowId> + use<> {
        self.units[unit.0 as usize].rows.clone().map(RowId)
    }

    /// Replaces the rules of all rows of `unit` with `rule`.
    pub(crate) fn overrule(&mut self, unit: UnitId, rule: &Rule) {
        self.version = Version::default();
        let id = self.rules.id(RuleKey::of(rule), || *rule);
        let rows = self.units[unit.0 as usize].rows.clone();
        for row in &mut self.rows[rows.start as usize..rows.end as usize] {
            row.rule = id;
        }
    }

    /// The first malformed address (svma) of the unit, and the reason.
    pub fn unit_error(&self, unit: UnitId) -> Option<(u64, Reason)> {
        self.errors.get(&unit).copied()
    }

    /// The addresses (svma) that the unit covers.
    pub fn unit_range(&self, unit: UnitId) -> Range<u64> {
        let unit = &self.units[unit.0 as usize];
        unit.start..unit.end
    }

    /// The rule of `row`.
    #[inline]
    pub fn rule(&self, row: RowId) -> &Rule {
        self.sources().rule(row)
    }

    /// The source of `row`.
    #[inline]
    pub fn source(&self, row: RowId) -> RowSource {
        self.sources().source(row)
    }

    /// A view of the rows.
    #[inline]
    pub(crate) fn sources(&self) -> Sources<'_> {
        Sources {
            rules: &self.rules,
            rows: &self.rows,
            units: &self.units,
            version: self.version,
        }
    }

    /// A view of the hot table and one of the rows.
    #[inline]
    pub(crate) fn split(&mut self) -> (Callers<'_>, Sources<'_>) {
        let rows = Sources {
            rules: &self.rules,
            rows: &self.rows,
            units: &self.units,
            version: self.version,
        };
        (self.hot.callers(), rows)
    }

    // --- data kept by table readers ---

    #[cold]
    fn exchange(
        &mut self,
        table: TableKind,
        key: Option<RuleKey>,
        made: Transcript,
    ) -> (u32, Lost) {
        let id = self.rules.id(RuleKey::of(&made.rule), || made.rule);
        if let Some(key) = key {
            self.transcripts.insert(table, key, (id, made.lost));
        }
        (id, made.lost)
    }

    /// The tables derived for an image so far.
    pub(crate) fn derived(&mut self, image: ImageId, table: TableKind) -> &mut Derived {
        self.derived.entry((image, table)).or_default()
    }

    /// What the FDEs of the CIE at `key` share, if one of them was compiled before. To be returned
    /// with [`Cache::put_common`]: consecutive functions usually have the same CIE.
    #[inline]
    pub(crate) fn take_common(&mut self, key: &UnitKey) -> Option<Arc<Common>> {
        match self.last_common.take() {
            Some((last, common)) if last == *key => Some(common),
            _ => self.commons.get(key).cloned(),
        }
    }

    /// Returns what [`Cache::take_common`] took.
    #[inline]
    pub(crate) fn put_common(&mut self, key: UnitKey, common: Arc<Common>) {
        self.last_common = Some((key, common));
    }

    /// Remembers a CIE.
    pub(crate) fn add_common(&mut self, key: UnitKey, common: Arc<Common>) {
        self.commons.insert(key, common);
    }

    /// Adds `cost` to the cost of compiling the units of this key's table; returns the sum.
    pub(crate) fn spend(&mut self, key: &UnitKey, cost: u64) -> u64 {
        let spent = self.spent.entry((key.image, key.table)).or_default();
        *spent = spent.saturating_add(cost);
        *spent
    }

    /// What a table reader needs to find its units in an image (a parsed header, a sorted index),
    /// made once by `make`.
    pub fn index<T: Any + Send + Sync>(
        &mut self,
        image: ImageId,
        table: TableKind,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let any = self
            .indices
            .entry((image, table))
            .or_insert_with(|| Arc::new(make()));
        match Arc::clone(any).downcast() {
            Ok(index) => index,
            Err(_) => unreachable!("one reader, one type of index for each table kind"),
        }
    }
}
