//! The instructions of a function, decoded once.

use crate::file::File;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use std::ops::Range;

/// The largest alignment of a jump table in code, bytes.
const ALIGN_MAX: usize = 16;
/// The maximum length of a function that is decoded, bytes.
pub const BYTES_MAX: u64 = 1 << 24;

/// A function's instructions.
#[derive(Default)]
pub struct Body {
    /// Its addresses (svma).
    pub range: Range<u64>,
    insns: Vec<Insn>,
    /// For each byte: the number of the instruction that starts there, plus one.
    index: Vec<u32>,
    /// Bit n: byte n may be reached by a jump.
    leaders: Bits,
    /// Where the loops are that jumps backwards close, from their target to themselves (svma): by
    /// address, apart from each other.
    loops: Vec<(u64, u64)>,
    /// The addresses (svma) that the code computes from its own, unsorted: tables, mostly.
    addresses: Vec<u64>,
    /// What was reached.
    pub reached: Reached,
    /// The number of bytes of the instructions that were reached.
    reached_bytes: usize,
    /// Whether instructions overlap.
    is_overlapping: bool,
}

/// A decoded instruction.
struct Insn {
    insn: Instruction,
    /// The number of the first state known before it, see [`Body::meeting`].
    meeting: Option<u32>,
}

/// What of a function was reached.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Bit n: the instruction that starts at byte n was reached.
    code: Bits,
    /// Bit n: byte n belongs to a jump table in the code.
    data: Bits,
    /// Bit n: the instruction that starts at byte n was reached only behind what never returns. Empty if
    /// there is none.
    dead: Bits,
}

impl Reached {
    /// Whether the instruction at byte `index` was reached.
    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.code.has(index)
    }

    /// Whether the instruction at byte `index` was reached, and not only behind what never returns.
    pub fn is_alive(&self, index: usize) -> bool {
        self.code.has(index) && !self.dead.has(index)
    }

    /// Whether instructions were reached only behind what never returns.
    pub fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Reached) {
        if self.has_dead() || other.has_dead() {
            let (len, mut dead) = (64 * self.code.0.len(), Bits::default());
            for index in (0..len).filter(|&i| self.has(i) || other.has(i)) {
                if !self.is_alive(index) && !other.is_alive(index) {
                    dead.grow(len);
                    dead.set(index);
                }
            }
            self.dead = dead;
        }
        self.code.add_all(&other.code);
        self.data.add_all(&other.data);
    }
}

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// An empty set of numbers below `len`.
    pub fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Makes it the empty set of numbers below `len`.
    fn reset(&mut self, len: usize) {
        self.0.clear();
        self.0.resize(len.div_ceil(64), 0);
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Bits) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
    }

    /// Takes out `index`.
    pub fn clear(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Makes room for numbers below `len`.
    fn grow(&mut self, len: usize) {
        self.0.resize(len.div_ceil(64).max(self.0.len()), 0);
    }

    /// Whether it was made for no numbers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds `index`.
    #[inline]
    pub fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Whether `index` is in the set.
    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.0
            .get(index / 64)
            .is_some_and(|w| w & 1 << (index % 64) != 0)
    }
}

impl Body {
    /// Decodes the code in `range`, from its first byte on. `None` if the file has no code there, or
    /// too much.
    pub fn new(file: &File, range: Range<u64>) -> Option<Body> {
        let mut body = Body::default();
        body.read(file, range).then_some(body)
    }

    /// Decodes the code in `range` in place of what it was. Whether the file has code there, and not
    /// too much.
    pub fn read(&mut self, file: &File, range: Range<u64>) -> bool {
        let length = range.end.checked_sub(range.start);
        let length = length.filter(|&l| l <= BYTES_MAX).map(|l| l as usize);
        let bytes = length.and_then(|length| file.bytes(range.start).get(..length));
        let Some(bytes) = bytes else {
            return false;
        };

        self.range = range;
        self.insns.clear();
        // x86-64 code has about four bytes for each instruction.
        self.insns.reserve(bytes.len() / 4);
        self.index.clear();
        self.index.resize(bytes.len(), 0);
        self.leaders.reset(bytes.len());
        self.reached.code.reset(bytes.len());
        self.reached.data.reset(bytes.len());
        self.reached.dead = Bits::default();
        self.loops.clear();
        self.addresses.clear();
        self.reached_bytes = 0;
        self.is_overlapping = false;

        let mut decoder = Decoder::with_ip(64, bytes, self.range.start, DecoderOptions::NONE);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            let at = decoder.position();
            decoder.decode_out(&mut insn);
            self.add(at, &insn);
        }

