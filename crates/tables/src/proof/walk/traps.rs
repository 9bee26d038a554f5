//! Exceptions thrown by instructions that trap: Ada, Go's gccgo, and C++ with `-fnon-call-exceptions`
//! (GCC manual, "Code Gen Options"). A landing pad to which no call leads is one of these.

use super::Walker;
use crate::proof::state::State;
use crate::proof::verdict::{Assumption, Doubt};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::RegMask;

impl Walker<'_, '_> {
    /// Finds the landing pads that were not reached, in the parts that were followed or elsewhere.
    pub(super) fn find_trap_pads(&mut self) {
        let mut pads: Vec<u64> = Vec::new();
        for part in self.parts.iter().filter(|part| !part.sites.is_empty()) {
            let is_followed = |at: u64| {
                let offset = part.body.offset(at);
                offset.is_some_and(|offset| part.body.reached.has(offset))
            };

            // Where nothing of the calls' ranges was followed, the pads are no wonder.
            let sites = part
                .sites
                .iter()
                .filter(|site| is_followed(site.calls.start));
            pads.extend(sites.map(|site| site.pad));
        }

        // A pad belongs to several call sites if a function has one handler for all.
        pads.sort_unstable();
        pads.dedup();
        pads.retain(|&pad| match self.part_at(pad) {
            None => self.program.function_at(pad).is_some(),
            Some(part) => {
                let body = &self.parts[part].body;
                body.offset(pad)
                    .is_some_and(|offset| !body.reached.has(offset))
            }
        });

        self.trap_pads = pads;
    }

    /// Where an exception continues that the instruction may throw.
    pub(super) fn trap(
        &mut self,
        part: usize,
        insn: &Instruction,
        state: &State,
        trail: Option<u32>,
    ) {
        if self.trap_pads.is_empty() || state.is_dead || !may_trap(insn) {
            return;
        }

        // As for calls, the call site is the one whose range has the instruction.
        let pc = insn.ip();
        let sites = &self.parts[part].sites;
        let after = sites.partition_point(|s| s.calls.start <= pc);
        let site = after.checked_sub(1).map(|i| &sites[i]);
        let Some(pad) = site.filter(|s| s.calls.contains(&pc)).map(|s| s.pad) else {
            return;
        };

        // Only pads that no call leads to are reached by traps.
        if self.trap_pads.binary_search(&pad).is_err() {
            return;
        }

        self.assume(Assumption::LandingPads);
        let mut state = state.clone();
        // A landing pad gets the callee-saved registers from the unwinder, and of the others only
        // its own arguments.
        state.call(RegMask::CALLEE_SAVED);
        // Whether this instruction can trap is not known for certain.
        state.is_guessed = true;

        if let Some(to) = self.part_at(pad)
            && self.is_misfit(to, pc, pad, &state, trail)
        {
            self.parts[to].verdict.doubt(Doubt::Guessed, pad);
            self.parts[to].guesses.add_trap(pc, pad, trail);
            return;
        }

        self.job(part, pc, pad, &state, trail);
    }
}

/// Whether an instruction may trap, as compilers see it: division, and memory that is neither the
/// frame's nor static.
fn may_trap(insn: &Instruction) -> bool {
    match insn.mnemonic() {
        Mnemonic::Div | Mnemonic::Idiv => return true,
        Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Push | Mnemonic::Pop => return false,
        _ => {}
    }
    let has_memory = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
    let base = insn.memory_base();
    let is_known = matches!(base, Register::RSP | Register::RBP | Register::RIP);
    has_memory && !is_known && base != Register::None
}
