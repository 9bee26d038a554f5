//! Positions of the registers in a stub's answer to `g`.

use std::sync::Arc;

/// Maximum registers of a layout; stubs with all vector registers have fewer than 400.
const REGISTERS_MAX: usize = 4096;
/// Width of the widest register in bits (an AMX tile).
const BITS_MAX: usize = 8192;

/// The registers of a stub, in its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Name, offset and size in bytes.
    registers: Vec<(String, usize, usize)>,
}

impl Default for Layout {
    /// gdb's own order for x86-64 without a description: the general registers, rip, and eflags and
    /// the segment registers of 4 bytes each.
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
    /// The layout in a target description: the `reg` elements in order, with those of included
    /// documents where they are included. `None` if it does not describe x86-64.
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

    /// Included documents cannot include others: no stub nests them.
    fn document(&mut self, document: &str, include: &mut dyn FnMut(&str) -> Option<String>) {
        for tag in tags(document) {
            if let Some(rest) = tag.strip_prefix("reg ") {
                let bits = attribute(rest, "bitsize").and_then(|b| b.parse().ok());
                let bits = bits.filter(|b| (1..=BITS_MAX).contains(b));
                // `regnum` is ignored: registers are expected in the order of their numbers.
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

/// The text between angle brackets, without comments.
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
    /// Two hex digits for each byte; `xx` where the stub does not know the value.
    digits: Vec<u8>,
}

impl Registers {
    pub(super) fn new(layout: Arc<Layout>, digits: Vec<u8>) -> Registers {
        Registers { layout, digits }
    }

    /// The lowest 8 bytes of the named register; `None` if the stub does not have it or does not
    /// know its value.
    pub fn get(&self, name: &str) -> Option<u64> {
        let (at, len) = self.layout.find(name)?;
        let digits = self.digits.get(2 * at..2 * (at + len.min(8)))?;
        let bytes = super::packet::unhex(digits)?;
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(&bytes);
        Some(u64::from_le_bytes(value))
    }
}
