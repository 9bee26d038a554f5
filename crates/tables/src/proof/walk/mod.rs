//! Follows a function from its entries along every way through it, and holds each row against what
//! the code has done on that way.
//!
//! `calls` and `jumps` say where a way goes on; `meet` keeps what is known where ways meet, and which
//! of them are to be followed next; `open` reads functions and their rows, `rows` judges; `outermost`,
//! `beyond` and `holes` find rows that deny a caller, and code without a row.

mod beyond;
mod calls;
mod guesses;
mod holes;
mod jumps;
mod kernel;
pub(crate) mod meet;
mod open;
mod outermost;
mod resume;
mod rows;
mod sight;
mod traps;

use super::body::{Bits, Body};
use super::exec::{Machine, asks_for_loop};
use super::lsda::CallSite;
use super::program::{Effect, Endings, Entry, Program, Returns};
use super::state::State;
use super::value::Value;
use super::verdict::{Assumption, Doubt, FunctionVerdict};
use super::ways::{BranchOutcome, not_taken, taken};
use beyond::MissingRows;
pub(crate) use beyond::tests_a_bound;
use guesses::Guesses;
use hashbrown::HashMap;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use meet::{MeetUpdate, Worklist};
use open::PARTS_MAX;
use outermost::ReturnSite;
pub(crate) use rows::REACHED;
use rows::{Rows, judge};
pub use sight::{InsnProof, InsnProofs};
use std::borrow::Cow;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of instructions executed for one function.
const STEPS_MAX: u32 = 1 << 21;
/// The maximum length of a function whose memory is kept for another, bytes.
const SPARE_MAX: usize = 1 << 18;

/// What was found in one function.
pub struct FunctionFindings {
    /// The number of the function.
    pub function: usize,
    /// How its rows turned out; whether all code was reached is not in it.
    pub verdict: FunctionVerdict,
    /// Its code, with what of it was reached.
    pub body: Body,
    /// Bit 0: a claim of the row is contradicted; bit 1: one is doubtful; bit 2: an unwinder reads it
    /// at an instruction that was reached. For each table's rows.
    pub marks: Vec<(usize, Vec<u8>)>,
}

/// What following a function gave.
pub struct FunctionAnalysis {
    /// The function itself, then the others that it jumps into.
    pub found: Vec<FunctionFindings>,
    /// Whether it may return.
    pub returns: bool,
    /// Whether it surely may: a way without calls ends with a return.
    pub surely_returns: bool,
    /// The register with the address of what it jumps to at its end, if it returns in no other way.
    pub returns_as: Option<Reg>,
    /// Whether a return leaves rsp or a callee-saved register changed.
    pub breaks_the_abi: bool,
    /// What its returns leave changed.
    pub effect: Effect,
    /// Whether it ends with `iretq`, always 8 bytes above where rsp was at entry: the processor pushed
    /// an error code.
    pub pops_error_code: bool,
    /// The addresses (svma) that it calls, or jumps to at its end.
    pub callees: Vec<u64>,
    /// Those of them that it calls.
    pub called: Vec<u64>,
    /// The addresses (svma) of functions that were taken not to return, because the row behind a
    /// call fits another way there.
    pub taken_as_final: Vec<u64>,
    /// The addresses (svma) of functions on a way to a return: if all of them surely return, rows on it
    /// are wrong which say that there is no caller.
    pub awaited: Vec<u64>,
    /// The starts (svma) of functions that it jumps to with a frame of its own.
    pub jumped: Vec<u64>,
    /// Ways into parts of functions and to landing pads whose rows do not fit.
    pub misfits: Vec<Misfit>,
    /// The steps that it took.
    pub steps: u32,
}

/// A way into a part of a function or to a landing pad, with a frame that the row there does not
/// describe.
pub struct Misfit {
    /// The number of the function that it leads to.
    pub function: usize,
    /// Where it leads (svma).
    pub target: u64,
    /// Where it comes from: the address (svma) of a jump, or of a call that throws.
    pub from: u64,
    /// The contradictions that it would cause.
    pub verdict: FunctionVerdict,
}

/// A function that is being followed.
struct FunctionWalk<'p> {
    /// The number of the function. Of code without a row, of the one that it belongs to.
    function: usize,
    /// Whether a table has it, or it is code without a row.
    is_listed: bool,
    /// Whether the kernel enters it, on return from a signal handler.
    is_signal: bool,
    convention: Convention,
    body: Body,
    rows: Vec<Rows<'p>>,
    sites: Vec<CallSite>,
    /// The arguments on the stack at calls with a landing pad.
    args: Vec<(u64, u64)>,
    verdict: FunctionVerdict,
    /// Bit n: at the instruction at byte n, a proven slot lies below rsp.
    below_sp: Bits,
    missing: MissingRows,
    guesses: Guesses,
}

