//! Parses System.map: lines `ADDRESS TYPE NAME`, as printed by nm, sorted by address.

use super::error::KernelErrorKind;
use super::symbols::KernelSymbols;

/// Parses a System.map.
///
/// # Errors
/// With the number of the first malformed line.
pub(super) fn read(bytes: &[u8]) -> Result<KernelSymbols, KernelErrorKind> {
    let mut out = KernelSymbols::with_capacity(bytes.len() / 40, bytes.len() / 2);
    for (number, line) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        if line.is_empty() {
            continue;
        }
        let added = parse(line).is_some_and(|(address, kind, name)| out.push(address, kind, name));
        if !added {
            return Err(KernelErrorKind::MapLine { line: number });
        }
    }
    Ok(out)
}

fn parse(line: &[u8]) -> Option<(u64, u8, &str)> {
    let mut words = std::str::from_utf8(line).ok()?.splitn(3, ' ');
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let &[kind] = words.next()?.as_bytes() else {
        return None;
    };
    let name = words.next()?.trim_end();
    (!name.is_empty()).then_some((address, kind, name))
}
