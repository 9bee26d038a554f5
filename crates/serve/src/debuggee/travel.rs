//! The ways from one state to another, and why they end.

use super::{Debuggee, Here};
use crate::error::Error;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_judge::states::{Access, Direction, Goal, StateView, Stops, Target};

/// Instructions between questions whether to stop, where a run is explored to its end.
const PIECE: u64 = 1 << 20;

/// A way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Motion {
    /// To the next thing to stop for.
    Run(Direction),
    /// A thread executes an instruction, or several within `except`.
    Step {
        /// The thread.
        tid: u32,
        /// Forwards or backwards.
        direction: Direction,
        /// The instructions that the step does not end at.
        except: Range<u64>,
    },
    /// Until a thread has left the functions below a stack pointer.
    Leave {
        /// The thread.
        tid: u32,
        /// Forwards, to its caller, or backwards.
        direction: Direction,
        /// The least stack pointer to stop at.
        rsp_min: u64,
    },
}

impl Motion {
    fn direction(&self) -> Direction {
        match self {
            Motion::Run(direction)
            | Motion::Step { direction, .. }
            | Motion::Leave { direction, .. } => *direction,
        }
    }
}

/// Why a way ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The step is done.
    Step,
    /// The next instruction has a breakpoint.
    Breakpoint,
    /// Watched memory was accessed or, backwards, is accessed by the next instruction.
    Watch {
        /// The thread that did.
        tid: u32,
        /// What was watched for.
        access: Access,
        /// The first watched address accessed.
        address: u64,
    },
    /// A state that was appointed, with the reason.
    Appointed(String),
    /// The client asked for it.
    Interrupted,
    /// This is the first state.
    Start,
    /// This is the last state; how the program ended, if that is known.
    End(Option<String>),
}