/// A way that is still to be followed.
struct PendingPath {
    at: u64,
    state: State,
    trail: Option<u32>,
}

/// A jump on the way from the entry.
struct Jump {
    from: u64,
    to: u64,
    before: Option<u32>,
}

/// A call that seems not to return: behind it, the row does not fit the state before it.
struct SuspectCall {
    job: PendingPath,
    /// The address (svma) that it calls, if that is known.
    target: Option<u64>,
    /// The first instruction (svma) behind the call that is no padding.
    next: u64,
}

/// Follows functions, one after the other.
pub struct Walker<'p, 'f> {
    program: &'p Program<'f>,
    machine: Machine<'f>,
    parts: Vec<FunctionWalk<'p>>,
    meetings: Worklist<Option<u32>>,
    suspects: Vec<SuspectCall>,
    /// Ways to follow if nothing else leads there: behind calls that never return, and to labels.
    unreached: Vec<PendingPath>,
    jumps: Vec<Jump>,
    callees: Vec<u64>,
    jumped: Vec<u64>,
    misfits: Vec<Misfit>,
    assumed: Vec<Assumption>,
    returns: bool,
    surely_returns: bool,
    breaks_the_abi: bool,
    returns_as: Option<Reg>,
    endings: Endings,
    /// What rsp was at each `iretq`, if always the same.
    iret: Option<Value>,
    called: Vec<u64>,
    /// The conditional jumps (svma) that decide who is the new thread, and whether that one jumps.
    children: Vec<(u64, bool)>,
    /// What was asked of callees: for each of some targets, whether it returns.
    asked: HashMap<u64, Returns>,
    /// Bodies of functions followed before.
    spare: Vec<Body>,
    taken_as_final: Vec<u64>,
    awaited: Vec<u64>,
    returns_at: Vec<ReturnSite>,
    steps: u32,
    /// The landing pads (svma) to which no call leads: instructions that trap may.
    trap_pads: Vec<u64>,
    /// What is seen at each instruction of one function, if that is wanted.
    sights: Option<InsnProofs>,
}

/// What comes after an instruction.
enum Next {
    /// The instruction at this address.
    Go(u64),
    /// Nothing: the way ends here, or others continue it.
    End,
}

impl<'p, 'f> Walker<'p, 'f> {
    /// A walker for the functions of `program`.
    pub fn new(program: &'p Program<'f>) -> Walker<'p, 'f> {
        Walker {
            program,
            machine: Machine::new(program.file),
            parts: Vec::new(),
            meetings: Worklist::default(),
            suspects: Vec::new(),
            unreached: Vec::new(),
            jumps: Vec::new(),
            callees: Vec::new(),
            jumped: Vec::new(),
            misfits: Vec::new(),
            assumed: Vec::new(),
            returns: false,
            surely_returns: false,
            breaks_the_abi: false,
            returns_as: None,
            endings: Endings::default(),
            iret: None,
            called: Vec::new(),
            children: Vec::new(),
            asked: HashMap::new(),
            spare: Vec::new(),
            taken_as_final: Vec::new(),
            awaited: Vec::new(),
            returns_at: Vec::new(),
            steps: 0,
            trap_pads: Vec::new(),
            sights: None,
        }
    }

    /// Follows function `index`, and adds what is seen in the function of `sights` to them.
    pub fn look(
        &mut self,
        index: usize,
        sights: InsnProofs,
    ) -> (Option<FunctionAnalysis>, InsnProofs) {
        self.sights = Some(sights);
        let followed = self.follow(index);
        (followed, self.sights.take().unwrap_or_default())
    }

    /// Follows function `index` from its entries. `None` if the file has no code for it, or if code of
    /// its convention is not called.
    pub fn follow(&mut self, index: usize) -> Option<FunctionAnalysis> {
        let start = self.program.functions.get(index)?.range.start;
        if !self.program.convention(start).0.is_called() {
            return None;
        }
        self.trap_pads.clear();
        let followed = self.follow_once(index);
        if self.trap_pads.is_empty() {
            return followed;
        }
        // Again, with the ways from instructions that trap.
        followed?
            .found
            .into_iter()
            .for_each(|found| self.recycle(found.body));
        self.follow_once(index)
    }

