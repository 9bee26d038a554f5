//! All instructions as bytes: every encoding of each of iced's `Code` values that its decoder knows
//! in 64-bit mode, except those with VEX, EVEX and the like.

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
        for prefixes in 0..PREFIXES.len() {
            for wide in [false, true] {
                for (map, opcode) in opcodes() {
                    for modrm in (0..8).map(|reg| reg << 3).chain(0xc0..=0xff) {
                        let template = Template {
                            prefixes: prefixes as u8,
                            wide,
                            map,
                            opcode,
                            modrm,
                            memory: modrm < 0xc0,
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

impl Templates {
    fn is_empty(&self) -> bool {
        self.register.is_empty() && self.memory.is_empty()
    }

    /// Adds a template for this code. Those with fewer prefixes must be added first.
    fn add(&mut self, template: Template) {
        let least = self.memory.first().or(self.register.first());
        let same =
            |other: &Template| (other.prefixes, other.wide) == (template.prefixes, template.wide);
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
        self.fill(&mut bytes, &[], u8::from(self.wide) << 3, self.modrm);
        Decoder::new(64, &bytes, processor.decoder_options()).decode_out(insn);
    }

    /// Writes the template and returns its length in bytes.
    fn fill(&self, bytes: &mut [u8; LENGTH_MAX], extra: &[u8], rex: u8, modrm: u8) -> usize {
        let rex = if rex != 0 { &[0x40 | rex][..] } else { &[] };
        let parts = [
            extra,
            PREFIXES[self.prefixes as usize],
            rex,
            MAPS[self.map as usize],
            &[self.opcode, modrm],
        ];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        at
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
            if choice >> 8 & 15 == 0 && self.memory {
                add(0xf0);
            }
            if choice >> 12 & 1 == 0 {
                rex |= 0x40 | (choice >> 13) as u8 & 7;
            }
        }
        let tail = random.bits();
        let modrm = if self.memory {
            self.modrm | ((tail % 3) as u8 * 0x40) | ((tail >> 8) as u8 & 7)
        } else {
            self.modrm
        };
        let at = self.fill(bytes, &prefixes[..count], rex, modrm);
        let rest = &mut bytes[at..];
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
