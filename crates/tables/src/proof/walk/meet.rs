//! What is known where ways meet, and which meeting is followed next: the first by address, so that
//! what lies behind it is followed once with what all ways know, not once for each.

use super::Walker;
use crate::proof::state::State;
use crate::proof::verdict::Doubt;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of different frames that are followed at one address.
const FRAMES_MAX: usize = 4;

/// One of the states known at an instruction.
pub(crate) struct MeetState<T> {
    /// What all ways to here know.
    pub(crate) state: State,
    /// What is known of the ways beside it. When rows are proven: the last jump of the way that brought
    /// the last news to a row.
    pub(crate) way: T,
    /// The number of the part of the function.
    pub(crate) part: u32,
    /// The address (svma).
    pub(crate) pc: u64,
    /// The number of the next one known there, which differs in what a row must say.
    pub(crate) next: Option<u32>,
    is_waiting: bool,
}

/// A state that brought news to where it arrived.
#[derive(Clone, Copy)]
pub(super) struct MeetUpdate {
    /// The number of what is known there now.
    pub(super) number: u32,
    /// Whether that is the state that arrived.
    pub(super) is_first: bool,
}

/// All states known in the functions that are followed together.
pub(crate) struct Worklist<T> {
    known: Vec<MeetState<T>>,
    /// What has news, by part, address and number.
    waiting: BinaryHeap<Reverse<(u32, u64, u32)>>,
}

impl<T> Default for Worklist<T> {
    fn default() -> Worklist<T> {
        Worklist {
            known: Vec::new(),
            waiting: BinaryHeap::new(),
        }
    }
}

impl<T> Worklist<T> {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.waiting.clear();
    }

    pub(crate) fn get(&self, number: u32) -> &MeetState<T> {
        &self.known[number as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut MeetState<T> {
        &mut self.known[number as usize]
    }

    /// All that is known where `first` is.
    pub(crate) fn all(&self, first: Option<u32>) -> impl Iterator<Item = &MeetState<T>> {
        let known = |number: u32| &self.known[number as usize];
        std::iter::successors(first.map(known), move |k| k.next.map(known))
    }

    /// Adds a state known at `pc`, and returns its number.
    pub(crate) fn add(&mut self, part: usize, pc: u64, state: &State, way: T) -> u32 {
        self.known.push(MeetState {
            state: state.clone(),
            way,
            part: part as u32,
            pc,
            next: None,
            is_waiting: false,
        });
        self.known.len() as u32 - 1
    }

    /// Whether `number` would be the next to be followed.
    pub(crate) fn is_next(&self, number: u32) -> bool {
        let known = self.get(number);
        let key = (known.part, known.pc, number);
        self.waiting.peek().is_none_or(|first| key <= first.0)
    }

    /// Lets `number` wait for its turn.
    pub(crate) fn wait(&mut self, number: u32) {
        let known = self.get_mut(number);
        if !known.is_waiting {
            known.is_waiting = true;
            let key = (known.part, known.pc, number);
            self.waiting.push(Reverse(key));
        }
    }

    /// What is known at `number`, which is followed now, although it may wait.
    pub(crate) fn take(&mut self, number: u32) -> &MeetState<T> {
        let known = &mut self.known[number as usize];
        if known.is_waiting {
            known.is_waiting = false;
            self.waiting.pop();
        }
        known
    }

    /// The number of what is to be followed next.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let Reverse((.., number)) = self.waiting.pop()?;
        self.get_mut(number).is_waiting = false;
        Some(number)
    }
}

impl Walker<'_, '_> {
    /// Continues at `target` (svma) with `state`, once it is its turn.
    pub(super) fn go(&mut self, target: u64, state: &State, trail: Option<u32>) {
        let Some(part) = self.part_at(target) else {
            return;
        };
        let body = &mut self.parts[part].body;
        body.lead(target);
        if let Some(offset) = body.offset(target)
            && let Some(news) = self.arrive(part, offset, state, trail)
        {
            self.meetings.wait(news.number);
        }
    }

    /// Joins the state with what is known `offset` bytes from the start of a part. `None` if that was
    /// known.
    pub(super) fn arrive(
        &mut self,
        part: usize,
        offset: usize,
        state: &State,
        trail: Option<u32>,
    ) -> Option<MeetUpdate> {
        let here = &mut self.parts[part];
        let pc = here.body.range.start + offset as u64;

        // Only where ways meet is a state kept; elsewhere it goes on with the one way.
        let first = here.body.meeting(self.program.file, offset)?;

        // Dead code adds nothing to what a way that is taken knows.
        let is_live = |old: &MeetState<_>| !old.state.is_dead;
        if state.is_dead && self.meetings.all(*first).any(is_live) {
            return None;
        }

        // Several frames may be known here, and each is tried: the state joins the one that it
        // fits.
        let (mut next, mut last, mut count) = (*first, None, 0);
        while let Some(number) = next {
            let known = self.meetings.get_mut(number);
            let version = known.state.version();
            match known.state.join(state) {
                Some(false) => return None,
                Some(true) => {
                    // Mostly, the news is about a register that no row is about.
                    if known.state.version() != version {
                        known.way = trail;
                    }
                    return Some(MeetUpdate::change(number));
                }
                None => {}
            }
            (next, last, count) = (known.next, Some(number), count + 1);
        }

        // Another frame, which is followed by itself as well.
        let Some(last) = last.filter(|_| count >= FRAMES_MAX) else {
            let new = self.meetings.add(part, pc, state, trail);
            match last {
                Some(last) => self.meetings.get_mut(last).next = Some(new),
                None => *first = Some(new),
            }
            return Some(MeetUpdate {
                number: new,
                is_first: true,
            });
        };

        // Too many frames meet: the last one becomes what it and this way have in common.
        // An address at an unknown distance below the frame stands for both.
        let sp = self.machine.lowered(pc);
        let known = self.meetings.get_mut(last);
        let before = known.state.clone();
        let moved = before.reg(Reg::Rsp) != state.reg(Reg::Rsp);
        known.state.weaken(state);
        if moved {
            known.state.set(Reg::Rsp, sp);
            // Slots are at unknown distances from there.
            known.state.is_lossy = true;
        }

        // Nothing new, so the way need not be followed again.
        if known.state == before {
            return None;
        }

        known.way = trail;
        if !moved {
            here.verdict.doubt(Doubt::Frames, pc);
        }
        Some(MeetUpdate::change(last))
    }
}

impl MeetUpdate {
    /// What was known at `number` has changed.
    fn change(number: u32) -> MeetUpdate {
        MeetUpdate {
            number,
            is_first: false,
        }
    }
}
