//! A kernel that the machine boots, which can go to any state of its run, forwards and backwards, and
//! give the sample there.
//!
//! A state is the one before an instruction, and the one before an exception or interrupt is delivered:
//! so a state's number is that of the instructions executed and of these deliveries.
//!
//! There are two computers of the same run. The *scout* goes ahead, and leaves a checkpoint every so
//! many states (`checkpoints`). The *walker* goes to what is asked for: it exchanges the memory that
//! differs between the checkpoint where it comes from and the one before that place, and executes the
//! rest. On its way it takes snapshots, so that the way back is short, too.

mod checkpoints;
mod computer;
mod patched;
mod seen;

use crate::boot::{Boot, LoadError};
use crate::kernel::world::KernelLayout;
use crate::kernel_stacks::KernelPlaces;
use crate::reversible::{Entry, Look, ReversibleRun, RunEnd, RunThread};
use checkpoints::Checkpoints;
use computer::{Computer, Known, Search};
use seen::Seen;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::system::{Stopped, SystemSnapshot};
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::model;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::regs::Regs;

/// Maximum number of snapshots of the walker; then the oldest but the first are dropped.
const SNAPSHOTS_MAX: usize = 64;
/// States between questions whether to stop.
const SLICE: u64 = 1 << 18;
/// Maximum number of entries of ring 0 that are known; what comes later is not found.
const ENTRIES_MAX: usize = 1 << 22;

/// How many states are between what is kept.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// Between the first checkpoints.
    checkpoints: u64,
    /// Between snapshots of the walker, which executes so many states rather than go to a checkpoint.
    snapshots: u64,
}

impl Spacing {
    const DEFAULT: Spacing = Spacing {
        checkpoints: 1 << 20,
        snapshots: 1 << 18,
    };
}

/// The kernel that runs, beside its computer.
#[derive(Debug)]
pub struct KernelSubject {
    /// Its image.
    pub image: KernelImage,
    /// Its file.
    pub path: PathBuf,
    /// Where it switches between tasks.
    pub places: KernelPlaces,
}

/// A run of a kernel that can go back.
pub struct ReversibleKernel {
    seen: Seen,
    scout: Computer,
    checkpoints: Checkpoints,
    /// Where ring 0 was entered, as far as the scout has come.
    entries: Vec<Entry>,
    walker: Computer,
    /// The number of the checkpoint that the walker comes from, and its snapshots since, of which the
    /// first one is at that checkpoint.
    base: usize,
    snapshots: Vec<(SystemSnapshot, Known)>,
    /// The numbers of the states at which an NMI comes, in order.
    nmis: Arc<[u64]>,
    spacing: Spacing,
    limit: u64,
    stop: Arc<AtomicBool>,
}

impl ReversibleKernel {
    /// Boots a kernel. Long ways end early while `stop` is set.
    ///
    /// # Errors
    /// If the kernel cannot be loaded.
    pub fn start(
        boot: &Boot<'_>,
        subject: KernelSubject,
        stop: Arc<AtomicBool>,
    ) -> Result<ReversibleKernel, LoadError> {
        ReversibleKernel::start_spaced(boot, subject, stop, Spacing::DEFAULT)
    }

    fn start_spaced(
        boot: &Boot<'_>,
        subject: KernelSubject,
        stop: Arc<AtomicBool>,
        spacing: Spacing,
    ) -> Result<ReversibleKernel, LoadError> {
        let bias = boot.options.slide;
        let mut scout = Computer::start(boot, &subject.places)?;
        let mut walker = Computer::start(boot, &subject.places)?;
        let checkpoints = Checkpoints::new(&mut scout, spacing.checkpoints);
        let first = (walker.system.snapshot(), walker.known().clone());
        // Without types, states have no stacks of a kernel.
        let layout = KernelLayout::new(&subject.image, bias).ok().map(Arc::new);
        let mut run = ReversibleKernel {
            seen: Seen::new(subject.image, &subject.path, layout, bias),
            scout,
            checkpoints,
            entries: Vec::new(),
            walker,
            base: 0,
            snapshots: vec![first],
            nmis: Arc::new([]),
            spacing,
            limit: u64::MAX,
            stop,
        };
        run.seen.arrive(&run.walker);
        Ok(run)
    }

