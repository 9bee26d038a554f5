//! How the kernel saves and restores branch records at context switches, and in which memory.
//!
//! `intel_pmu_lbr_sched_task()` and its neighbours (`arch/x86/events/intel/lbr.c`), and
//! `attach_task_ctx_data()` and its neighbours (`kernel/events/core.c`), Linux 7.2; for
//! [`Storage::PerContext`] the same as of Linux 6.14.

mod table;

pub use table::{Ledger, Reader, Step};

use super::layout::Layout;
use super::ring::{Branch, Depth, Ring};
use super::select::Select;
use super::storage::Storage;
use std::collections::BTreeMap;

/// A thread; 0 is the idle task of every CPU.
pub type Tid = i32;

/// A cgroup, by number.
pub type Cgroup = u16;

/// A saved ring (`struct x86_perf_task_context`).
#[derive(Clone, Debug, Default)]
struct TaskContext {
    entries: Vec<Branch>,
    tos: usize,
    /// `LBR_VALID`: saved and not yet restored.
    is_valid: bool,
    /// The number of the task's events with call stacks.
    users: u32,
    log_id: u32,
}

/// The number of a piece of memory, never reused.
type DataId = u64;

/// `struct perf_ctx_data`.
#[derive(Debug)]
struct Data {
    refcount: u32,
    global: bool,
    saved: TaskContext,
}

/// The variant of the kernel: as it is, fixed, or fixed and then given a defect that a check must
/// find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The kernel as it is.
    None,
    /// Fixed: restoring the ring also resets whose records were saved from it last. Without this, a
    /// task that exits or whose event is closed after its records were restored leaves them in the
    /// ring, and the task saved before it mistakes them for its own.
    RestoreForgets,
    /// The ring is wiped at every switch, whatever was saved.
    WipeAtSwitch,
    /// Memory is freed without waiting for readers.
    FreeAtOnce,
    /// Contexts are swapped without the records in them.
    SwapWithoutData,
    /// Records of a task are assumed to be in the ring still, though others were saved since.
    SkipWithoutLogId,
    /// The last user of memory frees it, even if its task exited or got other memory.
    FreeTwice,
    /// Between two tasks of one cgroup nothing is saved or restored.
    SaveAtCgroupSwitch,
    /// A task that exits keeps the memory that a recording of the whole system gave it.
    LeakAtExit,
}

/// All pieces of memory, and RCU.
#[derive(Debug)]
struct Table {
    data: BTreeMap<DataId, Data>,
    next: DataId,
    piece_bytes: u64,
    /// The readers by number, with the grace period in which they began.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    /// Counts calls of `call_rcu`.
    period: u64,
    /// Memory to be freed once all readers from before its period have ended.
    condemned: Vec<(u64, DataId)>,
    free_at_once: bool,
    ledger: Ledger,
    /// The steps since the last query; `None` if they are not kept.
    journal: Option<Vec<Step>>,
}

#[derive(Debug)]
struct Cpu {
    ring: Ring,
    running: Tid,
    /// The memory to which the ring was saved last, and the number of that save.
    last: Option<(DataId, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    data: Option<DataId>,
    cgroup: Option<Cgroup>,
    /// Tasks of a group have inherited the same events.
    group: u64,
    /// The number of the task's events with call stacks.
    events: u32,
    exiting: bool,
}

/// A save in progress: the memory was found, but not written yet.
#[derive(Debug)]
pub struct Saving {
    reader: Reader,
    cpu: usize,
    data: Option<DataId>,
}

/// Memory without users to which its task still points.
#[derive(Debug)]
pub struct Dying {
    tid: Tid,
    data: DataId,
}

/// CPUs, tasks and their memory.
#[derive(Debug)]
pub struct Kernel {
    storage: Storage,
    mutation: Mutation,
    cpus: Vec<Cpu>,
    tasks: BTreeMap<Tid, Task>,
    table: Table,
    /// The number of recordings with call stacks of the whole system (`None`) or of a cgroup.
    system: BTreeMap<Option<Cgroup>, u32>,
    next_group: u64,
}

impl Kernel {
    /// Idle CPUs and no tasks.
    pub fn new(
        cpus: usize,
        depth: Depth,
        storage: Storage,
        layout: Layout,
        mutation: Mutation,
    ) -> Self {
        let cpu = |_| Cpu {
            ring: Ring::new(depth, Select::CALL_STACK_USER),
            running: 0,
            last: None,
        };
        let mut table = Table::new(layout);
        table.free_at_once = mutation == Mutation::FreeAtOnce;
        Self {
            storage,
            mutation,
            cpus: (0..cpus).map(cpu).collect(),
            tasks: BTreeMap::new(),
            table,
            system: BTreeMap::new(),
            next_group: 1,
        }
    }

