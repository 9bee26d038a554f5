//! Draws what is known before an instruction.

use super::meaning::{HEAP, Source};
use iced_x86::{Decoder, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use unwind_sim_emulator_compare::differential::{Access, AddressRegister, Random, TestInstruction};
use unwind_sim_tables::proof::state::{ComparedPlace, Comparison, Direction, State};
use unwind_sim_tables::proof::value::{Anchor, Value};
use unwind_sim_unwind::regs::Reg;

/// The lowest and the highest place of a slot, from rsp at entry, bytes.
const SLOTS: (i64, i64) = (-240, 64);
/// The alignments of rsp at entry, modulo 64.
const ALIGNMENTS: [u64; 4] = [8, 24, 40, 56];
/// The least size of a memory operand that must be aligned, and the least such alignment that a frame
/// does not have by itself.
const ALIGNED_SIZE: u32 = 16;

/// A word of the stack that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownSlot {
    pub(super) at: Value,
    pub(super) size: u8,
    pub(super) source: Source,
}

/// What is compared, and with what.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedOperand {
    pub(super) what: Comparison,
    pub(super) with: Source,
}

/// An instruction, what is known before it, and what is so.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) subject: TestInstruction,
    pub(super) state: State,
    pub(super) anchors: Vec<Anchor>,
    /// What the general registers hold, in DWARF order.
    pub(super) regs: [Source; 16],
    pub(super) words: Vec<KnownSlot>,
    /// What all vector registers hold in their lower halves, if it is something of the caller's.
    pub(super) vectors: Option<Source>,
    /// What words of the stack may hold of which nothing is known.
    pub(super) forgotten: Option<Source>,
    pub(super) compared: Option<ComparedOperand>,
    /// rsp at entry modulo 64, if it matters.
    pub(super) align: Option<u64>,
    /// Whether it works on parts of words.
    pub(super) is_partial: bool,
}

impl Case {
    /// A case of `subject`. `None` if its address cannot be one in the frame.
    pub(super) fn draw(
        subject: TestInstruction,
        factory: &mut InstructionInfoFactory,
        random: &mut Random,
    ) -> Option<Case> {
        // An address without a register is only the displacement, which is changed here.
        let subject = with_place(subject, factory, random)?;
        let sizes = subject.accesses.iter().map(|access| access.size);
        let is_wide = sizes.max().is_some_and(|size| size >= ALIGNED_SIZE);

        // Large operands often need alignment.
        let align = (is_wide && random.chance(192)).then(|| *random.pick(&ALIGNMENTS));

        let mut case = Case {
            is_partial: is_partial(&subject.insn, factory),
            subject,
            state: State::entry(),
            anchors: Vec::new(),
            regs: [Source::Random; 16],
            words: Vec::new(),
            vectors: None,
            forgotten: None,
            compared: None,
            align,
        };

        // Before the registers, which may point below an anchor.
        case.draw_anchors(random);
        case.state.direction = match random.below(16) {
            0 => Direction::Down,
            1 => Direction::Unknown,
            _ => Direction::Up,
        };

        for reg in Reg::ALL.into_iter().take(16) {
            let source = match reg {
                Reg::Rsp => case.stack_source(random),
                _ => case.source(reg, random),
            };
            case.know(reg, source, random);
        }

        // After the registers, because it changes some of them.
        for number in 0..case.subject.accesses.len() {
            case.steer(number, random);
        }

        let insn = &case.subject.insn;
        if repeats(insn) {
            // A large count would lead far away from the stack.
            case.know(Reg::Rcx, Source::Number(random.below(12) as u64), random);
        }

        case.draw_words(random);
        case.draw_flags(random);
        Some(case)
    }

    fn draw_anchors(&mut self, random: &mut Random) {
        if !random.chance(96) {
            return;
        }
        let of = Value::frame(-8 * (1 + random.below(12)) as i32);
        self.anchors.push(Anchor::Aligned { of, align: 32 });
        if random.chance(160) {
            // One by the instruction itself, when it was executed before.
            let at = if random.chance(96) {
                self.subject.insn.ip()
            } else {
                0x1000
            };
            self.anchors.push(Anchor::Lowered { at });
        }
    }

