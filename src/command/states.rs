//! The states that `step` and `report` show: how they are chosen, opened and indexed.

mod kernel;

use super::args::{KernelArgs, ProgramArgs, WalkArgs};
use super::boot::BootOptionArgs;
use super::case_limits::OtherLimitArgs;
use super::machine::MachineOptions;
use super::output;
use super::status::Status;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_judge::case::{self, Case};
use unwind_sim_judge::cases::{self, CaseFailure};
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::{FileKind, Input};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::shell::quoted;
use unwind_sim_judge::states::{Index, ProgramIndex, States, Target};
use unwind_sim_judge::verify::UNWINDERS_MAX;
use unwind_sim_judge::{compare::GroupBy, spec, unwinders};
use unwind_sim_record::reversible::{Reversible, ReversibleRun as _};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::input_file::InputFile;
#[cfg(feature = "serve")]
use unwind_sim_serve::debuggee::Opened;
use unwind_sim_unwind::start::Variant;
use unwind_sim_view::timeline::{About, Builder};

/// The number of bytes of each stack that a state of a program has.
const STACK_BYTES: u64 = 64 << 10;
/// The number of bytes that are kept of what the program writes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The unwinders that are shown by default.
const UNWINDERS: [&str; 5] = ["dwarf", "sframe", "orc", "fp", "guess"];

/// The number of instructions that are explored, at most, where the same input has to give the same
/// output, and that are searched for a function unless `--max-instructions` says more.
const EXPLORED_MAX: u64 = 1 << 28;

/// Which states, and by which unwinders.
#[derive(clap::Args, Debug)]
pub(crate) struct StateArgs {
    /// Of a case: show its sample points instead of all instructions. That is the default for a
    /// kernel's cases, and with fake registers.
    #[arg(long)]
    samples: bool,
    /// Of a recording: look for images below this folder first.
    #[arg(long, visible_alias = "sysroot", value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    case: OtherLimitArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    pub(crate) walks: WalkArgs,
    /// Stop after N instructions.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    max_instructions: u64,
    /// Assemble the case with the defect in its header.
    #[arg(long)]
    defect: bool,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten, next_help_heading = "Options for a kernel that is booted")]
    boot: BootOptionArgs,
    /// With a kernel that is booted: let an NMI come at a state, by its number, or at:SYMBOL[+OFFSET],
    /// before the instruction there is executed for the first time. Can be given more than once, in the
    /// order of time.
    #[arg(long, value_name = "WHEN", requires = "kernel")]
    nmi: Vec<String>,
}

/// A recording or case, or a program and its arguments.
pub(crate) struct Subject {
    pub(crate) words: Vec<OsString>,
    kind: SubjectKind,
}

/// What is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SubjectKind {
    File,
    Program,
    Kernel,
}

impl Subject {
    /// What the words behind `--` name: a recording or case, which is open then, if it is a single one, or
    /// else a program.
    #[cfg(feature = "serve")]
    pub(crate) fn of_words(words: &[OsString]) -> Option<(Subject, Option<InputFile>)> {
        let file = match words {
            [only] => InputFile::open(Path::new(only)).ok(),
            _ => None,
        };
        let is_shown =
            |file: &InputFile| file.kind() == FileKind::Case || file.kind().is_recorded();
        let file = file.filter(is_shown);
        let path = file.as_ref().map(|file| file.path().to_owned());
        Some((Subject::of(path.as_deref(), words)?, file))
    }

    /// What a command line names, if anything. What follows `--` is a program.
    fn of(path: Option<&Path>, program: &[OsString]) -> Option<Subject> {
        let words = match path {
            Some(path) => vec![path.as_os_str().to_owned()],
            None => program.to_vec(),
        };
        (!words.is_empty()).then_some(Subject {
            words,
            kind: match path {
                Some(_) => SubjectKind::File,
                None => SubjectKind::Program,
            },
        })
    }

    /// A kernel, which options name.
    fn kernel() -> Subject {
        Subject {
            words: Vec::new(),
            kind: SubjectKind::Kernel,
        }
    }

    /// The words on a command line that name it again.
    #[cfg(feature = "terminal")]
    pub(crate) fn given_words(&self) -> Vec<OsString> {
        match self.kind {
            SubjectKind::File | SubjectKind::Kernel => self.words.clone(),
            // Its options would otherwise be ours.
            SubjectKind::Program => [&["--".into()], &self.words[..]].concat(),
        }
    }
}

/// What is shown.
pub(crate) struct Shown<'a> {
    pub(crate) run: &'a Run,
    pub(crate) states: States,
    pub(crate) index: Index<'a>,
    /// Ends long ways.
    #[cfg_attr(
        not(any(feature = "serve", feature = "terminal")),
        expect(dead_code, reason = "what asks a user is ended")
    )]
    pub(crate) stop: Arc<AtomicBool>,
    /// The last state in which a function is searched: a program may never end.
    searched_to: u64,
    /// What they are of, as on the command line.
    pub(crate) source: String,
    /// The file of the program, if it is one that is run.
    #[cfg_attr(
        not(feature = "serve"),
        expect(dead_code, reason = "debuggers read it")
    )]
    pub(crate) executable: Option<PathBuf>,
}

