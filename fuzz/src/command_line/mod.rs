//! The command line as a target: arguments drawn by a grammar, on files that are valid or damaged, in
//! this process.
//!
//! The commands run as the program runs them, with the process's standard streams and working folder, so
//! this target has a process of its own: `tests/command_line.rs` and `examples/command_lines.rs`.

pub mod bounds;
mod capture;
mod choices;
mod files;
mod grammar;
mod values;

use capture::Capture;
use choices::Choices;
use files::{Pool, RunFolder};
use grammar::LeafCommand;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Bytes of stack that a command has, as a program's main thread.
const STACK_BYTES: usize = 8 << 20;
/// Bytes of memory that a command may need at most. The emulated machine may use 1 GiB.
const MEMORY_MAX: u64 = 1536 << 20;
/// Bytes that a command may print at most.
const OUTPUT_MAX: u64 = 256 << 20;
/// Open files by which a process may grow: threads that stay, such as the one for signals, have some.
const OPEN_FILES_MORE: usize = 8;
/// The largest status.
const STATUS_MAX: u8 = 3;
/// The status of usage errors, I/O errors and malformed input.
const FAILED: u8 = 2;
/// The status if nothing was judged.
const NOTHING_JUDGED: u8 = 3;

/// Panics since the last look, of any thread.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// All runs of this process.
pub struct Runs {
    /// Its folder `work` is that of a run.
    top: TempDir,
    pool: Pool,
    leaves: Vec<LeafCommand>,
    /// Commands and their arguments that were drawn: `tables check limit`.
    drawn: BTreeSet<(String, String)>,
    /// Runs by exit status.
    statuses: [u64; 256],
    open_files: usize,
    /// What the last one said.
    errors: String,
}

/// What is wrong with a run.
#[derive(Debug)]
pub struct Failure {
    /// The command line, quoted for a shell.
    pub line: String,
    /// What was expected and did not hold.
    pub faults: Vec<String>,
    /// What the command said on standard error.
    pub errors: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.line)?;
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        write!(f, "  it said: {}", self.errors)
    }
}

/// How a command ended.
struct CommandResult {
    status: u8,
    output: u64,
    errors: Vec<u8>,
    memory: Option<u64>,
}

impl Runs {
    /// Prepares the process: its working folder and its panics are from now on those of the runs.
    ///
    /// # Errors
    /// If there is no temporary folder, or no corpus.
    pub fn new() -> io::Result<Runs> {
        let top = tempfile::tempdir()?;
        std::env::set_current_dir(top.path())?;
        std::panic::set_hook(Box::new(note));
        Ok(Runs {
            pool: Pool::new()?,
            leaves: grammar::leaves(&unwind_sim::definition()),
            drawn: BTreeSet::new(),
            statuses: [0; 256],
            open_files: open_files(),
            errors: String::new(),
            top,
        })
    }

    /// The number of pairs of a command and an argument that can be drawn.
    pub fn pairs(&self) -> usize {
        self.leaves
            .iter()
            .map(|leaf| leaf.arguments().count())
            .sum()
    }

    /// The pairs of a command and an argument that no run had.
    pub fn missing(&self) -> Vec<String> {
        let all = self.leaves.iter().flat_map(|leaf| {
            let of = |name: &str| (leaf.name.clone(), name.to_owned());
            leaf.arguments().map(of)
        });
        let missing = all.filter(|pair| !self.drawn.contains(pair));
        missing
            .map(|(command, name)| format!("{command} {name}"))
            .collect()
    }

    /// What the last command said on standard error.
    pub fn errors(&self) -> &str {
        &self.errors
    }

    /// Ends the runs, and keeps the folder of the last one.
    pub fn keep(self) -> PathBuf {
        self.top.keep().join("work")
    }

    /// Runs by exit status. A larger one is a program's own (`emulate --status program`), or a fault.
    pub fn statuses(&self) -> impl Iterator<Item = (usize, u64)> {
        let all = self.statuses.into_iter().enumerate();
        all.filter(|(_, count)| *count > 0)
    }

