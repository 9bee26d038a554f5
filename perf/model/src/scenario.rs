//! Scenarios: a run as a text that a person writes, with what comes out of it in the same file.
//!
//! One directive a line: first what there is (`form`, `cpus`, `event`, `stack`, `task` and the
//! like), then what happens. `#` begins a comment, `=` a line of the expected output. Here:
//! reading. Writing is in `scenario_text`.

use super::action::Action;
use super::fuzz::Schedule;
use super::scenario_error::{ScenarioError, ScenarioErrorKind};
use super::scenario_stacks::StackRequest;
use super::setup::{
    EventSetup, Form, Kind, Mutant, PMU_PERIOD_MIN, RfcBuffer, Setup, UserUnwind, timer_period,
};
use super::stack::{Leaf, Scripted, StackId};
use super::world::{CPUS_MAX, EVENTS_MAX, TASKS_MAX, World};
use crate::lbr::{Depth, Storage};

/// The longest scenario, bytes.
pub const SCENARIO_BYTES_MAX: usize = 1 << 20;
/// Most things that happen.
pub const ACTIONS_MAX: usize = 1 << 18;
/// Most stacks.
const STACKS_MAX: usize = 1024;
/// Where user code may be: the first page is never mapped.
pub(super) const USER_ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;
/// The longest name of a stack or an event, bytes: every line of the log may have it.
const NAME_MAX: usize = 64;
/// Most frames of all stacks written by `depth` or taken from files.
pub(super) const FRAMES_MAX: usize = 1 << 16;
/// The largest ring, bytes.
const RING_BYTES_MAX: u64 = 1 << 24;
/// Most steps that one `step` asks for.
const STEPS_MAX: u64 = 10_000;
/// The names of the handlers a scenario may install, from number 1.
pub(super) const HANDLERS: [&str; 4] = ["keep", "drop", "user", "kernel"];

/// A scenario as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The run.
    pub schedule: Schedule,
    /// The line of each action.
    lines: Vec<usize>,
    /// The line of each event.
    event_lines: Vec<usize>,
    /// The `=` lines, without the mark.
    pub expected: String,
    /// Stacks that come from files.
    pub(super) requests: Vec<StackRequest>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > SCENARIO_BYTES_MAX {
            return Err(ScenarioError {
                line: 1,
                column: 1,
                kind: ScenarioErrorKind::TooLong,
            });
        }
        let mut reader = Reader::new();
        for (index, line) in text.lines().enumerate() {
            if let Some(expected) = line.strip_prefix('=') {
                let expected = expected.strip_prefix(' ').unwrap_or(expected);
                reader.scenario.expected.push_str(expected);
                reader.scenario.expected.push('\n');
                continue;
            }
            let code = line.split('#').next().unwrap_or_default();
            let mut words = Words {
                line: index + 1,
                text: code,
                at: 0,
            };
            if let Some(word) = words.next() {
                reader.directive(word, &mut words)?;
                if words.next().is_some() {
                    return Err(words.error(ScenarioErrorKind::Extra));
                }
            }
        }
        let mut scenario = reader.scenario;
        if reader.numbered {
            scenario.requests.clear();
        } else {
            scenario.schedule.stacks = Some(reader.stacks);
        }
        Ok(scenario)
    }

    /// Runs it.
    ///
    /// # Errors
    /// The line of an event or an action that is refused.
    pub fn run(&self) -> Result<World, ScenarioError> {
        if let Some(request) = self.requests.iter().find(|request| !request.is_supplied()) {
            return Err(request.error(ScenarioErrorKind::NotSupplied));
        }
        if let Some(object) = self.objects().iter().find(|object| object.loaded.is_none()) {
            return Err(object.error(ScenarioErrorKind::NotSupplied));
        }
        let at = |lines: &[usize], index: usize, kind| ScenarioError {
            line: lines.get(index).copied().unwrap_or(1),
            column: 1,
            kind,
        };
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
        let last = self.lines.len().saturating_sub(1);
        world
            .has_room()
            .map_err(|refused| at(&self.lines, last, ScenarioErrorKind::Refused(refused)))?;
        world.finish();
        Ok(world)
    }
}

