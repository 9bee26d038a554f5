//! Scenarios: runs as text that people write, with the expected output in the same file.
//!
//! A line is a directive: first the setup (`form`, `cpus`, `event`, `stack`, `task` and the like),
//! then the actions. `#` starts a comment, `=` a line of expected output. Scenarios are read here
//! and written in `text`.

mod branches_text;
mod error;
mod programs;
mod setup;
mod stacks;
mod text;

pub use error::{ScenarioError, ScenarioErrorKind};
pub use programs::OBJECT_BYTES_MAX;
pub use stacks::{PROGRAM_INSTRUCTIONS_MAX, PROGRAM_STACKS_MAX, StackFrom, StackRequest};
pub use text::{bless, output};

use crate::action::Action;
use crate::fuzz::Schedule;
use crate::setup::{CPUS_MAX, Setup};
use crate::stack::{Leaf, Scripted, StackId};
use crate::world::World;
use setup::THERE_IS;

/// The longest scenario, bytes.
pub const SCENARIO_BYTES_MAX: usize = 1 << 20;
/// The most actions.
pub const ACTIONS_MAX: usize = 1 << 18;
/// The most stacks.
const STACKS_MAX: usize = 1024;
/// The most frames in all stacks written with `depth` or taken from files.
const FRAMES_MAX: usize = 1 << 16;
/// The most steps of one `step`.
const STEPS_MAX: u64 = 10_000;
/// The names of the handlers a scenario may install, from number 1.
const HANDLERS: [&str; 4] = ["keep", "drop", "user", "kernel"];

/// A scenario that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The schedule.
    pub schedule: Schedule,
    /// The line of each action.
    lines: Vec<usize>,
    /// The line of each event.
    event_lines: Vec<usize>,
    /// The `=` lines, without the mark.
    pub expected: String,
    /// The stacks that come from files.
    requests: Vec<StackRequest>,
}

/// An error about a whole line.
const fn error_at(line: usize, kind: ScenarioErrorKind) -> ScenarioError {
    ScenarioError {
        line,
        column: 1,
        kind,
    }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first error.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        // Bounds all that is kept of the text.
        if text.len() > SCENARIO_BYTES_MAX {
            return Err(ScenarioError {
                line: 1,
                column: 1,
                kind: ScenarioErrorKind::TooLong,
            });
        }

        let mut reader = Reader::new();
        for (index, line) in text.lines().enumerate() {
            // Before comments are cut, because expected output may have a `#`.
            if let Some(expected) = line.strip_prefix('=') {
                let expected = expected.strip_prefix(' ').unwrap_or(expected);
                reader.scenario.expected.push_str(expected);
                reader.scenario.expected.push('\n');
                continue;
            }

            // A comment may follow a directive on its line.
            let code = line.split('#').next().unwrap_or_default();
            let mut words = LineWords::new(index + 1, code);
            if let Some(word) = words.next() {
                reader.directive(word, &mut words)?;
                if words.next().is_some() {
                    return Err(words.error(ScenarioErrorKind::Extra));
                }
            }
        }

        // Numbered stacks are computed, so none are kept, and none asked for.
        let mut scenario = reader.scenario;
        if reader.numbered {
            scenario.requests.clear();
        } else {
            scenario.schedule.stacks = Some(reader.stacks);
        }
        Ok(scenario)
    }

    /// Runs the scenario.
    ///
    /// # Errors
    /// The line of the first event or action that is refused.
    pub fn run(&self) -> Result<World, ScenarioError> {
        // The model opens no files: the caller supplies what is in them.
        if let Some(request) = self.requests.iter().find(|request| !request.is_supplied()) {
            return Err(error_at(request.line, ScenarioErrorKind::NotSupplied));
        }
        if let Some(object) = self.objects().iter().find(|object| object.loaded.is_none()) {
            return Err(error_at(object.line, ScenarioErrorKind::NotSupplied));
        }

        // Errors are placed at the line of what was refused.
        let at = |lines: &[usize], index: usize, kind| ScenarioError {
            line: lines.get(index).copied().unwrap_or(1),
            column: 1,
            kind,
        };

        // An event that the kernel refuses is an error of its own line.
        let mut world = self.schedule.world().map_err(|(index, refusal)| {
            at(
                &self.event_lines,
                index,
                ScenarioErrorKind::Refusal(refusal),
            )
        })?;

        for (index, &action) in self.schedule.actions.iter().enumerate() {
            world
                .apply(action)
                .map_err(|refused| at(&self.lines, index, ScenarioErrorKind::Refused(refused)))?;
        }

        // A run that was cut by its limits would look complete.
        let last = self.lines.len().saturating_sub(1);
        world
            .has_room()
            .map_err(|refused| at(&self.lines, last, ScenarioErrorKind::Refused(refused)))?;

        world.finish();
        Ok(world)
    }
}

