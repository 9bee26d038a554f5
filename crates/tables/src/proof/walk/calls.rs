//! Calls: where they return, which never do, and where exceptions continue.

use super::rows::judge_call;
use super::{FunctionWalk, Next, PendingPath, SuspectCall, Walker};
use crate::proof::args_size::size_at;
use crate::proof::effect::changed;
use crate::proof::exec::push;
use crate::proof::program::{Effect, Entry, Pops, Returns};
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use crate::proof::verdict::Assumption;
use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::borrow::Cow;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::RuleKind;

/// The maximum number of functions that lead to each other by the addresses in registers.
const THROUGH_MAX: usize = 4;

/// The maximum number of instructions between a system call that makes a thread and the jump that
/// decides who is who.
const CHILD_MAX: usize = 8;

/// The numbers of system calls (`arch/x86/entry/syscalls/syscall_64.tbl` in Linux, and
/// `syscall_32.tbl`).
const EXIT: i32 = 60;
const CLONE: i32 = 56;
const CLONE3: i32 = 435;
const EXIT_GROUP: i32 = 231;
const RT_SIGRETURN: i32 = 15;
const EXIT_32: i32 = 1;
const EXIT_GROUP_32: i32 = 252;
const SIGRETURN_32: i32 = 119;
const RT_SIGRETURN_32: i32 = 173;

impl Walker<'_, '_> {
    /// A system call. Behind one that never returns, compilers and people put a loop or a trap.
    pub(super) fn system_call(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        trail: Option<u32>,
    ) -> Next {
        // By the number of the call, which is in rax: `exit` and the like.
        let is_final = never_returns(insn, state.reg(Reg::Rax));
        // The new thread returns from the call as well, on a stack of its own.
        if starts_thread(insn, state) {
            self.child(part, insn);
        }
        // The result, and what `syscall` overwrites with rip and rflags.
        for reg in [Reg::Rax, Reg::Rcx, Reg::R11] {
            state.set(reg, Value::Computed);
        }

        // The kernel has popped nothing, so rsp and callee-saved registers are as before.
        let next = insn.next_ip();
        let file = self.program.file;
        if is_final {
            self.assume(Assumption::NoReturn);
            // What lies behind has rows all the same: it is followed if nothing else leads there.
            let mut state = state.clone();
            state.is_dead = true;
            let at = next;
            self.unreached.push(PendingPath { at, state, trail });
            return Next::End;
        }

        // At the end of the function's code the call must be one that does not return.
        match self.parts[part].body.skip_padding(file, next) {
            None if !self.goes_on_beyond(part, next) => Next::End,
            _ => Next::Go(next),
        }
    }

    /// Finds where the code behind a system call that makes a thread decides who is who: the new thread
    /// has another stack there.
    fn child(&mut self, part: usize, insn: &Instruction) {
        let here = &mut self.parts[part].body;
        let mut at = insn.next_ip();
        let mut is_tested = false;
        for _ in 0..CHILD_MAX {
            let offset = here.offset(at).filter(|o| !here.is_leader(*o));
            let Some(next) = offset.and_then(|o| here.insn(self.program.file, o)) else {
                return;
            };
            match next.flow_control() {
                FlowControl::ConditionalBranch if is_tested => {
                    let condition = next.condition_code();
                    if matches!(condition, ConditionCode::e | ConditionCode::ne) {
                        let is_taken = condition == ConditionCode::e;
                        self.children.push((next.ip(), is_taken));
                        return;
                    }
                }
                FlowControl::Next => is_tested |= is_test_of_rax(&next),
                _ => return,
            }
            at = next.next_ip();
        }
    }

