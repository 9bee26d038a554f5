//! Writes ORC tables.
//!
//! `.orc_unwind_ip` has the start of each entry, relative to its own slot; `.orc_unwind` the
//! entries, sorted by address; `.orc_header` the SHA-1 of the layout, where kernels have one
//! (6.3.10 on; none for the layout of 4.14); `.orc_lookup` for every 256 bytes of text the first
//! entry to search. Linux reserves `.orc_lookup` and fills it when it boots (`unwind_init`); here it
//! has its contents, because nobody fills it in other files.
//!
//! An entry is written only where it differs from the one before. Addresses without a rule get an
//! undefined entry, as from objtool, since an entry is valid up to the next one; so does the start of
//! the text, because `orc_find` takes the first entry for all addresses before it.
//!
//! Sources: Linux `tools/objtool/orc_gen.c`, `arch/x86/include/asm/orc_types.h`,
//! `arch/x86/kernel/unwind_orc.c`, `scripts/sorttable.c`.

use super::{Function, NewSection, OrderCheck, WriteError, Writer, aligned, relative32};
use crate::convert::LossReason;
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::orc::{
    ENTRY_LEN, Encoding, Entry, LOOKUP_BLOCK_SIZE, Layout, OrcReg, SpIndirect,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};

const FORMAT: &str = "ORC";
const SHT_PROGBITS: u32 = 1;
/// The maximum size of the text of a lookup table, bytes; Linux maps its text into 1 GiB.
const TEXT_MAX: u64 = 1 << 30;

/// A table being written.
#[derive(Clone, Debug)]
pub struct OrcWriter {
    encoding: Encoding,
    text: Range<u64>,
    entries: Vec<(u64, Entry)>,
    order: OrderCheck,
    /// The first address (svma) after the last function.
    end: u64,
}

impl OrcWriter {
    /// An empty table in this encoding for code in the range `text` (svma).
    pub fn new(encoding: Encoding, text: Range<u64>) -> Self {
        OrcWriter {
            encoding,
            end: text.start,
            text,
            entries: Vec::new(),
            order: OrderCheck::default(),
        }
    }

    fn push(&mut self, address: u64, entry: Entry) {
        if self.entries.last().is_none_or(|last| last.1 != entry) {
            self.entries.push((address, entry));
        }
    }

    /// The entries with the terminator.
    fn terminated(&self) -> Vec<(u64, Entry)> {
        let mut all = self.clone();
        all.push(self.end, Entry::UNDEFINED);
        all.entries
    }

    fn lookup(&self, entries: &[(u64, Entry)]) -> Result<Vec<u8>, WriteError> {
        let size = self.text.end.saturating_sub(self.text.start);
        if size > TEXT_MAX {
            return Err(WriteError::TextTooLarge {
                format: FORMAT,
                size,
                max: TEXT_MAX,
            });
        }
        let position = |address: u64| {
            let after = entries.partition_point(|entry| entry.0 <= address);
            after.saturating_sub(1)
        };
        let blocks = 0..size.div_ceil(LOOKUP_BLOCK_SIZE);
        let starts = blocks.map(|i| self.text.start.saturating_add(i * LOOKUP_BLOCK_SIZE));
        let mut out = Vec::new();
        for address in starts.chain([self.text.end]) {
            let index = u32::try_from(position(address)).map_err(|_| TOO_LARGE)?;
            out.extend(index.to_le_bytes());
        }
        Ok(out)
    }
}

const TOO_LARGE: WriteError = WriteError::TooLarge {
    format: FORMAT,
    max: u32::MAX as u64,
};

/// The entry for `rule`, in `encoding`.
fn entry(rule: &Rule, encoding: Encoding) -> Result<Entry, Loss> {
    let mut rule = *rule;
    if encoding.sp_indirect == SpIndirect::LoadAtOffset
        && let Value::Load {
            base: base @ Base::Reg(Reg::Rsp),
            offset,
            addend,
        } = rule.cfa
    {
        // Before 5.12 the offset was added before the load.
        if addend != 0 {
            return Err(Loss::CfaLoad);
        }
        rule.cfa = Value::Load {
            base,
            offset: 0,
            addend: offset,
        };
    }

    // ORC has no rule for that: the entry says that the stack ends.
    if rule.ra == Value::Undefined {
        rule.kind = RuleKind::Outermost;
    }

    let entry = Entry::from_rule(&rule)?;
    // The entry's definition, whose hash is in the header, has rax only since 7.1.
    if entry.sp_reg == OrcReg::Ax && encoding.layout != Layout::V7_1 {
        return Err(Loss::CfaRegister);
    }
    Ok(entry)
}

impl Writer for OrcWriter {
    type Row = Entry;

    const HOLDS_CALLEE_SAVED: bool = false;

    fn row(&self, rule: &Rule) -> Result<Entry, LossReason> {
        let entry = entry(rule, self.encoding).map_err(LossReason::Rule)?;
        // In the layout of 4.14, a call is never a signal frame.
        if rule.kind == RuleKind::Signal && entry.signal && self.encoding.layout == Layout::V4_14 {
            return Err(LossReason::SignalMark);
        }
        Ok(entry)
    }

    fn function(&mut self, function: &Function<'_, Entry>) -> Result<(), WriteError> {
        self.order.accept(FORMAT, function)?;
        if self.end < function.start {
            self.push(self.end, Entry::UNDEFINED);
        }
        for (offset, entry) in function.rows {
            self.push(function.start.saturating_add((*offset).into()), *entry);
        }
        self.end = function.start.saturating_add(function.size.into());
        Ok(())
    }

    fn finish(&self, address: u64) -> Result<Vec<NewSection>, WriteError> {
        let entries = self.terminated();
        let section = |name, address, align, entry_size, bytes| NewSection {
            name,
            kind: SHT_PROGBITS,
            address: aligned(address, align),
            align,
            entry_size,
            program: None,
            bytes,
        };

        let address = aligned(address, 4);
        let mut ips = Vec::with_capacity(entries.len() * 4);
        let mut table = Vec::with_capacity(entries.len() * ENTRY_LEN);
        for (start, entry) in &entries {
            // An address is stored as its distance from its own slot (`orc_ip`).
            let slot = address.saturating_add(ips.len() as u64);
            ips.extend(relative32(FORMAT, *start, slot)?.to_le_bytes());
            table.extend(entry.encode(self.encoding.layout));
        }

        // Each section begins behind the last one, as its alignment allows.
        let ips = section(".orc_unwind_ip", address, 4, 4, ips);
        let table = section(".orc_unwind", ips.end(), 2, ENTRY_LEN as u64, table);

        let lookup = self.lookup(&entries)?;
        let lookup = section(".orc_lookup", table.end(), 4, 4, lookup);

        // Kernels without a header have no hash of the layout.
        let mut sections = vec![ips, table, lookup];
        if let (Some(hash), Some(last)) = (self.encoding.layout.hash(), sections.last()) {
            sections.push(section(".orc_header", last.end(), 1, 0, hash.to_vec()));
        }
        Ok(sections)
    }
}

#[cfg(test)]
mod tests;
