//! What is known where ways meet, and which meeting is followed next: the first by address, so that
//! what lies behind it is followed once with what all ways know, not once for each.

use crate::proof::state::State;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One of the states known at an instruction.
pub(super) struct Known {
    /// What all ways to here know.
    pub(super) state: State,
    /// The last jump of the way that brought the last news.
    pub(super) trail: Option<u32>,
    /// The number of the part of the function.
    pub(super) part: u32,
    /// The address (svma).
    pub(super) pc: u64,
    /// The number of the next one known there, which differs in what a row must say.
    pub(super) next: Option<u32>,
    is_waiting: bool,
}

/// All states known in the functions that are followed together.
#[derive(Default)]
pub(super) struct Meetings {
    known: Vec<Known>,
    /// What has news, by part, address and number.
    waiting: BinaryHeap<Reverse<(u32, u64, u32)>>,
}

impl Meetings {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.waiting.clear();
    }

    pub(super) fn get(&self, number: u32) -> &Known {
        &self.known[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Known {
        &mut self.known[number as usize]
    }

    /// All that is known where `first` is.
    pub(super) fn all(&self, first: Option<u32>) -> impl Iterator<Item = &Known> {
        let known = |number: u32| &self.known[number as usize];
        std::iter::successors(first.map(known), move |k| k.next.map(known))
    }

    /// Adds a state known at `pc`, and returns its number.
    pub(super) fn add(&mut self, part: usize, pc: u64, state: &State, trail: Option<u32>) -> u32 {
        self.known.push(Known {
            state: state.clone(),
            trail,
            part: part as u32,
            pc,
            next: None,
            is_waiting: false,
        });
        self.known.len() as u32 - 1
    }

    /// Whether `number` would be the next to be followed.
    pub(super) fn is_next(&self, number: u32) -> bool {
        let known = self.get(number);
        let key = (known.part, known.pc, number);
        self.waiting.peek().is_none_or(|first| key <= first.0)
    }

    /// Lets `number` wait for its turn.
    pub(super) fn wait(&mut self, number: u32) {
        let known = self.get_mut(number);
        if !known.is_waiting {
            known.is_waiting = true;
            let key = (known.part, known.pc, number);
            self.waiting.push(Reverse(key));
        }
    }

    /// What is known at `number`, which is followed now, although it may wait.
    pub(super) fn take(&mut self, number: u32) -> &Known {
        let known = &mut self.known[number as usize];
        if known.is_waiting {
            known.is_waiting = false;
            self.waiting.pop();
        }
        known
    }

    /// The number of what is to be followed next.
    pub(super) fn next(&mut self) -> Option<u32> {
        let Reverse((.., number)) = self.waiting.pop()?;
        self.get_mut(number).is_waiting = false;
        Some(number)
    }
}
