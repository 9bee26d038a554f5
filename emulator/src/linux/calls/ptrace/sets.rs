//! `ptrace`: the x87, SSE and AVX registers, and sets of registers by the type of their note in a core.
//!
//! Source: Linux 6.12 `kernel/ptrace.c` (`ptrace_regset`), `arch/x86/kernel/fpu/regset.c`.

use super::user::{REGISTERS, words};
use crate::core::Core;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::task::Task;
use crate::state::MXCSR_DEFAULT;

/// Size of the FXSAVE area, bytes.
const FXSAVE: usize = 512;
/// Where the kernel says in it which components there are (`xstate_fx_sw_bytes`).
const COMPONENTS: usize = 464;
/// The header of the XSAVE area: the components in use, and the form of the area.
const HEADER: usize = 512;
/// Where MXCSR is.
const MXCSR: usize = 24;

/// A set of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Set {
    /// `NT_PRSTATUS`.
    General,
    /// `NT_PRFPREG`.
    Float,
    /// `NT_X86_XSTATE`.
    Extended,
}

impl Set {
    /// The set of a type of notes.
    ///
    /// # Errors
    /// `EINVAL` if there is none, `ENODEV` if the thread does not have it.
    fn of(number: u64) -> Answer<Set> {
        /// `NT_386_IOPERM` and `NT_X86_SHSTK`: allowed ports, shadow stack.
        const PORTS: u32 = 0x201;
        const SHADOW: u32 = 0x204;
        Ok(match number as u32 {
            1 => Set::General,
            2 => Set::Float,
            0x202 => Set::Extended,
            PORTS => return Err(Errno::ENXIO),
            SHADOW => return Err(Errno::ENODEV),
            _ => return Err(Errno::EINVAL),
        })
    }
}

impl Kernel {
    /// Calls `f` with a core that has the registers of a thread.
    fn with_core<T>(&mut self, task: Task, f: impl FnOnce(&mut Core) -> T) -> Answer<T> {
        let state = self.tracee(task).ok_or(Errno::ESRCH)?.state.clone();
        let own = std::mem::replace(&mut self.machine.core.state, state);
        let done = f(&mut self.machine.core);
        let changed = std::mem::replace(&mut self.machine.core.state, own);
        *self.tracee(task).ok_or(Errno::ESRCH)?.state = changed;
        Ok(done)
    }

    pub(super) fn get_float(&mut self, task: Task, to: u64) -> Answer {
        let bytes = self.with_core(task, |core| core.fx_image())?;
        self.put(to, &bytes)?;
        Ok(0)
    }

    pub(super) fn set_float(&mut self, task: Task, from: u64) -> Answer {
        let bytes = self.bytes::<FXSAVE>(from)?;
        self.put_float(task, &bytes)
    }

    fn put_float(&mut self, task: Task, bytes: &[u8; FXSAVE]) -> Answer {
        let done = self.with_core(task, |core| core.set_fx_image(bytes))?;
        done.map(|()| 0).ok_or(Errno::EINVAL)
    }

    /// The bytes of a set.
    fn set_bytes(&mut self, task: Task, set: Set) -> Answer<Vec<u8>> {
        Ok(match set {
            Set::General => {
                let registers = self.registers_of(task)?;
                registers.into_iter().flat_map(u64::to_le_bytes).collect()
            }
            Set::Float => self.with_core(task, |core| core.fx_image().to_vec())?,
            Set::Extended => self.with_core(task, |core| {
                let mut bytes = core.xsave_image();
                let components = core.processor().xcr0().to_le_bytes();
                bytes[COMPONENTS..COMPONENTS + 8].copy_from_slice(&components);
                bytes
            })?,
        })
    }

    /// The `struct iovec` of a request for a set, whose room must be a multiple of its words.
    fn vector_of(&mut self, set: Set, vector: u64) -> Answer<(u64, u64)> {
        let (base, room) = (self.u64_at(vector)?, self.u64_at(vector.wrapping_add(8))?);
        let word = if set == Set::Float { 4 } else { 8 };
        match room % word {
            0 => Ok((base, room)),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn get_set(&mut self, task: Task, number: u64, vector: u64) -> Answer {
        let set = Set::of(number);
        let (base, room) = self.vector_of(set.unwrap_or(Set::General), vector)?;
        let bytes = self.set_bytes(task, set?)?;
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.put(base, &bytes[..count])?;
        self.put_u64(vector.wrapping_add(8), count as u64)?;
        Ok(0)
    }

    pub(super) fn set_set(&mut self, task: Task, number: u64, vector: u64) -> Answer {
        let set = Set::of(number);
        // A bad vector is reported before a set that does not exist.
        let (base, room) = self.vector_of(set.unwrap_or(Set::General), vector)?;
        let set = set?;

        let mut bytes = self.set_bytes(task, set)?;
        let size = bytes.len();
        let count = size.min(usize::try_from(room).unwrap_or(usize::MAX));

        let whole = match set {
            Set::General => 0,
            // What is left out is not taken from the thread (`xfpregs_set`, `xstateregs_set`).
            Set::Float | Set::Extended => size,
        };
        if count < whole {
            return Err(match set {
                Set::Extended => Errno::EFAULT,
                _ => Errno::EINVAL,
            });
        }

        self.get(base, &mut bytes[..count])?;
        match set {
            Set::General => {
                debug_assert_eq!(size, REGISTERS * 8);
                self.put_registers(task, 0, &words(&bytes[..count]))?;
            }
            Set::Float => {
                let area = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                self.put_float(task, area)?;
            }
            Set::Extended => self.put_extended(task, &bytes)?,
        }

        // The size that was used goes back, as for a read (`ptrace_request`).
        self.put_u64(vector.wrapping_add(8), count as u64)?;
        Ok(0)
    }

    /// Sets the components that a standard XSAVE area has; the others are reset
    /// (`copy_uabi_to_xstate`).
    fn put_extended(&mut self, task: Task, bytes: &[u8]) -> Answer<()> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let (used, form) = (word(HEADER), word(HEADER + 8));

        // `validate_user_xstate_header`: unknown components and reserved bytes are errors.
        let is_wrong = |core: &Core| {
            let reserved = bytes[HEADER + 16..HEADER + 64]
                .iter()
                .any(|&byte| byte != 0);
            let mask = core.processor().mxcsr_mask();
            let mxcsr = word(MXCSR) as u32;
            used & !core.processor().xcr0() != 0 || form != 0 || reserved || mxcsr & !mask != 0
        };

        let done = self.with_core(task, |core| {
            if is_wrong(core) {
                return None;
            }
            core.set_xsave_image(bytes, used)?;
            core.reset_components(!used);
            // MXCSR is taken with SSE or AVX.
            if used & 6 == 0 {
                core.state.mxcsr = MXCSR_DEFAULT;
            }
            Some(())
        })?;
        done.ok_or(Errno::EINVAL)
    }
}
