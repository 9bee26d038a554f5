//! The schedule of a run: which thread ran for how many instructions. Not here: choosing threads
//! (`schedule`).
//!
//! As text, it is a list of turns, `THREAD:INSTRUCTIONS`, separated by white space; `#` begins a
//! comment, up to the end of the line. `THREAD:*` lasts until the thread waits or ends.
//! `THREAD:0` only answers the call in which the thread waits: it may then have transferred a part.

use std::fmt;
use std::fmt::Write as _;

/// A turn of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The thread's number, unique among all processes.
    pub thread: u32,
    /// The instructions that it executes; [`Turn::OPEN`] for all until it waits or ends.
    pub instructions: u64,
}

/// A word of a schedule that is not a turn.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: `{word}` is not a turn, THREAD:INSTRUCTIONS")]
pub struct TurnError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The start of the word.
    pub word: String,
}

impl Turn {
    /// A turn that lasts until the thread waits or ends.
    pub const OPEN: u64 = u64::MAX;

    fn from_word(word: &str) -> Option<Turn> {
        let (thread, instructions) = word.split_once(':')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let instructions = match instructions {
            "*" => Turn::OPEN,
            _ if !is_number(instructions) => return None,
            _ => instructions.parse().ok().filter(|&n| n != Turn::OPEN)?,
        };
        Some(Turn {
            thread: thread.parse().ok().filter(|_| is_number(thread))?,
            instructions,
        })
    }

    /// The turns of a schedule as text, each with the number of its line, from 1.
    ///
    /// # Errors
    /// At the first word that is not a turn.
    pub fn parse(text: &str) -> Result<Vec<(Turn, usize)>, TurnError> {
        /// Characters of a wrong word that are kept.
        const WORD_MAX: usize = 40;
        let mut turns = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            for word in line.split_whitespace() {
                let turn = Turn::from_word(word).ok_or_else(|| TurnError {
                    line: index + 1,
                    word: word.chars().take(WORD_MAX).collect(),
                })?;
                turns.push((turn, index + 1));
            }
        }
        Ok(turns)
    }

    /// Turns as text, which [`Turn::parse`] reads.
    pub fn print(turns: &[Turn]) -> String {
        /// Length of a line, characters.
        const LINE: usize = 80;
        let mut text = "# unwind-sim schedule: THREAD:INSTRUCTIONS\n".to_owned();
        let mut line = String::new();
        for turn in turns {
            let word = turn.to_string();
            if line.len() + 1 + word.len() > LINE {
                let _ = writeln!(text, "{line}");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        if !line.is_empty() {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instructions {
            Turn::OPEN => write!(f, "{}:*", self.thread),
            instructions => write!(f, "{}:{instructions}", self.thread),
        }
    }
}

/// Where a given schedule does not fit the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// The number of the turn, from 1.
    pub number: usize,
    /// The turn.
    pub turn: Turn,
    /// Instructions of the turn that were executed.
    pub done: u64,
    /// Instructions of the run that were executed.
    pub executed: u64,
    /// What is wrong.
    pub why: MisfitKind,
}

/// What is wrong with a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MisfitKind {
    /// The thread does not exist, or has ended.
    NoThread,
    /// The thread waits, in this call or for a signal that continues it, while this other one can run.
    Waits(Option<&'static str>, u32),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit {
            number,
            turn,
            done,
            executed,
            why,
        } = self;
        write!(
            f,
            "the schedule does not fit: turn {number}, {turn}, after {done} of its instructions \
             and {executed} of the run: "
        )?;
        let thread = turn.thread;
        match why {
            MisfitKind::NoThread => write!(f, "thread {thread} has ended, or was never created"),
            MisfitKind::Waits(Some(call), other) => {
                write!(f, "thread {thread} waits in {call}, while {other} can run")
            }
            MisfitKind::Waits(None, other) => {
                write!(f, "thread {thread} is stopped, while {other} can run")
            }
        }
    }
}

/// What became of the schedule of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScheduleOutcome {
    /// The turns that the threads took; empty unless they are kept.
    pub turns: Vec<Turn>,
    /// The first turn of the given schedule that was not taken to its end, by number, from 1.
    pub left: Option<usize>,
}

/// Turns that a run has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnRecord {
    turns: Vec<Turn>,
    /// The thread that runs, and the instructions that were executed when its turn began.
    running: Option<(u32, u64)>,
}

impl TurnRecord {
    /// A thread runs from here on.
    pub(super) fn run(&mut self, thread: u32, executed: u64) {
        if self.running.is_none_or(|(running, _)| running != thread) {
            self.end(executed);
            self.running = Some((thread, executed));
        }
    }

    /// A thread's call was answered in part.
    pub(super) fn answered(&mut self, thread: u32, executed: u64) {
        self.end(executed);
        self.turns.push(Turn {
            thread,
            instructions: 0,
        });
    }

    fn end(&mut self, executed: u64) {
        if let Some((thread, begun)) = self.running.take()
            && executed > begun
        {
            self.turns.push(Turn {
                thread,
                instructions: executed - begun,
            });
        }
    }

    /// All turns, with what the current one has lasted so far.
    pub(super) fn all(&self, executed: u64) -> Vec<Turn> {
        let mut taken = self.clone();
        taken.end(executed);
        taken.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let turn = |(thread, instructions)| Turn {
            thread,
            instructions,
        };
        let turns: Vec<Turn> = (0..40)
            .map(|n| (1000 + n % 7, 1 << n))
            // The edges of both numbers, and a turn without an end.
            .chain([(1, 0), (u32::MAX, Turn::OPEN - 1), (2, Turn::OPEN)])
            .map(turn)
            .collect();

        let text = Turn::print(&turns);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");

        let read = Turn::parse(&text).expect("turns");

        // The first line is a comment, so turns begin in the second.
        assert_eq!(read.first().map(|(_, line)| *line), Some(2));
        assert_eq!(
            read.last().map(|(_, line)| *line),
            Some(text.lines().count())
        );
        let read: Vec<Turn> = read.into_iter().map(|(turn, _)| turn).collect();
        assert_eq!(read, turns);

        let empty = Turn::print(&[]);
        assert_eq!(Turn::parse(&empty), Ok(Vec::new()));

        // A comment reaches to the end of its line; turns need a space between them.
        let by_hand = "1000:5 # first\n#1:2\n\n\t1001:*1000:1";
        let error = Turn::parse(by_hand).expect_err("a word without a space in it");
        assert_eq!((error.line, &error.word[..]), (4, "1001:*1000:1"));

        // Numbers without signs, in range, and both of them.
        let wrong = [
            "1000",
            "1000:",
            ":5",
            "a:5",
            "1:a",
            "+1:5",
            "1:+5",
            "-1:5",
            "1:-5",
            "1:5:",
            "4294967296:1",
            "1:18446744073709551615",
            "1:18446744073709551616",
            "1:**",
        ];
        for word in wrong {
            assert_eq!(Turn::parse(word).map_err(|e| e.word), Err(word.to_owned()));
        }
    }

    #[test]
    fn turns_are_joined_and_split() {
        let mut taken = TurnRecord::default();
        taken.run(1, 0);
        taken.run(1, 10);
        taken.run(2, 30);
        taken.run(3, 30);
        taken.answered(2, 35);
        taken.answered(1, 35);
        taken.run(3, 35);
        let text = Turn::print(&taken.all(40));
        assert!(text.ends_with("\n1:30 3:5 2:0 1:0 3:5\n"), "{text}");
    }
}
