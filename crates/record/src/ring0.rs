//! The shadow stack of ring 0: follows [`Ring0`] from each entry to the way back to user mode.

#[cfg(test)]
mod tests;

use crate::machine::{MachineWorld, cpu, cpu_at};
use unwind_sim_emulator::Core;
use unwind_sim_emulator::ring0::{Ring0, Ring0Observer, UserContext};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_unwind::insn::classify;
use unwind_sim_unwind::kernel::UserBoundary;
use unwind_sim_unwind::pt_regs::IRET_FRAME_OFFSET;
use unwind_sim_unwind::truth::{Suspended, Tracker, Truth};

/// The shadow stack of ring 0. In user mode there is none.
#[derive(Clone, Debug, Default)]
pub struct Ring0Shadow {
    inside: Option<KernelStay>,
}

/// What is known since ring 0 was entered.
#[derive(Clone, Debug)]
struct KernelStay {
    tracker: Tracker,
    suspended: Suspended,
    boundary: UserBoundary,
}

impl Ring0Shadow {
    /// The true chain of ring 0, up to its entry; unknown in user mode.
    pub fn truth(&self, ring0: &Ring0) -> Truth {
        let state = &ring0.machine.core.state;
        let inside = self.inside.as_ref();
        inside.map_or(Truth::Unknown, |inside| {
            inside.tracker.truth(&cpu_at(state, state.rip))
        })
    }

    /// The registers when user mode was left; unknown in user mode.
    pub fn boundary(&self) -> Option<UserBoundary> {
        self.inside.as_ref().map(|inside| inside.boundary)
    }

    /// The number of instructions since the entry to ring 0 at which the truth was not known.
    pub fn unknown(&self) -> u64 {
        let inside = self.inside.as_ref();
        inside.map_or(0, |inside| inside.tracker.stats().unknown)
    }
}

impl Ring0Observer for Ring0Shadow {
    fn entered(&mut self, entry: &Preserved, left: UserContext) {
        self.inside = Some(KernelStay {
            tracker: Tracker::root(&cpu(entry), entry.rsp),
            suspended: Suspended::new(),
            boundary: UserBoundary {
                ip: left.rip,
                sp: left.rsp,
                pushed_at: left.frame.map(|at| at.wrapping_sub(IRET_FRAME_OFFSET)),
            },
        });
    }

    fn trapped(&mut self, interrupted: &Preserved, handler: &Preserved) {
        if let Some(inside) = &mut self.inside {
            inside.tracker.trap(&cpu(interrupted), &cpu(handler));
        }
    }

    fn executed(&mut self, bytes: &[u8], before: &Preserved, core: &Core) {
        if let Some(inside) = &mut self.inside {
            inside.tracker.step(
                classify(bytes),
                &cpu(before),
                0,
                &cpu_at(&core.state, core.state.rip),
                &mut inside.suspended,
                &mut MachineWorld::process(core),
            );
        }
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        if let Some(inside) = &mut self.inside {
            inside.tracker.iret(
                &cpu(before),
                &cpu_at(&core.state, core.state.rip),
                &mut inside.suspended,
                &mut MachineWorld::process(core),
            );
        }
    }

    fn left(&mut self) {
        self.inside = None;
    }
}
