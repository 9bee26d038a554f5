//! A processor with the thread that it executes and the memory that the thread sees. Not here:
//! instructions.

use crate::address_space::{AddressSpace, Refusal};
use crate::processor::Processor;
use crate::state::State;
use crate::stop::{Exception, Stop};

/// A processor core.
#[derive(Clone, Debug)]
pub struct Core {
    /// The thread that it executes.
    pub state: State,
    /// The memory of the thread's process.
    pub memory: AddressSpace,
    /// Why an operation returned [`crate::op::Flow::Stop`].
    pub(crate) stop: Stop,
    /// The time that `rdtsc` returns at the first instruction of a block: the number of
    /// instructions executed before it.
    pub time: u64,
    /// Seed of the numbers that `rdrand` and `rdseed` return.
    pub(crate) seed: u64,
    /// The processor that executes the instructions.
    pub(crate) processor: Processor,
    /// Whether a kernel of its own runs: privileged instructions are for [`crate::system::System`].
    pub(crate) is_system: bool,
}

impl Core {
    /// The default processor; all registers zero, rflags 0x202, with this memory.
    pub fn new(memory: AddressSpace) -> Core {
        Core::with_processor(memory, Processor::default())
    }

    /// All registers zero, rflags 0x202, with this memory, on this processor.
    pub fn with_processor(memory: AddressSpace, processor: Processor) -> Core {
        Core {
            state: State::new(),
            memory,
            stop: Stop::None,
            time: 0,
            seed: 0,
            processor,
            is_system: false,
        }
    }

    /// The processor that executes the instructions.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// Changes the processor. Code that a machine has already decoded does not change.
    pub fn set_processor(&mut self, processor: Processor) {
        self.processor = processor;
    }

    /// Loads `W` bits.
    #[inline(always)]
    pub(crate) fn load<const W: u32>(&mut self, address: u64) -> Option<u64> {
        let memory = &mut self.memory;
        Some(match W {
            8 => u8::from_le_bytes(memory.load_bytes(address)?).into(),
            16 => u16::from_le_bytes(memory.load_bytes(address)?).into(),
            32 => u32::from_le_bytes(memory.load_bytes(address)?).into(),
            _ => u64::from_le_bytes(memory.load_bytes(address)?),
        })
    }

    /// Loads `W` bits that will be stored next: if they cannot be read, the fault is that of the
    /// store.
    #[inline(always)]
    pub(crate) fn load_to_store<const W: u32>(&mut self, address: u64) -> Option<u64> {
        let loaded = self.load::<W>(address);
        if loaded.is_none() {
            self.memory.check_store(address, W as usize / 8)?;
        }
        loaded
    }

    /// Stores `W` bits, or nothing.
    #[inline(always)]
    pub(crate) fn store<const W: u32>(&mut self, address: u64, value: u64) -> Option<()> {
        let memory = &mut self.memory;
        match W {
            8 => memory.store_bytes(address, (value as u8).to_le_bytes()),
            16 => memory.store_bytes(address, (value as u16).to_le_bytes()),
            32 => memory.store_bytes(address, (value as u32).to_le_bytes()),
            _ => memory.store_bytes(address, value.to_le_bytes()),
        }
    }

    /// Takes the reason why an operation stopped, including a refused memory access.
    #[cold]
    pub(crate) fn take_stop(&mut self) -> Stop {
        match self.memory.take_refusal() {
            Some(Refusal::Fault(fault)) => Stop::Exception(Exception::Memory(fault)),
            Some(Refusal::Code(range)) => Stop::Code(range),
            Some(Refusal::Device) => Stop::Device,
            // The machine takes it before, and executes the instruction without the guard.
            Some(Refusal::Guarded) => Stop::Apart,
            None => std::mem::replace(&mut self.stop, Stop::None),
        }
    }
}
