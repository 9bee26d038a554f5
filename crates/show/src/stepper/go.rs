//! Goes to other states.

use super::{Scroll, Stepper};
use unwind_sim_judge::input::InputError;
use unwind_sim_judge::states::{Direction, Target};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_view::timeline::{State, Walker};

/// Instructions and samples that are looked through for the first finding, at most.
const INSTRUCTIONS_LOOKED_MAX: u64 = 1 << 22;
const SAMPLES_LOOKED_MAX: u64 = 1 << 16;

impl Stepper<'_> {
    /// Goes to the first finding of an unwinder whose errors count, or else of any, and chooses its
    /// walk. Without a finding it stays where it is. Either way it says so.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn open_at_finding(&mut self) -> Result<(), InputError> {
        let limit = if self.states.is_program() {
            INSTRUCTIONS_LOOKED_MAX
        } else {
            SAMPLES_LOOKED_MAX
        };
        if self.states.is_kernel() {
            self.say("i goes to the next entry of the kernel, g to a function, ? lists the keys");
            return Ok(());
        }
        let found = self.index.look_for_finding(&self.states, limit)?;
        if self.states.is_stopped() {
            self.say("stopped");
            return Ok(());
        }

        let Some(finding) = found else {
            self.message = if self.index.is_complete() {
                "no unwinder is wrong anywhere".to_owned()
            } else {
                let states = self.index.covered();
                format!("no unwinder is wrong in the first {states} states; c looks on")
            };
            return Ok(());
        };

        self.go_or_say(finding.number)?;
        // The index of a recording has a bit for each column, that of a program for each unwinder.
        let name = self.index.unwinders()[finding.unwinder].clone();
        let is_it = |walker: &Walker| name == walker.name() || name == walker.unwinder;
        self.walker = self.walkers.iter().position(is_it).unwrap_or(self.walker);
        self.message = if finding.counts {
            format!("the first finding: {name} is wrong; Home goes to the start")
        } else {
            format!("the first finding, which is expected of {name}; Home goes to the start")
        };
        Ok(())
    }

    /// Goes to state `number`. If there is none, it stays where it is.
    pub(super) fn go_to(&mut self, number: u64) -> Result<bool, InputError> {
        let Stepper {
            states, builder, ..
        } = self;
        let mut shown = None;
        let found = states.with(number, &mut |at| {
            let rip = CodeAddress::Instruction(at.view.live().rip());
            shown = Some((builder.state(at), builder.code(at.view), rip));
        })?;
        let Some((state, code, rip)) = shown.filter(|_| found) else {
            return Ok(false);
        };
        (self.state, self.code, self.code_pc) = (state, code, rip);
        self.step = None;
        self.scroll = Scroll::default();
        self.renew_rules()?;
        Ok(true)
    }

    pub(super) fn go_or_say(&mut self, number: u64) -> Result<(), InputError> {
        if !self.go_to(number)? {
            self.message = match self.states.total() {
                Some(0) => "there are no states".to_owned(),
                Some(total) => format!("there is no state {number}: the last is {}", total - 1),
                None => format!("there is no state {number}"),
            };
        }
        Ok(())
    }

    pub(super) fn one(&mut self, direction: Direction) -> Result<(), InputError> {
        let number = match direction {
            Direction::Forward => self.state.number.checked_add(1),
            Direction::Backward => self.state.number.checked_sub(1),
        };
        let there = match number {
            Some(number) => self.go_to(number)?,
            None => false,
        };
        if !there {
            self.message = match (direction, self.states.end()) {
                (Direction::Backward, _) => "this is the start".to_owned(),
                (Direction::Forward, Some(end)) => format!("this is the end: {end}"),
                (Direction::Forward, None) => "this is the end".to_owned(),
            };
        }
        Ok(())
    }

    pub(super) fn go_end(&mut self) -> Result<(), InputError> {
        while self.states.total().is_none() && self.states.explore(1 << 20) {}
        match self.states.total().and_then(|total| total.checked_sub(1)) {
            Some(last) => self.go_or_say(last),
            None => {
                self.message = "the end is not known".to_owned();
                Ok(())
            }
        }
    }

    /// One instruction, or over the whole call that it makes.
    pub(super) fn over_call(&mut self) -> Result<(), InputError> {
        let is_call = is(&self.state, "call");
        if !is_call || !self.states.is_program() {
            return self.one(Direction::Forward);
        }
        let target = Target::Left {
            tid: self.state.tid,
            rsp: self.state.stack.rsp.0,
        };
        let found = self
            .states
            .find(&target, self.state.number, Direction::Forward)?;
        match found {
            Some(number) => self.go_or_say(number),
            None => {
                self.message = "the call does not return".to_owned();
                Ok(())
            }
        }
    }

    /// One instruction back, or back over the whole call that has just returned.
    pub(super) fn back_over_call(&mut self) -> Result<(), InputError> {
        let (number, rsp, tid) = (self.state.number, self.state.stack.rsp.0, self.state.tid);
        self.one(Direction::Backward)?;
        let has_returned = is(&self.state, "ret") && self.state.tid == tid;
        if !has_returned || !self.states.is_program() || self.state.number == number {
            return Ok(());
        }
        let target = Target::Left { tid, rsp };
        let found = self
            .states
            .find(&target, self.state.number, Direction::Backward)?;
        match found {
            Some(number) => self.go_or_say(number),
            None => Ok(()),
        }
    }

    pub(super) fn go_wrong(&mut self, direction: Direction) -> Result<(), InputError> {
        let from = self.state.number;
        let found = self.index.wrong(&self.states, from, direction)?;
        let Some(number) = found else {
            let names = self.index.unwinders().join(", ");
            let (beyond, when) = match direction {
                Direction::Forward => ("after", "becomes"),
                Direction::Backward => ("before", "became"),
            };
            self.message = if names.is_empty() {
                "no unwinder with rows is shown".to_owned()
            } else {
                format!("none of {names} {when} wrong {beyond} this state")
            };
            return Ok(());
        };
        self.go_or_say(number)?;
        self.tell_wrong();
        Ok(())
    }

    /// Says which unwinders become wrong here.
    fn tell_wrong(&mut self) {
        let number = self.state.number;
        let wrong = &self.index.marks().wrong;
        let Ok(at) = wrong.binary_search_by_key(&number, |mark| mark.number) else {
            return;
        };
        let bits = wrong[at].unwinders;
        let names = self.index.unwinders().iter().enumerate();
        let names = names.filter(|(bit, _)| bits >> bit & 1 != 0);
        let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
        self.message = format!("wrong from here: {}", names.join(", "));
    }

    pub(super) fn go_other_thread(&mut self, direction: Direction) -> Result<(), InputError> {
        let target = Target::OtherThread(self.state.tid);
        let found = self.states.find(&target, self.state.number, direction)?;
        match found {
            Some(number) => {
                self.go_or_say(number)?;
                let (pid, tid) = (self.state.pid, self.state.tid);
                self.message = format!("process {pid}, thread {tid}");
            }
            None => {
                let when = match direction {
                    Direction::Forward => "after",
                    Direction::Backward => "before",
                };
                self.message = format!("no other thread runs {when} this state");
            }
        }
        Ok(())
    }

    /// Goes to where the kernel is entered next, or was before.
    pub(super) fn go_entry(&mut self, direction: Direction) -> Result<(), InputError> {
        if !self.states.is_kernel() {
            self.say("this is not a kernel that was booted: unwind-sim step --kernel FILE");
            return Ok(());
        }
        let Some(entry) = self.states.entry(self.state.number, direction) else {
            self.message = match direction {
                Direction::Forward => "the kernel is not entered after this state".to_owned(),
                Direction::Backward => "the kernel is not entered before this state".to_owned(),
            };
            return Ok(());
        };
        self.go_or_say(entry.number)?;
        let from = match entry.from_user {
            true => "from user mode",
            false => "in the kernel",
        };
        self.message = format!("{}, {from}", entry_name(entry.vector));
        Ok(())
    }

    pub(super) fn go_thread(&mut self, tid: u32) -> Result<(), InputError> {
        self.find_or_say(&Target::Thread(tid), &format!("thread {tid} does not run"))
    }

    pub(super) fn go_address(&mut self, address: u64) -> Result<(), InputError> {
        let nothing = format!("{address:#x} is not executed");
        self.find_or_say(&Target::Address(address), &nothing)
    }

    /// Goes to the next target after this state, or else to the last one before it.
    fn find_or_say(&mut self, target: &Target, nothing: &str) -> Result<(), InputError> {
        let from = self.state.number;
        let mut found = self.states.find(target, from, Direction::Forward)?;
        if found.is_none() && !self.states.is_stopped() {
            found = self.states.find(target, from, Direction::Backward)?;
        }
        match found {
            Some(number) => self.go_or_say(number),
            None => {
                self.message = format!("{nothing}, before or after this state");
                Ok(())
            }
        }
    }

    /// Goes to a number, an address or a function.
    pub(super) fn go_where(&mut self, typed: &str) -> Result<(), InputError> {
        if typed.is_empty() {
            return Ok(());
        }
        let digits = typed.replace([',', '_'], "");
        if let Ok(number) = digits.parse() {
            return self.go_or_say(number);
        }
        let address = typed.strip_prefix("0x");
        match address.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(address) => self.go_address(address),
            None => {
                let target = Target::Function(typed.to_owned());
                self.find_or_say(&target, &format!("{typed} is not entered"))
            }
        }
    }

    /// Goes to the next instruction with this text in it or in the name of its function. Without
    /// text it looks for the last one again.
    pub(super) fn search(&mut self, typed: &str) -> Result<(), InputError> {
        if !typed.is_empty() {
            typed.clone_into(&mut self.sought);
        }
        if self.sought.is_empty() {
            return Ok(());
        }
        let target = Target::Text(self.sought.clone());
        let from = self.state.number;
        match self.states.find(&target, from, Direction::Forward)? {
            Some(number) => self.go_or_say(number),
            None => {
                self.message = format!("{:?} is not found after this state", self.sought);
                Ok(())
            }
        }
    }
}

/// What enters a kernel by this vector (Intel SDM volume 3, table 6-1; the first 32 are the processor's).
fn entry_name(vector: Option<u8>) -> String {
    let name = match vector {
        None => return "a system call".to_owned(),
        Some(0) => "a division error",
        Some(1) => "a debug exception",
        Some(2) => "an NMI",
        Some(3) => "a breakpoint",
        Some(6) => "an invalid instruction",
        Some(7) => "no floating-point unit",
        Some(8) => "a double fault",
        Some(13) => "a general protection fault",
        Some(14) => "a page fault",
        Some(16 | 19) => "a floating-point error",
        Some(..32) => "an exception",
        Some(_) => "an interrupt",
    };
    let vector = vector.unwrap_or_default();
    format!("{name} (vector {vector})")
}

/// Whether the next instruction is one of this name.
fn is(state: &State, name: &str) -> bool {
    let text = state.instruction.as_ref().map_or("", |insn| &insn.text);
    let mut words = text.split_whitespace();
    words.any(|word| word.trim_end_matches('q') == name || word == name)
}
