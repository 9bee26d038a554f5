//! Follows a function from its entry along every way, and keeps what is known at each instruction.
//!
//! Unlike the walker of [`crate::proof`] it has no rows to go by: a call returns unless its callee is
//! known not to, and ways that disagree spoil all that they lead to.

mod arrive;
mod examine;
mod leave;

use super::breach::{self, Breach};
use super::function::{Function, Gap};
use super::functions::Unit;
use super::rows::{self, Frame};
use crate::file::File;
use crate::hints::{Hint, Hints};
use crate::kernel::{Alternative, Edges};
use crate::proof::access::general;
use crate::proof::body::Body;
use crate::proof::exec::{Machine, push, refine};
use crate::proof::lsda::{CallSite, call_sites};
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use hashbrown::HashMap;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::Rule;

/// The maximum number of instructions executed for one function.
const STEPS_MAX: u32 = 1 << 20;
/// The maximum number of functions that are followed together: a function and its cold parts.
const PARTS_MAX: usize = 32;
/// What `iretq` takes off the stack, bytes.
const IRET_LEN: i32 = 40;
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
    /// What is known beside the state.
    pub standing: Standing,
}

/// What is known at an instruction beside the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What frame the state describes.
    pub frame: Frame,
    /// Whether ways disagree here or before.
    pub is_spoilt: bool,
}

impl Standing {
    /// At the entry of a function.
    const ENTRY: Standing = Standing {
        frame: Frame::Function,
        is_spoilt: false,
    };
}

impl Known {
    /// The row.
    fn rule(&self) -> Option<Rule> {
        rows::row(&self.state, self.standing.frame).filter(|_| !self.standing.is_spoilt)
    }

    /// Whether the row is certainly that of `other`.
    fn has_row_of(&self, other: &Known) -> bool {
        self.standing == other.standing && self.state.is_same_for_rows(&other.state)
    }
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
    standing: Standing,
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
    hints: &'g Hints,
    never: &'g BTreeSet<u64>,
    machine: Machine<'g>,
    parts: Vec<Part>,
    /// What is known, in the order in which ways led there first.
    known: Vec<Known>,
    /// For each address (svma) of an instruction that ways lead to: its place in `known`.
    places: HashMap<u64, usize>,
    /// Rules inside of instructions, where an alternative has other boundaries.
    inside: BTreeMap<u64, Option<Rule>>,
    jobs: Vec<Job>,
    callees: Vec<u64>,
    returns: bool,
    steps: u32,
    /// Rules that the code breaks, and where (svma).
    breaches: BTreeMap<(u64, &'static str), Breach>,
    /// Whether rbp was pushed, and whether it was made a frame pointer.
    pushes_rbp: bool,
    has_frame_pointer: bool,
}

impl<'g> Walker<'g> {
    /// A walker for `units`, by address; `never` has the starts of those that never return.
    pub fn new(
        file: &'g File,
        units: &'g [Unit],
        (edges, hints): (&'g Edges, &'g Hints),
        never: &'g BTreeSet<u64>,
    ) -> Walker<'g> {
        let mut machine = Machine::new(file);
        // A store through a pointer never hits a save slot: one that seems to comes from a loop over
        // a list in the frame, followed further than it ever runs.
        machine.is_in_loop = true;
        Walker {
            file,
            units,
            edges,
            hints,
            never,
            machine,
            parts: Vec::new(),
            known: Vec::new(),
            places: HashMap::new(),
            inside: BTreeMap::new(),
            jobs: Vec::new(),
            callees: Vec::new(),
            returns: false,
            steps: 0,
            breaches: BTreeMap::new(),
            pushes_rbp: false,
            has_frame_pointer: false,
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
        self.places.clear();
        self.inside.clear();
        self.returns = false;
        self.steps = 0;
        self.breaches.clear();
        self.pushes_rbp = false;
        self.has_frame_pointer = false;
        let unit = self.units.get(index)?;
        let mut starts = match unit.entry {
            _ if self.hints.non_standard.contains(&unit.range.start) => return None,
            Entry::Call => vec![unit.range.start],
            Entry::Plt => crate::proof::plt::stubs(self.file, &unit.range),
            Entry::Part | Entry::Signal | Entry::Resolver => Vec::new(),
        };
        // A hint needs no way that leads to it; where it restores, one does.
        let hints = self.hints.at.range(unit.range.clone());
        let hints = hints.filter(|hint| !matches!(hint.1, Hint::Restore(_)));
        starts.extend(hints.map(|hint| hint.0).rev());
        if starts.is_empty() {
            return None;
        }
        self.open(index)?;
        for at in starts.into_iter().rev() {
            self.job(at, State::entry(), Standing::ENTRY);
        }
        while let Some(job) = self.jobs.pop() {
            self.run(job);
        }
        self.examine_alternatives();
        Some(Followed {
            returns: self.returns,
            callees: std::mem::take(&mut self.callees),
        })
    }

