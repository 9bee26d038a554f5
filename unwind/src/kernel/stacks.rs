//! The stacks that a kernel unwinder may visit, and how it finds the stack of an address.
//!
//! Sources: Linux `arch/x86/kernel/dumpstack_64.c` and `dumpstack.c` (`get_stack_info`), and
//! `arch/x86/include/asm/stacktrace.h` (`enum stack_type`, `on_stack`). The words on the stacks are
//! ordinary memory.

use core::fmt;
use core::ops::Range;

/// `THREAD_SIZE` and `IRQ_STACK_SIZE` of x86-64 without KASAN, bytes.
pub const THREAD_SIZE: u64 = 16 * 1024;
/// Size of a page, bytes.
pub const PAGE_SIZE: u64 = 4096;

/// `enum stack_type` of x86-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum StackType {
    /// No stack. An unwinder in this state is done.
    #[default]
    Unknown = 0,
    Task = 1,
    Irq = 2,
    /// Only in 32-bit kernels.
    Softirq = 3,
    Entry = 4,
    DoubleFault = 5,
    Nmi = 6,
    Debug = 7,
    MachineCheck = 8,
    /// #VC of AMD SEV-ES.
    VmmCommunication = 9,
    VmmCommunicationFallback = 10,
}

impl StackType {
    /// All types, by number.
    pub const ALL: [StackType; 11] = [
        StackType::Unknown,
        StackType::Task,
        StackType::Irq,
        StackType::Softirq,
        StackType::Entry,
        StackType::DoubleFault,
        StackType::Nmi,
        StackType::Debug,
        StackType::MachineCheck,
        StackType::VmmCommunication,
        StackType::VmmCommunicationFallback,
    ];

    /// The type with this number.
    pub fn from_number(number: u64) -> Option<StackType> {
        let index = usize::try_from(number).ok()?;
        Self::ALL.get(index).copied()
    }

    /// The name, as printed by the kernel between angle brackets if it prints it
    /// (`stack_type_name`).
    pub const fn as_str(self) -> &'static str {
        match self {
            StackType::Unknown => "UNKNOWN",
            StackType::Task => "TASK",
            StackType::Irq => "IRQ",
            StackType::Softirq => "SOFTIRQ",
            StackType::Entry => "ENTRY",
            StackType::DoubleFault => "#DF",
            StackType::Nmi => "NMI",
            StackType::Debug => "#DB",
            StackType::MachineCheck => "#MC",
            StackType::VmmCommunication => "#VC",
            StackType::VmmCommunicationFallback => "#VC2",
        }
    }

    /// The address of the link to the interrupted code's stack, on a stack of this type that ends
    /// at `end`: the saved rsp of an exception's registers at its top, or the word that the switch
    /// to the interrupt stack leaves there (since 5.8).
    pub const fn next_sp_at(self, end: u64) -> Option<u64> {
        match self {
            StackType::Irq | StackType::Softirq => Some(end.wrapping_sub(8)),
            StackType::Unknown | StackType::Task | StackType::Entry => None,
            _ => Some(end.wrapping_sub(16)),
        }
    }

    /// The type with this name. For exception stacks also the names of
    /// `enum exception_stack_ordering`, with or without `EXC_`.
    pub fn from_name(name: &str) -> Option<StackType> {
        let short = name.strip_prefix("EXC_").unwrap_or(name);
        Some(match short {
            "DF" => StackType::DoubleFault,
            "DB" => StackType::Debug,
            "MCE" => StackType::MachineCheck,
            "VC" => StackType::VmmCommunication,
            "VC2" => StackType::VmmCommunicationFallback,
            "NMI" => StackType::Nmi,
            _ => return Self::ALL.into_iter().find(|t| t.as_str() == name),
        })
    }
}

impl fmt::Display for StackType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stack, as the kernel describes it (`struct stack_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StackInfo {
    /// The type of the stack.
    pub kind: StackType,
    /// Its first address.
    pub begin: u64,
    /// The first address after it.
    pub end: u64,
    /// Where the interrupted code's stack continues; 0 if the kernel does not state it.
    pub next_sp: u64,
}

impl StackInfo {
    /// Whether `len` bytes at `address` are on this stack (`on_stack`).
    pub const fn holds(&self, address: u64, len: u64) -> bool {
        let end = address.wrapping_add(len);
        !matches!(self.kind, StackType::Unknown)
            && self.begin <= address
            && address < self.end
            && self.begin < end
            && end <= self.end
    }

    /// Its addresses.
    pub const fn range(&self) -> Range<u64> {
        self.begin..self.end
    }
}

/// Why an address is not on a usable stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStack {
    /// It is on no stack that the unwinder may visit.
    Unknown,
    /// The stack was visited before: "stack recursion on stack type N".
    Recursion(StackType),
}

/// `get_stack_info`: stores the stack of `address` in `info` and its bit in `mask`. On failure it
/// changes only `info.kind` if there is no stack, but all of `info` if the stack was visited
/// before.
pub(super) fn get_stack_info(
    stacks: &[StackInfo],
    current: bool,
    address: u64,
    info: &mut StackInfo,
    mask: &mut u64,
) -> Result<(), NoStack> {
    let wanted =
        |s: &&StackInfo| s.range().contains(&address) && (current || s.kind == StackType::Task);
    let Some(found) = stacks.iter().find(wanted).filter(|_| address != 0) else {
        info.kind = StackType::Unknown;
        return Err(NoStack::Unknown);
    };
    *info = *found;
    let bit = 1 << found.kind as u8;
    if *mask & bit != 0 {
        info.kind = StackType::Unknown;
        return Err(NoStack::Recursion(found.kind));
    }
    *mask |= bit;
    Ok(())
}
