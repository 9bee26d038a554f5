//! Built-in recordings, which need no file, each with a short text: what you see, why, and what to try
//! next.

mod deferral;
mod pictured;
mod seed_004;
mod texts;

pub use texts::ALL;

use pictured::DemoStep;
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::run::RunError;
use unwind_sim_recordings::trace::Trace;

/// A built-in recording.
pub struct Demo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The recording, as a file would hold it: a trace or a perf.data.
    pub recording: &'static [u8],
    /// The case or program that was recorded, below `corpus/`.
    pub source: &'static str,
    text: Narration,
}

/// What a demo tells of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DemoNote {
    /// The sample, from 0.
    pub sample: u64,
    /// The text: paragraphs between empty lines, whose lines may be joined, and indented lines.
    pub text: String,
}

/// How a demo is told.
enum Narration {
    /// By pictures of its samples.
    Pictured(&'static [DemoStep]),
    /// By a function.
    OfTrace(fn(&Input) -> Result<String, RunError>),
    /// By the records of a perf.data.
    Deferral,
}

impl Demo {
    /// What it shows, as text.
    ///
    /// # Errors
    /// If the recording is damaged, which a test rules out.
    pub fn show(&self) -> Result<String, RunError> {
        match &self.text {
            Narration::Pictured(parts) => pictured::text(&self.input()?, parts),
            Narration::OfTrace(text) => text(&self.input()?),
            Narration::Deferral => Ok(deferral::text(self.recording)),
        }
    }

    /// The options of `step` that show what the demo tells: its unwinders, its start paths and its
    /// view of memory.
    pub fn options(&self) -> Vec<String> {
        match &self.text {
            Narration::Pictured(parts) => pictured::options(parts),
            Narration::OfTrace(_) => seed_004::OPTIONS.map(str::to_owned).to_vec(),
            Narration::Deferral => Vec::new(),
        }
    }

    /// What it tells, without the pictures, in the order of the samples; at least one note of a trace.
    pub fn notes(&self) -> Vec<DemoNote> {
        match &self.text {
            Narration::Pictured(parts) => pictured::notes(parts),
            Narration::OfTrace(_) => vec![seed_004::note()],
            Narration::Deferral => Vec::new(),
        }
    }

    /// Whether the recording is a trace, whose samples have a true chain.
    pub fn is_trace(&self) -> bool {
        !matches!(self.text, Narration::Deferral)
    }

    /// The recording, if it is a trace.
    ///
    /// # Errors
    /// If it is not one, or damaged.
    pub fn input(&self) -> Result<Input, RunError> {
        let trace = Trace::from_bytes(self.recording).map_err(InputError::from)?;
        Ok(Input::from_trace(trace))
    }
}

#[cfg(test)]
mod tests;