    /// An address on the stack.
    fn stack_source(&self, random: &mut Random) -> Source {
        let place = SLOTS.0 + 8 * random.below(((SLOTS.1 - SLOTS.0) / 8) as usize) as i64;
        if !self.anchors.is_empty() && random.chance(96) {
            let anchor = random.below(self.anchors.len()) as u16;
            return Source::Below(anchor, place.clamp(-64, 16));
        }
        let odd = if random.chance(16) {
            random.below(8)
        } else {
            0
        };
        Source::Entry(Reg::Rsp, place + odd as i64)
    }

    fn source(&self, reg: Reg, random: &mut Random) -> Source {
        match random.below(16) {
            0..4 => Source::Entry(reg, 0),
            4 => Source::Entry(*random.pick(&Reg::CALLEE_SAVED), 0),
            5..8 => self.stack_source(random),
            8 => Source::Return,
            9 => Source::Number(random.below(300) as u64),
            10 => Source::Number(*random.pick(&[0, 1, u64::MAX, 8, 0xffff_ffff, u64::MAX - 7])),
            11 => Source::Heap,
            12 => Source::Number(HEAP.start + 8 * random.below(8) as u64),
            _ => Source::Random,
        }
    }

    /// What may be known of a place that holds `source`: all of it, some of it or nothing. What is only
    /// known to vary then does.
    fn known(&self, source: &mut Source, random: &mut Random) -> Value {
        let value = self.said(*source, random);
        match value {
            Value::Varies => *source = Source::Random,
            Value::Index { shift, max, .. } => *source = Source::Index { shift, max },
            _ => {}
        }
        value
    }

    fn said(&self, source: Source, random: &mut Random) -> Value {
        // What is said of a value has to be true, but need not be all that is known.
        let exact = match source {
            Source::Entry(reg, offset) => i32::try_from(offset)
                .ok()
                .map(|offset| Value::Entry { reg, offset }),
            Source::Return => Some(Value::ReturnAddress),
            Source::Below(anchor, offset) => i32::try_from(offset)
                .ok()
                .map(|offset| Value::Below { anchor, offset }),
            Source::Number(number) => i32::try_from(number.cast_signed()).ok().map(Value::Const),
            Source::Index { shift, max } => Some(Value::Index {
                shift,
                width: 8,
                max,
            }),
            Source::Heap | Source::Random => Some(Value::Computed),
        };

        // Sometimes less is said.
        let vague = match random.below(12) {
            0 => Some(Value::Unknown),
            1 => Some(Value::Varies),
            2..6 => match source {
                Source::Number(number) => index(number, random),
                _ => None,
            },
            _ => None,
        };

        vague.or(exact).unwrap_or(Value::Unknown)
    }

    fn know(&mut self, reg: Reg, source: Source, random: &mut Random) {
        let mut source = source;
        let value = self.known(&mut source, random);
        self.regs[reg as usize] = source;
        if random.chance(12) && reg != Reg::Rsp {
            self.state.set_loaded(reg, value);
        } else {
            self.state.set(reg, value);
        }
    }

    /// Usually makes a memory operand one on the stack, at a place that is known.
    fn steer(&mut self, number: usize, random: &mut Random) {
        let access = self.subject.accesses[number];
        let (AddressRegister::Register(base), false) = (access.base, random.chance(48)) else {
            return;
        };

        let base = Reg::BY_NUMBER[usize::from(base) & 15];
        let mut offset = access.displacement.cast_signed();
        if let AddressRegister::Register(index) = access.index {
            let index = Reg::BY_NUMBER[usize::from(index) & 15];
            // One register cannot be both an address and a small count.
            if index == base {
                return;
            }
            let count = random.below(5) as i64 - 2;
            self.know(index, Source::Number(count.cast_unsigned()), random);
            offset = offset.wrapping_add(count * i64::from(access.scale));
        }
        if access.small {
            return;
        }

        let target = match random.below(8) {
            0 => Source::Heap,
            1 if access.size <= 64 && !is_bit_string(&self.subject.insn) => {
                Source::Number(HEAP.start + 64)
            }
            _ => self.stack_source(random),
        };

        // The base is such that the whole address is the target.
        let source = match self.aligned(target, &access) {
            Source::Entry(Reg::Rsp, place) => Source::Entry(Reg::Rsp, place.wrapping_sub(offset)),
            Source::Below(anchor, place) => Source::Below(anchor, place.wrapping_sub(offset)),
            Source::Number(number) => Source::Number(number.wrapping_sub(offset.cast_unsigned())),
            other => other,
        };
        self.know(base, source, random);
    }

