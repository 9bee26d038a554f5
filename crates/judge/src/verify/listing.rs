//! Lists the instructions around a finding, decoded from a known instruction boundary.

use super::checker::Results;
use super::findings::Finding;
use super::shown::Snapshot;
use crate::disassembly::instruction;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use std::fmt::Write as _;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{Image, Mapping};
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// The number of instructions shown before and after the one concerned.
const AROUND: usize = 2;
/// The maximum number of bytes decoded from the start of a function or row.
const DECODED_MAX: u64 = 1 << 16;
/// The number of instructions in the shape of code.
const SHAPE: usize = 4;
/// The possible lengths of a call, in bytes.
const CALL_BYTES: std::ops::RangeInclusive<u64> = 2..=8;

/// The code around a finding.
struct Code<'a> {
    results: &'a Results,
    finding: &'a Finding,
    mapping: &'a Mapping,
    image: &'a Image,
    /// The bytes of generated code as they were.
    shown: Option<&'a Snapshot>,
}

impl<'a> Code<'a> {
    fn of(results: &'a Results, finding: &'a Finding) -> Option<Code<'a>> {
        let mapping = results.places.mapping(finding.place)?;
        Some(Code {
            results,
            finding,
            mapping,
            image: mapping.image.as_ref()?,
            shown: results.shown.around(finding.place, finding.address),
        })
    }

    /// At most `len` bytes of the code at `svma`.
    fn bytes(&self, svma: u64, len: usize) -> &[u8] {
        match self.shown {
            Some(shown) => shown.at(svma.wrapping_add(self.mapping.bias), len),
            None => self.image.text_bytes(svma, len),
        }
    }

    /// The instructions from `svma` on, up to the first invalid one.
    fn decode(&self, svma: u64, bytes: usize) -> impl Iterator<Item = Instruction> {
        let bytes = self.bytes(svma, bytes);
        let mut decoder = Decoder::with_ip(64, bytes, svma, DecoderOptions::NONE);
        std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
            .take_while(|insn| !insn.is_invalid())
    }

    /// The instruction at `svma`.
    fn at(&self, svma: u64) -> Option<Instruction> {
        self.decode(svma, INSN_BYTES_MAX).next()
    }

    /// The instruction as text, with addresses in the process, not in the file.
    fn text(&self, insn: &Instruction) -> String {
        let bytes = self.bytes(insn.ip(), insn.len());
        let address = insn.ip().wrapping_add(self.mapping.bias);
        instruction(&Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode())
    }

    fn is_executed(&self, svma: u64) -> bool {
        let address = svma.wrapping_add(self.mapping.bias);
        self.results.executed.contains(self.finding.place, address)
    }

    /// The executed instruction that ends at `svma`.
    fn executed_before(&self, svma: u64) -> Option<Instruction> {
        let starts = (1..=INSN_BYTES_MAX as u64).map(|len| svma.wrapping_sub(len));
        let mut insns = starts.filter_map(|at| self.at(at).filter(|_| self.is_executed(at)));
        insns.find(|insn| insn.next_ip() == svma)
    }

    /// Addresses from which decoding may reach `svma`: the start of the row, or of the function.
    fn anchors(&self, svma: u64) -> impl Iterator<Item = u64> {
        let row = self.finding.contradiction.row.as_ref();
        let row = row.map(|row| row.source.start);
        let function = self.image.symbol(svma).map(|symbol| symbol.address);
        let anchors = [function, row].into_iter().flatten();
        anchors.filter(move |&at| at <= svma && svma - at <= DECODED_MAX)
    }

    /// The instructions up to one that starts or ends at `svma`.
    fn up_to(&self, svma: u64) -> Vec<Instruction> {
        let mut found = self.anchors(svma).find_map(|anchor| {
            let bytes = (svma - anchor) as usize;
            let insns: Vec<_> = self.decode(anchor, bytes).collect();
            let is_whole = insns.last().map_or(anchor, Instruction::next_ip) == svma;
            is_whole.then_some(insns)
        });
        let chain = found.get_or_insert_with(|| {
            let mut chain = Vec::new();
            let mut at = svma;
            while let Some(insn) = self.executed_before(at).filter(|_| chain.len() <= AROUND) {
                at = insn.ip();
                chain.push(insn);
            }
            chain.reverse();
            chain
        });
        std::mem::take(chain)
    }

    /// The call that ends at `svma`: one that was executed or is decoded on the way there, or else
    /// any call that the bytes may be.
    fn call_before(&self, svma: u64) -> Option<Instruction> {
        let decoded = || self.up_to(svma).pop();
        let guessed = || {
            let mut starts = CALL_BYTES.filter_map(|len| self.at(svma.wrapping_sub(len)));
            starts.find(|insn| insn.next_ip() == svma && is_call(insn))
        };
        let known = self.executed_before(svma).or_else(decoded);
        known.filter(is_call).or_else(guessed)
    }

    /// The instruction of the finding.
    fn concerned(&self) -> Option<Instruction> {
        let svma = self.mapping.svma(self.finding.address);
        match self.finding.contradiction.pc {
            CodeAddress::Return(_) => self.call_before(svma),
            CodeAddress::Instruction(_) => self.at(svma),
        }
    }
}