    fn follow_once(&mut self, index: usize) -> Option<FunctionAnalysis> {
        self.machine.reset();
        self.meetings.clear();
        self.jumps.clear();
        self.children.clear();
        self.returns = false;
        self.surely_returns = false;
        self.returns_at.clear();
        self.breaks_the_abi = false;
        (self.returns_as, self.endings, self.iret) = (None, Endings::default(), None);
        self.steps = 0;

        // The function's own code comes first; others are opened when jumps lead there.
        self.open(index)?;
        for at in self.entries(index) {
            self.start(at);
        }

        if self.program.functions[index].entry == Entry::Plt {
            for at in self.stubs_beyond(index) {
                self.start(at);
            }
        }

        match self.program.functions[index].entry {
            // Behind the two words that a procedure linkage table pushes.
            Entry::Resolver => self.start_below(index, -16),
            // Behind the error code.
            Entry::Interrupt => self.start_below(index, -8),
            _ => {}
        }

        // Doubtful calls and what nothing has led to come last: by then more is known of both.
        loop {
            // Ways that met others go first; they may make doubtful calls certain.
            while let Some(meeting) = self.meetings.next() {
                self.run(meeting);
            }
            if !self.clear_suspects() && !self.follow_unreached() {
                break;
            }
        }

        // Landing pads that nothing has led to are those of instructions that trap: then all is
        // followed again.
        if self.trap_pads.is_empty() {
            self.find_trap_pads();
        }

        // These need to know all ways, so they come last.
        self.report_outermost();
        self.report_missing();
        self.explain_guesses();

        let mut found: Vec<FunctionFindings> = Vec::with_capacity(self.parts.len());
        for part in self.parts.drain(..).filter(|part| part.is_listed) {
            let mut verdict = part.verdict;
            // What one part rests on, its others rest on.
            for &assumption in &self.assumed {
                verdict.assumptions.add(assumption);
            }
            verdict.below_sp = part.below_sp.count();
            // It is assumed that they hit no saved register and no return address.
            if self.machine.stored_anywhere {
                verdict.assumptions.add(Assumption::Stores);
            }
            // `collect` would keep the memory of the rows, as much as 23 tables' marks need.
            let mut marks = Vec::with_capacity(part.rows.len());
            marks.extend(part.rows.into_iter().map(|r| (r.number, r.marks)));
            found.push(FunctionFindings {
                function: part.function,
                verdict,
                body: part.body,
                marks,
            });
        }

        self.assumed.clear();
        Some(FunctionAnalysis {
            found,
            returns: self.returns,
            surely_returns: self.surely_returns,
            returns_as: self.returns_as.filter(|_| !self.returns),
            breaks_the_abi: self.breaks_the_abi,
            effect: self.endings.effect(),
            pops_error_code: self.iret == Some(Value::frame(8)) && self.endings.is_none(),
            // Lists are given away without the room that they have left over.
            callees: exact(&mut self.callees),
            called: exact(&mut self.called),
            taken_as_final: std::mem::take(&mut self.taken_as_final),
            awaited: std::mem::take(&mut self.awaited),
            jumped: std::mem::take(&mut self.jumped),
            misfits: std::mem::take(&mut self.misfits),
            steps: self.steps,
        })
    }

    /// Takes back the code of a function that is not needed any more, so that its memory serves the
    /// next one.
    pub fn recycle(&mut self, body: Body) {
        if self.spare.len() < PARTS_MAX && body.len() <= SPARE_MAX {
            self.spare.push(body);
        }
    }

    /// Where function `index` is entered by calls.
    fn entries(&mut self, index: usize) -> Vec<u64> {
        let unit = &self.program.functions[index];
        match unit.entry {
            Entry::Call | Entry::Signal => vec![unit.range.start],
            Entry::Plt => super::plt::stubs(self.program.file, &unit.range),
            Entry::Part | Entry::Resolver | Entry::Interrupt => Vec::new(),
        }
    }

    /// Starts with words that were pushed behind the return address: rsp is `offset` from there.
    fn start_below(&mut self, index: usize, offset: i32) {
        let start = self.program.functions[index].range.start;
        let mut state = self.entry_state(start);
        state.set(Reg::Rsp, Value::frame(offset));
        self.go(start, &state, None);
    }

    fn start(&mut self, at: u64) {
        self.go(at, &self.entry_state(at), None);
    }

    /// The state at the entry of the function at `at` (svma).
    fn entry_state(&self, at: u64) -> State {
        let (convention, _) = self.program.convention(at);
        State::entry_of(convention.preserves())
    }

