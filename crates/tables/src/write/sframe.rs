//! Writes SFrame V1, V2 and V3.
//!
//! | | V1 | V2 | V3 |
//! |---|---|---|---|
//! | section type | `SHT_PROGBITS` | `SHT_GNU_SFRAME` | `SHT_GNU_SFRAME` |
//! | flags | `SORTED` | `SORTED`, `PCREL` (errata 1) | `SORTED`, `PCREL` |
//! | function start | i32 from the section | i32 from its own field | i64 from its own field |
//! | rows of a function | u32 | u32 | u16 |
//! | repeated rows | not written, see below | `PCMASK`, `rep_size` | `PCMASK`, `rep_size` |
//! | row without words | none | outermost (errata 2) | outermost |
//! | flexible rows | no | no | yes |
//! | signal frame | no | no | bit 7 of `func_info` |
//!
//! Sources: "The SFrame format" and `include/sframe.h` of binutils 2.40, 2.44, 2.45, 2.46.
//!
//! V1 has `PCMASK` without the size of the block, and its readers disagree: the specification
//! compares masked addresses, libsframe 2.40 takes the low byte of both addresses, which finds the
//! wrong row in most entries of a PLT. So a PLT's rows are written one by one in V1.
//!
//! What is smaller than in GNU as: a row's start takes as many bytes as the last row needs, not as
//! the function's size needs (LLVM does the same; readers take the width from `func_info`); equal
//! neighbours are one row. With [`SframeWriter::share`], functions whose rows are the same bytes
//! share them. Linux, LLVM and libsframe on little-endian machines accept that. libsframe on a
//! big-endian machine does not: it swaps the bytes of rows function by function, the shared ones
//! twice. So it is off unless asked for.

use super::{Function, NewSection, OrderCheck, WriteError, Writer, aligned, relative32};
use crate::convert::LossReason;
use std::collections::HashMap;
use unwind_sim_unwind::rule::{Rule, RuleKind};
use unwind_sim_unwind::sframe::{
    ABI_AMD64, FLAG_FDE_SORTED, FLAG_FUNC_START_PCREL, FreType, HEADER_LEN, MAGIC, SframeRow,
    V3_ATTRIBUTE_LEN, Version,
};

/// binutils 2.45 `include/elf/common.h`
pub const SHT_GNU_SFRAME: u32 = 0x6fff_fff4;
/// binutils 2.40 `include/elf/common.h`: `PT_LOOS + 0x474e554`
pub const PT_GNU_SFRAME: u32 = 0x6474_e554;
const SHT_PROGBITS: u32 = 1;
/// The alignment of the section, as written by GNU as.
const ALIGN: u64 = 8;
/// The return address's offset from the CFA, in the header.
const FIXED_RA: i8 = -8;
const PC_MASK: u8 = 0x10;
const SIGNAL: u8 = 0x80;
const FLEX: u8 = 1;

/// A row, and whether it belongs to a signal frame; an outermost row fits both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    row: SframeRow,
    signal: Option<bool>,
}

