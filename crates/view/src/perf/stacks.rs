//! Unwinds the stack copies of `perf record --call-graph dwarf` for the text of `perf script`.
//!
//! perf prints libdw's addresses: for a return address, the address before it. In code without a
//! row libdw continues with the frame pointer (elfutils, `backends/x86_64_unwind.c`), even from an
//! unmapped address such as a probe's trampoline. perf stops libdw at memory that is not backed by
//! a file, and does not print that frame (`tools/perf/util/unwind-libdw.c`, `entry`, Linux 7.2).

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

/// The behaviour of libdw and perf together: `.eh_frame`, and the frame pointer where it has no
/// row.
pub(super) fn libdw() -> WithFallback {
    WithFallback::new(Box::new(Dwarf::new()), Box::new(FramePointerInFiles))
}

/// The frame pointer unwinder, only where a file is mapped.
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

/// Unwinds stacks for the printer.
pub(super) struct Stacks<'a> {
    single: Single<'a>,
    /// Whether to stop where perf and libdw together stop.
    as_perf: bool,
}

impl<'a> Stacks<'a> {
    /// An unwinder at the start of the recording. `as_perf`: `engine` is [`libdw`], and its chains
    /// are cut as perf cuts them.
    pub(super) fn new(
        file: &PerfFile<'_>,
        files: &FinderOptions,
        engine: &'a Engine,
        as_perf: bool,
    ) -> Self {
        let how = How {
            engine,
            variant: None,
            setting: Setting::default(),
        };
        Self {
            single: Single::new(file, files, how),
            as_perf,
        }
    }
}

impl Unwind for Stacks<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.single.event(event);
    }

    fn unwind(&mut self, sample: &Sample<'_>, frames_max: usize, chain: &mut Vec<u64>) -> bool {
        let Some(Walked { pcs, exact, space }) = self.single.walk(sample) else {
            return false;
        };
        // At that point perf has not reported a file to libdw, which cannot start without one.
        if self.as_perf && pcs.first().is_none_or(|&pc| space.find(pc).is_none()) {
            return true;
        }

        // The chain may already have the kernel's frames.
        let begin = chain.len();
        // The walk has return addresses; the text has the addresses before them, within the calls.
        let numbered = pcs.iter().zip(0u32..).take(frames_max);
        let addresses = numbered.map(|(&pc, at)| {
            // The trampoline of a signal handler was not called either: libdw treats its address as
            // exact if the interrupted frame follows.
            let is_exact = at == 0 || exact.contains(&at) || exact.contains(&(at + 1));
            pc.wrapping_sub(u64::from(!is_exact))
        });

        // What follows is what perf does with libdw's frames.
        if !self.as_perf {
            chain.extend(addresses);
            return true;
        }
        // perf does not print an address of 0.
        chain.extend(addresses.filter(|&address| address != 0));
        // A walk ends at a mapping without a file, so only the last frame can lie in one.
        let last = chain[begin..].last().and_then(|&pc| space.find(pc));
        if last.is_some_and(|mapping| mapping.image.is_none()) {
            chain.pop();
        }
        true
    }
}
