//! Follows a function from its entries along every way through it, and holds each row against what
//! the code has done on that way.

use super::args_size::{args_sizes, size_at};
use super::body::Body;
use super::claim::{self, Outcome, Subject};
use super::exec::{Machine, push, refine};
use super::lsda::{CallSite, call_sites};
use super::program::{Entry, Program};
use super::state::State;
use super::value::Value;
use super::verdict::{Assumption, Contradiction, Doubt, FunctionVerdict};
use crate::table::{Row, Table};
use hashbrown::HashMap;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::RuleKind;

/// The maximum number of instructions executed for one function.
const STEPS_MAX: u32 = 1 << 21;
/// The maximum number of different frames that are followed at one address.
const FRAMES_MAX: usize = 4;
/// The maximum number of functions that are followed together: a function and its cold parts.
const PARTS_MAX: usize = 32;

/// What was found in one function.
pub struct Found {
    /// The number of the function.
    pub function: usize,
    /// How its rows turned out; whether all code was reached is not in it.
    pub verdict: FunctionVerdict,
    /// Its code.
    pub body: Body,
    /// Bit 0: a claim of the row is contradicted; bit 1: one is doubtful. For each table's rows.
    pub marks: Vec<(usize, Vec<u8>)>,
}

/// What following a function gave.
pub struct Followed {
    /// The function itself, then the others that it jumps into.
    pub found: Vec<Found>,
    /// Whether it may return.
    pub returns: bool,
    /// The addresses (svma) that it calls, or jumps to at its end.
    pub callees: Vec<u64>,
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
    /// The contradictions that it would cause.
    pub verdict: FunctionVerdict,
}

/// A function that is being followed.
struct Part<'p> {
    function: usize,
    body: Body,
    rows: Vec<Rows<'p>>,
    sites: Vec<CallSite>,
    /// The arguments on the stack at calls with a landing pad.
    args: Vec<(u64, u64)>,
    verdict: FunctionVerdict,
}

/// The rows of one table for a function.
struct Rows<'p> {
    number: usize,
    table: &'p Table,
    rows: Vec<Row<'p>>,
    marks: Vec<u8>,
    /// The row used last.
    last: usize,
}

