//! What a function's rows claim: by the convention of its code, or as the user chooses.

use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::Value;

/// The claims of a row that are judged. The CFA is always one of them: all others refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claims {
    /// The return address.
    pub return_address: bool,
    /// Bit n: register n of [`Reg::CALLEE_SAVED`] is unchanged if the row has no rule for it.
    implied: u8,
    /// Bit n: what the row has a rule for.
    explicit: u8,
    /// How many bytes below rsp are left alone by signals. What a slot below these has, is not proven.
    pub red_zone: i32,
}

/// The size of the red zone, bytes (psABI, section 3.2.2).
pub const RED_ZONE: i32 = 128;

impl Claims {
    /// Those of a function of `convention`.
    pub fn of(convention: Convention) -> Claims {
        Claims {
            return_address: true,
            implied: bits(convention.claims()),
            explicit: bits(RegMask::CALLEE_SAVED),
            red_zone: RED_ZONE,
        }
    }

    /// The CFA, the return address if wanted, and these registers, whether the row has rules for them
    /// or not.
    pub fn chosen(return_address: bool, registers: RegMask) -> Claims {
        Claims {
            return_address,
            implied: bits(registers),
            explicit: bits(registers),
            red_zone: RED_ZONE,
        }
    }

    /// The same in a kernel, which has no red zone: interrupts push onto the stack that they find.
    #[must_use]
    pub fn in_kernel(self) -> Claims {
        Claims {
            red_zone: 0,
            ..self
        }
    }

    /// The names of what is always claimed: `cfa`, `ra`, and registers.
    pub fn names(&self) -> Vec<&'static str> {
        let address = self.return_address.then_some("ra");
        let registers = Reg::CALLEE_SAVED.into_iter().enumerate();
        let claimed = registers.filter(|(number, _)| self.implied & 1 << number != 0);
        let claimed = claimed.map(|(_, reg)| reg.as_str());
        std::iter::once("cfa")
            .chain(address)
            .chain(claimed)
            .collect()
    }

    /// Whether `value`, the row's rule for register `number` of [`Reg::CALLEE_SAVED`], is claimed.
    #[inline]
    pub fn has(&self, number: usize, value: Value) -> bool {
        let claimed = match value {
            Value::Unspecified => self.implied,
            _ => self.explicit,
        };
        claimed & 1 << number != 0
    }
}

fn bits(registers: RegMask) -> u8 {
    let numbered = (0..).zip(Reg::CALLEE_SAVED);
    let claimed = numbered.filter(|(_, reg)| registers.contains(*reg));
    claimed.fold(0, |bits, (number, _): (u8, _)| bits | 1 << number)
}

/// What the user chooses instead of what the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserChoice {
    /// The convention of all functions.
    pub convention: Option<Convention>,
    /// The claims that are judged in all functions.
    pub claims: Option<Claims>,
}

impl UserChoice {
    /// The convention of a function of which the file says `said`.
    pub fn convention(&self, said: (Convention, Evidence)) -> (Convention, Evidence) {
        match self.convention {
            Some(convention) => (convention, Evidence::Given),
            None => said,
        }
    }

    /// The claims of the rows of a function of `convention`.
    pub fn claims(&self, convention: Convention) -> Claims {
        self.claims.unwrap_or_else(|| Claims::of(convention))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_has_a_rule_for_is_claimed_in_every_convention() {
        for convention in Convention::ALL {
            let claims = Claims::of(convention);
            let said = [Value::Same, Value::at_cfa(-16), Value::reg(Reg::Rbx, 0)];
            let all = said
                .iter()
                .all(|&value| (0..6).all(|n| claims.has(n, value)));
            assert!(all && claims.return_address, "{}", convention.as_str());
        }
    }

    #[test]
    fn a_row_without_a_rule_claims_what_the_convention_keeps() {
        let implied = |claims: Claims| {
            (0..6)
                .filter(|&n| claims.has(n, Value::Unspecified))
                .count()
        };
        let by = |convention| implied(Claims::of(convention));
        assert_eq!(by(Convention::SystemV), 6);
        assert_eq!((by(Convention::Go), by(Convention::Ocaml)), (0, 0));
        assert_eq!(by(Convention::Zig), 1);
        assert!(
            Claims::of(Convention::Zig).has(1, Value::Unspecified),
            "rbp"
        );
        let rbp = Claims::chosen(false, RegMask::of(&[Reg::Rbp]));
        assert_eq!((implied(rbp), rbp.return_address), (1, false));
        assert!(!rbp.has(0, Value::at_cfa(-16)));
    }
}
