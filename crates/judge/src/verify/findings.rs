//! The findings, each stored once, with its count and its first place.

use super::claim::{MISREAD, NOTHING, Wrong};
use super::departures::{Activation, Bounds, Departures, Outcomes};
use super::log::{Entry, Log};
use super::memory::list_bytes;
use super::merged::Merged;
use super::numbered::{NONE, UNWINDERS_MAX, grow_tight, push_tight};
use super::overwritten::Overwritten;
use super::places::{PlaceId, Places};
use super::repeats::{Key as RepeatKey, Repeats};
use crate::check::{Class, Contradiction};
use hashbrown::{HashMap, HashSet};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::Cpu;

/// The check that found a contradiction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Check {
    /// At an instruction that was about to be executed, with all registers.
    Instruction,
    /// In the caller at a call, looked up by its return address - 1, with the registers that a walk
    /// has there.
    InsideCall,
    /// In the caller at a call, looked up by its return address.
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
    /// The index of the unwinder in the run.
    pub unwinder: usize,
    /// The check.
    pub check: Check,
    /// What was mapped at the address at that time.
    pub place: PlaceId,
    /// The address of the code.
    pub address: u64,
    /// The reason code.
    pub code: Code,
    /// The register concerned; see [`Contradiction::reg`].
    pub reg: Reg,
    /// The number of the instruction at which it was first met, from 0.
    pub first: u64,
    /// How often it was met.
    pub count: u64,
    /// How many findings this one stands for. It is 1 unless the unwinder is expected to err: of such
    /// an unwinder, findings of one check, class, code and register in one image are one, which is
    /// the first that was met.
    pub stands_for: u64,
    /// The first contradiction.
    pub contradiction: Contradiction,
}

/// The wrong outcomes of checks of single frames and of walks.
pub(super) struct Findings {
    outcomes: Vec<Outcome>,
    /// The contradictions, by outcome.
    log: Log,
    /// The outcomes of walks: by unwinder, code, register and address.
    walks: HashMap<(u8, Code, Reg, PlaceId, u64), u32>,
    /// By unwinder, the functions in which its outcomes were met.
    departures: [Departures; UNWINDERS_MAX],
    pub(super) overwritten: Overwritten,
    pub(super) repeats: Repeats,
    /// A bit for each unwinder that is expected to err. It has no rows that could be those of a frame
    /// that is jumped to, and its findings are kept by cause.
    expected: u8,
    /// Whether all findings are kept even so.
    keeps_each: bool,
}

/// A frame in which something is wrong.
#[derive(Clone, Copy)]
pub(super) struct Site {
    /// What is mapped at the address.
    pub(super) place: PlaceId,
    /// The address of its code.
    pub(super) address: u64,
    /// The call of its function.
    pub(super) activation: Activation,
    /// The number of the instruction.
    pub(super) number: u64,
}

/// All findings, and the numbers of instructions whose outcome is not of class
/// [`Class::Wrong`](crate::check::Class::Wrong).
pub(super) struct Found {
    pub(super) all: Vec<Finding>,
    /// By unwinder.
    pub(super) lost: [u64; UNWINDERS_MAX],
    /// By unwinder.
    pub(super) target: [u64; UNWINDERS_MAX],
}

/// An outcome of one check at one place. If it is met again, it is only counted.
struct Outcome {
    /// The next outcome at the place; none if there is no outcome with this number.
    next: u32,
    /// The number of what was found ([`Log::content`]). [`NONE`] if it belongs to one process.
    content: u32,
    /// How often it was met: the lower 32 bits, and the upper 16.
    count: u32,
    count_high: u16,
    what: What,
}

/// The outcomes that were met in one address space, with its current images. There, an outcome that
/// is met again has the cause that it had the first time.
#[derive(Default)]
pub(super) struct Confirmed(Vec<u64>);

impl Confirmed {
    #[inline]
    pub(super) fn contains(&self, outcome: u32) -> bool {
        let word = self.0.get(outcome as usize / 64);
        word.is_some_and(|word| word & 1 << (outcome % 64) != 0)
    }

