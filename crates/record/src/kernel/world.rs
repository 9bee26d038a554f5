//! A stopped kernel: the current task, and the stacks of its processor with their contents.
//!
//! Locations come from the kernel's symbols and types (`.BTF`), contents from the stub.

use super::state::StateLayout;
use super::uretprobes;
use super::{KernelMachine, PID};
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_recordings::kernel::{
    Btf, KernelImage, MissingPlace, ProcessorStacks, StackPlaces, symbol, user_memory,
};
use unwind_sim_recordings::model::{KernelSample, Region, RegionRole, Sample};
use unwind_sim_unwind::kernel::{
    StackInfo, StackType, THREAD_SIZE, Task, UnwinderKind, UserSpace, Version,
};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Start of kernel addresses.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Bytes copied below rsp.
const BELOW_SP: u64 = 256;
/// Bytes copied below the address at which a stack is continued.
const BELOW_LINK: u64 = PT_REGS_LEN;
/// Maximum number of processors whose per-CPU data are looked up (`__per_cpu_offset` has `NR_CPUS`
/// words, 8192 in distribution kernels).
const PROCESSORS_MAX: usize = 512;
/// Bytes of a task's name (`TASK_COMM_LEN`, `include/linux/sched.h`).
const COMM_LEN: usize = 16;
/// Maximum number of tasks that are listed.
const TASKS_MAX: usize = 1 << 12;
/// Maximum padding at the end of a task's stack, bytes.
const TOP_PADDING_MAX: u64 = 64;

/// The addresses and offsets of the required objects in a kernel.
pub(crate) struct KernelLayout {
    bias: u64,
    version: Option<Version>,
    encoding: Option<Encoding>,
    stacks: StackPlaces,
    idt: u64,
    thread_sp: u64,
    /// Offset and size: an int; a byte since 7.0 at the latest.
    on_cpu: Option<(u64, u64)>,
    pid: u64,
    comm: Option<u64>,
    /// The first task, and the offset of the list that leads to the others.
    tasks: Option<(u64, u64)>,
    mm: u64,
    uprobe: Option<[u64; 3]>,
    uretprobes: Option<uretprobes::UprobeOffsets>,
    unwinder: Option<UnwinderKind>,
}

impl KernelLayout {
    /// The places of the kernel `image` with the KASLR offset `bias`.
    pub(crate) fn new(image: &KernelImage, bias: u64) -> Result<KernelLayout, MissingPlace> {
        let stacks = StackPlaces::new(image, bias)?;
        let btf = image.btf.as_ref().ok_or(MissingPlace::Types)?;
        let member = |structure: &'static str, path: &'static str| {
            let offset = btf.offset(structure, path);
            offset.ok_or(MissingPlace::Member { structure, path })
        };
        let version = image.version.as_deref().and_then(Version::from_name);

        Ok(KernelLayout {
            bias,
            version,
            encoding: image.encoding,
            stacks,
            idt: symbol(image, bias, "idt_table")?,
            thread_sp: member("task_struct", "thread.sp")?,
            on_cpu: btf.extent("task_struct", "on_cpu"),
            pid: member("task_struct", "pid")?,
            comm: btf.offset("task_struct", "comm"),
            tasks: symbol(image, bias, "init_task")
                .ok()
                .zip(btf.offset("task_struct", "tasks")),
            mm: member("task_struct", "mm")?,
            uprobe: uprobe(btf),
            uretprobes: uretprobes::UprobeOffsets::new(btf),
            unwinder: StateLayout::new(btf).map(|layout| layout.kind()),
        })
    }

    /// KASLR offset.
    pub(crate) const fn bias(&self) -> u64 {
        self.bias
    }

    /// The PID of the current task, where there is one processor.
    pub(crate) fn current_pid<M: KernelMachine>(&self, machine: &mut M) -> Result<u32, M::Error> {
        let base = machine.word(self.stacks.bases)?;
        let task = machine.word(self.stacks.current.wrapping_add(base))?;
        Ok(machine.word(task.wrapping_add(self.pid))? as u32)
    }

