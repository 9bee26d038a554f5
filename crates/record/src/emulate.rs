//! `emulate`: runs a program in the emulated machine without recording it.

use crate::emulator::finder_options;
use std::path::Path;
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Kernel, Notice, Outcome, ScheduleOutcome, StartError};
use unwind_sim_recordings::files::{ImageFinder, MappingRequest};
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::image::{AddressSpace, Mapping};

/// Number of instructions between checks of the clock.
const SLICE: u64 = 1 << 22;

/// Limits for running a program.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of instructions.
    pub instructions_max: u64,
    /// Maximum time.
    pub timeout: Option<Duration>,
}

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub end: End,
    /// Number of instructions executed.
    pub instructions: u64,
    /// Duration, including loading.
    pub time: Duration,
    /// Pages of memory in use at the end.
    pub pages: usize,
    /// Size of decoded code at the end, bytes.
    pub code_bytes: usize,
    /// Features that are not modelled and that the program got an error for.
    pub notices: Vec<Notice>,
    /// What became of the schedule.
    pub followed: ScheduleOutcome,
    /// The kernel, as the run left it.
    pub process: Kernel,
    /// Function and offset of the unsupported instruction, if the run ended at one.
    pub place: Option<String>,
}

impl Run {
    /// Million instructions per second.
    pub fn mips(&self) -> f64 {
        self.instructions as f64 / 1e6 / self.time.as_secs_f64()
    }
}

/// The function at an address, and the offset in it.
fn place(process: &Kernel, root: &Path, address: u64) -> Option<String> {
    const PAGE: u64 = 4096;
    const PID: u32 = 0;
    let (path, offset) = process.mapped_file(address)?;
    let start = address & !(PAGE - 1);
    let request = MappingRequest {
        pid: PID,
        name: &String::from_utf8_lossy(&path),
        range: start..start + PAGE,
        file_offset: offset.saturating_sub(address - start),
        executable: true,
        build_id: &[],
    };
    let mut finder = ImageFinder::new(finder_options(root));
    let (image, bias) = finder.mapping_for(&request);
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: request.range.clone(),
        bias,
        name: request.name.to_owned(),
        image,
    });
    Some(Location::at(&space, address).to_string())
}

/// Runs a program to its end or to a limit. `progress` is called from time to time with the number
/// of instructions executed.
///
/// # Errors
/// If the program cannot be started.
pub fn run(
    program: RunningProgram,
    bounds: Bounds,
    progress: &mut dyn FnMut(u64),
) -> Result<Run, StartError> {
    let begin = Instant::now();
    let root = program.options.root.clone();
    let mut options = program.options;
    // The machine looks at the deadline, too: a slice can take long.
    options.deadline = bounds.timeout.and_then(|most| begin.checked_add(most));
    let mut process = Kernel::start(&program.path, options)?;

    let end = loop {
        let left = bounds.instructions_max.saturating_sub(process.executed());
        let outcome = process.run(left.min(SLICE), &mut ());
        // The machine ended by itself, or this was the last slice.
        if outcome != Outcome::Limit || left <= SLICE {
            break End::Outcome(outcome);
        }
        progress(process.executed());
        if bounds.timeout.is_some_and(|most| begin.elapsed() >= most) {
            break End::Timeout;
        }
    };

    // Only for an instruction that is not supported is the place worth a lookup.
    let place = match &end {
        End::Outcome(Outcome::Unsupported { rip, .. }) => place(&process, &root, *rip),
        _ => None,
    };

    Ok(Run {
        end,
        place,
        instructions: process.executed(),
        time: begin.elapsed(),
        pages: process.machine.core.memory.pages_in_use(),
        code_bytes: process.machine.code_bytes(),
        notices: process.notices().to_vec(),
        followed: process.followed(),
        process,
    })
}
