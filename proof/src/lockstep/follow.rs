//! The process that follows the machine, with the same memory and registers.

use super::difference::Memory;
use std::ops::Range;
use unwind_sim_emulator::address_space::Change;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{Access, Area, State};
use unwind_sim_host::HostError;
use unwind_sim_host::stepper::{Cpu, Stepper};

/// Number of bytes copied or compared at once.
const CHUNK: u64 = 1 << 16;
/// Size above which areas are not compared as a whole: they are reserved rather than used.
const AREA_MAX: u64 = 1 << 30;

/// The general registers of a state, with the next instruction at `rip`.
pub(super) fn cpu_of(state: &State, rip: u64) -> Cpu {
    Cpu {
        gpr: std::array::from_fn(|number| state.gpr(number)),
        rip,
        rflags: state.rflags(),
        bases: [state.gpr(reg::FS), state.gpr(reg::GS)],
    }
}

/// Whether two FXSAVE64 areas are equal. Ignores the last x87 instruction and operand, since
/// processors differ in when they record them.
pub(super) fn same_fx(a: &[u8; 512], b: &[u8; 512]) -> bool {
    let same = |part: Range<usize>| a[part.clone()] == b[part];
    // Control, status and tag word; MXCSR; x87 registers without padding; xmm.
    same(0..5) && same(24..28) && (0..8).all(|i| same(32 + 16 * i..42 + 16 * i)) && same(160..416)
}

/// The process, and what is known about it.
pub(super) struct Follower {
    pub(super) stepper: Stepper,
    /// Changes in the machine since they were last applied.
    pub(super) changes: Vec<Change>,
    /// The x87 and SSE registers as last read or set.
    fx: [u8; 512],
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Follower {
    pub(super) fn new() -> Result<Follower, HostError> {
        let stepper = Stepper::new()?;
        Ok(Follower {
            fx: stepper.fx()?,
            stepper,
            changes: Vec::new(),
            ours: vec![0; CHUNK as usize],
            theirs: vec![0; CHUNK as usize],
        })
    }

    /// Copies the machine's memory and registers to the process, replacing everything.
    pub(super) fn fill(&mut self, state: &State) -> Result<(), HostError> {
        self.stepper.clear()?;
        for (range, area) in state.memory.areas() {
            self.map(state, range, area)?;
        }
        self.set_registers(state)
    }

    /// Applies what the machine's kernel did.
    pub(super) fn apply(&mut self, state: &State) -> Result<(), HostError> {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Stored(range) => self.copy(state, range)?,
                Change::Mapped(range) => self.remap(state, &range)?,
            }
        }
        self.set_registers(state)
    }

    fn set_registers(&mut self, state: &State) -> Result<(), HostError> {
        self.stepper.set_cpu(&cpu_of(state, state.rip))?;
        self.set_fx(state)
    }

    /// Sets the x87 and SSE registers.
    pub(super) fn set_fx(&mut self, state: &State) -> Result<(), HostError> {
        let fx = state.fx_image();
        if !same_fx(&fx, &self.fx) {
            self.stepper.set_fx(&fx)?;
            self.fx = fx;
        }
        Ok(())
    }

    /// Reads the x87 and SSE registers.
    pub(super) fn fx(&mut self) -> Result<&[u8; 512], HostError> {
        self.fx = self.stepper.fx()?;
        Ok(&self.fx)
    }

    fn remap(&mut self, state: &State, range: &Range<u64>) -> Result<(), HostError> {
        self.stepper.unmap(range.clone())?;
        for (area_range, area) in state.memory.areas() {
            let part = area_range.start.max(range.start)..area_range.end.min(range.end);
            if part.start < part.end {
                self.map(state, part, area)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, state: &State, range: Range<u64>, area: &Area) -> Result<(), HostError> {
        let may = [Access::Read, Access::Write, Access::Execute];
        let may = may.map(|access| area.permissions().allow(access));
        self.stepper.map(range.clone(), [true, true, false])?;
        self.copy(state, range.clone())?;
        if may != [true, true, false] {
            self.stepper.protect(range, may)?;
        }
        Ok(())
    }

    /// Copies a range. Skips zeros in large ranges, which are zero anyway.
    fn copy(&mut self, state: &State, range: Range<u64>) -> Result<(), HostError> {
        let whole = range.end - range.start >= CHUNK;
        for part in chunks(range) {
            let ours = &mut self.ours[..(part.end - part.start) as usize];
            // If it cannot be read, it was stored and later unmapped, which the next change
            // reports.
            if state.memory.peek(part.start, ours).is_err() {
                continue;
            }
            if !whole || ours.iter().any(|&byte| byte != 0) {
                self.stepper.write(part.start, ours)?;
            }
        }
        Ok(())
    }

    /// The first bytes of a range that differ. Ignores what is unreadable in the machine.
    pub(super) fn compare(
        &mut self,
        state: &State,
        range: Range<u64>,
    ) -> Result<Option<Memory>, HostError> {
        for part in chunks(range) {
            let size = (part.end - part.start) as usize;
            let (ours, theirs) = (&mut self.ours[..size], &mut self.theirs[..size]);
            if state.memory.peek(part.start, ours).is_err() {
                continue;
            }
            self.stepper.read(part.start, theirs)?;
            if ours != theirs {
                return Ok(Memory::of(part.start, ours, theirs));
            }
        }
        Ok(None)
    }

    /// Compares all readable memory.
    pub(super) fn compare_all(&mut self, state: &State) -> Result<Option<Memory>, HostError> {
        for (range, area) in state.memory.areas() {
            let wanted = area.permissions().allow(Access::Read);
            if !wanted || range.end - range.start > AREA_MAX {
                continue;
            }
            if let Some(memory) = self.compare(state, range)? {
                return Ok(Some(memory));
            }
        }
        Ok(None)
    }
}

fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let starts = (start..end).step_by(CHUNK as usize);
    starts.map(move |at| at..end.min(at.saturating_add(CHUNK)))
}
