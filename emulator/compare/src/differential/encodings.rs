//! All instructions as bytes: every encoding of each of iced's `Code` values that its decoder knows
//! in 64-bit mode, except those with EVEX, XOP and the like.

use super::values::Random;
use iced_x86::{Code, Decoder, EncodingKind, Instruction};
use unwind_sim_emulator::Processor;

/// Maximum length of an instruction in bytes.
const LENGTH_MAX: usize = 15;
/// The bytes that select an opcode's map, before the opcode.
const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
/// Prefixes that may be a part of the opcode, or change its operands.
const PREFIXES: [&[u8]; 7] = [
    &[],
    &[0x66],
    &[0xf3],
    &[0xf2],
    &[0x67],
    &[0x66, 0xf3],
    &[0x66, 0xf2],
];
const SEGMENTS: [u8; 6] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65];
/// How often a template is tried before giving up.
const TRIES: usize = 20;

/// The mode and register byte with which a SIB byte follows, and an index in it that no gather's
/// other operands are.
const WITH_SIB: u8 = 4;
const SIB: u8 = 0x10;

/// The start of an instruction.
#[derive(Clone, Copy, Debug)]
struct Template {
    prefixes: u8,
    wide: bool,
    map: u8,
    opcode: u8,
    /// The byte after the opcode. The mode and register of a memory operand are free.
    modrm: u8,
    memory: bool,
    /// What a VEX prefix holds besides `map`, `wide` and registers.
    vex: Option<Vex>,
}

/// Fields of a VEX prefix (Intel SDM volume 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Vex {
    /// The prefix that is a part of the opcode.
    pp: u8,
    /// Whether vectors have 256 bits.
    long: bool,
    /// Whether `vvvv` is a register, which is then free.
    register: bool,
    /// Whether memory operands need a SIB byte: its index is a vector.
    sib: bool,
}

/// The templates of one code.
#[derive(Clone, Debug, Default)]
struct Templates {
    /// Without redundant prefixes; the operand is a register, or there is none.
    register: Vec<Template>,
    /// Without redundant prefixes; the operand is in memory.
    memory: Vec<Template>,
    /// With prefixes that do not change the code.
    more: Vec<Template>,
}

/// The encodings of all codes.
#[derive(Clone, Debug)]
pub struct Encodings {
    processor: Processor,
    templates: Vec<Templates>,
}

impl Encodings {
    /// Runs iced's decoder on all combinations of prefixes, opcodes and operands, as `processor`
    /// decodes them.
    pub fn new(processor: Processor) -> Encodings {
        let mut all = vec![Templates::default(); Code::values().len()];
        let mut insn = Instruction::default();

        for template in vex() {
            template.add(&processor, &mut insn, &mut all);
        }

        // Each form that iced decodes becomes a template of its code.
        for prefixes in 0..PREFIXES.len() {
            for wide in [false, true] {
                for (map, opcode) in opcodes() {
                    // Each ModRM.reg with a memory operand, and each pair of registers.
                    for modrm in (0..8).map(|reg| reg << 3).chain(0xc0..=0xff) {
                        let template = Template {
                            prefixes: prefixes as u8,
                            wide,
                            map,
                            opcode,
                            modrm,
                            memory: modrm < 0xc0,
                            vex: None,
                        };
                        template.decode(&processor, &mut insn);
                        if !insn.is_invalid() && insn.encoding() == EncodingKind::Legacy {
                            all[insn.code() as usize].add(template);
                        }
                    }
                }
            }
        }

        Encodings {
            processor,
            templates: all,
        }
    }

    /// All codes with at least one template.
    pub fn codes(&self) -> impl Iterator<Item = Code> {
        let known = |code: &Code| !self.templates[*code as usize].is_empty();
        Code::values().filter(known)
    }

    /// Writes a random instruction of this code, located at `ip`, to `bytes`. `None` if there is no
    /// encoding, or the random choices do not give one.
    pub fn random(
        &self,
        code: Code,
        ip: u64,
        random: &mut Random,
        bytes: &mut [u8; LENGTH_MAX],
    ) -> Option<Instruction> {
        let templates = &self.templates[code as usize];
        let mut insn = Instruction::default();
        for attempt in 0..TRIES {
            let template = templates.pick(random)?;
            // The last tries use no extra prefixes.
            let extras = attempt < TRIES / 2;
            template.write(extras, random, bytes);
            let options = self.processor.decoder_options();
            Decoder::with_ip(64, bytes, ip, options).decode_out(&mut insn);
            if insn.code() == code {
                return Some(insn);
            }
        }
        None
    }
}