    /// A place in the frame that is aligned as an access may need it.
    fn aligned(&self, target: Source, access: &Access) -> Source {
        let (Source::Entry(Reg::Rsp, place), Some(start)) = (target, self.align) else {
            return target;
        };
        let size = i64::from(access.size.next_power_of_two()).clamp(16, 64);
        let start = start.cast_signed();
        let place = if access.size > 256 {
            // A saved state covers all slots.
            -320 - place.rem_euclid(64)
        } else {
            place
        };
        Source::Entry(
            Reg::Rsp,
            place.wrapping_add(start).div_euclid(size) * size - start,
        )
    }

    fn draw_words(&mut self, random: &mut Random) {
        let around: Vec<Source> = self.regs.iter().copied().filter(is_on_stack).collect();

        // The return address lies where rsp is at the entry.
        let return_address = (Value::frame(0), Source::Return);
        let mut wanted = vec![(return_address.0, 8, return_address.1)];
        for _ in 0..random.below(7) {
            // Near where a register leads, or anywhere.
            let near = if around.is_empty() || random.chance(96) {
                self.stack_source(random)
            } else {
                *random.pick(&around)
            };

            let shift =
                8 * (random.below(9) as i64 - 4) + random.below(32).saturating_sub(28) as i64;
            let at = match near {
                // What is below an anchor stays below it.
                Source::Below(anchor, offset) => Value::Below {
                    anchor,
                    offset: (offset + shift).min(-8) as i32,
                },
                Source::Entry(_, offset) => {
                    Value::frame((offset + shift).clamp(SLOTS.0 - 64, SLOTS.1) as i32)
                }
                _ => continue,
            };

            let (size, source) = match random.below(8) {
                0 => (4, Source::Number(random.below(300) as u64)),
                1 => (8, self.stack_source(random)),
                2 => (8, Source::Return),
                _ => (8, Source::Entry(*random.pick(&Reg::CALLEE_SAVED), 0)),
            };
            wanted.push((at, size, source));
        }

        for (at, size, mut source) in wanted {
            let value = match (size, source) {
                // A number of 4 bytes becomes an index up to it.
                (4, Source::Number(number)) => {
                    let max = number as u32;
                    source = Source::Index { shift: 0, max };
                    Value::Index {
                        shift: 0,
                        width: 4,
                        max,
                    }
                }
                _ => self.known(&mut source, random),
            };
            self.state.store(at, size.into(), value);
            self.words.push(KnownSlot { at, size, source });
        }

        // Only those that were not overwritten.
        let slots: Vec<_> = self.state.slots().collect();
        let mut words = Vec::new();
        for slot in slots {
            let is_it = |w: &&KnownSlot| (w.at, w.size) == (slot.at, slot.size);
            words.extend(self.words.iter().rev().find(is_it));
        }
        self.words = words;
    }

    fn draw_flags(&mut self, random: &mut Random) {
        let saved = Source::Entry(*random.pick(&Reg::CALLEE_SAVED), 0);
        if random.chance(24) {
            self.state.is_elsewhere = true;
            self.vectors = random.chance(160).then_some(saved);
        }
        if random.chance(24) {
            self.state.is_lossy = true;
            self.forgotten = random.chance(160).then_some(saved);
        }
        let is_conditional = self.subject.insn.is_jcc_short_or_near() || self.is_loop();
        if random.chance(if is_conditional { 224 } else { 24 }) {
            self.compared = Some(self.draw_comparison(random));
            self.state.comparison = self.compared.map(|compared| compared.what);
        }
    }

    fn is_loop(&self) -> bool {
        let insn = &self.subject.insn;
        insn.is_loop() || insn.is_loopcc() || insn.is_jcx_short()
    }

