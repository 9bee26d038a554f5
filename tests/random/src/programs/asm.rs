//! Emits instructions and tracks the frame layout at each of them.

use super::row::{Cfa, Fde, FrameLayout, Gpr, RSP, Slot};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, IcedError, Instruction, InstructionBlock,
    MemoryOperand, Register,
};

/// A place in the code whose address is not known yet.
pub(super) type Label = u64;

/// Address of the code.
pub(super) const HOT: u64 = 0x40_1000;
/// Address of the unlikely parts of functions.
pub(super) const COLD: u64 = 0x48_0000;

/// A section with code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Section {
    Hot,
    Cold,
}

/// A piece of code with an FDE of its own, or without any.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) name: String,
    pub(super) section: Section,
    pub(super) has_unit: bool,
    pub(super) signal: bool,
    items: Vec<(Instruction, FrameLayout)>,
    /// Instructions whose 32-bit immediate, one byte in, is the address of a label.
    immediates: Vec<(usize, Label)>,
}

/// Emits instructions into chunks.
#[derive(Debug)]
pub(super) struct Assembler {
    chunks: Vec<Chunk>,
    current: usize,
    labels: Label,
    bound: Option<Label>,
    /// The layout at the next instruction.
    pub(super) row: FrameLayout,
    /// CFA - rsp at the next instruction, while that is a constant.
    pub(super) depth: i32,
    failed: Option<IcedError>,
}

/// A chunk with its addresses.
#[derive(Clone, Debug)]
pub(super) struct PlacedChunk {
    pub(super) name: String,
    pub(super) has_unit: bool,
    pub(super) signal: bool,
    /// The instructions, relocated.
    pub(super) insns: Vec<(Instruction, FrameLayout)>,
    /// Like [`Chunk::immediates`].
    pub(super) immediates: Vec<(usize, Label)>,
    pub(super) range: std::ops::Range<u64>,
}

/// All code with its addresses.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) hot: Vec<u8>,
    pub(super) cold: Vec<u8>,
    pub(super) chunks: Vec<PlacedChunk>,
    pub(super) addresses: std::collections::HashMap<Label, u64>,
}

fn register(number: Gpr) -> Register {
    Register::RAX + u32::from(number)
}

fn register32(number: Gpr) -> Register {
    Register::EAX + u32::from(number)
}

fn at(base: Gpr, offset: i32) -> MemoryOperand {
    match offset {
        0 => MemoryOperand::with_base(register(base)),
        _ => MemoryOperand::with_base_displ(register(base), offset.into()),
    }
}

/// [address], not relative to rip.
fn absolute(address: u64) -> MemoryOperand {
    MemoryOperand::with_displ(address, 8)
}

impl Assembler {
    pub(super) fn new() -> Assembler {
        Assembler {
            chunks: Vec::new(),
            current: 0,
            labels: 0,
            bound: None,
            row: FrameLayout::ENTRY,
            depth: 8,
            failed: None,
        }
    }

