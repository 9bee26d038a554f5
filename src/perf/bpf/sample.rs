//! A recorded sample as the environment of a handler.

use super::Output;
use std::collections::HashMap;
use unwind_sim_perf_data::callchain::{Callchain, Context, Entry};
use unwind_sim_perf_data::regs::PERF_REG_X86_IP;
use unwind_sim_perf_data::{Comm, Sample, Task as Forked, misc};
use unwind_sim_perf_model::bpf::{Env, Errno, PerfEventData, SampleChain, Space, Task};

/// The names of threads.
#[derive(Default)]
pub(super) struct Tasks {
    names: HashMap<i32, [u8; 16]>,
}

impl Tasks {
    pub(super) fn name(&mut self, comm: &Comm<'_>) {
        let mut name = [0; 16];
        let length = comm.name.len().min(15);
        name[..length].copy_from_slice(&comm.name[..length]);
        self.names.insert(comm.tid, name);
    }

    pub(super) fn fork(&mut self, task: &Forked) {
        if let Some(name) = self.names.get(&task.ptid).copied() {
            self.names.insert(task.tid, name);
        }
    }
}

/// The registers of the interrupt, as far as recorded, the period and the address.
pub(super) fn context(sample: &Sample<'_>) -> PerfEventData {
    let mut data = PerfEventData::new();
    // The user registers are those of the interrupt if it came from user space.
    let is_user = sample.cpumode() == misc::CPUMODE_USER;
    let user = sample.user_regs().ok().flatten().filter(|_| is_user);
    let interrupt = sample.intr_regs().ok().flatten();
    for (register, value) in user.iter().chain(&interrupt).flat_map(|regs| regs.iter()) {
        data.set_reg(register, value);
    }
    if let Some(ip) = sample.ip() {
        data.set_reg(PERF_REG_X86_IP, ip);
    }
    data.set_sample_period(sample.period().unwrap_or(sample.attr().sample_period));
    data.set_address(sample.address().unwrap_or(0));
    data
}

/// What helpers can read from a sample.
pub(super) struct Recorded<'s> {
    sample: &'s Sample<'s>,
    task: Task,
    chain: Option<Callchain<'s>>,
    has_own_chain: bool,
    seed: u64,
    pub(super) outputs: Vec<Output>,
    pub(super) printed: Vec<String>,
}

impl<'s> Recorded<'s> {
    pub(super) fn new(
        sample: &'s Sample<'s>,
        tasks: &Tasks,
        has_own_chain: bool,
        seed: u64,
    ) -> Self {
        let tid = sample.tid().unwrap_or(0);
        Self {
            sample,
            task: Task {
                pid: sample.pid().unwrap_or(0) as u32,
                tid: tid as u32,
                comm: tasks.names.get(&tid).copied().unwrap_or_default(),
                ..Task::default()
            },
            chain: sample.callchain().ok().flatten(),
            has_own_chain,
            seed,
            outputs: Vec::new(),
            printed: Vec::new(),
        }
    }
}

impl Env for Recorded<'_> {
    fn cpu(&mut self) -> u32 {
        self.sample.cpu().unwrap_or(0)
    }

    fn time_ns(&mut self) -> u64 {
        self.sample.time().unwrap_or(0)
    }

    fn task(&mut self) -> Task {
        self.task
    }

    fn random(&mut self) -> u32 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 32) as u32
    }

    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> bool {
        // The only memory available is the copy of the user stack, above the stack pointer.
        if space == Space::Kernel {
            return false;
        }
        let Ok(Some((regs, stack))) = self.sample.user_regs_and_stack() else {
            return false;
        };
        let sp = regs.get(unwind_sim_perf_data::regs::PERF_REG_X86_SP);
        let start = sp.and_then(|sp| address.checked_sub(sp));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let found = start
            .and_then(|start| stack.bytes.get(start..))
            .and_then(|rest| rest.get(..into.len()));
        found.inspect(|found| into.copy_from_slice(found)).is_some()
    }

    fn stack(&mut self, user: bool, max_depth: u32) -> Option<Vec<u64>> {
        let chain = self.chain?;
        let mut frames = Vec::new();
        for entry in chain.entries().take(chain.len()) {
            match entry {
                Entry::Frame { context, address } => {
                    let is_user = match context {
                        Context::User => true,
                        Context::Kernel => false,
                        _ => continue,
                    };
                    if is_user == user {
                        frames.push(address);
                    }
                }
                _ => continue,
            }
        }
        frames.truncate(max_depth as usize);
        Some(frames)
    }

    fn sample_chain(&mut self) -> SampleChain {
        match (self.has_own_chain, self.chain) {
            (false, _) => SampleChain::NotSampled,
            (true, None) => SampleChain::Missing,
            (true, Some(chain)) => SampleChain::Words(chain.words().collect()),
        }
    }

    fn branch_records(&mut self) -> Option<Vec<u8>> {
        let stack = self.sample.branch_stack().ok().flatten()?;
        let words = stack
            .entries()
            .flat_map(|entry| [entry.from, entry.to, entry.flags]);
        Some(words.flat_map(u64::to_le_bytes).collect())
    }

    fn output(&mut self, map: &str, _index: u32, data: &[u8]) -> Result<(), Errno> {
        self.outputs.push(Output {
            time: self.sample.time().unwrap_or(0),
            cpu: self.sample.cpu().unwrap_or(0),
            map: map.to_owned(),
            data: data.to_owned(),
            is_ring: false,
        });
        Ok(())
    }

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }
}
