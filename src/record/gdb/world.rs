//! A stopped kernel: the current task, the stacks of its processor, and what lies on them.
//!
//! Where things are is said by the kernel's symbols and its types (`.BTF`); what is there, by the
//! stub. Sources: Linux `arch/x86/kernel/dumpstack_64.c`, `arch/x86/include/asm/cpu_entry_area.h`,
//! `arch/x86/include/asm/current.h`, of 6.1, 6.12 and 6.15.

use super::GdbRecordError;
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_corpus::kernel::{Btf, KernelImage};
use unwind_sim_corpus::model::{Region, RegionRole};
use unwind_sim_host::gdb::{Client, GdbError, Registers};
use unwind_sim_unwind::kernel::{
    GraphReturn, PT_REGS_LEN, Rethook, StackInfo, StackType, THREAD_SIZE, Task, Version,
};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::regs::{Reg, Regs};

/// Kernel addresses begin here.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Bytes copied below rsp.
const BELOW_SP: u64 = 256;
/// Bytes copied below where a stack is continued on.
const BELOW_LINK: u64 = PT_REGS_LEN;
/// Most return addresses of tracers taken.
const TAKEN_MAX: usize = 64;
/// The exception stacks, as `struct cea_exception_stacks` orders them.
const EXCEPTIONS: [(StackType, &str); 6] = [
    (StackType::DoubleFault, "DF_stack"),
    (StackType::Nmi, "NMI_stack"),
    (StackType::Debug, "DB_stack"),
    (StackType::MachineCheck, "MCE_stack"),
    (StackType::VmmCommunication, "VC_stack"),
    (StackType::VmmCommunicationFallback, "VC2_stack"),
];
/// `EXCEPTION_STKSZ` without KASAN.
const EXCEPTION_STACK_SIZE: u64 = 8 << 10;

/// Where a kernel has what is needed.
pub(super) struct Places {
    bias: u64,
    version: Option<Version>,
    encoding: Option<Encoding>,
    per_cpu_offset: u64,
    current: u64,
    hardirq: u64,
    exceptions: u64,
    /// From `cea_exception_stacks` to each stack, and to the entry stack.
    exception_at: [u64; EXCEPTIONS.len()],
    entry_at: u64,
    idt: u64,
    stack: u64,
    thread_sp: u64,
    pid: u64,
    comm: Option<u64>,
    rethooks: Option<[u64; 4]>,
    graph: Option<Graph>,
}

/// Of the function graph tracer.
struct Graph {
    ret_stack: u64,
    curr: u64,
    retp: u64,
    size: u64,
    /// A stack of words (since 6.10), not an array.
    is_shadow: bool,
}

impl Places {
    /// Of this kernel, moved by `bias`.
    pub(super) fn new(image: &KernelImage, bias: u64) -> Result<Places, GdbRecordError> {
        let btf = image.btf.as_ref().ok_or(GdbRecordError::NoTypes)?;
        let symbols = &image.symbols;
        let symbol = |name: &'static str| {
            let at = symbols
                .address(name)
                .ok_or(GdbRecordError::NoSymbol(name))?;
            // Before 6.15 those of per-CPU data are offsets.
            let moved = if at >= KERNEL {
                at.wrapping_add(bias)
            } else {
                at
            };
            Ok::<u64, GdbRecordError>(moved)
        };
        let member = |structure: &'static str, path: &'static str| {
            let offset = btf.offset(structure, path);
            offset.ok_or(GdbRecordError::NoMember { structure, path })
        };
        // 6.2 to 6.14 keep what is hot in one structure.
        let (current, hardirq) = match symbol("pcpu_hot") {
            Ok(hot) => (
                hot + member("pcpu_hot", "current_task")?,
                hot + member("pcpu_hot", "hardirq_stack_ptr")?,
            ),
            Err(_) => (symbol("current_task")?, symbol("hardirq_stack_ptr")?),
        };
        let mut exception_at = [0; EXCEPTIONS.len()];
        for (at, (_, name)) in exception_at.iter_mut().zip(EXCEPTIONS) {
            *at = member("cea_exception_stacks", name)?;
        }
        let entry_stack = member("cpu_entry_area", "entry_stack_page")?;
        Ok(Places {
            bias,
            version: image.version.as_deref().and_then(Version::from_name),
            encoding: image.encoding,
            per_cpu_offset: symbol("__per_cpu_offset")?,
            current,
            hardirq,
            exceptions: symbol("cea_exception_stacks")?,
            exception_at,
            entry_at: entry_stack.wrapping_sub(member("cpu_entry_area", "estacks")?),
            idt: symbol("idt_table")?,
            stack: member("task_struct", "stack")?,
            thread_sp: member("task_struct", "thread.sp")?,
            pid: member("task_struct", "pid")?,
            comm: btf.offset("task_struct", "comm"),
            rethooks: rethooks(btf),
            graph: graph(btf),
        })
    }

    /// How far the kernel was moved.
    pub(super) const fn bias(&self) -> u64 {
        self.bias
    }

    /// The handlers of the interrupt descriptor table: with which of them an error code is pushed
    /// says the vector (Intel SDM volume 3, table 6-1).
    pub(super) fn handlers(&self, client: &mut Client) -> Result<Vec<(u64, bool)>, GdbError> {
        const GATE: usize = 16;
        const WITH_ERROR: [usize; 10] = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30];
        let table = client.read(self.idt, 256 * GATE)?;
        let gates = table.as_chunks::<GATE>().0.iter().enumerate();
        let mut out: Vec<(u64, bool)> = gates
            .map(|(vector, gate)| {
                let part = |range: Range<usize>| {
                    let bytes = gate[range].iter().rev();
                    bytes.fold(0, |value, b| value << 8 | u64::from(*b))
                };
                let address = part(0..2) | part(6..8) << 16 | part(8..12) << 32;
                (address, WITH_ERROR.contains(&vector))
            })
            .filter(|(address, _)| *address >= KERNEL)
            .collect();
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }
}

