//! Why two rows disagree.

/// How grave a disagreement is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Gravity {
    /// The rows say the same in different terms, or nobody can tell from the tables.
    Form,
    /// One table has no row, although its format could express the other's.
    Missing,
    /// The rows cannot both be right.
    Contradiction,
}

impl Gravity {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Gravity::Form => "form",
            Gravity::Missing => "missing",
            Gravity::Contradiction => "contradiction",
        }
    }
}

macro_rules! causes {
    ($($name:ident = $word:literal, $gravity:ident, $text:literal;)*) => {
        /// Why two rows disagree.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Cause { $(#[doc = $text] $name,)* }

        impl Cause {
            /// All causes, in order.
            pub const ALL: &[Cause] = &[$(Cause::$name),*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Cause::$name => $word),* }
            }

            /// A short description for display.
            pub const fn description(self) -> &'static str {
                match self { $(Cause::$name => $text),* }
            }

            /// How grave it is.
            pub const fn gravity(self) -> Gravity {
                match self { $(Cause::$name => Gravity::$gravity),* }
            }
        }
    };
}

causes! {
    CfaOffset = "cfa-offset", Contradiction, "the CFA has another offset from the same register";
    CfaUnchanged = "cfa-unchanged-register", Contradiction,
        "the CFA depends on a register that still has the caller's value in the other table";
    CfaDistance = "cfa-distance", Contradiction,
        "the CFAs depend on two registers, whose distance in the code is another";
    CfaRegister = "cfa-register", Form, "the CFAs depend on different registers";
    CfaForm = "cfa-form", Form, "one CFA is computed, the other loaded or an expression";
    Root = "root", Contradiction, "one row marks the outermost frame, the other has a caller";
    Kind = "kind", Form, "the frames are of different kinds";
    Signal = "signal", Contradiction, "only one row marks a signal frame";
    ReturnAddress = "return-address", Contradiction, "the return address is somewhere else";
    ReturnAddressForm = "return-address-form", Form,
        "one return address is an expression, or has no rule";
    Sp = "sp", Contradiction, "the caller's sp is another";
    SpForm = "sp-form", Form, "one of the caller's sps is an expression";
    RegisterLost = "register-lost", Contradiction,
        "a callee-saved register is lost in one table, and has a value in the other";
    Register = "register", Contradiction, "a callee-saved register is somewhere else";
    RegisterForm = "register-form", Form,
        "a callee-saved register is an expression in one table, or was saved but not changed yet";
    MissingRow = "missing-row", Missing, "one table has no row, but could have it";
    MissingFunction = "missing-function", Missing, "one table does not have the function";
    Unread = "unread", Contradiction,
        "the row is behind the end of the table, as after concatenating sections";
    Malformed = "malformed", Contradiction, "one table is malformed here";
}

/// A set of causes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Causes(u32);

const _: () = assert!(Cause::ALL.len() <= u32::BITS as usize);

impl Causes {
    /// The empty set: the rows do not differ.
    pub const NONE: Causes = Causes(0);

    /// Only this one.
    pub const fn one(cause: Cause) -> Causes {
        Causes(1 << cause as u32)
    }

    /// Adds a cause.
    pub const fn add(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u32;
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this cause is among them.
    pub const fn has(self, cause: Cause) -> bool {
        self.0 & 1 << cause as u32 != 0
    }

    /// The causes, in order.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        let all = Cause::ALL.iter().copied();
        all.filter(move |cause| self.has(*cause))
    }

    /// That of the gravest.
    pub fn gravity(self) -> Option<Gravity> {
        self.iter().map(Cause::gravity).max()
    }
}