    pub(super) fn insert(&mut self, outcome: u32) {
        let at = outcome as usize / 64;
        if self.0.len() <= at {
            grow_tight(&mut self.0, at + 1, 0);
        }
        self.0[at] |= 1 << (outcome % 64);
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        list_bytes(&self.0)
    }
}

/// The unwinder, the check, what was wrong, and whether the one-frame check confirms it.
type What = u16;
const UNWINDER: u32 = 10;
const CHECK: u32 = 13;
const BORNE_OUT: What = 1 << 15;
const _: () = assert!(NOTHING < 1 << UNWINDER && MISREAD < 1 << UNWINDER);
const _: () = assert!(UNWINDERS_MAX <= 1 << (CHECK - UNWINDER));

#[inline]
fn what(which: usize, check: Check, wrong: Wrong) -> What {
    // Each has its own bits.
    wrong + ((which as What) << UNWINDER) + ((check as What) << CHECK)
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
        self.add(1);
    }

    #[inline]
    fn add(&mut self, count: u64) {
        let sum = self.count().wrapping_add(count);
        self.count = sum as u32;
        self.count_high = (sum >> 32) as u16;
    }

    /// Whether its values are remembered until its function is left.
    #[inline]
    fn is_remembered(&self) -> bool {
        self.content == NONE
    }

    fn count(&self) -> u64 {
        u64::from(self.count) + (u64::from(self.count_high) << 32)
    }
}

impl Findings {
    /// `expected` has a bit for each unwinder that is expected to err; its findings are kept by cause.
    pub(super) fn new(expected: u8) -> Findings {
        Findings {
            outcomes: Vec::new(),
            log: Log::new(),
            walks: HashMap::new(),
            departures: Default::default(),
            overwritten: Overwritten::default(),
            repeats: Repeats::default(),
            expected,
            keeps_each: false,
        }
    }

    /// Keeps each finding of unwinders that are expected to err.
    pub(super) fn keep_each(&mut self) {
        self.keeps_each = true;
    }

    /// Whether the unwinder is expected to err.
    fn is_expected(&self, which: usize) -> bool {
        self.expected >> which & 1 != 0
    }

    /// Whether the values of a new outcome of this unwinder will be remembered.
    fn learns(&self, which: usize, found: &[Contradiction]) -> bool {
        !self.is_expected(which) && self.departures[which].learns(found)
    }

    /// Records that instruction `number` of a function loaded rsp so that frames are left.
    pub(super) fn load(&mut self, function: Activation, number: u64) {
        for departures in &mut self.departures {
            departures.load(function, number);
        }
    }

    /// Whether a jump at instruction `number` completes such a load.
    pub(super) fn is_leaving(&self, number: u64) -> bool {
        // All of them know of it.
        self.departures[0].is_leaving(number)
    }

    /// Where bounds were reached for an unwinder.
    pub(super) fn bounds(&self, which: usize) -> Bounds {
        self.departures[which].bounds()
    }

    /// Adds contradiction `found` of a walk, or counts it.
    pub(super) fn walked(&mut self, unwinder: usize, site: Site, found: &Contradiction) {
        let (code, reg) = (found.code, found.reg);
        let key = (unwinder as u8, code, reg, site.place, site.address);
        if let Some(&id) = self.walks.get(&key) {
            self.count(id, (site.activation, site.number));
            return;
        }
        let mut last = NONE;
        let found = std::slice::from_ref(found);
        let place = (&mut last, None);
        self.add(place, 0, (unwinder, Check::Walk), site, found);
        self.walks.insert(key, last);
    }

    /// Counts an outcome that was met before, and returns whether it was a contradiction. `None` if
    /// it is new and must be added.
    #[inline]
    pub(super) fn again(
        &mut self,
        place: (u32, &Confirmed),
        check: (usize, Check),
        wrong: Wrong,
        now: (Activation, u64),
    ) -> Option<bool> {
        let outcome = self.find(place, check, wrong)?;
        Some(self.count(outcome, now))
    }

