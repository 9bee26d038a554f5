//! Checks the row of the outermost frame, which must say that there is no caller.

use crate::check::{Contradiction, Subject, true_frame};
use std::sync::Arc;
use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::insn::ends_with_call;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::step::step;
use unwind_sim_unwind::walk::WalkTarget;

impl Subject<'_> {
    /// The contradiction if `finder`'s rule gives the root a caller. `None` if there is none, if
    /// the root is not known, or if the table cannot mark one.
    pub fn check_root(&self, finder: &dyn Finder, cache: &mut Cache) -> Option<Contradiction> {
        let index = self.truth.frames().len().checked_sub(1)?;

        // A truth that is known only to a depth has no root.
        if !self.truth.is_complete() {
            return None;
        }

        let mut frame = true_frame(self.truth, self.live, index)?;

        // As in `check_frame`: further out, a walk has only the registers that its unwinder
        // carries.
        if index > 0 {
            frame.regs = frame.regs.restricted(finder.carries());
        }

        let address = frame.pc.lookup(finder.lookup());

        // Where the table cannot mark the root, a caller is not a mistake of its.
        if !finder.marks_roots(self.space, address, cache) {
            return None;
        }

        let place = WalkTarget {
            space: self.space,
            memory: self.memory,
        };
        let stepped = step(finder, &place, &frame, cache);

        // A root may have a return address that no call made; then no code before it was executed.
        let executed = match frame.pc {
            CodeAddress::Instruction(_) => true,
            CodeAddress::Return(pc) => {
                finder.lookup() == Lookup::InsideCall && is_behind_a_call(self.space, pc)
            }
        };

        let (code, given, reason) = match stepped.caller {
            Ok(caller) => (Code::WrongReturnAddress, Some(caller.pc.value()), None),
            Err(Reason::RootReached) => return None,
            Err(reason @ Reason::NoRow { .. }) if executed && stepped.row.is_err() => {
                (Code::NoRowForExecuted, None, Some(reason))
            }
            Err(reason) => (reason.code(), None, Some(reason)),
        };

        Some(Contradiction {
            frame: index,
            pc: frame.pc,
            code,
            reg: Reg::Rip,
            given,
            truth: 0,
            misread: false,
            reason,
            row: stepped.row.ok().map(Arc::new),
        })
    }
}

/// Whether `pc` follows a call. The first function of a thread or a context returns to an address
/// that no call precedes, and nothing was executed before it.
fn is_behind_a_call(space: &AddressSpace, pc: u64) -> bool {
    const BEFORE: u64 = 8;
    let start = pc.wrapping_sub(BEFORE);
    let mapping = space.find(start);
    let code = mapping.and_then(|m| Some(m.image.as_ref()?.text_bytes(m.svma(start), 8)));
    code.and_then(<[u8]>::first_chunk)
        .is_some_and(|&bytes| ends_with_call(bytes))
}