impl<'a> Shown<'a> {
    /// The same for a debugger, which begins at state `first`.
    #[cfg(feature = "serve")]
    pub(crate) fn opened(self, first: u64) -> Opened<'a> {
        Opened {
            run: self.run,
            states: self.states,
            index: self.index,
            stop: self.stop,
            source: self.source,
            executable: self.executable,
            first,
        }
    }

    /// Indexes and explores.
    pub(crate) fn explored(mut self) -> Result<Explored<'a>> {
        let (states, index) = (&mut self.states, &mut self.index);
        // A kernel is explored as far as its states are asked for.
        let is_kernel = states.is_kernel();
        while index.covered() < EXPLORED_MAX && index.fill(states, 0)? {}
        while !is_kernel && states.explored() < EXPLORED_MAX && states.explore(EXPLORED_MAX) {}
        Ok(Explored {
            about: About {
                source: self.source,
                command: output::command_line(),
            },
            builder: Builder::new(self.run),
            states: self.states,
            index: self.index,
        })
    }

    /// The number of the state to begin with: 0, a number, or the first one in a function; with `#N`
    /// behind its name, the N-th one. A label of a case is a function here.
    pub(crate) fn first(&mut self, from: Option<&str>) -> Result<u64> {
        let Some(from) = from else { return Ok(0) };
        if let Ok(number) = from.parse() {
            return Ok(number);
        }
        let (name, visit) = match from.rsplit_once('#') {
            Some((name, visit)) if !visit.is_empty() => match visit.parse() {
                Ok(visit) => (name, visit),
                Err(_) => (from, 1_u64),
            },
            _ => (from, 1),
        };

        let target = Target::Function(name.to_owned());
        let mut at = 0;
        for nth in 1..=visit.max(1) {
            let found = self.states.find_up_to(&target, at, self.searched_to)?;
            at = found.with_context(|| {
                // The program has not ended, so there may be more.
                let bound = match self.states.total() {
                    None if self.searched_to != u64::MAX => format!(
                        " in the first {} states, which is as far as was searched; --max-instructions N \
                         says how far",
                        self.searched_to
                    ),
                    _ => String::new(),
                };
                match nth {
                    1 => format!("no state is in a function {name}{bound}"),
                    _ => format!("{from}: {name} is reached {} times only{bound}", nth - 1),
                }
            })?;
        }
        Ok(at)
    }
}

/// What is shown, as much of it explored as the output may depend on.
pub(crate) struct Explored<'a> {
    pub(crate) about: About,
    pub(crate) states: States,
    pub(crate) builder: Builder<'a>,
    pub(crate) index: Index<'a>,
}

/// Tells what of a program is not modelled, as far as it was explored. Returns the exit status of
/// showing it.
pub(crate) fn status(states: &States) -> Status {
    output::tell_notices(&states.notices());
    if states.is_modelled() {
        Status::AsExpected
    } else {
        Status::NothingJudged
    }
}

