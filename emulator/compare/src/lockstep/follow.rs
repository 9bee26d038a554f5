//! The process that follows the machine, with the same memory and registers.

use super::difference::Memory;
use std::ops::Range;
use unwind_sim_emulator::address_space::Change;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{Access, Area, Core};
use unwind_sim_emulator_native::stepper::{Cpu, Stepper};
use unwind_sim_emulator_native::{Extended, StepError};

/// Number of bytes copied or compared at once.
const CHUNK: u64 = 1 << 16;
/// Size above which areas are not compared as a whole: they are reserved rather than used.
const AREA_MAX: u64 = 1 << 30;

/// The general registers of a state, with the next instruction at `rip`.
pub(super) fn cpu_of(core: &Core, rip: u64) -> Cpu {
    Cpu {
        gpr: std::array::from_fn(|number| core.state.gpr(number)),
        rip,
        rflags: core.state.rflags(),
        bases: [core.state.gpr(reg::FS), core.state.gpr(reg::GS)],
    }
}

/// The x87, SSE and AVX registers of a state.
pub(super) fn extended_of(core: &Core) -> Extended {
    Extended {
        legacy: core.fx_image(),
        upper: std::array::from_fn(|number| core.state.vectors.ymm(number)[1]),
    }
}

/// Whether these registers are equal. Ignores the last x87 instruction and operand, since processors
/// differ in when they record them.
pub(super) fn same_fx(a: &Extended, b: &Extended) -> bool {
    if a.upper != b.upper {
        return false;
    }
    let same = |part: Range<usize>| a.legacy[part.clone()] == b.legacy[part];
    // Control, status and tag word; MXCSR; x87 registers without padding; xmm.
    same(0..5) && same(24..28) && (0..8).all(|i| same(32 + 16 * i..42 + 16 * i)) && same(160..416)
}

/// The process, and what is known about it.
pub(super) struct Follower {
    pub(super) stepper: Stepper,
    /// Changes in the machine since they were last applied.
    pub(super) changes: Vec<Change>,
    /// The x87, SSE and AVX registers as last read or set.
    fx: Extended,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Follower {
    pub(super) fn new() -> Result<Follower, StepError> {
        let stepper = Stepper::new()?;
        Ok(Follower {
            fx: stepper.extended()?,
            stepper,
            changes: Vec::new(),
            ours: vec![0; CHUNK as usize],
            theirs: vec![0; CHUNK as usize],
        })
    }

    /// Copies the machine's memory and registers to the process, replacing everything.
    pub(super) fn fill(&mut self, core: &Core) -> Result<(), StepError> {
        self.stepper.clear()?;
        for (range, area) in core.memory.areas() {
            self.map(core, range, area)?;
        }
        self.set_registers(core)
    }

    /// Applies what the machine's kernel did.
    pub(super) fn apply(&mut self, core: &Core) -> Result<(), StepError> {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Stored(range) => self.copy(core, range)?,
                Change::Mapped(range) => self.remap(core, &range)?,
            }
        }
        self.set_registers(core)
    }

    fn set_registers(&mut self, core: &Core) -> Result<(), StepError> {
        self.stepper.set_cpu(&cpu_of(core, core.state.rip))?;
        self.set_fx(core)
    }

    /// Sets the x87, SSE and AVX registers.
    pub(super) fn set_fx(&mut self, core: &Core) -> Result<(), StepError> {
        let fx = extended_of(core);
        if !same_fx(&fx, &self.fx) {
            self.stepper.set_extended(&fx)?;
            self.fx = fx;
        }
        Ok(())
    }

    /// Reads the x87, SSE and AVX registers.
    pub(super) fn fx(&mut self) -> Result<&Extended, StepError> {
        self.fx = self.stepper.extended()?;
        Ok(&self.fx)
    }

    fn remap(&mut self, core: &Core, range: &Range<u64>) -> Result<(), StepError> {
        self.stepper.unmap(range.clone())?;
        for (area_range, area) in core.memory.areas() {
            let part = area_range.start.max(range.start)..area_range.end.min(range.end);
            if part.start < part.end {
                self.map(core, part, area)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, core: &Core, range: Range<u64>, area: &Area) -> Result<(), StepError> {
        let may = [Access::Read, Access::Write, Access::Execute];
        let may = may.map(|access| area.permissions().allow(access));
        self.stepper.map(range.clone(), [true, true, false])?;
        self.copy(core, range.clone())?;
        if may != [true, true, false] {
            self.stepper.protect(range, may)?;
        }
        Ok(())
    }

    /// Copies a range. Skips zeros in large ranges, which are zero anyway.
    fn copy(&mut self, core: &Core, range: Range<u64>) -> Result<(), StepError> {
        let whole = range.end - range.start >= CHUNK;
        for part in chunks(range) {
            let ours = &mut self.ours[..(part.end - part.start) as usize];
            // If it cannot be read, it was stored and later unmapped, which the next change
            // reports.
            if core.memory.peek(part.start, ours).is_err() {
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
        core: &Core,
        range: Range<u64>,
    ) -> Result<Option<Memory>, StepError> {
        for part in chunks(range) {
            let size = (part.end - part.start) as usize;
            let (ours, theirs) = (&mut self.ours[..size], &mut self.theirs[..size]);
            if core.memory.peek(part.start, ours).is_err() {
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
    pub(super) fn compare_all(&mut self, core: &Core) -> Result<Option<Memory>, StepError> {
        for (range, area) in core.memory.areas() {
            let wanted = area.permissions().allow(Access::Read);
            if !wanted || range.end - range.start > AREA_MAX {
                continue;
            }
            if let Some(memory) = self.compare(core, range)? {
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
