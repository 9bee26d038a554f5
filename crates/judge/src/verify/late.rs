//! Generated code whose unwind table the program wrote only after the code had run.
//!
//! A program that writes its jitdump through a buffer of its own says nothing of its code until the
//! buffer is full, or until it ends. What such code had in registers and on the stack is kept at its
//! first execution, and judged when the file is there.

use crate::verify::places::PlaceId;
use hashbrown::HashMap;
use unwind_sim_unwind::insn::INSN_BYTES_MAX;
use unwind_sim_unwind::memory::{Memory, MemoryError};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::truth::{Cpu, ShadowFrame};

/// The maximum number of instructions that are kept.
const INSTRUCTIONS_MAX: usize = 1 << 16;
/// The maximum number of bytes of the stack that are kept for each: rows of generated code seldom
/// have larger frames.
const STACK_MAX: u64 = 4096;
/// The bytes above the frame that are kept: the return address is below the CFA.
const ABOVE: u64 = 16;
/// The red zone (psABI, section 3.2.2).
const RED_ZONE: u64 = 128;

/// An instruction of generated code without a table, as it was when it was first executed.
pub(super) struct Kept {
    /// Its bytes, and what follows.
    pub(super) code: Vec<u8>,
    pub(super) cpu: Cpu,
    pub(super) live: Regs,
    /// Its frame.
    pub(super) held: ShadowFrame,
    pub(super) stack: Stack,
    /// The number of the instruction.
    pub(super) number: u64,
    /// A bit for each unwinder that had no table.
    pub(super) no_table: u8,
}

/// A part of the stack.
pub(super) struct Stack {
    start: u64,
    bytes: Vec<u8>,
}

impl Memory for Stack {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let start = self.start;
        let at = address.checked_sub(start);
        let at = at.ok_or(MemoryError::BelowCopy { address, start })?;
        let end = start.wrapping_add(self.bytes.len() as u64);
        let beyond = MemoryError::BeyondCopy { address, end };
        let at = usize::try_from(at).map_err(|_| beyond)?;
        let part = at.checked_add(buf.len()).map(|end| at..end);
        let part = part.and_then(|part| self.bytes.get(part)).ok_or(beyond)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

/// All that is kept.
#[derive(Default)]
pub(super) struct Late {
    kept: HashMap<(PlaceId, u64), Kept>,
    /// The number of instructions that were not kept.
    pub(super) left_out: u64,
}

impl Late {
    /// Whether the instruction is to be kept: it is new, and there is room.
    pub(super) fn wants(&mut self, place: PlaceId, address: u64) -> bool {
        if self.kept.contains_key(&(place, address)) {
            return false;
        }
        let has_room = self.kept.len() < INSTRUCTIONS_MAX;
        self.left_out += u64::from(!has_room);
        has_room
    }

    /// Keeps an instruction with the part of the stack that its row may read.
    pub(super) fn keep(
        &mut self,
        place: PlaceId,
        cpu: Cpu,
        (live, held): (Regs, ShadowFrame),
        memory: &dyn Memory,
        (number, no_table): (u64, u8),
    ) {
        let mut code = vec![0; INSN_BYTES_MAX];
        // The instruction may be shorter than the longest one, and end at the end of its mapping.
        while !code.is_empty() && memory.read(cpu.rip, &mut code).is_err() {
            code.pop();
        }

        // psABI 3.2.2: the 128 bytes below rsp belong to the function, too.
        let start = cpu.rsp.saturating_sub(RED_ZONE);
        let end = held.cfa.saturating_add(ABOVE);
        let size = end.saturating_sub(start).min(STACK_MAX);
        // At most `STACK_MAX`, so the conversion cannot fail.
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        if memory.read(start, &mut bytes).is_err() {
            bytes.clear();
        }

        let stack = Stack { start, bytes };
        let kept = Kept {
            code,
            cpu,
            live,
            held,
            stack,
            number,
            no_table,
        };

        self.kept.insert((place, cpu.rip), kept);
    }

    /// Takes what was kept at a place, by address.
    pub(super) fn take(&mut self, place: PlaceId) -> Vec<Kept> {
        let mut taken: Vec<Kept> = Vec::new();
        let all = self.kept.extract_if(|(at, _), _| *at == place);
        taken.extend(all.map(|(_, kept)| kept));
        taken.sort_by_key(|kept| kept.cpu.rip);
        taken
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.values();
        let each = kept.map(|kept| kept.code.capacity() + kept.stack.bytes.capacity());
        self.kept.allocation_size() + each.sum::<usize>()
    }
}