    /// The bytes that run the seed `seed`. Every second run has an argument that is wanted; these go
    /// through all arguments of all commands.
    pub fn of_seed(&self, seed: u64) -> Vec<u8> {
        let is_free = u16::from(seed.is_multiple_of(2));
        let pair = (seed / 2 % self.pairs() as u64) as u16;
        let first = [1 - is_free, pair].map(u16::to_le_bytes).concat();
        // A free run has no second number.
        let first = &first[..if is_free == 1 { 2 } else { 4 }];
        [first, &drawn(seed).to_le_bytes()].concat()
    }

    /// Runs the command line that `data` draws; `told` gets it before it runs.
    ///
    /// # Errors
    /// Everything that the command did wrong.
    ///
    /// # Panics
    /// If the folder of the run cannot be made or read.
    pub fn run(&mut self, data: &[u8], told: impl FnOnce(&str)) -> Result<(), Failure> {
        let mut choices = Choices::new(data);
        let (leaf, wanted) = self.wanted(&mut choices);
        let is_wild = choices.one_in(4);

        // Before anything else is drawn: a wild run draws more, and hostile words.
        choices.set_wild(is_wild);
        let folder = self.top.path().join("work");
        let room = RunFolder::new(folder.clone(), &self.pool, leaf.kinds(), &mut choices)
            .expect("the folder of a run");
        let line = grammar::draw(leaf, wanted.as_deref(), &room, &mut choices);
        let shown = shown(&line.words);

        // Told before it runs, since a command that never ends would not be known otherwise.
        told(&shown);

        std::env::set_current_dir(&folder).expect("the folder of a run");
        let ended = run_one(&line.words).expect("standard streams");

        // The next run removes the folder, which must not be the working folder then.
        std::env::set_current_dir(self.top.path()).expect("the folder of all runs");

        let mut faults = of_run(leaf, &folder, &line.words, &ended);
        faults.extend(of_files(&room, &ended));

        // Only the folder of the run may be there; a command that wrote beside it ignored its
        // arguments.
        let outside: Vec<_> = fs::read_dir(self.top.path()).expect("the folder").collect();
        if outside.len() != 1 {
            faults.push(format!("outside of its folder: {outside:?}"));
        }

        // A command that leaks a file would fail only after a thousand runs.
        let open = open_files();
        if open > self.open_files + OPEN_FILES_MORE {
            faults.push(format!("{open} open files, {} at first", self.open_files));
        }

        // Counted whether it failed or not: the arguments were drawn.
        let name = leaf.name.clone();
        if ended.status <= STATUS_MAX {
            self.statuses[usize::from(ended.status)] += 1;
        }
        self.errors = String::from_utf8_lossy(&ended.errors).into_owned();
        let drawn = line
            .given
            .into_iter()
            .map(|argument| (name.clone(), argument));
        self.drawn.extend(drawn);

        if faults.is_empty() {
            return Ok(());
        }
        Err(Failure {
            line: shown,
            faults,
            errors: self.errors.clone(),
        })
    }

    /// A command, and the argument that it must have, if there is one.
    fn wanted(&self, choices: &mut Choices<'_>) -> (&LeafCommand, Option<String>) {
        if choices.one_in(2) {
            return (choices.one_of(&self.leaves), None);
        }
        let number = choices.below(self.pairs());
        let leaves = self.leaves.iter();
        let mut all = leaves.flat_map(|leaf| leaf.arguments().map(move |name| (leaf, name)));
        let (leaf, name) = all.nth(number).expect("a number below that of all pairs");
        (leaf, Some(name.to_owned()))
    }
}

/// Another number for each seed, whose bytes look drawn.
fn drawn(seed: u64) -> u64 {
    Choices::new(&seed.to_be_bytes()).last()
}

/// Runs a command line in a thread of its own.
fn run_one(words: &[OsString]) -> io::Result<CommandResult> {
    PANICS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    forget_peak();
    let before = memory("VmRSS:");
    let capture = Capture::new(&File::open(files::FIRST)?)?;

    let words = words.to_vec();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || unwind_sim::run(words))?;
    // A panic is noted by the hook.
    let status = thread.join().unwrap_or(101);

    let (output, errors) = capture.end()?;
    let memory = memory("VmHWM:").zip(before);
    Ok(CommandResult {
        status,
        output,
        errors,
        memory: memory.map(|(peak, before)| peak.saturating_sub(before)),
    })
}

