//! What is lost when a row is translated from one format to another.

macro_rules! losses {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        /// A part of a row that a format cannot hold.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Loss { $(#[doc = $text] $name,)* }

        impl Loss {
            /// All losses, in order.
            pub const ALL: &[Loss] = &[$(Loss::$name),*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Loss::$name => $word),* }
            }

            /// A short description for display.
            pub const fn description(self) -> &'static str {
                match self { $(Loss::$name => $text),* }
            }
        }
    };
}

losses! {
    CfaRegister = "cfa-register", "the CFA is based on a register that the format cannot express";
    CfaOffset = "cfa-offset", "the CFA's offset does not fit, or this base register allows none";
    CfaLoad = "cfa-load", "the CFA is loaded from memory in a way that the format cannot express";
    CfaExpression = "cfa-expression", "the CFA is an expression";
    CfaUndefined = "cfa-undefined", "the CFA has no rule";
    RaSlot = "ra-slot", "the return address is not at CFA - 8";
    RaRegister = "ra-register", "the return address is in a register";
    RaExpression = "ra-expression", "the return address is given by an expression";
    RaUndefined = "ra-undefined", "the return address is lost, but the format can only place it";
    SpRule = "sp-rule", "the caller's sp is not the CFA";
    RbpUndefined = "rbp-undefined", "rbp is lost, but the format can only leave it unchanged";
    RbpRule = "rbp-rule", "the format cannot express rbp's rule";
    RbpOffset = "rbp-offset", "rbp's offset does not fit";
    RbpExpression = "rbp-expression", "rbp is given by an expression";
    SignalFrame = "signal-frame", "the registers are in a signal frame, not in a struct pt_regs";
    TooManyRows = "too-many-rows", "the function has more rows than the format can count";
    TooLarge = "too-large", "the function is larger than the format can express";
    CalleeSaved = "callee-saved", "the row omits rbx and r12 to r15, as the format always does";
}

/// What a rule lost in translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// What the format could not hold. If set, the rule is `NO_ROW`.
    pub(crate) row: Option<Loss>,
    /// Whether registers that the format never holds were left out.
    pub(crate) registers: bool,
}

/// The number of rows with each loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses([u32; Loss::ALL.len()]);

impl Losses {
    /// Adds `rows` to the count of rows with this loss.
    pub(super) fn add(&mut self, loss: Loss, rows: u32) {
        let count = &mut self.0[loss as usize];
        *count = count.saturating_add(rows);
    }

    pub(super) fn add_all(&mut self, other: &Losses) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            // The sum if it does not overflow. Written like this, all are added at once.
            let sum = count.wrapping_add(more);
            *count = if sum < more { u32::MAX } else { sum };
        }
    }

    /// The number of rows with this loss.
    pub fn count(&self, loss: Loss) -> u32 {
        self.0[loss as usize]
    }

    /// The number of rows missing from the derived table. [`Loss::CalleeSaved`] costs no row.
    pub fn rows_lost(&self) -> u32 {
        self.iter()
            .filter(|(loss, _)| *loss != Loss::CalleeSaved)
            .fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The losses that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u32)> {
        let all = Loss::ALL.iter().map(|&loss| (loss, self.count(loss)));
        all.filter(|(_, count)| *count != 0)
    }
}

/// What was derived for an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Derived {
    /// Rows read from `.eh_frame`.
    pub rows: u32,
    /// What they lost.
    pub losses: Losses,
}

impl Derived {
    /// Counts a row.
    pub(super) fn count(&mut self, lost: Lost) {
        self.rows = self.rows.saturating_add(1);
        if let Some(loss) = lost.row {
            self.losses.add(loss, 1);
        }
        // Without a branch: about as many rows omit registers as do not.
        self.losses.add(Loss::CalleeSaved, lost.registers.into());
    }

    pub(super) fn add(&mut self, other: &Derived) {
        self.rows = self.rows.saturating_add(other.rows);
        self.losses.add_all(&other.losses);
    }
}