/// The words of a line.
pub(super) struct Words<'a> {
    pub(super) line: usize,
    text: &'a str,
    /// Behind the last word.
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let start = rest.find(|c: char| !c.is_whitespace())?;
        let word = rest[start..].split_whitespace().next()?;
        self.at += start + word.len();
        Some(word)
    }

    /// The next word, which stays.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.text[self.at..].split_whitespace().next()
    }

    /// An error at the last word.
    pub(super) fn error(&self, kind: ScenarioErrorKind) -> ScenarioError {
        let word = self.text[..self.at].split_whitespace().next_back();
        ScenarioError {
            line: self.line,
            column: self.at - word.map_or(0, str::len) + 1,
            kind,
        }
    }

    pub(super) fn need(&mut self, what: &'static str) -> Result<&'a str, ScenarioError> {
        let end = ScenarioError {
            line: self.line,
            column: self.text.trim_end().len() + 1,
            kind: ScenarioErrorKind::Missing(what),
        };
        self.next().ok_or(end)
    }

    pub(super) fn not<T>(&self, found: Option<T>, what: &'static str) -> Result<T, ScenarioError> {
        found.ok_or_else(|| self.error(ScenarioErrorKind::Not(what)))
    }

    pub(super) fn number(&mut self, what: &'static str, max: u64) -> Result<u64, ScenarioError> {
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

    fn cpu(&mut self) -> Result<u16, ScenarioError> {
        Ok(self.number("a CPU", u64::from(CPUS_MAX))? as u16)
    }

    fn tid(&mut self) -> Result<i32, ScenarioError> {
        let tid = self.number("a thread number", i32::MAX as u64)? as i32;
        self.not((tid > 0).then_some(tid), "a thread number")
    }
}

/// Reads line by line.
pub(super) struct Reader {
    pub(super) scenario: Scenario,
    pub(super) stacks: Scripted,
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

    fn directive(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        const THERE_IS: [&str; 14] = [
            "form",
            "cpus",
            "mutant",
            "unwind",
            "rfc-buffer",
            "samples-per-tick",
            "lbr-storage",
            "lbr-depth",
            "timer-tracepoint",
            "handler",
            "event",
            "stacks",
            "task",
            "kthread",
        ];
        if THERE_IS.contains(&word) || word == "stack" {
            if !self.scenario.schedule.actions.is_empty() {
                return Err(words.error(ScenarioErrorKind::Late));
            }
            return self.there_is(word, words);
        }
        self.happens(word, words)
    }

    fn there_is(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        let setup = &mut self.scenario.schedule.setup;
        match word {
            "form" => {
                let name = words.need("a form")?;
                let form = [Form::Rfc2023, Form::Before, Form::Upstream]
                    .into_iter()
                    .find(|f| f.as_str() == name);
                setup.form = words.not(form, "a form: rfc2023, linux-6.18, upstream")?;
            }
            "cpus" => {
                let cpus = words.number("a number of CPUs", u64::from(CPUS_MAX))? as u16;
                setup.cpus = words.not((cpus > 0).then_some(cpus), "a number of CPUs")?;
            }
            "mutant" => {
                let name = words.need("a mutant")?;
                setup.mutant = Some(words.not(Mutant::from_name(name), "a mutant")?);
            }
            "unwind" => {
                setup.unwind = match words.need("fp or sframe")? {
                    "fp" => UserUnwind::FramePointer,
                    "sframe" => UserUnwind::Sframe,
                    _ => return words.not(None, "fp or sframe"),
                }
            }
            "rfc-buffer" => {
                setup.rfc_buffer = match words.need("allocated or on-stack")? {
                    "allocated" => RfcBuffer::Allocated,
                    "on-stack" => RfcBuffer::OnStack,
                    _ => return words.not(None, "allocated or on-stack"),
                }
            }
            "samples-per-tick" => {
                let number = words.number("a number of samples", u64::from(u32::MAX))?;
                setup.samples_per_tick = number as u32;
            }
            "timer-tracepoint" => setup.timer_tracepoint = true,
            "handler" => return self.handler(words),
            "lbr-storage" => {
                let name = words.need("a storage")?;
                setup.lbr_storage = words.not(Storage::from_name(name), "a storage: cpu, task")?;
            }
            "lbr-depth" => {
                let depth = words.number("a depth", 32)? as usize;
                let known = Depth::ALL
                    .into_iter()
                    .find(|known| known.entries() == depth);
                setup.lbr_depth = words.not(known, "a depth: 8, 16, 32")?;
            }
            "event" => return self.event(words),
            "stack" => return self.stack(words),
            "stacks" => {
                let word = words.need("numbered")?;
                words.not((word == "numbered").then_some(()), "numbered")?;
                self.numbered = true;
            }
            _ => {
                let tid = words.tid()?;
                let tasks = &self.scenario.schedule.tasks;
                if tasks.iter().any(|&(known, _)| known == tid) {
                    return Err(words.error(ScenarioErrorKind::Taken("task")));
                }
                if tasks.len() >= TASKS_MAX {
                    return Err(words.error(ScenarioErrorKind::TooMany("tasks")));
                }
                let stack = match word {
                    "task" => Some(self.find_stack(words)?),
                    _ => None,
                };
                self.scenario.schedule.tasks.push((tid, stack));
            }
        }
        Ok(())
    }

    fn stack(&mut self, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        let name = words.name()?;
        if self.stacks.next().0 as usize >= STACKS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("stacks")));
        }
        if self.stacks.find(name).is_some() {
            return Err(words.error(ScenarioErrorKind::Taken("stack")));
        }
        match words.peek() {
            Some("trace") => return self.stack_of_trace(name, words),
            Some("program") => return self.stacks_of_program(name, words),
            _ => {}
        }
        let mut frames = Vec::new();
        while words.peek().is_some() {
            if words.peek() == Some("depth") {
                words.next();
                let depth = words.number("a depth", FRAMES_MAX as u64)?;
                let base = words.address()?;
                let last = base + 0x10 * depth;
                let is_user = USER_ADDRESSES.contains(&last);
                words.not(is_user.then_some(()), "an address of user space")?;
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

    fn event(&mut self, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        let events = &self.scenario.schedule.events;
        let name = words.name()?;
        if events.iter().any(|event| event.name == name) {
            return Err(words.error(ScenarioErrorKind::Taken("event")));
        }
        if events.len() >= EVENTS_MAX {
            return Err(words.error(ScenarioErrorKind::TooMany("events")));
        }
        let kind = words.need("a kind")?;
        let what = "a kind: pmu, timer, tracepoint, uprobe, bpf-output";
        let mut event = EventSetup {
            name: name.to_owned(),
            kind: words.not(Kind::from_name(kind), what)?,
            defer_output: false,
            ..EventSetup::default()
        };
        while let Some(word) = words.next() {
            match word {
                "period" => event.period = words.number("a period", 1 << 40)?,
                "freq" => {
                    let frequency = words.number("a frequency", 1 << 30)?;
                    words.not((frequency > 0).then_some(()), "a frequency")?;
                    if event.kind == Kind::Pmu {
                        // The kernel begins with 1.
                        (event.frequency, event.period) = (Some(frequency), PMU_PERIOD_MIN);
                    } else {
                        event.period = timer_period(frequency);
                    }
                }
                "tid" => event.tid = Some(words.tid()?),
                "inherit" => event.inherit = true,
                "no-callchain" => event.has_callchain = false,
                "no-defer" => event.defer_callchain = false,
                "defer-output" => event.defer_output = true,
                "exclude-user" => event.exclude_user = true,
                "exclude-kernel" => event.exclude_kernel = true,
                "exclude-idle" => event.exclude_idle = true,
                "not-identified" => event.identified = [false; 3],
                "max-stack" => event.max_stack = words.number("a depth", 0xffff)? as u16,
                "branch-stack" => event.branch_stack = true,
                "opened-later" => event.is_opened_later = true,
                "stack-user" => event.stack_user = words.number("a size", 0xffff)? as u32,
                "ring" => event.ring_bytes = words.number("a size", RING_BYTES_MAX)? as u32,
                _ => return words.not(None, "an attribute of an event"),
            }
        }
        self.scenario.event_lines.push(words.line);
        self.scenario.schedule.events.push(event);
        Ok(())
    }

    fn find_stack(&self, words: &mut Words<'_>) -> Result<StackId, ScenarioError> {
        let name = words.need("a stack")?;
        let found = match self.numbered {
            true => name
                .strip_prefix('s')
                .and_then(|n| n.parse().ok())
                .map(StackId),
            false => self.stacks.find(name),
        };
        words.not(found, "a stack")
    }

    fn find_event(&self, words: &mut Words<'_>) -> Result<u16, ScenarioError> {
        let name = words.need("an event")?;
        let events = &self.scenario.schedule.events;
        let found = events.iter().position(|event| event.name == name);
        Ok(words.not(found, "an event")? as u16)
    }

    fn happens(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), ScenarioError> {
        let mut times = 1;
        let action = match word {
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
            "signal" => Action::Signal {
                tid: words.tid()?,
                stack: self.find_stack(words)?,
            },
            "uprobe" => Action::Uprobe { cpu: words.cpu()? },
            "read" => Action::Read { cpu: words.cpu()? },
            "no-memory" => Action::NoMemory { tid: words.tid()? },
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
