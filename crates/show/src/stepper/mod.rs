//! The interactive stepper: where it is in the timeline, and what each key does. [`screen`] draws
//! it, [`terminal`] lends it a terminal, and [`script`] plays keys without one.

mod edit;
mod go;
mod hit;
mod key;
mod rules;
pub mod screen;
pub mod script;
pub mod terminal;
#[cfg(test)]
mod tests;

pub use edit::EditedAt;
pub use key::{Key, KeyError, parse_keys};

use crate::demo::DemoNote;
use hit::{HitArea, HitTarget, Pane};
use rules::Rules;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use unwind_sim_judge::input::InputError;
use unwind_sim_judge::states::{Direction, Index, States};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason;
use unwind_sim_view::pages;
use unwind_sim_view::timeline::{Builder, Code, State, Step, StepKind, Walk, Walker};

/// Instructions that are explored and indexed while nobody presses a key, at most.
const EXPLORED_MAX: u64 = 1 << 28;
/// Instructions that are explored between two looks at the keyboard.
const PIECE: u64 = 1 << 16;

/// What covers the panes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Overlay {
    Nothing,
    /// The keys.
    Help,
    /// The page of a reason code.
    Page(reason::Code),
    /// The threads.
    Threads,
    /// All that the demo tells.
    Prose,
    /// A line that is being typed.
    Prompt(PromptFor, String),
}

/// What a line is typed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PromptFor {
    /// Where to go.
    Go,
    /// What to look for.
    Search,
}

/// Lines scrolled down in each pane, from where it would begin by itself.
#[derive(Clone, Copy, Default, Debug)]
struct Scroll {
    code: i32,
    stack: i32,
    story: i32,
    over: i32,
}

/// Where the stepper is, for the command that leads there again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepperPosition {
    /// The number of the state.
    pub number: u64,
    /// The name of the column whose walk is told.
    pub walk: String,
    /// The number of steps of the walk that are made, unless all are.
    pub step: Option<usize>,
}

/// The command that leads to a spot.
pub type CommandAt<'a> = Box<dyn Fn(&StepperPosition) -> String + 'a>;

/// The stepper: where it is, and what of it is shown.
pub struct Stepper<'a> {
    states: States,
    index: Index<'a>,
    builder: Builder<'a>,
    walkers: Vec<Walker>,
    again: CommandAt<'a>,
    state: State,
    code: Option<Arc<Code>>,
    /// Where the shown code is looked at: the next instruction, or that of a frame of the walk.
    code_pc: CodeAddress,
    /// The rules beside the code, if they are shown.
    rules: Option<Rules>,
    /// The index of the chosen walker.
    walker: usize,
    /// The number of steps of its walk that are made; all, if there is no number.
    step: Option<usize>,
    over: Overlay,
    scroll: Scroll,
    /// Whether words of the stack of which nothing is known are shown.
    all_words: bool,
    /// Notes shown beside the panes, in the order of the states.
    notes: Vec<DemoNote>,
    /// The last text that was looked for.
    sought: String,
    message: String,
    copied: Option<String>,
    /// What was drawn where, for the mouse.
    hits: RefCell<Vec<HitArea>>,
    /// The last line from which on what covers the panes can be shown, when it was drawn.
    cover_last: Cell<i32>,
    is_explored: bool,
    is_done: bool,
    /// Whether it is a case in a file, and whether the user wants to edit it.
    can_edit: bool,
    wants_edit: bool,
}

