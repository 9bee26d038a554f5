//! The processor and the memory of a program at the state that was gone to last, for debuggers.

use super::stops::{Access, Stops, Watch};
use super::{Source, States};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};
use std::sync::Arc;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::state::reg;
use unwind_sim_record::reversible::Look;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// The number of rsp.
const RSP: usize = 4;
/// The number of rcx.
const RCX: usize = 1;
/// The direction flag.
const DIRECTION: u64 = 1 << 10;

/// Registers of the processor that no unwinder needs.
#[derive(Clone, Debug)]
pub struct Processor {
    /// xmm0 to xmm15.
    pub xmm: [u128; 16],
    /// The control and status register of SSE.
    pub mxcsr: u32,
    /// The base of segment fs.
    pub fs_base: u64,
    /// The base of segment gs.
    pub gs_base: u64,
}

impl States {
    /// The number of the state that was gone to last; of a program only. A search that was stopped
    /// ends where it was.
    pub fn position(&self) -> Option<u64> {
        match &self.source {
            Source::Recording(_) => None,
            Source::Program(run) => Some(run.executed()),
        }
    }

    /// The processor of a program at the state that was gone to last.
    pub fn processor(&self) -> Option<Processor> {
        let state = &self.core()?.state;
        Some(Processor {
            xmm: std::array::from_fn(|number| state.vectors.xmm(number)),
            mxcsr: state.mxcsr,
            fs_base: state.gpr(reg::FS),
            gs_base: state.gpr(reg::GS),
        })
    }

    /// Fills `to` with the memory of a program's running process from `address` on, whatever its
    /// permissions, at the state that was gone to last. Returns the number of bytes that there are
    /// before the first unmapped one; `None` for a recording.
    pub fn peek(&self, address: u64, to: &mut [u8]) -> Option<usize> {
        let core = self.core()?;
        let len = match core.memory.peek(address, to) {
            Ok(()) => to.len(),
            Err(fault) => usize::try_from(fault.address.wrapping_sub(address)).unwrap_or(0),
        };
        Some(len.min(to.len()))
    }

    /// The auxiliary vector of a program's running process.
    pub fn auxv(&self) -> Option<Vec<u8>> {
        match &self.source {
            Source::Recording(_) => None,
            Source::Program(run) => Some(run.auxv().to_vec()),
        }
    }

    /// The first of `watches` that the next instruction accesses, and the first address of it, at the
    /// state that was gone to last.
    pub fn accessed(&self, watches: &[Watch]) -> Option<(Access, u64)> {
        let core = self.core()?;
        accessed(
            watches,
            core,
            core.state.rip,
            &mut InstructionInfoFactory::new(),
        )
    }

    fn core(&self) -> Option<&Core> {
        match &self.source {
            Source::Recording(_) => None,
            Source::Program(run) => Some(run.core()),
        }
    }
}

/// Looks for what a debugger stops for.
pub(super) struct Stopper {
    pub(super) stops: Arc<Stops>,
    pub(super) factory: InstructionInfoFactory,
}

impl Look for Stopper {
    fn is_there(&mut self, core: &Core, rip: u64, task: Task, _: &World) -> bool {
        let Stopper { stops, factory } = self;
        stops.is_at(task.thread, rip, core.state.gpr(RSP))
            || !stops.watches.is_empty() && accessed(&stops.watches, core, rip, factory).is_some()
    }
}

/// The watch that the instruction at `rip` accesses.
fn accessed(
    watches: &[Watch],
    core: &Core,
    rip: u64,
    factory: &mut InstructionInfoFactory,
) -> Option<(Access, u64)> {
    let mut bytes = [0; INSN_BYTES_MAX];
    let len = match core.memory.fetch(rip, &mut bytes) {
        Ok(()) => bytes.len(),
        // Less is mapped at the end of a page.
        Err(fault) => usize::try_from(fault.address.wrapping_sub(rip)).unwrap_or(0),
    };
    let bytes = bytes.get(..len)?;
    let insn = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    if insn.is_invalid() {
        return None;
    }

    let info = factory.info(&insn);
    info.used_memory().iter().find_map(|used| {
        let (start, end) = range_of(&insn, used, core)?;
        let (reads, writes) = kinds(used.access());
        watches.iter().find_map(|watch| {
            let counts = match watch.access {
                Access::Write => writes,
                Access::Read => reads,
                Access::Any => reads || writes,
            };

            // An access that only touches a watched byte counts as well.
            let meets = start < watch.range.end && watch.range.start < end;
            (counts && meets).then(|| (watch.access, start.max(watch.range.start)))
        })
    })
}

/// Whether an operand is read, and whether it is written.
fn kinds(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        // The address is computed, but not used (`lea`, `nop`).
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// The first and the end address of an operand. `None` for the elements of a gather, which have an
/// address each.
fn range_of(insn: &Instruction, used: &UsedMemory, core: &Core) -> Option<(u64, u64)> {
    let value = |register: Register, _: usize, _: usize| match register {
        Register::FS => Some(core.state.gpr(reg::FS)),
        Register::GS => Some(core.state.gpr(reg::GS)),
        // In 64-bit mode the base of these segments is 0, whatever they contain (Intel SDM).
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        // With 32-bit addressing, only the low half of a register counts.
        register if register.is_gpr() => {
            let whole = core.state.gpr(register.number());
            let bits = 8 * register.size() as u32;
            Some(whole & u64::MAX >> (64 - bits.min(64)))
        }
        _ => None,
    };

    let start = used.virtual_address(0, value)?;
    let size = (used.memory_size().size() as u64).max(1);
    let has_repeat = insn.has_rep_prefix() || insn.has_repne_prefix();
    if !(has_repeat && insn.is_string_instruction()) {
        return Some((start, start.saturating_add(size)));
    }

    // The machine executes all iterations as one instruction.
    let bytes = core.state.gpr(RCX).saturating_mul(size);
    if core.state.rflags() & DIRECTION == 0 {
        return Some((start, start.saturating_add(bytes)));
    }
    let end = start.saturating_add(size);
    Some((end.saturating_sub(bytes), end))
}
