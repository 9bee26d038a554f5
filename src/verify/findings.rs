//! What was found wrong, each once, with how often and where first.

use super::claim::Wrong;
use super::code::{NONE, UNWINDERS_MAX};
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

/// What identifies a finding.
type Key = (usize, Check, u64, &'static str, Reg);

/// All findings of a run.
#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    by_key: HashMap<Key, u32>,
    /// The findings of one outcome, so that the same outcome again only counts.
    outcomes: Vec<Outcome>,
    /// By unwinder, the last outcome: for instructions that had one.
    last: Vec<[u32; UNWINDERS_MAX]>,
    /// All outcomes, by instruction, unwinder and what was wrong.
    known: HashMap<(u32, u8, Wrong), u32>,
}

struct Outcome {
    wrong: Wrong,
    count: u64,
    findings: Vec<u32>,
}

impl Findings {
    /// Counts an outcome at an instruction that had the same once before, and says whether there was
    /// a contradiction; if it is a new one, it has to be added. `place` is the instruction's.
    #[inline]
    pub(super) fn again(&mut self, place: u32, which: usize, wrong: Wrong) -> Option<bool> {
        let last = self.last.get_mut(place as usize)?;
        let id = &mut last[which];
        let outcome = self.outcomes.get(*id as usize)?;
        if outcome.wrong != wrong {
            *id = *self.known.get(&(place, which as u8, wrong))?;
        }
        let outcome = self.outcomes.get_mut(*id as usize)?;
        outcome.count += 1;
        Some(!outcome.findings.is_empty())
    }

    /// Adds an outcome, and remembers it at `place`, which is made if it is [`NONE`]. Gives
    /// whether there was a contradiction.
    pub(super) fn add(
        &mut self,
        place: &mut u32,
        wrong: Wrong,
        (which, check, address): (usize, Check, u64),
        first: u64,
        contradictions: Vec<Contradiction>,
    ) -> bool {
        let mut findings = Vec::new();
        for contradiction in contradictions {
            findings.push(self.finding(which, check, address, first, contradiction));
        }
        let is_wrong = !findings.is_empty();
        if *place == NONE {
            *place = self.last.len() as u32;
            self.last.push([NONE; UNWINDERS_MAX]);
        }
        let id = self.outcomes.len() as u32;
        self.last[*place as usize][which] = id;
        self.known.insert((*place, which as u8, wrong), id);
        self.outcomes.push(Outcome {
            wrong,
            count: 1,
            findings,
        });
        is_wrong
    }

    fn finding(
        &mut self,
        unwinder: usize,
        check: Check,
        address: u64,
        first: u64,
        contradiction: Contradiction,
    ) -> u32 {
        let (code, reg) = (contradiction.code, contradiction.reg);
        let next = self.all.len() as u32;
        let key = (unwinder, check, address, code.as_str(), reg);
        let id = *self.by_key.entry(key).or_insert(next);
        if id == next {
            self.all.push(Finding {
                unwinder,
                check,
                address,
                code,
                reg,
                first,
                count: 0,
                contradiction,
            });
        }
        id
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.outcomes.iter().map(|o| 4 * o.findings.capacity());
        lists.sum::<usize>()
            + self.outcomes.capacity() * size_of::<Outcome>()
            + self.all.capacity() * size_of::<Finding>()
            + self.last.capacity() * size_of::<[u32; UNWINDERS_MAX]>()
            + self.by_key.allocation_size()
            + self.known.allocation_size()
    }

    /// Takes the findings of `other` too.
    pub(super) fn merge(&mut self, other: Findings) {
        let offset = self.all.len() as u32;
        self.all.extend(other.all);
        self.outcomes
            .extend(other.outcomes.into_iter().map(|mut outcome| {
                outcome.findings.iter_mut().for_each(|id| *id += offset);
                outcome
            }));
    }

    /// All of them, by unwinder, check and address.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        for outcome in &self.outcomes {
            for &id in &outcome.findings {
                self.all[id as usize].count += outcome.count;
            }
        }
        let mut all = self.all;
        all.sort_by_key(|f| (f.unwinder, f.check, f.address, f.code.as_str(), f.reg as u8));
        all
    }
}
