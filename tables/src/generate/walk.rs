//! Follows a function from its entry along every way, and keeps what is known at each instruction.
//!
//! Unlike the walker of [`crate::proof`] it has no rows to go by: a call returns unless its callee is
//! known not to, and ways that disagree spoil all that they lead to.

mod leave;

use super::function::{Function, Gap};
use super::functions::Unit;
use super::rows;
use crate::file::File;
use crate::kernel::{Alternative, Edges};
use crate::proof::body::Body;
use crate::proof::exec::{Machine, push, refine};
use crate::proof::lsda::{CallSite, call_sites};
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use hashbrown::HashMap;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::Rule;

/// The maximum number of instructions executed for one function.
const STEPS_MAX: u32 = 1 << 20;
/// The maximum number of functions that are followed together: a function and its cold parts.
const PARTS_MAX: usize = 32;
/// The maximum number of instructions of an alternative.
const ALTERNATIVE_MAX: usize = 256;

/// What following a function gave, beside its rows.
pub struct Followed {
    /// Whether it may return.
    pub returns: bool,
    /// The functions that it calls (svma).
    pub callees: Vec<u64>,
}

/// What is known before an instruction.
pub struct Known {
    /// The state on all ways.
    pub state: State,
    /// Length of the instruction, bytes.
    pub len: u8,
    /// Whether ways disagree here or before.
    pub is_spoilt: bool,
}

struct Part {
    unit: usize,
    body: Body,
    sites: Vec<CallSite>,
    gaps: Vec<(Gap, u64)>,
}

struct Job {
    at: u64,
    state: State,
    is_spoilt: bool,
}

enum Next {
    Go(u64),
    End,
}

/// Follows functions, one after the other.
pub struct Walker<'g> {
    file: &'g File,
    units: &'g [Unit],
    edges: &'g Edges,
    never: &'g BTreeSet<u64>,
    machine: Machine<'g>,
    parts: Vec<Part>,
    known: HashMap<u64, Known>,
    /// Rules inside of instructions, where an alternative has other boundaries.
    inside: BTreeMap<u64, Option<Rule>>,
    jobs: Vec<Job>,
    callees: Vec<u64>,
    returns: bool,
    steps: u32,
}

