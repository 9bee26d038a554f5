//! What a tracer changes in another thread, for those who keep a shadow stack of it.

use crate::address_space::SpaceId;
use crate::linux::kernel::Kernel;
use crate::linux::observer::Event;
use crate::linux::task::Task;
use crate::state::Preserved;
use crate::state::reg;
use std::ops::Range;

/// The number of the exception of `int3`.
const BREAKPOINT: u64 = 3;
/// The red zone below rsp (psABI, 3.2.2), bytes.
const RED_ZONE: u64 = 128;

impl Kernel {
    /// A tracer has set registers of a thread, which had the state `before`. Its stack is as it was if they
    /// are others, or if it only goes back to where a breakpoint was in place of an instruction.
    pub(in crate::linux) fn disturbed_registers(&mut self, task: Task, before: &Preserved) {
        let Some(tracee) = self.tracee(task) else {
            return;
        };
        let now = tracee.state.preserved_at(tracee.state.rip);
        let undone = Preserved {
            rip: before.rip.wrapping_sub(1),
            ..*before
        };
        let is_undone = now == undone && tracee.signals.trap[0] == BREAKPOINT;
        if now != *before && !is_undone {
            self.disturb(task);
        }
    }

    /// The memory of a process was written by another one: those of its threads are disturbed whose stacks
    /// it is in.
    pub(in crate::linux) fn disturbed_memory(&mut self, space: SpaceId, range: Range<u64>) {
        let its = self
            .all_processes()
            .filter(|process| process.space == space);
        let tasks = its.flat_map(|process| {
            let number = process.number;
            process.threads().map(move |thread| Task {
                process: number,
                thread: thread.number,
            })
        });

        // Collected first, because disturbing them changes the processes.
        let tasks: Vec<Task> = tasks.collect();

        for task in tasks {
            let rsp = self
                .thread_state(task)
                .map_or(0, |state| state.gpr(reg::RSP));

            let mut areas = self.machine.core.memory.areas_in(space);

            // The stack in use reaches from rsp to the end of its area.
            let end = areas
                .find(|(area, _)| area.contains(&rsp))
                .map(|(area, _)| area.end);
            drop(areas);

            // The red zone below rsp is in use, too (psABI 3.2.2).
            let used = rsp.saturating_sub(RED_ZONE)..end.unwrap_or(rsp);
            if range.start < used.end && used.start < range.end {
                self.disturb(task);
            }
        }
    }

    fn disturb(&mut self, task: Task) {
        if let Some(state) = self.thread_state(task) {
            let state = Box::new(state.clone());
            self.system.events.push(Event::Disturbed(task, state));
        }
    }
}