    fn draw_comparison(&mut self, random: &mut Random) -> ComparedOperand {
        let reg = *random.pick(&Reg::ALL[..16]);
        let place = match (self.words.is_empty(), random.chance(64)) {
            (false, true) => ComparedPlace::Memory(random.pick(&self.words).at),
            _ => ComparedPlace::Reg(reg),
        };

        // What is there decides what is a telling number to compare it with.
        let held = match place {
            ComparedPlace::Reg(reg) => self.regs[reg as usize],
            ComparedPlace::Memory(at) => {
                let word = self.words.iter().find(|w| w.at == at);
                word.map_or(Source::Random, |word| word.source)
            }
        };

        let mut with = match (held, random.below(4)) {
            // Equal, or off by one or two: both outcomes of a comparison have to occur.
            (Source::Number(number), 0..3) => {
                Source::Number(number.wrapping_add(random.below(3) as u64))
            }
            // The bound of an index, as in front of a jump table.
            (Source::Index { max, .. }, 0..3) => Source::Number(u64::from(max)),
            (held, 0) => held,
            (_, 1) => self.stack_source(random),
            _ => Source::Number(random.below(40) as u64),
        };

        ComparedOperand {
            // Mostly whole registers.
            what: Comparison {
                place,
                width: *random.pick(&[8, 8, 8, 4, 4, 2, 1]),
                with: self.known(&mut with, random),
            },
            with,
        }
    }

    /// What is known, as text.
    pub(super) fn text(&self) -> String {
        super::judge::text(&self.state)
    }
}

/// Whether an instruction works on less than 64 bits of general registers, or of memory.
fn is_partial(insn: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let operands = (0..insn.op_count()).map(|operand| insn.op_register(operand));
    let used = factory.info(insn).used_registers().iter();
    let mut all = operands.chain(used.map(|used| used.register()));
    let memory = insn.memory_size().size();
    // Addresses here have few bits, which a positive mask may leave.
    let is_masked = insn.mnemonic() == Mnemonic::And;
    is_masked || all.any(|r| r.is_gpr() && r.size() < 8) || (1..8).contains(&memory)
}

/// Whether rcx says how often it is executed.
pub(super) fn repeats(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
}

/// Whether a register says how far from its address the operand in memory is, in bits.
pub(super) fn is_bit_string(insn: &Instruction) -> bool {
    let is_bit = matches!(
        insn.mnemonic(),
        Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
    );
    is_bit && insn.op0_kind() == OpKind::Memory && insn.op1_kind() == OpKind::Register
}

fn is_on_stack(source: &Source) -> bool {
    matches!(source, Source::Entry(Reg::Rsp, _) | Source::Below(..))
}

/// An index that the number may be.
fn index(number: u64, random: &mut Random) -> Option<Value> {
    let shift = random.below(4) as u8;
    let max = u32::try_from(number >> shift)
        .ok()?
        .checked_add(1 + random.below(2) as u32)?;
    let is_multiple = number.trailing_zeros() >= shift.into();
    is_multiple.then_some(Value::Index {
        shift,
        width: *random.pick(&[8, 8, 4]),
        max,
    })
}

/// The instruction with an address that its displacement alone says, outside of the frame.
fn with_place(
    subject: TestInstruction,
    factory: &mut InstructionInfoFactory,
    random: &mut Random,
) -> Option<TestInstruction> {
    let access = subject.accesses.first();
    let (at, size) = (
        subject.offsets.displacement_offset(),
        subject.offsets.displacement_size(),
    );
    let Some(access) = access.filter(|a| a.is_constant() && size >= 4) else {
        return Some(subject);
    };

    // So much would reach the frame.
    if access.size > 64 || is_bit_string(&subject.insn) {
        return None;
    }

    let target = HEAP.start + 16 * random.below(6) as u64;

    // With rip, the displacement counts from the end of the instruction.
    let from = match access.base {
        AddressRegister::Rip => subject.insn.next_ip(),
        _ => 0,
    };

    let mut bytes = subject.bytes;
    let displacement = target.wrapping_sub(from).to_le_bytes();
    bytes
        .get_mut(at..at + size)?
        .copy_from_slice(displacement.get(..size)?);

    let options = super::everything().decoder_options();
    let insn = Decoder::with_ip(64, &bytes, subject.insn.ip(), options).decode();

    // Other bytes can make it another instruction; with FS or GS, the address is another one.
    let is_same = insn.code() == subject.insn.code() && insn.len() == subject.insn.len();
    let is_segment = matches!(insn.segment_prefix(), Register::FS | Register::GS);
    (is_same && !is_segment).then(|| super::subject(insn, bytes, factory))
}
