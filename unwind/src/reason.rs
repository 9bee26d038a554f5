//! Why a walk ended, or why a row is wrong: the closed set of US codes.
//!
//! [`Code`] is the stable name for people and machines. [`Reason`] is a code with the values of the
//! particular walk. Codes may be added but are never renumbered.

use crate::memory::MemoryError;
use crate::regs::Reg;
use core::fmt;

/// Calls the macro `$with` with the table of all codes, in order: for each the variant of [`Code`], its
/// stable name and its text, as `NoRow = "US103", "no row";`.
///
/// This table is the only place where they are written. What has something for every code, such as its
/// page, is made from it:
///
/// ```
/// macro_rules! count {
///     ($($name:ident = $code:literal, $text:literal;)*) => { [$($code),*].len() };
/// }
/// let codes = unwind_sim_unwind::reason_codes!(count);
/// assert_eq!(codes, unwind_sim_unwind::reason::Code::ALL.len());
/// ```
///
/// [`Code`]: crate::reason::Code
#[macro_export]
macro_rules! reason_codes {
    ($with:ident) => {
        $with! {
            RootReached = "US001", "root reached";
            NoImage = "US101", "no image";
            NoTable = "US102", "no table";
            NoRow = "US103", "no row";
            UndefinedByTable = "US104", "undefined by the table";
            MalformedRow = "US105", "malformed row";
            RegisterNotCarried = "US106", "rule needs a register this unwinder does not carry";
            ExpressionFailed = "US107", "expression cannot be evaluated";
            Unmapped = "US201", "address unmapped";
            BeyondCopy = "US202", "beyond the end of the stack copy";
            BelowCopy = "US203", "slot below rsp, outside the copy";
            SpDidNotAdvance = "US204", "sp did not advance";
            Cycle = "US205", "cycle";
            NotText = "US206", "return address not in text";
            RegistersMissing = "US301", "registers missing (fake start)";
            LbrDepth = "US302", "LBR depth";
            NoBranchRecords = "US303", "no branch records";
            AfterInstruction = "US304", "registers of after the sampled instruction";
            FrameLimit = "US401", "frame limit";
            NotAtRoot = "US402", "ended, but not at a root";
            EndUnknown = "US403", "whether the chain is whole is not known";
            WrongCfa = "US501", "wrong CFA";
            WrongReturnAddress = "US502", "wrong return address";
            WrongRegister = "US503", "wrong callee-saved register";
            NoRowForExecuted = "US504", "executed code without a row";
            RowBehindCall = "US505", "row after the call";
            RowOfTarget = "US506", "row of the jump target's frame";
            FramePointerNotYet = "US510", "frame pointer not yet set up";
            FramePointerGone = "US511", "frame pointer already restored";
            NoFramePointer = "US512", "function without frame pointer";
            NotOnStack = "US601", "not on a stack of this task";
            StackRecursion = "US602", "stack visited twice";
            CannotAccessRegs = "US603", "saved registers not on a stack";
            BadFramePointer = "US604", "bad frame pointer";
            OnOtherCpu = "US605", "task runs on another processor";
            WrongUserRegs = "US606", "wrong registers at the user boundary";
        }
    };
}

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// A reason code. `unwind-sim explain CODE` shows its page.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = concat!($code, ": ", $text, ".")] $name,)* }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The stable name, such as `US203`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code),* }
            }

            /// A short description for display.
            pub const fn description(self) -> &'static str {
                match self { $(Code::$name => $text),* }
            }
        }
    };
}

reason_codes!(codes);