impl StateArgs {
    /// Opens the states of `subject`, which are those of `file` if it names one, and calls `show` with
    /// them.
    pub(crate) fn open<R>(
        &self,
        subject: &Subject,
        file: Option<&InputFile>,
        show: impl FnOnce(Shown<'_>) -> Result<R>,
    ) -> Result<R> {
        if subject.kind == SubjectKind::Kernel {
            return self.of_kernel(show);
        }
        let case = file.filter(|file| file.kind() == FileKind::Case);
        let case = case.map(|file| Ok::<_, CaseFailure>((file, cases::case_of(file)?)));
        let case = case.transpose()?;
        // Anything else is run.
        let recording = file.filter(|file| file.kind().is_recorded());

        // A case names its own view of memory; options of the command line count more.
        let setting = match &case {
            Some((_, case)) => self.walks.changed(cases::setting_of(case))?,
            None => self.walks.changed(Setting::default())?,
        };

        let source = subject.words.iter().map(quoted).collect::<Vec<_>>();
        let source = source.join(" ");
        // A kernel case has no program that runs by itself, and fake registers exist only where a
        // sample fetched them: both have states only at their sample points.
        if let Some((file, case)) = &case
            && (self.samples || self.needs_samples(case)?)
        {
            let trace = cases::emulated_trace_of(file, &self.case_limits())?;
            let recording = Input::from_trace(trace);
            return self.of_recording(recording, source, setting, show);
        }
        // Refused, not ignored: a program that runs here has limits of its own.
        if let Some(option) = self.case.given() {
            bail!("{option} is for the sample points of a case (--samples)");
        }

        let case_file = case.as_ref().map(|(file, _)| *file);
        if let Some(file) = recording {
            let mut options = self.kernel.options(self.symfs.clone())?;
            self.program.set(&mut options)?;
            // A chain that was recorded is shown, also where there is nothing to walk.
            options.chains = true;
            let recording = super::args::open(file, &options)?;
            return self.of_recording(recording, source, setting, show);
        }

        if self.machine.allow_write {
            bail!(
                "--allow-write: going back cannot undo what was written to files of this computer"
            );
        }
        // The run goes back and forth, so it has no single list of turns to print.
        if self.machine.schedule.is_printed() {
            bail!("--print-schedule: unwind-sim emulate --print-schedule FILE writes the turns");
        }

        let run = self.wanted(&UNWINDERS, setting)?;
        let mut program = (self.machine).program_of(&subject.words, case_file, self.defect)?;
        // The window keeps what the program prints in memory.
        program.program.options.limits.output_bytes = OUTPUT_BYTES_MAX;

        // A second set of unwinders, because the index runs on its own thread.
        let with_tables = run.engines.iter().filter(|e| e.finder().is_some());
        // The index checks rows, so an unwinder without a table has nothing to show in it; `verify`
        // takes at most UNWINDERS_MAX.
        let names: Vec<_> = with_tables.map(|e| e.name().to_owned()).collect();
        let tables = spec::engines(&names[..names.len().min(UNWINDERS_MAX)])?;

        let limit = self.max_instructions;
        let stop = Arc::new(AtomicBool::new(false));
        // Two runs of one program: one goes ahead and finds what is wrong, the other one goes back
        // and forth. They are the same, because the machine is deterministic.
        let index = ProgramIndex::start(program.program.clone(), &tables, run.setting, limit)?;
        let index = Index::of_program(index, &tables);

        // Debuggers read symbols from the file, so its path is that on this computer, with
        // `--root`.
        let executable = file_of(&program.program);

        let mut reversible = Reversible::start(program.program.clone(), STACK_BYTES, stop.clone())?;
        // The same limit as for the index, so that both end at the same state.
        reversible.set_limit(limit);

        show(Shown {
            run: &run,
            states: States::of_program(reversible, stop.clone()),
            index,
            stop,
            searched_to: match limit {
                u64::MAX => EXPLORED_MAX,
                given => given,
            },
            source: match subject.kind {
                SubjectKind::Program => format!("-- {source}"),
                SubjectKind::File | SubjectKind::Kernel => source,
            },
            executable: Some(executable),
        })
    }

    /// How far a case runs of which sample points are shown.
    fn case_limits(&self) -> CaseLimits {
        let limits = self.case.limits();
        match self.max_instructions {
            // The limit of a program, which may be any: its states are shown as far as they are asked for.
            u64::MAX => limits,
            most => CaseLimits {
                instructions_max: most,
                ..limits
            },
        }
    }

    /// Calls `show` with the samples of a recording.
    fn of_recording<R>(
        &self,
        recording: Input,
        source: String,
        setting: Setting,
        show: impl FnOnce(Shown<'_>) -> Result<R>,
    ) -> Result<R> {
        let is_kernel = recording.first(|view| view.sample.kernel.is_some());
        let names: &[&str] = match is_kernel {
            Some(true) => &unwinders::KERNEL,
            _ => &UNWINDERS,
        };
        let run = self.wanted(names, setting)?;
        show(Shown {
            run: &run,
            states: States::of_recording(recording),
            index: Index::of_recording(&run),
            stop: Arc::default(),
            searched_to: u64::MAX,
            source,
            executable: None,
        })
    }

    /// Calls `show` with the samples of a recording that is open, and is called `source`.
    #[cfg(feature = "terminal")]
    pub(crate) fn of_opened<R>(
        &self,
        recording: Input,
        source: String,
        show: impl FnOnce(Shown<'_>) -> Result<R>,
    ) -> Result<R> {
        let setting = self.walks.changed(Setting::default())?;
        self.of_recording(recording, source, setting, show)
    }

    /// The walks of each state.
    fn wanted(&self, default: &[&str], setting: Setting) -> Result<Run> {
        let names = match self.walks.unwinder.as_slice() {
            [] => default.iter().map(|&name| name.to_owned()).collect(),
            named => named.to_vec(),
        };
        Ok(Run {
            engines: self.walks.started(&names)?,
            variants: self.walks.variants()?,
            setting,
            against: Against::Truth,
            group_by: GroupBy::default(),
        })
    }

    /// Whether a case can only be shown by its sample points: a kernel's, or one whose walks start
    /// from fake registers.
    fn needs_samples(&self, case: &Case) -> Result<bool> {
        let is_fake = |variant: &Variant| matches!(variant, Variant::Fake(_));
        let is_kernel = case.header.machine == case::Machine::Kernel;
        Ok(is_kernel || self.walks.variants()?.iter().any(is_fake))
    }
}

/// The file of a program on this computer.
fn file_of(program: &RunningProgram) -> PathBuf {
    let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
    let options = &program.options;
    let seen = path(&options.cwd).join(path(&program.path));
    match seen.strip_prefix("/") {
        Ok(below) => options.root.join(below),
        Err(_) => seen,
    }
}

/// That there is no state of this number.
pub(crate) fn no_state(number: u64, states: &States) -> String {
    match states.total() {
        Some(total) => format!("there is no state {number}: there are {total}, counted from 0"),
        None => format!("there is no state {number}"),
    }
}
