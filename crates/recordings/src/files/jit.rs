//! `perf-PID.map`: the symbols of generated code.
//!
//! Source: Linux `tools/perf/Documentation/jit-interface.txt`: lines of `START SIZE NAME`, numbers
//! hexadecimal without `0x`, in the order in which code was generated; later lines replace earlier
//! ones. HotSpot writes `0x`, and some tools write no size.

use super::{FileProblemKind, FinderOptions};
use crate::open;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use unwind_sim_unwind::image::Symbol;

/// Maximum number of lines.
const LINES_MAX: u64 = 4 << 20;
/// Maximum length of a line, bytes.
const LINE_LEN_MAX: u64 = 64 << 10;

type Problem = (String, FileProblemKind);

/// The symbols of a process, sorted by address, and the first problem.
pub(super) fn read(options: &FinderOptions, pid: u32) -> (Vec<Symbol>, Option<Problem>) {
    for path in places(options, pid) {
        match open::file(&path) {
            Ok((file, _)) => {
                let (symbols, kind) = parse(BufReader::new(file));
                let name = path.to_string_lossy().into_owned();
                return (symbols, kind.map(|kind| (name, kind)));
            }
            Err(error) => match FileProblemKind::from_io(error) {
                FileProblemKind::NotFound => {}
                kind => {
                    return (
                        Vec::new(),
                        Some((path.to_string_lossy().into_owned(), kind)),
                    );
                }
            },
        }
    }
    (Vec::new(), None)
}

fn places(options: &FinderOptions, pid: u32) -> Vec<PathBuf> {
    let Some(dir) = &options.jit_dir else {
        return Vec::new();
    };
    let mut out = Vec::new();
    if options.live {
        // In a container, the process has another PID of its own.
        let inner = inner_pid(pid).unwrap_or(pid);
        let root = format!("/proc/{pid}/root");
        let dir = super::candidates::below(Some(Path::new(&root)), dir);
        out.push(dir.join(format!("perf-{inner}.map")));
    }
    let dir = super::candidates::below(options.symfs.as_deref(), dir);
    out.push(dir.join(format!("perf-{pid}.map")));
    out
}

/// The process's PID in its own namespace.
fn inner_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// The symbols in the text of a `perf-PID.map`, sorted by address. Malformed lines are ignored.
pub fn perf_map(text: impl BufRead) -> Vec<Symbol> {
    parse(text).0
}

pub(super) fn parse(mut reader: impl BufRead) -> (Vec<Symbol>, Option<FileProblemKind>) {
    let mut symbols = Vec::new();
    let mut problem = None;
    let mut line = Vec::new();

    for number in 1.. {
        line.clear();
        // A file without line ends must not fill the memory.
        let taken = (&mut reader)
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut line);
        match taken {
            Ok(0) => break,
            // What was read so far is used.
            Ok(_) if number > LINES_MAX => {
                problem = Some(FileProblemKind::JitLimit { limit: LINES_MAX });
                break;
            }
            Ok(_) => match parse_line(&line) {
                Some(symbol) => symbols.push(symbol),
                None => {
                    // One bad line does not make the others wrong.
                    problem.get_or_insert(FileProblemKind::JitLine { line: number });
                }
            },
            Err(error) => {
                problem = Some(FileProblemKind::Io(error.kind()));
                break;
            }
        }
    }

    (latest(symbols), problem)
}

/// The symbols that hold at the end, sorted by address. A function whose first byte lies in one that
/// was written later is gone, since memory is reused for whole functions. One that only reaches into a
/// later one stays: lists of one moment nest a stub in the code around it.
fn latest(symbols: Vec<Symbol>) -> Vec<Symbol> {
    // Merged ranges of later symbols: the first and the last address, which may be the highest there is.
    let mut later: BTreeMap<u64, u64> = BTreeMap::new();
    let mut kept = Vec::new();
    for symbol in symbols.into_iter().rev() {
        let start = symbol.address;
        let mut last = start.saturating_add(symbol.size.saturating_sub(1));
        let before = later.range(..=start).next_back();
        if before.is_some_and(|(_, &last)| start <= last) {
            continue;
        }

        while let Some((&next, &next_last)) = later.range(start..=last).next() {
            later.remove(&next);
            last = last.max(next_last);
        }
        later.insert(start, last);
        kept.push(symbol);
    }
    kept.sort_by_key(|symbol: &Symbol| symbol.address);
    kept
}

/// Gives each symbol without a size that of the gap behind it, up to `end`: a list without sizes names
/// the code up to the next function.
pub(super) fn fill_sizes(symbols: &mut [Symbol], end: u64) {
    let mut next = end;
    for symbol in symbols.iter_mut().rev() {
        if symbol.size == 0 {
            symbol.size = next.saturating_sub(symbol.address);
        }
        next = symbol.address;
    }
}

fn parse_line(line: &[u8]) -> Option<Symbol> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches([' ', '\t', '\n', '\r']);
    let hex = |word: &str| {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        u64::from_str_radix(digits.unwrap_or(word), 16).ok()
    };
    let (start, rest) = line.split_once([' ', '\t'])?;
    let rest = rest.trim_start();
    let sized = rest.split_once([' ', '\t']);
    let sized = sized.and_then(|(size, name)| Some((hex(size)?, name.trim_start())));
    let (size, name) = sized.unwrap_or((0, rest));
    Some(Symbol {
        address: hex(start)?,
        size,
        name: name.to_owned(),
    })
    .filter(|symbol| !symbol.name.is_empty())
}

#[cfg(test)]
mod tests;
