//! Where a kernel keeps its current task and the stacks of a processor.
//!
//! The places come from its symbols and types (`.BTF`). Sources: Linux
//! `arch/x86/kernel/dumpstack_64.c`, `arch/x86/include/asm/cpu_entry_area.h`,
//! `arch/x86/include/asm/current.h`, of 6.1, 6.12 and 6.15.

use super::{KernelImage, TracerPlaces};
use unwind_sim_unwind::kernel::{PAGE_SIZE, StackInfo, StackType, THREAD_SIZE, Version};

/// Start of kernel addresses.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// The exception stacks, in the order of `struct cea_exception_stacks`.
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

/// What a kernel's image does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MissingPlace {
    /// The layout of the kernel's structs.
    #[error("the kernel image has no type information (.BTF, CONFIG_DEBUG_INFO_BTF)")]
    Types,
    /// A symbol.
    #[error("the kernel image has no symbol `{0}` (CONFIG_KALLSYMS_ALL, or --system-map)")]
    Symbol(&'static str),
    /// A member of a struct.
    #[error("the kernel's `struct {structure}` has no `{path}`")]
    Member {
        /// The struct's name.
        structure: &'static str,
        /// The member.
        path: &'static str,
    },
}

/// The places of a kernel's stacks. Addresses of per-CPU variables have to be added to the base of a
/// processor's data.
#[derive(Clone, Debug)]
pub struct StackPlaces {
    /// The kernel's version.
    pub version: Version,
    /// Address of the table with the bases of the processors' data (`__per_cpu_offset`).
    pub bases: u64,
    /// Per-CPU variable with the address of the current `struct task_struct`.
    pub current: u64,
    /// Offset of `stack` in `struct task_struct`.
    pub stack: u64,
    /// Per-CPU variable with the start of the task's stack for `entry_SYSCALL_64`; unknown before
    /// 5.13.
    pub top_of_stack: Option<u64>,
    /// Per-CPU variable `hardirq_stack_ptr`.
    pub hardirq: u64,
    /// Per-CPU variable `cea_exception_stacks`.
    pub exceptions: u64,
    /// Offsets from the latter's value to each exception stack.
    pub exception_at: [u64; EXCEPTIONS.len()],
    /// Offset from there to the entry stack.
    pub entry_at: u64,
    /// Where tracers keep the return addresses that they took from a task's stack.
    pub tracers: TracerPlaces,
}

/// What never changes for a processor, once its data are set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorStacks {
    /// `hardirq_stack_ptr`; 0 until it is set up.
    hardirq: u64,
    /// `cea_exception_stacks`; 0 until they are set up.
    exceptions: u64,
}

impl ProcessorStacks {
    /// Whether the kernel has set up all of them, so that they stay.
    pub const fn are_set_up(&self) -> bool {
        self.hardirq != 0 && self.exceptions != 0
    }
}

impl StackPlaces {
    /// Those of the kernel `image`, loaded `bias` bytes above its own addresses.
    ///
    /// # Errors
    /// If the image does not say one of them.
    pub fn new(image: &KernelImage, bias: u64) -> Result<StackPlaces, MissingPlace> {
        let btf = image.btf.as_ref().ok_or(MissingPlace::Types)?;
        let symbol = |name| symbol(image, bias, name);
        let member = |structure, path| {
            let offset = btf.offset(structure, path);
            offset.ok_or(MissingPlace::Member { structure, path })
        };

        // 6.2 to 6.14 keep hot members in one struct.
        let (current, hardirq, top_of_stack) = match symbol("pcpu_hot") {
            Ok(hot) => (
                hot + member("pcpu_hot", "current_task")?,
                hot + member("pcpu_hot", "hardirq_stack_ptr")?,
                Some(hot + member("pcpu_hot", "top_of_stack")?),
            ),
            Err(_) => (
                symbol("current_task")?,
                symbol("hardirq_stack_ptr")?,
                symbol("cpu_current_top_of_stack").ok(),
            ),
        };

        let mut exception_at = [0; EXCEPTIONS.len()];
        for (at, (_, name)) in exception_at.iter_mut().zip(EXCEPTIONS) {
            *at = member("cea_exception_stacks", name)?;
        }
        // The exception stacks and the entry stack are both in `struct cpu_entry_area`.
        let entry_stack = member("cpu_entry_area", "entry_stack_page")?;
        let version = image.version.as_deref().and_then(Version::from_name);

        Ok(StackPlaces {
            version: version.unwrap_or(Version::DEFAULT),
            bases: symbol("__per_cpu_offset")?,
            current,
            stack: member("task_struct", "stack")?,
            top_of_stack,
            hardirq,
            exceptions: symbol("cea_exception_stacks")?,
            exception_at,
            // Only the exception stacks have a variable (`cea_exception_stacks`): it holds the
            // address of this processor's. The entry stack is found by its distance from them.
            entry_at: entry_stack.wrapping_sub(member("cpu_entry_area", "estacks")?),
            tracers: TracerPlaces::new(btf, version),
        })
    }

    /// The processor whose data are at `base`; `word` reads its memory.
    ///
    /// # Errors
    /// Those of `word`.
    pub fn processor<E>(
        &self,
        base: u64,
        word: &mut dyn FnMut(u64) -> Result<u64, E>,
    ) -> Result<ProcessorStacks, E> {
        Ok(ProcessorStacks {
            hardirq: word(self.hardirq.wrapping_add(base))?,
            exceptions: word(self.exceptions.wrapping_add(base))?,
        })
    }

    /// A task's stack, which starts at `stack`, and for the current task those of its processor. Their
    /// links are left to whoever has the memory.
    pub fn stacks(&self, stack: u64, processor: Option<&ProcessorStacks>) -> Vec<StackInfo> {
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
            for ((kind, _), at) in EXCEPTIONS.into_iter().zip(self.exception_at) {
                let begin = processor.exceptions.wrapping_add(at);
                out.push(info(kind, begin, EXCEPTION_STACK_SIZE));
            }
            let entry = processor.exceptions.wrapping_add(self.entry_at);
            out.push(info(StackType::Entry, entry, PAGE_SIZE));
        }

        if processor.hardirq != 0 {
            let end = self.version.irq_stack_end(processor.hardirq);
            let begin = end.wrapping_sub(THREAD_SIZE);
            out.push(info(StackType::Irq, begin, THREAD_SIZE));
        }
        out
    }
}

/// The address of a symbol in the loaded kernel. Before 6.15, symbols of per-CPU data are offsets, which
/// do not move.
///
/// # Errors
/// If there is none of this name.
pub fn symbol(image: &KernelImage, bias: u64, name: &'static str) -> Result<u64, MissingPlace> {
    let at = image.symbols.address(name);
    let at = at.ok_or(MissingPlace::Symbol(name))?;
    Ok(if at >= KERNEL {
        at.wrapping_add(bias)
    } else {
        at
    })
}
