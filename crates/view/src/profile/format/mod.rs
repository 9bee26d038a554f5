//! The output formats of profiles.

mod firefox;
mod folded;
mod no_cpu;
mod pprof;
mod protobuf;
mod speedscope;
pub(super) mod text;

use super::gathered::{GatherKind, Profile};
use std::io::{self, Write};

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A block for each sample, as `perf script` prints it.
    PerfScript,
    /// A line for each distinct stack, with its count, for flame graph tools.
    Folded,
    /// speedscope's JSON.
    Speedscope,
    /// The Firefox Profiler's processed profile, gzipped.
    Firefox,
    /// pprof's protocol buffer, gzipped.
    Pprof,
}

impl Format {
    /// The kind of profile that the format needs; `None` if it is written sample by sample.
    pub fn kind(self) -> Option<GatherKind> {
        match self {
            Format::PerfScript => None,
            Format::Folded => Some(GatherKind::Names),
            Format::Pprof => Some(GatherKind::Addresses),
            Format::Speedscope | Format::Firefox => Some(GatherKind::Times),
        }
    }

    /// Writes the profile, which must be of this format's kind. `name` is the name of the
    /// recording.
    pub fn write(self, profile: &Profile, name: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut out = io::BufWriter::with_capacity(1 << 16, out);
        match self {
            Format::PerfScript => {}
            Format::Folded => folded::write(profile, &mut out)?,
            Format::Speedscope => speedscope::write(profile, name, &mut out)?,
            Format::Firefox => firefox::write(profile, name, &mut out)?,
            Format::Pprof => pprof::write(profile, &mut out)?,
        }
        out.flush()
    }
}
