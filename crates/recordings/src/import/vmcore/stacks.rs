//! The processors of a dump: the task that each one runs, its stacks, and the used part of a stack.
//!
//! Sources: Linux `arch/x86/include/asm/cpu_entry_area.h`, `arch/x86/kernel/dumpstack_64.c`,
//! `arch/x86/include/asm/current.h` (`struct pcpu_hot`, 6.2 to 6.14).

use super::dump::Cpu;
use super::layout::Layout;
use super::pages::{KernelMemory, Virtual};
use super::symbols::Symbols;
use crate::model::{Region, RegionRole};
use std::borrow::Cow;
use unwind_sim_unwind::kernel::{PAGE_SIZE, StackInfo, StackType, THREAD_SIZE, Version};

/// Symbols of per-CPU data below this are offsets; others (since 6.15) are addresses.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Bytes below rsp that are included: `pt_regs` may have only its end on the stack.
const BELOW_SP: u64 = 256;
/// Maximum size of a stack whose size comes from the dump's own types, bytes.
const STACK_MAX: u64 = 64 << 10;
/// Members of `struct cea_exception_stacks`.
const EXCEPTIONS: [(&str, StackType); 6] = [
    ("DF_stack", StackType::DoubleFault),
    ("NMI_stack", StackType::Nmi),
    ("DB_stack", StackType::Debug),
    ("MCE_stack", StackType::MachineCheck),
    ("VC_stack", StackType::VmmCommunication),
    ("VC2_stack", StackType::VmmCommunicationFallback),
];

/// A processor's per-CPU data.
pub(super) struct PerCpu<'a, 'd, 'm> {
    pub(super) memory: &'a Virtual<'d, 'm>,
    pub(super) symbols: &'a Symbols,
    pub(super) layout: &'a Layout<'a>,
    pub(super) bias: u64,
    pub(super) version: Option<Version>,
    /// Added to the address of a per-CPU symbol.
    pub(super) offset: u64,
}

impl<'a, 'd, 'm> PerCpu<'a, 'd, 'm> {
    /// The per-CPU data of processor `number` in the order of notes. Its offset is QEMU's gs.base
    /// if known; otherwise the processor's number is used.
    pub(super) fn new(
        memory: &'a Virtual<'d, 'm>,
        symbols: &'a Symbols,
        layout: &'a Layout<'a>,
        (bias, version): (u64, Option<Version>),
        number: usize,
        cpu: &Cpu,
    ) -> Option<Self> {
        let offsets = symbols.get("__per_cpu_offset")?.wrapping_add(bias);
        // An array of `unsigned long`, one for each processor.
        let at = |number: usize| memory.u64(offsets.wrapping_add(8 * number as u64)).ok();

        let by_base = cpu.system.and_then(|system| {
            /// `NR_CPUS` of the largest configuration.
            const CPUS_MAX: usize = 8192;
            // In QEMU before 4.0 the note lacks kernel_gs_base, which then counts as 0.
            let known = |offset: &u64| *offset != 0 && system.gs_bases.contains(offset);
            (0..CPUS_MAX).map_while(at).find(known)
        });

        Some(PerCpu {
            memory,
            symbols,
            layout,
            bias,
            version,
            offset: by_base.or_else(|| at(number))?,
        })
    }

    /// The address of a per-CPU variable.
    fn address(&self, name: &str) -> Option<u64> {
        let symbol = self.symbols.get(name)?;
        let bias = if symbol >= KERNEL { self.bias } else { 0 };
        Some(symbol.wrapping_add(bias).wrapping_add(self.offset))
    }

    /// A pointer in its own variable or in `pcpu_hot`.
    fn pointer(&self, name: &str, hot: &str) -> Option<u64> {
        let hot = || {
            let at = self.layout.find("pcpu_hot", hot)?;
            Some(self.address("pcpu_hot")?.wrapping_add(at))
        };
        let address = self.address(name).or_else(hot)?;
        self.memory.u64(address).ok().filter(|value| *value != 0)
    }

    /// The `task_struct` address of the running task.
    pub(super) fn current(&self) -> Option<u64> {
        self.pointer("current_task", "current_task")
    }

    /// The `task_struct` address of the idle task.
    pub(super) fn idle(&self) -> Option<u64> {
        let at = self.layout.find("rq", "idle")?;
        let address = self.address("runqueues")?.wrapping_add(at);
        self.memory.u64(address).ok().filter(|value| *value != 0)
    }