    /// Creates a label that is not bound yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels
    }

    /// Binds a label to the next instruction.
    pub(super) fn bind(&mut self, label: Label) {
        if let Some(earlier) = self.bound.replace(label) {
            // Two labels at one address: an instruction in between keeps them apart.
            self.bound = Some(earlier);
            self.nop();
            self.bound = Some(label);
        }
    }

    /// Starts a chunk, bound to `label`. Returns the previous one.
    pub(super) fn begin(&mut self, name: &str, section: Section, label: Label) -> usize {
        let left = self.current;
        debug_assert_eq!(self.bound, None);
        self.chunks.push(Chunk {
            name: name.to_owned(),
            section,
            has_unit: true,
            signal: false,
            items: Vec::new(),
            immediates: Vec::new(),
        });
        self.current = self.chunks.len() - 1;
        self.bind(label);
        left
    }

    /// Continues a chunk.
    pub(super) fn resume(&mut self, chunk: usize) {
        self.current = chunk;
    }

    pub(super) fn chunk(&mut self) -> &mut Chunk {
        &mut self.chunks[self.current]
    }

    fn put(&mut self, insn: Result<Instruction, IcedError>) {
        match insn {
            Ok(mut insn) => {
                let label = match self.bound.take() {
                    Some(label) => label,
                    None => self.label(),
                };
                insn.set_ip(label);
                let row = self.row;
                self.chunk().items.push((insn, row));
            }
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    fn plain(&mut self, code: Code) {
        self.put(Ok(Instruction::with(code)));
    }

    /// Records that rsp has been lowered by `bytes`.
    pub(super) fn lowered(&mut self, bytes: i32) {
        self.depth += bytes;
        if let Cfa::Offset(RSP, offset) = &mut self.row.cfa {
            *offset += bytes;
        }
    }

    pub(super) fn push(&mut self, register_: Gpr) {
        self.put(Instruction::with1(Code::Push_r64, register(register_)));
        self.lowered(8);
    }

    pub(super) fn push_imm(&mut self, value: i32) {
        self.put(match i8::try_from(value) {
            Ok(_) => Instruction::with1(Code::Pushq_imm8, value),
            Err(_) => Instruction::with1(Code::Pushq_imm32, value),
        });
        self.lowered(8);
    }

    pub(super) fn push_address(&mut self, label: Label) {
        let at = self.chunk().items.len();
        self.chunk().immediates.push((at, label));
        self.put(Instruction::with1(Code::Pushq_imm32, 0x7fff_ffff));
        self.lowered(8);
    }

    pub(super) fn push_at(&mut self, base: Gpr, offset: i32) {
        self.put(Instruction::with1(Code::Push_rm64, at(base, offset)));
        self.lowered(8);
    }

    pub(super) fn push_absolute(&mut self, address: u64) {
        self.put(Instruction::with1(Code::Push_rm64, absolute(address)));
        self.lowered(8);
    }

    pub(super) fn pop(&mut self, register_: Gpr) {
        self.put(Instruction::with1(Code::Pop_r64, register(register_)));
        self.lowered(-8);
    }

    /// Adds `bytes` to rsp, in one of three ways.
    pub(super) fn add_sp(&mut self, bytes: i32, by_lea: bool) {
        if by_lea {
            self.lea(RSP, RSP, bytes);
        } else if bytes < 0 {
            self.arithmetic(Code::Sub_rm64_imm8, Code::Sub_rm64_imm32, RSP, -bytes);
        } else {
            self.arithmetic(Code::Add_rm64_imm8, Code::Add_rm64_imm32, RSP, bytes);
        }
        self.lowered(-bytes);
    }

    fn arithmetic(&mut self, short: Code, long: Code, register_: Gpr, value: i32) {
        let code = if i8::try_from(value).is_ok() {
            short
        } else {
            long
        };
        self.put(Instruction::with2(code, register(register_), value));
    }

    pub(super) fn sub_imm(&mut self, register_: Gpr, value: i32) {
        self.arithmetic(Code::Sub_rm64_imm8, Code::Sub_rm64_imm32, register_, value);
    }

    pub(super) fn and_imm(&mut self, register_: Gpr, value: i32) {
        self.arithmetic(Code::And_rm64_imm8, Code::And_rm64_imm32, register_, value);
    }

    pub(super) fn sub(&mut self, to: Gpr, from: Gpr) {
        self.put(Instruction::with2(
            Code::Sub_r64_rm64,
            register(to),
            register(from),
        ));
    }

    pub(super) fn cmp(&mut self, a: Gpr, b: Gpr) {
        self.put(Instruction::with2(
            Code::Cmp_r64_rm64,
            register(a),
            register(b),
        ));
    }

    pub(super) fn xor32(&mut self, register_: Gpr) {
        let register_ = register32(register_);
        self.put(Instruction::with2(Code::Xor_r32_rm32, register_, register_));
    }

    pub(super) fn mov(&mut self, to: Gpr, from: Gpr) {
        self.put(Instruction::with2(
            Code::Mov_r64_rm64,
            register(to),
            register(from),
        ));
    }

    pub(super) fn mov_imm64(&mut self, to: Gpr, value: u64) {
        self.put(Instruction::with2(Code::Mov_r64_imm64, register(to), value));
    }

    pub(super) fn mov_imm32(&mut self, to: Gpr, value: u32) {
        self.put(Instruction::with2(
            Code::Mov_r32_imm32,
            register32(to),
            value,
        ));
    }

    pub(super) fn load(&mut self, to: Gpr, base: Gpr, offset: i32) {
        self.put(Instruction::with2(
            Code::Mov_r64_rm64,
            register(to),
            at(base, offset),
        ));
    }

    pub(super) fn load_absolute(&mut self, to: Gpr, address: u64) {
        self.put(Instruction::with2(
            Code::Mov_r64_rm64,
            register(to),
            absolute(address),
        ));
    }

    pub(super) fn store(&mut self, base: Gpr, offset: i32, from: Gpr) {
        self.put(Instruction::with2(
            Code::Mov_rm64_r64,
            at(base, offset),
            register(from),
        ));
    }

    pub(super) fn exchange(&mut self, base: Gpr, register_: Gpr) {
        self.put(Instruction::with2(
            Code::Xchg_rm64_r64,
            at(base, 0),
            register(register_),
        ));
    }

    pub(super) fn pop_absolute(&mut self, address: u64) {
        self.put(Instruction::with1(Code::Pop_rm64, absolute(address)));
        self.lowered(-8);
    }

    pub(super) fn store_imm_absolute(&mut self, address: u64, value: i32) {
        self.put(Instruction::with2(
            Code::Mov_rm64_imm32,
            absolute(address),
            value,
        ));
    }

    pub(super) fn add_to_memory(&mut self, base: Gpr, offset: i32, value: i32) {
        self.put(Instruction::with2(
            Code::Add_rm64_imm8,
            at(base, offset),
            value,
        ));
    }

    pub(super) fn sub_from_absolute(&mut self, address: u64, value: i32) {
        self.put(Instruction::with2(
            Code::Sub_rm64_imm8,
            absolute(address),
            value,
        ));
    }

    pub(super) fn and_absolute(&mut self, address: u64, value: i32) {
        self.put(Instruction::with2(
            Code::And_rm64_imm8,
            absolute(address),
            value,
        ));
    }

    pub(super) fn lea(&mut self, to: Gpr, base: Gpr, offset: i32) {
        self.put(Instruction::with2(
            Code::Lea_r64_m,
            register(to),
            at(base, offset),
        ));
    }

    pub(super) fn lea_label(&mut self, to: Gpr, label: Label) {
        let place = MemoryOperand::with_base_displ(Register::RIP, label as i64);
        self.put(Instruction::with2(Code::Lea_r64_m, register(to), place));
    }

    pub(super) fn lea_absolute(&mut self, to: Gpr, address: u64) {
        let place = MemoryOperand::with_base_displ(Register::RIP, address as i64);
        self.put(Instruction::with2(Code::Lea_r64_m, register(to), place));
    }

    pub(super) fn div(&mut self, by: Gpr) {
        self.put(Instruction::with1(Code::Div_rm64, register(by)));
    }

    pub(super) fn enter(&mut self, bytes: u16) {
        self.put(Instruction::with2(
            Code::Enterq_imm16_imm8,
            u32::from(bytes),
            0,
        ));
    }

    pub(super) fn leave(&mut self) {
        self.plain(Code::Leaveq);
    }

    pub(super) fn ret(&mut self) {
        self.plain(Code::Retnq);
    }

    pub(super) fn nop(&mut self) {
        self.plain(Code::Nopd);
    }

    pub(super) fn pause(&mut self) {
        self.plain(Code::Pause);
    }

    pub(super) fn syscall(&mut self) {
        self.plain(Code::Syscall);
    }

    pub(super) fn ud2(&mut self) {
        self.plain(Code::Ud2);
    }

    pub(super) fn endbr64(&mut self) {
        self.plain(Code::Endbr64);
    }

    pub(super) fn jump(&mut self, label: Label) {
        self.put(Instruction::with_branch(Code::Jmp_rel32_64, label));
    }

    pub(super) fn jump_if(&mut self, condition: Condition, label: Label) {
        let code = match condition {
            Condition::Negative => Code::Js_rel32_64,
            Condition::NotNegative => Code::Jns_rel32_64,
            Condition::NotEqual => Code::Jne_rel32_64,
            Condition::Greater => Code::Jg_rel32_64,
        };
        self.put(Instruction::with_branch(code, label));
    }

    pub(super) fn jump_register(&mut self, register_: Gpr) {
        self.put(Instruction::with1(Code::Jmp_rm64, register(register_)));
    }

    pub(super) fn jump_absolute(&mut self, address: u64) {
        self.put(Instruction::with1(Code::Jmp_rm64, absolute(address)));
    }

    /// Jumps through the table at `address`, indexed by rax.
    pub(super) fn jump_table(&mut self, address: u64) {
        let place = MemoryOperand::with_index_scale_displ_size(Register::RAX, 8, address as i64, 8);
        self.put(Instruction::with1(Code::Jmp_rm64, place));
    }

    pub(super) fn call(&mut self, label: Label) {
        self.put(Instruction::with_branch(Code::Call_rel32_64, label));
    }

    pub(super) fn call_register(&mut self, register_: Gpr) {
        self.put(Instruction::with1(Code::Call_rm64, register(register_)));
    }

    pub(super) fn call_absolute(&mut self, address: u64) {
        self.put(Instruction::with1(Code::Call_rm64, absolute(address)));
    }

    /// Records that the register at `index` of [`super::row::SAVED`] is in `slot` from here on.
    pub(super) fn saved(&mut self, index: usize, slot: Slot) {
        self.row.saved[index] = slot;
    }

    /// Assigns all addresses.
    pub(super) fn place(self) -> Result<Layout, IcedError> {
        if let Some(error) = self.failed {
            return Err(error);
        }

        // All chunks of a section in one block: the encoder then knows how far jumps within it are.
        let collect = |section| {
            let chunks = self.chunks.iter().filter(move |c| c.section == section);
            chunks
                .flat_map(|c| c.items.iter().map(|(insn, _)| *insn))
                .collect::<Vec<_>>()
        };
        let (hot, cold) = (collect(Section::Hot), collect(Section::Cold));
        let mut blocks = vec![InstructionBlock::new(&hot, HOT)];
        if !cold.is_empty() {
            blocks.push(InstructionBlock::new(&cold, COLD));
        }

        // Sizes of jumps are only known after encoding, and with them all addresses.
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let mut results = BlockEncoder::encode_slice(64, &blocks, options)?.into_iter();
        let mut code = Layout {
            hot: Vec::new(),
            cold: Vec::new(),
            chunks: Vec::new(),
            addresses: std::collections::HashMap::new(),
        };

        let mut fixups = Vec::new();
        for (section, start) in [(Section::Hot, HOT), (Section::Cold, COLD)] {
            let Some(result) = results.next() else { break };
            let end = start + result.code_buffer.len() as u64;
            let mut offsets = result.new_instruction_offsets.iter().peekable();
            for chunk in self.chunks.iter().filter(|c| c.section == section) {
                let mut insns = Vec::new();
                for (number, &(mut insn, row)) in chunk.items.iter().enumerate() {
                    let address = start + u64::from(*offsets.next().unwrap_or(&0));
                    code.addresses.insert(insn.ip(), address);
                    for &(_, label) in chunk.immediates.iter().filter(|(at, _)| *at == number) {
                        // `push imm32` is 0x68 and the number.
                        fixups.push((section, (address - start) as usize + 1, label));
                    }
                    insn.set_ip(address);
                    insns.push((insn, row));
                }

                // A chunk ends where the next one of its section starts.
                let next = offsets.peek().map_or(end, |&&at| start + u64::from(at));
                let first = insns.first().map_or(next, |(insn, _)| insn.ip());
                code.chunks.push(PlacedChunk {
                    name: chunk.name.clone(),
                    has_unit: chunk.has_unit,
                    signal: chunk.signal,
                    insns,
                    immediates: chunk.immediates.clone(),
                    range: first..next,
                });
            }

            match section {
                Section::Hot => code.hot = result.code_buffer,
                Section::Cold => code.cold = result.code_buffer,
            }
        }

        // Only now has each label an address.
        let addresses = &code.addresses;
        let rows = code.chunks.iter_mut().flat_map(|chunk| &mut chunk.insns);
        for (_, row) in rows {
            if let Slot::Code(place) = &mut row.ra {
                *place = addresses.get(place).copied().unwrap_or_default();
            }
        }

        for (section, offset, label) in fixups {
            let bytes = match section {
                Section::Hot => &mut code.hot,
                Section::Cold => &mut code.cold,
            };

            // All code lies below 4 GiB, so four bytes hold an address.
            let address = code.addresses.get(&label).copied().unwrap_or_default() as u32;
            if let Some(place) = bytes.get_mut(offset..offset + 4) {
                place.copy_from_slice(&address.to_le_bytes());
            }
        }
        Ok(code)
    }
}

/// The condition of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Negative,
    NotNegative,
    NotEqual,
    Greater,
}

impl PlacedChunk {
    /// The chunk's unit, if it has one: rows start where the layout changes.
    pub(super) fn unit(&self) -> Option<Fde> {
        if !self.has_unit || self.insns.is_empty() {
            return None;
        }
        let mut rows: Vec<(u64, FrameLayout)> = Vec::new();
        for (insn, row) in &self.insns {
            if rows.last().is_none_or(|(_, last)| last != row) {
                rows.push((insn.ip(), *row));
            }
        }
        Some(Fde {
            range: self.range.clone(),
            signal: self.signal,
            rows,
        })
    }
}