    /// What a conditional jump does with `state`: taken or not. A new thread has its own stack.
    pub(super) fn as_thread<'s>(
        &self,
        jump: &Instruction,
        is_taken: bool,
        state: &'s State,
    ) -> Cow<'s, State> {
        if !self.children.contains(&(jump.ip(), is_taken)) {
            return Cow::Borrowed(state);
        }
        let mut child = state.clone();
        child.set(Reg::Rsp, Value::Unknown);
        Cow::Owned(child)
    }

    pub(super) fn call(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &mut State,
        trail: Option<u32>,
    ) -> Next {
        // Both addresses are needed: a walk looks up the call, and execution goes on behind it.
        let (pc, next) = (insn.ip(), insn.next_ip());
        let direct = insn.op0_kind() == OpKind::NearBranch64;
        let is_inside = self.parts[part].body.offset(next).is_some();
        if direct && insn.near_branch64() == next && is_inside {
            // Only to learn the address: it stays on the stack, or is popped.
            let value = i32::try_from(next).map_or(Value::Computed, Value::Const);
            push(state, 8, value);
            return Next::Go(next);
        }

        // A retpoline calls code that replaces the return address and jumps there.
        if direct && self.is_retpoline(part, insn) {
            push(state, 8, Value::Computed);
            return Next::Go(insn.near_branch64());
        }

        let target = direct.then(|| insn.near_branch64());

        // The name of an import says more than its stub, whose code is in another file.
        let known = self.known_target(insn, state);
        let returns = if let Some(name) = self.imported(insn) {
            self.program.returns_by_name(name)
        } else if let Some(target) = target {
            self.callees.push(target);
            self.called.push(target);
            let here = &self.parts[part].body.range;
            // A part of the function that is called, as Mono calls `finally` blocks.
            if here.contains(&target)
                && target != here.start
                && !self.parts[part].body.is_met(target)
            {
                self.parts[part].body.lead(target);
                self.call_inside(part, insn, state, trail);
            }
            self.returns(target, state)
        } else {
            let import = self.machine.import(insn, state);
            import.map_or(Returns::Maybe, |name| self.program.returns_by_name(name))
        };

        // Registers that the callee must keep are still known, all others are not.
        let preserved = self.preserved(part, insn);
        state.call(preserved);

        // While the callee runs, walks read the call's own row, and exceptions take its landing
        // pad.
        if !state.is_dead {
            let here = &mut self.parts[part];
            let (anchors, jumps) = (&self.machine.anchors, &self.jumps);
            judge_call(here, anchors, jumps, (pc, next), state, trail);
            self.landing_pad(part, pc, state, trail);
            self.go_recovery(part, insn, state, trail);
            self.split_stack(part, insn, state, trail);
        }

        // Behind a call that returns there must be code.
        let here = &mut self.parts[part];
        let file = self.program.file;
        let is_last = here.body.skip_padding(file, next).is_none();
        let is_last = is_last && (returns == Returns::Never || !self.goes_on_beyond(part, next));

        if returns == Returns::Never || is_last {
            self.assume(Assumption::NoReturn);
            if !is_last {
                let mut state = state.clone();
                state.is_dead = true;
                let at = next;
                self.unreached.push(PendingPath { at, state, trail });
            }
            return Next::End;
        }

        // That callees keep what the convention says is an assumption here.
        self.assume(Assumption::Callees);
        // `State::call` took the callee to keep what the convention says; what it does otherwise
        // comes on top.
        if let Some(target) = target.or(known) {
            self.program.effect(target).apply(state);
        }

        // A row behind the call that does not fit is right if the callee never returns: that is
        // decided later.
        let here = &mut self.parts[part];
        if returns == Returns::Maybe
            && let Some(behind) = here.body.skip_nops(file, next)
            && seems_not_to_return(here, pc, behind, state, &self.machine.anchors)
        {
            self.suspects.push(SuspectCall {
                job: PendingPath {
                    at: next,
                    state: state.clone(),
                    trail,
                },
                target,
                next: behind,
            });
            return Next::End;
        }

        Next::Go(next)
    }

    /// The function (svma) whose address a register has that is called.
    fn known_target(&mut self, insn: &Instruction, state: &State) -> Option<u64> {
        if insn.op0_kind() != OpKind::Register {
            return None;
        }
        let Value::Const(at) = self.machine.target(insn, state) else {
            return None;
        };
        let target = i64::from(at).cast_unsigned();
        self.program.starting_at(target)?;
        self.callees.push(target);
        self.called.push(target);
        Some(target)
    }

    /// A call of code inside of the function. It is a function of its own, or, as the rows there may say,
    /// a part of this one that this one's frame belongs to: Mono calls `finally` blocks so.
    fn call_inside(&mut self, part: usize, insn: &Instruction, state: &State, trail: Option<u32>) {
        let target = insn.near_branch64();
        let entry = self.entry_state(target);
        let mut within = state.clone();
        push(&mut within, 8, Value::Inside);
        let anchors = &self.machine.anchors;
        let mut fits = |state: &State| {
            let mut rows = self.parts[part].rows.iter_mut();
            rows.all(|rows| !rows.contradicts(target, state, anchors))
        };
        if fits(&entry) || !fits(&within) {
            self.start(target)
        } else {
            self.job(part, insn.ip(), target, &within, trail)
        }
    }

    /// The registers that a callee keeps: of a function of this file, those of its convention. Others
    /// are taken to be like their caller, and C's only if that is.
    fn preserved(&self, part: usize, insn: &Instruction) -> RegMask {
        let callee = match insn.op0_kind() {
            OpKind::NearBranch64 => self.program.starting_at(insn.near_branch64()),
            _ => None,
        };
        let callee = callee.map(|callee| &self.program.functions[callee]);
        let callee = callee.filter(|unit| unit.entry != Entry::Plt);
        let convention = match callee {
            Some(unit) => self.program.convention(unit.range.start).0,
            None => self.parts[part].convention,
        };
        convention.preserves()
    }

    /// Whether a call of `target` (svma) in `state` returns.
    pub(super) fn returns(&mut self, target: u64, state: &State) -> Returns {
        let mut target = target;
        for _ in 0..THROUGH_MAX {
            let Returns::As(reg) = self.returns_of(target) else {
                return self.returns_of(target);
            };
            match state.reg(reg) {
                Value::Const(at) if self.is_code(i64::from(at).cast_unsigned()) => {
                    target = i64::from(at).cast_unsigned();
                    self.callees.push(target);
                }
                Value::Entry { reg, offset: 0 } if reg != Reg::Rsp => return Returns::As(reg),
                _ => return Returns::Maybe,
            }
        }
        Returns::Maybe
    }

    /// What is known of the return of the function at `target` (svma).
    fn returns_of(&mut self, target: u64) -> Returns {
        let program = self.program;
        let asked = self.asked.entry(target);
        *asked.or_insert_with(|| {
            if program.never_returns(target) {
                Returns::Never
            } else {
                program.returns(target)
            }
        })
    }

    /// Whether the call only pushes: what lies behind it catches speculation, and the called code in
    /// the same function replaces the return address.
    fn is_retpoline(&mut self, part: usize, insn: &Instruction) -> bool {
        let body = &mut self.parts[part].body;
        let (target, next) = (insn.near_branch64(), insn.next_ip());
        if body.offset(target).is_none() || target <= next {
            return false;
        }
        let file = self.program.file;
        let behind = body.offset(next).and_then(|offset| body.insn(file, offset));
        behind.is_some_and(|i| {
            matches!(
                i.mnemonic(),
                Mnemonic::Pause | Mnemonic::Lfence | Mnemonic::Int3
            )
        })
    }

    /// Whether suspects became jobs: where nothing else reaches the code behind a call, it returns.
    pub(super) fn clear_suspects(&mut self) -> bool {
        while let Some(suspect) = self.suspects.pop() {
            let part = self.part_at(suspect.next);
            let reached = part.is_some_and(|p| {
                let body = &self.parts[p].body;
                body.offset(suspect.next)
                    .is_some_and(|o| body.reached.has(o))
            });
            if reached {
                self.assume(Assumption::NoReturn);
                self.taken_as_final.extend(suspect.target);
                continue;
            }
            let job = suspect.job;
            self.go(job.at, &job.state, job.trail);
            return true;
        }
        false
    }

    /// Whether there is code that nothing else reaches: behind a call that never returns, where a
    /// compiler that did not know so wrote rows for it, or at a label.
    pub(super) fn follow_unreached(&mut self) -> bool {
        while let Some(job) = self.unreached.pop() {
            let part = self.part_at(job.at);
            let body = part.map(|p| &self.parts[p].body);
            let reached = body.and_then(|b| Some(b.reached.has(b.offset(job.at)?)));
            if reached == Some(false) {
                self.go(job.at, &job.state, job.trail);
                return true;
            }
        }
        false
    }

    /// Whether the rows for dead code fit what the code would have done. If not, it stays unreached.
    pub(super) fn is_dead_code_right(&mut self, part: usize, pc: u64, state: &State) -> bool {
        let anchors = &self.machine.anchors;
        let mut rows = self.parts[part].rows.iter_mut();
        rows.all(|rows| !rows.contradicts(pc, state, anchors))
    }

    /// Where an exception thrown by the call at `pc` continues.
    pub(super) fn landing_pad(&mut self, part: usize, pc: u64, state: &State, trail: Option<u32>) {
        // Call sites are sorted by their start, as the tables of compilers are.
        let sites = &self.parts[part].sites;
        let after = sites.partition_point(|s| s.calls.start <= pc);
        let site = after.checked_sub(1).map(|i| &sites[i]);
        let Some(pad) = site.filter(|s| s.calls.contains(&pc)).map(|s| s.pad) else {
            return;
        };

        let args = size_at(&self.parts[part].args, pc);
        self.assume(Assumption::LandingPads);

        // The unwinder pops arguments before it goes to the landing pad (`DW_CFA_GNU_args_size`).
        let mut without_args = None;
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
            without_args.insert(state.clone()).set(Reg::Rsp, sp);
        }

        // At the pad, registers are those that the unwinder restores: the same as at the call.
        let state = without_args.as_ref().unwrap_or(state);

        // A call that cannot throw lies in the range of its neighbours' call site.
        if let Some(to) = self.part_at(pad)
            && self.is_misfit(to, pc, pad, state, trail)
        {
            return;
        }

        self.job(part, pc, pad, state, trail);
    }

    /// What a return tells a caller.
    pub(super) fn returned(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        // A return to a label in the function, as retpolines have, tells no caller anything.
        if returns_inside(state) {
            return;
        }

        // On a way behind what never returns, a return says nothing.
        self.returns |= !state.is_dead;
        if state.is_guessed || state.is_dead {
            return;
        }

        let sp = state.reg(Reg::Rsp);
        if matches!(
            insn.mnemonic(),
            Mnemonic::Iretq | Mnemonic::Iretd | Mnemonic::Iret
        ) {
            // It pops rsp as well, so that nothing of it is left for whom it returns to.
            self.iret = Some(match self.iret {
                Some(known) if known != sp => Value::Unknown,
                _ => sp,
            });
            return;
        }

        // `ret $n` pops n more bytes, the arguments (SDM, RET).
        let pops = match insn.op_count() {
            0 => 0,
            _ => insn.try_immediate(0).unwrap_or(0) as i64,
        };

        // The return address is still in its place, and rsp points to it.
        let is_at_address = sp.is_stack() && state.load(sp, 8) == Value::ReturnAddress;
        if is_at_address {
            // Without a call on the way, nothing can have kept it from its end.
            self.surely_returns |= !state.has_called;
            self.ends(Effect::of(state, sp.plus(pops)));
            self.returns_to_caller(insn.ip(), None, state, trail);
        } else {
            self.returns_elsewhere(part, (sp, pops), state);
        }

        // What pops a known size is known to its callers.
        self.breaks_the_abi |= if is_at_address {
            changed(state) != 0
        } else {
            pops != 0 || state.breaks_the_abi()
        };
    }

    /// A return to something else than the address that the function was entered with, which lies at `sp`.
    /// Behind it, `pops` bytes are popped.
    fn returns_elsewhere(&mut self, part: usize, (sp, pops): (Value, i64), state: &State) {
        let effect = match sp {
            // Not even that it is another stack is known.
            Value::Below { .. } => return,
            Value::Unknown if !self.leaves_stack(part, state) => return,
            // A pushed address, which takes the place of a jump.
            sp if pops == 0 && sp == Value::frame(-8) => Effect::of(state, sp.plus(8)),
            sp if pops == 0 && sp == Value::frame(0) => Effect::of(state, sp),
            _ => Effect {
                pops: Pops::Varies,
                changed: changed(state),
            },
        };
        self.ends(effect);
    }

    /// Whether rsp, of which nothing is known in `state`, surely belongs to another context. But if the
    /// function has put a stack address into memory that is not followed, somebody may switch back to it;
    /// and OCaml and Go leave functions so which they do not return from.
    fn leaves_stack(&self, part: usize, state: &State) -> bool {
        let convention = self.parts[part].convention;
        let is_exempt = matches!(convention, Convention::Ocaml | Convention::Go);
        let may_be_kept = state.is_lossy || self.machine.stored_stack || !self.children.is_empty();
        state.is_foreign && !is_exempt && !may_be_kept
    }

    /// A way ends with this effect.
    pub(super) fn ends(&mut self, effect: Effect) {
        self.endings.add(effect);
        self.breaks_the_abi |= effect.pops == Pops::Varies;
    }

    /// A way leaves the function in `state` by a jump, though not everything is as at entry: if the return
    /// address is on top of the stack, whoever it leads to cannot know what the registers were.
    pub(super) fn ends_changed(&mut self, state: &State) {
        if state.is_guessed || state.is_dead {
            return;
        }
        let sp = state.reg(Reg::Rsp);
        let is_on_top = sp == Value::frame(0) && state.load(sp, 8) == Value::ReturnAddress;
        if is_on_top {
            self.ends(Effect::of(state, sp));
        } else if sp == Value::ByCallee || matches!(sp, Value::Entry { offset: 1.., .. }) {
            let pops = Pops::Varies;
            self.ends(Effect { pops, changed: 0 });
        }
    }
}