/// Maps and opcodes, except prefixes, other maps and 3DNow.
fn opcodes() -> impl Iterator<Item = (u8, u8)> {
    let all = (0..MAPS.len() as u8).flat_map(|map| (0..=255).map(move |opcode| (map, opcode)));
    all.filter(|(map, opcode)| match map {
        0 => !matches!(
            opcode,
            0x0f | 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x62 | 0x64..=0x67 | 0xc4 | 0xc5
                | 0xf0 | 0xf2 | 0xf3
        ),
        1 => !matches!(opcode, 0x0f | 0x38 | 0x3a),
        _ => true,
    })
}

/// All prefixes, opcodes and operands with VEX, before what follows from them is known.
fn vex() -> impl Iterator<Item = Template> {
    let all = (0..3 * 4 * 4 * 256).map(|number: usize| (number >> 8, number as u8));
    let all = all.flat_map(|start| MODRMS.map(move |modrm| (start, modrm)));
    all.map(|((kind, opcode), modrm)| Template {
        prefixes: 0,
        wide: kind & 1 != 0,
        map: 1 + (kind >> 4) as u8,
        opcode,
        modrm,
        memory: modrm < 0xc0,
        vex: Some(Vex {
            pp: (kind >> 2) as u8 & 3,
            long: kind & 2 != 0,
            register: false,
            sib: false,
        }),
    })
}

/// Every register of an operand in memory, and everything else.
const MODRMS: [u8; 72] = {
    let mut all = [0; 72];
    let mut number = 0;
    while number < 72 {
        all[number] = if number < 8 {
            number << 3
        } else {
            0xb8 + number
        } as u8;
        number += 1;
    }
    all
};

impl Templates {
    fn is_empty(&self) -> bool {
        self.register.is_empty() && self.memory.is_empty()
    }

    /// Adds a template for this code. Those with fewer prefixes must be added first.
    fn add(&mut self, template: Template) {
        let least = self.memory.first().or(self.register.first());
        let same = |other: &Template| {
            let long = |template: &Template| template.vex.map(|vex| vex.long);
            (other.prefixes, other.wide, long(other))
                == (template.prefixes, template.wide, long(&template))
        };
        let list = match (least.is_none_or(same), template.memory) {
            (false, _) => &mut self.more,
            (true, true) => &mut self.memory,
            (true, false) => &mut self.register,
        };
        list.push(template);
    }

    fn pick(&self, random: &mut Random) -> Option<&Template> {
        let lists = if random.chance(48) {
            [&self.more, &self.register, &self.memory]
        } else if random.chance(128) {
            [&self.register, &self.memory, &self.more]
        } else {
            [&self.memory, &self.register, &self.more]
        };
        let list = lists.into_iter().find(|list| !list.is_empty())?;
        Some(random.pick(list))
    }
}

impl Template {
    /// Decodes the template, followed by zeros.
    fn decode(&self, processor: &Processor, insn: &mut Instruction) {
        let mut bytes = [0; LENGTH_MAX];
        let at = self.fill(&mut bytes, &[], u8::from(self.wide) << 3, self.modrm);
        if self.memory && self.modrm & 7 == WITH_SIB {
            bytes[at] = SIB;
        }
        Decoder::new(64, &bytes, processor.decoder_options()).decode_out(insn);
    }

    /// Adds the template to its code, if it is an instruction with a VEX prefix.
    fn add(mut self, processor: &Processor, insn: &mut Instruction, all: &mut [Templates]) {
        let Some(mut vex) = self.vex else {
            return;
        };
        // A register other than 0, which is the first operand's.
        for (register, sib) in [(true, false), (true, true), (false, false), (false, true)] {
            if sib && !self.memory {
                continue;
            }
            (vex.register, vex.sib) = (register, sib);
            self.vex = Some(vex);
            self.modrm = self.modrm & !7 | if self.memory { 0 } else { self.modrm & 7 };
            if sib {
                self.modrm |= WITH_SIB;
            }
            self.decode(processor, insn);
            if !insn.is_invalid() && insn.encoding() == EncodingKind::VEX {
                all[insn.code() as usize].add(self);
                return;
            }
        }
    }

