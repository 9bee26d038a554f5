//! Stack copies of `perf record --call-graph dwarf`, unwound for the text of `perf script`.
//!
//! perf prints the addresses of libdw: where a frame is a return address, the one before it.

use crate::engine::{Engine, Setting};
use crate::profile::{How, Single};
use unwind_sim_corpus::files::FinderOptions;
use unwind_sim_perf::PerfFile;
use unwind_sim_perf::data::{Event, Sample};
use unwind_sim_perf::script::Unwind;

/// An unwinder behind the printer.
pub(super) struct Stacks<'a>(Single<'a>);

impl<'a> Stacks<'a> {
    /// At the recording's beginning.
    pub(super) fn new(file: &PerfFile<'_>, files: &FinderOptions, engine: &'a Engine) -> Self {
        let how = How {
            engine,
            variant: None,
            setting: Setting::default(),
        };
        Self(Single::new(file, files, how))
    }
}

impl Unwind for Stacks<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
    }

    fn unwind(&mut self, sample: &Sample<'_>, frames_max: usize, chain: &mut Vec<u64>) {
        let Some((pcs, exact)) = self.0.walk(sample) else {
            return;
        };
        let numbered = pcs.iter().zip(0u32..).take(frames_max);
        chain.extend(numbered.map(|(&pc, at)| {
            // The trampoline of a signal handler was not called either: libdw takes it for exact
            // where what it interrupted follows.
            let is_exact = at == 0 || exact.contains(&at) || exact.contains(&(at + 1));
            pc.wrapping_sub(u64::from(!is_exact))
        }));
    }
}
