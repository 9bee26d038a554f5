//! NMIs, sent while a kernel boots: each one is handled on a copy of the computer's state, so that the boot
//! goes on as if there had been none.

use super::walks::KernelWalked;
use super::{Checker, KernelWalks};
use std::collections::HashSet;
use std::ops::Range;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{Stopped, System, SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Observer};

/// The most instructions of a handler; those of the kernels that were tried need less than a tenth.
const HANDLER_MAX: u64 = 1 << 20;

/// When NMIs are sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NmiPlan {
    /// Whenever so many instructions were executed, in user mode or in the kernel.
    pub every: Option<u64>,
    /// Before each instruction at these addresses, when it is executed for the first time, and once more
    /// if the kernel was entered from user mode in one case and not in the other.
    pub at: Vec<Range<u64>>,
    /// The addresses at which handlers are walked at each instruction: entry code.
    pub entry: Option<Range<u64>>,
}

/// What became of the NMIs.
#[derive(Clone, Debug, Default)]
pub struct NmiResults {
    /// How many were sent.
    pub sent: u64,
    /// How many handlers returned to the interrupted instruction.
    pub returned: u64,
    /// The distinct instructions of the kernel that were interrupted.
    pub places: u64,
    /// Instructions of handlers.
    pub instructions: u64,
    /// Instructions of handlers at which the true caller was not known.
    pub unknown: u64,
    /// Returns that the shadow stack could not explain.
    pub failures: u64,
    /// The first handler that did not return: where it was sent, and what happened.
    pub lost: Option<(u64, String)>,
    /// What became of the walks in handlers.
    pub walks: Vec<KernelWalked>,
}

/// Sends NMIs while the checker observes.
pub(super) struct Nmis<'p> {
    plan: &'p NmiPlan,
    results: NmiResults,
    walks: Option<Box<KernelWalks>>,
    met: HashSet<(u64, bool)>,
    places: HashSet<u64>,
}