    /// The number of an outcome that was met before. `last` is that of the last outcome at the
    /// place.
    #[inline]
    pub(super) fn find(
        &self,
        (mut last, confirmed): (u32, &Confirmed),
        (which, check): (usize, Check),
        wrong: Wrong,
    ) -> Option<u32> {
        let what = what(which, check, wrong);
        loop {
            let outcome = self.outcomes.get(last as usize)?;
            if outcome.what & !BORNE_OUT == what && confirmed.contains(last) {
                return Some(last);
            }
            last = outcome.next;
        }
    }

    /// Counts an outcome. Returns whether it is a contradiction.
    #[inline]
    pub(super) fn count(&mut self, id: u32, (activation, number): (Activation, u64)) -> bool {
        let Some(outcome) = self.outcomes.get_mut(id as usize) else {
            return false;
        };
        outcome.again();
        if outcome.is_remembered() {
            self.departures[outcome.unwinder()].meet(id, activation, number);
        }
        outcome.what & BORNE_OUT != 0
    }

    /// Adds the repeat of `outcomes`, all of which were met before, to those that begin with `first`.
    pub(super) fn add_repeat(
        &mut self,
        first: &mut u32,
        what: (RepeatKey, u32),
        outcomes: &[u32],
    ) -> Option<u32> {
        let outcome = |id: u32| {
            let outcome = &self.outcomes[id as usize];
            (outcome.what & BORNE_OUT != 0, outcome.is_remembered())
        };
        self.repeats.add(first, what, outcomes, outcome)
    }

    /// Counts all outcomes of a repeat.
    #[inline]
    pub(super) fn count_repeat(&mut self, id: u32, (activation, number): (Activation, u64)) {
        for (which, count) in self.repeats.remembered(id) {
            let met = (Outcomes::Repeat(id), count);
            self.departures[which].meet_all(met, activation, number);
        }
        self.repeats.count(id);
    }

    /// Records that another function has put `value` into the slot of a register in the frame of
    /// `owner`.
    pub(super) fn overwrite(&mut self, owner: Activation, reg: Reg, value: u64) {
        if !self.overwritten.add(owner, reg, value) {
            let all = &mut self.departures;
            all.iter_mut().for_each(Departures::forgot_slots);
        }
    }

    /// Records that `function` is about to return with the registers of `after`.
    pub(super) fn returns(&mut self, function: Activation, after: &Cpu) {
        let slots = self.overwritten.take(function);
        let Some(slots) = slots else { return };
        for departures in &mut self.departures {
            departures.returns(function, &slots, after, &self.repeats);
        }
    }

    /// Records that `function` has left by a jump; `after` is the state after it.
    pub(super) fn leave(&mut self, function: Activation, after: &Cpu) {
        for departures in &mut self.departures {
            departures.leave(function, after, &self.repeats);
        }
    }