impl Code {
    /// The code with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Code> {
        Self::ALL
            .iter()
            .copied()
            .find(|c| c.as_str().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a walk ended, with the relevant values.
///
/// Displays the values without the code: `no row for 0x401000`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// [`Code::RootReached`]: the table, or a zero frame pointer, says that this is the outermost frame.
    #[error("{}", Code::RootReached.description())]
    RootReached,
    /// [`Code::NoImage`]: `pc` belongs to no image, or its image is unavailable.
    #[error("no image at {pc:#x}")]
    NoImage {
        /// The address looked up.
        pc: u64,
    },
    /// [`Code::NoTable`]: the image has no table that this unwinder reads.
    #[error("the image at {pc:#x} has no such table")]
    NoTable {
        /// The address looked up.
        pc: u64,
    },
    /// [`Code::NoRow`]: the table has no row for `pc`.
    #[error("no row for {pc:#x}")]
    NoRow {
        /// The address looked up.
        pc: u64,
    },
    /// [`Code::NoRow`]: the table from which this one is derived has a row, but this format cannot hold it.
    #[error("not expressible in the derived table: {what}")]
    NotHeld {
        /// What the format cannot hold.
        what: &'static str,
    },
    /// [`Code::UndefinedByTable`]: the table says that this value is lost.
    #[error("the table says that {reg} is lost")]
    UndefinedByTable {
        /// The lost value; `Rip` is the return address, `Rsp` the CFA.
        reg: Reg,
    },
    /// [`Code::MalformedRow`]: the table is malformed here.
    #[error("{section}+{offset:#x}: {what}")]
    MalformedRow {
        /// The section's name.
        section: &'static str,
        /// Offset in the section, bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// [`Code::RegisterNotCarried`]: the rule depends on a register whose value this unwinder does not have.
    #[error("the rule needs {reg}, which is unknown here")]
    RegisterNotCarried {
        /// The register.
        reg: Reg,
    },
    /// [`Code::ExpressionFailed`]: the DWARF expression at `offset` cannot be evaluated.
    #[error("expression at section offset {offset:#x}: {what}")]
    ExpressionFailed {
        /// Offset of the expression in its section, bytes.
        offset: u64,
        /// What is wrong with the expression, or lacks to evaluate it.
        what: &'static str,
    },
    /// [`Code::Unmapped`], [`Code::BeyondCopy`] or [`Code::BelowCopy`]: a word could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// [`Code::SpDidNotAdvance`]: the caller's stack pointer is not above this frame's.
    #[error("sp went from {from:#x} to {to:#x}")]
    SpDidNotAdvance {
        /// This frame's sp.
        from: u64,
        /// The caller's, as computed.
        to: u64,
    },
    /// [`Code::Cycle`]: this (pc, sp) was seen before.
    #[error("pc {pc:#x} with sp {sp:#x} was seen before")]
    Cycle {
        /// The repeated pc.
        pc: u64,
        /// The repeated sp.
        sp: u64,
    },
    /// [`Code::NotText`]: the word in the return-address slot is not a code address.
    #[error("{address:#x} is not in text")]
    NotText {
        /// The word in the slot, which should be a return address.
        address: u64,
    },
    /// [`Code::RegistersMissing`]: the start needs registers that the recording does not contain.
    #[error("{reg} is not recorded")]
    RegistersMissing {
        /// The first missing register.
        reg: Reg,
    },
    /// [`Code::LbrDepth`]: the branch records end here.
    #[error("only {depth} branch records")]
    LbrDepth {
        /// Number of records.
        depth: u32,
    },
    /// [`Code::NoBranchRecords`]: the sample has no branch records.
    #[error("{}", Code::NoBranchRecords.description())]
    NoBranchRecords,
    /// [`Code::FrameLimit`]: the walk found more frames than the limit.
    #[error("more than {limit} frames")]
    FrameLimit {
        /// The limit, in frames.
        limit: u32,
    },
    /// [`Code::NotAtRoot`]: the walk ended, but nothing marks this frame as the root.
    #[error("{}", Code::NotAtRoot.description())]
    NotAtRoot,
    /// A kernel unwinder gave up.
    #[error("{0}")]
    Kernel(KernelReason),
}

/// Why a kernel unwinder gave up. Displayed with the kernel's own message if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelReason {
    /// [`Code::NotOnStack`]: no stack that may be visited contains this address.
    NotOnStack {
        /// The address.
        address: u64,
    },
    /// [`Code::StackRecursion`]: a word is on a stack that was already left.
    Recursion {
        /// The type of the stack (`enum stack_type`).
        stack: u8,
    },
    /// [`Code::CannotAccessRegs`]: the entry says that registers were saved, but there is no stack at that address.
    CannotAccessRegs {
        /// Whether only the iret frame was saved.
        partial: bool,
        /// The address that the entry covers.
        ip: u64,
    },
    /// [`Code::UndefinedByTable`]: the entry says that nothing is known.
    Undefined {
        /// The address that the entry covers.
        ip: u64,
    },
    /// [`Code::RegisterNotCarried`]: the entry needs an unknown register.
    MissingReg {
        /// The register.
        reg: Reg,
        /// The address that the entry covers.
        ip: u64,
    },
    /// [`Code::MalformedRow`]: the entry is invalid.
    BadEntry {
        /// The invalid part.
        what: &'static str,
        /// The address that the entry covers.
        ip: u64,
    },
    /// [`Code::SpDidNotAdvance`]: sp did not advance on its stack.
    WrongDirection {
        /// The address that the entry covers.
        ip: u64,
    },
    /// [`Code::BadFramePointer`]: a frame pointer does not lead up the stacks.
    BadFramePointer {
        /// The address of the frame or of the saved registers that contain the frame pointer.
        frame: u64,
        /// Whether it is in saved registers.
        in_regs: bool,
        /// The frame pointer.
        value: u64,
    },
    /// [`Code::OnOtherCpu`]: the stack may change while it is read.
    OtherCpu,
}

impl KernelReason {
    const fn code(self) -> Code {
        match self {
            KernelReason::NotOnStack { .. } => Code::NotOnStack,
            KernelReason::Recursion { .. } => Code::StackRecursion,
            KernelReason::CannotAccessRegs { .. } => Code::CannotAccessRegs,
            KernelReason::Undefined { .. } => Code::UndefinedByTable,
            KernelReason::MissingReg { .. } => Code::RegisterNotCarried,
            KernelReason::BadEntry { .. } => Code::MalformedRow,
            KernelReason::WrongDirection { .. } => Code::SpDidNotAdvance,
            KernelReason::BadFramePointer { .. } => Code::BadFramePointer,
            KernelReason::OtherCpu => Code::OnOtherCpu,
        }
    }
}

impl fmt::Display for KernelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            KernelReason::NotOnStack { address } => {
                write!(f, "{address:#x} is not on any stack of this task")
            }
            KernelReason::Recursion { stack } => {
                write!(f, "WARNING: stack recursion on stack type {stack}")
            }
            KernelReason::CannotAccessRegs { partial, ip } => {
                let which = if partial {
                    "iret registers"
                } else {
                    "registers"
                };
                write!(f, "WARNING: can't access {which} at {ip:#x}")
            }
            KernelReason::Undefined { ip } => write!(f, "the entry for {ip:#x} is undefined"),
            KernelReason::MissingReg { reg, ip } => {
                // The kernel's own spelling, which differs from register to register.
                let name = match reg {
                    Reg::Rdi => "RDI",
                    Reg::Rdx => "DX",
                    Reg::R10 => "R10",
                    Reg::R13 => "R13",
                    other => return write!(f, "WARNING: missing {other} value at {ip:#x}"),
                };
                write!(f, "WARNING: missing {name} value at {ip:#x}")
            }
            KernelReason::BadEntry { what, ip } => write!(f, "WARNING: {what} at {ip:#x}"),
            KernelReason::WrongDirection { ip } => {
                write!(f, "WARNING: stack going in the wrong direction? at {ip:#x}")
            }
            KernelReason::BadFramePointer {
                frame,
                in_regs: true,
                value,
            } => write!(
                f,
                "WARNING: kernel stack regs at {frame:#x} has bad 'bp' value {value:#x}"
            ),
            KernelReason::BadFramePointer { frame, value, .. } => write!(
                f,
                "WARNING: kernel stack frame pointer at {frame:#x} has bad value {value:#x}"
            ),
            KernelReason::OtherCpu => f.write_str(self.code().description()),
        }
    }
}

