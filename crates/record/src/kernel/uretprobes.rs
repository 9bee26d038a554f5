//! The return addresses that return probes took from a task's user stack.
//!
//! Sources: Linux `include/linux/uprobes.h`, `kernel/events/uprobes.c`.

use super::KernelMachine;
use unwind_sim_recordings::kernel::Btf;
use unwind_sim_recordings::trace::URETPROBES_MAX;
use unwind_sim_unwind::kernel::Uretprobes;

/// Offsets of the probes' data.
pub(super) struct UprobeOffsets {
    /// From a task to its `struct uprobe_task`, and from there to the list.
    utask: u64,
    list: u64,
    /// In `struct return_instance`.
    original: u64,
    next: u64,
    /// From `struct mm_struct` to the pointer to `struct xol_area`, and from there to the address
    /// of the page `[uprobes]`, which begins with the trampoline.
    area: u64,
    address: u64,
}

impl UprobeOffsets {
    /// `None` for a kernel without return probes (`CONFIG_UPROBES`).
    pub(super) fn new(btf: &Btf) -> Option<UprobeOffsets> {
        Some(UprobeOffsets {
            utask: btf.offset("task_struct", "utask")?,
            list: btf.offset("uprobe_task", "return_instances")?,
            original: btf.offset("return_instance", "orig_ret_vaddr")?,
            next: btf.offset("return_instance", "next")?,
            area: btf.offset("mm_struct", "uprobes_state.xol_area")?,
            address: btf.offset("xol_area", "vaddr")?,
        })
    }

    /// Reads the list of the task at `task`, whose address space is the one at `mm`.
    pub(super) fn read<M: KernelMachine>(
        &self,
        machine: &mut M,
        task: u64,
        mm: u64,
    ) -> Result<Uretprobes, M::Error> {
        let mut taken = Uretprobes {
            // An address that nothing returns to.
            trampoline: u64::MAX,
            originals: Vec::new(),
        };

        // Null until the task hits its first probe (`kernel/events/uprobes.c`).
        let utask = machine.word(task.wrapping_add(self.utask))?;
        let mut instance = match utask {
            0 => 0,
            utask => machine.word(utask.wrapping_add(self.list))?,
        };
        while instance != 0 && taken.originals.len() < URETPROBES_MAX {
            let original = machine.word(instance.wrapping_add(self.original))?;
            taken.originals.push(original);
            instance = machine.word(instance.wrapping_add(self.next))?;
        }

        // A kernel thread has no address space.
        let area = match mm {
            0 => 0,
            mm => machine.word(mm.wrapping_add(self.area))?,
        };
        if area != 0 {
            taken.trampoline = machine.word(area.wrapping_add(self.address))?;
        }

        Ok(taken)
    }
}
