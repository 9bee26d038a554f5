//! What is known about one register or one word of the stack.

use std::fmt;
use unwind_sim_unwind::regs::Reg;

/// An abstract value. "At entry" means at the first instruction of the function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Value {
    /// Nothing is known; it may be any register's value at entry.
    #[default]
    Unknown,
    /// Different things on different ways that lead here, at least one of them of the kinds below.
    Varies,
    /// What the caller relies on, or what a store has put over it on a way that may not exist.
    Guessed,
    /// What a function of the same file that was called may have changed, against the convention.
    ByCallee,
    /// Computed or loaded by the function: not a value at entry, and not an address in its frame.
    Computed,
    /// The value of a register at entry, plus an offset. With rsp, an address in the frame.
    Entry {
        /// The register.
        reg: Reg,
        /// Offset, bytes.
        offset: i32,
    },
    /// The address that the function returns to, as its caller pushed it.
    ReturnAddress,
    /// The address that a call of a part of the function has pushed: it returns into the function.
    Inside,
    /// A known number, sign-extended.
    Const(i32),
    /// An address below the frame's known part: after rsp was aligned, or lowered by an unknown
    /// size.
    Below {
        /// The index of the [`Anchor`].
        anchor: u16,
        /// Offset from it, bytes.
        offset: i32,
    },
    /// A multiple of `1 << shift`, at most `max << shift`.
    Index {
        /// Binary logarithm of the factor.
        shift: u8,
        /// How many low bytes this says something about.
        width: u8,
        /// The largest factor.
        max: u32,
    },
    /// An entry of a jump table, as loaded.
    TableEntry {
        /// The index of the table.
        table: u16,
    },
    /// An entry of a table of distances, added to the address `base`.
    TableTarget {
        /// The index of the table.
        table: u16,
        /// Added to the entry.
        base: i32,
    },
}

const _: () = assert!(size_of::<Value>() == 8);

/// A stack address whose distance from the frame is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Anchor {
    /// `of & -align`.
    Aligned {
        /// The address before.
        of: Value,
        /// A power of two, bytes.
        align: u32,
    },
    /// The result of the instruction at this address (svma), which moved a stack address by an
    /// unknown size, as `alloca` does, or of a loop that begins there.
    Lowered {
        /// The address (svma).
        at: u64,
    },
}

impl Anchor {
    /// Whether its distance from the frame surely differs from call to call, so that no row with a
    /// fixed distance is right: rsp at entry is 8 modulo 16 (psABI, section 3.2.2).
    pub const fn varies(self) -> bool {
        match self {
            Anchor::Aligned { align, .. } => align > 16,
            // The size may be a constant that was not followed.
            Anchor::Lowered { .. } => false,
        }
    }
}

impl Value {
    /// The value of `reg` at entry.
    pub const fn entry(reg: Reg) -> Value {
        Value::Entry { reg, offset: 0 }
    }