impl<'a> Stepper<'a> {
    /// A stepper at state `number`, or at the first one if there is no such state. `None` if there
    /// is no state at all.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn new(
        states: States,
        index: Index<'a>,
        builder: Builder<'a>,
        again: CommandAt<'a>,
        number: u64,
    ) -> Result<Option<Stepper<'a>>, InputError> {
        let mut stepper = Stepper {
            states,
            index,
            walkers: builder.walkers(),
            builder,
            again,
            state: State::default(),
            code: None,
            code_pc: CodeAddress::Instruction(0),
            rules: None,
            walker: 0,
            step: None,
            over: Overlay::Nothing,
            scroll: Scroll::default(),
            all_words: false,
            notes: Vec::new(),
            sought: String::new(),
            message: String::new(),
            copied: None,
            hits: RefCell::default(),
            cover_last: Cell::default(),
            is_explored: false,
            is_done: false,
            can_edit: false,
            wants_edit: false,
        };

        // Going there reads and builds the state, so from here on `state` is never the default.
        if stepper.go_to(number)? {
            return Ok(Some(stepper));
        }

        // A run may be shorter than the number that was given.
        if number == 0 || !stepper.go_to(0)? {
            return Ok(None);
        }

        stepper.message = format!("there is no state {number}");
        Ok(Some(stepper))
    }

    /// Chooses the walk that is told, by the name of its column, and how many steps of it are made.
    /// Returns whether there is such a walk.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn tell(&mut self, walk: &str, step: Option<usize>) -> Result<bool, InputError> {
        let is_it = |walker: &Walker| walker.name() == walk;
        let Some(found) = self.walkers.iter().position(is_it) else {
            return Ok(false);
        };
        self.walker = found;
        self.step = step.map(|step| step.min(self.walk_len()));
        self.follow()?;
        Ok(true)
    }

    /// Shows what a demo tells beside the panes: at each state the last note that is not of a later one.
    pub fn tell_beside(&mut self, notes: Vec<DemoNote>) {
        self.notes = notes;
    }

    /// The note of this state, with its place among all.
    fn note(&self) -> Option<(usize, &str)> {
        let number = self.state.number;
        let until = self.notes.partition_point(|note| note.sample <= number);
        let nth = until.saturating_sub(1);
        self.notes.get(nth).map(|note| (nth, note.text.as_str()))
    }

    /// Says something in the last line, until the next key.
    pub fn say(&mut self, message: &str) {
        message.clone_into(&mut self.message);
    }

    /// The names of the columns.
    pub fn walks(&self) -> Vec<String> {
        self.walkers.iter().map(Walker::name).collect()
    }

    /// Whether the user has quit.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// What is to be put into the clipboard, once.
    pub fn take_copied(&mut self) -> Option<String> {
        self.copied.take()
    }

    /// Explores and indexes a small piece of the run. Returns whether there is more to do.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn work(&mut self) -> Result<bool, InputError> {
        if !self.is_explored {
            // A kernel is explored to its end: its checkpoints are bounded by their bytes.
            let is_enough = !self.states.is_kernel() && self.states.explored() >= EXPLORED_MAX;
            self.is_explored = is_enough || !self.states.explore(PIECE);
        }
        let is_indexed = self.index.covered() >= EXPLORED_MAX || self.index.is_complete();
        if !is_indexed {
            self.index.fill(&self.states, 0)?;
        }
        Ok(!is_indexed || !self.is_explored)
    }

    /// Does what `key` says.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn press(&mut self, key: Key) -> Result<(), InputError> {
        self.message.clear();
        match self.over.clone() {
            Overlay::Prompt(ask, typed) => self.type_key(ask, typed, key)?,
            Overlay::Help | Overlay::Page(_) | Overlay::Threads | Overlay::Prose => match key {
                Key::Down => self.scroll.over += 1,
                Key::Up => self.scroll_cover_up(1),
                Key::PageDown => self.scroll.over += 16,
                Key::PageUp => self.scroll_cover_up(16),
                Key::Char('q' | 't' | 'T') if self.over == Overlay::Threads => {
                    self.over = Overlay::Nothing;
                    self.command_key(key)?;
                }
                _ => self.over = Overlay::Nothing,
            },
            Overlay::Nothing => self.command_key(key)?,
        }
        self.follow()?;
        if self.states.is_stopped() {
            self.message = "stopped".to_owned();
        }
        Ok(())
    }

    fn command_key(&mut self, key: Key) -> Result<(), InputError> {
        // The keys are those of debuggers where there is a custom: s(tep), n(ext), c(ontinue).
        match key {
            Key::Char('q') => self.is_done = true,
            Key::Char('s') | Key::Right => self.one(Direction::Forward)?,
            Key::Char('S') | Key::Left => self.one(Direction::Backward)?,
            Key::Char('n') => self.over_call()?,
            Key::Char('N') => self.back_over_call()?,
            Key::Char('c') => self.go_wrong(Direction::Forward)?,
            Key::Char('C') => self.go_wrong(Direction::Backward)?,
            Key::Char('t') => self.go_other_thread(Direction::Forward)?,
            Key::Char('T') => self.go_other_thread(Direction::Backward)?,
            Key::Char('i') => self.go_entry(Direction::Forward)?,
            Key::Char('I') => self.go_entry(Direction::Backward)?,
            Key::Char('f') => self.walk_on(),
            Key::Char('F') => self.walk_back(),
            Key::Char('r') => self.next_start(),
            Key::Char(digit @ '1'..='9') => self.choose(digit as usize - '1' as usize),
            Key::Char('g') => self.over = Overlay::Prompt(PromptFor::Go, String::new()),
            Key::Char('/') => self.over = Overlay::Prompt(PromptFor::Search, String::new()),
            Key::Char('w') => self.all_words = !self.all_words,
            Key::Char('u') => self.switch_rules()?,
            Key::Char('e') => self.edit(),
            Key::Char('y') => self.copy_command(),
            Key::Char('?') => self.open(Overlay::Help),
            Key::Char('d') if !self.notes.is_empty() => self.open(Overlay::Prose),
            Key::Char('d') => self.say("this is not a demo: unwind-sim demo lists them"),
            Key::Enter => self.open_page(),
            Key::Tab => self.open(Overlay::Threads),
            // The panes clamp the scroll when they are drawn: only they know how many lines they
            // have.
            Key::Down => self.scroll.stack += 1,
            Key::Up => self.scroll.stack -= 1,
            Key::PageDown => self.scroll.stack += 16,
            Key::PageUp => self.scroll.stack -= 16,
            Key::Home => self.go_or_say(0)?,
            Key::End => self.go_end()?,
            Key::Char(other) => self.message = format!("{other:?} is not a key; ? lists them"),
            Key::Escape | Key::Backspace => {}
        }
        Ok(())
    }

    /// The left button was pressed, or the wheel turned by `lines`.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn mouse(&mut self, column: u16, row: u16, lines: i32) -> Result<(), InputError> {
        self.message.clear();

        // What was drawn last is what the user has clicked on, so areas are remembered from
        // drawing.
        let hit = hit::at(&self.hits.borrow(), column, row);

        let Some(hit) = hit else {
            // A click beside what covers the panes closes it, but not a line that is being typed.
            if lines == 0 && !matches!(self.over, Overlay::Prompt(..)) {
                self.over = Overlay::Nothing;
            }
            return Ok(());
        };

        // The wheel scrolls what is under the pointer, whether or not it is chosen.
        if lines != 0 {
            match hit.pane() {
                Some(Pane::Code) => self.scroll.code += lines,
                Some(Pane::Stack) => self.scroll.stack += lines,
                Some(Pane::Story) => self.scroll.story += lines,
                Some(Pane::Over) => self.scroll.over += lines,
                None => {}
            }
            return Ok(());
        }

        match hit {
            HitTarget::Walker(index) => self.choose_walker(index),
            HitTarget::Step(step) => self.step = Some(step.min(self.walk_len())),
            HitTarget::Code(address) => self.go_address(address)?,
            HitTarget::Thread(tid) => self.go_thread(tid)?,
            HitTarget::Pane(Pane::Over) => self.over = Overlay::Nothing,
            HitTarget::Pane(_) => {}
        }
        self.follow()
    }

    /// Scrolls up from what is seen, however often Down was pressed at the end.
    fn scroll_cover_up(&mut self, lines: i32) {
        let seen = self.scroll.over.min(self.cover_last.get());
        self.scroll.over = (seen - lines).max(0);
    }

    fn open(&mut self, over: Overlay) {
        self.over = over;
        self.scroll.over = 0;
    }

    fn type_key(&mut self, ask: PromptFor, mut typed: String, key: Key) -> Result<(), InputError> {
        /// Characters of a line, at most.
        const TYPED_MAX: usize = 200;
        match key {
            Key::Enter => {
                self.over = Overlay::Nothing;
                return match ask {
                    PromptFor::Go => self.go_where(typed.trim()),
                    PromptFor::Search => self.search(&typed),
                };
            }
            Key::Escape => {
                self.over = Overlay::Nothing;
                return Ok(());
            }
            Key::Backspace => {
                typed.pop();
            }
            Key::Char(c) if typed.chars().count() < TYPED_MAX => typed.push(c),
            _ => {}
        }
        self.over = Overlay::Prompt(ask, typed);
        Ok(())
    }

    /// The walk that is told.
    fn walk(&self) -> Option<&Walk> {
        self.state.walks.get(self.walker)
    }

    fn walk_len(&self) -> usize {
        self.walk().map_or(0, |walk| walk.steps.len())
    }

    /// The number of steps that are made of the walk.
    fn steps_made(&self) -> usize {
        let len = self.walk_len();
        self.step.map_or(len, |step| step.min(len))
    }

    /// The last step that was made, while the user goes through a walk.
    fn last_step(&self) -> Option<&Step> {
        self.step?;
        let made = self.steps_made().checked_sub(1)?;
        self.walk()?.steps.get(made)
    }

    fn walk_on(&mut self) {
        let len = self.walk_len();
        self.scroll.story = 0;
        self.step = match self.step {
            None => Some(1.min(len)),
            Some(step) if step < len => Some(step + 1),
            Some(_) => {
                self.message = "the walk has ended".to_owned();
                Some(len)
            }
        };
    }

    fn walk_back(&mut self) {
        let made = self.steps_made();
        self.scroll.story = 0;
        if made == 0 {
            self.message = "the walk has not started".to_owned();
        }
        self.step = Some(made.saturating_sub(1));
    }

    /// Chooses the first walker of the unwinder with this index.
    fn choose(&mut self, index: usize) {
        let names = self.unwinders();
        match names.get(index) {
            Some(&(first, _)) => self.choose_walker(first),
            None => self.message = format!("there are {} unwinders", names.len()),
        }
    }

    fn choose_walker(&mut self, index: usize) {
        if index < self.walkers.len() {
            self.walker = index;
            self.step = None;
            self.scroll.story = 0;
        }
    }

    /// The unwinders, each with the index of its first walker.
    fn unwinders(&self) -> Vec<(usize, &str)> {
        let mut names: Vec<(usize, &str)> = Vec::new();
        for (index, walker) in self.walkers.iter().enumerate() {
            let last = names.last().map(|(_, name)| *name);
            if last != Some(walker.unwinder.as_str()) {
                names.push((index, &walker.unwinder));
            }
        }
        names
    }

    /// Chooses the next start of the same unwinder.
    fn next_start(&mut self) {
        let Some(now) = self.walkers.get(self.walker) else {
            return;
        };
        let same = |&index: &usize| self.walkers[index].unwinder == now.unwinder;
        let same: Vec<usize> = (0..self.walkers.len()).filter(same).collect();
        if same.len() == 1 {
            self.message = "there is one start path; --regs hw,fake:v5.2 gives more".to_owned();
            return;
        }
        let at = same.iter().position(|&index| index == self.walker);
        self.choose_walker(same[(at.unwrap_or(0) + 1) % same.len()]);
    }

    /// Opens the page of the cause, or else of the end.
    fn open_page(&mut self) {
        let Some(walk) = self.walk() else { return };
        let code = match &walk.cause {
            Some(cause) => cause.code,
            None => walk.end.code,
        };
        match reason::Code::from_name(code) {
            Some(code) if !pages::page(code).is_empty() => self.open(Overlay::Page(code)),
            _ => self.message = format!("{code} has no page"),
        }
    }

    fn copy_command(&mut self) {
        let spot = StepperPosition {
            number: self.state.number,
            walk: self
                .walkers
                .get(self.walker)
                .map(Walker::name)
                .unwrap_or_default(),
            step: self.step,
        };
        let command = (self.again)(&spot);
        self.message = format!("copied: {command}");
        self.copied = Some(command);
    }

    /// The words that the last step made has read, and those that all steps made have.
    fn reads(&self) -> (Vec<u64>, Vec<u64>) {
        let steps = self
            .walk()
            .map_or(&[][..], |walk| &walk.steps[..self.steps_made()]);
        let of = |step: &Step| step.reads.iter().map(|read| read.0).collect::<Vec<_>>();
        let last = match self.step {
            Some(_) => steps.iter().rfind(|step| step.kind == StepKind::Frame),
            None => None,
        };
        (
            last.map(of).unwrap_or_default(),
            steps.iter().flat_map(of).collect(),
        )
    }
}