    /// Whether the scout can go on.
    fn has_more(&self) -> bool {
        self.scout.end.is_none() && self.scout.number() < self.limit
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn explore_to(&mut self, number: u64) {
        let number = number.min(self.limit);
        while self.scout.end.is_none() && self.scout.number() < number && !self.is_stopped() {
            let at = self.scout.number();
            let due = self.checkpoints.due();
            self.scout.run(number.min(due).min(at + SLICE));
            if let Some(entry) = self
                .scout
                .entered()
                .filter(|_| self.entries.len() < ENTRIES_MAX)
            {
                self.entries.push(Entry {
                    number: self.scout.number(),
                    vector: entry.vector,
                    from_user: entry.from_user,
                });
            }
            if self.scout.number() >= due && self.scout.end.is_none() {
                self.checkpoints.leave(&mut self.scout);
                if self.checkpoints.is_too_much() {
                    self.thin();
                }
            }
        }
    }

    /// Drops every second checkpoint. The walker may come from one of these.
    fn thin(&mut self) {
        let here = self.walker.number();
        let kept = self.checkpoints.kept_before(self.base);
        self.rebase(kept);
        self.checkpoints.thin();
        self.base = self.checkpoints.last_at(self.walker.number());
        self.walk_to(here);
    }

    /// Goes to a checkpoint.
    fn rebase(&mut self, to: usize) {
        let restored = self
            .snapshots
            .first()
            .map(|(base, _)| self.walker.system.restore(base));
        // It is held, and the walker never drops what it has saved.
        debug_assert!(matches!(restored, Some(Ok(()))), "{restored:?}");
        self.snapshots.clear();
        self.checkpoints.lead(self.base, to, &mut self.walker);
        self.base = to;
        self.take_snapshot();
    }

    /// Goes to the nearest earlier state that is kept, if that is nearer than this one.
    fn jump(&mut self, number: u64) {
        let here = self.walker.number();
        let checkpoint = self.checkpoints.last_at(number);
        let kept = self.checkpoints.number(checkpoint);
        if here <= number && here >= kept {
            return;
        }
        let near = self
            .snapshots
            .iter()
            .rposition(|(_, known)| known.number <= number);
        if let Some(near) = near
            && self.snapshots[near].1.number >= kept
        {
            self.snapshots.truncate(near + 1);
            let (snapshot, known) = &self.snapshots[near];
            if self.walker.system.restore(snapshot).is_ok() {
                self.walker.set_known(known.clone());
                return;
            }
        }
        self.rebase(checkpoint);
    }

    fn walk_to(&mut self, number: u64) {
        while self.walker.end.is_none() && self.walker.number() < number && !self.is_stopped() {
            let every = self.spacing.snapshots;
            let due = (self.walker.number() / every + 1) * every;
            self.walker.run_to(number.min(due));
            if self.walker.number() >= due && self.walker.end.is_none() {
                self.take_snapshot();
            }
        }
    }

    fn take_snapshot(&mut self) {
        let number = self.walker.number();
        if self
            .snapshots
            .last()
            .is_some_and(|(_, last)| last.number >= number)
        {
            return;
        }
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            self.snapshots.remove(1);
        }
        let known = self.walker.known().clone();
        self.snapshots.push((self.walker.system.snapshot(), known));
    }

    /// [`ReversibleRun::go_to`], of the walker only.
    fn walk(&mut self, number: u64) -> u64 {
        let number = number.min(self.limit);
        let ahead = number.checked_sub(self.walker.number());
        if ahead.is_none_or(|ahead| ahead > self.spacing.snapshots) {
            // The way there is explored first, since it may be needed again.
            self.explore_to(number);
            self.jump(number.min(self.scout.number()));
        }
        self.walk_to(number);
        self.walker.number()
    }

    /// Goes on to `until`, and looks on this way.
    fn search(&mut self, search: Search, until: u64) -> Search {
        match search.addresses.is_some() {
            // Only blocks with these addresses are looked at.
            true => self.walker.search_addresses(search, until),
            false => {
                self.walker.set_search(search);
                self.walk_to(until);
                let nothing = || Search::new(Box::new(nowhere), None, self.seen.place());
                self.walker.take_search().unwrap_or_else(nothing)
            }
        }
    }
}

