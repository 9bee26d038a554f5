//! What is known about each instruction before it is executed: its class, what it may change, and
//! the claims of every unwinder's row at it. It is looked up once for each block of code (`blocks`),
//! however many processes execute it.

mod runs;

use runs::Ahead;
pub(super) use runs::Head;

use super::blocks::{Blocks, PlaceOf};
use super::claim::{Claim, PART_OF, Parts, Wrong};
use super::findings::Confirmed;
use super::marks::Marks;
use super::memory::{MemoryUse, list_bytes};
use super::numbered::{NONE, Numbered, UNWINDERS_MAX, grow_tight, push_tight};
use super::places::{PlaceId, Places};
use super::repeats::Key;
use hashbrown::HashMap;
use iced_x86::InstructionInfoFactory;
use std::ops::Range;
use unwind_sim_emulator::effects::{Stack, Stores, effects};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{AddressSpace, Core};
use unwind_sim_record::jit;
use unwind_sim_record::shadow::classify_in;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image;
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, Insn};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::row::{Row, RowSource};
use unwind_sim_unwind::step::find_row;

/// What is known about an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The claims of the unwinders' rows, as a number in [`Code::sets`]; [`NONE`] if not looked up.
    pub(super) claims: u32,
    /// For a call, the number of the claims at its return address ([`Code::returns`]). For other
    /// instructions, the number of what it does with memory and rsp ([`Code::effect`]).
    more: u32,
    /// The last repeat that begins with it, in [`super::repeats`]; [`NONE`] if there is none.
    pub(super) repeat: u32,
    /// What it may change, except memory: the lower bits of [`Parts`].
    pub(super) writes: u8,
    /// The length of the [run](Code::run) that starts with it plus 1, and [`CLOSES`]; 0 if not computed.
    run: u8,
    pub(super) class: Insn,
    /// What follows it in a run.
    pub(super) ahead: Ahead,
}

const _: () = assert!(size_of::<Known>() == 20);

impl Known {
    /// An instruction that was not looked up.
    const NOTHING: Known = Known {
        claims: NONE,
        more: NO_EFFECT,
        repeat: NONE,
        writes: 0,
        run: 0,
        class: Insn::Other,
        ahead: Ahead::UNKNOWN,
    };

    /// The number of what it does with memory and rsp.
    #[inline(always)]
    pub(super) fn effect(&self) -> u32 {
        match self.class {
            Insn::Call { .. } => NO_EFFECT,
            _ => self.more,
        }
    }

    /// For a call: the number of the claims at its return address.
    #[inline]
    pub(super) fn behind(&self) -> u32 {
        match self.class {
            Insn::Call { .. } => self.more,
            _ => NONE,
        }
    }
}

/// What an instruction does with memory and rsp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Effect {
    pub(super) stores: Stores,
    pub(super) stack: Stack,
}

/// The number of the effect of an instruction that stores nothing, and does not move rsp by a
/// constant.
pub(super) const NO_EFFECT: u32 = 0;
/// Added to the number of the effect of the first instruction of a function that registers unwind
/// tables.
pub(super) const HOOK: u32 = 1 << 31;

/// The claims of the rows at a return address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// The set of claims looked up by the return address - 1.
    pub(super) inside: u32,
    /// The set of claims looked up by the return address.
    pub(super) after: u32,
}

/// The claims of all unwinders at an instruction. Equal sets have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Set {
    /// By unwinder, a number in [`Code::claims`].
    pub(super) claims: [u32; UNWINDERS_MAX],
    /// By unwinder: an earlier unwinder whose claim includes this one's, and the bits of that
    /// claim's result that apply to this one.
    pub(super) part_of: [Option<(u8, Wrong)>; UNWINDERS_MAX],
    /// By unwinder: what its outcome depends on.
    pub(super) depends_by: [Parts; UNWINDERS_MAX],
    /// What all outcomes depend on.
    pub(super) depends: Parts,
    /// Whether a claim does not have the common shape. Then equal claims do not mean equal rows.
    pub(super) has_slow: bool,
    /// A bit for each unwinder for which this is generated code without a table.
    pub(super) no_table: u8,
}

/// A block that was met.
#[derive(Clone, Copy)]
struct MetBlock {
    /// Its index in [`Code::heads`]; [`NONE`] if it was not met.
    at: u32,
    /// What was wrong in the run that begins there, the last time that this was looked up.
    key: Key,
    /// The repeat with which that is counted.
    repeat: u32,
    /// What is there, as soon as the run that begins there is known: all that is needed of most blocks
    /// lies together.
    head: Head,
}

