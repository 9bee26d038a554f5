//! The stacks of threads that wait for what cannot happen.

use super::Checker;
use crate::verify::deadlock::{self, DeadlockedThread, Stack};
use unwind_sim_emulator::linux::{Kernel, ProcessObserver};
use unwind_sim_record::machine::{MachineMemory, cpu_at};
use unwind_sim_record::registers::live_registers;

impl Checker<'_> {
    /// The threads that wait, each with its chain by every unwinder beside the true one. The true
    /// chain of a process that is not observed is not known.
    pub(crate) fn deadlock(&mut self, process: &mut Kernel) -> Vec<DeadlockedThread> {
        let mut threads = Vec::new();
        let engines = self.unwinders.engines;
        process.visit_waiting(&mut |waiting, process| {
            let core = &process.machine.core;
            self.switched(waiting.task, core);
            let state = &waiting.state;
            let truth = self.stacks.tracker.truth(&cpu_at(state, state.rip));
            threads.push(deadlock::thread(
                waiting,
                engines,
                &Stack {
                    space: &self.mapped.space,
                    memory: &MachineMemory(&core.memory),
                    live: live_registers(state, state.rip),
                    truth: process.is_observed().then_some(&truth),
                },
            ));
        });
        threads
    }
}
