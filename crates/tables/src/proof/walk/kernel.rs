//! Ways that the code of a relocatable object does not show itself: to functions of other objects,
//! and, in a kernel module, behind static branches, faults, warnings, and through alternatives.

use super::rows::judge;
use super::{Next, Walker};
use crate::kernel::{Alternative, SpecialSections};
use crate::proof::state::State;
use crate::proof::verdict::{Assumption, Doubt};
use crate::proof::ways::{REPLACEMENT_MAX, ReplacedInsn, replaced};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::RegMask;

/// The length of the distance at the end of a near jump or call, bytes.
const REL32_LEN: u64 = 4;
/// The section with the slow ways of static branches on features of the processor (Linux
/// `arch/x86/include/asm/cpufeature.h`, `_static_cpu_has`): a test and two jumps back. It belongs to
/// no function, and has no rows.
const AUX_SECTION: &str = ".altinstr_aux";
/// The maximum number of instructions followed there.
const AUX_MAX: usize = 16;
/// A jump there is a return (Linux `arch/x86/lib/retpoline.S`).
const RETURN_THUNK: &str = "__x86_return_thunk";
/// A jump there is one to the address in the register that the rest of the name says.
const INDIRECT_THUNK: &str = "__x86_indirect_thunk_";

impl<'f> Walker<'_, 'f> {
    /// The name of the function of another object that a direct jump or call goes to.
    pub(super) fn imported(&self, insn: &Instruction) -> Option<&'f str> {
        let file = self.program.file;
        if !file.is_relocatable() || insn.op0_kind() != OpKind::NearBranch64 {
            return None;
        }
        file.import(insn.next_ip().wrapping_sub(REL32_LEN))
    }

    /// A jump to a function of another object.
    pub(super) fn jump_to_import(
        &mut self,
        part: usize,
        insn: &Instruction,
        name: &str,
        state: &State,
        trail: Option<u32>,
    ) {
        if state.is_dead {
            return;
        }
        // `-mfunction-return=thunk-extern` makes a jump of each return.
        if name == RETURN_THUNK {
            return self.returned(part, insn, state, trail);
        }
        // `-mindirect-branch=thunk-extern` makes a jump to one of these of each indirect jump.
        let is_thunk = name.starts_with(INDIRECT_THUNK);
        if !is_thunk && self.program.is_known_not_to_return(name) {
            return self.assume(Assumption::NoReturn);
        }

        // Whatever the name is, it may return to this function's caller.
        self.returns = true;
        if !state.is_as_at_entry() {
            let doubt = if is_thunk {
                Doubt::IndirectJump
            } else {
                Doubt::LeftTable
            };
            self.parts[part].verdict.doubt(doubt, insn.ip());
        }
    }

    /// Whether execution goes on behind the `ud2` at `pc` (svma).
    pub(super) fn is_warning(&mut self, pc: u64) -> bool {
        let edges = self.program.edges();
        let is_warning = edges.is_some_and(|edges| edges.warnings.contains_key(&pc));
        if is_warning {
            self.assume(Assumption::KernelEdges);
        }
        is_warning
    }

    /// Follows the ways that lead from an instruction by what the module's sections say.
    pub(super) fn side_ways(
        &mut self,
        edges: &SpecialSections,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        let pc = insn.ip();
        for to in edges.ways(pc, insn.next_ip()) {
            self.assume(Assumption::KernelEdges);
            self.job(part, pc, to, state, trail);
        }
        for alternative in edges.alternatives.get(&pc).into_iter().flatten() {
            self.assume(Assumption::KernelEdges);
            self.alternative(part, alternative, state.clone(), trail);
        }
    }

    /// Follows what replaces the code at an instruction. Rows are those of the place to which it is
    /// copied.
    fn alternative(
        &mut self,
        part: usize,
        alternative: &Alternative,
        mut state: State,
        trail: Option<u32>,
    ) {
        let Alternative {
            original,
            replacement,
        } = alternative;

        let mut pc = replacement.start;
        let mut judged = None;

        // A replacement is at most a few instructions; the bound is for damaged sections.
        for _ in 0..REPLACEMENT_MAX {
            // The rows are those of the place in the original that the replacement is copied to.
            let place = original.start + (pc - replacement.start);
            if place < original.end {
                let all = (self.program, &self.machine.anchors[..]);
                let here = &mut self.parts[part];
                judge(here, all, &self.jumps, place, &state, trail, &mut judged);
            }

            // What is longer in the original is filled with no-operations (`apply_alternatives`).
            if pc >= replacement.end {
                return self.job(part, original.start, original.end, &state, trail);
            }

            let insn = match replaced(self.program.file, alternative, pc, &mut state) {
                ReplacedInsn::Done(next) => {
                    pc = next;
                    continue;
                }
                ReplacedInsn::Execute(insn) => insn,
                ReplacedInsn::Undecodable => {
                    return self.parts[part].verdict.doubt(Doubt::Undecodable, place);
                }
            };

            // Not by `step`: the rows for the call are those of the place that it is copied to.
            if matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) && insn.mnemonic() == Mnemonic::Call
            {
                // The callee is a symbol of the kernel or of another module.
                let name = self.imported(&insn);
                if name.is_some_and(|name| self.program.is_known_not_to_return(name)) {
                    return self.assume(Assumption::NoReturn);
                }
                self.assume(Assumption::Callees);
                state.call(RegMask::CALLEE_SAVED);
                pc = insn.next_ip();
                continue;
            }

            match self.step(part, &insn, &mut state, trail) {
                Next::Go(next) => pc = next,
                Next::End => return,
            }
        }

        self.parts[part].verdict.doubt(Doubt::Limit, original.start);
    }

    /// Follows code of a kernel module that belongs to no function, and jumps back to one. Returns
    /// whether it is such code.
    pub(super) fn aside(
        &mut self,
        part: usize,
        target: u64,
        state: &State,
        trail: Option<u32>,
    ) -> bool {
        let file = self.program.file;
        let section = file.code_at(target);

        // Of a module, only this section has code that belongs to no function.
        if self.program.edges().is_none() || section.is_none_or(|s| s.name != AUX_SECTION) {
            return false;
        }

        self.assume(Assumption::KernelEdges);
        let (mut pc, mut state) = (target, state.clone());
        for _ in 0..AUX_MAX {
            let insn = Decoder::with_ip(64, file.bytes(pc), pc, DecoderOptions::NONE).decode();
            let is_plain = matches!(
                insn.flow_control(),
                FlowControl::Next
                    | FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch
            );
            // A jump inside of the section could lead anywhere, and is not followed.
            let leads_on = insn.op0_kind() == OpKind::NearBranch64
                && section.is_some_and(|s| s.range.contains(&insn.near_branch64()));
            if insn.is_invalid() || !is_plain || leads_on {
                break;
            }

            match self.step(part, &insn, &mut state, trail) {
                Next::Go(next) => pc = next,
                Next::End => return true,
            }
        }

        // Anything else is not understood, and may do what it likes.
        self.returns = true;
        self.parts[part].verdict.doubt(Doubt::Undecodable, target);
        true
    }
}
