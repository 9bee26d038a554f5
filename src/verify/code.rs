//! What is known of each instruction before it is executed: its class, what it may change, and
//! the claims of every unwinder's row at it. Looked up once for each decoded block.

use super::claim::{Claim, PART_OF, Parts};
use super::memory::MemoryUse;
use hashbrown::{HashMap, HashSet};
use iced_x86::InstructionInfoFactory;
use unwind_sim_emulator::effects::{Stores, effects};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{AddressSpace, State};
use unwind_sim_unwind::cache::{Cache, RowSource, TableKind};
use unwind_sim_unwind::image;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::step::{Row, find_row};
use unwind_sim_unwind::truth::{INSN_BYTES_MAX, Insn, classify};
use unwind_sim_unwind::walk::Finder;

/// Most unwinders in one run.
pub const UNWINDERS_MAX: usize = 8;
/// No number.
pub(super) const NONE: u32 = u32::MAX;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Which claims the unwinders' rows at the instruction make: a number of [`Code::sets`];
    /// [`NONE`] if it was not looked up.
    pub(super) claims: u32,
    /// What they were last found to be wrong in: a number of [`super::findings`]; [`NONE`] if in
    /// nothing.
    pub(super) findings: u32,
    /// What it may change, memory apart.
    pub(super) writes: Parts,
    pub(super) class: Insn,
    pub(super) stores: Stores,
    /// For a call: where its claims behind it are ([`Code::returns`]).
    pub(super) behind: u32,
}

impl Known {
    /// Not looked up.
    const NOTHING: Known = Known {
        claims: NONE,
        findings: NONE,
        writes: 0,
        class: Insn::Other,
        stores: Stores::Nothing,
        behind: NONE,
    };
}

/// The claims of the rows at a return address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// Looked up at the return address - 1.
    pub(super) inside: u32,
    /// Looked up at the return address.
    pub(super) after: u32,
    /// As [`Known::findings`], for either.
    pub(super) findings: [u32; 2],
    /// Was the call executed?
    pub(super) seen: bool,
}

/// The claims of all unwinders at an instruction. Equal ones have one number.
pub(super) struct Set {
    /// By unwinder; those that are not there claim nothing.
    pub(super) claims: [Claim; UNWINDERS_MAX],
    /// What their outcomes hang on.
    pub(super) depends: Parts,
    /// Is one of another shape than the common one? Then equal claims do not mean equal rows.
    pub(super) has_slow: bool,
}

/// All instructions met.
pub(super) struct Code {
    /// By block number; that of the current block is in `current` for the time being.
    blocks: Vec<Box<[Known]>>,
    current: Box<[Known]>,
    /// The number of the current block; [`SINGLE`] for one instruction by itself.
    number: usize,
    generation: u64,
    pub(super) sets: Vec<Set>,
    set_ids: HashMap<[u32; UNWINDERS_MAX], u32>,
    claim_ids: HashMap<Claim, u32>,
    pub(super) returns: Vec<Behind>,
    returns_by_address: HashMap<u64, u32>,
    addresses: HashSet<u64>,
    info: InstructionInfoFactory,
}

const SINGLE: usize = usize::MAX;

/// Where rows are looked up.
pub(super) struct Tables<'a> {
    pub(super) finders: &'a [&'a dyn Finder],
    pub(super) caches: &'a mut [Cache],
    pub(super) space: &'a image::AddressSpace,
    /// For each unwinder, the rows that executed instructions met: first address and place.
    pub(super) rows: &'a mut [HashSet<(image::ImageId, u64)>],
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

    fn meet(&mut self, which: usize, source: &RowSource) {
        if let Some(image) = source.image {
            self.rows[which].insert((image, source.start));
        }
    }
}

