//! The instructions around an address.

use super::names::address as place_of;
use crate::code_rules::RuleInsn;
use iced_x86::{
    Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, SymbolResolver, SymbolResult,
};
use std::collections::VecDeque;
use std::ops::Range;
use unwind_sim_judge::disassembly::instruction;
use unwind_sim_tables::file::File;

/// The number of instructions before the address that are shown.
const BEFORE: usize = 2;
/// The number of instructions after it.
const AFTER: usize = 1;
/// The maximum number of bytes of a function that are decoded to find the instructions before the
/// address.
const BYTES_MAX: u64 = 1 << 16;

/// An instruction.
pub(crate) struct InstructionText {
    /// Address (svma).
    pub(crate) address: u64,
    /// In the syntax of GNU as.
    pub(crate) text: String,
}

/// The instruction at `address` of the function that starts at `start`, and those around it. Empty
/// if the file has no code there.
pub(crate) fn around(file: &File, start: u64, address: u64) -> Vec<InstructionText> {
    // x86 code cannot be decoded backwards, so what is before is decoded from the start on.
    let is_near = address.checked_sub(start).is_some_and(|d| d <= BYTES_MAX);
    let start = if is_near { start } else { address };

    // Data has bytes as well, but no instructions.
    if file.code_at(address).is_none() {
        return Vec::new();
    }

    let bytes = file.bytes(start);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut before = VecDeque::new();

    while decoder.ip() < address && decoder.can_decode() {
        // Only the last few before the address are shown, but all must be decoded to find where
        // they start.
        let instruction = decoder.decode();
        before.push_back(instruction);
        if before.len() > BEFORE {
            before.pop_front();
        }
    }

    if decoder.ip() != address {
        // The row starts within an instruction.
        let Some(rest) = usize::try_from(address - start)
            .ok()
            .and_then(|s| bytes.get(s..))
        else {
            return Vec::new();
        };
        decoder = Decoder::with_ip(64, rest, address, DecoderOptions::NONE);
        before.clear();
    }

    let mut all: Vec<_> = before.into();
    for _ in 0..=AFTER {
        if decoder.can_decode() {
            all.push(decoder.decode());
        }
    }

    texts(file, &all)
}

/// The texts of these instructions.
fn texts(file: &File, all: &[Instruction]) -> Vec<InstructionText> {
    // Targets of jumps and calls are shown by name, as objdump does.
    let resolver = Resolver::new(file, all);
    let resolver = resolver.map(|resolver| Box::new(resolver) as Box<dyn SymbolResolver>);
    let mut formatter = GasFormatter::with_options(resolver, None);
    formatter.options_mut().set_uppercase_hex(false);

    let shown = all.iter().map(|instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        InstructionText {
            address: instruction.ip(),
            text,
        }
    });
    shown.collect()
}

/// The instructions that start in `range` (svma). A byte that does not start one is `(bad)`.
pub(crate) fn within(file: &File, range: Range<u64>) -> Vec<RuleInsn> {
    let mut all: Vec<Instruction> = Vec::new();
    let bytes = file.bytes(range.start);
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    let mut ends = Vec::new();
    while decoder.ip() < range.end && decoder.can_decode() {
        let at = decoder.ip();
        let insn = decoder.decode();

        // As other disassemblers do: the next byte may start one.
        let end = if insn.is_invalid() {
            at + 1
        } else {
            insn.next_ip()
        };
        if insn.is_invalid() {
            let Ok(()) = decoder.set_position((end - range.start) as usize) else {
                break;
            };
            decoder.set_ip(end);
        }
        ends.push((at, end, insn.is_invalid()));
        all.push(insn);
    }

    // The addresses of an object are made up, so its instructions name places.
    let texts: Vec<String> = if file.is_relocatable() {
        texts(file, &all)
            .into_iter()
            .map(|shown| shown.text)
            .collect()
    } else {
        all.iter().map(instruction).collect()
    };
    let pairs = ends.into_iter().zip(texts);
    pairs
        .map(|((address, end, is_bad), text)| RuleInsn {
            address,
            end,
            text: if is_bad { "(bad)".to_owned() } else { text },
        })
        .collect()
}

/// The length of the instruction at `address`, bytes.
pub(crate) fn length(file: &File, address: u64) -> usize {
    let mut decoder = Decoder::with_ip(64, file.bytes(address), address, DecoderOptions::NONE);
    if decoder.can_decode() {
        decoder.decode().len()
    } else {
        0
    }
}

/// Names for the addresses that instructions of a relocatable object name: those addresses are made up,
/// or the linker fills them in.
struct Resolver {
    /// By the instruction and the address that it names.
    names: Vec<(u64, u64, String)>,
}

impl Resolver {
    /// `None` if addresses are those of the program.
    fn new(file: &File, all: &[Instruction]) -> Option<Resolver> {
        if !file.is_relocatable() {
            return None;
        }
        let names = all.iter().flat_map(|insn| {
            let targets = targets(file, insn).into_iter().flatten();
            targets.map(|(target, word)| {
                let import = file.import(word).map(str::to_owned);
                let name = import.unwrap_or_else(|| {
                    let mut name = String::new();
                    place_of(file, target, &mut name);
                    name
                });
                (insn.ip(), target, name)
            })
        });
        Some(Resolver {
            names: names.collect(),
        })
    }
}

/// The addresses that an instruction names relative to itself, each with that of the word for it: the
/// target of a branch, and that of a memory operand.
fn targets(file: &File, insn: &Instruction) -> [Option<(u64, u64)>; 2] {
    let bytes = file.bytes(insn.ip());
    let mut decoder = Decoder::with_ip(64, bytes, insn.ip(), DecoderOptions::NONE);
    let same = decoder.decode();
    let offsets = decoder.get_constant_offsets(&same);
    let word = |offset: usize| insn.ip().wrapping_add(offset as u64);
    let is_branch =
        insn.is_call_near() || insn.is_jmp_short_or_near() || insn.is_jcc_short_or_near();
    let branch = is_branch.then(|| (insn.near_branch_target(), word(offsets.immediate_offset())));
    let memory = insn.is_ip_rel_memory_operand().then(|| {
        let address = insn.ip_rel_memory_address();
        (address, word(offsets.displacement_offset()))
    });
    [branch, memory]
}

impl SymbolResolver for Resolver {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let mut names = self.names.iter();
        let (_, _, name) = names.find(|(ip, at, _)| (*ip, *at) == (instruction.ip(), address))?;
        Some(SymbolResult::with_str(address, name))
    }
}
