//! Boots a kernel in the emulated machine without recording it.

use crate::emulate::Bounds;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::system::boot::{self, BootError, BootOptions};
use unwind_sim_emulator::system::devices::Unknown;
use unwind_sim_emulator::system::{NoCounters, Stopped, System, SystemObserver};

/// Number of instructions between looks at the clock and at the console.
const SLICE: u64 = 1 << 20;
/// Number of instructions between looks whether there is a process yet.
const SLICE_BEFORE: u64 = 1 << 12;
/// How many of the console's last lines are kept.
const LAST_LINES: usize = 5;
/// How many bytes of such a line are kept: a kernel's are shorter (`PRINTKRB_RECORD_MAX` is 1024).
const LAST_LINE_BYTES_MAX: usize = 1024;

/// A kernel, and the computer that it runs on.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    /// What is loaded.
    pub options: BootOptions<'a>,
    /// Memory, bytes.
    pub memory: usize,
    /// The processor.
    pub processor: Processor,
    /// Whether the processor has performance counters and last branch records.
    pub has_counters: bool,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The time of day at the start, seconds since 1970.
    pub clock: u64,
    /// What comes in at the console.
    pub console_input: &'a [u8],
}

impl Boot<'_> {
    /// The computer with the loaded kernel, in front of its first instruction.
    ///
    /// # Errors
    /// If the kernel cannot be loaded, or the processor cannot have what it should.
    pub fn load(&self) -> Result<System, LoadError> {
        let mut system = System::new(self.memory, self.processor, self.clock);
        system.set_seed(self.seed);
        if self.has_counters {
            system.add_counters()?;
        }
        if self.options.acpi {
            system.add_acpi();
        }
        let entry = boot::place(&self.options, system.memory_mut())?;
        system.start(&entry);
        if let Some(devices) = system.devices() {
            devices.add_typed(self.console_input);
        }
        Ok(system)
    }
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootEnd {
    /// The machine ended the run.
    Stopped(Stopped),
    /// The time limit was reached.
    Timeout,
    /// The observer has seen all that it wanted.
    Enough,
}

impl BootEnd {
    /// The stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            BootEnd::Stopped(Stopped::Limit) => "limit",
            BootEnd::Stopped(Stopped::Halted) => "halted",
            BootEnd::Stopped(Stopped::PoweredOff) => "powered-off",
            BootEnd::Stopped(Stopped::Reset(_)) => "reset",
            BootEnd::Stopped(Stopped::TripleFault { .. }) => "triple-fault",
            BootEnd::Stopped(Stopped::Unmodelled { .. }) => "unmodelled",
            BootEnd::Stopped(Stopped::WaitsForEver) => "waits-for-ever",
            BootEnd::Stopped(Stopped::ExceptionLoop { .. }) => "exception-loop",
            BootEnd::Timeout => "timeout",
            BootEnd::Enough => "enough",
        }
    }

    /// Whether the kernel ended: it was not stopped, and would not do anything else on a computer.
    pub const fn is_end_of_kernel(&self) -> bool {
        matches!(
            self,
            BootEnd::Stopped(
                Stopped::Halted
                    | Stopped::PoweredOff
                    | Stopped::Reset(_)
                    | Stopped::TripleFault { .. }
            )
        )
    }

    /// The address of the instruction at which it ended, if that is of interest.
    pub const fn rip(&self) -> Option<u64> {
        match self {
            BootEnd::Stopped(
                Stopped::TripleFault { rip }
                | Stopped::Unmodelled { rip, .. }
                | Stopped::ExceptionLoop { rip },
            ) => Some(*rip),
            _ => None,
        }
    }
}

impl fmt::Display for BootEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootEnd::Stopped(stopped) => stopped.fmt(f),
            BootEnd::Timeout => f.write_str("the time limit was reached"),
            BootEnd::Enough => f.write_str("the recording is complete"),
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct BootRun {
    /// How it ended.
    pub end: BootEnd,
    /// Number of instructions executed.
    pub instructions: u64,
    /// The kernel's time at the end, nanoseconds.
    pub now: u64,
    /// Duration, including loading.
    pub time: Duration,
    /// The console's last lines, without what ends a line.
    pub last_lines: Vec<String>,
    /// Model-specific registers that were asked for and do not exist, each with how often.
    pub unknown_registers: Vec<(u32, u64)>,
    /// Accesses to ports and addresses without a device, each with how often.
    pub unknown_accesses: Vec<(Unknown, u64)>,
}

impl BootRun {
    /// Million instructions per second.
    pub fn mips(&self) -> f64 {
        self.instructions as f64 / 1e6 / self.time.as_secs_f64()
    }
}

/// Why there is no computer with this kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel cannot be loaded.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The processor cannot have performance counters.
    #[error(transparent)]
    Counters(#[from] NoCounters),
}

