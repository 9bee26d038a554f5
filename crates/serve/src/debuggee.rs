//! A run or a recording as a debugger sees it: one state, the ways to others, and what is there.

mod memory;
mod travel;

use crate::error::Error;
use crate::interrupts::{Interrupter, Interrupts};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unwind_sim_judge::run::Run;
use unwind_sim_judge::states::{Index, Processor, StateView, States};
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_view::source_lines::SourceLines;
use unwind_sim_view::timeline::{Builder, State};

pub use travel::{Motion, Stop};

/// What is debugged.
pub struct Opened<'a> {
    /// The unwinders.
    pub run: &'a Run,
    /// The states.
    pub states: States,
    /// Where they become wrong.
    pub index: Index<'a>,
    /// The flag that `states` were opened with: it ends long ways.
    pub stop: Arc<AtomicBool>,
    /// What the states are of, as on the command line.
    pub source: String,
    /// The file of the program, if it is known.
    pub executable: Option<PathBuf>,
    /// The state to begin with.
    pub first: u64,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Its name and what it does.
    pub about: String,
    /// Its registers, as far as they are known.
    regs: Regs,
}

/// Registers of a thread.
#[derive(Clone, Debug)]
pub struct Registers {
    /// The general registers, rip and rflags, as far as they are known.
    pub general: Regs,
    /// The others, of the thread that runs; of a program only.
    pub processor: Option<Processor>,
}

/// The file that a program was started from.
#[derive(Clone, Debug)]
pub struct MainFile {
    /// Its path.
    pub path: PathBuf,
    /// Where it is mapped, less the addresses in the file; `None` if the auxiliary vector says it.
    pub bias: Option<u64>,
}

/// The state that is shown.
struct Here {
    number: u64,
    tid: u32,
    regs: Regs,
    processor: Option<Processor>,
    threads: Vec<Thread>,
    /// The sample of a recording.
    sample: Option<Sample<'static>>,
}

/// One state of a run or recording, and the ways to others.
pub struct Debuggee<'a> {
    pub(crate) run: &'a Run,
    pub(crate) states: States,
    index: Index<'a>,
    builder: Builder<'a>,
    interrupts: Interrupts,
    source: String,
    executable: Option<PathBuf>,
    here: Here,
    /// The true chain and all walks of this state, computed when they are first needed.
    told: Option<Box<State>>,
    /// The source lines of the program's file, once somebody has asked.
    lines: Option<SourceLines>,
    /// A state that the next way stops at, with the reason.
    appointed: Option<(u64, String)>,
    /// No search goes beyond this state.
    bound: Option<u64>,
}

impl<'a> Debuggee<'a> {
    /// Goes to the first state.
    ///
    /// # Errors
    /// If the recording cannot be read, or there is no such state.
    pub fn new(opened: Opened<'a>) -> Result<Debuggee<'a>, Error> {
        let Opened {
            run,
            mut states,
            index,
            stop,
            source,
            executable,
            first,
        } = opened;
        let here = Here::at(&mut states, first)?.ok_or(Error::NoState(first))?;

        // What is not known yet is found when it is asked for first: a client may never ask.
        Ok(Debuggee {
            run,
            builder: Builder::new(run),
            states,
            index,
            interrupts: Interrupts::new(stop),
            source,
            executable,
            here,
            told: None,
            lines: None,
            appointed: None,
            bound: None,
        })
    }

    /// The number of the state.
    pub fn number(&self) -> u64 {
        self.here.number
    }

    /// Whether a state is an instruction of a program, not a sample.
    pub fn is_program(&self) -> bool {
        self.states.is_program()
    }

    /// What the states are of, as on the command line.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The number of states, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.states.total()
    }

    /// The thread of the state: the one that executes the next instruction.
    pub fn tid(&self) -> u32 {
        self.here.tid
    }

    /// The threads of the state's process, that of the state first.
    pub fn threads(&self) -> &[Thread] {
        &self.here.threads
    }

    /// The registers of a thread, if there is one of this number.
    pub fn registers(&self, tid: u32) -> Option<Registers> {
        if tid == self.here.tid {
            return Some(Registers {
                general: self.here.regs,
                processor: self.here.processor.clone(),
            });
        }
        let thread = self.here.threads.iter().find(|thread| thread.tid == tid)?;
        Some(Registers {
            general: thread.regs,
            processor: None,
        })
    }

    /// The auxiliary vector; of a program only.
    pub fn auxv(&self) -> Option<Vec<u8>> {
        self.states.auxv()
    }