    /// Starts to keep the steps for [`Kernel::steps`].
    pub fn keep_steps(&mut self) {
        self.table.journal = Some(Vec::new());
    }

    /// The steps since the last call.
    pub fn steps(&mut self) -> Vec<Step> {
        let journal = self.table.journal.as_mut();
        journal.map(std::mem::take).unwrap_or_default()
    }

    fn wipe(&mut self, cpu: usize) {
        self.cpus[cpu].ring.reset();
        self.cpus[cpu].last = None;
        self.table.note(Step::Wiped { cpu });
    }

    /// The memory allocated and freed.
    pub fn ledger(&self) -> Ledger {
        self.table.ledger
    }

    /// The ring of a CPU.
    pub fn ring(&self, cpu: usize) -> Option<&Ring> {
        self.cpus.get(cpu).map(|cpu| &cpu.ring)
    }

    fn task(&self, tid: Tid) -> Task {
        self.tasks.get(&tid).copied().unwrap_or_default()
    }

    /// Whether a recording of the system or of the task's cgroup has call stacks.
    fn is_covered(&self, tid: Tid) -> bool {
        let cgroup = self.task(tid).cgroup;
        let is_of_cgroup = cgroup.is_some() && self.system.contains_key(&cgroup);
        is_of_cgroup || self.system.contains_key(&None)
    }

    /// Whether branches of a task are recorded while it runs.
    fn is_recorded(&self, tid: Tid) -> bool {
        self.task(tid).events > 0 || self.is_covered(tid)
    }

    /// Whether a recording of the system or of a cgroup gives the task memory.
    fn has_global_memory(&self, tid: Tid) -> bool {
        match self.storage {
            Storage::PerContext => false,
            Storage::PerTask => !self.system.is_empty(),
            Storage::PerCgroup => self.is_covered(tid),
        }
    }

    /// A CPU executes a branch.
    pub fn branch(&mut self, cpu: usize, branch: Branch) {
        let Some(running) = self.cpus.get(cpu).map(|cpu| cpu.running) else {
            return;
        };
        if self.is_recorded(running) {
            self.cpus[cpu].ring.branch(branch);
        }
    }

    /// The branches of a sample taken now, newest first; empty where nothing is recorded.
    pub fn sample(&self, cpu: usize) -> Vec<Branch> {
        match self.cpus.get(cpu) {
            Some(cpu) if self.is_recorded(cpu.running) => cpu.ring.read(),
            _ => Vec::new(),
        }
    }

    /// The branch records of a task as a crash finds them, newest first: in the ring of the CPU
    /// that runs it (the CPU is returned too), or in its memory.
    pub fn crash(&self, tid: Tid) -> (Option<usize>, Vec<Branch>) {
        let on = self.cpus.iter().position(|cpu| cpu.running == tid);
        let records = match on {
            Some(cpu) => self.sample(cpu),
            None => {
                let data = self.task(tid).data.and_then(|id| self.table.look(id));
                let saved = data.map(|data| &data.saved).filter(|saved| saved.is_valid);
                saved.map_or(Vec::new(), |saved| saved.entries.clone())
            }
        };
        (on, records)
    }

    /// The CPU switches from its current task to another one.
    pub fn sched_task(&mut self, cpu: usize, next: Tid) {
        if let Some(saving) = self.begin_switch(cpu) {
            self.finish_switch(saving, next);
        }
    }

    /// The first half of a switch: finds the running task's memory. `None` if there is no such CPU.
    pub fn begin_switch(&mut self, cpu: usize) -> Option<Saving> {
        let running = self.cpus.get(cpu)?.running;
        let data = self.task(running).data;
        let data = data.filter(|_| self.is_recorded(running));
        if let Some(piece) = data {
            self.table.note(Step::Found { piece });
        }
        Some(Saving {
            reader: self.table.lock(),
            cpu,
            data,
        })
    }

    /// The second half of a switch: saves the ring and switches the next task in. Nothing happens
    /// on this CPU in between.
    pub fn finish_switch(&mut self, saving: Saving, next: Tid) {
        let cpu = saving.cpu;
        let prev = self.cpus.get(cpu).map_or(0, |cpu| cpu.running);
        if self.mutation == Mutation::SaveAtCgroupSwitch && self.is_one_cgroup(prev, next) {
            self.table.unlock(saving.reader);
            self.cpus[cpu].running = next;
            return;
        }
        self.save(saving);
        self.sched_in(cpu, next);
    }

    fn is_one_cgroup(&self, prev: Tid, next: Tid) -> bool {
        let cgroup = self.task(prev).cgroup;
        cgroup.is_some() && cgroup == self.task(next).cgroup
    }