impl Reason {
    /// The stable code of this reason.
    pub const fn code(self) -> Code {
        match self {
            Reason::RootReached => Code::RootReached,
            Reason::NoImage { .. } => Code::NoImage,
            Reason::NoTable { .. } => Code::NoTable,
            Reason::NoRow { .. } | Reason::NotHeld { .. } => Code::NoRow,
            Reason::UndefinedByTable { .. } => Code::UndefinedByTable,
            Reason::MalformedRow { .. } => Code::MalformedRow,
            Reason::RegisterNotCarried { .. } => Code::RegisterNotCarried,
            Reason::ExpressionFailed { .. } => Code::ExpressionFailed,
            Reason::Memory(MemoryError::Unmapped { .. }) => Code::Unmapped,
            Reason::Memory(MemoryError::BeyondCopy { .. }) => Code::BeyondCopy,
            Reason::Memory(MemoryError::BelowCopy { .. }) => Code::BelowCopy,
            Reason::SpDidNotAdvance { .. } => Code::SpDidNotAdvance,
            Reason::Cycle { .. } => Code::Cycle,
            Reason::NotText { .. } => Code::NotText,
            Reason::RegistersMissing { .. } => Code::RegistersMissing,
            Reason::LbrDepth { .. } => Code::LbrDepth,
            Reason::NoBranchRecords => Code::NoBranchRecords,
            Reason::FrameLimit { .. } => Code::FrameLimit,
            Reason::NotAtRoot => Code::NotAtRoot,
            Reason::Kernel(reason) => reason.code(),
        }
    }
}

#[cfg(test)]
mod tests;
