//! Corruptions of a recorded sample: `memory:`, `set:` and `forget:` lines.
//!
//! This module reads their text; the harness evaluates and applies them.

use super::error::CaseErrorKind;
use super::sample::PointKey;
use unwind_sim_unwind::regs::Reg;

/// What an operand starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Zero, for a plain number.
    Zero,
    /// The sampled value of a register, before any corruption of this point.
    Register(Reg),
    /// The address of a symbol, as mapped.
    Symbol(String),
}

/// An address or a value: `0x1234`, `rsp+8`, `leaf-0x10`. All sums wrap at 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The base.
    pub base: Base,
    /// The offset in bytes, added to the base.
    pub offset: u64,
}

impl Operand {
    /// Reads an operand.
    ///
    /// # Errors
    /// [`CaseErrorKind::BadOperand`] if the text is not a number, a register or a symbol, with or
    /// without an offset.
    pub fn parse(text: &str) -> Result<Self, CaseErrorKind> {
        let bad = || CaseErrorKind::BadOperand {
            text: text.to_owned(),
        };

        // No register or symbol starts with a digit.
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let offset = parse_number(text).ok_or_else(bad)?;
            return Ok(Self {
                base: Base::Zero,
                offset,
            });
        }

        // No register or symbol has a sign in its name.
        let (name, offset) = match text.find(['+', '-']) {
            Some(at) => {
                let size = parse_number(text[at + 1..].trim()).ok_or_else(bad)?;

                // Addresses wrap around, so a negative offset can be added like any other.
                let minus = text[at..].starts_with('-');
                (
                    text[..at].trim(),
                    if minus { size.wrapping_neg() } else { size },
                )
            }
            None => (text, 0),
        };

        let base = match Reg::from_name(name) {
            Some(register) => Base::Register(register),
            None if is_symbol(name) => Base::Symbol(name.to_owned()),
            None => return Err(bad()),
        };

        Ok(Self { base, offset })
    }
}

/// A word or register that is overwritten in the recorded sample, after its truth was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// What is overwritten.
    pub target: Target,
    /// The new 64-bit value.
    pub value: Operand,
    /// The sample that is corrupted.
    pub point: PointKey,
}

/// What a corruption overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The eight bytes at an address.
    Memory(Operand),
    /// A register.
    Register(Reg),
    /// A register of the sampled set, if the sample has two sets for a fake start: `sampled.rsp`.
    Sampled(Reg),
}

impl Corruption {
    /// The form of `memory:`, for messages and the documentation.
    pub const MEMORY_FORM: &str = "memory: rbp+8 = 0x1234 @LABEL";
    /// The form of `set:`.
    pub const SET_FORM: &str = "set: rbp = rsp+16 @LABEL";

    /// Reads the value of a `memory:` line, or else of a `set:` line.
    pub(crate) fn parse(is_memory: bool, text: &str) -> Result<Self, CaseErrorKind> {
        let (key, form) = if is_memory {
            ("memory", Self::MEMORY_FORM)
        } else {
            ("set", Self::SET_FORM)
        };
        let bad = || CaseErrorKind::BadCorruption { key, form };

        // From the right: a point has no `@`.
        let (assignment, point) = text.rsplit_once('@').ok_or_else(bad)?;
        let (target, value) = assignment.split_once('=').ok_or_else(bad)?;
        let target = target.trim();

        // docs/case-format.md: at a fake point, only `sampled.` means the registers of the sample.
        let sampled = target.strip_prefix("sampled.").and_then(Reg::from_name);
        if let (false, Some(register)) = (is_memory, sampled) {
            return Ok(Self {
                target: Target::Sampled(register),
                value: Operand::parse(value.trim())?,
                point: PointKey::parse(point.trim())?,
            });
        }

        let target = Operand::parse(target)?;

        // A register is overwritten as a whole: with an offset, it would be an address.
        let target = match (is_memory, target) {
            (true, address) => Target::Memory(address),
            (
                false,
                Operand {
                    base: Base::Register(register),
                    offset: 0,
                },
            ) => Target::Register(register),
            (false, _) => return Err(bad()),
        };

        let value = Operand::parse(value.trim())?;
        Ok(Self {
            target,
            value,
            point: PointKey::parse(point.trim())?,
        })
    }
}

/// Registers that are removed from a recorded sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The registers, at least one.
    pub registers: Vec<Reg>,
    /// The sample without them; for a fake one, its own registers are affected.
    pub point: PointKey,
}

impl Forgotten {
    /// The form of `forget:`.
    pub const FORM: &str = "forget: rbx r12 @LABEL";

    /// Reads the value of a `forget:` line.
    pub(crate) fn parse(text: &str) -> Result<Self, CaseErrorKind> {
        let bad = || CaseErrorKind::BadCorruption {
            key: "forget",
            form: Self::FORM,
        };
        let (registers, point) = text.rsplit_once('@').ok_or_else(bad)?;
        let registers: Vec<Reg> = registers
            .split_whitespace()
            .map(Reg::from_name)
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        if registers.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            registers,
            point: PointKey::parse(point.trim())?,
        })
    }
}

/// Reads a decimal number, or a hexadecimal one with `0x`.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain {
        u64::from_str_radix(digits, radix).ok()
    } else {
        None
    }
}

/// Whether the assembler accepts this as a symbol.
pub(crate) fn is_symbol(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'_' | b'.' | b'$');
    text.bytes().next().is_some_and(letter) && text.bytes().all(|b| letter(b) || b.is_ascii_digit())
}
