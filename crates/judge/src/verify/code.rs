//! What is known about each instruction before it is executed: its class, what it may change, and
//! the claims of every unwinder's row at it. It is looked up once for each block of code (`blocks`),
//! however many processes execute it.

mod met;
mod runs;

pub(super) use met::Met;
use runs::Ahead;
pub(super) use runs::Head;

use super::blocks::{Blocks, PlaceOf};
use super::claim::{Claim, PART_OF, Parts, Wrong};
use super::findings::Confirmed;
use super::marks::Marks;
use super::memory::{MemoryUse, list_bytes};
use super::numbered::{NONE, Numbered, UNWINDERS_MAX, push_tight};
use super::places::{PlaceId, Places};
use hashbrown::HashMap;
use iced_x86::InstructionInfoFactory;
use unwind_sim_emulator::effects::{Stack, Stores, effects};
use unwind_sim_emulator::machine::Executed;
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