impl Code {
    pub(super) fn new() -> Code {
        Code {
            blocks: Vec::new(),
            current: Box::default(),
            number: SINGLE,
            generation: 0,
            sets: Vec::new(),
            set_ids: HashMap::new(),
            claim_ids: HashMap::new(),
            returns: Vec::new(),
            returns_by_address: HashMap::new(),
            addresses: HashSet::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Forgets all claims: images were mapped or unmapped.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.current.fill(Known::NOTHING);
        self.returns.clear();
        self.returns_by_address.clear();
    }

    /// Distinct addresses of instructions that were looked up.
    pub(super) fn addresses(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// What it takes.
    pub(super) fn memory(&self) -> MemoryUse {
        let known = self.blocks.iter().map(|b| size_of_val(&**b));
        let known = known.sum::<usize>() + size_of_val(&*self.current);
        let returns = self.returns.capacity() * size_of::<Behind>();
        let returns = returns + self.returns_by_address.allocation_size();
        let ids = self.set_ids.allocation_size() + self.claim_ids.allocation_size();
        MemoryUse {
            known: known + self.blocks.capacity() * size_of::<Box<[Known]>>() + returns,
            claims: self.sets.capacity() * size_of::<Set>() + ids,
            met: self.addresses.allocation_size(),
            ..MemoryUse::default()
        }
    }

    /// A block begins.
    #[inline]
    pub(super) fn enter(&mut self, block: Option<BlockId>, operations: usize) {
        match block {
            Some(id) if id.number as usize == self.number && id.generation == self.generation => {}
            _ => self.change(block, operations),
        }
    }

    fn change(&mut self, block: Option<BlockId>, operations: usize) {
        let left = std::mem::take(&mut self.current);
        if let Some(place) = self.blocks.get_mut(self.number) {
            *place = left;
        }
        let Some(id) = block else {
            self.number = SINGLE;
            self.current = vec![Known::NOTHING; operations].into_boxed_slice();
            return;
        };
        if id.generation != self.generation {
            self.clear();
            self.generation = id.generation;
        }
        self.number = id.number as usize;
        if self.blocks.len() <= self.number {
            self.blocks.resize_with(self.number + 1, Box::default);
        }
        self.current = std::mem::take(&mut self.blocks[self.number]);
        if self.current.len() != operations {
            self.current = vec![Known::NOTHING; operations].into_boxed_slice();
        }
    }

    /// What is known of an instruction of the current block.
    #[inline(always)]
    pub(super) fn known(&mut self, index: u32) -> Option<&mut Known> {
        self.current.get_mut(index as usize)
    }

    /// Looks it up.
    #[cold]
    pub(super) fn look_up(&mut self, state: &State, insn: &Executed, tables: &mut Tables<'_>) {
        let bytes = bytes(&state.memory, insn);
        let class = classify(&bytes);
        let effects = effects(&bytes, insn.rip, &mut self.info);
        let mut writes = 0;
        for (number, part) in PART_OF.iter().enumerate() {
            if effects.registers & 1 << number != 0 {
                writes |= part;
            }
        }
        let claims = self.claims_at(insn.rip, tables, true);
        let behind = match class {
            Insn::Call { len, .. } => self.claims_behind(insn.rip.wrapping_add(len.into()), tables),
            _ => NONE,
        };
        let known = Known {
            claims,
            writes,
            class,
            stores: effects.stores,
            findings: NONE,
            behind,
        };
        self.addresses.insert(insn.rip);
        if let Some(place) = self.known(insn.index) {
            *place = known;
        }
    }

    fn claims_at(&mut self, address: u64, tables: &mut Tables<'_>, executed: bool) -> u32 {
        let mut claims = [Claim::Missing; UNWINDERS_MAX];
        for (which, place) in claims.iter_mut().enumerate().take(tables.finders.len()) {
            let finder = tables.finders[which];
            *place = match tables.row(which, address) {
                Err(_) => Claim::Missing,
                Ok(row) => {
                    if executed {
                        tables.meet(which, &row.source);
                    }
                    let by_frame_pointer = row.source.table == TableKind::FramePointer;
                    // A profile may refuse a rule somewhere.
                    match (
                        finder.permits(&row.rule, true),
                        finder.permits(&row.rule, false),
                    ) {
                        (Ok(()), Ok(())) => {
                            Claim::of(&row.rule, finder.carries(), by_frame_pointer)
                        }
                        _ => Claim::Slow,
                    }
                }
            };
        }
        let ids = claims.map(|claim| {
            let next = self.claim_ids.len() as u32;
            *self.claim_ids.entry(claim).or_insert(next)
        });
        let next = self.sets.len() as u32;
        let id = *self.set_ids.entry(ids).or_insert(next);
        if id == next {
            let used = &claims[..tables.finders.len()];
            let depends = used.iter().fold(0, |all, claim| all | claim.depends());
            self.sets.push(Set {
                claims,
                depends,
                has_slow: used.contains(&Claim::Slow),
            });
        }
        id
    }

    fn claims_behind(&mut self, ra: u64, tables: &mut Tables<'_>) -> u32 {
        if let Some(&at) = self.returns_by_address.get(&ra) {
            return at;
        }
        let behind = Behind {
            inside: self.claims_at(ra.wrapping_sub(1), tables, false),
            after: self.claims_at(ra, tables, false),
            findings: [NONE; 2],
            seen: false,
        };
        let at = self.returns.len() as u32;
        self.returns.push(behind);
        self.returns_by_address.insert(ra, at);
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
