//! The world at an overflow, as the helpers of a handler's program see it.

use super::{Overflow, World};
use crate::bpf::{Env, Errno, SampleChain, Space, Task};
use crate::log::{Fact, Handling};
use crate::record::Body;
use crate::registers::Registers;
use crate::stack::{kernel_frames, user_frame};
use unwind_sim_perf_data::BranchEntry;

/// The world at an overflow.
struct Site<'a> {
    world: &'a mut World,
    cpu: usize,
    job: &'a Overflow,
    random: u32,
    /// Records written, and records that did not fit.
    written: [u64; 2],
}

/// Runs the program of a sample. Returns what happens to the sample.
pub(super) fn run_program(
    world: &mut World,
    cpu: usize,
    job: &Overflow,
    registers: Registers,
) -> Handling {
    // It leaves the world while it runs in it.
    let handler = job.slot.handler;
    let Some(mut program) = world.handlers.take(handler) else {
        return Handling::Kept;
    };

    let attachment = program.attachment(world.events.setup(job.event));
    let attachment = attachment.unwrap_or_default();

    // `handle` took the guard for this program; `Program::run` takes it itself.
    let mut guard = world.machine.cpus[cpu].guard;
    guard.leave();

    let mut site = Site {
        world,
        cpu,
        job,
        random: job.number as u32,
        written: [0; 2],
    };

    let handling = program.run(&attachment, &mut guard, &mut site, (registers, job.period));
    program.count(handling, site.written);
    world.machine.cpus[cpu].guard = guard;
    world.handlers.put(handler, program);
    handling
}

/// Branch records as programs get them.
fn branch_bytes(entries: &[BranchEntry]) -> Vec<u8> {
    let words = |e: &BranchEntry| [e.from, e.to, e.flags].map(u64::to_le_bytes);
    entries.iter().flat_map(words).flatten().collect()
}

impl Env for Site<'_> {
    fn cpu(&mut self) -> u32 {
        self.cpu as u32
    }

    fn time_ns(&mut self) -> u64 {
        self.world.out.now()
    }

    fn task(&mut self) -> Task {
        let tid = self.world.machine.tid(self.cpu);
        let task = self.world.machine.current(self.cpu);
        let name = match task {
            None => format!("swapper/{}", self.cpu),
            Some(task) if task.kthread => format!("kthread-{tid}"),
            Some(_) => format!("task-{tid}"),
        };
        let mut comm = [0; 16];
        for (byte, char) in comm.iter_mut().take(15).zip(name.bytes()) {
            *byte = char;
        }
        Task {
            pid: tid as u32,
            tid: tid as u32,
            comm,
            ..Task::default()
        }
    }

    fn random(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(0x3c6e_f35f);
        self.random
    }

    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> bool {
        // The user stack is all the memory that the model has.
        let task = self
            .world
            .machine
            .current(self.cpu)
            .filter(|task| !task.kthread);
        space != Space::Kernel
            && task.is_some_and(|task| self.world.stacks.read(task.stack, address, into))
    }

    fn stack(&mut self, user: bool, max_depth: u32) -> Option<Vec<u64>> {
        let (world, max) = (&*self.world, max_depth as usize);
        let mut frames = Vec::new();
        match (user, world.machine.current(self.cpu)) {
            (true, Some(task)) if !task.kthread => {
                let at = self.job.at_uprobe;
                let frame = |index| user_frame(&*world.stacks, task.stack, task.leaf, at, index);
                frames.extend((0..max).map_while(frame));
            }
            (false, _) if !self.job.user_mode => {
                let ip = world.machine.kernel_at(self.cpu, self.job.context);
                kernel_frames(ip, false, false, &mut frames);
                frames.truncate(max);
            }
            _ => {}
        }
        Some(frames)
    }

    fn sample_chain(&mut self) -> SampleChain {
        if self.job.is_chain_ready {
            let buffers = &self.world.machine.cpus[self.cpu].buffers;
            SampleChain::Words(buffers[self.job.context as usize].clone())
        } else {
            SampleChain::NotSampled
        }
    }

    fn branch_records(&mut self) -> Option<Vec<u8>> {
        let branches = self.job.branches.as_ref()?;
        Some(branch_bytes(&branches.entries))
    }

    fn branch_snapshot(&mut self) -> Vec<u8> {
        branch_bytes(&self.world.lbr.sample(self.cpu).entries)
    }

    fn output(&mut self, _: &str, _: u32, data: &[u8]) -> Result<(), Errno> {
        // The map's slot is empty.
        let event = self.world.events.outputs().ok_or(Errno::Enoent)?;
        // The event must count on this CPU (`__bpf_perf_event_output`).
        if !self.world.counts(event, self.cpu) {
            return Err(Errno::Eopnotsupp);
        }

        let (number, handler) = (self.job.number, self.job.slot.handler);
        let body = Body::Raw {
            data: crate::bpf::raw_payload(data),
        };

        let bytes = data.len() as u32;
        if self.world.write(self.cpu, event, body) {
            self.written[0] += 1;
            let fact = Fact::Output {
                number,
                event,
                handler,
                bytes,
            };
            self.world.say(self.cpu, fact);
            Ok(())
        } else {
            // `perf_output_begin` fails with ENOSPC if the ring is full.
            self.written[1] += 1;
            self.world.say(self.cpu, Fact::OtherLost { event });
            Err(Errno::Enospc)
        }
    }
}
