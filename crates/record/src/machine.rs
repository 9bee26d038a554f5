//! The emulated machine as the truth and the unwinders see it. The machine itself knows neither.

use std::ops::Range;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{AddressSpace, Core, State};
use unwind_sim_recordings::import::{KernelMemory, VmcoreFault};
use unwind_sim_unwind::memory::{Memory, MemoryError};
use unwind_sim_unwind::truth::{Cpu, World};

/// Size of a kernel's stack, bytes (Linux `arch/x86/include/asm/page_64_types.h`, `THREAD_SIZE`).
pub const KERNEL_STACK: u64 = 16 << 10;

/// The state as a shadow stack sees it, with the next instruction at `rip`.
#[inline(always)]
pub fn cpu_at(state: &State, rip: u64) -> Cpu {
    cpu(&state.preserved_at(rip))
}

/// What a thread keeps for its caller, as a shadow stack sees it.
#[inline(always)]
pub fn cpu(at: &Preserved) -> Cpu {
    Cpu {
        rip: at.rip,
        rsp: at.rsp,
        saved: at.saved,
    }
}

/// The memory that an unwinder inside the machine could read.
#[derive(Clone, Copy, Debug)]
pub struct MachineMemory<'a>(pub &'a AddressSpace);

impl Memory for MachineMemory<'_> {
    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let word = self.0.read_u64(address);
        word.map_err(|_| MemoryError::Unmapped { address })
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let read = self.0.read(address, buf);
        read.map_err(|_| MemoryError::Unmapped { address })
    }

    fn stack_bounds(&self, sp: u64) -> Option<Range<u64>> {
        self.0.area(sp).map(|(range, _)| range)
    }
}

impl KernelMemory for MachineMemory<'_> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), VmcoreFault> {
        let read = self.0.read(address, out);
        read.map_err(|_| VmcoreFault::Refused { address })
    }
}

/// What is known of a kernel's code; nothing of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelCode {
    /// Where it is.
    pub ranges: Vec<Range<u64>>,
    /// The code of tracers that functions return to instead.
    pub trampolines: Vec<u64>,
}

impl KernelCode {
    /// That of a process.
    const NONE: &'static KernelCode = &KernelCode {
        ranges: Vec::new(),
        trampolines: Vec::new(),
    };
}

/// The shadow stack's view of the machine that it is kept beside.
#[derive(Clone, Copy, Debug)]
pub struct MachineWorld<'a> {
    core: &'a Core,
    code: &'a KernelCode,
}

impl<'a> MachineWorld<'a> {
    /// That of a process.
    pub fn process(core: &'a Core) -> MachineWorld<'a> {
        MachineWorld {
            core,
            code: KernelCode::NONE,
        }
    }

    /// That of a kernel, whose code is only at these addresses: early page tables let more be executed. If
    /// there are none, it is that of a process.
    pub fn kernel(core: &'a Core, code: &'a KernelCode) -> MachineWorld<'a> {
        MachineWorld { core, code }
    }

    fn is_kernel(&self) -> bool {
        !self.code.ranges.is_empty()
    }
}

impl World for MachineWorld<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.core.memory.read_u64(address).ok()
    }

    fn is_code(&mut self, address: u64) -> bool {
        let is_known =
            !self.is_kernel() || self.code.ranges.iter().any(|code| code.contains(&address));
        is_known && self.core.memory.fetch(address, &mut [0]).is_ok()
    }

    fn is_returned_to(&mut self, address: u64) -> bool {
        // A kernel keeps code addresses on its stacks for messages (Linux `_THIS_IP_`, `_RET_IP_`), and
        // none of its functions returns through one that it has put there.
        !self.is_kernel() && self.is_code(address)
    }

    fn is_trampoline(&mut self, address: u64) -> bool {
        self.code.trampolines.contains(&address)
    }

    fn has_coroutines(&self) -> bool {
        !self.is_kernel()
    }

    fn is_generated(&mut self, address: u64) -> bool {
        // An object may be a file that another process has written.
        let area = self.core.memory.area(address).map(|(_, area)| area);
        area.is_some_and(|area| !area.is_file() && area.object().is_none()) && self.is_code(address)
    }

    fn same_mapping(&mut self, a: u64, b: u64) -> bool {
        if self.is_kernel() {
            // Its stacks are of this size, at multiples of it.
            return a / KERNEL_STACK == b / KERNEL_STACK;
        }
        let area = self.core.memory.area(a);
        area.is_some_and(|(range, _)| range.contains(&b))
    }

    fn is_in_register(&mut self, value: u64) -> bool {
        (0..16).any(|number| self.core.state.gpr(number) == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_emulator::Permissions;

    const PAGE: u64 = 4096;
    const CODE: u64 = 0x40_0000;

    /// The truth has wider rules for code that a program makes while it runs. A file and an object,
    /// which may be a file that another program wrote, are not that.
    #[test]
    fn only_private_memory_without_a_file_is_generated_code() {
        let mut memory = AddressSpace::default();
        let range = |number: u64| CODE + number * PAGE..CODE + (number + 1) * PAGE;
        let object = memory.create_object(vec![0x90; 8]);
        memory.map(range(0), Permissions::ALL).expect("free");
        memory.map(range(1), Permissions::READ_WRITE).expect("free");
        let file = memory.map_file(range(2), Permissions::ALL, vec![0x90; 8], 0);
        file.expect("free");
        let shared = memory.map_shared(range(3), Permissions::ALL, object, 0);
        shared.expect("free");
        let private = memory.map_private(range(4), Permissions::ALL, object, 0);
        private.expect("free");

        let core = Core::new(memory);
        let mut world = MachineWorld::process(&core);
        let generated = [0, 1, 2, 3, 4, 5].map(|number| world.is_generated(CODE + number * PAGE));
        assert_eq!(generated, [true, false, false, false, false, false]);
    }
}
