//! Going on and back.

use super::session::{Answer, Session};
use crate::debuggee::{Motion, Stop};
use crate::error::Error;
use serde_json::{Value, json};
use unwind_sim_judge::states::{Direction, Stops};
use unwind_sim_view::timeline::State;

/// The number of instructions, calls and returns that a step of a line makes. A loop in one line may
/// make more: the step then ends in it.
const STEPS_MAX: usize = 10_000;

/// Whether the next instruction is one of this name.
fn is(state: &State, name: &str) -> bool {
    let text = state.instruction.as_ref().map_or("", |line| &line.text);
    let mut words = text.split_whitespace();
    words.any(|word| word.trim_end_matches('q') == name)
}

impl Session<'_> {
    /// Makes the way of a request, and tells where it ended.
    pub(super) fn go(&mut self, command: &str, arguments: &Value) -> Result<Answer, Error> {
        let stops = self.stops()?;
        let tid = self.debuggee.tid();
        // Without lines there are only instructions.
        let by_line = arguments["granularity"] != "instruction" && self.debuggee.line()?.is_some();
        let stop = match command {
            "continue" => self.run(Direction::Forward, &stops)?,
            "reverseContinue" => self.run(Direction::Backward, &stops)?,
            "stepBack" if by_line => self.line_back(&stops)?,
            "stepBack" => self.back(&stops)?,
            "next" | "stepIn" if by_line => self.line_on(command == "next", &stops)?,
            "next" => self.over(&stops)?,
            "stepOut" => {
                let state = self.debuggee.state()?;
                // The outermost frame has no caller.
                let [frame, _, ..] = &state.frames[..] else {
                    let why = "the true chain does not say where this function returns to";
                    return Ok(Err(why.to_owned()));
                };

                // Back in the caller, rsp is the CFA of this frame; in what it calls, rsp is lower.
                let motion = Motion::Leave {
                    tid,
                    direction: Direction::Forward,
                    rsp_min: frame.cfa.0,
                };
                self.debuggee.travel(&motion, &stops)?
            }
            _ => self
                .debuggee
                .travel(&step(tid, Direction::Forward), &stops)?,
        };

        let stopped = self.told(&stop);
        self.events.push(stopped);
        Ok(Ok(json!({})))
    }

    /// To a breakpoint, or to where an unwinder of the exception filter becomes wrong.
    fn run(&mut self, direction: Direction, stops: &Stops) -> Result<Stop, Error> {
        let mut from = self.debuggee.number();
        while !self.breakpoints.wrong.is_empty() {
            let Some((number, names)) = self.debuggee.wrong_after(from, direction)? else {
                break;
            };
            let wanted = &self.breakpoints.wrong;
            let names: Vec<String> = names.into_iter().filter(|n| wanted.contains(n)).collect();
            if !names.is_empty() {
                let why = format!("wrong from here on: {}", names.join(", "));
                self.debuggee.appoint(number, why);
                break;
            }
            from = number;
        }
        self.debuggee.travel(&Motion::Run(direction), stops)
    }

    /// One instruction, or over the whole call that it makes.
    fn over(&mut self, stops: &Stops) -> Result<Stop, Error> {
        let tid = self.debuggee.tid();
        let state = self.debuggee.state()?;
        let mut motion = step(tid, Direction::Forward);
        if is(state, "call") {
            motion = Motion::Leave {
                tid,
                direction: Direction::Forward,
                rsp_min: state.stack.rsp.0,
            };
        }
        self.debuggee.travel(&motion, stops)
    }

    /// To another line, over calls or into functions that have lines.
    fn line_on(&mut self, is_over: bool, stops: &Stops) -> Result<Stop, Error> {
        let start = self.debuggee.line()?;
        // Bounded: a loop on one line may never end.
        for _ in 0..STEPS_MAX {
            let tid = self.debuggee.tid();
            let stop = if is_over {
                self.over(stops)?
            } else {
                let motion = step(tid, Direction::Forward);
                self.debuggee.travel(&motion, stops)?
            };
            // A breakpoint or the end comes before the line is done.
            if stop != Stop::Step {
                return Ok(stop);
            }
            let mut line = self.debuggee.line()?;

            // A function without lines is left, if it is known how.
            if line.is_none()
                && let [frame, _, ..] = &self.debuggee.state()?.frames[..]
            {
                let motion = Motion::Leave {
                    tid,
                    direction: Direction::Forward,
                    rsp_min: frame.cfa.0,
                };
                let stop = self.debuggee.travel(&motion, stops)?;
                if stop != Stop::Step {
                    return Ok(stop);
                }
                line = self.debuggee.line()?;

                // It returned into another function without lines.
                if line.is_none() {
                    continue;
                }
            }
            if line != start {
                break;
            }
        }
        Ok(Stop::Step)
    }

    /// Back to the start of this line or, from there, of the one before.
    fn line_back(&mut self, stops: &Stops) -> Result<Stop, Error> {
        let mut wanted = None;
        for _ in 0..STEPS_MAX {
            let stop = self.back(stops)?;
            if stop != Stop::Step {
                return Ok(stop);
            }
            let line = self.debuggee.line()?;
            if line.is_none() {
                // Calls of functions without lines belong to the line.
                continue;
            }
            if wanted.is_none() {
                wanted = line;
            } else if line != wanted {
                // One too far.
                return self.over(stops);
            }
        }
        Ok(Stop::Step)
    }

    /// One instruction back, or back over the whole call that has just returned.
    fn back(&mut self, stops: &Stops) -> Result<Stop, Error> {
        let (tid, number) = (self.debuggee.tid(), self.debuggee.number());
        let rsp_min = self.debuggee.state()?.stack.rsp.0;
        let backward = Direction::Backward;
        let stop = self.debuggee.travel(&step(tid, backward), stops)?;

        let has_moved = self.debuggee.number() != number && stop == Stop::Step;
        if !has_moved || !self.debuggee.is_program() || !is(self.debuggee.state()?, "ret") {
            return Ok(stop);
        }
        let motion = Motion::Leave {
            tid,
            direction: backward,
            rsp_min,
        };
        self.debuggee.travel(&motion, stops)
    }

    /// The event that tells why a way has ended.
    fn told(&mut self, stop: &Stop) -> Value {
        let total = self.debuggee.total();
        let number = self.debuggee.number();
        let place = match total {
            Some(total) => format!("state {number} of {total}"),
            None => format!("state {number}"),
        };
        match stop {
            Stop::Step => self.stopped("step", &place),
            Stop::Breakpoint => self.stopped("breakpoint", &place),
            Stop::Watch { .. } => self.stopped("data breakpoint", &place),
            Stop::Appointed(why) => self.stopped("exception", why),
            Stop::Interrupted => self.stopped("pause", &place),
            Stop::Start => self.stopped("pause", "the start: there is no earlier state"),
            Stop::End(None) => self.stopped("pause", "the end: there is no later state"),
            Stop::End(Some(how)) => {
                self.stopped("pause", &format!("the end: there is no later state; {how}"))
            }
        }
    }
}

fn step(tid: u32, direction: Direction) -> Motion {
    Motion::Step {
        tid,
        direction,
        except: 0..0,
    }
}
