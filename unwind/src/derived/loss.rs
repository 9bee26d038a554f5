//! What is lost on the way from one format into another.

macro_rules! losses {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        /// What a format cannot hold of a row.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Loss { $(#[doc = $text] $name,)* }

        impl Loss {
            /// All of them, in order.
            pub const ALL: &[Loss] = &[$(Loss::$name),*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Loss::$name => $word),* }
            }

            /// A few words for people.
            pub const fn description(self) -> &'static str {
                match self { $(Loss::$name => $text),* }
            }
        }
    };
}

losses! {
    CfaRegister = "cfa-register", "the CFA hangs on a register that the format does not know";
    CfaOffset = "cfa-offset", "the CFA's offset does not fit, or this base takes none";
    CfaLoad = "cfa-load", "the CFA is loaded from memory in a way that the format does not know";
    CfaExpression = "cfa-expression", "the CFA is an expression";
    CfaUndefined = "cfa-undefined", "the CFA has no rule";
    RaSlot = "ra-slot", "the return address is not at CFA - 8";
    RaRegister = "ra-register", "the return address is in a register";
    RaExpression = "ra-expression", "the return address is found by an expression";
    SpRule = "sp-rule", "the caller's sp is not the CFA";
    RbpUndefined = "rbp-undefined", "rbp is lost, but the format can only leave it unchanged";
    RbpRule = "rbp-rule", "rbp's rule is not one that the format knows";
    RbpOffset = "rbp-offset", "rbp's offset does not fit";
    RbpExpression = "rbp-expression", "rbp is found by an expression";
    SignalFrame = "signal-frame", "the registers lie in a signal frame, not in a struct pt_regs";
    TooManyRows = "too-many-rows", "the function has more rows than the format can count";
    TooLarge = "too-large", "the function is larger than the format can say";
    CalleeSaved = "callee-saved", "the row goes on without rbx or r12 to r15, by the format's design";
}

/// What was lost of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// What could not be held; then the rule is that of no row.
    pub(crate) row: Option<Loss>,
    /// Were registers left out that the format never holds?
    pub(crate) registers: bool,
}

/// How many rows lost what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses([u32; Loss::ALL.len()]);

impl Losses {
    /// Counts rows with this loss.
    pub(super) fn add(&mut self, loss: Loss, rows: u32) {
        let count = &mut self.0[loss as usize];
        *count = count.saturating_add(rows);
    }

    pub(super) fn add_all(&mut self, other: &Losses) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Rows with this loss.
    pub fn count(&self, loss: Loss) -> u32 {
        self.0[loss as usize]
    }

    /// Rows that the derived table does not have. [`Loss::CalleeSaved`] costs no row.
    pub fn rows_lost(&self) -> u32 {
        self.iter()
            .filter(|(loss, _)| *loss != Loss::CalleeSaved)
            .fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// What was lost at all, with its count.
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
    /// What became of them.
    pub losses: Losses,
}

impl Derived {
    /// Counts a row.
    pub(super) fn count(&mut self, lost: Lost) {
        self.rows = self.rows.saturating_add(1);
        if let Some(loss) = lost.row {
            self.losses.add(loss, 1);
        }
        if lost.registers {
            self.losses.add(Loss::CalleeSaved, 1);
        }
    }

    pub(super) fn add(&mut self, other: &Derived) {
        self.rows = self.rows.saturating_add(other.rows);
        self.losses.add_all(&other.losses);
    }
}