    fn save(&mut self, saving: Saving) {
        let Saving { reader, cpu, data } = saving;
        let is_system = (self.cpus.get(cpu)).is_some_and(|cpu| self.is_covered(cpu.running));
        if let Some(piece) = data {
            self.table.note(Step::Saved { piece });
        }
        if let Some(id) = data
            && let Some(cpu) = self.cpus.get_mut(cpu)
            && let Some(Data { saved, .. }) = self.table.get(id)
        {
            if saved.users == 0 && !is_system {
                saved.is_valid = false;
            } else {
                saved.entries = cpu.ring.valid();
                saved.tos = cpu.ring.tos();
                saved.is_valid = true;
                saved.log_id = saved.log_id.wrapping_add(1);
                cpu.last = Some((id, saved.log_id));
            }
        }
        self.table.unlock(reader);
    }

    fn sched_in(&mut self, cpu: usize, next: Tid) {
        let Some(prev) = self.cpus.get(cpu).map(|cpu| cpu.running) else {
            return;
        };
        self.swap_contexts(prev, next);
        self.cpus[cpu].running = next;
        if !self.is_recorded(next) {
            return;
        }
        let reader = self.table.lock();
        match self.task(next).data {
            Some(id) => self.restore(cpu, id),
            None => self.wipe(cpu),
        }
        self.table.unlock(reader);
    }

    /// Tasks that inherited the same events exchange their contexts instead of tearing them down
    /// and setting them up, and exchange the saved records back. Memory of tasks does not need
    /// this.
    fn swap_contexts(&mut self, prev: Tid, next: Tid) {
        let (a, b) = (self.task(prev), self.task(next));
        let is_same = a.group == b.group && a.events > 0 && a.events == b.events;
        let is_swapped = prev != next && is_same && self.storage == Storage::PerContext;
        if is_swapped && self.mutation == Mutation::SwapWithoutData {
            self.tasks.insert(prev, Task { data: b.data, ..a });
            self.tasks.insert(next, Task { data: a.data, ..b });
        }
    }

    fn restore(&mut self, cpu: usize, id: DataId) {
        let is_system = self.is_covered(self.cpus[cpu].running);
        let is_wiped = self.mutation == Mutation::WipeAtSwitch;
        let saved = self.table.get(id).map(|data| &mut data.saved);

        let valid = saved.filter(|s| s.is_valid && !is_wiped && (s.users > 0 || is_system));
        let Some(saved) = valid else {
            return self.wipe(cpu);
        };

        // An image is used once: after this the ring goes on, and the image is outdated.
        saved.is_valid = false;
        let (at, log_id) = (&mut self.cpus[cpu], saved.log_id);

        // Nothing to restore if no other data was saved on this CPU since, and this data on no
        // other CPU (`__intel_pmu_lbr_restore` in `arch/x86/events/intel/lbr.c`).
        let is_last = match (at.last, self.mutation) {
            (Some((last, _)), Mutation::SkipWithoutLogId) => last == id,
            (last, _) => last == Some((id, log_id)),
        };
        // An empty ring may have been reset by a deep sleep state of the CPU.
        if is_last && !at.ring.valid().is_empty() {
            self.table.note(Step::Skipped { piece: id });
            return;
        }

        at.ring.write(&saved.entries, saved.tos);
        if self.mutation != Mutation::None {
            at.last = None;
        }
        self.table.note(Step::Restored { piece: id });
    }

    /// An event of a task with call stacks is opened.
    pub fn attach(&mut self, tid: Tid) {
        if tid == 0 || self.task(tid).exiting {
            return;
        }
        let was_recorded = self.is_recorded(tid);
        self.attach_data(tid, false);
        let group = self.next_group;
        self.next_group += 1;
        let task = self.tasks.entry(tid).or_default();
        task.events += 1;
        task.group = group;
        let data = task.data;
        if let Some(data) = data.and_then(|id| self.table.get(id)) {
            data.saved.users += 1;
        }
        self.reset_if_first(tid, was_recorded);
    }

