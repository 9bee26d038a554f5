//! Stack copies of `perf record --call-graph dwarf`, unwound for the text of `perf script`.
//!
//! perf prints the addresses of libdw: where a frame is a return address, the one before it. In
//! code without a row libdw goes on by the frame pointer (elfutils, `backends/x86_64_unwind.c`),
//! also from an address where nothing is mapped, such as a probe's trampoline. Into memory that no file backs perf does not let it go, and does not print that frame
//! (`tools/perf/util/unwind-libdw.c`, `entry`, Linux 7.2).

use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::stacks::{How, Single, Walked};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{Event, Sample};
use unwind_sim_perf_script::Unwind;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_unwind::cache::{Cache, RowId};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::RegMask;
use unwind_sim_unwind::unwinder::WithFallback;

/// What libdw and perf do together: `.eh_frame`, and where it has no row the frame pointer.
pub(super) fn libdw() -> WithFallback {
    WithFallback::new(Box::new(Dwarf::new()), Box::new(FramePointerInFiles))
}

/// The frame pointer, where a file is mapped.
struct FramePointerInFiles;

impl Finder for FramePointerInFiles {
    fn name(&self) -> &str {
        FramePointer.name()
    }

    fn carries(&self) -> RegMask {
        FramePointer.carries()
    }

    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        match mapping.image {
            Some(_) => FramePointer.find(mapping, svma, cache),
            None => Err(Reason::NoImage { pc: svma }),
        }
    }

    fn find_outside(&self, cache: &mut Cache) -> Option<Result<RowId, Reason>> {
        Some(FramePointer.row(cache))
    }

    fn serves_failures(&self) -> bool {
        false
    }
}

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
        let Some(Walked { pcs, exact, space }) = self.0.walk(sample) else {
            return;
        };
        // perf has given libdw no file yet, and it does not begin without one.
        if pcs.first().is_none_or(|&pc| space.find(pc).is_none()) {
            return;
        }
        let begin = chain.len();
        let numbered = pcs.iter().zip(0u32..).take(frames_max);
        let addresses = numbered.map(|(&pc, at)| {
            // The trampoline of a signal handler was not called either: libdw takes it for exact
            // where what it interrupted follows.
            let is_exact = at == 0 || exact.contains(&at) || exact.contains(&(at + 1));
            pc.wrapping_sub(u64::from(!is_exact))
        });
        // What stands for nothing in perf's list is not printed.
        chain.extend(addresses.filter(|&address| address != 0));
        // The walk ends where there is no file: only the last can be such a frame.
        let last = chain[begin..].last().and_then(|&pc| space.find(pc));
        if last.is_some_and(|mapping| mapping.image.is_none()) {
            chain.pop();
        }
    }
}
