//! Follows a function from its entry along every way. States are kept where ways meet; of every
//! instruction, only its row is.
//!
//! Unlike the walker of [`crate::proof`] it has no rows to go by: a call returns unless its callee is
//! known not to, and ways that disagree spoil all that they lead to.

mod arrive;
mod examine;
mod found;
mod leave;

use super::breach::{self, Breach};
use super::function::Gap;
use super::functions::Unit;
use super::rows::{self, FrameKind};
use crate::file::File;
use crate::hints::{Hint, Hints};
use crate::kernel::{Alternative, SpecialSections};
use crate::proof::access::general;
use crate::proof::body::{Bits, Body};
use crate::proof::exec::Machine;
use crate::proof::lsda::{CallSite, call_sites};
use crate::proof::program::Entry;
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use crate::proof::walk::meet::Worklist;
use crate::proof::ways::{
    BranchOutcome, REPLACEMENT_MAX, ReplacedInsn, not_taken, replaced, taken,
};
use found::RowOrGap;
use hashbrown::{HashMap, HashSet};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::Rule;

/// The maximum number of instructions executed for one function.
const STEPS_MAX: u32 = 1 << 20;
/// The maximum number of functions that are followed together: a function and its cold parts.
const PARTS_MAX: usize = 32;
/// The maximum length of a function whose memory is kept for another, bytes.
const SPARE_MAX: usize = 1 << 18;
/// What `iretq` takes off the stack, bytes.
const IRET_LEN: i32 = 40;

/// What following a function gave, beside its rows.
pub struct FollowSummary {
    /// Whether it may return.
    pub returns: bool,
    /// The functions that it calls (svma).
    pub callees: Vec<u64>,
    /// Code of no function that it enters as one (svma): by a call, or a jump with everything as at
    /// its own entry.
    pub entered: Vec<u64>,
}

/// What is known before an instruction.
pub struct InsnState {
    /// The state on all ways.
    pub state: State,
    /// Length of the instruction, bytes.
    pub len: u8,
}

/// What is known at an instruction beside the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameContext {
    /// What frame the state describes.
    pub frame: FrameKind,
    /// Whether ways disagree here or before.
    pub is_spoilt: bool,
}

impl FrameContext {
    /// At the entry of a function.
    const ENTRY: FrameContext = FrameContext {
        frame: FrameKind::Function,
        is_spoilt: false,
    };
}

struct UnitWalk {
    unit: usize,
    body: Body,
    sites: Vec<CallSite>,
    gaps: Vec<(Gap, u64)>,
    /// For each byte: the number of what was found at the instruction that starts there, plus one;
    /// 0 if no way leads to it.
    found: Vec<u32>,
    /// Bit n: a hint, or a section of the kernel, says something of the instruction at byte n.
    is_told_of: Bits,
}

enum Next {
    Go(u64),
    End,
}

