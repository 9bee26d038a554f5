//! Conventions of code: which registers of its caller a function keeps, and what its unwind tables
//! claim because of that.
//!
//! A table that has no rule for a register says that the register is unchanged only if the function
//! has to keep it (DWARF 5, 6.4.1: the ABI decides what no rule means). So what such a row claims
//! depends on the convention of the code. Without evidence of another one it is System V's.
//! Evidence in ELF files is read in `elf::conventions`, evidence in symbols in `symbols`.

pub mod gopclntab;
pub mod spans;
mod symbols;

pub use spans::{Conventions, Span};
pub use symbols::{Named, by_symbols};

use crate::regs::{Reg, RegMask};
use crate::rule::{Rule, Value};

/// How functions treat the registers of their callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Convention {
    /// The x86-64 psABI's: rbx, rbp and r12 to r15 are kept.
    #[default]
    SystemV = 0,
    /// Go's ABIInternal and ABI0 (Go `src/cmd/compile/abi-internal.md`): rbp is kept, but Go's
    /// tables have no rules for registers.
    Go = 1,
    /// OCaml's (OCaml `asmcomp/amd64/proc.ml`, `destroyed_at_oper`): nothing is kept.
    Ocaml = 2,
    /// GHC's: code jumps with its frame on another stack, whose pointer is rbp. Its functions have
    /// no return address at rsp.
    Ghc = 3,
    /// That of Zig's own code generator for functions that are not exported: rbp is kept.
    Zig = 4,
    /// Microsoft's x64 convention (`ms_abi`): System V's registers, rdi and rsi are kept.
    Ms = 5,
    /// Clang's `preserve_most`: all general registers but r11 and the result are kept.
    PreserveMost = 6,
    /// Clang's `preserve_all`: like `preserve_most`, and vector registers.
    PreserveAll = 7,
    /// `__regcall`: System V's registers are kept.
    Regcall = 8,
    /// Clang's `preserve_none`: rbp is kept.
    PreserveNone = 9,
}

/// rbp.
const RBP: RegMask = RegMask::of(&[Reg::Rbp]);
/// The registers that the psABI's functions keep, apart from rsp.
const SYSTEM_V: RegMask = RegMask::of(&Reg::CALLEE_SAVED);
/// Those that a `preserve_most` function keeps.
const MOST: RegMask = RegMask::of(&[
    Reg::Rbx,
    Reg::Rbp,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
    Reg::Rcx,
    Reg::Rdx,
    Reg::Rsi,
    Reg::Rdi,
    Reg::R8,
    Reg::R9,
    Reg::R10,
]);
/// Those that a function of Microsoft's convention keeps.
const MS: RegMask = RegMask::of(&[
    Reg::Rbx,
    Reg::Rbp,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
    Reg::Rsi,
    Reg::Rdi,
]);

