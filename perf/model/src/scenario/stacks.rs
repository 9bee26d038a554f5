//! Stacks of a scenario that come from files. Whoever runs the scenario reads the files and
//! supplies the stacks.

use super::error::{ScenarioError, ScenarioErrorKind};
use super::{FRAMES_MAX, LineWords, Reader, Scenario, USER_ADDRESSES, error_at};
use crate::stack::{StackId, UserStack};

/// The most stacks that one line takes from a program.
pub const PROGRAM_STACKS_MAX: u64 = 256;
/// The most instructions that a program runs for a scenario.
pub const PROGRAM_INSTRUCTIONS_MAX: u64 = 1 << 28;

/// The origin of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackFrom {
    /// A sample of a trace: its true chain, or the result of an unwinder.
    Sample {
        /// The number of the sample, from 1.
        number: u64,
        /// Name of the unwinder on the command line.
        unwinder: Option<String>,
    },
    /// A program that runs in the emulated machine: its true stacks.
    Program {
        /// Number of instructions before the first stack, and between two stacks.
        every: u64,
        /// The number of stacks.
        times: u64,
    },
}

/// A request of stacks from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRequest {
    /// Line number, from 1.
    pub line: usize,
    /// Path of the file as written, relative to the scenario's file.
    pub path: String,
    /// What to take from the file.
    pub from: StackFrom,
    first: StackId,
    supplied: bool,
}

impl StackRequest {
    pub(super) const fn is_supplied(&self) -> bool {
        self.supplied
    }

    /// The number of stacks.
    pub const fn count(&self) -> usize {
        match self.from {
            StackFrom::Sample { .. } => 1,
            StackFrom::Program { times, .. } => times as usize,
        }
    }
}

impl Scenario {
    /// The requests of stacks from files. All must be supplied before the scenario runs.
    pub fn requests(&self) -> &[StackRequest] {
        &self.requests
    }

    /// Supplies the stacks of a request.
    ///
    /// # Errors
    /// If a stack has no frames or a frame that is not a user address, if the number of stacks is
    /// not the requested one, or if there are too many frames in all.
    pub fn supply(&mut self, request: usize, stacks: Vec<UserStack>) -> Result<(), ScenarioError> {
        let (Some(request), Some(all)) = (
            self.requests.get_mut(request),
            self.schedule.stacks.as_mut(),
        ) else {
            return Ok(());
        };

        // The frames come from files and emulated programs, so nothing is taken for granted.
        let is_empty = |stack: &UserStack| stack.frames.is_empty();
        if stacks.len() != request.count() || stacks.iter().any(is_empty) {
            return Err(error_at(
                request.line,
                ScenarioErrorKind::Missing("a frame"),
            ));
        }

        let is_user = |frame: &u64| USER_ADDRESSES.contains(frame);
        if !stacks.iter().flat_map(|stack| &stack.frames).all(is_user) {
            return Err(error_at(
                request.line,
                ScenarioErrorKind::Not("a stack of user space"),
            ));
        }

        // Of all stacks together, so that many requests cannot exceed the limit of one.
        let frames: usize = stacks.iter().map(|stack| stack.frames.len()).sum();
        if all.all().map(|(_, frames)| frames.len()).sum::<usize>() + frames > FRAMES_MAX {
            return Err(error_at(request.line, ScenarioErrorKind::TooMany("frames")));
        }

        for (id, stack) in (request.first.0..).zip(stacks) {
            all.set(StackId(id), stack);
        }
        request.supplied = true;
        Ok(())
    }
}