    /// The processor's stacks, without the task's.
    pub(super) fn stacks(&self) -> Vec<StackInfo> {
        let mut out = Vec::new();
        // A link in a hole of the dump counts as 0, which ends the chain of stacks.
        let linked = |kind: StackType, begin: u64, end: u64| StackInfo {
            kind,
            begin,
            end,
            next_sp: kind
                .next_sp_at(end)
                .and_then(|at| self.memory.u64(at).ok())
                .unwrap_or(0),
        };

        // Sizes are from the types in the image, which may be wrong.
        let size = |len: u64| (1..=STACK_MAX).contains(&len);
        if let Some(exceptions) = self.pointer("cea_exception_stacks", "") {
            for (member, kind) in EXCEPTIONS {
                let extent = self.layout.extent("cea_exception_stacks", member);
                if let Some((offset, len)) = extent.filter(|(_, len)| size(*len)) {
                    let begin = exceptions.wrapping_add(offset);
                    out.push(linked(kind, begin, begin.wrapping_add(len)));
                }
            }
            // The processor's entry area contains both.
            let estacks = self.layout.find("cpu_entry_area", "estacks");
            let entry = self.layout.extent("cpu_entry_area", "entry_stack_page");
            if let (Some(estacks), Some((offset, len))) = (estacks, entry)
                && size(len)
            {
                let begin = exceptions.wrapping_sub(estacks).wrapping_add(offset);
                out.push(linked(StackType::Entry, begin, begin.wrapping_add(len)));
            }
        }

        if let Some(top) = self.pointer("hardirq_stack_ptr", "hardirq_stack_ptr") {
            let end = self.version.unwrap_or(Version::DEFAULT).irq_stack_end(top);
            out.push(linked(StackType::Irq, end.wrapping_sub(THREAD_SIZE), end));
        }
        out
    }
}

/// The used part of a stack, from `sp` to its end, as a region. Ends early where the dump has a
/// hole.
pub(super) fn used(
    memory: &Virtual<'_, '_>,
    stack: &StackInfo,
    sp: u64,
    role: RegionRole,
) -> Option<Region<'static>> {
    // sp comes from the dump, and may be anywhere.
    let start = sp.clamp(stack.begin, stack.end);
    let len = usize::try_from(stack.end - start).ok()?;
    let mut bytes = vec![0; len];
    let mut end = 0;
    // A hole ends the region.
    while end < len {
        let address = start + end as u64;
        let in_page = (PAGE_SIZE - address % PAGE_SIZE) as usize;
        let next = len.min(end + in_page);
        if memory.read(address, &mut bytes[end..next]).is_err() {
            break;
        }
        end = next;
    }

    bytes.truncate(end);
    (!bytes.is_empty()).then(|| Region {
        role,
        bounds: stack.range(),
        next_sp: stack.next_sp,
        address: start,
        bytes: Cow::Owned(bytes),
    })
}

/// The used parts of all stacks of a running task, from the one of `rsp` along their links to the
/// task's own stack, which is always included.
pub(super) fn chain(
    memory: &Virtual<'_, '_>,
    stacks: &[StackInfo],
    rsp: u64,
) -> Vec<Region<'static>> {
    let mut out: Vec<Region<'static>> = Vec::new();
    let mut sp = rsp;
    // Each stack once, whatever the links of a damaged dump say.
    for _ in 0..stacks.len() {
        let found = stacks.iter().find(|s| s.range().contains(&sp));
        let Some(stack) = found.filter(|s| out.iter().all(|r| r.bounds != s.range())) else {
            break;
        };

        let role = if out.is_empty() {
            RegionRole::Stack
        } else {
            RegionRole::OtherStack
        };

        // Some bytes below sp, too: of a `pt_regs`, only the end may be on the stack.
        let below = used(memory, stack, sp.saturating_sub(BELOW_SP), role);
        // What is below sp may be in a hole of the dump.
        out.extend(below.or_else(|| used(memory, stack, sp, role)));
        sp = stack.next_sp;
    }

    let own = stacks.iter().find(|s| s.kind == StackType::Task);
    if let Some(own) = own.filter(|s| out.iter().all(|r| r.bounds != s.range())) {
        let role = if out.is_empty() {
            RegionRole::Stack
        } else {
            RegionRole::OtherStack
        };
        out.extend(used(memory, own, own.begin, role));
    }
    out
}