/// Why a kernel was not run.
#[derive(Debug, thiserror::Error)]
pub enum BootRunError {
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What the console said cannot be written.
    #[error(transparent)]
    Console(#[from] io::Error),
}

/// Loads a kernel and runs it to its end or to a limit. `console` is called with what the kernel writes
/// to its console, as it comes.
///
/// # Errors
/// If the kernel cannot be loaded, or with the error of `console`.
pub fn run(
    boot: &Boot<'_>,
    bounds: Bounds,
    console: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<BootRun, BootRunError> {
    run_observed(boot, bounds, console, &mut ())
}

/// [`run`], with an observer of what the kernel executes.
///
/// # Errors
/// Those of [`run`].
pub fn run_observed<O: SystemObserver>(
    boot: &Boot<'_>,
    bounds: Bounds,
    console: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    observer: &mut O,
) -> Result<BootRun, BootRunError> {
    run_until(boot, bounds, console, observer, &Observed::all())
}

/// From where on a kernel is observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ObservedFrom {
    /// From its first instruction on.
    #[default]
    Start,
    /// Since the first process runs: what comes before is executed at full speed.
    FirstProcess,
}

/// The part of a run that is observed.
pub struct Observed<'a, O> {
    /// Where it begins.
    pub from: ObservedFrom,
    /// Whether the observer has seen enough. It is asked from time to time.
    pub is_enough: &'a dyn Fn(&O) -> bool,
}

impl<O> Observed<'_, O> {
    /// All of it.
    pub fn all() -> Self {
        Observed {
            from: ObservedFrom::Start,
            is_enough: &|_| false,
        }
    }
}

/// [`run_observed`], of a part of the run.
///
/// # Errors
/// Those of [`run`].
pub fn run_until<O: SystemObserver>(
    boot: &Boot<'_>,
    bounds: Bounds,
    console: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    observer: &mut O,
    observed: &Observed<'_, O>,
) -> Result<BootRun, BootRunError> {
    let mut slice = |system: &mut System, limit, observer: &mut O| system.run(limit, observer);
    run_by(boot, bounds, console, (observer, &mut slice), observed)
}

/// Executes at most this number of instructions of a computer, with an observer.
pub type Slice<'s, O> = &'s mut dyn FnMut(&mut System, u64, &mut O) -> Stopped;

/// [`run_until`], where the computer is run by `slice`.
///
/// # Errors
/// Those of [`run`].
pub fn run_by<O: SystemObserver>(
    boot: &Boot<'_>,
    bounds: Bounds,
    console: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    (observer, slice): (&mut O, Slice<'_, O>),
    observed: &Observed<'_, O>,
) -> Result<BootRun, BootRunError> {
    let begin = Instant::now();
    let mut system = boot.load()?;

    let mut last = LastLines::default();
    let mut is_observed = observed.from == ObservedFrom::Start;
    let end = loop {
        let left = bounds.instructions_max.saturating_sub(system.executed());
        let size = if is_observed { SLICE } else { SLICE_BEFORE };
        let stopped = match is_observed {
            true => slice(&mut system, left.min(size), observer),
            false => system.run(left.min(size), &mut ()),
        };
        // In user mode nothing is on the kernel's stack of the task that runs.
        is_observed |= system.privilege() == 3;

        let written = system.devices().map(|devices| devices.take_output());
        if let Some(written) = written.filter(|written| !written.is_empty()) {
            last.add(&written);
            console(&written)?;
        }

        // The machine ended by itself, or this was the last slice.
        if stopped != Stopped::Limit || left <= size {
            break BootEnd::Stopped(stopped);
        }
        if (observed.is_enough)(observer) {
            break BootEnd::Enough;
        }
        if bounds.timeout.is_some_and(|most| begin.elapsed() >= most) {
            break BootEnd::Timeout;
        }
    };

    let unknown = system.devices().map(|devices| devices.unknown().collect());
    Ok(BootRun {
        end,
        instructions: system.executed(),
        now: system.now(),
        time: begin.elapsed(),
        last_lines: last.texts(),
        unknown_registers: system.unknown_registers(),
        unknown_accesses: unknown.unwrap_or_default(),
    })
}

/// The last lines of a text that comes in pieces.
#[derive(Default)]
struct LastLines {
    /// The last one may not have ended yet.
    lines: VecDeque<Vec<u8>>,
    is_ended: bool,
}

impl LastLines {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\r' {
                continue;
            }
            if byte == b'\n' {
                // An empty line says nothing of an end.
                self.is_ended = true;
                continue;
            }
            if self.is_ended || self.lines.is_empty() {
                self.is_ended = false;
                self.lines.push_back(Vec::new());
                if self.lines.len() > LAST_LINES {
                    self.lines.pop_front();
                }
            }
            if let Some(line) = self.lines.back_mut()
                && line.len() < LAST_LINE_BYTES_MAX
            {
                line.push(byte);
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let lines = self.lines.iter();
        lines
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{LAST_LINE_BYTES_MAX, LastLines};

    #[test]
    fn the_last_lines_are_kept() {
        let mut last = LastLines::default();
        assert_eq!(last.texts(), [""; 0]);
        for piece in ["1\r\n2\r\n", "\n\n3", "3\n4\n5\n6\n"] {
            last.add(piece.as_bytes());
        }
        assert_eq!(last.texts(), ["2", "33", "4", "5", "6"]);
        last.add(b"7");
        assert_eq!(last.texts(), ["33", "4", "5", "6", "7"]);
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut last = LastLines::default();
        last.add(&[b'x'; LAST_LINE_BYTES_MAX + 1]);
        last.add(b"\ny\n");
        assert_eq!(last.texts(), [&*"x".repeat(LAST_LINE_BYTES_MAX), "y"]);
    }
}