/// What is wrong with how a command ended.
fn of_run(
    leaf: &LeafCommand,
    folder: &Path,
    words: &[OsString],
    ended: &CommandResult,
) -> Vec<String> {
    let mut faults = PANICS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let status = ended.status;

    // A program's status is its own, and so are its words. Only a shell's have a hostile name, that of
    // its script.
    let is_scripts = words.iter().any(|word| is_script(&folder.join(word)));
    let is_programs = is_scripts
        || words
            .iter()
            .any(|word| word.to_string_lossy().contains("program"));
    if !(is_programs || status <= STATUS_MAX && leaf.statuses.contains(&status)) {
        faults.push(format!(
            "status {status}, but the help names {:?}",
            leaf.statuses
        ));
    }

    let text = String::from_utf8_lossy(&ended.errors);

    // These statuses need a reason that a person can read.
    if [FAILED, NOTHING_JUDGED].contains(&status) && !is_programs && text.trim().is_empty() {
        faults.push(format!("status {status} without a word"));
    }

    let is_coloured = words
        .iter()
        .any(|word| word.to_string_lossy().contains("always"));
    // U+202E turns the direction of the text, and so can hide what it says.
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
    if !is_coloured && !is_scripts && text.contains(is_control) {
        faults.push("its message has what is not printable".to_owned());
    }

    // U+FFFD stands for a byte that is not UTF-8; with it the name cannot be typed.
    if !is_scripts && text.contains(files::LOST) {
        faults.push("its message has lost a byte of a file's name".to_owned());
    }

    if let Some(memory) = ended.memory.filter(|memory| *memory > MEMORY_MAX) {
        faults.push(format!("{} MB of memory", memory >> 20));
    }
    if ended.output > OUTPUT_MAX {
        faults.push(format!("{} MB of output", ended.output >> 20));
    }

    faults
}

/// Whether a file starts with the name of a shell.
fn is_script(path: &Path) -> bool {
    let is_file = fs::metadata(path).is_ok_and(|of| of.is_file());
    is_file && fs::read(path).is_ok_and(|file| file.starts_with(b"#!"))
}

/// What is wrong with the files that a command left.
fn of_files(room: &RunFolder, ended: &CommandResult) -> Vec<String> {
    let text = String::from_utf8_lossy(&ended.errors);
    let changed = room.changed().expect("the folder of a run");
    let mut faults = Vec::new();
    for path in changed {
        let name = path.to_string_lossy();
        // What was recorded before an error is kept, and said.
        let is_told = name.ends_with(".partial") && text.contains(&*name);
        let is_input = path.starts_with("in") || path.starts_with("folder");
        if ended.status == FAILED && !is_told {
            faults.push(format!("status 2 changed {name}"));
        } else if is_input && path.extension().is_some_and(|ending| ending == "partial") {
            faults.push(format!("left {name}"));
        }
    }
    faults
}

/// Notes a panic instead of printing it.
fn note(info: &PanicHookInfo<'_>) {
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    panics.push(info.to_string());
}

/// The words of a command line, quoted for a shell.
fn shown(words: &[OsString]) -> String {
    let words = words.iter().map(unwind_sim_judge::shell::quoted);
    words.collect::<Vec<_>>().join(" ")
}

/// Makes the peak of this process's memory what it has now. Where the kernel cannot, peaks only grow.
fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// A line of this process's status, in bytes.
fn memory(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

fn open_files() -> usize {
    fs::read_dir(Path::new("/proc/self/fd")).map_or(0, Iterator::count)
}

/// A fuzz target: one run.
///
/// # Panics
/// If the run fails.
pub fn command_line(data: &[u8]) {
    static RUNS: Mutex<Option<Runs>> = Mutex::new(None);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = runs.get_or_insert_with(|| Runs::new().expect("a temporary folder"));
    if let Err(failure) = runs.run(data, |_| ()) {
        let mut text = String::new();
        let _ = write!(text, "{failure}");
        panic!("{text}");
    }
}