impl Convention {
    /// All conventions, by number.
    pub const ALL: [Convention; 10] = [
        Convention::SystemV,
        Convention::Go,
        Convention::Ocaml,
        Convention::Ghc,
        Convention::Zig,
        Convention::Ms,
        Convention::PreserveMost,
        Convention::PreserveAll,
        Convention::Regcall,
        Convention::PreserveNone,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Convention::SystemV => "system-v",
            Convention::Go => "go",
            Convention::Ocaml => "ocaml",
            Convention::Ghc => "ghc",
            Convention::Zig => "zig",
            Convention::Ms => "ms",
            Convention::PreserveMost => "preserve-most",
            Convention::PreserveAll => "preserve-all",
            Convention::Regcall => "regcall",
            Convention::PreserveNone => "preserve-none",
        }
    }

    /// The convention with this name.
    pub fn from_name(name: &str) -> Option<Convention> {
        Self::ALL.into_iter().find(|c| c.as_str() == name)
    }

    /// What its tables claim, for display.
    pub const fn description(self) -> &'static str {
        match self {
            Convention::SystemV | Convention::Regcall => {
                "the CFA, the return address, and rbx, rbp, r12 to r15"
            }
            Convention::Go | Convention::Ocaml => {
                "the CFA, the return address, and registers that a row has a rule for"
            }
            Convention::Zig | Convention::PreserveNone => {
                "the CFA, the return address, rbp, and registers that a row has a rule for"
            }
            Convention::Ms | Convention::PreserveMost | Convention::PreserveAll => {
                "the CFA, the return address, and rbx, rbp, r12 to r15; \
                 the other registers that it keeps are not checked"
            }
            Convention::Ghc => "a frame on another stack, which is not checked",
        }
    }

    /// The registers that a function has for its caller when it returns, apart from rsp.
    pub const fn preserves(self) -> RegMask {
        match self {
            Convention::SystemV | Convention::Regcall => SYSTEM_V,
            Convention::Go | Convention::Zig | Convention::PreserveNone => RBP,
            Convention::Ocaml | Convention::Ghc => RegMask::NONE,
            Convention::Ms => MS,
            Convention::PreserveMost | Convention::PreserveAll => MOST,
        }
    }

    /// The registers of [`Reg::CALLEE_SAVED`] that a row claims to be unchanged if it has no rule
    /// for them. What a row has a rule for, it claims in every convention.
    pub const fn claims(self) -> RegMask {
        match self {
            // Go's functions keep rbp, but none of its tables says where.
            Convention::Go | Convention::Ocaml | Convention::Ghc => RegMask::NONE,
            Convention::Zig | Convention::PreserveNone => RBP,
            Convention::SystemV
            | Convention::Regcall
            | Convention::Ms
            | Convention::PreserveMost
            | Convention::PreserveAll => SYSTEM_V,
        }
    }

    /// Whether a row with `value` for a register claims anything about it. `is_dwarf`: the row's
    /// table has words for an unchanged register and for none; in SFrame and ORC, both are the
    /// same.
    pub const fn is_claimed(self, reg: Reg, value: Value, is_dwarf: bool) -> bool {
        match value {
            Value::Undefined => false,
            Value::Unspecified => self.claims().contains(reg),
            Value::Same if !is_dwarf => self.claims().contains(reg),
            _ => true,
        }
    }

    /// `rule` as far as it claims anything in a function of this convention: of other registers it
    /// says that they are lost. `is_dwarf`: see [`Convention::is_claimed`].
    pub fn claimed(self, rule: &Rule, is_dwarf: bool) -> Rule {
        let mut claimed = *rule;
        for (value, reg) in claimed.saved.iter_mut().zip(Reg::CALLEE_SAVED) {
            if !self.is_claimed(reg, *value, is_dwarf) {
                *value = Value::Undefined;
            }
        }
        claimed
    }

    /// Whether its functions are called, with the return address on top of the stack.
    pub const fn is_called(self) -> bool {
        !matches!(self, Convention::Ghc)
    }
}

/// What says of which convention code is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Evidence {
    /// Nothing in the file says anything else than System V.
    #[default]
    Nothing = 0,
    /// Symbols that mark where a compiler's code starts and ends.
    Symbols = 1,
    /// Go's table of functions, `.gopclntab`.
    GoFunctions = 2,
    /// `DW_AT_producer` of the compilation unit.
    Producer = 3,
    /// `DW_AT_calling_convention` or `DW_AT_external` of the function.
    Function = 4,
    /// The user said so.
    Given = 5,
}

impl Evidence {
    /// All of them, by number.
    pub const ALL: [Evidence; 6] = [
        Evidence::Nothing,
        Evidence::Symbols,
        Evidence::GoFunctions,
        Evidence::Producer,
        Evidence::Function,
        Evidence::Given,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Evidence::Nothing => "none",
            Evidence::Symbols => "symbols",
            Evidence::GoFunctions => "gopclntab",
            Evidence::Producer => "producer",
            Evidence::Function => "function",
            Evidence::Given => "given",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Evidence::Nothing => "nothing in the file says otherwise",
            Evidence::Symbols => "symbols mark the compiler's code",
            Evidence::GoFunctions => ".gopclntab lists them",
            Evidence::Producer => "DW_AT_producer of their units",
            Evidence::Function => "DWARF says so of the functions",
            Evidence::Given => "--abi",
        }
    }
}

#[cfg(test)]
mod tests;