        self.merge_loops();
        true
    }

    fn merge_loops(&mut self) {
        self.loops.sort_unstable();
        self.loops.dedup_by(|next, last| {
            let overlap = next.0 <= last.1;
            if overlap {
                last.1 = last.1.max(next.1);
            }
            overlap
        });
    }

    fn add(&mut self, at: usize, insn: &Instruction) -> u32 {
        if insn.op0_kind() == OpKind::NearBranch64 && insn.flow_control() != FlowControl::Call {
            let target = insn.near_branch64();
            self.lead(target);
            if target <= insn.ip() && target >= self.range.start {
                self.loops.push((target, insn.ip()));
            }
        }
        if insn.is_ip_rel_memory_operand() && insn.mnemonic() == Mnemonic::Lea {
            self.addresses.push(insn.memory_displacement64());
        }
        self.insns.push(Insn {
            insn: *insn,
            meeting: None,
        });
        let index = self.insns.len() as u32;
        if let Some(place) = self.index.get_mut(at) {
            *place = index;
        }
        index
    }

    /// Marks `address` as one that may be reached by a jump.
    pub fn lead(&mut self, address: u64) {
        if let Some(offset) = self.offset(address) {
            self.leaders.set(offset);
        }
    }

    /// The offset of `address` from the function's start, if it is in the function.
    #[inline]
    pub fn offset(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.range.start)?).ok()?;
        (offset < self.index.len()).then_some(offset)
    }

    /// The next address (svma) behind `address` that the code computes from its own.
    pub fn next_address(&self, address: u64) -> Option<u64> {
        let behind = self.addresses.iter().filter(|&&a| a > address);
        behind.min().copied()
    }

    /// Whether `address` lies in a loop.
    pub fn is_in_loop(&self, address: u64) -> bool {
        let after = self.loops.partition_point(|l| l.0 <= address);
        after
            .checked_sub(1)
            .is_some_and(|i| address <= self.loops[i].1)
    }

    /// Whether an instruction starts at `address`, as far as the code was decoded in order.
    pub fn starts_at(&self, address: u64) -> bool {
        self.offset(address)
            .is_some_and(|offset| self.index[offset] != 0)
    }

    /// Whether `address` may be reached by a jump.
    #[inline]
    pub fn is_leader(&self, offset: usize) -> bool {
        self.leaders.has(offset)
    }

    /// The number of the instruction `offset` bytes from the start. Decodes it if a jump leads into the
    /// middle of another one, as to a skipped `lock` prefix.
    #[inline]
    fn number(&mut self, file: &File, offset: usize) -> Option<usize> {
        let number = match *self.index.get(offset)? {
            0 => self.decode(file, offset),
            number => number,
        };
        Some(number as usize - 1)
    }

    #[cold]
    fn decode(&mut self, file: &File, offset: usize) -> u32 {
        let rest = self.index.len() - offset;
        let address = self.range.start + offset as u64;
        let bytes = file.bytes(address);
        let bytes = &bytes[..bytes.len().min(rest)];
        let insn = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        self.is_overlapping = true;
        let number = self.add(offset, &insn);
        self.merge_loops();
        number
    }

    /// The instruction `offset` bytes from the start; `None` if there is none.
    #[inline]
    pub fn insn(&mut self, file: &File, offset: usize) -> Option<Instruction> {
        let number = self.number(file, offset)?;
        let insn = self.insns.get(number)?.insn;
        (!insn.is_invalid()).then_some(insn)
    }

    /// The place for the number of the first state known `offset` bytes from the start.
    #[inline]
    pub fn meeting(&mut self, file: &File, offset: usize) -> Option<&mut Option<u32>> {
        let number = self.number(file, offset)?;
        self.insns.get_mut(number).map(|insn| &mut insn.meeting)
    }

    /// Whether a state is known at `address` (svma).
    pub fn is_met(&self, address: u64) -> bool {
        let number = self
            .offset(address)
            .map(|offset| self.index[offset] as usize);
        let insn = number.and_then(|n| self.insns.get(n.checked_sub(1)?));
        insn.is_some_and(|insn| insn.meeting.is_some())
    }

    /// Its length, bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length in bytes, not of a collection"
    )]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The first address (svma) from `address` on whose instruction is not padding; `None` if there
    /// is only padding up to the end.
    pub fn skip_padding(&mut self, file: &File, address: u64) -> Option<u64> {
        let mut offset = self.offset(address)?;
        while let Some(insn) = self.insn(file, offset) {
            if !is_padding(&insn) {
                return Some(self.range.start + offset as u64);
            }
            offset += insn.len();
        }
        (offset < self.index.len()).then(|| self.range.start + offset as u64)
    }

    /// The first address (svma) from `address` on whose instruction does something.
    pub fn skip_nops(&mut self, file: &File, address: u64) -> Option<u64> {
        let mut offset = self.offset(address)?;
        while let Some(insn) = self.insn(file, offset).filter(is_nop) {
            offset += insn.len();
        }
        (offset < self.index.len()).then(|| self.range.start + offset as u64)
    }

    /// Marks the instruction at `offset`, of `len` bytes, as reached; `is_dead` if only behind what never
    /// returns.
    #[inline]
    pub fn reach(&mut self, offset: usize, len: usize, is_dead: bool) {
        if !self.reached.has(offset) {
            self.reached.code.set(offset);
            self.reached_bytes += len;
            if is_dead {
                self.reached.dead.grow(self.index.len());
                self.reached.dead.set(offset);
            }
        } else if !is_dead && self.reached.has_dead() {
            self.reached.dead.clear(offset);
        }
    }

    /// The addresses (svma) of all instructions that were not reached and are not padding, by address.
    pub fn all_unreached(&mut self, file: &File) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = Vec::new();
        let Some(first) = self.unreached(file) else {
            return all;
        };

        let mut offset = (first - self.range.start) as usize;
        while offset < self.index.len() {
            // The data of a jump table within the code is not an instruction.
            if let Some(behind) = self.skip_table(file, offset) {
                offset = behind;
                continue;
            }

            let is_reached = self.reached.has(offset);
            let insn = self.insn(file, offset);
            let len = insn.map_or(1, |insn| insn.len());
            let is_open = !is_reached && !insn.is_some_and(|insn| is_padding(&insn));

            let start = self.range.start + offset as u64;
            if is_open {
                match all.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end += len as u64,
                    None => all.push(start..start + len as u64),
                }
            }

            offset += len;
        }
        all
    }

    /// Marks the `len` bytes at `address` (svma) as those of a jump table, as far as they are here.
    pub fn mark_data(&mut self, address: u64, len: u64) {
        let Some(offset) = self.offset(address) else {
            return;
        };
        let left = self.index.len() - offset;
        let len = usize::try_from(len).unwrap_or(left).min(left);
        (offset..offset + len).for_each(|byte| self.reached.data.set(byte));
    }

    /// The first byte behind the table at `offset`, or behind the zeros that align one; `None` if there
    /// is none.
    fn skip_table(&self, file: &File, offset: usize) -> Option<usize> {
        let bytes = file.bytes(self.range.start + offset as u64);
        let zeros = bytes
            .iter()
            .take(ALIGN_MAX)
            .take_while(|&&b| b == 0)
            .count();
        let is_data = |byte: &usize| self.reached.data.has(*byte);
        let start = (offset..=offset + zeros).find(is_data)?;
        (start..=self.index.len()).find(|byte| !is_data(byte))
    }

    /// The addresses (svma) of instructions that were not reached and are not padding.
    pub fn unreached(&mut self, file: &File) -> Option<u64> {
        if self.reached_bytes == self.index.len() && !self.is_overlapping {
            return None;
        }
        let mut offset = 0;
        while offset < self.index.len() {
            let is_reached = self.reached.has(offset);
            if !is_reached && let Some(behind) = self.skip_table(file, offset) {
                offset = behind;
                continue;
            }
            match self.insn(file, offset) {
                Some(insn) if is_reached || is_padding(&insn) => offset += insn.len(),
                None if is_reached => offset += 1,
                _ => break,
            }
        }
        let left = file.bytes(self.range.start + offset as u64);
        let left = left.get(..self.index.len().checked_sub(offset)?)?;
        let is_code = left.iter().any(|&b| b != 0);
        is_code.then(|| self.range.start + offset as u64)
    }
}

/// Whether an instruction only fills space, or ends a way that is not to be taken.
pub fn is_padding(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::Int3 | Mnemonic::Ud1 | Mnemonic::Ud2 | Mnemonic::Hlt
    ) || is_nop(insn)
}

/// Whether an instruction does nothing.
pub fn is_nop(insn: &Instruction) -> bool {
    match insn.mnemonic() {
        Mnemonic::Nop | Mnemonic::Fnop => true,
        // `xchg %ax, %ax`, `lea 0(%rsi), %rsi`
        Mnemonic::Xchg => {
            insn.op0_kind() == OpKind::Register
                && insn.op1_kind() == OpKind::Register
                && insn.op0_register() == insn.op1_register()
        }
        Mnemonic::Lea => {
            insn.op0_register() == insn.memory_base()
                && insn.memory_displacement64() == 0
                && insn.memory_index() == iced_x86::Register::None
        }
        _ => false,
    }
}