impl<'g> Walker<'g> {
    /// A walker for `units`, by address; `never` has the starts of those that never return.
    pub fn new(
        file: &'g File,
        units: &'g [Unit],
        edges: &'g Edges,
        never: &'g BTreeSet<u64>,
    ) -> Walker<'g> {
        Walker {
            file,
            units,
            edges,
            never,
            machine: Machine::new(file),
            parts: Vec::new(),
            known: HashMap::new(),
            inside: BTreeMap::new(),
            jobs: Vec::new(),
            callees: Vec::new(),
            returns: false,
            steps: 0,
        }
    }

    /// What stack addresses at unknown distances refer to.
    pub(crate) fn anchors(&self) -> &[Anchor] {
        &self.machine.anchors
    }

    /// Follows function `index`. `None` if it is entered only from others, or has no code.
    pub fn follow(&mut self, index: usize) -> Option<Followed> {
        self.machine.reset();
        self.parts.clear();
        self.known.clear();
        self.inside.clear();
        self.returns = false;
        self.steps = 0;
        let unit = self.units.get(index)?;
        let starts = match unit.entry {
            Entry::Call => vec![unit.range.start],
            Entry::Plt => crate::proof::plt::stubs(self.file, &unit.range),
            Entry::Part | Entry::Signal | Entry::Resolver => return None,
        };
        self.open(index)?;
        for at in starts {
            self.job(at, State::entry(), false);
        }
        while let Some(job) = self.jobs.pop() {
            self.run(job);
        }
        Some(Followed {
            returns: self.returns,
            callees: std::mem::take(&mut self.callees),
        })
    }

    /// What is known before the instruction at `address` (svma) of the function followed last.
    pub fn known(&self, address: u64) -> Option<&Known> {
        self.known.get(&address)
    }

    /// The rows of the function followed last, and of its cold parts.
    pub fn functions(&self) -> Vec<Function> {
        let mut addresses: Vec<u64> = self.known.keys().copied().collect();
        addresses.sort_unstable();
        let functions = self.parts.iter().filter_map(|part| {
            let unit = self.units.get(part.unit)?;
            let mut out = Function {
                range: unit.range.clone(),
                name: unit.name.clone(),
                rows: Vec::new(),
                gaps: part.gaps.clone(),
            };
            let first = addresses.partition_point(|&a| a < unit.range.start);
            let here = addresses.iter().skip(first);
            for &at in here.take_while(|&&a| a < unit.range.end) {
                self.add_rows(&mut out, at);
            }
            Some(out)
        });
        functions.collect()
    }

    fn add_rows(&self, out: &mut Function, at: u64) {
        let Some(known) = self.known.get(&at) else {
            return;
        };
        let end = (at + u64::from(known.len)).min(out.range.end);
        let rule = rows::rule(&known.state).filter(|_| !known.is_spoilt);
        if rule.is_none() {
            let gap = if known.is_spoilt {
                Gap::Disagree
            } else {
                Gap::Frame
            };
            if !out.gaps.iter().any(|g| g.0 == gap) {
                out.gaps.push((gap, at));
            }
        }
        // A jump over a prefix leads into an instruction: what comes last counts.
        if let Some(last) = out.rows.last_mut() {
            last.0.end = last.0.end.min(at);
        }
        let (mut start, mut rule) = (at, rule);
        for (&inside, &next) in self.inside.range(at + 1..end.max(at + 1)) {
            if let Some(rule) = rule {
                out.push(start..inside, rule);
            }
            (start, rule) = (inside, next);
        }
        if let Some(rule) = rule {
            out.push(start..end, rule);
        }
    }

    fn part_at(&self, address: u64) -> Option<usize> {
        self.parts
            .iter()
            .position(|p| p.body.range.contains(&address))
    }

    fn open(&mut self, index: usize) -> Option<usize> {
        if self.parts.len() >= PARTS_MAX {
            return None;
        }
        let unit = self.units.get(index)?;
        let body = Body::new(self.file, unit.range.clone())?;
        let sites = unit
            .lsda
            .and_then(|lsda| call_sites(self.file, lsda, unit.range.start));
        self.parts.push(Part {
            unit: index,
            body,
            sites: sites.unwrap_or_default(),
            gaps: Vec::new(),
        });
        Some(self.parts.len() - 1)
    }

    fn gap(&mut self, part: usize, gap: Gap, at: u64) {
        if let Some(part) = self.parts.get_mut(part)
            && !part.gaps.iter().any(|g| g.0 == gap)
        {
            part.gaps.push((gap, at));
        }
    }

    fn job(&mut self, at: u64, state: State, is_spoilt: bool) {
        self.jobs.push(Job {
            at,
            state,
            is_spoilt,
        });
    }

    /// Follows one way until it ends or meets another.
    fn run(&mut self, job: Job) {
        let (mut pc, mut state, mut is_spoilt) = (job.at, job.state, job.is_spoilt);
        let Some(mut part) = self.part_at(pc) else {
            return;
        };
        loop {
            let file = self.file;
            let body = self.parts.get_mut(part).map(|p| &mut p.body);
            let found = body.and_then(|body| {
                let offset = body.offset(pc)?;
                Some(body.insn(file, offset))
            });
            let Some(insn) = found else {
                match self.part_at(pc) {
                    Some(other) if other != part => part = other,
                    _ => return self.leave(part, pc.wrapping_sub(1), pc, state, is_spoilt),
                }
                continue;
            };
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return self.gap(part, Gap::Limit, pc);
            }
            let Some(insn) = insn else {
                return self.gap(part, Gap::Undecodable, pc);
            };
            if !self.arrive(pc, insn.len() as u8, &mut state, &mut is_spoilt) {
                return;
            }
            self.side_ways(part, pc, &insn, &state, is_spoilt);
            match self.step(part, &insn, &mut state, is_spoilt) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
        }
    }

    /// Joins the state with what is known at `pc`. Returns whether that is news, in `state`.
    fn arrive(&mut self, pc: u64, len: u8, state: &mut State, is_spoilt: &mut bool) -> bool {
        let Some(known) = self.known.get_mut(&pc) else {
            let new = Known {
                state: state.clone(),
                len,
                is_spoilt: *is_spoilt,
            };
            self.known.insert(pc, new);
            return true;
        };
        if known.is_spoilt {
            return false;
        }
        let changed = match known.state.join(state) {
            Some(changed) => Some(changed),
            None if rows::rule(&known.state) == rows::rule(state) => {
                Some(known.state.weaken(state))
            }
            None => None,
        };
        match changed {
            Some(changed) if !*is_spoilt => {
                state.clone_from(&known.state);
                changed
            }
            _ => {
                known.is_spoilt = true;
                *is_spoilt = true;
                true
            }
        }
    }

    /// What the code itself does not show: static branches, faults, alternatives.
    fn side_ways(
        &mut self,
        part: usize,
        pc: u64,
        insn: &Instruction,
        state: &State,
        is_spoilt: bool,
    ) {
        let edges = self.edges;
        if let Some(&fixup) = edges.fixups.get(&pc) {
            self.go(part, pc, fixup, state.clone(), is_spoilt);
        }
        if let Some(&target) = edges.branches.get(&pc) {
            self.go(part, pc, target, state.clone(), is_spoilt);
            self.go(part, pc, insn.next_ip(), state.clone(), is_spoilt);
        }
        for alternative in edges.alternatives.get(&pc).into_iter().flatten() {
            self.alternative(part, alternative, state.clone(), is_spoilt);
        }
    }

    /// Follows what replaces the code at an instruction.
    fn alternative(
        &mut self,
        part: usize,
        alternative: &Alternative,
        mut state: State,
        is_spoilt: bool,
    ) {
        let Alternative {
            original,
            replacement,
        } = alternative;
        let mut pc = replacement.start;
        for _ in 0..ALTERNATIVE_MAX {
            let place = original.start + (pc - replacement.start);
            if place > original.start && place < original.end {
                let rule = rows::rule(&state).filter(|_| !is_spoilt);
                self.inside.entry(place).or_insert(rule);
            }
            if pc >= replacement.end {
                return self.go(part, original.start, original.end, state, is_spoilt);
            }
            let bytes = self.file.bytes(pc);
            let insn = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
            let near = insn.op0_kind() == OpKind::NearBranch64;
            let target = insn.near_branch64();
            if insn.is_invalid() {
                return;
            }
            let is_inside = near && replacement.contains(&target);
            if is_inside && target > pc && insn.mnemonic() == Mnemonic::Call {
                push(&mut state, 8, Value::Computed);
                pc = target;
                continue;
            }
            if is_inside && insn.flow_control() == FlowControl::ConditionalBranch {
                pc = insn.next_ip();
                continue;
            }
            match self.step(part, &insn, &mut state, is_spoilt) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
        }
    }

    /// Executes an instruction.
    fn step(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        is_spoilt: bool,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());
        match insn.flow_control() {
            FlowControl::Next => {
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::UnconditionalBranch => {
                self.branch(part, insn, state.clone(), is_spoilt);
                Next::End
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                if insn.op0_kind() == OpKind::NearBranch64 {
                    let mut taken = state.clone();
                    let condition = insn.condition_code();
                    refine(&mut taken, condition, true);
                    refine(state, condition, false);
                    if insn.is_loop() || insn.is_loopcc() {
                        taken.set(Reg::Rcx, Value::Computed);
                        state.set(Reg::Rcx, Value::Computed);
                    }
                    self.branch(part, insn, taken, is_spoilt);
                }
                Next::Go(next)
            }
            FlowControl::IndirectBranch => {
                self.jump_indirect(part, insn, state, is_spoilt);
                Next::End
            }
            FlowControl::Return => {
                self.returns = true;
                Next::End
            }
            FlowControl::Call if insn.mnemonic() != Mnemonic::Call => {
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                self.call(part, insn, state, is_spoilt)
            }
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => {
                state.set(Reg::Rax, Value::Computed);
                Next::Go(next)
            }
            FlowControl::Exception if self.edges.warnings.contains_key(&pc) => Next::Go(next),
            FlowControl::Interrupt | FlowControl::Exception => Next::End,
        }
    }
}