    /// The first event of a CPU must not see what was recorded for others before.
    fn reset_if_first(&mut self, tid: Tid, was_recorded: bool) {
        if !was_recorded {
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu].running == tid {
                    self.wipe(cpu);
                }
            }
        }
    }

    /// `attach_task_ctx_data()`: allocates memory, or counts another user of existing memory.
    fn attach_data(&mut self, tid: Tid, global: bool) {
        let old = self.task(tid).data;
        if let Some(id) = old
            && let Some(data) = self.table.get(id)
            && data.refcount > 0
        {
            // Events of one context share its memory uncounted, those of a task count; a
            // recording of the whole system counts once.
            if global && data.global {
                return;
            }
            data.global |= global;
            data.refcount += 1;
            return;
        }
        let new = self.table.allocate(tid, global);
        self.tasks.entry(tid).or_default().data = Some(new);
        // The old memory has no users; its last user will find it replaced.
        if let Some(old) = old {
            self.table.free_later(old);
        }
    }

    /// One event of a task is closed.
    pub fn detach(&mut self, tid: Tid) {
        if let Some(dying) = self.begin_detach(tid) {
            self.finish_detach(dying);
        }
    }

    /// The first half of closing an event: one user less. Returns the memory if that was the last.
    pub fn begin_detach(&mut self, tid: Tid) -> Option<Dying> {
        let task = self.tasks.get_mut(&tid).filter(|task| task.events > 0)?;
        task.events -= 1;
        let id = task.data?;
        let data = self.table.get(id)?;
        data.saved.users = data.saved.users.saturating_sub(1);
        self.put(tid, id)
    }

    fn put(&mut self, tid: Tid, id: DataId) -> Option<Dying> {
        let data = self.table.get(id)?;
        data.refcount = data.refcount.checked_sub(1)?;
        (data.refcount == 0).then_some(Dying { tid, data: id })
    }

    /// The second half of closing an event: the task drops the memory, unless it got other memory
    /// in the meantime, and it is freed when no reader uses it.
    pub fn finish_detach(&mut self, dying: Dying) {
        let Dying { tid, data } = dying;
        let task = self.tasks.get_mut(&tid);
        let task = task.filter(|task| task.data == Some(data));
        let is_held = task.map(|task| task.data = None).is_some();
        if is_held || self.mutation == Mutation::FreeTwice {
            self.table.free_later(data);
        }
    }

    /// A recording of the whole system, or of a cgroup, begins.
    pub fn attach_system(&mut self, cgroup: Option<Cgroup>) {
        let is_running = |cpu: &Cpu| (cpu.running, self.is_recorded(cpu.running));
        let running: Vec<(Tid, bool)> = self.cpus.iter().map(is_running).collect();
        *self.system.entry(cgroup).or_default() += 1;
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            if !self.task(tid).exiting && self.has_global_memory(tid) {
                self.attach_data(tid, true);
            }
        }
        for (tid, was_recorded) in running {
            self.reset_if_first(tid, was_recorded || !self.is_recorded(tid));
        }
    }

    /// A recording of the whole system, or of a cgroup, ends.
    pub fn detach_system(&mut self, cgroup: Option<Cgroup>) {
        let Some(users) = self.system.get_mut(&cgroup) else {
            return;
        };
        *users -= 1;
        if *users > 0 {
            return;
        }
        self.system.remove(&cgroup);
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            if !self.has_global_memory(tid) {
                self.detach_global(tid);
            }
        }
    }

    fn detach_global(&mut self, tid: Tid) {
        let Some(id) = self.task(tid).data else {
            return;
        };
        let is_global = self
            .table
            .get(id)
            .is_some_and(|d| std::mem::take(&mut d.global));
        if is_global && let Some(dying) = self.put(tid, id) {
            self.finish_detach(dying);
        }
    }

    /// A task appears without a known parent.
    pub fn start(&mut self, tid: Tid, cgroup: Option<Cgroup>) {
        self.appear(tid, cgroup);
    }

    fn appear(&mut self, tid: Tid, cgroup: Option<Cgroup>) -> bool {
        if tid == 0 || self.tasks.contains_key(&tid) {
            return false;
        }
        let task = Task {
            cgroup,
            ..Task::default()
        };
        self.tasks.insert(tid, task);
        if self.has_global_memory(tid) {
            self.attach_data(tid, true);
        }
        true
    }

    /// A task is created by another, in the same cgroup. It inherits events, but no memory.
    pub fn fork(&mut self, parent: Tid, child: Tid, inherit: bool) {
        let parent = self.task(parent);
        if !self.appear(child, parent.cgroup) {
            return;
        }
        if inherit && !parent.exiting {
            for _ in 0..parent.events {
                self.attach(child);
            }
            if parent.events > 0 {
                self.tasks.entry(child).or_default().group = parent.group;
            }
        }
    }

    /// A task exits. It may remain its CPU's current task until the next switch.
    pub fn exit(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.exiting = true;
        for _ in 0..task.events {
            self.detach(tid);
        }
        if self.mutation == Mutation::LeakAtExit {
            self.tasks.remove(&tid);
            return;
        }
        self.detach_global(tid);
        // Only a detach in progress still points to the memory, and frees it.
        if let Some(id) = self.task(tid).data {
            self.table.free_later(id);
        }
        self.tasks.remove(&tid);
    }

    /// Starts a reader of memory other than a switch, such as one on another CPU.
    pub fn read_lock(&mut self) -> Reader {
        self.table.lock()
    }

    /// Ends a reader.
    pub fn read_unlock(&mut self, reader: Reader) {
        self.table.unlock(reader);
    }
}
