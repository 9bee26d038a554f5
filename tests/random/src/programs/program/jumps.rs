//! Calls whose return address no call instruction makes, or moves: which there are, and how they are
//! chosen.

use super::{Function, Generator, Statement};

/// How a return address gets onto the stack without a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnAddressPush {
    /// `push` of a register.
    Push,
    /// `push` of an immediate.
    Immediate,
    /// Room is made, and it is stored there.
    Store,
    /// It is stored below rsp, and rsp is lowered.
    Below,
    /// It is exchanged with the word at rsp.
    Swap,
}

/// Where the return address of a call without a call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnSite {
    /// Right behind the jump: then it is certainly one.
    Near,
    /// Farther behind it.
    Far,
    /// Before it.
    Before,
}

/// What a function that was called with the address of another one does with its own return
/// address, before it jumps there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnAddressSave {
    /// Pops it into memory, and lowers rsp again.
    Memory,
    /// Pops it into a register, and pushes it.
    Push,
    /// The same, with a jump in between.
    Jump,
    /// Exchanges it with a register, twice.
    Swap,
    /// Reads it, raises rsp by an addition, and pushes it.
    Read,
    /// Pops it into a register, by which the next function returns.
    Leave,
}

/// Whether a statement's frames cannot all be known when they are made for the first time. `reads`: the
/// program has code that reads its own address. Calls by call instructions are always known.
pub(super) fn is_doubtful(statement: &Statement, reads: bool) -> bool {
    match statement {
        Statement::Planted { back, .. } => reads || *back != ReturnSite::Near,
        Statement::Kept { keep, .. } => reads || *keep == ReturnAddressSave::Leave,
        Statement::Linked { .. } => reads,
        _ => false,
    }
}

impl Generator {
    /// Adds calls by jumps.
    pub(super) fn add_jumps(&mut self, at: usize, function: &mut Function) {
        let Some(jumps) = self.jumps.take() else {
            return;
        };
        let rest = std::mem::replace(&mut self.rng, jumps);
        while self.rng.chance(1, 3) {
            if let Some(statement) = self.by_jump(at, function) {
                let place = self.rng.below(function.body.len() + 1);
                function.body.insert(place, statement);
            }
        }
        self.jumps = Some(std::mem::replace(&mut self.rng, rest));
    }

    /// A call of a function with a return address that no call makes, or that is moved.
    fn by_jump(&mut self, at: usize, function: &Function) -> Option<Statement> {
        // None, if no function is cheap enough to be called from here.
        let callee = self.callee(at, 1)?;
        Some(match self.rng.below(4) {
            0..=1 => {
                // What is listed more often is drawn more often.
                let back = self.rng.pick(&[
                    ReturnSite::Near,
                    ReturnSite::Near,
                    ReturnSite::Near,
                    ReturnSite::Far,
                    ReturnSite::Before,
                ]);
                let put = self.rng.pick(&[
                    ReturnAddressPush::Push,
                    ReturnAddressPush::Push,
                    ReturnAddressPush::Immediate,
                    ReturnAddressPush::Below,
                    ReturnAddressPush::Store,
                    ReturnAddressPush::Swap,
                ]);
                // A word stored at rsp passes for a local variable, if it happens to be aligned as
                // functions are.
                let is_stored = matches!(put, ReturnAddressPush::Store | ReturnAddressPush::Swap)
                    && back != ReturnSite::Near;
                Statement::Planted {
                    callee,
                    put: if is_stored {
                        ReturnAddressPush::Push
                    } else {
                        put
                    },
                    how: self.rng.chance(3, 4).then(|| self.how()),
                    back,
                }
            }
            2 => Statement::Linked {
                callee,
                register: (self.rng.chance(2, 3) && !function.saves.is_empty())
                    .then(|| self.rng.below(function.saves.len()) as u8),
                pops: self.rng.chance(1, 2),
            },
            _ => Statement::Kept {
                callee,
                keep: self.rng.pick(&[
                    ReturnAddressSave::Memory,
                    ReturnAddressSave::Push,
                    ReturnAddressSave::Jump,
                    ReturnAddressSave::Swap,
                    ReturnAddressSave::Read,
                    ReturnAddressSave::Leave,
                ]),
            },
        })
    }
}
