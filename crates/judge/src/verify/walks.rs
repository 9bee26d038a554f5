//! Walks of the whole stack, judged by the shadow stack and compared with the check of single
//! frames. A walk that goes wrong although all of its rows are right is a bug in unwind-sim.

use super::claim::{self, Wrong};
use super::code::is_missing;
use super::findings::Site;
use super::numbered::UNWINDERS_MAX;
use super::places::PlaceId;
use crate::check::{Contradiction, Subject};
use crate::diagnose::{Walked, diagnose, end_code};
use crate::engine::{Engine, Setting};
use std::ops::Range;
use unwind_sim_record::jit;
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, Link, Links};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::{Memory, MemoryError};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Start;
use unwind_sim_unwind::unwinder::Stack;
use unwind_sim_unwind::verdict::{Claim, Verdict, judge, true_links};
use unwind_sim_unwind::walk::{WalkTarget, walk};

/// A walk or a quick check that the check of single frames does not confirm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// The index of the unwinder in the run.
    pub unwinder: usize,
    /// The address of the instruction at which it was made.
    pub address: u64,
    /// What was mapped at that address.
    pub place: PlaceId,
    /// The number of the instruction, from 0.
    pub number: u64,
    /// What disagrees.
    pub what: String,
}

/// The maximum number of disagreements that are kept.
const DISAGREEMENTS_MAX: usize = 100;

/// The number of instructions between walks of the whole stack.
const WALK_EVERY: u64 = 997;
/// The number of an instruction that is never executed.
const NEVER: u64 = u64::MAX;
/// The interval between walks grows by itself for each this many frames, so that the cost of an
/// instruction does not depend on the depth of the stack.
const WALK_FRAMES: u64 = 64;

/// The walks of a run: when the next one is taken, and what the others found.
pub(super) struct Walks {
    setting: Setting,
    /// The number of the first instruction at which the next one may be taken.
    next: u64,
    /// Judged, wrong, and not judged.
    taken: [(u64, u64, u64); UNWINDERS_MAX],
    /// A bit for each unwinder whose last walk was not right.
    astray: u8,
    /// The frames of a walk without provenance.
    links: Links,
    disagreements: Vec<Disagreement>,
}

impl Walks {
    pub(super) fn new(setting: Setting) -> Walks {
        Walks {
            setting,
            next: WALK_EVERY,
            taken: [(0, 0, 0); UNWINDERS_MAX],
            astray: 0,
            links: Links::default(),
            disagreements: Vec::new(),
        }
    }

    /// Whether a walk is due at one of the `len` instructions from that with this number on.
    #[inline(always)]
    pub(super) fn is_due(&self, number: u64, len: u32) -> bool {
        number + u64::from(len) > self.next
    }

    /// None is taken any longer: these walks know no end of a kernel's stack.
    pub(super) fn end(&mut self) {
        self.next = NEVER;
    }

    /// The number of the first instruction at which the next one may be taken.
    pub(super) fn due(&self) -> u64 {
        self.next
    }

    /// The next one is taken at that instruction.
    pub(super) fn set_due(&mut self, next: u64) {
        self.next = next;
    }

    /// They are taken again.
    pub(super) fn resume(&mut self) {
        self.next = 0;
    }

    /// The stack may have become another one: a walk is taken at the next instruction.
    #[inline]
    pub(super) fn take_next(&mut self) {
        if self.next != NEVER {
            self.next = 0;
        }
    }

    /// A walk is taken at instruction `number`, of so many frames: says when the next one is.
    pub(super) fn plan(&mut self, number: u64, frames: u64) {
        self.next = number + WALK_EVERY * frames.div_ceil(WALK_FRAMES).max(1);
    }

    /// Whether the next instruction has a walk.
    #[cfg(test)]
    pub(super) fn is_next(&self) -> bool {
        self.next == 0
    }

    /// The numbers of judged, of wrong, and of unjudged walks of an unwinder.
    pub(super) fn tally(&self, which: usize) -> (u64, u64, u64) {
        self.taken[which]
    }