/// Reads a scenario line by line.
struct Reader {
    scenario: Scenario,
    stacks: Scripted,
    frames: usize,
    numbered: bool,
}

impl Reader {
    fn new() -> Self {
        Self {
            scenario: Scenario {
                schedule: Schedule {
                    setup: Setup::default(),
                    events: Vec::new(),
                    tasks: Vec::new(),
                    stacks: None,
                    programs: Vec::new(),
                    actions: Vec::new(),
                },
                lines: Vec::new(),
                event_lines: Vec::new(),
                expected: String::new(),
                requests: Vec::new(),
            },
            stacks: Scripted::default(),
            frames: 0,
            numbered: false,
        }
    }

    fn directive(&mut self, word: &str, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
        if THERE_IS.contains(&word) {
            if !self.scenario.schedule.actions.is_empty() {
                return Err(words.error(ScenarioErrorKind::Late));
            }
            return self.there_is(word, words);
        }
        self.happens(word, words)
    }

    fn stack(&mut self, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
        let name = words.name()?;
        if self.stacks.next().0 as usize >= STACKS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("stacks")));
        }

        if self.stacks.find(name).is_some() {
            return Err(words.error(ScenarioErrorKind::Taken("stack")));
        }

        if self.stack_of_file(name, words)? {
            return Ok(());
        }

        // Each address is a frame; `depth` stands for many.
        let mut frames = Vec::new();
        while words.peek().is_some() {
            if words.peek() == Some("depth") {
                words.next();

                let depth = words.number("a depth", FRAMES_MAX as u64)?;
                let base = words.address()?;
                let last = base + 0x10 * depth;
                // The last frame has the highest address, so it stands for all.
                let is_user = USER_ADDRESSES.contains(&last);
                words.not(is_user.then_some(()), "an address of user space")?;

                // Counted before the frames are made: the depth is only a number in the text.
                self.frames += depth as usize;
                if self.frames > FRAMES_MAX {
                    return Err(words.error(ScenarioErrorKind::TooMany("frames")));
                }
                frames.extend((0..depth).map(|index| base + 0x10 * index));
            } else {
                frames.push(words.address()?);
            }
        }

        if frames.is_empty() {
            return Err(words.error(ScenarioErrorKind::Missing("an address")));
        }

        self.stacks.add(name, frames);
        Ok(())
    }

    fn find_stack(&self, words: &mut LineWords<'_>) -> Result<StackId, ScenarioError> {
        let name = words.need("a stack")?;
        let found = if self.numbered {
            name.strip_prefix('s')
                .and_then(|n| n.parse().ok())
                .map(StackId)
        } else {
            self.stacks.find(name)
        };
        words.not(found, "a stack")
    }

    fn find_event(&self, words: &mut LineWords<'_>) -> Result<u16, ScenarioError> {
        let name = words.need("an event")?;
        let events = &self.scenario.schedule.events;
        let found = events.iter().position(|event| event.name == name);
        Ok(words.not(found, "an event")? as u16)
    }

    fn happens(&mut self, word: &str, words: &mut LineWords<'_>) -> Result<(), ScenarioError> {
        let mut times = 1;
        let action = match word {
            // The only action with a number of times.
            "step" => {
                let cpu = words.cpu()?;
                if words.peek().is_some() {
                    times = words.number("a number of steps", STEPS_MAX)?;
                }
                Action::Step { cpu }
            }
            "run" => Action::Run {
                cpu: words.cpu()?,
                ns: words.number("nanoseconds", u64::MAX)?,
            },
            // User code runs with this stack, somewhere in its innermost function.
            "user" => Action::Stack {
                cpu: words.cpu()?,
                stack: self.find_stack(words)?,
                leaf: match words.next() {
                    None => Leaf::Body,
                    Some("entry") => Leaf::Entry,
                    Some("behind-push") => Leaf::AfterPush,
                    Some(_) => return words.not(None, "entry or behind-push"),
                },
            },
            "syscall" => Action::Syscall { cpu: words.cpu()? },
            "kernel" => Action::Kernel {
                cpu: words.cpu()?,
                address: words.kernel_address()?,
            },
            "leave" => Action::Leave { cpu: words.cpu()? },
            "finish" => Action::Finish { cpu: words.cpu()? },
            "sample" => Action::Sample {
                cpu: words.cpu()?,
                event: self.find_event(words)?,
            },
            "irq" => Action::Irq { cpu: words.cpu()? },
            "softirq" => Action::Softirq { cpu: words.cpu()? },
            "expire" => Action::Expire {
                cpu: words.cpu()?,
                event: self.find_event(words)?,
            },
            "switch" => Action::Switch {
                cpu: words.cpu()?,
                tid: words.number("a thread number", i32::MAX as u64)? as i32,
            },
            // The first half of a switch, so that something can come between the two.
            "switch-begin" => Action::SwitchBegin {
                cpu: words.cpu()?,
                tid: words.number("a thread number", i32::MAX as u64)? as i32,
            },
            "open" => Action::Open {
                cpu: words.cpu()?,
                event: self.find_event(words)?,
            },
            "close" => Action::Close {
                cpu: words.cpu()?,
                event: self.find_event(words)?,
            },
            "fork" => Action::Fork {
                cpu: words.cpu()?,
                child: words.tid()?,
            },
            "exec" => Action::Exec {
                cpu: words.cpu()?,
                stack: self.find_stack(words)?,
            },
            "exit" => Action::Exit { cpu: words.cpu()? },
            "oops" => Action::Oops { cpu: words.cpu()? },
            "signal" => Action::Signal {
                tid: words.tid()?,
                stack: self.find_stack(words)?,
            },
            "uprobe" => Action::Uprobe { cpu: words.cpu()? },
            "read" => Action::Read { cpu: words.cpu()? },
            "no-memory" => Action::NoMemory { tid: words.tid()? },
            // `none` removes the handler.
            "install" => Action::Install {
                cpu: words.cpu()?,
                event: self.find_event(words)?,
                handler: {
                    let name = words.need("a handler")?;
                    let none = (name == "none").then_some(0);
                    words.not(none.or(self.find_handler(name)), "a handler")?
                },
            },
            _ => return Err(words.error(ScenarioErrorKind::Unknown)),
        };

        // Repeated steps are actions of their own.
        if self.scenario.lines.len() + times as usize > ACTIONS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("actions")));
        }

        for _ in 0..times {
            self.scenario.schedule.actions.push(action);
            self.scenario.lines.push(words.line);
        }
        Ok(())
    }
}