    /// Adds an outcome as the `last` one of its place, or counts one with the same content that
    /// another process met there. Without `confirmed`, it is not met [again](Findings::again).
    /// Returns whether there is a contradiction.
    ///
    /// An outcome whose values are remembered until its function is left is always added: how often
    /// it was met is compared with how often its function then left as its row says.
    pub(super) fn add(
        &mut self,
        (last, confirmed): (&mut u32, Option<&mut Confirmed>),
        wrong: Wrong,
        (which, check): (usize, Check),
        site: Site,
        contradictions: &[Contradiction],
    ) -> bool {
        let is_wrong = !contradictions.is_empty();
        let borne_out = if is_wrong { BORNE_OUT } else { 0 };
        let what = what(which, check, wrong) + borne_out;

        let content = if self.learns(which, contradictions) {
            NONE
        } else {
            self.log.content(contradictions)
        };

        // Other processes may have met the same here: outcomes of a place are a list, the last one
        // first.
        let mut known = *last;
        while content != NONE
            && let Some(outcome) = self.outcomes.get_mut(known as usize)
        {
            if (outcome.what, outcome.content) == (what, content) {
                outcome.again();
                if let Some(confirmed) = confirmed {
                    confirmed.insert(known);
                }
                return is_wrong;
            }
            known = outcome.next;
        }

        // Its id is its index, and that of its entry in the log: both lists only grow, in step.
        let id = self.outcomes.len() as u32;
        let outcome = Outcome {
            next: *last,
            content,
            count: 1,
            count_high: 0,
            what,
        };

        if let Some(confirmed) = confirmed {
            confirmed.insert(id);
        }

        push_tight(&mut self.outcomes, outcome);
        *last = id;

        let place = (site.place, site.address);
        self.log.add(place, site.number, contradictions);

        if content == NONE {
            // Its values are remembered until the function is left, so it belongs to one process.
            let departures = &mut self.departures[which];
            departures.learn(id, contradictions);
            departures.meet(id, site.activation, site.number);
        } else if !self.is_expected(which) {
            self.departures[which].refuse(contradictions);
        }

        is_wrong
    }

    /// Adds an outcome that was met `count` times, and is known only now.
    pub(super) fn add_late(
        &mut self,
        (which, check): (usize, Check),
        wrong: Wrong,
        site: Site,
        contradictions: &[Contradiction],
        count: u64,
    ) {
        let mut outcome = Outcome {
            next: NONE,
            content: self.log.content(contradictions),
            count: 0,
            count_high: 0,
            what: what(which, check, wrong) + BORNE_OUT,
        };
        outcome.add(count);
        push_tight(&mut self.outcomes, outcome);
        self.log
            .add((site.place, site.address), site.number, contradictions);
    }

    /// Counts an outcome that another process met, without its contradictions: they all gave
    /// values, and follow from `wrong`. Returns false if there is none.
    pub(super) fn add_plain(
        &mut self,
        (last, confirmed): (&mut u32, Option<&mut Confirmed>),
        wrong: Wrong,
        (which, check): (usize, Check),
        site: &Site,
    ) -> bool {
        if !self.is_expected(which) && !self.departures[which].is_full() {
            return false;
        }
        let what = what(which, check, wrong) + BORNE_OUT;
        let mut known = *last;
        while let Some(outcome) = self.outcomes.get(known as usize) {
            if outcome.what == what && self.log.is_plain(outcome.content) {
                if let Some(confirmed) = confirmed {
                    confirmed.insert(known);
                }
                return self.count(known, (site.activation, site.number));
            }
            known = outcome.next;
        }
        false
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let departures = self.departures.iter().map(Departures::bytes);
        let departures = departures.chain([self.overwritten.bytes()]);
        let walks = self.walks.allocation_size() + departures.sum::<usize>();
        list_bytes(&self.outcomes) + self.log.bytes() + walks + self.repeats.bytes()
    }