    /// The disagreements.
    pub(super) fn finish(self) -> Vec<Disagreement> {
        self.disagreements
    }

    pub(super) fn disagree(&mut self, unwinder: usize, site: &Site, what: &str) {
        if self.disagreements.len() < DISAGREEMENTS_MAX {
            self.disagreements.push(Disagreement {
                unwinder,
                address: site.address,
                place: site.place,
                number: site.number,
                what: what.to_owned(),
            });
        }
    }

    /// Walks the stack with every unwinder, and returns the contradictions that led them astray.
    /// `wrong` is the result of the check of the innermost frame.
    pub(super) fn take(
        &mut self,
        engines: &[Engine],
        subject: &Subject<'_>,
        caches: &mut [Cache],
        wrong: &[Wrong; UNWINDERS_MAX],
        (number, place): (u64, PlaceId),
    ) -> Vec<(usize, Contradiction)> {
        let mut found = Vec::new();
        let site = Site {
            place,
            address: subject.live.rip(),
            activation: None,
            number,
        };

        let start = Start::from_regs(*subject.live);
        let memory = Window {
            memory: subject.memory,
            range: match self.setting.view {
                MemoryView::Cpu => 0..u64::MAX,
                // As in a profile, the copy starts at rsp, and what lies above it cannot be read.
                MemoryView::Copy(bytes) => {
                    let sp = subject.live.rsp();
                    sp..sp.saturating_add(bytes)
                }
            },
        };

        let mut stack = Stack::new(&start, subject.space, &memory);
        stack.limits = self.setting.limits;
        let truth: Vec<Link> = true_links(subject.truth, 0).collect();
        let complete = subject.truth.is_complete();

        for (which, engine) in engines.iter().enumerate() {
            // With a wrong CFA or return address in the innermost frame, no walk by this table is
            // right.
            let is_wrong = truth.len() > 1 && wrong[which] & (claim::CFA | claim::RA) != 0;
            let bit = 1 << which;
            // A walk without provenance takes a fraction of the time, and most are right.
            if self.astray & bit == 0 {
                let finder = engine.finder();
                let cache = &mut caches[which];
                if finder
                    .is_some_and(|finder| self.is_right(finder, &stack, &truth, complete, cache))
                {
                    self.taken[which].0 += 1;
                    if is_wrong {
                        self.disagree(which, &site, "a walk that is right");
                    }
                    continue;
                }
            }

            // Only a chain with its rows says why a walk went wrong, or that a fallback mended it.
            let chain = engine.walk(&stack, &mut caches[which]);
            let (verdict, ground) = judge(&chain, subject.truth, 0);
            // Until one of its walks is right again, all are taken with provenance, which a
            // diagnosis needs.
            self.astray |= bit;

            // Where the program gave no table, a walk can only end.
            if ends_without_table(&chain, verdict, subject.space) {
                self.taken[which].2 += 1;
                continue;
            }

            self.taken[which].0 += 1;
            if verdict == Verdict::Ok {
                self.astray &= !bit;
                // A fallback may correct a wrong row.
                let is_fallback = |e: &Event| matches!(e, Event::Fallback { .. });
                if is_wrong && !chain.events.iter().any(is_fallback) {
                    self.disagree(which, &site, "a walk that is right");
                }
                continue;
            }

            if !verdict.is_wrong() {
                continue;
            }

            self.taken[which].1 += 1;
            let walked = Walked {
                left_wrong: false,
                chain: &chain,
                ended: end_code(&chain, verdict, &ground),
                start: &start,
                is_fake: false,
                place: WalkTarget {
                    space: subject.space,
                    memory: &memory as &dyn Memory,
                },
            };

            let cache = &mut caches[which];
            let diagnosis = diagnose(subject, engine.finder(), &walked, verdict, 0, cache);
            let Some(diagnosis) = diagnosis else {
                continue;
            };

            match diagnosis.contradiction {
                Some(contradiction) => found.push((which, contradiction)),
                // Causes outside of any row, which no check of a frame can confirm.
                None if is_the_walks(diagnosis.code) => {}
                None if passes_unclaimed(subject, verdict) => {}
                None => {
                    // No row is wrong, so the chain should not be either: that is a bug of ours.
                    let what = format!("a walk ({verdict} {})", diagnosis.code.as_str());
                    self.disagree(which, &site, &what);
                }
            }
        }

        found
    }