/// A way that is still to be followed.
struct Job {
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
struct Suspect {
    job: Job,
    /// The first instruction (svma) behind the call that is no padding.
    next: u64,
}

/// Follows functions, one after the other.
pub struct Walker<'p, 'f> {
    program: &'p Program<'f>,
    machine: Machine<'f>,
    parts: Vec<Part<'p>>,
    known: HashMap<u64, Vec<State>>,
    jobs: Vec<Job>,
    suspects: Vec<Suspect>,
    jumps: Vec<Jump>,
    callees: Vec<u64>,
    misfits: Vec<Misfit>,
    assumed: Vec<Assumption>,
    returns: bool,
    steps: u32,
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
            known: HashMap::new(),
            jobs: Vec::new(),
            suspects: Vec::new(),
            jumps: Vec::new(),
            callees: Vec::new(),
            misfits: Vec::new(),
            assumed: Vec::new(),
            returns: false,
            steps: 0,
        }
    }

    /// Follows function `index` from its entries. `None` if the file has no code for it.
    pub fn follow(&mut self, index: usize) -> Option<Followed> {
        self.machine.reset();
        self.known.clear();
        self.jumps.clear();
        self.returns = false;
        self.steps = 0;
        self.open(index)?;
        for at in self.entries(index) {
            self.start(at);
        }
        loop {
            while let Some(job) = self.jobs.pop() {
                self.run(job);
            }
            if !self.clear_suspects() {
                break;
            }
        }
        let mut found: Vec<Found> = Vec::new();
        for part in self.parts.drain(..) {
            let mut verdict = part.verdict;
            if found.is_empty() {
                for &assumption in &self.assumed {
                    verdict.assumptions.add(assumption);
                }
                if self.machine.stored_anywhere {
                    verdict.assumptions.add(Assumption::Stores);
                }
            }
            found.push(Found {
                function: part.function,
                verdict,
                body: part.body,
                marks: part.rows.into_iter().map(|r| (r.number, r.marks)).collect(),
            });
        }
        self.assumed.clear();
        Some(Followed {
            found,
            returns: self.returns,
            callees: std::mem::take(&mut self.callees),
            misfits: std::mem::take(&mut self.misfits),
            steps: self.steps,
        })
    }

    /// Where function `index` is entered by calls.
    fn entries(&mut self, index: usize) -> Vec<u64> {
        let unit = &self.program.functions[index];
        match unit.entry {
            Entry::Call => vec![unit.range.start],
            Entry::Plt => super::plt::stubs(self.program.file, &unit.range),
            Entry::Part | Entry::Signal => Vec::new(),
        }
    }

    fn start(&mut self, at: u64) {
        self.jobs.push(Job {
            at,
            state: State::entry(),
            trail: None,
        });
    }

    /// The part that contains `address`, opened if it is a function's.
    fn part_at(&self, address: u64) -> Option<usize> {
        self.parts
            .iter()
            .position(|p| p.body.range.contains(&address))
    }

    fn open(&mut self, index: usize) -> Option<usize> {
        if self.parts.len() >= PARTS_MAX {
            return None;
        }
        let program = self.program;
        let unit = &program.functions[index];
        let body = Body::new(program.file, unit.range.clone())?;
        let mut verdict = FunctionVerdict::default();
        let sites = match unit.lsda {
            None => Vec::new(),
            Some(lsda) => match call_sites(program.file, lsda, unit.range.start) {
                Some(sites) => sites,
                None => {
                    verdict.doubt(Doubt::LandingPads, unit.range.start);
                    Vec::new()
                }
            },
        };
        let args = match program.tables.first().filter(|_| !sites.is_empty()) {
            Some(table) => args_sizes(table, unit.range.start, unit.offset),
            None => Vec::new(),
        };
        let rows = (0..).zip(&program.tables).map(|(number, table)| {
            let rows = table.rows_in(&unit.range);
            Rows {
                number,
                table,
                marks: vec![0; rows.len()],
                rows,
                last: 0,
            }
        });
        self.parts.push(Part {
            function: index,
            rows: rows.filter(|r| !r.rows.is_empty()).collect(),
            sites,
            args,
            body,
            verdict,
        });
        Some(self.parts.len() - 1)
    }

    /// Follows one way until it ends or joins another.
    fn run(&mut self, job: Job) {
        let Job {
            at: mut pc,
            mut state,
            trail,
        } = job;
        let mut judged = u32::MAX;
        let Some(mut part) = self.part_at(pc) else {
            return;
        };
        loop {
            let Some(offset) = self.parts[part].body.offset(pc) else {
                return self.fall_out(part, pc, state, trail);
            };
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.parts[part].verdict.doubt(Doubt::Limit, pc);
                return;
            }
            let here = &mut self.parts[part];
            let Some(insn) = here.body.insn(self.program.file, offset) else {
                here.verdict.doubt(Doubt::Undecodable, pc);
                return;
            };
            if here.body.is_leader(offset) {
                if !self.arrive(part, pc, &mut state) {
                    return;
                }
                judged = u32::MAX;
            }
            let here = &mut self.parts[part];
            here.body.reach(offset, insn.len());
            judge(
                here,
                self.program,
                &self.jumps,
                pc,
                &state,
                trail,
                &mut judged,
            );
            match self.step(part, &insn, &mut state, trail) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
            if !self.parts[part].body.range.contains(&pc)
                && let Some(other) = self.part_at(pc)
            {
                part = other;
                judged = u32::MAX;
            }
        }
    }

    /// Joins the state with what is known at `pc`. Returns whether that is news, in `state`.
    fn arrive(&mut self, part: usize, pc: u64, state: &mut State) -> bool {
        let known = self.known.entry(pc).or_default();
        for old in known.iter_mut() {
            match old.join(state) {
                Some(false) => return false,
                Some(true) => {
                    state.clone_from(old);
                    return true;
                }
                None => {}
            }
        }
        if known.len() < FRAMES_MAX {
            known.push(state.clone());
            return true;
        }
        let sp = self.machine.lowered(pc);
        let Some(last) = known.last_mut() else {
            return false;
        };
        let before = last.clone();
        let moved = last.reg(Reg::Rsp) != state.reg(Reg::Rsp);
        last.weaken(state);
        if moved {
            last.set(Reg::Rsp, sp);
        }
        if *last == before {
            return false;
        }
        state.clone_from(last);
        if !moved {
            self.parts[part].verdict.doubt(Doubt::Frames, pc);
        }
        true
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
        match insn.flow_control() {
            FlowControl::Next => {
                self.machine.execute(insn, state);
                Next::Go(next)
            }
            FlowControl::UnconditionalBranch => {
                self.jump(part, insn, insn.near_branch64(), state.clone(), trail);
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
                    self.jump(part, insn, insn.near_branch64(), taken, trail);
                }
                Next::Go(next)
            }
            FlowControl::IndirectBranch => {
                self.jump_indirect(part, insn, state, trail);
                Next::End
            }
            FlowControl::Return => {
                self.returns = true;
                Next::End
            }
            FlowControl::Call if insn.mnemonic() != Mnemonic::Call => {
                self.system_call(part, insn, state)
            }
            FlowControl::Call => self.call(part, insn, state, trail),
            FlowControl::IndirectCall => self.call(part, insn, state, trail),
            FlowControl::Interrupt if insn.mnemonic() == Mnemonic::Int => {
                self.system_call(part, insn, state)
            }
            FlowControl::Interrupt | FlowControl::Exception => Next::End,
        }
    }

    /// A system call. One that never returns is followed as if it did: compilers and people put a
    /// loop or a trap behind it.
    fn system_call(&mut self, part: usize, insn: &Instruction, state: &mut State) -> Next {
        for reg in [Reg::Rax, Reg::Rcx, Reg::R11] {
            state.set(reg, Value::Computed);
        }
        let next = insn.next_ip();
        let file = self.program.file;
        match self.parts[part].body.skip_padding(file, next) {
            Some(_) => Next::Go(next),
            None => Next::End,
        }
    }

    fn call(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        trail: Option<u32>,
    ) -> Next {
        let (pc, next) = (insn.ip(), insn.next_ip());
        let direct = insn.op0_kind() == OpKind::NearBranch64;
        if direct && insn.near_branch64() == next {
            // Only to learn the address: it stays on the stack, or is popped.
            let value = i32::try_from(next).map_or(Value::Computed, Value::Const);
            push(state, 8, value);
            return Next::Go(next);
        }
        let never = if direct {
            let target = insn.near_branch64();
            self.callees.push(target);
            let here = &self.parts[part].body.range;
            if here.contains(&target) && target != here.start && !self.known.contains_key(&target) {
                // A function inside of the function.
                self.parts[part].body.lead(target);
                self.start(target);
            }
            self.program.never_returns(target)
        } else {
            self.machine
                .import(insn, state)
                .is_some_and(super::no_return::is_known)
        };
        state.call();
        self.landing_pad(part, pc, state, trail);
        let here = &mut self.parts[part];
        let file = self.program.file;
        if never || here.body.skip_padding(file, next).is_none() {
            self.assume(Assumption::NoReturn);
            return Next::End;
        }
        self.assume(Assumption::Callees);
        let here = &mut self.parts[part];
        let behind = here.body.skip_nops(file, next);
        if let Some(behind) = behind
            && seems_not_to_return(here, pc, behind, state)
        {
            self.suspects.push(Suspect {
                job: Job {
                    at: next,
                    state: state.clone(),
                    trail,
                },
                next: behind,
            });
            return Next::End;
        }
        Next::Go(next)
    }

    /// Whether suspects became jobs: where nothing else reaches the code behind a call, it returns.
    fn clear_suspects(&mut self) -> bool {
        while let Some(suspect) = self.suspects.pop() {
            let part = self.part_at(suspect.next);
            let reached = part.is_some_and(|p| {
                let body = &self.parts[p].body;
                body.offset(suspect.next)
                    .is_some_and(|o| body.reached.has(o))
            });
            if reached {
                self.assume(Assumption::NoReturn);
                continue;
            }
            self.jobs.push(suspect.job);
            return true;
        }
        false
    }

    fn assume(&mut self, assumption: Assumption) {
        if !self.assumed.contains(&assumption) {
            self.assumed.push(assumption);
        }
    }

    /// Where an exception thrown by the call at `pc` continues.
    fn landing_pad(&mut self, part: usize, pc: u64, state: &State, trail: Option<u32>) {
        let sites = &self.parts[part].sites;
        let after = sites.partition_point(|s| s.calls.start <= pc);
        let site = after.checked_sub(1).map(|i| &sites[i]);
        let Some(pad) = site.filter(|s| s.calls.contains(&pc)).map(|s| s.pad) else {
            return;
        };
        let args = size_at(&self.parts[part].args, pc);
        self.assume(Assumption::LandingPads);
        let mut state = state.clone();
        if let Ok(args @ 1..) = i64::try_from(args) {
            let sp = match self.parts[part]
                .rows
                .first_mut()
                .and_then(|r| r.cfa_base(pad))
            {
                Some(Reg::Rsp) => state.reg(Reg::Rsp).plus(args),
                // GCC does not always say that the arguments are gone if it needs no rsp.
                _ => self.machine.lowered(pad),
            };
            state.set(Reg::Rsp, sp);
        }
        // A call that cannot throw lies in the range of its neighbours' call site.
        if let Some(to) = self.part_at(pad)
            && self.is_misfit(to, pc, pad, &state, trail)
        {
            return;
        }
        self.job(part, pc, pad, state, trail);
    }

    fn jump(
        &mut self,
        part: usize,
        insn: &Instruction,
        target: u64,
        state: State,
        trail: Option<u32>,
    ) {
        self.job(part, insn.ip(), target, state, trail);
    }

    /// Continues at `target`, in this function or another.
    fn job(&mut self, part: usize, from: u64, target: u64, state: State, trail: Option<u32>) {
        let Some(to) = self.part_at(target) else {
            return self.leave(part, from, target, state, trail);
        };
        self.parts[to].body.lead(target);
        let is_part = self.program.functions[self.parts[to].function].entry == Entry::Part;
        if to != part && is_part && self.is_misfit(to, from, target, &state, trail) {
            return;
        }
        let before = trail;
        self.jumps.push(Jump {
            from,
            to: target,
            before,
        });
        let trail = u32::try_from(self.jumps.len() - 1).ok();
        self.jobs.push(Job {
            at: target,
            state,
            trail,
        });
    }

    /// Whether the frame does not fit the row at `target`, in a part of a function or at a landing
    /// pad: then this way is never taken, if others fit there.
    fn is_misfit(
        &mut self,
        to: usize,
        from: u64,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) -> bool {
        let part = &mut self.parts[to];
        let fits = part
            .rows
            .first_mut()
            .is_none_or(|rows| !rows.contradicts(target, state));
        if fits {
            return false;
        }
        let mut misfit = Misfit {
            function: part.function,
            target,
            verdict: FunctionVerdict::default(),
        };
        let mut path = path(&self.jumps, trail);
        path.push((from, target));
        for rows in &mut part.rows {
            let Some(index) = rows.find(target) else {
                continue;
            };
            let row = rows.rows[index];
            claim::judge(rows.table, &row, target, state, |subject, outcome| {
                if let Outcome::Contradicted { found } = outcome {
                    let at = (rows.table, &row, target);
                    contradict(&mut misfit.verdict, at, state, (subject, found), &path);
                }
            });
        }
        self.misfits.push(misfit);
        true
    }

    /// The code runs on behind the function's last instruction.
    fn fall_out(&mut self, part: usize, pc: u64, state: State, trail: Option<u32>) {
        self.leave(part, pc.wrapping_sub(1), pc, state, trail);
    }

    /// A jump out of the functions that are followed: a tail call, or a jump to another part.
    fn leave(&mut self, part: usize, from: u64, target: u64, state: State, trail: Option<u32>) {
        let program = self.program;
        let function = program.function_at(target);
        let unit = function.map(|f| &program.functions[f]);
        let is_entry = unit.is_none_or(|u| {
            u.entry == Entry::Plt || u.range.start == target && u.entry != Entry::Part
        });
        if is_entry && state.is_as_at_entry() {
            self.callees.push(target);
            self.returns |= !program.never_returns(target);
            return;
        }
        if is_entry {
            self.returns = true;
            self.parts[part].verdict.doubt(Doubt::LeftTable, from);
            return;
        }
        if let Some(function) = function
            && self.open(function).is_some()
        {
            self.job(part, from, target, state, trail);
        } else {
            self.returns = true;
            self.parts[part].verdict.doubt(Doubt::Limit, from);
        }
    }

    fn jump_indirect(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        match self.machine.target(insn, state) {
            Value::TableEntry { table } => self.jump_by_table(part, insn, state, trail, table, 0),
            Value::TableTarget { table, base } => {
                self.jump_by_table(part, insn, state, trail, table, i64::from(base));
            }
            Value::ReturnAddress => self.returns = true,
            _ if state.is_as_at_entry() => {
                let name = self.machine.import(insn, state);
                self.returns |= !name.is_some_and(super::no_return::is_known);
            }
            _ => {
                self.returns = true;
                self.parts[part]
                    .verdict
                    .doubt(Doubt::IndirectJump, insn.ip());
            }
        }
    }

    fn jump_by_table(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
        table: u16,
        base: i64,
    ) {
        let Some(table) = self.machine.tables.get(usize::from(table)).copied() else {
            return;
        };
        let program = self.program;
        let body = &self.parts[part].body;
        let next = body.next_address(table.at);
        let targets = table.targets(program.file, base.cast_unsigned(), next, |target| {
            body.starts_at(target) || !body.range.contains(&target) && program.is_part(target)
        });
        let mut state = state.clone();
        if targets.is_guess {
            self.assume(Assumption::JumpTables);
            state.is_guessed = true;
        }
        if targets.addresses.is_empty() {
            self.returns = true;
            self.parts[part]
                .verdict
                .doubt(Doubt::IndirectJump, insn.ip());
        }
        for target in targets.addresses {
            self.job(part, insn.ip(), target, state.clone(), trail);
        }
    }
}