    /// Follows a way from where it met others until it ends or meets the next.
    fn run(&mut self, meeting: u32) {
        let known = self.meetings.get(meeting);
        let (part, mut pc, mut trail) = (known.part as usize, known.pc, known.way);
        let mut state = known.state.clone();
        let mut judged = None;
        let mut is_first = true;
        loop {
            // Each instruction of the way: judged with what is known before it, then executed.
            let here = &mut self.parts[part];
            let Some(offset) = here.body.offset(pc) else {
                return self.fall_out(part, pc, &state, trail);
            };

            self.steps += 1;
            if self.steps > STEPS_MAX {
                here.verdict.doubt(Doubt::Limit, pc);
                return;
            }

            let Some(insn) = here.body.insn(self.program.file, offset) else {
                if !self.ends_inside(part, pc, &state, trail) {
                    self.parts[part].verdict.doubt(Doubt::Undecodable, pc);
                }
                return;
            };

            if !is_first && here.body.is_leader(offset) {
                let Some(MeetUpdate { number, is_first }) =
                    self.arrive(part, offset, &state, trail)
                else {
                    return;
                };
                // Meetings at lower addresses are followed first (see `meet`): they may lead here,
                // too.
                if !self.meetings.is_next(number) {
                    return self.meetings.wait(number);
                }
                if !is_first {
                    let known = self.meetings.take(number);
                    trail = known.way;
                    state.clone_from(&known.state);
                    // The version is that of another state, with which this one's cannot be
                    // compared.
                    judged = None;
                }
            }
            is_first = false;

            if state.is_dead && !self.is_dead_code_right(part, pc, &state) {
                return;
            }

            // Marked as reached with its way: code that is only dead is told apart.
            let here = &mut self.parts[part];
            here.body.reach(offset, insn.len(), state.is_dead);
            self.machine.is_in_loop = asks_for_loop(&insn) && here.body.is_in_loop(pc);

            let is_below_sp = judge(
                here,
                (self.program, &self.machine.anchors),
                &self.jumps,
                pc,
                &state,
                trail,
                &mut judged,
            );

            // A slot below rsp is right in the red zone, but the reader should know of it.
            if is_below_sp {
                here.below_sp.set(offset);
            }

            if let Some(sights) = &mut self.sights {
                sights.see(&mut self.parts[part], &self.machine.anchors, &insn, &state);
            }

            // A kernel module's sections say where else execution may go on from here.
            if let Some(edges) = self.program.edges() {
                self.side_ways(edges, part, &insn, &state, trail);
                judged = None;
            }

            match self.step(part, &insn, &mut state, trail) {
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
        trail: Option<u32>,
    ) -> Next {
        let next = insn.next_ip();

        // Where a way goes on depends on the kind of instruction.
        match insn.flow_control() {
            FlowControl::Next => {
                // Both ask for the state before the instruction, which has not been executed if it
                // traps.
                self.ocaml_handler(part, insn, state, trail);
                self.trap(part, insn, state, trail);
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::UnconditionalBranch => {
                self.jump(part, insn, insn.near_branch64(), state, trail);
                Next::End
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                // `xabort` and `xend` have no target.
                if insn.op0_kind() == OpKind::NearBranch64 {
                    // What is known on both sides is refined by the condition, if it was compared
                    // before.
                    let target = insn.near_branch64();
                    match taken(insn, state) {
                        BranchOutcome::Same => {
                            let taken = self.as_thread(insn, true, state);
                            self.jump(part, insn, target, &taken, trail);
                        }
                        BranchOutcome::With(taken) => {
                            let taken = self.as_thread(insn, true, &taken);
                            self.jump(part, insn, target, &taken, trail);
                        }
                        BranchOutcome::Impossible => self.never(target, state, trail),
                    }
                    if !not_taken(insn, state) {
                        self.never(next, state, trail);
                        return Next::End;
                    }
                    if let Cow::Owned(child) = self.as_thread(insn, false, state) {
                        *state = child;
                    }
                }
                Next::Go(next)
            }
            FlowControl::IndirectBranch => {
                self.jump_indirect(part, insn, state, trail);
                Next::End
            }
            FlowControl::Return => {
                self.returned(part, insn, state, trail);
                Next::End
            }
            // iced counts `syscall`, `vmcall` and others as calls.
            FlowControl::Call if insn.mnemonic() != Mnemonic::Call => {
                self.system_call(part, insn, state, trail)
            }
            FlowControl::Call => self.call(part, insn, state, trail),
            FlowControl::IndirectCall => self.call(part, insn, state, trail),
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => {
                self.system_call(part, insn, state, trail)
            }
            FlowControl::Exception if self.is_warning(insn.ip()) => Next::Go(next),
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int3 => {
                self.breakpoint(part, insn, state, trail)
            }
            FlowControl::Interrupt | FlowControl::Exception => Next::End,
        }
    }

    /// A way that is never taken, as far as is known now: it is followed only if nothing else leads
    /// there.
    fn never(&mut self, at: u64, state: &State, trail: Option<u32>) {
        let mut state = state.clone();
        state.is_dead = true;
        self.unreached.push(PendingPath { at, state, trail });
    }

    fn assume(&mut self, assumption: Assumption) {
        if !self.assumed.contains(&assumption) {
            self.assumed.push(assumption);
        }
    }
}

/// Empties `list`, which keeps its memory. Returns what it had, each once, without spare memory.
fn exact(list: &mut Vec<u64>) -> Vec<u64> {
    list.sort_unstable();
    list.dedup();
    let exact = list.to_vec();
    list.clear();
    exact
}
