//! The instructions of a function, decoded once.

use crate::file::File;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use std::ops::Range;

/// The maximum length of a function that is decoded, bytes.
pub const BYTES_MAX: u64 = 1 << 24;

/// A function's instructions.
pub struct Body {
    /// Its addresses (svma).
    pub range: Range<u64>,
    insns: Vec<Instruction>,
    /// For each byte: the number of the instruction that starts there, plus one.
    index: Vec<u32>,
    /// Bit n: byte n may be reached by a jump.
    leaders: Bits,
    /// The addresses (svma) that the code computes from its own, unsorted: tables, mostly.
    addresses: Vec<u64>,
    /// Bit n: byte n belongs to an instruction that was reached.
    pub reached: Bits,
}

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Bits) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
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
        let length = range
            .end
            .checked_sub(range.start)
            .filter(|&l| l <= BYTES_MAX)?;
        let length = usize::try_from(length).ok()?;
        let bytes = file.bytes(range.start).get(..length)?;
        let mut body = Body {
            insns: Vec::with_capacity(length / 4),
            index: vec![0; length],
            leaders: Bits::new(length),
            addresses: Vec::new(),
            reached: Bits::new(length),
            range,
        };
        let mut decoder = Decoder::with_ip(64, bytes, body.range.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let insn = decoder.decode();
            body.add(at, insn);
        }
        Some(body)
    }

    fn add(&mut self, at: usize, insn: Instruction) -> u32 {
        if matches!(
            insn.flow_control(),
            FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::XbeginXabortXend
        ) && insn.op0_kind() == OpKind::NearBranch64
        {
            self.lead(insn.near_branch64());
        }
        if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
            self.addresses.push(insn.memory_displacement64());
        }
        self.insns.push(insn);
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

    /// The instruction `offset` bytes from the start. Decodes it if a jump leads into the middle of
    /// another one, as to a skipped `lock` prefix.
    pub fn insn(&mut self, file: &File, offset: usize) -> Option<Instruction> {
        let index = match *self.index.get(offset)? {
            0 => {
                let rest = self.index.len() - offset;
                let address = self.range.start + offset as u64;
                let bytes = file.bytes(address);
                let bytes = &bytes[..bytes.len().min(rest)];
                let insn = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
                self.add(offset, insn)
            }
            index => index,
        };
        let insn = self.insns.get(index as usize - 1)?;
        (!insn.is_invalid()).then_some(*insn)
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

    /// Marks the instruction of `len` bytes at `offset` as reached.
    #[inline]
    pub fn reach(&mut self, offset: usize, len: usize) {
        for byte in offset..offset + len {
            self.reached.set(byte);
        }
    }

    /// The addresses (svma) of instructions that were not reached and are not padding.
    pub fn unreached(&mut self, file: &File) -> Option<u64> {
        let mut offset = 0;
        while offset < self.index.len() {
            if self.reached.has(offset) {
                offset += 1;
                continue;
            }
            let left = &file.bytes(self.range.start + offset as u64);
            let left = &left[..left.len().min(self.index.len() - offset)];
            if left.iter().all(|&b| b == 0) {
                return None;
            }
            match self.insn(file, offset) {
                Some(insn) if is_padding(&insn) => offset += insn.len(),
                _ => return Some(self.range.start + offset as u64),
            }
        }
        None
    }
}

/// Whether an instruction only fills space, or ends a way that is not to be taken.
pub fn is_padding(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Int3 | Mnemonic::Ud2) || is_nop(insn)
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