fn rethooks(btf: &Btf) -> Option<[u64; 4]> {
    Some([
        btf.offset("task_struct", "rethooks.first")?,
        btf.offset("rethook_node", "llist.next")?,
        btf.offset("rethook_node", "ret_addr")?,
        btf.offset("rethook_node", "frame")?,
    ])
}

fn graph(btf: &Btf) -> Option<Graph> {
    let calltime = btf.offset("ftrace_ret_stack", "calltime");
    let retp = btf.offset("ftrace_ret_stack", "retp")?;
    Some(Graph {
        ret_stack: btf.offset("task_struct", "ret_stack")?,
        curr: btf.offset("task_struct", "curr_ret_stack")?,
        retp,
        size: retp + 8,
        is_shadow: calltime.is_none(),
    })
}

/// What one processor keeps for ever.
#[derive(Clone, Copy)]
struct Processor {
    base: u64,
    hardirq: u64,
    exceptions: u64,
}

/// A task, as far as it is asked for at every stop.
#[derive(Clone, Copy)]
struct Known {
    address: u64,
    stack: u64,
    pid: u32,
}

/// The stopped kernel.
pub(super) struct Kernel<'a> {
    places: &'a Places,
    processors: Vec<(String, Processor)>,
    tasks: Vec<Known>,
}

/// A stop in the kernel.
pub(super) struct Stopped {
    /// Of its `struct task_struct`.
    pub(super) address: u64,
    pub(super) task: Task,
    pub(super) pid: u32,
    /// The task's name, the first time that it is met.
    pub(super) comm: Option<String>,
    pub(super) regions: Vec<Region<'static>>,
}