fn is_call(insn: &Instruction) -> bool {
    insn.is_call_near() || insn.is_call_near_indirect()
}

/// An instruction of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its address in the process.
    pub address: u64,
    /// In AT&T syntax.
    pub text: String,
    /// Whether it is the one that the finding concerns.
    pub is_concerned: bool,
}

/// The instructions around a finding, and the one concerned. Empty if the code is not known.
pub fn lines(results: &Results, finding: &Finding) -> Vec<Listed> {
    let Some(code) = Code::of(results, finding) else {
        return Vec::new();
    };
    let Some(concerned) = code.concerned() else {
        return Vec::new();
    };
    let mut insns = code.up_to(concerned.ip());
    let at = insns.len();
    let behind = INSN_BYTES_MAX * (AROUND + 1);
    insns.extend(code.decode(concerned.ip(), behind).take(AROUND + 1));
    let from = at.saturating_sub(AROUND);
    let shown = insns.iter().enumerate().skip(from);
    let listed = shown.map(|(index, insn)| Listed {
        address: insn.ip().wrapping_add(code.mapping.bias),
        text: code.text(insn),
        is_concerned: index == at,
    });
    listed.collect()
}

/// Writes the instructions around a finding, with the one concerned marked and underlined.
pub fn listing(out: &mut String, results: &Results, finding: &Finding) {
    for line in lines(results, finding) {
        let mark = if line.is_concerned { '>' } else { ' ' };
        let _ = writeln!(out, "      {mark} {:>12x}  {}", line.address, line.text);
        if line.is_concerned {
            let _ = writeln!(out, "        {:12}  {}", "", "^".repeat(line.text.len()));
        }
    }
}

/// The shape of the instructions from a finding on, without addresses and constants.
pub(super) fn shape(results: &Results, finding: &Finding) -> Option<Vec<u64>> {
    let code = Code::of(results, finding)?;
    let concerned = code.concerned()?;
    let insns = code.decode(concerned.ip(), INSN_BYTES_MAX * SHAPE);
    Some(insns.take(SHAPE).flat_map(|insn| shape_of(&insn)).collect())
}

fn shape_of(insn: &Instruction) -> Vec<u64> {
    let operands = (0..insn.op_count()).map(|operand| match insn.op_kind(operand) {
        OpKind::Register => insn.op_register(operand) as u64,
        OpKind::Memory => (insn.memory_base() as u64) << 32 | insn.memory_index() as u64,
        kind => 1 << 63 | kind as u64,
    });
    std::iter::once(insn.code() as u64)
        .chain(operands)
        .collect()
}

#[cfg(test)]
mod tests;
