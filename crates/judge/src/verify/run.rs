//! Runs a program under the checker.

use super::checker::{Checker, Results};
use super::deadlock::DeadlockedThread;
use super::findings::{Check, Finding};
use super::groups::location;
use super::images::Images;
use super::places::Places;
use crate::baseline::{Baseline, Key};
use crate::engine::{Engine, Setting};
use crate::unwinders::may_err;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Kernel, Notice, Outcome, ScheduleOutcome, StartError};
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::elf::{self, image_from_elf};
use unwind_sim_unwind::image::{AddressSpace, Image};

/// Maximum size of a file of tables, bytes.
const IMAGE_BYTES_MAX: u64 = 4 << 30;

/// The configuration of a run.
pub struct Request<'a> {
    /// The unwinders, which must all read tables.
    pub engines: &'a [Engine],
    /// The setting of walks.
    pub setting: Setting,
    /// Whether to skip checks whose outcome cannot have changed.
    pub elide: bool,
    /// Whether to keep each finding of unwinders that are expected to err. Otherwise they are kept by
    /// cause, since there may be one at nearly every instruction.
    pub each: bool,
    /// An ELF file whose tables replace the program's.
    pub tables_from: Option<PathBuf>,
    /// The maximum number of instructions.
    pub instructions_max: u64,
    /// The time limit.
    pub timeout: Option<Duration>,
}

/// The result of a run.
pub struct Run {
    /// How the program ended.
    pub end: End,
    /// What was checked and found.
    pub results: Results,
    /// The address space at the end.
    pub space: AddressSpace,
    /// What is not modelled and made calls of the program fail.
    pub notices: Vec<Notice>,
    /// What became of the schedule.
    pub followed: ScheduleOutcome,
    /// The threads that wait for what cannot happen, if the run ended with that.
    pub deadlock: Vec<DeadlockedThread>,
}

/// Why the program was not run.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The program cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file that the program maps cannot be read, so that its rows are not known.
    #[error("a file of the program: {0}")]
    Image(FileProblem),
    /// The file with tables cannot be read.
    #[error("{}: {what}", path.printable())]
    Tables {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The number of instructions between checks of the clock.
const SLICE: u64 = 1 << 20;

/// Runs `program` and checks it. `progress` is called from time to time with the number of
/// instructions.
///
/// # Errors
/// If the program cannot be started, or a file of it or the other tables cannot be read.
pub fn run(
    program: RunningProgram,
    request: &Request<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Run, VerifyError> {
    let root = &program.options.root;
    let root = (root != Path::new("/")).then(|| root.clone());
    let mut images = Images::new(root);

    // The code stays that of the program; only its tables are those of the other file.
    if let Some(path) = &request.tables_from {
        images.replace_tables(program.path.clone(), read_image(path)?);
    }

    let mut checker = Checker::new(request.engines, images, request.setting, request.elide);
    if request.each {
        checker = checker.keeping_each();
    }

    let begin = Instant::now();
    let mut options = program.options;
    // The machine needs it, too: within a slice, a thread may wait for a pipe or a terminal.
    options.deadline = request.timeout.and_then(|most| begin.checked_add(most));
    let mut process = Kernel::start(&program.path, options)?;
    let mut left = request.instructions_max;

    // In slices, so that progress and the timeout come in between.
    let end = loop {
        let slice = left.min(SLICE);
        let outcome = process.run(slice, &mut checker);
        left -= slice;
        if outcome != Outcome::Limit || left == 0 {
            break End::Outcome(outcome);
        }
        progress(process.executed());
        if request.timeout.is_some_and(|most| begin.elapsed() >= most) {
            break End::Timeout;
        }
    };

    let followed = process.followed();
    // Now, while the checker has the shadow stacks, which `finish` takes apart.
    let deadlock = match end {
        End::Outcome(Outcome::Blocked { .. }) => checker.deadlock(&mut process),
        _ => Vec::new(),
    };

    // Code of a file that cannot be read would count as code without rows.
    if let Some(problem) = checker.unread() {
        return Err(VerifyError::Image(problem.clone()));
    }

    checker.name_generated(&mut |path| process.file(path));
    let (mut results, space) = checker.finish();
    results.memory.decoded = process.machine.code_bytes();

    Ok(Run {
        end,
        results,
        space,
        notices: process.notices().to_vec(),
        followed,
        deadlock,
    })
}

fn read_image(path: &Path) -> Result<Arc<Image>, VerifyError> {
    let failure = |what: String| VerifyError::Tables {
        path: path.into(),
        what,
    };
    let bytes = open::read(path, IMAGE_BYTES_MAX).map_err(|e| failure(e.to_string()))?;
    let name = path.display().to_string();
    let image = image_from_elf(&name, Arc::new(bytes), &elf::ReadOptions::default());
    Ok(Arc::new(image.map_err(|e| failure(e.to_string()))?))
}

/// The identity of a contradiction across runs.
fn key(name: &str, finding: &Finding, places: &Places) -> Key {
    let place = location(finding, places);
    Key {
        unwinder: name.to_owned(),
        what: format!("{} {}", finding.check.as_str(), finding.reg.as_str()),
        code: finding.code.as_str().to_owned(),
        place: format!("{} {place}", place.image.as_deref().unwrap_or_default()),
        class: Some(finding.contradiction.class().as_str().to_owned()),
    }
}

/// Whether there is a disagreement among our own checks, or a contradiction that counts. A
/// contradiction counts if its unwinder is not expected to err, if the unwinder uses the lookup of
/// its check, and if it is not in `known` or was met more often than there. Losses of derived
/// tables count if `strict`.
pub fn unexpected(
    engines: &[Engine],
    results: &Results,
    strict: bool,
    known: Option<&Baseline>,
) -> bool {
    let counts = |finding: &&Finding| {
        let engine = &engines[finding.unwinder];
        let lookup = engine.finder().map(|finder| finder.lookup());
        // At a call both look-ups are checked, but an unwinder uses only one of them.
        let its_own = match finding.check {
            Check::Instruction | Check::Walk => true,
            Check::InsideCall => lookup == Some(Lookup::InsideCall),
            Check::AtReturn => lookup == Some(Lookup::AtReturn),
        };
        let counts = finding.contradiction.class().counts(strict);
        its_own && counts && !may_err(engine.name())
    };

    // A baseline counts by key, so several findings may share one.
    let mut counted: BTreeMap<Key, u64> = BTreeMap::new();

    for finding in results.findings.iter().filter(counts) {
        let name = engines[finding.unwinder].name();
        *counted
            .entry(key(name, finding, &results.places))
            .or_default() += finding.count;
    }

    let is_new = |(key, &count): (&Key, &u64)| !known.is_some_and(|b| b.holds(key, count));
    !results.disagreements.is_empty() || counted.iter().any(is_new)
}

#[cfg(test)]
mod tests;