impl MetBlock {
    /// A block of which no repeat is known.
    const fn new(at: u32, head: Head) -> MetBlock {
        MetBlock {
            at,
            key: Key::TOO_MANY,
            repeat: NONE,
            head,
        }
    }
}

/// The instructions that were met in one address space, with its current images. When these change, all
/// but the generation is forgotten ([`Code::clear`]). The current block is the one that was entered last.
pub(super) struct Met {
    /// By block number.
    blocks: Vec<MetBlock>,
    /// The number of the current block; [`NONE`] for an instruction by itself.
    number: u32,
    /// The index of the current block in [`Code::heads`].
    head: u32,
    /// The index of its first instruction in [`Code::instructions`].
    current: u32,
    /// The number of its operations.
    operations: u32,
    /// Whether that is an instruction by itself.
    is_single: bool,
    generation: u64,
    confirmed: Confirmed,
    /// The repeats whose outcomes are all among these.
    repeats: Confirmed,
    /// By number in [`Code::returns`], a bit for each call that was executed.
    called: Vec<u64>,
}

impl Default for Met {
    fn default() -> Met {
        Met {
            blocks: Vec::new(),
            number: NONE,
            head: NONE,
            current: NONE,
            operations: 0,
            is_single: false,
            generation: 0,
            confirmed: Confirmed::default(),
            repeats: Confirmed::default(),
            called: Vec::new(),
        }
    }
}

/// All instructions that were met, block by block.
///
/// The instructions of a block are those from its `start` in `instructions` on, as many as it has
/// operations. Nothing is taken out, so that a number stays that of the same thing; `met` says which
/// blocks and outcomes are those of the running process as it is now.
pub(super) struct Code {
    pub(super) met: Met,
    heads: Vec<Head>,
    instructions: Vec<Known>,
    /// For each of `instructions`, its last wrong outcome, as a number in [`super::findings`];
    /// [`NONE`] if there is none.
    findings: Vec<u32>,
    blocks: Blocks,
    pub(super) returns: Vec<Behind>,
    /// Like `findings`, for each of `returns`.
    findings_behind: Vec<u32>,
    returns_by_address: HashMap<(u64, PlaceId, PlaceId), u32>,
    sets: Numbered<Set>,
    claims: Numbered<Claim>,
    effects: Numbered<Effect>,
    addresses: Marks<PlaceId>,
    info: InstructionInfoFactory,
}

/// The tables in which rows are looked up.
pub(super) struct Tables<'a> {
    pub(super) finders: &'a [&'a dyn Finder],
    pub(super) caches: &'a mut [Cache],
    pub(super) space: &'a image::AddressSpace,
    pub(super) places: &'a mut Places,
    /// For each unwinder, the rows that executed instructions met, by first address and image.
    pub(super) rows: &'a mut [Marks<image::ImageId>],
}

impl Tables<'_> {
    /// The row of unwinder `which` for an instruction at `address`.
    pub(super) fn row(&mut self, which: usize, address: u64) -> Result<Row, Reason> {
        let mapping = self.space.find(address);
        let mapping = mapping.ok_or(Reason::NoImage { pc: address })?;
        find_row(
            self.finders[which],
            mapping,
            address,
            &mut self.caches[which],
        )
    }

    /// Whether `reason` says that the code at `address`, which has no row, was generated and has no
    /// table.
    fn is_without_table(&self, address: u64, reason: &Reason) -> bool {
        is_missing(reason) && self.space.find(address).is_some_and(jit::is_generated)
    }

    fn meet(&mut self, which: usize, source: &RowSource) {
        if let Some(image) = source.image {
            self.rows[which].insert(image, source.start);
        }
    }
}

/// Whether the reason is that there is no row or table.
pub(super) fn is_missing(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NoImage { .. } | Reason::NoTable { .. } | Reason::NoRow { .. }
    )
}

