//! Where the registers are in a stub's answer to `g`.

use std::sync::Arc;

/// Most registers of a layout; stubs with all vector registers have fewer than 400.
const REGISTERS_MAX: usize = 4096;
/// Widest register, bits (a tile of AMX).
const BITS_MAX: usize = 8192;

/// The registers of a stub, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Name, first byte, bytes.
    registers: Vec<(String, usize, usize)>,
}

impl Default for Layout {
    /// gdb's own order for x86-64 without a description: the general registers, rip, and
    /// eflags and the segments of 4 bytes.
    fn default() -> Self {
        const LONG: &str = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip";
        const SHORT: &str = "eflags cs ss ds es fs gs";
        let mut layout = Layout {
            registers: Vec::new(),
        };
        for name in LONG.split(' ') {
            layout.push(name, 64);
        }
        for name in SHORT.split(' ') {
            layout.push(name, 32);
        }
        layout
    }
}

impl Layout {
    /// As a target description has it: the `reg` elements in order, those of included documents at
    /// the place of the inclusion. `None` if it does not describe x86-64.
    pub fn from_description(
        document: &str,
        include: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Option<Layout> {
        let mut layout = Layout {
            registers: Vec::new(),
        };
        layout.document(document, include);
        layout.find("rip")?;
        layout.find("rsp")?;
        Some(layout)
    }

    /// `include` is not asked by included documents: no stub nests them.
    fn document(&mut self, document: &str, include: &mut dyn FnMut(&str) -> Option<String>) {
        for tag in tags(document) {
            if let Some(rest) = tag.strip_prefix("reg ") {
                let bits = attribute(rest, "bitsize").and_then(|b| b.parse().ok());
                let bits = bits.filter(|b| (1..=BITS_MAX).contains(b));
                // One number of a register that is passed over changes the order.
                if let (Some(name), Some(bits)) = (attribute(rest, "name"), bits) {
                    self.push(name, bits);
                }
            } else if let Some(rest) = tag.strip_prefix("xi:include ")
                && let Some(inner) = attribute(rest, "href").and_then(&mut *include)
            {
                self.document(&inner, &mut |_| None);
            }
        }
    }

    fn push(&mut self, name: &str, bits: usize) {
        if self.registers.len() < REGISTERS_MAX {
            let at = self.registers.last().map_or(0, |(_, at, len)| at + len);
            self.registers.push((name.to_owned(), at, bits.div_ceil(8)));
        }
    }

    fn find(&self, name: &str) -> Option<(usize, usize)> {
        let found = self.registers.iter().find(|(n, ..)| n == name);
        found.map(|(_, at, len)| (*at, *len))
    }
}

/// What stands between angle brackets, comments left out.
fn tags(document: &str) -> impl Iterator<Item = &str> {
    let mut rest = document;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('<')? + 1..];
            if let Some(comment) = rest.strip_prefix("!--") {
                rest = &comment[comment.find("-->")?..];
                continue;
            }
            let end = rest.find('>')?;
            let tag = &rest[..end];
            rest = &rest[end..];
            return Some(tag);
        }
    })
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    loop {
        let at = from + tag[from..].find(name)?;
        from = at + name.len();
        let starts = at == 0 || tag.as_bytes()[at - 1].is_ascii_whitespace();
        let value = tag[from..].trim_start().strip_prefix('=');
        let Some(value) = value.filter(|_| starts) else {
            continue;
        };
        let value = value.trim_start();
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        return value[1..].split(quote).next();
    }
}

/// The registers at a stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registers {
    layout: Arc<Layout>,
    /// Two digits for each byte; `xx` where the stub does not know it.
    digits: Vec<u8>,
}

impl Registers {
    pub(super) fn new(layout: Arc<Layout>, digits: Vec<u8>) -> Registers {
        Registers { layout, digits }
    }

    /// The register of that name, as far as its lowest 8 bytes go; `None` if the stub has none, or
    /// does not know it.
    pub fn get(&self, name: &str) -> Option<u64> {
        let (at, len) = self.layout.find(name)?;
        let digits = self.digits.get(2 * at..2 * (at + len.min(8)))?;
        let bytes = super::packet::unhex(digits)?;
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(&bytes);
        Some(u64::from_le_bytes(value))
    }
}