/// Whether the row behind a call does not fit the state, though it differs from the call's own.
fn seems_not_to_return(part: &mut Part<'_>, call: u64, behind: u64, state: &State) -> bool {
    let Some(rows) = part.rows.first_mut() else {
        return false;
    };
    let (Some(before), Some(after)) = (rows.find(call), rows.find(behind)) else {
        return false;
    };
    if before == after || rows.rows[after].rule.kind == RuleKind::Outermost {
        return false;
    }
    rows.contradicts(behind, state)
}

impl Rows<'_> {
    /// The register that the CFA is based on at `pc`.
    fn cfa_base(&mut self, pc: u64) -> Option<Reg> {
        let index = self.find(pc)?;
        self.rows[index].rule.cfa.base_reg()
    }

    /// Whether the row for `pc` does not fit `state` there.
    fn contradicts(&mut self, pc: u64, state: &State) -> bool {
        let mut wrong = false;
        if let Some(index) = self.find(pc) {
            claim::judge(self.table, &self.rows[index], pc, state, |_, outcome| {
                wrong |= matches!(outcome, Outcome::Contradicted { .. });
            });
        }
        wrong
    }

    /// The number of the row for `pc`.
    #[inline]
    fn find(&mut self, pc: u64) -> Option<usize> {
        let inside = |row: &Row<'_>| row.start <= pc && pc < row.end;
        if self.rows.get(self.last).is_some_and(inside) {
            return Some(self.last);
        }
        let after = self.rows.partition_point(|row| row.start <= pc);
        let index = after.checked_sub(1)?;
        self.last = index;
        inside(&self.rows[index]).then_some(index)
    }
}