impl<'p> Nmis<'p> {
    pub(super) fn new(plan: &'p NmiPlan, walks: Option<KernelWalks>) -> Nmis<'p> {
        Nmis {
            plan,
            results: NmiResults::default(),
            walks: walks.map(Box::new),
            met: HashSet::new(),
            places: HashSet::new(),
        }
    }

    /// Executes at most this number of instructions of the boot, and sends what is due.
    pub(super) fn run(
        &mut self,
        system: &mut System,
        limit: u64,
        observer: &mut Stopping<'_, '_>,
    ) -> Stopped {
        let end = system.executed().saturating_add(limit);
        loop {
            let now = system.executed();
            if now >= end {
                return Stopped::Limit;
            }
            let next = self.plan.every.map(|every| now - now % every + every);
            observer.at = self.plan.at.clone();
            let stopped = system.run(next.unwrap_or(end).min(end) - now, observer);
            if stopped != Stopped::Limit {
                return stopped;
            }
            if next == Some(system.executed()) {
                self.send(system, observer);
            }
            // Inside the ranges, one instruction at a time.
            while observer.has_stopped() && system.executed() < end {
                let rip = system.machine.core.state.rip;
                if !observer.at.iter().any(|range| range.contains(&rip)) {
                    break;
                }
                if self.met.insert((rip, observer.checker.is_at_root())) {
                    self.send(system, observer);
                }
                observer.at.clear();
                let stopped = system.run(1, observer);
                observer.at = self.plan.at.clone();
                if stopped != Stopped::Limit {
                    return stopped;
                }
            }
            observer.has_stopped = false;
        }
    }

    /// Sends an NMI now, follows its handler, and goes back.
    fn send(&mut self, system: &mut System, observer: &mut Stopping<'_, '_>) {
        let snapshot = system.snapshot();
        let checker = &mut *observer.checker;
        let saved = checker.save();
        let before = checker.truth();
        std::mem::swap(checker.kernel_walks(), &mut self.walks);

        let start = system.executed();
        let state = &system.machine.core.state;
        let rip = state.rip;
        if system.privilege() == 0 {
            self.places.insert(rip);
        }
        observer.back = Some((rip, system.machine.core.state.gpr(4)));
        observer.at.clear();
        if let Some(devices) = system.devices() {
            devices.inject_nmi();
        }
        let why = self.follow(system, start + HANDLER_MAX, observer);

        self.results.sent += 1;
        match why {
            None => self.results.returned += 1,
            Some(why) => {
                self.results.lost.get_or_insert((rip, why));
            }
        }
        self.results.instructions += system.executed() - start;
        let checker = &mut *observer.checker;
        let truth = checker.truth();
        self.results.unknown += truth.unknown - before.unknown;
        self.results.failures += truth.failures() - before.failures();
        std::mem::swap(checker.kernel_walks(), &mut self.walks);
        checker.restore(saved);
        observer.back = None;
        observer.has_stopped = false;
        if let Err(error) = system.restore(&snapshot) {
            // It is held, and nothing older was restored.
            self.results.lost.get_or_insert((rip, error.to_string()));
        }
    }

    /// Runs the handler until it returns. Returns what else happened.
    fn follow(
        &self,
        system: &mut System,
        end: u64,
        observer: &mut Stopping<'_, '_>,
    ) -> Option<String> {
        let entry: Vec<Range<u64>> = self.plan.entry.iter().cloned().collect();
        // The first step delivers the NMI.
        let mut steps = true;
        while observer.back.is_some() {
            if system.executed() >= end {
                return Some(format!("no return within {HANDLER_MAX} instructions"));
            }
            let limit = if steps { 1 } else { end - system.executed() };
            observer.at = if steps { Vec::new() } else { entry.clone() };
            observer.has_stopped = false;
            if steps {
                observer.checker.walk_next();
            }
            let stopped = system.run(limit, observer);
            if stopped != Stopped::Limit {
                return Some(stopped.to_string());
            }
            let rip = system.machine.core.state.rip;
            steps = entry.iter().any(|range| range.contains(&rip));
        }
        None
    }

    pub(super) fn finish(mut self) -> NmiResults {
        self.results.places = self.places.len() as u64;
        self.results.walks = self.walks.map_or_else(Vec::new, |walks| walks.finish());
        self.results
    }
}

/// A checker that stops the machine in front of code.
pub(super) struct Stopping<'c, 'a> {
    pub(super) checker: &'c mut Checker<'a>,
    /// The addresses in front of which it stops.
    at: Vec<Range<u64>>,
    has_stopped: bool,
    /// Where the handler returns to: rip and rsp. `None` if it has, or if there is none.
    back: Option<(u64, u64)>,
}

impl<'c, 'a> Stopping<'c, 'a> {
    pub(super) fn new(checker: &'c mut Checker<'a>) -> Stopping<'c, 'a> {
        Stopping {
            checker,
            at: Vec::new(),
            has_stopped: false,
            back: None,
        }
    }

    fn is_back(&mut self, core: &Core) {
        let state = &core.state;
        if self.back == Some((state.rip, state.gpr(4))) {
            self.back = None;
            self.has_stopped = true;
        }
    }
}

impl Observer for Stopping<'_, '_> {
    const STOPS: bool = true;

    fn stops(&mut self, code: Range<u64>) -> bool {
        let mut at = self.at.iter();
        self.has_stopped = at.any(|at| code.start < at.end && at.start < code.end);
        self.has_stopped
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        self.checker.enter(core, block, operations, end)
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.checker.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.checker.after(core, insn, next);
    }

    #[inline]
    fn next_wanted(&mut self, insn: &Executed) -> usize {
        self.checker.next_wanted(insn)
    }

    fn stopped(&mut self, insn: &Executed, left: u64) {
        self.checker.stopped(insn, left);
    }

    #[inline]
    fn guard(&self) -> Guard {
        self.checker.guard()
    }

    fn guarded(&mut self, core: &Core, insn: &Executed) {
        self.checker.guarded(core, insn);
    }
}

impl SystemObserver for Stopping<'_, '_> {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.checker.entered(entry, core);
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.checker.returned(before, core);
        self.is_back(core);
    }

    fn left(&mut self, core: &Core) {
        self.checker.left(core);
        self.is_back(core);
    }
}