    /// The tasks besides the current one: their PIDs, names, and where each keeps its sp. Empty if the
    /// image does not say where the list of tasks is.
    pub(crate) fn resting<M: KernelMachine>(
        &self,
        machine: &mut M,
    ) -> Result<Vec<RestingTask>, M::Error> {
        let Some((init, tasks)) = self.tasks else {
            return Ok(Vec::new());
        };
        let base = machine.word(self.stacks.bases)?;
        let current = machine.word(self.stacks.current.wrapping_add(base))?;
        let mut all = Vec::new();
        let mut at = init;
        // The list leads back to the first task; a damaged one may not.
        for _ in 0..TASKS_MAX {
            if at != current {
                let comm = match self.comm {
                    Some(comm) => name_of(&machine.read(at.wrapping_add(comm), COMM_LEN)?),
                    None => String::new(),
                };
                all.push(RestingTask {
                    pid: machine.word(at.wrapping_add(self.pid))? as u32,
                    comm,
                    sp: machine.word(at.wrapping_add(self.thread_sp))?,
                });
            }
            at = machine.word(at.wrapping_add(tasks))?.wrapping_sub(tasks);
            if at == init {
                break;
            }
        }
        Ok(all)
    }

    /// The handlers in the interrupt descriptor table, and whether an error code is pushed for
    /// them, which depends on the vector (Intel SDM volume 3, table 6-1).
    pub(crate) fn handlers<M: KernelMachine>(
        &self,
        machine: &mut M,
    ) -> Result<Vec<(u64, bool)>, M::Error> {
        const WITH_ERROR: [usize; 10] = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30];
        let table = machine.read(self.idt, 256 * 16)?;
        let gates = table.as_chunks::<16>().0.iter().enumerate();
        let mut out: Vec<(u64, bool)> = gates
            .map(|(vector, bytes)| (gate(bytes), WITH_ERROR.contains(&vector)))
            .filter(|(address, _)| *address >= KERNEL)
            .collect();
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }
}

/// The target of a gate in the interrupt descriptor table (Intel SDM volume 3, figure 6-8).
pub(crate) fn gate(bytes: &[u8; 16]) -> u64 {
    let part = |range: Range<usize>| {
        let bytes = bytes[range].iter().rev();
        bytes.fold(0, |value, b| value << 8 | u64::from(*b))
    };
    part(0..2) | part(6..8) << 16 | part(8..12) << 32
}

/// Offsets for kernels whose callchains handle a uprobe at a function's entry.
fn uprobe(btf: &Btf) -> Option<[u64; 3]> {
    Some([
        btf.offset("task_struct", "utask")?,
        btf.offset("uprobe_task", "auprobe")?,
        btf.offset("arch_uprobe", "insn")?,
    ])
}

/// A task that does not run.
pub(crate) struct RestingTask {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    /// `thread.sp`, where it keeps what its switch has pushed.
    pub(crate) sp: u64,
}

/// The name of a task, which ends with a zero.
fn name_of(comm: &[u8]) -> String {
    let name = comm.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Addresses that never change for a processor, once they are set up.
#[derive(Clone, Copy)]
struct Processor {
    base: u64,
    stacks: ProcessorStacks,
}

/// The properties of a task that every stop needs.
#[derive(Clone, Copy)]
struct TaskHeader {
    address: u64,
    stack: u64,
    pid: u32,
}

/// The stopped kernel, with caches.
pub(crate) struct Kernel<'a> {
    places: &'a KernelLayout,
    processors: Vec<Processor>,
    /// `__per_cpu_offset`.
    bases: Vec<u64>,
    tasks: Vec<TaskHeader>,
    /// `TOP_OF_KERNEL_STACK_PADDING`, once known.
    top_padding: Option<u64>,
}

/// A stop in the kernel.
pub(crate) struct Stopped {
    /// Address of its `struct task_struct`.
    pub(crate) address: u64,
    pub(crate) task: Task,
    pub(crate) pid: u32,
    /// The task's name, when the task is first seen.
    pub(crate) comm: Option<String>,
    pub(crate) regions: Vec<Region<'static>>,
    pub(crate) user: Option<UserSpace>,
}