    /// What is known before the instruction at `address` (svma) of the function followed last.
    pub fn known(&self, address: u64) -> Option<&Known> {
        self.known.get(*self.places.get(&address)?)
    }

    /// The rows of the function followed last, and of its cold parts. With `pads`, padding between
    /// two rows, and at the end, gets the row before it, as from compilers.
    pub fn functions(&mut self, pads: bool) -> Vec<Function> {
        let places = self.places.iter().map(|(&at, &place)| (at, place));
        let mut places: Vec<(u64, usize)> = places.collect();
        places.sort_unstable();
        let functions = self.parts.iter().filter_map(|part| {
            let unit = self.units.get(part.unit)?;
            let mut out = Function {
                range: unit.range.clone(),
                name: unit.name.clone(),
                gaps: part.gaps.clone(),
                ..Function::default()
            };
            let bounds = (unit.range.start, "")..(unit.range.end, "");
            let here = self.breaches.range(bounds);
            let here = here.map(|((at, _), breach)| (*at, breach.clone()));
            out.breaches.extend(here);
            let first = places.partition_point(|&(at, _)| at < unit.range.start);
            let here = places.iter().skip(first);
            let here = here.take_while(|&&(at, _)| at < unit.range.end);
            // Nothing calls the function at which the program starts.
            let start = self.file.start();
            let outermost = start.is_some_and(|start| unit.range.contains(&start));
            let outermost = outermost.then_some(Rule::OUTERMOST);
            // Most instructions change nothing that a row says.
            let mut before: Option<(&Known, Option<Rule>)> = None;
            for &(at, place) in here {
                let Some(known) = self.known.get(place) else {
                    continue;
                };
                let rule = match before {
                    _ if outermost.is_some() => outermost,
                    Some((same, rule)) if known.has_row_of(same) => rule,
                    _ => known.rule(),
                };
                before = Some((known, rule));
                self.add_rows(&mut out, at, known, rule);
            }
            Some(out)
        });
        let mut functions: Vec<Function> = functions.collect();
        if pads {
            for (function, part) in functions.iter_mut().zip(&mut self.parts) {
                function.pad(|at| part.body.skip_padding(self.file, at));
            }
        }
        functions
    }

