//! Call traces in the text of a console, of dmesg, or of a journal.
//!
//! What stands before a line's own text (a priority, times, a host's name, the task that printed it) is known by
//! where `Call Trace:` stands in the first line of a trace, and by `[..]` in front of others. Traces of several
//! processors that are mixed line by line are not taken apart.

use super::{ConsoleLine, stack_of_name};
use unwind_sim_unwind::kernel::StackType;

/// A trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedTrace {
    /// The number of its first line, from 1: that of `Call Trace:`.
    pub line: usize,
    /// What is behind it.
    pub lines: Vec<LoggedLine>,
}

/// A line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoggedLine {
    /// A stack begins: `<IRQ>`.
    StackBegin(StackType),
    /// A stack ends: `</IRQ>`.
    StackEnd(StackType),
    /// `RIP:` of saved registers; `None` if it is no place in the kernel.
    Registers(Option<Place>),
    /// A place, and whether it is without a question mark.
    Address(Place, bool),
}

/// A place as `%pB` prints it: `vfs_read+0x12/0x340 [module]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The function.
    pub function: String,
    /// The offset in it.
    pub offset: u64,
    /// Its size.
    pub size: u64,
    /// The module.
    pub module: Option<String>,
    /// The address, if a kernel before 4.10 has printed it.
    pub address: Option<u64>,
}

const HEAD: &str = "Call Trace:";
/// The registers that `__show_regs` and `show_iret_regs` print, by what their lines begin with.
const REGISTERS: [&str; 12] = [
    "Code:", "RSP:", "RAX:", "RDX:", "RBP:", "R10:", "R13:", "FS:", "CS:", "CR2:", "DR0:", "DR3:",
];

/// The traces of a console's text, which need not be UTF-8.
pub fn traces(text: &[u8]) -> Vec<LoggedTrace> {
    let mut out: Vec<LoggedTrace> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.ends_with(HEAD) {
            out.push(LoggedTrace {
                line: number + 1,
                lines: Vec::new(),
            });
            is_open = true;
            continue;
        }
        let Some(trace) = out.last_mut().filter(|_| is_open) else {
            continue;
        };
        let own = own_text(line);
        match logged(own) {
            Some(line) => trace.lines.push(line),
            None => is_open = REGISTERS.iter().any(|begin| own.starts_with(begin)),
        }
    }
    out
}

/// The text of a line behind what was put before it.
fn own_text(line: &str) -> &str {
    // `[  +0,000001]`, `[    1.234567][  T123]`; a journal has `kernel:` before its text.
    let mut text = line.rsplit_once("kernel: ").map_or(line, |(_, text)| text);
    if text.starts_with('<')
        && let Some((priority, rest)) = text[1..].split_once('>')
        && priority.bytes().all(|byte| byte.is_ascii_digit())
    {
        text = rest;
    }
    loop {
        text = text.trim_start();
        // An address of an old kernel, which belongs to the text.
        if text.starts_with("[<") {
            return text;
        }
        match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((_, rest)) => text = rest,
            None => return text,
        }
    }
}

fn logged(text: &str) -> Option<LoggedLine> {
    if let Some(name) = text.strip_prefix("</").and_then(|t| t.strip_suffix('>')) {
        return stack_of_name(name).map(LoggedLine::StackEnd);
    }
    if let Some(name) = text.strip_prefix('<').and_then(|t| t.strip_suffix('>')) {
        return stack_of_name(name).map(LoggedLine::StackBegin);
    }
    if let Some(rest) = text.strip_prefix("RIP: ") {
        // The selector comes first: `0010:` or `0033:`.
        let (_, place) = rest.split_once(':')?;
        return Some(LoggedLine::Registers(place_of(place.trim())));
    }

    let (address, text) = match text.strip_prefix("[<") {
        Some(rest) => {
            let (address, rest) = rest.split_once(">]")?;
            (u64::from_str_radix(address, 16).ok(), rest.trim_start())
        }
        None => (None, text),
    };
    let (text, is_confirmed) = match text.strip_prefix("? ") {
        Some(rest) => (rest, false),
        None => (text, true),
    };
    let place = place_of(text.trim_start())?;
    Some(LoggedLine::Address(
        Place { address, ..place },
        is_confirmed,
    ))
}

/// `function+0xoffset/0xsize`, perhaps followed by `[module]`, whose build ID may be in there, too.
fn place_of(text: &str) -> Option<Place> {
    let (place, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (function, numbers) = place.rsplit_once("+0x")?;
    let (offset, size) = numbers.split_once("/0x")?;
    let module = match rest.trim() {
        "" => None,
        rest => Some(rest.strip_prefix('[')?.strip_suffix(']')?),
    };
    let module = module.map(|names| names.split(' ').next().unwrap_or_default().to_owned());
    Some(Place {
        function: function.to_owned(),
        offset: u64::from_str_radix(offset, 16).ok()?,
        size: u64::from_str_radix(size, 16).ok()?,
        module,
        address: None,
    })
}

impl LoggedLine {
    /// Whether the line says the same as a recorded one, whose address is a place if `is_at` says so.
    pub fn says(&self, line: &ConsoleLine, is_at: &mut dyn FnMut(&Place, u64) -> bool) -> bool {
        match (self, *line) {
            (LoggedLine::StackBegin(own), ConsoleLine::StackBegin(other))
            | (LoggedLine::StackEnd(own), ConsoleLine::StackEnd(other)) => *own == other,
            (LoggedLine::Registers(Some(place)), ConsoleLine::Registers { ip }) => is_at(place, ip),
            (LoggedLine::Registers(None), ConsoleLine::Registers { ip }) => !super::is_kernel(ip),
            (
                LoggedLine::Address(place, own),
                ConsoleLine::Address {
                    address,
                    is_confirmed,
                },
            ) => *own == is_confirmed && is_at(place, address),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