impl Stopped {
    /// The sample of the stop with these registers, without its truth, and the name of its task.
    pub(crate) fn sample(
        self,
        places: &KernelLayout,
        release: Option<&str>,
        regs: SampleRegs,
        time: u64,
    ) -> (Option<String>, Sample<'static>) {
        let sample = Sample {
            pid: PID,
            tid: self.pid,
            time,
            regs,
            regions: self.regions,
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: Some(Box::new(KernelSample {
                release: release.unwrap_or_default().to_owned(),
                unwinder: places.unwinder,
                task: self.task,
                states: Vec::new(),
                boundary: None,
                user: self.user,
            })),
            process_memory: None,
        };
        (self.comm, sample)
    }
}

impl<'a> Kernel<'a> {
    pub(crate) const fn new(places: &'a KernelLayout) -> Kernel<'a> {
        Kernel {
            places,
            processors: Vec::new(),
            bases: Vec::new(),
            tasks: Vec::new(),
            top_padding: None,
        }
    }

    /// The selected processor.
    fn processor<M: KernelMachine>(&mut self, machine: &mut M) -> Result<Processor, M::Error> {
        let base = self.base(machine)?;
        if let Some(known) = self.processors.iter().find(|p| p.base == base) {
            return Ok(*known);
        }
        let places = &self.places.stacks;
        let stacks = places.processor(base, &mut |at| machine.word(at))?;
        let processor = Processor { base, stacks };
        // A kernel that is only starting has no interrupt stack yet.
        if stacks.are_set_up() {
            self.processors.push(processor);
        }
        Ok(processor)
    }

    /// The base of the processor's per-CPU data: gs_base, or the kernel gs_base if entry code has
    /// not swapped them yet.
    fn base<M: KernelMachine>(&mut self, machine: &mut M) -> Result<u64, M::Error> {
        if self.bases.is_empty() {
            let table = self.places.stacks.bases;
            let table = machine.read(table, 8 * PROCESSORS_MAX)?;
            let words = table.as_chunks::<8>().0.iter();
            self.bases = words.map(|w| u64::from_le_bytes(*w)).collect();
        }
        let bases = [machine.register("gs_base")?, machine.register("k_gs_base")?];
        let is_base = |base: &u64| *base >= KERNEL && self.bases.contains(base);
        if let Some(base) = bases.into_iter().flatten().find(is_base) {
            return Ok(base);
        }
        let number = machine.processor_number();
        Ok(self.bases.get(number).copied().unwrap_or_default())
    }

    /// A processor's current task, and its name when it is first seen.
    fn current<M: KernelMachine>(
        &mut self,
        machine: &mut M,
        base: u64,
    ) -> Result<(TaskHeader, Option<String>), M::Error> {
        let places = self.places;
        let address = machine.word(places.stacks.current.wrapping_add(base))?;
        self.known(machine, address)
    }

    /// A task, and its name when it is first seen.
    fn known<M: KernelMachine>(
        &mut self,
        machine: &mut M,
        address: u64,
    ) -> Result<(TaskHeader, Option<String>), M::Error> {
        let places = self.places;
        if let Some(known) = self.tasks.iter().find(|t| t.address == address) {
            // The address of a task may be reused, so its stack is checked.
            let stack = machine.word(address.wrapping_add(places.stacks.stack))?;
            if stack == known.stack {
                return Ok((*known, None));
            }
        }

        // Another task has taken the address.
        self.tasks.retain(|t| t.address != address);
        let known = TaskHeader {
            address,
            stack: machine.word(address.wrapping_add(places.stacks.stack))?,
            pid: machine.word(address.wrapping_add(places.pid))? as u32,
        };
        self.tasks.push(known);

        let comm = match places.comm {
            Some(at) => Some(name_of(&machine.read(address.wrapping_add(at), COMM_LEN)?)),
            None => None,
        };
        Ok((known, comm))
    }

    /// Padding at the end of a task's stack, above the user-space registers, bytes. During a task
    /// switch, the per-CPU variable may belong to the other task.
    fn top_padding<M: KernelMachine>(
        &mut self,
        machine: &mut M,
        base: u64,
        stack: u64,
    ) -> Result<u64, M::Error> {
        let Some(at) = self
            .places
            .stacks
            .top_of_stack
            .filter(|_| self.top_padding.is_none())
        else {
            return Ok(self.top_padding.unwrap_or(0));
        };
        let top = machine.word(at.wrapping_add(base))?;
        let padding = stack.wrapping_add(THREAD_SIZE).wrapping_sub(top);
        if padding <= TOP_PADDING_MAX {
            self.top_padding = Some(padding);
        }
        Ok(self.top_padding.unwrap_or(0))
    }

    /// Where the current task's entry code saves the user-space registers.
    pub(crate) fn pt_regs<M: KernelMachine>(
        &mut self,
        machine: &mut M,
    ) -> Result<Option<u64>, M::Error> {
        let processor = self.processor(machine)?;
        let (known, _) = self.current(machine, processor.base)?;
        let padding = self.top_padding(machine, processor.base, known.stack)?;
        let end = known.stack.checked_add(THREAD_SIZE - PT_REGS_LEN);
        Ok(end.map(|end| end.wrapping_sub(padding)))
    }

    /// Task, stacks and memory at a stop with the registers `regs`.
    pub(crate) fn stopped<M: KernelMachine>(
        &mut self,
        machine: &mut M,
        regs: &Regs,
    ) -> Result<Stopped, M::Error> {
        let processor = self.processor(machine)?;
        let (known, comm) = self.current(machine, processor.base)?;

        let places = &self.places.stacks;
        let stacks = places.stacks(known.stack, Some(&processor.stacks));
        let mut task = Task {
            version: self.places.version,
            encoding: self.places.encoding,
            top_padding: self.top_padding(machine, processor.base, known.stack)?,
            stacks,
            ..Task::default()
        };

        // This also fills in the links between the stacks, so the task has them behind it.
        let mut regions = copy(machine, &mut task.stacks, regs.rsp())?;
        self.places
            .stacks
            .tracers
            .read(known.address, &mut |at| machine.word(at), &mut task)?;
        let user = self.user(machine, &known)?;

        // Unreadable memory is not mapped.
        let mut read = |at: u64, len: usize| machine.read(at, len).ok();
        regions.extend(user_memory(&user, &mut read));

        Ok(Stopped {
            user: Some(user),
            address: known.address,
            task,
            pid: known.pid,
            comm,
            regions,
        })
    }

    /// A task that is not running.
    pub(crate) fn inactive<M: KernelMachine>(
        &mut self,
        machine: &mut M,
        address: u64,
    ) -> Result<Stopped, M::Error> {
        let (known, comm) = self.known(machine, address)?;

        // A byte or an int, by version.
        let on_other_cpu = match self.places.on_cpu {
            Some((at, len)) => {
                let word = machine.word(address.wrapping_add(at))?;
                (if len == 1 {
                    word & 0xff
                } else {
                    word & 0xffff_ffff
                }) != 0
            }
            None => false,
        };

        let mut task = Task {
            version: self.places.version,
            encoding: self.places.encoding,
            is_current: false,
            on_other_cpu,
            thread_sp: machine.word(address.wrapping_add(self.places.thread_sp))?,
            top_padding: self.top_padding.unwrap_or(0),
            // The other stacks belong to processors.
            stacks: self.places.stacks.stacks(known.stack, None),
            ..Task::default()
        };

        let regions = copy(machine, &mut task.stacks, task.thread_sp)?;
        self.places
            .stacks
            .tracers
            .read(address, &mut |at| machine.word(at), &mut task)?;
        Ok(Stopped {
            // Its memory is in other page tables.
            user: None,
            address,
            task,
            pid: known.pid,
            comm,
            regions,
        })
    }

    /// The current task's user space, without its memory.
    fn user<M: KernelMachine>(
        &self,
        machine: &mut M,
        known: &TaskHeader,
    ) -> Result<UserSpace, M::Error> {
        let places = self.places;
        let mut user = UserSpace {
            pid: known.pid,
            ..UserSpace::default()
        };

        let mm = machine.word(known.address.wrapping_add(places.mm))?;
        if let Some(probes) = &places.uretprobes {
            user.uretprobes = Some(probes.read(machine, known.address, mm)?);
        }
        // A kernel thread has no user registers.
        if mm != 0 {
            // The entry from user space saves the registers at the top of the stack
            // (`task_pt_regs`).
            let at = known.stack.wrapping_add(THREAD_SIZE - PT_REGS_LEN);
            let at = at.wrapping_sub(self.top_padding.unwrap_or(0));
            user.regs = Some(regs_from(&machine.read(at, PT_REGS_LEN as usize)?));
        }

        // At a function's entry, a uprobe changes what the callchain starts with.
        if let Some([utask, auprobe, insn]) = places.uprobe {
            let utask = machine.word(known.address.wrapping_add(utask))?;
            let auprobe = match utask {
                0 => 0,
                utask => machine.word(utask.wrapping_add(auprobe))?,
            };
            if auprobe != 0 {
                let bytes = machine.read(auprobe.wrapping_add(insn), 4)?;
                user.uprobe = bytes.first_chunk().copied();
            }
        }

        Ok(user)
    }
}

/// Copies the used parts of the stacks, from the one of `sp` along the links, and fills in the
/// links.
fn copy<M: KernelMachine>(
    machine: &mut M,
    stacks: &mut [StackInfo],
    sp: u64,
) -> Result<Vec<Region<'static>>, M::Error> {
    let mut regions: Vec<Region<'static>> = Vec::new();
    let (mut sp, mut below) = (sp, BELOW_SP);

