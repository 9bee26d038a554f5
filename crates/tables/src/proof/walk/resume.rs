//! Where runtimes continue code without a jump that leads there: OCaml's exception handlers, the end of a
//! Go function that has deferred calls, functions with a split stack, and what a debugger continues.

use super::{Next, PendingPath, Walker};
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::Assumption;
use iced_x86::{Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::regs::{Reg, RegMask};

/// The functions that continue their caller on another stack. gold calls the second one where code that
/// knows nothing of this is called.
const SPLIT_STACK: [&str; 2] = ["__morestack", "__morestack_non_split"];
/// The instruction `ret`.
const RET: u8 = 0xc3;

impl Walker<'_, '_> {
    /// OCaml's `push handler; push previous; mov %rsp, ..` makes a handler: an exception sets rsp to what
    /// was stored and returns to the handler, so that rsp is as before both (OCaml
    /// `asmcomp/amd64/emit.mlp`, `Lpushtrap` and `Lraise`).
    pub(super) fn ocaml_handler(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        if insn.mnemonic() != Mnemonic::Push || insn.op0_kind() != OpKind::Register {
            return;
        }

        let here = &self.parts[part];
        let is_ocaml = here.convention == Convention::Ocaml
            || self.program.convention(here.body.range.start).1 == Evidence::Symbols;

        let Value::Const(handler) = self.machine.target(insn, state) else {
            return;
        };
        let handler = i64::from(handler).cast_unsigned();
        if !is_ocaml || !here.body.starts_at(handler) {
            return;
        }

        self.assume(Assumption::LandingPads);
        self.job(
            part,
            insn.ip(),
            handler,
            &resumed(state, RegMask::NONE),
            trail,
        );
    }

    /// Where a Go function continues if a function that it calls panics, and a deferred one recovers: at
    /// its call of `runtime.deferreturn`, with the frame's rsp (Go `src/runtime/panic.go`, `recovery`).
    pub(super) fn go_recovery(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        let here = &self.parts[part];
        // `runtime.morestack` is called before there is a frame.
        if here.convention != Convention::Go || state.reg(Reg::Rsp) == Value::frame(0) {
            return;
        }
        let Some(at) = self.program.deferreturn(here.body.range.start) else {
            return;
        };
        self.assume(Assumption::LandingPads);
        self.job(
            part,
            insn.ip(),
            at,
            &resumed(state, Convention::Go.preserves()),
            trail,
        );
    }

    /// `call __morestack; ret`: on another stack, it calls what lies behind the `ret`, as if that were the
    /// function, and then comes back to the `ret` (libgcc `config/i386/morestack.S`).
    pub(super) fn split_stack(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        let (callee, next) = (insn.near_branch64(), insn.next_ip());
        let file = self.program.file;
        let is_split = insn.op0_kind() == OpKind::NearBranch64
            && file
                .names_at(callee)
                .any(|name| SPLIT_STACK.contains(&name))
            && file.bytes(next).first() == Some(&RET);
        if is_split && self.parts[part].body.offset(next + 1).is_some() {
            self.assume(Assumption::Callees);
            self.job(part, insn.ip(), next + 1, state, trail);
        }
    }

    /// A breakpoint, behind which a debugger continues: what lies there is followed if nothing else leads
    /// there.
    pub(super) fn breakpoint(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) -> Next {
        let next = insn.next_ip();
        let file = self.program.file;

        // Go's runtime has functions that a debugger calls.
        let goes_on = self.parts[part].convention == Convention::Go;
        if self.parts[part].body.skip_padding(file, next).is_none() {
            return if goes_on && self.goes_on_beyond(part, next) {
                Next::Go(next)
            } else {
                Next::End
            };
        }

        // Without a debugger nothing goes on behind a breakpoint, so what lies there is dead code.
        let mut state = state.clone();
        state.is_dead = !goes_on;
        self.parts[part].body.lead(next);
        self.unreached.push(PendingPath {
            at: next,
            state,
            trail,
        });
        Next::End
    }
}

/// The state in which a runtime continues a frame: as behind a call that keeps these registers and rsp.
fn resumed(state: &State, kept: RegMask) -> State {
    let mut state = state.clone();
    state.call(kept);
    state
}
