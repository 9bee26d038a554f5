//! The emulated machine: executes x86-64 programs and reports each instruction to an observer.
//!
//! [`AddressSpace`] is the memory: areas with permissions, in pages that are created on first use;
//! one space for each process, which can share pages. [`load()`] loads a program as Linux's
//! `execve` does. [`Machine`] decodes it block by block into operations (`lower`, `op`) and runs
//! them; their functions are in `isa`, one file for each group of instructions. [`linux::Kernel`]
//! is a program with a kernel around it; in [`ring0::Ring0`] the machine runs the kernel itself.
//!
//! [`Machine::snapshot`] and [`linux::Kernel::snapshot`] save the state of a run, so that it can
//! be restored; the cost does not depend on how much memory is in use.
//!
//! Code without a program or a kernel around it, each instruction observed:
//!
//! ```
//! use unwind_sim_emulator::{AddressSpace, Core, Executed, Exit, Machine, Observer, Permissions};
//!
//! /// The addresses of the instructions that were executed.
//! #[derive(Default)]
//! struct Addresses(Vec<u64>);
//!
//! impl Observer for Addresses {
//!     fn before(&mut self, _: &Core, insn: &Executed) {
//!         self.0.push(insn.rip);
//!     }
//!
//!     fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
//! }
//!
//! const CODE: u64 = 0x40_0000;
//! // mov eax, 6; imul eax, eax, 7; hlt
//! let code = [0xb8, 6, 0, 0, 0, 0x6b, 0xc0, 7, 0xf4];
//!
//! let mut memory = AddressSpace::default();
//! memory.map(CODE..CODE + 4096, Permissions::ALL).expect("whole pages");
//! memory.write(CODE, &code).expect("mapped");
//! let mut machine = Machine::new(Core::new(memory));
//! machine.core.state.rip = CODE;
//!
//! let mut seen = Addresses::default();
//! assert_eq!(machine.run(100, &mut seen), Exit::Halt);
//! assert_eq!(machine.core.state.gpr(0), 42);
//! assert_eq!(seen.0, [CODE, CODE + 5, CODE + 8]);
//! ```
//!
//! A program with Linux around it: [`linux::Kernel`].
#![forbid(unsafe_code)]

pub mod address_space;
mod code;
mod core;
pub mod differences;
pub mod effects;
pub mod flags;
pub(crate) mod float;
mod isa;
mod length;
#[cfg(unix)]
pub mod linux;
pub mod load;
mod lower;
pub mod machine;
mod op;
mod operands;
pub mod processor;
mod random;
pub mod ring0;
pub mod single;
pub mod state;
pub mod stop;
pub mod system;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod test_random;

pub use self::core::Core;
pub use address_space::{
    Access, AddressSpace, Area, Fault, FaultKind, MapError, Permissions, RestoreError,
};
pub use load::{LoadError, LoadErrorKind, LoadOptions, Loaded, load};
pub use machine::{BlockId, Executed, Exit, Machine, Observer};
pub use processor::{Processor, Vendor};
pub use state::State;
pub use stop::{Call, Exception};
