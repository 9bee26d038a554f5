//! Finds the instructions of a block that have the outcome of the first one.

use super::{Code, HOOK, Head, Known, NO_EFFECT};
use crate::verify::claim::{Claim, Parts, RSP};
use crate::verify::numbered::NONE;
use unwind_sim_emulator::effects::{Stack, Stores};
use unwind_sim_unwind::insn::Insn;

impl Code {
    /// The index of the instruction after that at `index`, in the current block. An instruction of
    /// two operations has the index of the second one.
    #[inline]
    pub(in crate::verify) fn next_index(&self, index: u32) -> u32 {
        let at = self.met.current as usize + index as usize + 1;
        let is_first = self.instructions.get(at).is_some_and(|k| k.claims == NONE);
        index + 1 + u32::from(is_first)
    }

    /// The number of instructions from that at `index` on, in the current block, that all have its
    /// outcome: what each of them does to registers and the stack is what the claims say of the next
    /// one. They do not transfer control, and store nowhere but to an operand or by a push.
    #[inline]
    pub(in crate::verify) fn run(&mut self, index: u32) -> u32 {
        let run = self.known(index).map_or(1, |known| known.run);
        match run {
            0 => self.find_run(index),
            run => u32::from(run) - 1,
        }
    }

    /// The instructions from that at `index` on, at most `most`, up to the next one that stores or
    /// moves rsp: the index of the last one, and their number. They are in one [run](Code::run).
    #[inline]
    pub(in crate::verify) fn to_effect(&self, index: u32, most: u32) -> (u32, u32) {
        let (mut last, mut count) = (index, 1);
        while count < most {
            let next = self.next_index(last);
            let known = self.instructions.get((self.met.current + next) as usize);
            if known.is_none_or(|known| known.more != NO_EFFECT) {
                break;
            }
            (last, count) = (next, count + 1);
        }
        (last, count)
    }

    #[cold]
    fn find_run(&mut self, index: u32) -> u32 {
        let first = self.met.current as usize + index as usize;
        let (mut len, mut at) = (0, index);
        let mut before: Option<&Known> = None;
        while at < self.met.operations && len < u32::from(u8::MAX) - 1 {
            let known = &self.instructions[self.met.current as usize + at as usize];
            if known.claims == NONE {
                // What follows has not been executed yet.
                return len;
            }
            let effect = self.effect(known.effect());
            let is_quiet = match (known.class, effect.stack) {
                (Insn::Push, Stack::Push(_)) | (Insn::Pop, Stack::Pop(_)) => true,
                (Insn::MoveSp, _) => false,
                (Insn::Other, Stack::Add(_)) => true,
                (Insn::Other | Insn::Jump, _) => Parts::from(known.writes) & RSP == 0,
                _ => false,
            };
            if !is_quiet
                || known.effect() & HOOK != 0
                || !matches!(effect.stores, Stores::Nothing | Stores::At(_))
                || before.is_some_and(|before| !self.carries(before, known))
            {
                break;
            }
            len += 1;
            before = Some(known);
            at = self.next_index(at);
            if at == self.met.operations && !self.has_end() {
                return len;
            }
        }
        let last = before.copied();
        self.instructions[first].run = len as u8 + 1;
        if len > 1 && self.is_first(index) {
            self.note_first(index, len, last);
        }
        len
    }

    /// Whether no instruction of the current block is before that at `index`.
    fn is_first(&self, index: u32) -> bool {
        let first = self.instructions.get(self.met.current as usize);
        index == 0 || index == 1 && first.is_some_and(|known| known.claims == NONE)
    }

    /// The current block begins with a run of `len` instructions: the first one is at `index`, and
    /// `last` is the last one.
    fn note_first(&mut self, index: u32, len: u32, last: Option<Known>) {
        let has_effect = |known: &Known| known.more != NO_EFFECT;
        let at = (self.met.current + index) as usize;
        let (wanted, quiet) = match self.instructions.get(at).is_none_or(has_effect) {
            true => (0, 0),
            false => {
                let (last, count) = self.to_effect(index, len);
                (last + 1, count)
            }
        };
        let numbers = [len, wanted, quiet].map(u8::try_from);
        if let (Some(last), [Ok(len), Ok(wanted), Ok(quiet)]) = (last, numbers)
            && let Some(head) = self.heads.get_mut(self.met.head as usize)
        {
            *head = Head {
                end: last.claims,
                len,
                wanted,
                quiet,
                writes: last.writes,
                ..*head
            };
        }
    }

    /// The current block and its first instruction, if the run that begins there is known.
    #[inline]
    pub(in crate::verify) fn first_run(&self) -> Option<(Head, &Known)> {
        let head = *self.heads.get(self.met.head as usize)?;
        let first = self.instructions.get(head.start as usize)?;
        (head.len > 0).then_some((head, first))
    }

    /// Whether the last instruction of the current block has been executed.
    fn has_end(&self) -> bool {
        let end = self.met.current as usize + self.met.operations as usize;
        let last = end.checked_sub(1).and_then(|at| self.instructions.get(at));
        last.is_some_and(|known| known.claims != NONE)
    }

    /// Whether the outcome at instruction `known` is that of `before`, which is executed before it.
    fn carries(&self, before: &Known, known: &Known) -> bool {
        let [Some(old), Some(new)] = [before, known].map(|known| self.sets.get(known.claims))
        else {
            return false;
        };
        let writes = Parts::from(before.writes);
        if before.claims == known.claims && writes & old.depends == 0 {
            return true;
        }
        let stack = self.effect(before.effect()).stack;
        let mut pairs = old.claims.iter().zip(&new.claims);
        pairs.all(|(&old, &new)| match (self.claim(old), self.claim(new)) {
            (claim, _) if old == new && writes & claim.depends() == 0 => true,
            (Claim::Simple(old), Claim::Simple(new)) => old.becomes(new, stack, writes),
            _ => false,
        })
    }
}