impl Row {
    /// A row as read from a table, in a function with this signal bit.
    pub fn new(row: SframeRow, signal: bool) -> Row {
        let outermost = row == SframeRow::RaUndefined;
        Row {
            row,
            signal: (!outermost).then_some(signal),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Fde {
    start: u64,
    size: u32,
    /// Offset of its rows (V3: of its attributes) in the row sub-section, bytes.
    rows: u32,
    num_rows: u32,
    info: u8,
    repeat: u8,
}

/// A `.sframe` section being written.
#[derive(Clone, Debug)]
pub struct SframeWriter {
    version: Version,
    fdes: Vec<Fde>,
    rows: Vec<u8>,
    num_rows: u32,
    order: OrderCheck,
    /// Where the rows of functions are, by their bytes; `None` if they are not shared.
    shared: Option<HashMap<Vec<u8>, u32>>,
}

impl SframeWriter {
    /// An empty table of this version.
    pub fn new(version: Version) -> Self {
        SframeWriter {
            version,
            fdes: Vec::new(),
            rows: Vec::new(),
            num_rows: 0,
            order: OrderCheck::default(),
            shared: None,
        }
    }

    /// Lets functions with the same rows share them.
    #[must_use]
    pub fn share(mut self) -> Self {
        self.shared = Some(HashMap::new());
        self
    }

    /// The name of the format, for errors.
    pub const fn format(&self) -> &'static str {
        match self.version {
            Version::V1 => "SFrame V1",
            Version::V2 => "SFrame V2",
            Version::V3 => "SFrame V3",
        }
    }

    /// The number of functions.
    pub fn functions(&self) -> usize {
        self.fdes.len()
    }

    /// The row for a row read from another table.
    ///
    /// # Errors
    /// If this version cannot hold it.
    pub fn fit(&self, row: SframeRow, signal: bool) -> Result<Row, LossReason> {
        let row = Row::new(row, signal);
        if self.version == Version::V3 {
            return Ok(row);
        }
        if self.version == Version::V1 && row.row == SframeRow::RaUndefined {
            return Err(LossReason::Outermost);
        }
        if row.signal == Some(true) {
            return Err(LossReason::SignalMark);
        }
        if !row.row.is_default() {
            return Err(flexible(&row.row));
        }
        Ok(row)
    }

    /// The bytes of a function's rows, in V3 with its attributes before them.
    fn encode(&self, function: &Function<'_, Row>, flex: bool, info: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(function.rows.len() * 5);
        if self.version == Version::V3 {
            let count = u16::try_from(function.rows.len()).unwrap_or(u16::MAX);
            out.extend(count.to_le_bytes());
            out.extend([info, u8::from(flex) * FLEX, function.repeat.unwrap_or(0)]);
        }
        let width = fre_type(function.rows).byte_len();
        for (start, row) in function.rows {
            let (info, words) = row.row.encode(flex);
            out.extend(start.to_le_bytes().into_iter().take(width as usize));
            out.push(info);
            out.extend(words);
        }
        out
    }

    /// Adds the rows of a function, or finds them; returns their offset.
    fn place(&mut self, bytes: Vec<u8>, count: u32) -> Result<u32, WriteError> {
        if let Some(&at) = self.shared.as_ref().and_then(|s| s.get(&bytes)) {
            return Ok(at);
        }
        let end = self.rows.len() as u64 + bytes.len() as u64;
        let (Ok(at), Ok(_)) = (u32::try_from(self.rows.len()), u32::try_from(end)) else {
            return Err(WriteError::TooLarge {
                format: self.format(),
                max: u32::MAX.into(),
            });
        };
        self.rows.extend_from_slice(&bytes);
        self.num_rows = self.num_rows.saturating_add(count);
        if let Some(shared) = &mut self.shared {
            shared.insert(bytes, at);
        }
        Ok(at)
    }

    /// The whole section at `address` (svma), a multiple of 8.
    fn bytes(&self, address: u64) -> Result<Vec<u8>, WriteError> {
        let too_large = WriteError::TooLarge {
            format: self.format(),
            max: u32::MAX.into(),
        };

        // All counts and lengths in the header have 32 bits.
        let fde_len = self.version.fde_len();
        let fdes = self.fdes.len() as u64 * fde_len;
        let (Ok(num_fdes), Ok(fdes)) = (u32::try_from(self.fdes.len()), u32::try_from(fdes)) else {
            return Err(too_large);
        };
        let len = u32::try_from(self.rows.len()).map_err(|_| too_large)?;

        let flags = match self.version {
            Version::V1 => FLAG_FDE_SORTED,
            Version::V2 | Version::V3 => FLAG_FDE_SORTED | FLAG_FUNC_START_PCREL,
        };

        let mut out = Vec::with_capacity(HEADER_LEN as usize + fdes as usize + len as usize);
        out.extend(MAGIC.to_le_bytes());
        // Behind the ABI stands `cfa_fixed_fp_offset`: rbp has no fixed slot.
        out.extend([self.version as u8, flags, ABI_AMD64, 0]);
        out.extend(FIXED_RA.to_le_bytes());
        // `auxhdr_len`.
        out.push(0);
        // `fdeoff` and `freoff` count from the end of the header: the functions follow it, then
        // their rows.
        for word in [num_fdes, self.num_rows, len, 0, fdes] {
            out.extend(word.to_le_bytes());
        }

        for fde in &self.fdes {
            self.fde(fde, address, &mut out)?;
        }
        out.extend_from_slice(&self.rows);

        Ok(out)
    }

    fn fde(&self, fde: &Fde, address: u64, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let field = address.saturating_add(out.len() as u64);
        match self.version {
            Version::V1 => out.extend(relative32(self.format(), fde.start, address)?.to_le_bytes()),
            Version::V2 => out.extend(relative32(self.format(), fde.start, field)?.to_le_bytes()),
            Version::V3 => out.extend(fde.start.wrapping_sub(field).to_le_bytes()),
        }
        out.extend(fde.size.to_le_bytes());
        out.extend(fde.rows.to_le_bytes());
        if self.version != Version::V3 {
            out.extend(fde.num_rows.to_le_bytes());
            out.push(fde.info);
        }
        if self.version == Version::V2 {
            out.extend([fde.repeat, 0, 0]);
        }
        Ok(())
    }
}

/// Why V1 and V2 cannot hold this flexible row.
fn flexible(row: &SframeRow) -> LossReason {
    use unwind_sim_unwind::derived::Loss;
    use unwind_sim_unwind::regs::Reg;
    use unwind_sim_unwind::sframe::Track;
    let SframeRow::Tracked { cfa, ra, .. } = row else {
        return LossReason::Outermost;
    };
    LossReason::Rule(match (cfa.deref, cfa.reg, ra) {
        (true, ..) => Loss::CfaLoad,
        (_, reg, _) if !matches!(reg, Some(Reg::Rsp | Reg::Rbp)) => Loss::CfaRegister,
        (_, _, Track::At(ra)) if ra.reg.is_none() => Loss::RaSlot,
        (_, _, Track::At(ra)) if ra.deref => Loss::RaExpression,
        (_, _, Track::At(_)) => Loss::RaRegister,
        _ => Loss::RbpRule,
    })
}

/// The narrowest start address that holds those of all rows.
fn fre_type(rows: &[(u32, Row)]) -> FreType {
    FreType::for_size(rows.last().map_or(0, |row| row.0))
}

impl Writer for SframeWriter {
    type Row = Row;

    const HOLDS_CALLEE_SAVED: bool = false;

    fn repeats(&self) -> bool {
        self.version != Version::V1
    }

    fn rows_max(&self) -> usize {
        match self.version {
            Version::V1 | Version::V2 => u32::MAX as usize,
            Version::V3 => u16::MAX.into(),
        }
    }

    fn row(&self, rule: &Rule) -> Result<Row, LossReason> {
        let row = SframeRow::from_rule(rule).map_err(LossReason::Rule)?;
        self.fit(row, rule.kind == RuleKind::Signal)
    }

    fn signal(&self, row: &Row) -> Option<bool> {
        row.signal
    }

    fn function(&mut self, function: &Function<'_, Row>) -> Result<(), WriteError> {
        let (rows, max) = (function.rows.len(), self.rows_max());
        self.order.accept(self.format(), function)?;

        let count = u32::try_from(rows).ok().filter(|_| rows <= max);
        let Some(count) = count else {
            return Err(WriteError::TooManyRows {
                format: self.format(),
                start: function.start,
                rows,
                max,
            });
        };

        // One row in the flexible form makes all rows of its function so (`SFRAME_FDE_TYPE_FLEX`).
        let flex = function.rows.iter().any(|(_, row)| !row.row.is_default());
        let mut info = match fre_type(function.rows) {
            FreType::Addr1 => 0,
            FreType::Addr2 => 1,
            FreType::Addr4 => 2,
        };

        // The form of rows, repetition and signal frames share a byte.
        info |= u8::from(function.repeat.is_some()) * PC_MASK;
        info |= u8::from(function.signal && self.version == Version::V3) * SIGNAL;

        let bytes = self.encode(function, flex, info);
        debug_assert!(bytes.len() as u64 >= V3_ATTRIBUTE_LEN || self.version != Version::V3);
        let rows = self.place(bytes, count)?;

        self.fdes.push(Fde {
            start: function.start,
            size: function.size,
            rows,
            num_rows: count,
            info,
            repeat: function.repeat.unwrap_or(0),
        });
        Ok(())
    }

    fn finish(&self, address: u64) -> Result<Vec<NewSection>, WriteError> {
        let address = aligned(address, ALIGN);
        let kind = match self.version {
            Version::V1 => SHT_PROGBITS,
            Version::V2 | Version::V3 => SHT_GNU_SFRAME,
        };
        Ok(vec![NewSection {
            name: ".sframe",
            kind,
            address,
            align: ALIGN,
            entry_size: 0,
            program: Some(PT_GNU_SFRAME),
            bytes: self.bytes(address)?,
        }])
    }
}

#[cfg(test)]
mod tests;