    /// The file of the program, if there is such a file on this computer.
    pub fn main_file(&mut self) -> Option<MainFile> {
        if let Some(path) = &self.executable {
            return path.is_file().then(|| MainFile {
                path: path.clone(),
                bias: None,
            });
        }
        if self.states.is_program() {
            return None;
        }

        // Of a recording, the image that is mapped lowest: libraries lie above.
        let mut found = None;
        let mut look = |at: &StateView<'_>| {
            let space = at.view.user_mappings();
            let mappings = space.map_or(&[][..], |space| space.mappings());
            let lowest = mappings.iter().min_by_key(|mapping| mapping.range.start);
            found = lowest.map(|mapping| (mapping.name.clone(), mapping.bias));
        };
        // A recording that could be read before can be read again, unless it was changed.
        self.states.with(self.here.number, &mut look).ok()?;
        let (name, bias) = found?;
        (name.starts_with('/') && Path::new(&name).is_file()).then(|| MainFile {
            path: name.into(),
            bias: Some(bias),
        })
    }

    /// The source lines of the program's file, and where that is mapped, less the addresses in it.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub(crate) fn lines(&mut self) -> Result<(&SourceLines, u64), Error> {
        let file = self.main_file();
        if self.lines.is_none() {
            let path = file.as_ref().map(|file| file.path.as_path());
            self.lines = Some(path.map(SourceLines::of).unwrap_or_default());
        }
        let mut bias = file.and_then(|file| file.bias);
        if bias.is_none() {
            // The program lies below its libraries.
            self.with_space(&mut |space| {
                let lowest = space.mappings().iter().min_by_key(|m| m.range.start);
                bias = lowest.map(|mapping| mapping.bias);
            })?;
        }
        Ok((self.lines.get_or_insert_default(), bias.unwrap_or(0)))
    }

    /// The file and line of the next instruction.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub(crate) fn line(&mut self) -> Result<Option<(String, u32)>, Error> {
        let rip = self.here.regs.rip();
        let (lines, bias) = self.lines()?;
        let found = lines.at(rip.wrapping_sub(bias));
        Ok(found.map(|(file, line)| (file.to_owned(), line)))
    }

    /// Calls `take` with the mappings of the state's process.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub(crate) fn with_space(&mut self, take: &mut dyn FnMut(&AddressSpace)) -> Result<(), Error> {
        self.states
            .with(self.here.number, &mut |at| take(at.view.space))?;
        Ok(())
    }

    /// gdb's commands that load the symbols of all files that are mapped.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub(crate) fn symbol_commands(&mut self) -> Result<String, Error> {
        let mut lines = std::collections::BTreeSet::new();
        self.states.with(self.here.number, &mut |at| {
            let space = at.view.user_mappings();
            for mapping in space.map_or(&[][..], |space| space.mappings()) {
                if mapping.name.starts_with('/') {
                    let name = unwind_sim_judge::shell::quoted(&mapping.name);
                    lines.insert(format!("add-symbol-file {name} -o {:#x}\n", mapping.bias));
                }
            }
        })?;
        if lines.is_empty() {
            return Ok("no file is mapped here\n".to_owned());
        }
        Ok(lines.into_iter().collect())
    }

    /// The true chain and all walks of the state.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn state(&mut self) -> Result<&State, Error> {
        if self.told.is_none() {
            let Debuggee {
                states, builder, ..
            } = self;
            let mut told = None;
            states.with(self.here.number, &mut |at| told = Some(builder.state(at)))?;
            self.told = told.map(Box::new);
        }
        Ok(self.told.get_or_insert_default())
    }

    /// The names of the walkers, in the order of the walks of each state.
    pub fn walkers(&self) -> Vec<String> {
        let walkers = self.builder.walkers();
        walkers.iter().map(|walker| walker.name()).collect()
    }

    /// Stops what runs, from another thread.
    pub fn interrupter(&self) -> Interrupter {
        self.interrupts.interrupter()
    }

    /// Whether somebody asks to stop what runs.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupts.is_asked()
    }

    /// An interrupt came while nothing ran.
    pub(crate) fn ignore_interrupt(&mut self, number: u64) {
        self.interrupts.heed_up_to(number);
    }

    /// A new client comes: what the last one asked for is forgotten, but not where it was.
    pub(crate) fn begin(&mut self) {
        self.interrupts.heed();
        self.appointed = None;
    }
}

impl Here {
    /// Goes to a state. `None` if there is no such state.
    fn at(states: &mut States, number: u64) -> Result<Option<Here>, Error> {
        let is_program = states.is_program();
        let mut here = None;
        let found = states.with(number, &mut |at| here = Some(Here::of(at, is_program)))?;
        let Some(mut here) = here.filter(|_| found) else {
            return Ok(None);
        };
        here.processor = states.processor();
        Ok(Some(here))
    }

    fn of(at: &StateView<'_>, is_program: bool) -> Here {
        let sample = at.view.sample;
        let regs = at.view.live();

        let own = Thread {
            pid: sample.pid,
            tid: sample.tid,
            about: at.view.task_name().unwrap_or_default().to_owned(),
            regs,
        };
        // The memory of other processes is not seen.
        let of_process = at.threads.iter().filter(|thread| thread.pid == sample.pid);
        let mut threads: Vec<Thread> = of_process
            .map(|thread| Thread {
                pid: thread.pid,
                tid: thread.tid,
                about: format!("{}, {}", thread.name, thread.doing),
                regs: thread.regs,
            })
            .collect();

        // The state's own thread comes first; a recording knows no other.
        match threads.iter().position(|thread| thread.tid == sample.tid) {
            Some(index) => threads.swap(0, index),
            None => threads.insert(0, own),
        }

        Here {
            number: at.view.number,
            tid: sample.tid,
            regs,
            processor: None,
            threads,
            sample: (!is_program).then(|| sample.clone().into_owned()),
        }
    }
}