    for _ in 0..StackType::ALL.len() {
        let Some(stack) = stacks.iter_mut().find(|s| s.range().contains(&sp)) else {
            break;
        };

        let begin = (sp.saturating_sub(below) & !7).max(stack.begin);
        let len = (stack.end - begin) as usize;
        let bytes = machine.read(begin, len)?;

        // Where such a stack keeps the sp of the one that it interrupted.
        let link = stack.kind.next_sp_at(stack.end);
        let link = link.and_then(|at| at.checked_sub(begin));
        let link = link.and_then(|at| bytes.get(at as usize..)?.first_chunk());
        stack.next_sp = link.map_or(0, |b| u64::from_le_bytes(*b));

        // A damaged link may lead back to a stack that is already copied.
        let known = regions.iter().position(|r| r.bounds == stack.range());
        if known.is_some() {
            break;
        }

        regions.push(Region {
            role: if regions.is_empty() {
                RegionRole::Stack
            } else {
                RegionRole::OtherStack
            },
            bounds: stack.range(),
            next_sp: stack.next_sp,
            address: begin,
            bytes: Cow::Owned(bytes),
        });

        (sp, below) = (stack.next_sp, BELOW_LINK);
    }

    // The place where the entry from user space saved its registers.
    if let Some(own) = stacks.iter().find(|s| s.kind == StackType::Task)
        && !regions.iter().any(|r| r.bounds == own.range())
    {
        // With room for the padding above them (`TOP_OF_KERNEL_STACK_PADDING`).
        let begin = own.end - 2 * PT_REGS_LEN;
        regions.push(Region {
            role: RegionRole::OtherStack,
            bounds: own.range(),
            next_sp: 0,
            address: begin,
            bytes: Cow::Owned(machine.read(begin, (own.end - begin) as usize)?),
        });
    }

    Ok(regions)
}

/// Also copies the stack of `sp`, if missing.
pub(crate) fn copy_more<M: KernelMachine>(
    machine: &mut M,
    stopped: &mut Stopped,
    sp: u64,
) -> Result<(), M::Error> {
    let has = |r: &Region<'_>| r.bounds.contains(&sp) && r.address <= sp;
    if stopped.regions.iter().any(has) {
        return Ok(());
    }
    for mut region in copy(machine, &mut stopped.task.stacks, sp)? {
        stopped
            .regions
            .retain(|r| r.bounds != region.bounds || r.address < region.address);
        if !stopped.regions.iter().any(|r| r.bounds == region.bounds) {
            region.role = RegionRole::OtherStack;
            stopped.regions.push(region);
        }
    }
    Ok(())
}
