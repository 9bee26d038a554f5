//! Compares a table with the truth at every executed instruction: the generator's own judgement,
//! with which the findings of `verify` are compared.

use super::row::{CallerValues, RBP_SAVED, SAVED, Table, evaluate};
use std::collections::{BTreeSet, HashSet};
use unwind_sim_emulator::linux::ProcessObserver;
use unwind_sim_emulator::machine::Executed;
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_unwind::regs::Reg;

/// Observes a run.
pub(super) struct TableObserver<'a> {
    truth: &'a Table,
    other: &'a Table,
    /// Addresses that were executed.
    pub(super) executed: HashSet<u64>,
    /// Executed addresses at which the tables differ.
    pub(super) met: BTreeSet<u64>,
    /// Where the other table is wrong, and in which register. rsp means the CFA; rip means the
    /// return address, no caller at all, or the signal frame flag.
    pub(super) wrong: BTreeSet<(u64, Reg)>,
}

impl<'a> TableObserver<'a> {
    pub(super) fn new(truth: &'a Table, other: &'a Table) -> TableObserver<'a> {
        TableObserver {
            truth,
            other,
            executed: HashSet::new(),
            met: BTreeSet::new(),
            wrong: BTreeSet::new(),
        }
    }

    /// Whether the other table says the same of a return address and of the call before it.
    fn is_read_alike(&self, address: u64) -> bool {
        let [behind, call] = [address, address.wrapping_sub(1)].map(|at| self.other.find(at));
        behind.map(|(_, row)| row) == call.map(|(_, row)| row)
    }

    /// `misread`: the caller's row is looked up where another one is.
    fn compare(&mut self, address: u64, truth: &CallerValues, given: &CallerValues, misread: bool) {
        // A wrong return address follows from a wrong CFA.
        let wrong_cfa = given.cfa.is_some() && given.cfa != truth.cfa;
        if wrong_cfa {
            self.wrong.insert((address, Reg::Rsp));
        }
        // Without a CFA, or without a return address, there is no caller at all.
        let no_caller = given.cfa.is_none() || given.ra.is_none_or(|ra| ra == 0);
        let is_right = given.ra == truth.ra;
        if !no_caller && is_right && misread || !wrong_cfa && (no_caller || !is_right) {
            self.wrong.insert((address, Reg::Rip));
        }
        if no_caller {
            return;
        }
        for (index, (given, truth)) in given.saved.iter().zip(truth.saved).enumerate() {
            // An undefined value is not a claim.
            if given.is_some() && *given != truth {
                self.wrong.insert((address, Reg::CALLEE_SAVED[index]));
            }
        }
    }
}

impl Observer for TableObserver<'_> {
    fn before(&mut self, core: &Core, insn: &Executed) {
        let address = insn.rip;
        self.executed.insert(address);
        let Some((unit, row)) = self.truth.find(address) else {
            return;
        };
        let other = self.other.find(address);
        if other.is_some_and(|(u, r)| u.signal == unit.signal && r == row) {
            return;
        }
        self.met.insert(address);
        let Some((other_unit, other)) = other else {
            self.wrong.insert((address, Reg::Rip));
            return;
        };
        let (truth, given) = (evaluate(row, core), evaluate(other, core));
        let misread = match (unit.signal, other_unit.signal) {
            // The caller's row is looked up at the return address itself.
            (false, true) => truth.ra.is_none_or(|ra| !self.is_read_alike(ra)),
            (marked, other) => marked != other,
        };
        self.compare(address, &truth, &given, misread);
    }

    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl ProcessObserver for TableObserver<'_> {}

const _: () = assert!(SAVED[RBP_SAVED] == super::row::RBP);