impl Code {
    pub(super) fn new() -> Code {
        let mut effects = Numbered::new();
        let nothing = effects.number(Effect {
            stores: Stores::Nothing,
            stack: Stack::Other,
        });
        debug_assert_eq!(nothing, NO_EFFECT);
        Code {
            met: Met::default(),
            heads: Vec::new(),
            instructions: Vec::new(),
            blocks: Blocks::default(),
            findings: Vec::new(),
            returns: Vec::new(),
            findings_behind: Vec::new(),
            returns_by_address: HashMap::new(),
            sets: Numbered::new(),
            claims: Numbered::new(),
            effects,
            addresses: Marks::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Forgets which blocks and calls were met, and what was wrong there, after images were mapped
    /// or unmapped.
    pub(super) fn clear(&mut self) {
        self.met = Met {
            generation: self.met.generation,
            ..Met::default()
        };
    }

    /// Records that the instruction at an address was executed, at another place than it was thought.
    pub(super) fn executed(&mut self, place: PlaceId, address: u64) {
        self.addresses.insert(place, address);
    }

    /// The addresses of the instructions that were looked up.
    pub(super) fn into_addresses(self) -> Marks<PlaceId> {
        self.addresses
    }

    /// The number of distinct addresses that were looked up.
    pub(super) fn count(&self) -> usize {
        self.addresses.count() as usize
    }

    /// A set of claims.
    #[inline]
    pub(super) fn set(&self, id: u32) -> Option<&Set> {
        self.sets.get(id)
    }

    /// A claim. If there is no such number, there is no row.
    #[inline]
    pub(super) fn claim(&self, id: u32) -> &Claim {
        self.claims.get(id).unwrap_or(&Claim::Missing)
    }

    /// What an instruction does with memory and rsp.
    #[inline]
    pub(super) fn effect(&self, id: u32) -> Effect {
        self.effects.get(id).copied().unwrap_or(Effect {
            stores: Stores::Anything,
            stack: Stack::Other,
        })
    }

    /// The memory used.
    pub(super) fn memory(&self) -> MemoryUse {
        let blocks = list_bytes(&self.heads) + self.blocks.bytes() + self.met.bytes();
        let lists = list_bytes(&self.instructions) + blocks;
        let findings = list_bytes(&self.findings) + list_bytes(&self.findings_behind);
        let returns = list_bytes(&self.returns) + self.returns_by_address.allocation_size();
        MemoryUse {
            known: lists + returns + self.effects.bytes(),
            findings,
            claims: self.sets.bytes() + self.claims.bytes(),
            met: self.addresses.bytes(),
            ..MemoryUse::default()
        }
    }

    /// Starts a block. Returns false if it was not met in this address space: see
    /// [`Code::enter_new`].
    #[inline]
    #[must_use]
    pub(super) fn enter(&mut self, block: Option<BlockId>, operations: usize) -> bool {
        if let Some(id) = block
            && id.generation == self.met.generation
            && let Some(met) = self.met.blocks.get_mut(id.number as usize)
            && met.at != NONE
        {
            if met.head.len == 0 {
                met.head = self.heads[met.at as usize];
            }
            self.met.number = id.number;
            self.met.head = met.at;
            self.met.current = met.head.start;
            self.met.operations = operations as u32;
            self.met.is_single = false;
            return true;
        }
        false
    }

    /// Starts a block of code at `range` that was not met in this address space.
    pub(super) fn enter_new(
        &mut self,
        memory: &AddressSpace,
        block: Option<BlockId>,
        range: Range<u64>,
        operations: usize,
        place_of: &mut PlaceOf<'_>,
    ) {
        // The decoder has thrown its blocks away and counts them anew, so their numbers mean other
        // code.
        if let Some(id) = block
            && id.generation != self.met.generation
        {
            self.clear();
            self.met.generation = id.generation;
        }

        let operations_of = (operations, block.is_none());
        // By its bytes and its place: what another process has found of the same code holds here,
        // too.
        let key = self.blocks.key(memory, range, operations_of, place_of);
        let known = self.blocks.get(&key).unwrap_or_else(|| {
            let at = self.add_block(operations);
            self.blocks.insert(key, at);
            at
        });

        let met = &mut self.met;
        met.head = known;
        met.current = self.heads[known as usize].start;
        met.operations = operations as u32;
        met.is_single = block.is_none();
        met.number = block.map_or(NONE, |id| id.number);

        let Some(id) = block else { return };
        let number = id.number as usize;
        if met.blocks.len() <= number {
            let unmet = MetBlock::new(NONE, Head::at(NONE));
            grow_tight(&mut met.blocks, number + 1, unmet);
        }
        met.blocks[number] = MetBlock::new(known, self.heads[known as usize]);
    }

    /// Adds a block of so many operations, of which nothing is known. Returns its index.
    fn add_block(&mut self, operations: usize) -> u32 {
        let start = self.instructions.len();
        grow_tight(&mut self.instructions, start + operations, Known::NOTHING);
        grow_tight(&mut self.findings, start + operations, NONE);
        let at = self.heads.len() as u32;
        push_tight(&mut self.heads, Head::at(start as u32));
        at
    }

    /// What is known about an instruction of the current block.
    #[inline(always)]
    pub(super) fn known(&mut self, index: u32) -> Option<&mut Known> {
        let at = self.met.current as usize + index as usize;
        self.instructions.get_mut(at)
    }

    /// The last wrong outcome of an instruction of the current block, and those that were met in
    /// this address space.
    #[inline]
    pub(super) fn findings(&self, index: u32) -> (u32, &Confirmed) {
        let at = self.met.current as usize + index as usize;
        let last = self.findings.get(at);
        (last.copied().unwrap_or(NONE), &self.met.confirmed)
    }

    /// The last repeat that begins with an instruction of the current block, and the repeats that can
    /// be counted in this address space.
    #[inline]
    pub(super) fn repeats_mut(&mut self, index: u32) -> Option<(&mut u32, &mut Confirmed)> {
        let at = self.met.current as usize + index as usize;
        let known = self.instructions.get_mut(at)?;
        Some((&mut known.repeat, &mut self.met.repeats))
    }

    /// The repeat of the run that begins with the current block, if it was noted for what `key` says is
    /// wrong.
    #[inline]
    pub(super) fn noted_repeat(&self, key: Key) -> Option<u32> {
        let met = self.met.blocks.get(self.met.number as usize)?;
        (met.key == key && met.repeat != NONE).then_some(met.repeat)
    }

    /// Notes the repeat of the run that begins with the current block, if it can be counted in this
    /// address space. Returns whether it can.
    pub(super) fn note_repeat(&mut self, key: Key, repeat: u32) -> bool {
        let can_repeat = self.met.repeats.contains(repeat);
        if can_repeat && let Some(met) = self.met.blocks.get_mut(self.met.number as usize) {
            (met.key, met.repeat) = (key, repeat);
        }
        can_repeat
    }

    /// Like [`Code::findings`], to add an outcome. That of an instruction by itself is looked up
    /// each time.
    pub(super) fn findings_mut(
        &mut self,
        index: u32,
    ) -> Option<(&mut u32, Option<&mut Confirmed>)> {
        let at = self.met.current as usize + index as usize;
        let last = self.findings.get_mut(at)?;
        let Met {
            confirmed,
            is_single,
            ..
        } = &mut self.met;
        Some((last, (!*is_single).then_some(confirmed)))
    }

    /// Like [`Code::findings`], for the rows at a return address, by its number in
    /// [`Code::returns`].
    pub(super) fn findings_behind(&self, behind: u32) -> (u32, &Confirmed) {
        let last = self.findings_behind.get(behind as usize);
        (last.copied().unwrap_or(NONE), &self.met.confirmed)
    }

    /// Like [`Code::findings_behind`], to add an outcome.
    pub(super) fn findings_behind_mut(
        &mut self,
        behind: u32,
    ) -> Option<(&mut u32, Option<&mut Confirmed>)> {
        let last = self.findings_behind.get_mut(behind as usize)?;
        Some((last, Some(&mut self.met.confirmed)))
    }

    /// Looks up an instruction. `is_hook`: it is the first of a function that registers tables.
    #[cold]
    pub(super) fn look_up(
        &mut self,
        core: &Core,
        insn: &Executed,
        is_hook: bool,
        tables: &mut Tables<'_>,
    ) {
        let bytes = bytes(&core.memory, insn);
        let class = classify_in(&core.memory, insn.rip, &bytes);
        let effects = effects(&bytes, insn.rip, &core.processor(), &mut self.info);

        // Registers are in the lower bits.
        let mut writes: Parts = 0;
        for (number, part) in PART_OF.iter().enumerate() {
            if effects.registers & 1 << number != 0 {
                writes |= part;
            }
        }

        let claims = self.claims_at(insn.rip, tables, true);

        // What a call does is always the same, so it has the number of the claims at its return
        // address instead.
        let more = match class {
            Insn::Call { len, .. } => self.claims_behind(insn.rip.wrapping_add(len.into()), tables),
            _ => {
                let effect = Effect {
                    stores: effects.stores,
                    stack: effects.stack,
                };
                self.effects.number(effect) | if is_hook { HOOK } else { 0 }
            }
        };

        let known = Known {
            claims,
            writes: writes as u8,
            class,
            more,
            ..Known::NOTHING
        };

        // By place: in another process, other code may be at this address.
        let place = tables.places.at(tables.space, insn.rip);
        self.addresses.insert(place, insn.rip);
        if let Some(place) = self.known(insn.index) {
            *place = known;
        }
    }

    fn claims_at(&mut self, address: u64, tables: &mut Tables<'_>, executed: bool) -> u32 {
        let mut claims = [Claim::Missing; UNWINDERS_MAX];
        for (which, place) in claims.iter_mut().enumerate().take(tables.finders.len()) {
            let finder = tables.finders[which];
            *place = match tables.row(which, address) {
                Err(reason) if tables.is_without_table(address, &reason) => Claim::NoTable,
                Err(_) => Claim::Missing,
                Ok(row) => {
                    // A row behind a call may never be in force, so it does not count as met.
                    if executed {
                        tables.meet(which, &row.source);
                    }
                    // A profile may reject a rule in some frames.
                    match (
                        finder.permits(&row.rule, true),
                        finder.permits(&row.rule, false),
                    ) {
                        (Ok(()), Ok(())) => {
                            // Where a convention lets functions change a register, the row's word
                            // on it is not a claim.
                            let convention = tables.space.convention(address);
                            let is_dwarf = row.source.table.is_dwarf();
                            let claimed = convention.claimed(&row.rule, is_dwarf);
                            Claim::of(&claimed, finder.carries())
                        }
                        _ => Claim::Slow,
                    }
                }
            };
        }

        let used = &claims[..tables.finders.len()];
        // Tables of one file mostly claim the same: then one outcome is a part of another's. Only
        // that of an earlier unwinder is there in time.
        let mut part_of = [None; UNWINDERS_MAX];
        for (which, place) in part_of.iter_mut().enumerate().take(used.len()) {
            *place = used[..which].iter().enumerate().find_map(|(index, other)| {
                let (Claim::Simple(this), Claim::Simple(other)) = (&used[which], other) else {
                    return None;
                };
                Some((index as u8, this.part_of(other)?))
            });
        }

        // Equal claims, and equal sets of them, have one number, which is all that an instruction
        // keeps.
        let mut numbers = [NONE; UNWINDERS_MAX];
        let mut depends_by = [0; UNWINDERS_MAX];
        for (which, claim) in used.iter().enumerate() {
            numbers[which] = self.claims.number(*claim);
            depends_by[which] = claim.depends();
        }

        let set = Set {
            claims: numbers,
            part_of,
            depends_by,
            depends: depends_by.iter().fold(0, |all, depends| all | depends),
            has_slow: used.contains(&Claim::Slow),
            no_table: (0..)
                .zip(used)
                .filter(|(_, claim)| **claim == Claim::NoTable)
                .fold(0, |bits, (which, _)| bits | 1 << which),
        };

        self.sets.number(set)
    }

    fn claims_behind(&mut self, ra: u64, tables: &mut Tables<'_>) -> u32 {
        let inside = ra.wrapping_sub(1);
        let mut place_of = PlaceOf::new(tables.places, tables.space);
        let key = (ra, place_of.at(inside), place_of.at(ra));
        if let Some(&at) = self.returns_by_address.get(&key) {
            return at;
        }
        let behind = Behind {
            inside: self.claims_at(inside, tables, false),
            after: self.claims_at(ra, tables, false),
        };
        let at = self.returns.len() as u32;
        push_tight(&mut self.returns, behind);
        push_tight(&mut self.findings_behind, NONE);
        self.returns_by_address.insert(key, at);
        at
    }

    /// Records that the call with return address number `behind` was executed. Returns whether it
    /// is the first time since the images have changed.
    pub(super) fn call(&mut self, behind: u32) -> bool {
        if self.returns.len() <= behind as usize {
            return false;
        }
        let called = &mut self.met.called;
        let (word, bit) = (behind as usize / 64, 1 << (behind % 64));
        if called.len() <= word {
            grow_tight(called, word + 1, 0);
        }
        let is_first = called[word] & bit == 0;
        called[word] |= bit;
        is_first
    }
}

impl Met {
    /// Whether the current block is an instruction by itself.
    pub(super) fn is_single(&self) -> bool {
        self.is_single
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let sets = self.confirmed.bytes() + self.repeats.bytes();
        list_bytes(&self.blocks) + sets + list_bytes(&self.called)
    }
}

fn bytes(memory: &AddressSpace, insn: &Executed) -> Vec<u8> {
    let len = (insn.len as usize).clamp(1, INSN_BYTES_MAX);
    let mut bytes = vec![0; len];
    match memory.fetch(insn.rip, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