    /// rsp at entry plus `offset`. The return address is at offset 0, and the CFA is offset 8.
    pub const fn frame(offset: i32) -> Value {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        }
    }

    /// The value plus a number. Nothing is known of addresses further away than 2 GiB: a sum may lead back.
    #[must_use]
    pub const fn plus(self, number: i64) -> Value {
        // Sums are made in 64 bits, and are dropped if they do not fit into 32.
        const fn add(offset: i32, number: i64) -> Option<i32> {
            let Some(sum) = (offset as i64).checked_add(number) else {
                return None;
            };
            if sum == sum as i32 as i64 {
                Some(sum as i32)
            } else {
                None
            }
        }

        if number == 0 {
            return self;
        }
        match self {
            // What is not known stays so, and for the same reason.
            Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee => self,
            // An address keeps its base: that is what rows are about.
            Value::Entry { reg, offset } => match add(offset, number) {
                Some(offset) => Value::Entry { reg, offset },
                None => Value::Unknown,
            },
            Value::Below { anchor, offset } => match add(offset, number) {
                Some(offset) => Value::Below { anchor, offset },
                None => Value::Unknown,
            },
            // A number that is too large is still a number, but not a known one.
            Value::Const(offset) => match add(offset, number) {
                Some(sum) => Value::Const(sum),
                None => Value::Computed,
            },
            _ => Value::Computed,
        }
    }

    /// Whether this is an address in the function's own part of the stack.
    pub const fn is_stack(self) -> bool {
        matches!(
            self,
            Value::Entry { reg: Reg::Rsp, .. } | Value::Below { .. }
        )
    }

    /// Whether this goes by the value that a register had at entry which the function has to keep.
    pub fn is_callers(self) -> bool {
        matches!(self, Value::Entry { reg, .. } if Reg::CALLEE_SAVED.contains(&reg))
    }

    /// Whether it is one number, or one address.
    pub const fn is_exact(self) -> bool {
        matches!(
            self,
            Value::Entry { .. } | Value::ReturnAddress | Value::Const(_) | Value::Below { .. }
        )
    }

    /// Whether it is an address on the stack, or may be something of the caller's: then computing with it
    /// may give such a value again.
    pub const fn is_vague(self) -> bool {
        self.is_stack()
            || matches!(
                self,
                Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee
            )
    }

    /// Whether it is what the caller relies on: a callee-saved register's value at entry, or the return
    /// address.
    pub const fn is_of_caller(self) -> bool {
        match self {
            Value::ReturnAddress => true,
            Value::Entry { reg, offset } => offset == 0 && is_callee_saved(reg),
            _ => false,
        }
    }

    /// Whether a slot with this value is worth remembering.
    pub const fn is_worth_keeping(self) -> bool {
        match self {
            Value::Entry { reg, offset } => {
                matches!(reg, Reg::Rsp) || offset == 0 && is_callee_saved(reg)
            }
            Value::ReturnAddress | Value::Inside | Value::Below { .. } | Value::Index { .. } => {
                true
            }
            // It may be any of these.
            Value::Unknown | Value::Guessed | Value::ByCallee => true,
            _ => false,
        }
    }

    /// The only bound that 32-bit code keeps: what is left of the value in the low four bytes,
    /// zero-extended.
    #[must_use]
    pub const fn low_half(self) -> Value {
        match self {
            Value::Unknown | Value::Guessed | Value::ByCallee => Value::Unknown,
            Value::Const(n) if n >= 0 => self,
            Value::Index {
                shift,
                width: 4..,
                max,
            } => Value::Index {
                shift,
                width: 8,
                max,
            },
            // `mov (%table), %eax; cltq`
            Value::TableEntry { .. } => self,
            _ => Value::Computed,
        }
    }
}

/// Whether a function must preserve `reg` (psABI, figure 3.4), apart from rsp.
pub const fn is_callee_saved(reg: Reg) -> bool {
    matches!(
        reg,
        Reg::Rbx | Reg::Rbp | Reg::R12 | Reg::R13 | Reg::R14 | Reg::R15
    )
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |f: &mut fmt::Formatter<'_>, offset: i64| match offset {
            0 => Ok(()),
            offset => write!(f, "{offset:+}"),
        };
        match *self {
            Value::Unknown => f.write_str("unknown"),
            Value::Varies => f.write_str("not the same on all ways that lead here"),
            Value::Entry {
                reg: Reg::Rsp,
                offset,
            } => {
                f.write_str("cfa")?;
                signed(f, i64::from(offset) - 8)
            }
            Value::Entry { reg, offset } => {
                write!(f, "{reg} at entry")?;
                signed(f, offset.into())
            }
            Value::Guessed => f.write_str("overwritten on a way that may not exist"),
            Value::Inside => f.write_str("an address in the function"),
            Value::ByCallee => f.write_str("changed by a function that was called"),
            Value::ReturnAddress => f.write_str("the return address"),
            Value::Const(n) => write!(f, "{n:#x}"),
            Value::Below { .. } => f.write_str("a stack address at an unknown distance"),
            Value::Computed
            | Value::Index { .. }
            | Value::TableEntry { .. }
            | Value::TableTarget { .. } => f.write_str("a value that the function computed"),
        }
    }
}
