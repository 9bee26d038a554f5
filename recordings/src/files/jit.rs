//! `perf-PID.map`: the symbols of generated code.
//!
//! Source: Linux `tools/perf/Documentation/jit-interface.txt`: lines of `START SIZE NAME`, numbers
//! hexadecimal without `0x`, in the order in which code was generated; later lines replace earlier
//! ones.

use super::{FileProblemKind, FinderOptions};
use std::fs::File;
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
        match File::open(&path) {
            Ok(file) => {
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
        let taken = (&mut reader)
            .take(LINE_LEN_MAX)
            .read_until(b'\n', &mut line);
        match taken {
            Ok(0) => break,
            Ok(_) if number > LINES_MAX => {
                problem = Some(FileProblemKind::JitLimit { limit: LINES_MAX });
                break;
            }
            Ok(_) => match parse_line(&line) {
                Some(symbol) => symbols.push(symbol),
                None => {
                    problem.get_or_insert(FileProblemKind::JitLine { line: number });
                }
            },
            Err(error) => {
                problem = Some(FileProblemKind::Io(error.kind()));
                break;
            }
        }
    }
    // For one address the last symbol counts.
    symbols.reverse();
    symbols.sort_by_key(|s: &Symbol| s.address);
    symbols.dedup_by_key(|s| s.address);
    (symbols, problem)
}

fn parse_line(line: &[u8]) -> Option<Symbol> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\n', '\r']);
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    Some(Symbol {
        address: hex(start)?,
        size: hex(size)?,
        name: name.to_owned(),
    })
    .filter(|symbol| !symbol.name.is_empty())
}