impl Reader {
    /// Reads the rest of `stack NAME`, if the stack comes from a file. Returns whether it does.
    pub(super) fn stack_of_file(
        &mut self,
        name: &str,
        words: &mut LineWords<'_>,
    ) -> Result<bool, ScenarioError> {
        match words.peek() {
            Some("trace") => self.stack_of_trace(name, words)?,
            Some("program") => self.stacks_of_program(name, words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `stack NAME trace FILE sample N [by UNWINDER]`
    fn stack_of_trace(
        &mut self,
        name: &str,
        words: &mut LineWords<'_>,
    ) -> Result<(), ScenarioError> {
        words.next();
        let path = words.need("a trace")?.to_owned();
        keyword("sample", words)?;
        let number = words.number("the number of a sample", u64::MAX)?;
        let unwinder = match words.peek() {
            Some("by") => {
                words.next();
                Some(words.need("an unwinder")?.to_owned())
            }
            _ => None,
        };
        let first = self.stacks.add(name, Vec::new());
        self.request(path, StackFrom::Sample { number, unwinder }, first, words);
        Ok(())
    }

    /// `stack NAME program FILE at N`, or `.. every N times M`: then the stacks are `NAME.0` and
    /// so on.
    fn stacks_of_program(
        &mut self,
        name: &str,
        words: &mut LineWords<'_>,
    ) -> Result<(), ScenarioError> {
        words.next();
        let path = words.need("a program")?.to_owned();

        // A stack at one point of the run, or one every so many instructions.
        let word = words.need("`at` or `every`")?;
        let is_at = words.not(
            match word {
                "at" => Some(true),
                "every" => Some(false),
                _ => None,
            },
            "`at` or `every`",
        )?;

        let what = "a number of instructions";
        let every = words.number(what, PROGRAM_INSTRUCTIONS_MAX)?;
        words.not((every > 0).then_some(()), what)?;

        // A single stack has the name itself, several have numbers behind it.
        if is_at {
            let first = self.stacks.add(name, Vec::new());
            self.request(path, StackFrom::Program { every, times: 1 }, first, words);
            return Ok(());
        }

        keyword("times", words)?;
        let times = words.number("a number of stacks", PROGRAM_STACKS_MAX)?;
        let all = every.checked_mul(times).filter(|&all| all > 0);

        // The program is run once, to its last stack.
        let bounded = all.filter(|&all| all <= PROGRAM_INSTRUCTIONS_MAX);
        words.not(bounded, "a number of stacks")?;

        // The stacks of a request have consecutive numbers, so the first one is enough.
        let first = self.stacks.next();
        for number in 0..times {
            let name = format!("{name}.{number}");
            if self.stacks.find(&name).is_some() {
                return Err(words.error(ScenarioErrorKind::Taken("stack")));
            }
            self.stacks.add(&name, Vec::new());
        }

        self.request(path, StackFrom::Program { every, times }, first, words);
        Ok(())
    }

    fn request(&mut self, path: String, from: StackFrom, first: StackId, words: &LineWords<'_>) {
        self.scenario.requests.push(StackRequest {
            line: words.line,
            path,
            from,
            first,
            supplied: false,
        });
    }
}

/// The next word must be this one.
fn keyword(word: &'static str, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
    let found = words.need(word)?;
    words.not((found == word).then_some(()), word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "event e pmu no-defer\nstack s program p every 5 times 2\ntask 1 s.1\n\
                        switch 0 1\nsample 0 e\n";

    fn scenario() -> Scenario {
        Scenario::parse(TEXT).expect("it is well formed")
    }

    #[test]
    fn stacks_of_files_must_be_supplied() {
        let mut scenario = scenario();
        let error = scenario.run().err().expect("nobody supplied it");
        assert_eq!(
            (error.line, error.kind),
            (2, ScenarioErrorKind::NotSupplied)
        );
        let request = &scenario.requests()[0];
        assert_eq!((request.path.as_str(), request.count()), ("p", 2));
        let stacks = vec![vec![0x1010].into(), vec![0x1030, 0x1020].into()];
        scenario
            .supply(0, stacks)
            .expect("two stacks of user space");
        let world = scenario.run().expect("all is there");
        let user = |frame| world.stacks().frame(StackId(1), frame);
        assert_eq!([user(0), user(1), user(2)], [0x1030, 0x1020, 0]);
    }

    #[test]
    fn what_is_supplied_is_not_believed() {
        let deep = vec![0x1010; FRAMES_MAX];

        // The request is for two stacks.
        for (stacks, kind) in [
            (vec![vec![0x1010]], ScenarioErrorKind::Missing("a frame")),
            (
                vec![vec![0x1010], vec![]],
                ScenarioErrorKind::Missing("a frame"),
            ),
            (
                vec![vec![0x1010], vec![1 << 47]],
                ScenarioErrorKind::Not("a stack of user space"),
            ),
            (
                vec![vec![0x1010], vec![0xfff]],
                ScenarioErrorKind::Not("a stack of user space"),
            ),
            (
                vec![vec![0x1010], deep],
                ScenarioErrorKind::TooMany("frames"),
            ),
        ] {
            let stacks = stacks.into_iter().map(UserStack::from).collect();

            // The error names the line of the request.
            let error = scenario().supply(0, stacks).expect_err("it is refused");
            assert_eq!((error.line, error.kind), (2, kind));
        }
    }
}