/// Follows functions, one after the other.
pub struct Walker<'g> {
    file: &'g File,
    units: &'g [Unit],
    edges: &'g SpecialSections,
    hints: &'g Hints,
    never: &'g BTreeSet<u64>,
    ends: Option<&'g HashSet<u64>>,
    machine: Machine<'g>,
    parts: Vec<UnitWalk>,
    /// What is known where ways meet.
    meetings: Worklist<FrameContext>,
    /// What was found, see [`UnitWalk::found`].
    found: Vec<RowOrGap>,
    /// What is known before every instruction (svma), if that is wanted.
    states: Option<HashMap<u64, InsnState>>,
    /// Memory of functions followed before.
    spare: Vec<(Body, Vec<u32>)>,
    /// Rules inside of instructions, where an alternative has other boundaries.
    inside: BTreeMap<u64, Option<Rule>>,
    callees: Vec<u64>,
    entered: Vec<u64>,
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
        (edges, hints): (&'g SpecialSections, &'g Hints),
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
            ends: None,
            machine,
            parts: Vec::new(),
            meetings: Worklist::default(),
            found: Vec::new(),
            states: None,
            spare: Vec::new(),
            inside: BTreeMap::new(),
            callees: Vec::new(),
            entered: Vec::new(),
            returns: false,
            steps: 0,
            breaches: BTreeMap::new(),
            pushes_rbp: false,
            has_frame_pointer: false,
        }
    }

    /// The addresses (svma) behind calls at which functions end whose ends are not known otherwise: see
    /// `discover.rs`.
    pub fn ending_at(self, ends: &'g HashSet<u64>) -> Walker<'g> {
        let ends = Some(ends);
        Walker { ends, ..self }
    }

    /// What stack addresses at unknown distances refer to.
    pub(crate) fn anchors(&self) -> &[Anchor] {
        &self.machine.anchors
    }

    /// Keeps what is known before every instruction from now on, for [`Walker::known`].
    pub fn keep_states(&mut self) {
        self.states = Some(HashMap::new());
    }

    /// Follows function `index`. `None` if it is entered only from others, or has no code.
    pub fn follow(&mut self, index: usize) -> Option<FollowSummary> {
        // The walker is used for many functions; what it has allocated is used again.
        self.machine.reset();
        let parts = self.parts.drain(..);
        let spare = parts.filter(|part| part.body.len() <= SPARE_MAX);
        self.spare.extend(spare.map(|part| (part.body, part.found)));
        self.meetings.clear();
        self.found.clear();
        if let Some(states) = &mut self.states {
            states.clear();
        }
        self.inside.clear();
        self.returns = false;
        self.steps = 0;
        self.breaches.clear();
        self.pushes_rbp = false;
        self.has_frame_pointer = false;

        let unit = self.units.get(index)?;
        let mut starts = match unit.entry {
            // `STACK_FRAME_NON_STANDARD`: objtool leaves the function alone.
            _ if self.hints.non_standard.contains(&unit.range.start) => return None,
            Entry::Call => vec![unit.range.start],
            Entry::Plt => crate::proof::plt::stubs(self.file, &unit.range),
            Entry::Part | Entry::Signal | Entry::Resolver | Entry::Interrupt => Vec::new(),
        };

        // A hint needs no way that leads to it; where it restores, one does.
        let hints = self.hints.at.range(unit.range.clone());
        let hints = hints.filter(|hint| !matches!(hint.1, Hint::Restore(_)));
        starts.extend(hints.map(|hint| hint.0).rev());
        if starts.is_empty() {
            return None;
        }

        // A function without code in the file has nothing to follow.
        self.open(index)?;

        // All starts are entries, so what is known is what holds at every call.
        for at in starts {
            self.meet(at, &State::entry(), FrameContext::ENTRY);
        }

        // Ways are followed one after the other, from where they meet.
        while let Some(meeting) = self.meetings.next() {
            self.run(meeting);
        }

        // Only now are all states there, with which replacements are compared.
        self.examine_alternatives();

        Some(FollowSummary {
            returns: self.returns,
            callees: std::mem::take(&mut self.callees),
            entered: std::mem::take(&mut self.entered),
        })
    }

    fn part_at(&self, address: u64) -> Option<usize> {
        self.parts
            .iter()
            .position(|p| p.body.range.contains(&address))
    }

    fn open(&mut self, index: usize) -> Option<usize> {
        // A function may jump into any number of others, so their number is bounded.
        if self.parts.len() >= PARTS_MAX {
            return None;
        }
        let unit = self.units.get(index)?;
        let (mut body, mut found) = self.spare.pop().unwrap_or_default();
        if !body.read(self.file, unit.range.clone()) {
            return None;
        }

        // No instruction has a row at first.
        found.clear();
        found.resize(body.len(), 0);
        let sites = unit
            .lsda
            .and_then(|lsda| call_sites(self.file, lsda, unit.range.start));

        // Most functions have no such places, and need no memory for them.
        let mut is_told_of = Bits::default();
        let mut tell = |at: u64, len: usize| {
            if is_told_of.is_empty() {
                is_told_of = Bits::new(len);
            }
            is_told_of.set((at - unit.range.start) as usize);
        };

        for at in self.edges.places(&unit.range) {
            tell(at, body.len());
        }
        for (&at, hint) in self.hints.at.range(unit.range.clone()) {
            tell(at, body.len());
            // Hints are obeyed where ways meet.
            body.lead(at);
            if let Hint::Restore(Some(save)) = hint {
                body.lead(*save);
            }
        }

        self.parts.push(UnitWalk {
            unit: index,
            body,
            sites: sites.unwrap_or_default(),
            gaps: Vec::new(),
            found,
            is_told_of,
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

    /// Follows a way from where it met others until it ends or meets the next.
    fn run(&mut self, meeting: u32) {
        // What is known here is what all ways that lead here agree on.
        let known = self.meetings.get(meeting);
        let (part, mut pc, mut standing) = (known.part as usize, known.pc, known.way);
        let mut state = known.state.clone();
        let mut row = None;
        let mut is_first = true;
        let file = self.file;

        loop {
            let Some(here) = self.parts.get_mut(part) else {
                return;
            };
            let Some(offset) = here.body.offset(pc) else {
                // It may run on into a function that is followed together with this one.
                if self.part_at(pc).is_some() {
                    return self.meet(pc, &state, standing);
                }
                self.fall_through(part, pc, standing);
                // `leave` knows by the address right before that the code runs on, and does not
                // jump.
                return self.leave(part, pc.wrapping_sub(1), pc, &state, standing);
            };

            // A damaged file could have a way of any length.
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return self.gap(part, Gap::Limit, pc);
            }

            let Some(insn) = here.body.insn(file, offset) else {
                return self.gap(part, Gap::Undecodable, pc);
            };

            let is_told_of = here.is_told_of.has(offset);

            // Where ways meet, what this one knows is joined with what the others know.
            if !is_first && here.body.is_leader(offset) {
                let Some(met) = self.arrive(part, offset, &state, standing) else {
                    return;
                };
                // Meetings at lower addresses are followed first: they may lead here, too.
                if !self.meetings.is_next(met) {
                    return self.meetings.wait(met);
                }
                let known = self.meetings.take(met);
                standing = known.way;
                state.clone_from(&known.state);
                // `row` has the version of the other state, with which this one's cannot be
                // compared.
                row = None;
            }
            is_first = false;

            if let Some(states) = &mut self.states {
                let (state, len) = (state.clone(), insn.len() as u8);
                states.insert(pc, InsnState { state, len });
            }

            // Rows are numbered, since most instructions have the row of the one before.
            let number = self.number(&mut row, &state, standing);
            if let Some(place) = self
                .parts
                .get_mut(part)
                .and_then(|p| p.found.get_mut(offset))
            {
                *place = number;
            }

            if is_told_of {
                self.side_ways(part, pc, &insn, &state, standing);
            }

            // Examined with the state behind the instruction.
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
        standing: FrameContext,
    ) {
        let edges = self.edges;
        for to in edges.ways(pc, insn.next_ip()) {
            self.go(part, pc, to, state, standing);
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
        standing: FrameContext,
    ) {
        // The kernel writes the replacement over the original when it boots, if the processor has a
        // feature.
        let Alternative {
            original,
            replacement,
        } = alternative;

        let mut pc = replacement.start;
        for _ in 0..REPLACEMENT_MAX {
            let place = original.start + (pc - replacement.start);
            if place > original.start && place < original.end {
                let rule = rows::row(&state, standing.frame).filter(|_| !standing.is_spoilt);
                self.inside.entry(place).or_insert(rule);
            }

            // What is longer in the original is filled with no-operations (`apply_alternatives`).
            if pc >= replacement.end {
                return self.go(part, original.start, original.end, &state, standing);
            }

            let insn = match replaced(self.file, alternative, pc, &mut state) {
                ReplacedInsn::Done(next) => {
                    pc = next;
                    continue;
                }
                ReplacedInsn::Execute(insn) => insn,
                ReplacedInsn::Undecodable => return,
            };

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
        standing: FrameContext,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());

        // What comes next depends on the kind of instruction; only ordinary ones are executed here.
        match insn.flow_control() {
            FlowControl::Next => {
                self.machine.execute(insn, state);
                self.switch_stack(insn, state);
                Next::Go(next)
            }
            FlowControl::UnconditionalBranch => {
                self.branch(part, insn, state, standing);
                Next::End
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                // `xabort` and `xend` have no target.
                if insn.op0_kind() == OpKind::NearBranch64 {
                    // Code that is never executed has rows, too.
                    match taken(insn, state) {
                        BranchOutcome::Same | BranchOutcome::Impossible => {
                            self.branch(part, insn, state, standing)
                        }
                        BranchOutcome::With(taken) => self.branch(part, insn, &taken, standing),
                    }
                    not_taken(insn, state);
                }
                Next::Go(next)
            }
            FlowControl::IndirectBranch => {
                self.jump_indirect(part, insn, state, standing);
                // What follows in a procedure linkage table is where the slot leads at first.
                if self.is_plt(part) && state.is_as_at_entry() {
                    Next::Go(next)
                } else {
                    Next::End
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
            // iced counts `syscall`, `vmcall` and others as calls. They push nothing.
            FlowControl::Call if insn.mnemonic() != Mnemonic::Call => {
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::Call | FlowControl::IndirectCall => self.call(part, insn, state, standing),
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => {
                // The result of a system call, `int $0x80`.
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
fn pops_own_frame(state: &State, standing: FrameContext) -> bool {
    let own = matches!(state.reg(Reg::Rsp), Value::Entry { reg: Reg::Rsp, offset } if offset <= -IRET_LEN);
    own && standing.frame == FrameKind::Function
}
