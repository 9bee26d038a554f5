//! Writes `.eh_frame` and `.eh_frame_hdr`.
//!
//! A CIE for each combination of signal frame (augmentation `S`) and data alignment that is needed,
//! all version 1 with augmentation `zR` and 32-bit PC-relative pointers, then the FDEs by address,
//! then the terminator. The header has the sorted search table that readers want. The instructions of
//! a function are made in `program`.
//!
//! Sources: DWARF 5, sections 6.4 and 7.24; LSB 5.0 Core, "Exception Frames" and
//! "The .eh_frame_hdr section".

mod program;

use super::{Function, NewSection, OrderCheck, WriteError, Writer, aligned, relative32};
use crate::convert::LossReason;
use program::{Program, leb};
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};

const FORMAT: &str = ".eh_frame";
/// System V gABI, x86-64 psABI 4.2.
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
const SHT_PROGBITS: u32 = 1;
/// LSB 5.0 Core, "Program Header".
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
const PCREL_SDATA4: u8 = 0x1b;
/// `DW_EH_PE_udata4`
const UDATA4: u8 = 0x03;
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`
const DATAREL_SDATA4: u8 = 0x3b;
/// The alignment of the section, bytes.
const ALIGN: u64 = 8;
const HEADER_ALIGN: u64 = 4;
/// The size of `.eh_frame_hdr` without its table, bytes.
const HEADER_LEN: u64 = 12;

/// What distinguishes the CIEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cie {
    signal: bool,
    /// The data alignment: -8, or -1 if an offset is not a multiple of 8.
    align: i64,
}

#[derive(Clone, Debug)]
struct Fde {
    cie: usize,
    start: u64,
    size: u32,
    /// The range of its instructions in `EhFrameWriter::programs`.
    program: Range<usize>,
}

/// For each FDE, the start of its function and its own address (svma).
type Index = Vec<(u64, u64)>;

/// A table being written.
#[derive(Clone, Debug)]
pub struct EhFrameWriter<'a> {
    /// The section that the rules come from; their expressions are ranges of it.
    source: &'a [u8],
    cies: Vec<Cie>,
    fdes: Vec<Fde>,
    programs: Vec<u8>,
    order: OrderCheck,
}

impl<'a> EhFrameWriter<'a> {
    /// An empty table for rules whose expressions are ranges of `source`.
    pub fn new(source: &'a [u8]) -> Self {
        EhFrameWriter {
            source,
            cies: Vec::new(),
            fdes: Vec::new(),
            programs: Vec::new(),
            order: OrderCheck::default(),
        }
    }

    fn cie(&mut self, cie: Cie) -> usize {
        if let Some(at) = self.cies.iter().position(|known| *known == cie) {
            return at;
        }
        self.cies.push(cie);
        self.cies.len() - 1
    }

    /// The section at `address`.
    fn bytes(&self, address: u64) -> Result<(Vec<u8>, Index), WriteError> {
        let mut out = Vec::new();
        let mut cies = Vec::new();
        for cie in &self.cies {
            cies.push(out.len());
            push_entry(&mut out, &cie_body(*cie))?;
        }

        let mut index = Vec::with_capacity(self.fdes.len());
        for fde in &self.fdes {
            let at = out.len();
            let cie = cies.get(fde.cie).copied().unwrap_or_default();
            let program = self.programs.get(fde.program.clone()).unwrap_or_default();

            // The start of the function is relative to its own field, behind the length and the CIE
            // pointer.
            let field = address.saturating_add(at as u64 + 8);
            // LSB 5.0 Core: the distance from this field back to the CIE.
            let back = u32::try_from(at + 4 - cie).map_err(|_| TOO_LARGE)?;

            let mut body = back.to_le_bytes().to_vec();
            body.extend(relative32(FORMAT, fde.start, field)?.to_le_bytes());
            body.extend(fde.size.to_le_bytes());
            // No augmentation data: a length of 0.
            body.push(0);
            body.extend_from_slice(program);
            push_entry(&mut out, &body)?;
            index.push((fde.start, address.saturating_add(at as u64)));
        }

        // The terminator.
        out.extend([0; 4]);
        Ok((out, index))
    }
}

const TOO_LARGE: WriteError = WriteError::TooLarge {
    format: FORMAT,
    max: u32::MAX as u64,
};

/// Appends the length, the entry, and `DW_CFA_nop` up to a multiple of 8 bytes.
fn push_entry(out: &mut Vec<u8>, body: &[u8]) -> Result<(), WriteError> {
    let end = (out.len() + 4 + body.len()).next_multiple_of(8);
    let len = u32::try_from(end - out.len() - 4).map_err(|_| TOO_LARGE)?;
    out.extend(len.to_le_bytes());
    out.extend_from_slice(body);
    out.resize(end, 0);
    Ok(())
}

fn cie_body(cie: Cie) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 1];
    body.extend_from_slice(if cie.signal { b"zRS\0" } else { b"zR\0" });
    body.push(1);
    leb::signed(cie.align, &mut body);
    // The column of the return address, then the augmentation data.
    body.extend([16, 1, PCREL_SDATA4]);
    Program::initial(cie.align, &mut body);
    body
}

fn header(address: u64, eh_frame: u64, index: &[(u64, u64)]) -> Result<Vec<u8>, WriteError> {
    let count = u32::try_from(index.len()).map_err(|_| TOO_LARGE)?;
    let mut out = vec![1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
    out.extend(relative32(FORMAT, eh_frame, address.saturating_add(4))?.to_le_bytes());
    out.extend(count.to_le_bytes());
    for (start, fde) in index {
        out.extend(relative32(FORMAT, *start, address)?.to_le_bytes());
        out.extend(relative32(FORMAT, *fde, address)?.to_le_bytes());
    }
    Ok(out)
}

impl Writer for EhFrameWriter<'_> {
    type Row = Rule;

    const HOLDS_CALLEE_SAVED: bool = true;

    /// The size has the encoding of the start, which is signed.
    fn size_max(&self) -> u32 {
        i32::MAX.unsigned_abs()
    }

    fn row(&self, rule: &Rule) -> Result<Rule, LossReason> {
        match rule.kind {
            RuleKind::PtRegs | RuleKind::Iret => return Err(LossReason::Rule(Loss::SignalFrame)),
            RuleKind::Outermost => return Ok(Rule::OUTERMOST),
            RuleKind::Call | RuleKind::Signal => {}
        }
        if matches!(rule.ra, Value::Undefined) {
            return Ok(Rule::OUTERMOST);
        }
        program::check(rule, self.source).map_err(LossReason::Rule)?;
        Ok(*rule)
    }

    fn signal(&self, row: &Rule) -> Option<bool> {
        match row.kind {
            RuleKind::Outermost => None,
            kind => Some(kind == RuleKind::Signal),
        }
    }

    fn function(&mut self, function: &Function<'_, Rule>) -> Result<(), WriteError> {
        self.order.accept(FORMAT, function)?;
        let fine = function.rows.iter().any(|(_, rule)| program::is_fine(rule));
        let align = if fine { -1 } else { -8 };
        let cie = self.cie(Cie {
            signal: function.signal,
            align,
        });
        let start = self.programs.len();
        let mut program = Program::new(self.source, align, &mut self.programs);
        for (offset, rule) in function.rows {
            program.row(*offset, rule);
        }
        self.fdes.push(Fde {
            cie,
            start: function.start,
            size: function.size,
            program: start..self.programs.len(),
        });
        Ok(())
    }

    fn finish(&self, address: u64) -> Result<Vec<NewSection>, WriteError> {
        let address = aligned(address, HEADER_ALIGN);
        // The header comes first, because its length follows from the number of functions.
        let header_len = HEADER_LEN + 8 * self.fdes.len() as u64;
        let at = aligned(address.saturating_add(header_len), ALIGN);
        let (bytes, index) = self.bytes(at)?;

        // `PT_GNU_EH_FRAME` leads to the header, and the header to the table.
        let header = NewSection {
            name: ".eh_frame_hdr",
            kind: SHT_PROGBITS,
            address,
            align: HEADER_ALIGN,
            entry_size: 0,
            program: Some(PT_GNU_EH_FRAME),
            bytes: header(address, at, &index)?,
        };

        let table = NewSection {
            name: ".eh_frame",
            kind: SHT_X86_64_UNWIND,
            address: at,
            align: ALIGN,
            entry_size: 0,
            program: None,
            bytes,
        };

        Ok(vec![header, table])
    }
}

#[cfg(test)]
mod tests;