impl Debuggee<'_> {
    /// Goes to state `number`. If there is none, it stays where it is, and returns false.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn go_to(&mut self, number: u64) -> Result<bool, Error> {
        if let Some(here) = self.at(number)? {
            self.here = here;
            self.told = None;
            return Ok(true);
        }
        // The machine went as far as it could.
        self.at(self.here.number)?;
        Ok(false)
    }

    /// Goes to a state also while somebody asks to stop: that ends searches, not this.
    fn at(&mut self, number: u64) -> Result<Option<Here>, Error> {
        let mut is_asked = false;
        let here = loop {
            let here = Here::at(&mut self.states, number)?;
            if here.is_some() || !self.interrupts.is_asked() {
                break here;
            }
            is_asked = true;
            self.interrupts.heed();
        };
        if is_asked {
            self.interrupts.interrupter().interrupt();
        }
        Ok(here)
    }

    /// The next way stops at this state, too.
    pub(crate) fn appoint(&mut self, number: u64, reason: String) {
        self.appointed = Some((number, reason));
    }

    /// The nearest other state at which an unwinder becomes wrong, and the names of those that do.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn wrong(&mut self, direction: Direction) -> Result<Option<(u64, Vec<String>)>, Error> {
        self.wrong_after(self.here.number, direction)
    }

    /// The same, seen from another state.
    pub(crate) fn wrong_after(
        &mut self,
        from: u64,
        direction: Direction,
    ) -> Result<Option<(u64, Vec<String>)>, Error> {
        let found = self.index.wrong(&self.states, from, direction)?;
        Ok(found.map(|number| (number, self.wrong_from(number))))
    }

    /// The unwinders that become wrong at a state that is indexed.
    fn wrong_from(&self, number: u64) -> Vec<String> {
        let wrong = &self.index.marks().wrong;
        let Ok(at) = wrong.binary_search_by_key(&number, |mark| mark.number) else {
            return Vec::new();
        };
        let bits = wrong[at].unwinders;
        let names = self.index.unwinders().iter().enumerate();
        let names = names.filter(|(bit, _)| bits >> bit & 1 != 0);
        names.map(|(_, name)| name.clone()).collect()
    }

    /// The unwinders that are judged at every state of the run.
    pub fn judged(&self) -> &[String] {
        self.index.unwinders()
    }

    /// Makes a way, and stops for `stops` as well.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn travel(&mut self, motion: &Motion, stops: &Stops) -> Result<Stop, Error> {
        let from = self.here.number;
        let direction = motion.direction();
        // The run may have no end: no way goes beyond an appointed state.
        let appointed = self.appointed.take();
        let number = appointed.as_ref().map(|(number, _)| *number);
        self.bound = number.filter(|&number| direction == Direction::Forward && number > from);
        let mut stop = self.by_motion(motion, stops)?;
        self.bound = None;

        // An appointed state on the way is nearer.
        if let Some((number, reason)) = appointed {
            let here = self.here.number;
            let is_passed = match direction {
                Direction::Forward => from < number && number <= here,
                Direction::Backward => here <= number && number < from,
            };
            if is_passed && stop != Stop::Interrupted && self.go_to(number)? {
                stop = Stop::Appointed(reason);
            }
        }
        Ok(stop)
    }

    fn by_motion(&mut self, motion: &Motion, stops: &Stops) -> Result<Stop, Error> {
        let mut stops = stops.clone();
        let direction = motion.direction();
        let goal = |tid, rsp_min, except| Goal {
            tid,
            rsp_min,
            except,
        };

        match motion.clone() {
            Motion::Run(_) => {}
            // Samples are far apart: calls are not followed between them.
            _ if !self.is_program() => return self.next_sample(direction),
            Motion::Leave { tid, rsp_min, .. } => stops.goal = Some(goal(tid, rsp_min, 0..0)),
            Motion::Step { tid, except, .. } => {
                // A thread that is not there cannot step.
                let is_there = self.here.threads.iter().any(|thread| thread.tid == tid);
                let tid = if is_there { tid } else { self.here.tid };

                // If it is another thread's turn, this one first has to come to its own.
                if tid != self.here.tid && direction == Direction::Forward {
                    stops.goal = Some(goal(tid, 0, 0..0));
                    let stop = self.search(&stops, direction)?;
                    if stop != Stop::Step {
                        return Ok(stop);
                    }
                }
                stops.goal = Some(goal(tid, 0, except));
            }
        }
        self.search(&stops, direction)
    }

    /// Goes to the next or the last sample.
    fn next_sample(&mut self, direction: Direction) -> Result<Stop, Error> {
        let number = match direction {
            Direction::Forward => self.here.number.checked_add(1),
            Direction::Backward => self.here.number.checked_sub(1),
        };
        if let Some(number) = number
            && self.go_to(number)?
        {
            return Ok(Stop::Step);
        }
        Ok(match direction {
            Direction::Forward => Stop::End(None),
            Direction::Backward => Stop::Start,
        })
    }

    /// Goes to the nearest state to stop at.
    fn search(&mut self, stops: &Stops, direction: Direction) -> Result<Stop, Error> {
        let from = self.here.number;

        // What the next instruction accesses is seen after it.
        if direction == Direction::Forward
            && let Some(stop) = self.accessed(stops)
            && self.go_to(from.saturating_add(1))?
        {
            return Ok(stop);
        }

        let target = Target::Stops(Arc::new(stops.clone()));
        let found = match self.bound {
            Some(end) => self.states.find_up_to(&target, from, end)?,
            None => self.states.find(&target, from, direction)?,
        };
        if let Some(number) = found
            && self.go_to(number)?
        {
            return self.found(stops, direction);
        }
        self.nowhere(direction)
    }

    /// Why this state was found.
    fn found(&mut self, stops: &Stops, direction: Direction) -> Result<Stop, Error> {
        let (tid, regs) = (self.here.tid, &self.here.regs);
        if stops.has_address(regs.rip()) {
            return Ok(Stop::Breakpoint);
        }
        if stops.is_at(tid, regs.rip(), regs.rsp()) {
            return Ok(Stop::Step);
        }

        let stop = self.accessed(stops).unwrap_or(Stop::Step);
        if direction == Direction::Forward {
            let next = self.here.number.saturating_add(1);
            if !self.go_to(next)? {
                return self.nowhere(direction);
            }
        }
        Ok(stop)
    }

    /// The watch that the next instruction triggers.
    fn accessed(&self, stops: &Stops) -> Option<Stop> {
        let (access, address) = self.states.accessed(&stops.watches)?;
        Some(Stop::Watch {
            tid: self.here.tid,
            access,
            address,
        })
    }

    /// Nothing was found: goes to where the search was stopped or, if it was not, to the first or the
    /// last state.
    fn nowhere(&mut self, direction: Direction) -> Result<Stop, Error> {
        let from = self.here.number;
        if self.interrupts.is_asked() {
            self.interrupts.heed();
            let reached = self.states.position().unwrap_or(from);
            // After a program's last instruction there is no state.
            if !self.go_to(reached)? {
                self.go_to(reached.saturating_sub(1))?;
            }
            return Ok(Stop::Interrupted);
        }

        // The search was only up to the appointed state; `travel` then says why it stops there.
        if let Some(end) = self.bound
            && self.go_to(end)?
        {
            return Ok(Stop::Step);
        }
        if direction == Direction::Backward {
            self.go_to(0)?;
            return Ok(Stop::Start);
        }

        // The end is known once the run was explored up to it.
        while self.states.total().is_none() && self.states.explore(PIECE) {
            if self.interrupts.is_asked() {
                break;
            }
        }
        let last = match self.states.total() {
            Some(total) => total.checked_sub(1),
            None => self.last_sample()?,
        };
        if let Some(last) = last {
            self.go_to(last)?;
        }
        Ok(Stop::End(self.states.end()))
    }

    /// The number of the last sample of a recording that does not say how many there are.
    fn last_sample(&mut self) -> Result<Option<u64>, Error> {
        let mut last = None;
        if !self.states.is_program() {
            let from = self.here.number;
            let mut take = |at: &StateView<'_>| last = Some(at.view.number);
            self.states.range(from, u64::MAX, &mut take)?;
        }
        Ok(last)
    }
}
