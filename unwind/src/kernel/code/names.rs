//! The symbols that the unwinders know by name.

use crate::image::Image;
use core::ops::Range;

/// Functions that the unwinders know by name (load addresses); 0 if the kernel does not have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Known {
    pub return_to_handler: u64,
    pub arch_rethook_trampoline: u64,
    pub ftrace_caller: u64,
    pub ftrace_regs_caller: u64,
    pub ret_from_fork: u64,
    pub ret_from_fork_asm: u64,
}

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

    /// The ranges between two symbols, if both exist in this order.
    pub(super) fn ranges<const N: usize>(&self, names: [[&str; 2]; N]) -> [Option<Range<u64>>; N] {
        let starts = self.addresses(names.map(|[start, _]| start));
        let ends = self.addresses(names.map(|[_, end]| end));
        core::array::from_fn(|i| {
            let range = starts[i]?..ends[i]?;
            (range.start < range.end).then_some(range)
        })
    }

    /// The functions that the unwinders know.
    pub(super) fn known(&self) -> Known {
        let found = self.addresses([
            "return_to_handler",
            "arch_rethook_trampoline",
            "__kretprobe_trampoline",
            "kretprobe_trampoline",
            "ftrace_caller",
            "ftrace_regs_caller",
            "ret_from_fork",
            "ret_from_fork_asm",
        ]);
        let [graph, rethook, old, oldest, ftrace, regs, fork, fork_asm] = found;
        Known {
            return_to_handler: graph.unwrap_or(0),
            arch_rethook_trampoline: rethook.or(old).or(oldest).unwrap_or(0),
            ftrace_caller: ftrace.unwrap_or(0),
            ftrace_regs_caller: regs.unwrap_or(0),
            ret_from_fork: fork.unwrap_or(0),
            ret_from_fork_asm: fork_asm.unwrap_or(0),
        }
    }
}
