//! `--schedule` and `--print-schedule`: which thread of the emulated machine runs when.

use super::output;
use anyhow::{Context, Result, bail};
use std::cell::OnceCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use unwind_sim_emulator::linux::End;
use unwind_sim_emulator::linux::{Outcome, ProcessOptions, ScheduleOutcome, Turn};
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;

/// Size of the largest schedule, bytes.
const BYTES_MAX: u64 = 1 << 28;

/// Options for the schedule of threads.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ScheduleArgs {
    /// Let threads run in the turns of this file (- for standard input), as --print-schedule writes
    /// it: words THREAD:INSTRUCTIONS, or THREAD:* until the thread waits. After the last turn the
    /// seed decides.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Write the turns that threads took to this file (- for standard output).
    #[arg(long, value_name = "FILE")]
    print_schedule: Option<PathBuf>,
    /// The lines of the given turns.
    #[arg(skip)]
    lines: OnceCell<Vec<usize>>,
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

impl ScheduleArgs {
    /// Reads the schedule, if one is given.
    pub(crate) fn apply(&self, options: &mut ProcessOptions) -> Result<()> {
        options.keeps_schedule = self.print_schedule.is_some();
        let Some(path) = &self.schedule else {
            return Ok(());
        };

        let cannot = || format!("cannot read the schedule {}", path.printable());
        // One byte more than allowed is read, to tell a file of the largest size from a larger one.
        let mut bytes = Vec::new();
        if is_stream(path) {
            std::io::stdin().take(BYTES_MAX + 1).read_to_end(&mut bytes)
        } else {
            let file = open::stream(path).with_context(cannot)?;
            file.take(BYTES_MAX + 1).read_to_end(&mut bytes)
        }
        .with_context(cannot)?;

        if bytes.len() as u64 > BYTES_MAX {
            bail!("the schedule {} is larger than 256 MiB", path.printable());
        }

        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| anyhow::anyhow!("it is not text"));
        let turns = text.and_then(|text| Ok(Turn::parse(&text)?));
        let (turns, lines): (Vec<Turn>, _) = turns.with_context(cannot)?.into_iter().unzip();

        // The lines are kept apart, for the message about a turn that does not fit.
        options.schedule = Some(turns.into());
        // A command reads it once.
        let _ = self.lines.set(lines);
        Ok(())
    }

    /// Whether the turns are to be written.
    pub(crate) fn is_printed(&self) -> bool {
        self.print_schedule.is_some()
    }

    /// Writes the schedule of a run that has ended, if that is wanted.
    ///
    /// # Errors
    /// If it cannot be written, or the given one does not fit the program.
    pub(crate) fn finish(&self, followed: &ScheduleOutcome, end: &End) -> Result<()> {
        if let Some(path) = &self.print_schedule {
            let path = Some(&**path).filter(|path| !is_stream(path));
            let text = Turn::print(&followed.turns);
            output::to_file_or(path, output::raw_stdout(), |to| {
                Ok(to.write_all(text.as_bytes())?)
            })?;
        }
        match (end, followed.left) {
            (End::Outcome(Outcome::Misfit(misfit)), _) => {
                bail!("{}: {misfit}", self.place(misfit.number))
            }
            (
                End::Outcome(Outcome::Exited(_) | Outcome::Killed { .. } | Outcome::Blocked { .. }),
                Some(turn),
            ) => bail!(
                "{}: the schedule does not fit: the run ended before the end of turn {turn}",
                self.place(turn)
            ),
            _ => Ok(()),
        }
    }

    /// The file and line of a turn, given by number, from 1.
    fn place(&self, turn: usize) -> String {
        let name = self.schedule.as_deref().unwrap_or(Path::new("-"));
        let lines = self.lines.get();
        let line = lines.and_then(|lines| lines.get(turn.checked_sub(1)?));
        match line {
            Some(line) => format!("{}, line {line}", name.printable()),
            None => name.printable().to_string(),
        }
    }

    /// The option that determines what runs, as on the command line.
    pub(crate) fn schedule(&self) -> Option<&Path> {
        self.schedule.as_deref()
    }

    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        match (&self.schedule, &self.print_schedule) {
            (Some(_), _) => Some("--schedule"),
            (None, Some(_)) => Some("--print-schedule"),
            (None, None) => None,
        }
    }
}