    fn add_rows(&self, out: &mut Function, at: u64, known: &Known, rule: Option<Rule>) {
        let end = (at + u64::from(known.len)).min(out.range.end);
        if rule.is_none() {
            out.silent.push(at..end);
        }
        if rule.is_none() && known.standing.frame != Frame::Undefined {
            let gap = if known.standing.is_spoilt {
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

    fn is_plt(&self, part: usize) -> bool {
        let unit = self.parts.get(part).and_then(|p| self.units.get(p.unit));
        unit.is_some_and(|unit| unit.entry == Entry::Plt)
    }

    fn gap(&mut self, part: usize, gap: Gap, at: u64) {
        if let Some(part) = self.parts.get_mut(part)
            && !part.gaps.iter().any(|g| g.0 == gap)
        {
            part.gaps.push((gap, at));
        }
    }

    fn job(&mut self, at: u64, state: State, standing: Standing) {
        self.jobs.push(Job {
            at,
            state,
            standing,
        });
    }

    /// Follows one way until it ends or meets another.
    fn run(&mut self, job: Job) {
        let (mut pc, mut state, mut standing) = (job.at, job.state, job.standing);
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
                    _ => {
                        self.fall_through(part, pc, standing);
                        return self.leave(part, pc.wrapping_sub(1), pc, state, standing);
                    }
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
            if !self.obey(part, pc, &mut state, &mut standing)
                || !self.arrive(pc, insn.len() as u8, &mut state, &mut standing)
            {
                return;
            }
            self.side_ways(part, pc, &insn, &state, standing);
            let next = self.step(part, &insn, &mut state, standing);
            self.examine(&insn, &state, standing);
            match self.told(&insn, next) {
                Next::Go(next) => pc = next,
                Next::End => return,
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
        standing: Standing,
    ) {
        let edges = self.edges;
        if let Some(&fixup) = edges.fixups.get(&pc) {
            self.go(part, pc, fixup, state.clone(), standing);
        }
        if let Some(&target) = edges.branches.get(&pc) {
            self.go(part, pc, target, state.clone(), standing);
            self.go(part, pc, insn.next_ip(), state.clone(), standing);
        }
        for alternative in edges.alternatives.get(&pc).into_iter().flatten() {
            self.alternative(part, alternative, state.clone(), standing);
        }
    }

    /// Follows what replaces the code at an instruction.
    fn alternative(
        &mut self,
        part: usize,
        alternative: &Alternative,
        mut state: State,
        standing: Standing,
    ) {
        let Alternative {
            original,
            replacement,
        } = alternative;
        let mut pc = replacement.start;
        for _ in 0..ALTERNATIVE_MAX {
            let place = original.start + (pc - replacement.start);
            if place > original.start && place < original.end {
                let rule = rows::row(&state, standing.frame).filter(|_| !standing.is_spoilt);
                self.inside.entry(place).or_insert(rule);
            }
            if pc >= replacement.end {
                return self.go(part, original.start, original.end, state, standing);
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
            match self.step(part, &insn, &mut state, standing) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
        }
    }

    /// `mov %rsp, (%r11)`: the top of another stack gets the address to come back to (Linux
    /// `arch/x86/include/asm/irq_stack.h`).
    fn switch_stack(&mut self, insn: &Instruction, state: &mut State) {
        let is_top = insn.mnemonic() == Mnemonic::Mov
            && insn.op0_kind() == OpKind::Memory
            && insn.op1_register() == Register::RSP
            && insn.memory_displacement64() == 0
            && insn.memory_index() == Register::None;
        let base = is_top.then(|| general(insn.memory_base())).flatten();
        if let Some(base) = base.filter(|&base| state.reg(base) == Value::Computed) {
            let top = self.machine.lowered(insn.ip());
            state.set(base, top);
            state.store(top, 8, state.reg(Reg::Rsp));
        }
    }

    /// Executes an instruction.
    fn step(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        standing: Standing,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());
        match insn.flow_control() {
            FlowControl::Next => {
                self.machine.execute(insn, state);
                self.switch_stack(insn, state);
                Next::Go(next)
            }
            FlowControl::UnconditionalBranch => {
                self.branch(part, insn, state.clone(), standing);
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
                    self.branch(part, insn, taken, standing);
                }
                Next::Go(next)
            }
            FlowControl::IndirectBranch => {
                self.jump_indirect(part, insn, state, standing);
                // What follows in a procedure linkage table is where the slot leads at first.
                match self.is_plt(part) && state.is_as_at_entry() {
                    true => Next::Go(next),
                    false => Next::End,
                }
            }
            // `sync_core` returns to itself.
            FlowControl::Return
                if insn.mnemonic() == Mnemonic::Iretq && pops_own_frame(state, standing) =>
            {
                let sp = state.reg(Reg::Rsp);
                state.set(Reg::Rsp, sp.plus(IRET_LEN.into()));
                Next::Go(next)
            }
            FlowControl::Return => {
                self.returns = true;
                self.examine_return(insn, state, standing);
                Next::End
            }
            FlowControl::Call if insn.mnemonic() != Mnemonic::Call => {
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::Call | FlowControl::IndirectCall => self.call(part, insn, state, standing),
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => {
                state.set(Reg::Rax, Value::Computed);
                Next::Go(next)
            }
            // A breakpoint; behind code that ends, nothing leads to one.
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int3 => Next::Go(next),
            FlowControl::Exception if self.edges.warnings.contains_key(&pc) => Next::Go(next),
            FlowControl::Interrupt | FlowControl::Exception => Next::End,
        }
    }
}

/// Whether `iretq` takes words off the stack that the function itself has pushed.
fn pops_own_frame(state: &State, standing: Standing) -> bool {
    let own = matches!(state.reg(Reg::Rsp), Value::Entry { reg: Reg::Rsp, offset } if offset <= -IRET_LEN);
    own && standing.frame == Frame::Function
}