/// Holds the rows for `pc` against the state there.
#[inline]
fn judge(
    part: &mut Part<'_>,
    program: &Program<'_>,
    jumps: &[Jump],
    pc: u64,
    state: &State,
    trail: Option<u32>,
    judged: &mut u32,
) {
    let same_state = *judged == state.version();
    *judged = state.version();
    for rows in &mut part.rows {
        let last = rows.last;
        let Some(index) = rows.find(pc) else {
            continue;
        };
        if same_state && last == index {
            continue;
        }
        let row = rows.rows[index];
        match row.rule.kind {
            RuleKind::Outermost => {
                if !program.is_start(pc) {
                    rows.marks[index] |= 2;
                    part.verdict.doubt(Doubt::Outermost, pc);
                }
                continue;
            }
            RuleKind::Signal => {
                rows.marks[index] |= 2;
                part.verdict.doubt(Doubt::SignalFrame, pc);
                continue;
            }
            _ => {}
        }
        let (verdict, marks) = (&mut part.verdict, &mut rows.marks[index]);
        let table = rows.table;
        claim::judge(table, &row, pc, state, |subject, outcome| match outcome {
            Outcome::Proven { below_sp } => verdict.below_sp += u32::from(below_sp),
            Outcome::Contradicted { .. } if state.is_guessed => {
                *marks |= 2;
                verdict.doubt(Doubt::Guessed, pc);
            }
            Outcome::Contradicted { found } => {
                *marks |= 1;
                if !verdict.contradicts(table.kind(), &row, subject) {
                    let path = path(jumps, trail);
                    contradict(verdict, (table, &row, pc), state, (subject, found), &path);
                }
            }
            Outcome::Unproven => {
                *marks |= 2;
                let sp = state.reg(Reg::Rsp);
                verdict.doubt(
                    match subject {
                        Subject::Cfa if sp == Value::Unknown => Doubt::StackPointer,
                        Subject::Cfa if matches!(sp, Value::Below { .. }) => Doubt::Distance,
                        _ => Doubt::Value,
                    },
                    pc,
                );
            }
        });
    }
}

/// The jumps that led to a place, in order.
fn path(jumps: &[Jump], mut trail: Option<u32>) -> Vec<(u64, u64)> {
    let mut path = Vec::new();
    while let Some(jump) = trail.and_then(|t| jumps.get(t as usize)) {
        path.push((jump.from, jump.to));
        trail = jump.before;
    }
    path.reverse();
    path
}

/// Adds a contradiction of a row at an address, in a state reached by `path`.
#[cold]
fn contradict(
    verdict: &mut FunctionVerdict,
    (table, row, pc): (&Table, &Row<'_>, u64),
    state: &State,
    (subject, found): (Subject, Value),
    path: &[(u64, u64)],
) {
    verdict.contradictions.push(Contradiction {
        table: table.kind(),
        row: row.start..row.end,
        row_offset: row.offset,
        pc,
        rule: *row.rule,
        subject,
        found,
        sp: state.reg(Reg::Rsp),
        right: super::derive::rule(state),
        path: path.to_vec(),
    });
}