/// Whether a return goes back behind a call inside of the function, see [`Walker::call_inside`].
fn returns_inside(state: &State) -> bool {
    let sp = state.reg(Reg::Rsp);
    sp.is_stack() && state.load(sp, 8) == Value::Inside
}

/// Whether Linux never returns from this system call, of which rax holds the number `number`.
fn never_returns(insn: &Instruction, number: Value) -> bool {
    let Value::Const(number) = number else {
        return false;
    };
    match insn.mnemonic() {
        Mnemonic::Syscall => matches!(number, EXIT | EXIT_GROUP | RT_SIGRETURN),
        Mnemonic::Int if insn.immediate8() == 0x80 => {
            matches!(
                number,
                EXIT_32 | EXIT_GROUP_32 | SIGRETURN_32 | RT_SIGRETURN_32
            )
        }
        _ => false,
    }
}

/// Whether this system call makes a thread with a stack of its own.
fn starts_thread(insn: &Instruction, state: &State) -> bool {
    if insn.mnemonic() != Mnemonic::Syscall {
        return false;
    }
    match state.reg(Reg::Rax) {
        // Without a stack, it is as fork.
        Value::Const(CLONE) => state.reg(Reg::Rsi) != Value::Const(0),
        Value::Const(CLONE3) => true,
        _ => false,
    }
}

/// `test %rax, %rax` and its like.
fn is_test_of_rax(insn: &Instruction) -> bool {
    let is_rax = |register: Register| register.full_register() == Register::RAX;
    match insn.mnemonic() {
        Mnemonic::Test | Mnemonic::Or | Mnemonic::And => {
            is_rax(insn.op0_register()) && is_rax(insn.op1_register())
        }
        Mnemonic::Cmp => is_rax(insn.op0_register()) && insn.try_immediate(1).is_ok_and(|n| n == 0),
        _ => false,
    }
}

/// Whether the row behind a call does not fit the state, though it differs from the call's own.
fn seems_not_to_return(
    part: &mut FunctionWalk<'_>,
    call: u64,
    behind: u64,
    state: &State,
    anchors: &[Anchor],
) -> bool {
    let Some(rows) = part.rows.first_mut() else {
        return false;
    };
    let (Some(before), Some(after)) = (rows.find(call), rows.find(behind)) else {
        return false;
    };
    if before == after || rows.rows[after].rule.kind == RuleKind::Outermost {
        return false;
    }
    rows.contradicts(behind, state, anchors)
}