    /// Writes the template and returns its length in bytes.
    fn fill(&self, bytes: &mut [u8; LENGTH_MAX], extra: &[u8], rex: u8, modrm: u8) -> usize {
        if let Some(vex) = self.vex {
            return self.fill_vex(vex, bytes, extra, 1, modrm, false);
        }
        let rex = if rex != 0 { &[0x40 | rex][..] } else { &[] };
        let parts = [
            extra,
            PREFIXES[self.prefixes as usize],
            rex,
            MAPS[self.map as usize],
            &[self.opcode, modrm],
        ];
        append(bytes, &parts)
    }

    /// Like `fill`, for a VEX prefix: `registers` are its bits R, X and B, and `vvvv` below them.
    fn fill_vex(
        &self,
        vex: Vex,
        bytes: &mut [u8; LENGTH_MAX],
        extra: &[u8],
        registers: u8,
        modrm: u8,
        short: bool,
    ) -> usize {
        let (extension, vvvv) = (registers >> 4 & 7, registers & 15);
        let vvvv = if vex.register { vvvv } else { 0 };
        // These fields are stored inverted.
        let last = !vvvv << 3 & 0x78 | u8::from(vex.long) << 2 | vex.pp;
        let can_be_short = self.map == 1 && !self.wide && extension & 3 == 0;
        let prefix = if short && can_be_short {
            &[0xc5, !(extension << 5) & 0x80 | last][..]
        } else {
            let first = !(extension << 5) & 0xe0 | self.map;
            &[0xc4, first, u8::from(self.wide) << 7 | last][..]
        };
        append(bytes, &[extra, prefix, &[self.opcode, modrm]])
    }

    /// Writes the template with random operands and, if `extras`, random prefixes.
    fn write(&self, extras: bool, random: &mut Random, bytes: &mut [u8; LENGTH_MAX]) {
        let mut prefixes = [0; 3];
        let mut count = 0;
        let mut rex = u8::from(self.wide) << 3;

        if extras {
            let choice = random.bits();

            let mut add = |prefix| {
                prefixes[count] = prefix;
                count += 1;
            };

            if choice & 15 == 0 {
                add(*random.pick(&SEGMENTS));
            }
            if choice >> 4 & 15 == 0 && self.memory {
                add(0x67);
            }

            // LOCK before VEX is #UD whatever follows (SDM volume 2).
            if choice >> 8 & 15 == 0 && self.memory && self.vex.is_none() {
                add(0xf0);
            }

            // REX.R, X and B: they choose among registers 8 to 15.
            if choice >> 12 & 1 == 0 {
                rex |= 0x40 | (choice >> 13) as u8 & 7;
            }
        }

        let tail = random.bits();
        let sib = self.vex.is_some_and(|vex| vex.sib);

        // Never 3 in ModRM.mod, which would be a register. With VSIB, ModRM.rm stays 4.
        let modrm = match self.memory {
            true if sib => self.modrm | ((tail % 3) as u8 * 0x40),
            true => self.modrm | ((tail % 3) as u8 * 0x40) | ((tail >> 8) as u8 & 7),
            false => self.modrm,
        };

        let at = match self.vex {
            Some(vex) => {
                let registers = (tail >> 40) as u8;
                let registers = if extras { registers } else { registers & 15 };
                let short = tail >> 48 & 1 != 0;
                self.fill_vex(vex, bytes, &prefixes[..count], registers, modrm, short)
            }
            None => self.fill(bytes, &prefixes[..count], rex, modrm),
        };

        let rest = &mut bytes[at..];

        // Zeros, ones, one bit, or anything, for the displacement and the immediate.
        let filler = match tail >> 16 & 7 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (tail >> 32 & 63),
            _ => random.bits(),
        };

        for (byte, value) in rest.iter_mut().zip(filler.to_le_bytes().iter().cycle()) {
            *byte = *value;
        }
        // The first byte may be a SIB byte, so it is independent of the filler.
        rest[0] = (tail >> 24) as u8;
    }
}

/// Writes the parts one after the other, and returns their length in bytes.
fn append(bytes: &mut [u8; LENGTH_MAX], parts: &[&[u8]]) -> usize {
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}