impl ReversibleRun for ReversibleKernel {
    fn set_limit(&mut self, states_max: u64) {
        self.limit = states_max;
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn executed(&self) -> u64 {
        self.walker.number()
    }

    fn end(&self) -> Option<RunEnd> {
        let ended = [&self.scout, &self.walker]
            .into_iter()
            .find_map(|computer| {
                let end = computer.end.as_ref()?;
                Some((end, computer.number()))
            });
        let (end, number) = match ended {
            Some(ended) => ended,
            None if self.scout.number() >= self.limit => (&Stopped::Limit, self.limit),
            None => return None,
        };
        Some(RunEnd {
            text: end.to_string(),
            // A kernel that has halted has no next instruction.
            states: number + u64::from(!is_over(end)),
            is_modelled: !matches!(end, Stopped::Unmodelled { .. }),
        })
    }

    fn has_exited(&self) -> bool {
        self.walker.end.as_ref().is_some_and(is_over)
    }

    fn explored(&self) -> u64 {
        self.scout.number()
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    fn world(&self) -> &World {
        &self.seen.world
    }

    fn core(&self) -> &Core {
        &self.walker.system.machine.core
    }

    fn task(&self) -> Task {
        self.seen.task(self.core())
    }

    fn registers(&self) -> Regs {
        self.seen.registers(&self.walker)
    }

    fn auxv(&self) -> &[u8] {
        &[]
    }

    fn threads(&self) -> Vec<RunThread> {
        self.seen.threads(&self.walker)
    }

    fn explore(&mut self, states: u64) -> bool {
        let until = self.scout.number().saturating_add(states);
        self.explore_to(until);
        self.has_more()
    }

    fn go_to(&mut self, number: u64) -> u64 {
        let there = self.walk(number);
        self.seen.arrive(&self.walker);
        there
    }

    fn first(&mut self, mut look: Box<dyn Look>, from: u64) -> Option<u64> {
        if self.walk(from) != from {
            return None;
        }
        let addresses = look.addresses(&self.seen.world);
        if addresses.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let mut search = Search::new(look, addresses, self.seen.place());
        while self.walker.end.is_none() && !self.is_stopped() {
            let until = self.walker.number() + SLICE;
            // Where nobody has been yet, checkpoints are left, so that the way back is short.
            self.explore_to(until);
            search = self.search(search, until.min(self.limit));
            if search.first.is_some() || self.walker.number() < until {
                break;
            }
        }
        search.first
    }

    fn last(&mut self, mut look: Box<dyn Look>, mut end: u64) -> Option<u64> {
        let addresses = look.addresses(&self.seen.world);
        if addresses.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let mut search = Search::new(look, addresses, self.seen.place());
        while end > 0 && !self.is_stopped() {
            let begin = (end - 1) / SLICE * SLICE;
            if self.walk(begin) != begin {
                return None;
            }
            let is_here = search.is_at(&self.walker);
            search = self.search(search, end - 1);
            let found = search.last.or(is_here.then_some(begin));
            if found.is_some() {
                return found;
            }
            end = begin;
        }
        None
    }

    fn entry(&mut self, from: u64, is_forward: bool) -> Option<Entry> {
        if !is_forward {
            self.explore_to(from);
            let before = self.entries.partition_point(|entry| entry.number < from);
            return before.checked_sub(1).map(|index| self.entries[index]);
        }
        loop {
            let next = self.entries.partition_point(|entry| entry.number <= from);
            if let Some(entry) = self.entries.get(next) {
                return Some(*entry);
            }
            let at = self.scout.number();
            if !self.has_more() || self.entries.len() >= ENTRIES_MAX || self.is_stopped() {
                return None;
            }
            self.explore_to(at + SLICE);
        }
    }

    fn is_kernel(&self) -> bool {
        true
    }

    fn send_nmi(&mut self, number: u64) {
        let kept = self.checkpoints.last_at(number);
        self.rebase(kept);
        self.checkpoints.truncate(kept, &mut self.scout);
        self.entries.retain(|entry| entry.number <= number);
        let earlier = self.nmis.iter().copied().filter(|&at| at < number);
        self.nmis = earlier.chain([number]).collect();
        for computer in [&mut self.scout, &mut self.walker] {
            computer.set_nmis(self.nmis.clone());
        }
    }

    fn sample(&self) -> model::Sample<'static> {
        self.seen.sample(&self.walker)
    }
}

/// Nothing is found.
fn nowhere(_: &Core, _: u64, _: Task, _: &World) -> bool {
    false
}

/// Whether a kernel that ended so executes nothing any longer.
fn is_over(end: &Stopped) -> bool {
    matches!(
        end,
        Stopped::Halted
            | Stopped::PoweredOff
            | Stopped::WaitsForEver
            | Stopped::Reset(_)
            | Stopped::TripleFault { .. }
    )
}

#[cfg(test)]
mod tests;
