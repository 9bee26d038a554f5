//! Selects the instance of a generic function for an instruction's condition.

/// The function for one of the 16 conditions.
macro_rules! by_condition {
    ($insn:expr, $run:ident $(, $parameter:tt)*) => {
        match $insn.condition_code() as u8 {
            1 => $run::<0 $(, $parameter)*>,
            2 => $run::<1 $(, $parameter)*>,
            3 => $run::<2 $(, $parameter)*>,
            4 => $run::<3 $(, $parameter)*>,
            5 => $run::<4 $(, $parameter)*>,
            6 => $run::<5 $(, $parameter)*>,
            7 => $run::<6 $(, $parameter)*>,
            8 => $run::<7 $(, $parameter)*>,
            9 => $run::<8 $(, $parameter)*>,
            10 => $run::<9 $(, $parameter)*>,
            11 => $run::<10 $(, $parameter)*>,
            12 => $run::<11 $(, $parameter)*>,
            13 => $run::<12 $(, $parameter)*>,
            14 => $run::<13 $(, $parameter)*>,
            15 => $run::<14 $(, $parameter)*>,
            16 => $run::<15 $(, $parameter)*>,
            _ => return None,
        }
    };
}
pub(super) use by_condition;
