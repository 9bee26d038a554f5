//! Landing pads: where an exception thrown by a call continues.
//!
//! The format is that of `.gcc_except_table`, "LSDA" (Itanium C++ ABI, exception handling tables;
//! LLVM, "Exception Handling Tables"). Only the call-site table is read.

use crate::file::File;
use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader as _, constants as dw};
use std::ops::Range;

/// The maximum number of call sites of a function.
const SITES_MAX: usize = 1 << 20;

/// Calls in `calls` that may throw continue at `pad`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// The addresses (svma) of the calls.
    pub calls: Range<u64>,
    /// The address (svma) of the landing pad.
    pub pad: u64,
}

/// The call sites with a landing pad in the data at `lsda`, for a function that starts at `start`
/// (all svma). `None` if the data is malformed or its encoding unknown.
pub fn call_sites(file: &File, lsda: u64, start: u64) -> Option<Vec<CallSite>> {
    let all = EndianSlice::new(file.bytes(lsda), LittleEndian);
    let mut input = all;

    // The header: where landing pads are relative to, where types are, how call sites are encoded.
    let encoding = DwEhPe(input.read_u8().ok()?);
    let base = match encoding {
        // Without `LPStart`, landing pads are relative to the start of the function.
        dw::DW_EH_PE_omit => start,
        _ => {
            let here = lsda.wrapping_add(input.offset_from(all) as u64);
            pointer(&mut input, encoding, here)?
        }
    };

    let types = DwEhPe(input.read_u8().ok()?);
    // The offset of the table of types, which is not read.
    if types != dw::DW_EH_PE_omit {
        input.read_uleb128().ok()?;
    }

    // The size of the table is in its header; what lies behind are actions and types.
    let encoding = DwEhPe(input.read_u8().ok()?);
    let length = usize::try_from(input.read_uleb128().ok()?).ok()?;
    let mut table = input.split(length).ok()?;

    // Malformed data may claim any number of sites.
    let mut sites = Vec::new();
    while !table.is_empty() && sites.len() < SITES_MAX {
        let from = number(&mut table, encoding)?;
        let length = number(&mut table, encoding)?;
        let pad = number(&mut table, encoding)?;
        // The action, an offset in a table that is not read.
        table.read_uleb128().ok()?;
        // 0 means that the call site has no landing pad.
        if pad != 0 {
            // The start of a call site is relative to the function, that of a landing pad to
            // `LPStart`.
            let first = start.wrapping_add(from);
            sites.push(CallSite {
                calls: first..first.checked_add(length)?,
                pad: base.wrapping_add(pad),
            });
        }
    }
    Some(sites)
}

fn number(input: &mut EndianSlice<'_, LittleEndian>, encoding: DwEhPe) -> Option<u64> {
    match encoding.format() {
        dw::DW_EH_PE_uleb128 => input.read_uleb128().ok(),
        dw::DW_EH_PE_udata2 => input.read_u16().ok().map(u64::from),
        dw::DW_EH_PE_udata4 => input.read_u32().ok().map(u64::from),
        dw::DW_EH_PE_sdata4 => input.read_i32().ok().map(|n| i64::from(n).cast_unsigned()),
        dw::DW_EH_PE_absptr | dw::DW_EH_PE_udata8 | dw::DW_EH_PE_sdata8 => input.read_u64().ok(),
        _ => None,
    }
}

fn pointer(input: &mut EndianSlice<'_, LittleEndian>, encoding: DwEhPe, here: u64) -> Option<u64> {
    let value = number(input, encoding)?;
    match encoding.application() {
        dw::DW_EH_PE_absptr => Some(value),
        dw::DW_EH_PE_pcrel => Some(here.wrapping_add(value)),
        _ => None,
    }
}
