//! The stacks that a kernel prints to its console (Linux `arch/x86/kernel/dumpstack.c`, `show_trace_log_lvl`): the
//! lines of one, and how a recording keeps them.
//!
//! [`log`] reads them from a console's text.

pub mod log;

use unwind_sim_unwind::kernel::StackType;

/// The source of the chains of a recording that are such lines.
pub const CONSOLE: &str = "console";

/// A line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConsoleLine {
    /// A stack begins: `<IRQ>`.
    StackBegin(StackType),
    /// A stack ends: `</IRQ>`.
    StackEnd(StackType),
    /// Saved registers, of which `RIP:` is this. Several lines of text.
    Registers {
        /// The address.
        ip: u64,
    },
    /// A word of a stack that is code.
    Address {
        /// The word.
        address: u64,
        /// Whether the unwinder found it, too. If not, it is behind a question mark.
        is_confirmed: bool,
    },
}

// In a chain, these words are no addresses, but say what the next word or the stack is.
const UNCONFIRMED: u64 = 1;
const REGISTERS: u64 = 2;
const BEGIN: u64 = 0x100;
const END: u64 = 0x200;

/// The lines as the addresses of a recorded chain.
pub fn words(lines: &[ConsoleLine]) -> Vec<u64> {
    let mut words = Vec::new();
    for line in lines {
        match *line {
            ConsoleLine::StackBegin(kind) => words.push(BEGIN + kind as u64),
            ConsoleLine::StackEnd(kind) => words.push(END + kind as u64),
            ConsoleLine::Registers { ip } => words.extend([REGISTERS, ip]),
            ConsoleLine::Address {
                address,
                is_confirmed: true,
            } => words.push(address),
            ConsoleLine::Address {
                address,
                is_confirmed: false,
            } => words.extend([UNCONFIRMED, address]),
        }
    }
    words
}

/// The lines of a recorded chain. A word that says nothing, as only a damaged recording has, is an address.
pub fn lines(words: &[u64]) -> Vec<ConsoleLine> {
    let mut words = words.iter().copied();
    let mut lines = Vec::new();
    while let Some(word) = words.next() {
        let begins = word.checked_sub(BEGIN).and_then(StackType::from_number);
        let ends = word.checked_sub(END).and_then(StackType::from_number);
        lines.push(match (word, begins, ends) {
            (UNCONFIRMED, ..) => ConsoleLine::Address {
                address: words.next().unwrap_or(0),
                is_confirmed: false,
            },
            (REGISTERS, ..) => ConsoleLine::Registers {
                ip: words.next().unwrap_or(0),
            },
            (_, Some(kind), _) => ConsoleLine::StackBegin(kind),
            (_, _, Some(kind)) => ConsoleLine::StackEnd(kind),
            (address, None, None) => ConsoleLine::Address {
                address,
                is_confirmed: true,
            },
        });
    }
    lines
}

/// The addresses that the unwinder found: those without a question mark, and where saved registers of the kernel
/// say that it was interrupted.
pub fn confirmed(lines: &[ConsoleLine]) -> Vec<u64> {
    let address = |line: &ConsoleLine| match *line {
        ConsoleLine::Registers { ip } => is_kernel(ip).then_some(ip),
        ConsoleLine::Address {
            address,
            is_confirmed,
        } => is_confirmed.then_some(address),
        ConsoleLine::StackBegin(_) | ConsoleLine::StackEnd(_) => None,
    };
    lines.iter().filter_map(address).collect()
}

/// Whether an address is one of the kernel's half.
pub const fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// The name of a stack between the angle brackets (`stack_type_name`).
pub const fn stack_name(kind: StackType) -> &'static str {
    match kind {
        StackType::Entry => "ENTRY_TRAMPOLINE",
        other => other.as_str(),
    }
}

/// The stack with this name.
pub fn stack_of_name(name: &str) -> Option<StackType> {
    StackType::ALL
        .into_iter()
        .find(|&kind| kind != StackType::Unknown && stack_name(kind) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn lines_come_back() {
        let address = |offset, is_confirmed| ConsoleLine::Address {
            address: CODE + offset,
            is_confirmed,
        };
        let mut all = vec![
            address(1, true),
            address(1, false),
            ConsoleLine::Registers { ip: CODE + 2 },
            address(2, false),
            ConsoleLine::Registers { ip: 0x40_1000 },
            address(3, true),
        ];
        assert_eq!(confirmed(&all), [CODE + 1, CODE + 2, CODE + 3]);
        for kind in StackType::ALL {
            all.extend([ConsoleLine::StackBegin(kind), ConsoleLine::StackEnd(kind)]);
        }
        assert_eq!(lines(&words(&all)), all);
        // A recording that ends too early.
        let unfinished = ConsoleLine::Address {
            address: 0,
            is_confirmed: false,
        };
        assert_eq!(lines(&[1]), [unfinished]);
    }

    #[test]
    fn stacks_have_the_names_that_are_printed() {
        for kind in StackType::ALL.into_iter().skip(1) {
            assert_eq!(stack_of_name(stack_name(kind)), Some(kind));
        }
        assert_eq!(stack_of_name("ENTRY_TRAMPOLINE"), Some(StackType::Entry));
        assert_eq!(stack_of_name("EOE"), None);
    }
}