    /// All findings, by unwinder, check and address. `places` has what was mapped.
    pub(super) fn finish(&mut self, places: &Places) -> Found {
        let Findings {
            repeats, outcomes, ..
        } = self;

        // The instructions of a repeat have one count, which is that of each of its outcomes.
        for (id, count) in repeats.counts() {
            for &outcome in repeats.outcomes(id) {
                outcomes[outcome as usize].add(count);
            }
        }

        // All counts are taken over: this frees the memory before the findings need theirs.
        *repeats = Repeats::default();
        let mut found = Found {
            all: Vec::new(),
            lost: [0; UNWINDERS_MAX],
            target: [0; UNWINDERS_MAX],
        };

        let (executed, count) = self.executed();
        let mut merged = Merged::with_room_for(count, places);

        for ((id, outcome), entry) in (0..).zip(&self.outcomes).zip(self.log.entries()) {
            let (unwinder, check) = (outcome.unwinder(), outcome.check());
            let by_cause = self.is_expected(unwinder) && !self.keeps_each;

            // If the function left as its row says each time, the row describes the frame that is
            // jumped to.
            let left = self.departures[unwinder].left(id);
            let is_target = left == outcome.count();

            let mut class = None;
            for mut contradiction in entry.contradictions {
                // If the code behind the call was executed with the same wrong row, the row is to
                // blame.
                let own = own_code(&contradiction);
                let key = (unwinder, entry.place, entry.address, own, contradiction.reg);
                if contradiction.code != own && executed.contains(&key) {
                    contradiction.code = own;
                }
                if is_target {
                    contradiction.code = Code::RowOfTarget;
                }

                let this = contradiction.class();
                // An outcome is counted once, in its gravest class: `Class` has them in that order.
                class = Some(class.map_or(this, |class: Class| class.min(this)));

                let finding = Finding {
                    unwinder,
                    check,
                    place: entry.place,
                    address: entry.address,
                    code: contradiction.code,
                    reg: contradiction.reg,
                    first: entry.first,
                    count: outcome.count(),
                    stands_for: 1,
                    contradiction,
                };

                // An unwinder that is expected to err would have a finding nearly everywhere.
                if by_cause {
                    merged.add_by_cause(finding)
                } else {
                    merged.add(finding)
                }
            }

            match (check, class) {
                (Check::Instruction, Some(Class::Loss)) => found.lost[unwinder] += outcome.count(),
                (Check::Instruction, Some(Class::Target)) => {
                    found.target[unwinder] += outcome.count();
                }
                _ => {}
            }
        }

        found.all = merged.finish();
        found
    }

    /// What is wrong at executed instructions and is also found behind a call, and the number of all
    /// contradictions that are kept one by one. If a call returns, the row at its return address is executed, and is itself to
    /// blame.
    fn executed(&self) -> (HashSet<Own>, usize) {
        let all = || self.outcomes.iter().zip(self.log.entries());
        let (mut behind, mut count) = (HashSet::new(), 0);
        for (outcome, entry) in all() {
            if !self.is_expected(outcome.unwinder()) || self.keeps_each {
                count += entry.contradictions.len();
            }
            let own = own_codes(outcome, &entry);
            behind.extend(own.filter_map(|(own, code)| (own.3 != code).then_some(own)));
        }
        let mut executed = HashSet::new();
        if !behind.is_empty() {
            let here = all().filter(|(outcome, _)| outcome.check() == Check::Instruction);
            for (outcome, entry) in here {
                let own = own_codes(outcome, &entry).map(|(own, _)| own);
                executed.extend(own.filter(|own| behind.contains(own)));
            }
        }
        (executed, count)
    }
}

/// A contradiction at one address with its [`own_code`].
type Own = (usize, PlaceId, u64, Code, Reg);

/// The contradictions of an outcome, each with its code.
fn own_codes(outcome: &Outcome, entry: &Entry) -> impl Iterator<Item = (Own, Code)> {
    let (unwinder, place, address) = (outcome.unwinder(), entry.place, entry.address);
    let found = entry.contradictions.iter();
    found.map(move |c| ((unwinder, place, address, own_code(c), c.reg), c.code))
}

/// The code of a contradiction if the row is to blame, not the address at which it was looked up.
fn own_code(found: &Contradiction) -> Code {
    match (found.code, found.reg, found.given, found.reason) {
        (code, ..) if !matches!(code, Code::RowBehindCall | Code::NoRow) => code,
        (Code::NoRow, .., reason) if !matches!(reason, Some(Reason::NoRow { .. })) => Code::NoRow,
        (_, Reg::Rsp, Some(_), _) => Code::WrongCfa,
        (_, _, None, Some(Reason::NoRow { .. })) => Code::NoRowForExecuted,
        (_, _, None, Some(reason))
            if !matches!(reason, Reason::RootReached | Reason::NotAtRoot) =>
        {
            reason.code()
        }
        (_, Reg::Rip, ..) => Code::WrongReturnAddress,
        _ => Code::WrongRegister,
    }
}

#[cfg(test)]
mod tests;