    /// Whether a walk that uses only the table of `finder` finds the true frames.
    fn is_right(
        &mut self,
        finder: &dyn Finder,
        stack: &Stack<'_>,
        truth: &[Link],
        complete: bool,
        cache: &mut Cache,
    ) -> bool {
        // It may correct a wrong row, and only the events say so.
        if finder.fallback().is_some() {
            return false;
        }

        let Stack {
            start,
            space,
            memory,
            limits,
            ..
        } = stack;
        let place = WalkTarget {
            space,
            memory: *memory,
        };

        // One list for all walks: none of them has to allocate.
        self.links.0.clear();
        let end = walk(finder, &place, start, limits, cache, &mut self.links);

        // A table alone guesses nothing, and does not call its own chain unreliable.
        let claim = Claim {
            frames: &self.links.0,
            end: &end,
            guessed: false,
            refused: false,
        };

        claim.judge(truth, complete).0 == Verdict::Ok
    }
}

/// Whether the chain is right as far as it goes, and ended in generated code for which the program
/// registered no table.
fn ends_without_table(chain: &Chain, verdict: Verdict, space: &AddressSpace) -> bool {
    let is_right =
        matches!(verdict, Verdict::Truncated { at } if at as usize == chain.frames.len());
    let last = chain.frames.last().map(|frame| frame.pc.symbol_address());
    let mapping = last.and_then(|address| space.find(address));
    is_right && is_missing(&chain.end.reason) && mapping.is_some_and(jit::is_generated)
}

/// Whether the walk carried a register through a frame whose row claims nothing about it, because
/// functions of that convention need not keep it: further out, it may be wrong.
fn passes_unclaimed(subject: &Subject<'_>, verdict: Verdict) -> bool {
    let (Verdict::Missing { at, .. }
    | Verdict::Extra { at, .. }
    | Verdict::Wrong { at }
    | Verdict::Truncated { at }) = verdict
    else {
        return false;
    };
    let mut frames = subject.truth.frames().iter().take(at as usize);
    frames.any(|frame| {
        let convention = subject.space.convention(frame.address().symbol_address());
        !Reg::CALLEE_SAVED
            .into_iter()
            .all(|reg| convention.claims().contains(reg))
    })
}

/// Whether the code is about the walk and not about a row: bounds, limits, stack switches, short
/// copies, code in no image, or a frame looked up as the wrong kind.
fn is_the_walks(code: Code) -> bool {
    matches!(
        code,
        Code::BeyondCopy
            | Code::BelowCopy
            | Code::SpDidNotAdvance
            | Code::Cycle
            | Code::NotText
            | Code::FrameLimit
            | Code::NotAtRoot
            | Code::RegisterNotCarried
            | Code::RegistersMissing
    )
}

/// A range of the memory.
pub(super) struct Window<'a> {
    pub(super) memory: &'a dyn Memory,
    pub(super) range: Range<u64>,
}

impl Window<'_> {
    fn check(&self, address: u64, size: u64) -> Result<(), MemoryError> {
        let Range { start, end } = self.range;
        if address < start {
            return Err(MemoryError::BelowCopy { address, start });
        }
        if address.saturating_add(size) > end {
            return Err(MemoryError::BeyondCopy { address, end });
        }
        Ok(())
    }
}

impl Memory for Window<'_> {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        self.check(address, 8)?;
        self.memory.read_u64(address)
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.check(address, buf.len() as u64)?;
        self.memory.read(address, buf)
    }

    fn stack_bounds(&self, sp: u64) -> Option<Range<u64>> {
        self.memory.stack_bounds(sp)
    }
}

#[cfg(test)]
mod tests;