impl<'a> Kernel<'a> {
    pub(super) const fn new(places: &'a Places) -> Kernel<'a> {
        Kernel {
            places,
            processors: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// The processor of a thread of the stub: QEMU counts them from 1.
    fn processor(&mut self, client: &mut Client, thread: &str) -> Result<Processor, GdbError> {
        if let Some((_, known)) = self.processors.iter().find(|(name, _)| name == thread) {
            return Ok(*known);
        }
        let places = self.places;
        // `p01.02` where the stub speaks of processes.
        let number = thread.rsplit('.').next().unwrap_or_default();
        let number = u64::from_str_radix(number, 16).unwrap_or(1).max(1) - 1;
        let base = client.word(places.per_cpu_offset.wrapping_add(8 * number))?;
        let mut word = |at: u64| client.word(at.wrapping_add(base));
        let processor = Processor {
            base,
            hardirq: word(places.hardirq)?,
            exceptions: word(places.exceptions)?,
        };
        self.processors.push((thread.to_owned(), processor));
        Ok(processor)
    }

    /// The current task of a processor: its address, and the bounds of its stack.
    fn current(
        &mut self,
        client: &mut Client,
        base: u64,
    ) -> Result<(Known, Option<String>), GdbError> {
        let places = self.places;
        let address = client.word(places.current.wrapping_add(base))?;
        self.known(client, address)
    }

    /// A task, and its name the first time that it is met.
    fn known(
        &mut self,
        client: &mut Client,
        address: u64,
    ) -> Result<(Known, Option<String>), GdbError> {
        let places = self.places;
        if let Some(known) = self.tasks.iter().find(|t| t.address == address) {
            // A task's address may be used again, but its stack is asked for.
            let stack = client.word(address.wrapping_add(places.stack))?;
            if stack == known.stack {
                return Ok((*known, None));
            }
        }
        self.tasks.retain(|t| t.address != address);
        let known = Known {
            address,
            stack: client.word(address.wrapping_add(places.stack))?,
            pid: client.word(address.wrapping_add(places.pid))? as u32,
        };
        self.tasks.push(known);
        let comm = match places.comm {
            Some(at) => Some(client.read(address.wrapping_add(at), 16)?),
            None => None,
        };
        let comm = comm.map(|c| {
            let name = c.split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        Ok((known, comm))
    }

    /// The stacks of a task; of the current one, those of its processor too.
    fn stacks(&self, stack: u64, processor: Option<&Processor>) -> Vec<StackInfo> {
        let info = |kind, begin: u64, size: u64| StackInfo {
            kind,
            begin,
            end: begin.wrapping_add(size),
            next_sp: 0,
        };
        let mut out = vec![info(StackType::Task, stack, THREAD_SIZE)];
        let Some(processor) = processor else {
            return out;
        };
        if processor.exceptions != 0 {
            let places = self.places;
            for ((kind, _), at) in EXCEPTIONS.into_iter().zip(places.exception_at) {
                let begin = processor.exceptions.wrapping_add(at);
                out.push(info(kind, begin, EXCEPTION_STACK_SIZE));
            }
            let entry = processor.exceptions.wrapping_add(places.entry_at);
            out.push(info(StackType::Entry, entry, 4096));
        }
        let end = processor.hardirq.wrapping_add(8);
        out.push(info(
            StackType::Irq,
            end.wrapping_sub(THREAD_SIZE),
            THREAD_SIZE,
        ));
        out
    }

    /// Task, stacks and memory at a stop where the registers are `regs`.
    pub(super) fn stopped(
        &mut self,
        client: &mut Client,
        thread: &str,
        regs: &Regs,
    ) -> Result<Stopped, GdbError> {
        let processor = self.processor(client, thread)?;
        let (known, comm) = self.current(client, processor.base)?;
        let stacks = self.stacks(known.stack, Some(&processor));
        let mut task = Task {
            version: self.places.version,
            encoding: self.places.encoding,
            stacks,
            ..Task::default()
        };
        let regions = copy(client, &mut task.stacks, regs.rsp())?;
        self.taken(client, known.address, &mut task)?;
        Ok(Stopped {
            address: known.address,
            task,
            pid: known.pid,
            comm,
            regions,
        })
    }

    /// A task that does not run.
    pub(super) fn inactive(
        &mut self,
        client: &mut Client,
        address: u64,
    ) -> Result<Stopped, GdbError> {
        let (known, comm) = self.known(client, address)?;
        let mut task = Task {
            version: self.places.version,
            encoding: self.places.encoding,
            is_current: false,
            thread_sp: client.word(address.wrapping_add(self.places.thread_sp))?,
            stacks: self.stacks(known.stack, None),
            ..Task::default()
        };
        let regions = copy(client, &mut task.stacks, task.thread_sp)?;
        self.taken(client, address, &mut task)?;
        Ok(Stopped {
            address,
            task,
            pid: known.pid,
            comm,
            regions,
        })
    }

    /// What tracers took from the stack.
    fn taken(&self, client: &mut Client, address: u64, task: &mut Task) -> Result<(), GdbError> {
        if let Some([first, next, ret_addr, frame]) = self.places.rethooks {
            let mut node = client.word(address.wrapping_add(first))?;
            while node != 0 && task.rethooks.len() < TAKEN_MAX {
                task.rethooks.push(Rethook {
                    ret_addr: client.word(node.wrapping_add(ret_addr))?,
                    frame: client.word(node.wrapping_add(frame))?,
                });
                node = client.word(node.wrapping_add(next))?;
            }
        }
        if let Some(graph) = &self.places.graph {
            let stack = client.word(address.wrapping_add(graph.ret_stack))?;
            let last = client.word(address.wrapping_add(graph.curr))? as u32 as i32;
            if stack != 0 {
                task.graph = graph.entries(client, stack, last)?;
            }
        }
        Ok(())
    }
}

impl Graph {
    /// The oldest first. Before 6.10 `last` is the number of the last entry, since then that of
    /// the first free word: in front of it stands, in its low ten bits, how many words back the
    /// entry begins (`kernel/trace/fgraph.c`).
    fn entries(
        &self,
        client: &mut Client,
        stack: u64,
        last: i32,
    ) -> Result<Vec<GraphReturn>, GdbError> {
        const WORDS_BACK: u64 = 0x3ff;
        let mut out = Vec::new();
        let mut entry = |client: &mut Client, at: u64| {
            out.push(GraphReturn {
                ret: client.word(at)?,
                retp: client.word(at.wrapping_add(self.retp))?,
            });
            Ok::<bool, GdbError>(out.len() < TAKEN_MAX)
        };
        let Ok(last) = u64::try_from(last) else {
            return Ok(out);
        };
        let mut left = last;
        if self.is_shadow {
            while left > 0 {
                let word = client.word(stack.wrapping_add(8 * (left - 1)))?;
                let back = (word & WORDS_BACK) + 1;
                let Some(begin) = left.checked_sub(back).filter(|_| back > 1) else {
                    break;
                };
                left = begin;
                if !entry(client, stack.wrapping_add(8 * begin))? {
                    break;
                }
            }
        } else {
            while entry(client, stack.wrapping_add(self.size * left))? && left > 0 {
                left -= 1;
            }
        }
        out.reverse();
        Ok(out)
    }
}

/// Copies what is in use of the stacks, from the one of `sp` along the links, and fills these in.
fn copy(
    client: &mut Client,
    stacks: &mut [StackInfo],
    sp: u64,
) -> Result<Vec<Region<'static>>, GdbError> {
    let mut regions: Vec<Region<'static>> = Vec::new();
    let (mut sp, mut below) = (sp, BELOW_SP);
    for _ in 0..StackType::ALL.len() {
        let Some(stack) = stacks.iter_mut().find(|s| s.range().contains(&sp)) else {
            break;
        };
        let begin = (sp.saturating_sub(below) & !7).max(stack.begin);
        let len = (stack.end - begin) as usize;
        let bytes = client.read(begin, len)?;
        let link = stack.kind.next_sp_at(stack.end);
        let link = link.and_then(|at| at.checked_sub(begin));
        let link = link.and_then(|at| bytes.get(at as usize..)?.first_chunk());
        stack.next_sp = link.map_or(0, |b| u64::from_le_bytes(*b));
        let known = regions.iter().position(|r| r.bounds == stack.range());
        if known.is_some() {
            break;
        }
        regions.push(Region {
            role: match regions.is_empty() {
                true => RegionRole::Stack,
                false => RegionRole::OtherStack,
            },
            bounds: stack.range(),
            next_sp: stack.next_sp,
            address: begin,
            bytes: Cow::Owned(bytes),
        });
        (sp, below) = (stack.next_sp, BELOW_LINK);
    }
    // Where the entry from user space left its registers.
    if let Some(own) = stacks.iter().find(|s| s.kind == StackType::Task)
        && !regions.iter().any(|r| r.bounds == own.range())
    {
        let begin = own.end - 2 * PT_REGS_LEN;
        regions.push(Region {
            role: RegionRole::OtherStack,
            bounds: own.range(),
            next_sp: 0,
            address: begin,
            bytes: Cow::Owned(client.read(begin, (own.end - begin) as usize)?),
        });
    }
    Ok(regions)
}

/// Copies the stack of `sp` too, if it is not there.
pub(super) fn copy_more(
    client: &mut Client,
    stopped: &mut Stopped,
    sp: u64,
) -> Result<(), GdbError> {
    let has = |r: &Region<'_>| r.bounds.contains(&sp) && r.address <= sp;
    if stopped.regions.iter().any(has) {
        return Ok(());
    }
    for mut region in copy(client, &mut stopped.task.stacks, sp)? {
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

/// The registers by our names.
pub(super) fn regs(registers: &Registers) -> Regs {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        let name = match reg {
            Reg::Rflags => "eflags",
            other => other.as_str(),
        };
        if let Some(value) = registers.get(name) {
            regs.set(reg, value);
        }
    }
    regs
}