/// Addresses of user code: the first page is never mapped.
const USER_ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;
/// The longest name of a stack or an event, bytes. Every line of the log may contain one.
const NAME_MAX: usize = 64;

/// The words of a line.
struct LineWords<'a> {
    line: usize,
    text: &'a str,
    /// The end of the last word.
    at: usize,
}

impl<'a> LineWords<'a> {
    /// The words of `text`, which is line `line` (from 1).
    const fn new(line: usize, text: &'a str) -> Self {
        Self { line, text, at: 0 }
    }

    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let start = rest.find(|c: char| !c.is_whitespace())?;
        let word = rest[start..].split_whitespace().next()?;
        self.at += start + word.len();
        Some(word)
    }

    /// The next word, without taking it.
    fn peek(&self) -> Option<&'a str> {
        self.text[self.at..].split_whitespace().next()
    }

    /// An error at the last word.
    fn error(&self, kind: ScenarioErrorKind) -> ScenarioError {
        let word = self.text[..self.at].split_whitespace().next_back();
        ScenarioError {
            line: self.line,
            column: self.at - word.map_or(0, str::len) + 1,
            kind,
        }
    }

    fn need(&mut self, what: &'static str) -> Result<&'a str, ScenarioError> {
        let end = ScenarioError {
            line: self.line,
            column: self.text.trim_end().len() + 1,
            kind: ScenarioErrorKind::Missing(what),
        };
        self.next().ok_or(end)
    }

    fn not<T>(&self, found: Option<T>, what: &'static str) -> Result<T, ScenarioError> {
        found.ok_or_else(|| self.error(ScenarioErrorKind::Not(what)))
    }

    fn number(&mut self, what: &'static str, max: u64) -> Result<u64, ScenarioError> {
        let word = self.need(what)?;
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        self.not(number.filter(|&number| number <= max), what)
    }

    fn name(&mut self) -> Result<&'a str, ScenarioError> {
        let name = self.need("a name")?;
        self.not(
            (name.len() <= NAME_MAX).then_some(name),
            "a name of at most 64 bytes",
        )
    }

    fn address(&mut self) -> Result<u64, ScenarioError> {
        let address = self.number("an address", u64::MAX)?;
        let is_user = USER_ADDRESSES.contains(&address);
        self.not(is_user.then_some(address), "an address of user space")
    }

    fn kernel_address(&mut self) -> Result<u64, ScenarioError> {
        let what = "an address of the kernel's text";
        let address = self.number(what, u64::MAX)?;
        let is_text = (crate::KERNEL_TEXT..crate::MACHINERY_TEXT).contains(&address);
        self.not(is_text.then_some(address), what)
    }

    fn cpu(&mut self) -> Result<u16, ScenarioError> {
        Ok(self.number("a CPU", u64::from(CPUS_MAX))? as u16)
    }

    fn tid(&mut self) -> Result<i32, ScenarioError> {
        let tid = self.number("a thread number", i32::MAX as u64)? as i32;
        self.not((tid > 0).then_some(tid), "a thread number")
    }
}
