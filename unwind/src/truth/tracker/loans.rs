//! Stacks that a thread has left for another one, and that another thread may resume before it
//! comes back: Go's scheduler leaves a goroutine by a call on its own stack, and while that call
//! waits, the goroutine goes on elsewhere.

use super::Tracker;
use crate::truth::stacks::{Origin, Suspended};

impl Tracker {
    /// Another thread runs from here on: it may resume the stacks that the chain has left.
    pub fn rest(&mut self, suspended: &mut Suspended) {
        let Some(left) = self.chain.segments.len().checked_sub(2) else {
            return;
        };
        let mut chain = self.chain.clone();
        chain.cut_to_segment(left);
        chain.suspend_at(chain.last().low);
        self.loan = Some(suspended.lend(chain));
    }

    /// The thread runs again, with what other threads have left to it.
    pub fn wake(&mut self, suspended: &mut Suspended) {
        let Some(loan) = self.loan.take() else { return };
        if suspended.end_loan(loan) {
            return;
        }
        let chain = &mut self.chain;
        let last = chain.last();
        chain.frames.drain(..last.first);
        chain.segments.drain(..chain.segments.len() - 1);
        chain.last_mut().first = 0;
        chain.doubts.retain(|doubt| doubt.frames > last.first);
        for doubt in &mut chain.doubts {
            doubt.frames -= last.first;
        }
        chain.origin = Origin::Root;
        chain.root_sp = last.high;
        self.settle();
    }
}
