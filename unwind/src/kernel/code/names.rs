//! The symbols that the unwinders know by name.

use crate::image::Image;
use core::ops::Range;

/// Functions that the unwinders know by name (load addresses); 0 if the kernel does not have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct KnownFunctions {
    pub return_to_handler: u64,
    pub arch_rethook_trampoline: u64,
    pub ftrace_caller: u64,
    pub ftrace_regs_caller: u64,
    pub ret_from_fork: u64,
    pub ret_from_fork_asm: u64,
}

/// The symbol at the start of the kernel's text: the image that has it is the kernel's own.
pub(super) const START: &str = "_stext";

/// The symbols that the unwinders look up by name: the bounds of the text, of the code for booting
/// and of the entry code, then functions, of which one has had three names.
pub const KNOWN_SYMBOLS: [&str; 14] = [
    START,
    "_etext",
    "_sinittext",
    "_einittext",
    "__entry_text_start",
    "__entry_text_end",
    "return_to_handler",
    "arch_rethook_trampoline",
    "__kretprobe_trampoline",
    "kretprobe_trampoline",
    "ftrace_caller",
    "ftrace_regs_caller",
    "ret_from_fork",
    "ret_from_fork_asm",
];

/// An image's symbols by name.
pub(super) struct Symbols<'a> {
    pub(super) image: &'a Image,
    pub(super) bias: u64,
}

impl Symbols<'_> {
    /// The address of the first symbol of each name, found in one pass.
    fn addresses<const N: usize>(&self, names: [&str; N]) -> [Option<u64>; N] {
        let mut found = [None; N];
        // Bit n: a name of n bytes is wanted. Most others are passed without reading them.
        let bit = |name: &str| 1_u64 << name.len().min(63);
        let lengths = names.iter().fold(0, |all, name| all | bit(name));
        let mut symbols = self.image.symbols().iter();
        while let Some(symbol) = symbols.find(|s| lengths & bit(&s.name) != 0) {
            for (name, found) in names.iter().zip(&mut found) {
                if found.is_none() && *name == symbol.name {
                    *found = Some(symbol.address.wrapping_add(self.bias));
                }
            }
        }
        found
    }

    /// The range between the symbols that bound the kernel's text, if the image has them.
    pub(super) fn text(&self) -> Option<Range<u64>> {
        let [start, end, ..] = KNOWN_SYMBOLS;
        let [start, end] = self.addresses([start, end]);
        between(start, end)
    }

    /// What else the unwinders know by name.
    pub(super) fn found(&self) -> NamedRanges {
        let found = self.addresses(KNOWN_SYMBOLS);
        let [_, _, init, init_end, entry, entry_end, functions @ ..] = found;
        let [graph, rethook, old, oldest, ftrace, regs, fork, fork_asm] = functions;
        NamedRanges {
            init_text: between(init, init_end).unwrap_or(0..0),
            entry_text: between(entry, entry_end).unwrap_or(0..0),
            known: KnownFunctions {
                return_to_handler: graph.unwrap_or(0),
                arch_rethook_trampoline: rethook.or(old).or(oldest).unwrap_or(0),
                ftrace_caller: ftrace.unwrap_or(0),
                ftrace_regs_caller: regs.unwrap_or(0),
                ret_from_fork: fork.unwrap_or(0),
                ret_from_fork_asm: fork_asm.unwrap_or(0),
            },
        }
    }
}

/// What is found by the names of the kernel itself.
pub(super) struct NamedRanges {
    pub(super) init_text: Range<u64>,
    pub(super) entry_text: Range<u64>,
    pub(super) known: KnownFunctions,
}

/// The range between two symbols, if both exist in this order.
fn between(start: Option<u64>, end: Option<u64>) -> Option<Range<u64>> {
    let range = start?..end?;
    (range.start < range.end).then_some(range)
}
