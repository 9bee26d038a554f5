//! A kernel that stands still, behind a gdb stub or in the emulated machine: its current task, its
//! stacks, and what its own unwinder says there.

pub(crate) mod callchain;
pub(crate) mod loaded;
pub(crate) mod state;
pub(crate) mod stopped;
pub(crate) mod truth;
mod uretprobes;
pub(crate) mod world;

/// Process ID of the address space that kernel samples belong to.
pub(crate) const PID: u32 = 0;

/// Trampolines of the function graph tracer, and of kretprobes since 5.18, since 5.11 and before.
pub(crate) const TRAMPOLINES: [&str; 4] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "__kretprobe_trampoline",
    "kretprobe_trampoline",
];

/// The machine of a kernel at a stop. Memory is that of the kernel's page tables.
pub(crate) trait KernelMachine {
    /// Why memory or registers cannot be read.
    type Error;

    /// The register with this name, as gdb calls it; `None` if it is not known.
    fn register(&mut self, name: &str) -> Result<Option<u64>, Self::Error>;

    /// The number of the processor that stopped, from 0.
    fn processor_number(&self) -> usize;

    /// These bytes of memory.
    fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, Self::Error>;

    /// The word at `address`.
    fn word(&mut self, address: u64) -> Result<u64, Self::Error> {
        let bytes = self.read(address, 8)?;
        Ok(bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)))
    }
}
