//! What was found wrong, each once, with how often and where first.

use super::claim::{MISREAD, NOTHING, Wrong};
use super::code::{NONE, UNWINDERS_MAX};
use super::log::Log;
use super::numbered::push_tight;
use crate::check::Contradiction;
use hashbrown::HashMap;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;

/// How a row was put to the test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Check {
    /// At an instruction that was about to be executed, with all registers.
    Instruction,
    /// In the caller at a call, found by its return address - 1, with what a walk has there.
    InsideCall,
    /// The same, found by its return address.
    AtReturn,
    /// By a walk of the whole stack.
    Walk,
}

impl Check {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Check::Instruction => "instruction",
            Check::InsideCall => "call (ra-1)",
            Check::AtReturn => "call (ra)",
            Check::Walk => "walk",
        }
    }
}

/// A contradiction that was met at one address.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which unwinder of the run.
    pub unwinder: usize,
    /// By which check.
    pub check: Check,
    /// The address of the code.
    pub address: u64,
    /// The code.
    pub code: Code,
    /// The register concerned, as [`Contradiction::reg`].
    pub reg: Reg,
    /// The number of the instruction at which it was met first, from 0.
    pub first: u64,
    /// How often it was met.
    pub count: u64,
    /// The first of them.
    pub contradiction: Contradiction,
}

/// Findings, each once.
#[derive(Default)]
struct Merged {
    all: Vec<Finding>,
    by_key: HashMap<Key, u32>,
}

/// What identifies a finding.
type Key = (usize, Check, u64, Code, Reg);

impl Merged {
    /// Adds one, or counts it if it was met before.
    fn add(&mut self, finding: Finding) {
        let Finding {
            unwinder,
            check,
            address,
            code,
            reg,
            ..
        } = finding;
        let next = self.all.len() as u32;
        let key = (unwinder, check, address, code, reg);
        let id = *self.by_key.entry(key).or_insert(next);
        match self.all.get_mut(id as usize) {
            Some(known) => known.count += finding.count,
            None => self.all.push(finding),
        }
    }

    /// All of them, by unwinder, check and address.
    fn finish(mut self) -> Vec<Finding> {
        self.all
            .sort_by_key(|f| (f.unwinder, f.check, f.address, f.code.as_str(), f.reg as u8));
        self.all
    }
}

/// The outcomes at which something was wrong, of checks of single frames and of walks.
pub(super) struct Findings {
    outcomes: Vec<Outcome>,
    /// What was found, by outcome.
    log: Log,
    /// The outcomes of walks: by unwinder, code, register and address.
    walks: HashMap<(u8, Code, Reg, u64), u32>,
}

/// An outcome of one check at one place, so that the same one again only counts.
struct Outcome {
    /// Another one at the place; none if there is no outcome of this number.
    next: u32,
    /// How often, the lower and the upper part.
    count: u32,
    count_high: u16,
    what: What,
}

/// The unwinder, the check, what was wrong, and whether the one-frame check bears it out.
type What = u16;
const UNWINDER: u32 = 10;
const CHECK: u32 = 13;
const BORNE_OUT: What = 1 << 15;
const _: () = assert!(NOTHING < 1 << UNWINDER && MISREAD < 1 << UNWINDER);
const _: () = assert!(UNWINDERS_MAX <= 1 << (CHECK - UNWINDER));

#[inline]
fn what(which: usize, check: Check, wrong: Wrong) -> What {
    wrong | (which as What) << UNWINDER | (check as What) << CHECK
}

impl Outcome {
    fn unwinder(&self) -> usize {
        usize::from(self.what >> UNWINDER) % UNWINDERS_MAX
    }

    fn check(&self) -> Check {
        match (self.what & !BORNE_OUT) >> CHECK {
            0 => Check::Instruction,
            1 => Check::InsideCall,
            2 => Check::AtReturn,
            _ => Check::Walk,
        }
    }

    #[inline]
    fn again(&mut self) {
        let (count, wrapped) = self.count.overflowing_add(1);
        self.count = count;
        self.count_high = self.count_high.wrapping_add(wrapped.into());
    }

    fn count(&self) -> u64 {
        u64::from(self.count) | u64::from(self.count_high) << 32
    }
}

impl Findings {
    pub(super) fn new() -> Findings {
        Findings {
            outcomes: Vec::new(),
            log: Log::new(),
            walks: HashMap::new(),
        }
    }

    /// Counts contradiction `found` of a walk, or adds it.
    pub(super) fn walked(&mut self, unwinder: usize, number: u64, found: &Contradiction) {
        let address = found.pc.value();
        let key = (unwinder as u8, found.code, found.reg, address);
        if let Some(outcome) = self
            .walks
            .get(&key)
            .map(|&id| &mut self.outcomes[id as usize])
        {
            outcome.again();
            return;
        }
        let check = (unwinder, Check::Walk, address);
        let mut place = NONE;
        self.add(&mut place, 0, check, number, std::slice::from_ref(found));
        self.walks.insert(key, place);
    }

    /// Counts an outcome at a place that had the same once before, and says whether there was a
    /// contradiction; if it is a new one, it has to be added.
    #[inline]
    pub(super) fn again(
        &mut self,
        mut place: u32,
        which: usize,
        check: Check,
        wrong: Wrong,
    ) -> Option<bool> {
        let what = what(which, check, wrong);
        loop {
            let outcome = self.outcomes.get_mut(place as usize)?;
            if outcome.what & !BORNE_OUT == what {
                outcome.again();
                return Some(outcome.what & BORNE_OUT != 0);
            }
            place = outcome.next;
        }
    }

    /// Adds an outcome, and remembers it at `place`, which is the number of its last outcome. Gives
    /// whether there was a contradiction.
    pub(super) fn add(
        &mut self,
        place: &mut u32,
        wrong: Wrong,
        (which, check, address): (usize, Check, u64),
        first: u64,
        contradictions: &[Contradiction],
    ) -> bool {
        let is_wrong = !contradictions.is_empty();
        let id = self.outcomes.len() as u32;
        let borne_out = if is_wrong { BORNE_OUT } else { 0 };
        let outcome = Outcome {
            next: *place,
            count: 1,
            count_high: 0,
            what: what(which, check, wrong) | borne_out,
        };
        push_tight(&mut self.outcomes, outcome);
        *place = id;
        self.log.add(address, first, contradictions);
        is_wrong
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let walks = self.walks.allocation_size();
        self.outcomes.capacity() * size_of::<Outcome>() + self.log.bytes() + walks
    }

    /// All findings, by unwinder, check and address.
    pub(super) fn finish(&self) -> Vec<Finding> {
        let mut merged = Merged::default();
        for (outcome, entry) in self.outcomes.iter().zip(self.log.entries()) {
            for contradiction in entry.contradictions {
                merged.add(Finding {
                    unwinder: outcome.unwinder(),
                    check: outcome.check(),
                    address: entry.address,
                    code: contradiction.code,
                    reg: contradiction.reg,
                    first: entry.first,
                    count: outcome.count(),
                    contradiction,
                });
            }
        }
        merged.finish()
    }
}
