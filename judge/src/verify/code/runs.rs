//! Finds the instructions of a block that have the outcome of the first one.

use super::{Code, Effect, HOOK, Known};
use crate::verify::claim::{Claim, Parts, RSP};
use crate::verify::numbered::NONE;
use unwind_sim_emulator::effects::{Stack, Stores};
use unwind_sim_unwind::insn::Insn;

/// A block of code.
#[derive(Clone, Copy, Debug)]
pub(in crate::verify) struct Head {
    /// The index of its first instruction in [`Code::instructions`].
    pub(super) start: u32,
    /// The set of claims of the first instruction of the [run](Code::run) that begins there.
    pub(in crate::verify) first: u32,
    /// That of its last instruction.
    pub(in crate::verify) end: u32,
    /// The length of that run; 0 if it is not known, or is only one instruction.
    pub(in crate::verify) len: u8,
    /// The index of the first operation of that run that stores or pushes, or of its end.
    pub(in crate::verify) wanted: u8,
    /// The number of instructions before that operation.
    pub(in crate::verify) quiet: u8,
    /// What the last instruction of the run writes.
    pub(in crate::verify) writes: u8,
    /// By how many bytes rsp rises at most before that operation.
    pub(in crate::verify) rise: u16,
}

const _: () = assert!(size_of::<Head>() == 20);

impl Head {
    /// A block of which nothing is known.
    pub(super) const fn at(start: u32) -> Head {
        Head {
            start,
            first: NONE,
            end: NONE,
            len: 0,
            wanted: 0,
            quiet: 0,
            writes: 0,
            rise: 0,
        }
    }
}

/// The instructions from one on, up to the next one in its run that stores or pushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ahead {
    /// Their number; 0 if it is not known.
    pub(super) count: u8,
    /// The index of the last one, counted from the first.
    pub(super) last: u8,
    /// By how many bytes rsp rises at most.
    pub(super) rise: u16,
}

impl Ahead {
    pub(super) const UNKNOWN: Ahead = Ahead {
        count: 0,
        last: 0,
        rise: 0,
    };
}

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

    /// The instructions from that at `index` on, at most `most`, up to the next one that stores,
    /// pushes, or raises rsp by more than `room` bytes above what it is now: the index of the last
    /// one, and their number. They are in one [run](Code::run).
    #[inline]
    pub(in crate::verify) fn quiet_from(&mut self, index: u32, most: u32, room: u64) -> (u32, u32) {
        match self.known(index).map(|known| known.ahead) {
            Some(Ahead { count, last, rise })
                if count != 0 && u32::from(count) <= most && u64::from(rise) <= room =>
            {
                (index + u32::from(last), count.into())
            }
            _ => self.find_quiet(index, most, room),
        }
    }

    /// Like [`Code::quiet_from`], and notes what it finds if that does not depend on `most` or `room`.
    #[inline(never)]
    fn find_quiet(&mut self, index: u32, most: u32, room: u64) -> (u32, u32) {
        let moves = |known: &Known| self.effect(known.effect()).stack.moves();
        let known = |at: u32| self.instructions.get((self.met.current + at) as usize);
        let (mut last, mut count) = (index, 1);
        let mut risen = known(index).map_or(0, moves);
        let mut rise = risen.max(0);
        let is_found = loop {
            let next = self.next_index(last);
            let Some(known) = known(next).filter(|_| next < self.met.operations) else {
                break self.has_end();
            };
            let Effect { stores, stack } = self.effect(known.effect());
            if known.claims == NONE || stores != Stores::Nothing || matches!(stack, Stack::Push(_))
            {
                break known.claims != NONE;
            }
            let higher = risen + stack.moves();
            if count == most || u64::try_from(higher).is_ok_and(|higher| higher > room) {
                break false;
            }
            risen = higher;
            rise = rise.max(higher);
            (last, count) = (next, count + 1);
        };
        let numbers = (
            u8::try_from(count),
            u8::try_from(last - index),
            u16::try_from(rise),
        );
        if (is_found || count == self.run(index))
            && let (Ok(count), Ok(last), Ok(rise)) = numbers
            && let Some(known) = self.known(index)
        {
            known.ahead = Ahead { count, last, rise };
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
        let Some(&mut first) = self.known(index) else {
            return;
        };
        let Effect { stores, stack } = self.effect(first.effect());
        let mut ahead = Ahead::UNKNOWN;
        if stores == Stores::Nothing && !matches!(stack, Stack::Push(_)) {
            self.quiet_from(index, len, u64::MAX);
            ahead = self.known(index).map_or(ahead, |known| known.ahead);
        }
        let wanted = match ahead.count {
            0 => 0,
            _ => index + u32::from(ahead.last) + 1,
        };
        let numbers = [len, wanted, ahead.count.into()].map(u8::try_from);
        if let (Some(last), [Ok(len), Ok(wanted), Ok(quiet)]) = (last, numbers)
            && let Some(head) = self.heads.get_mut(self.met.head as usize)
        {
            *head = Head {
                first: first.claims,
                end: last.claims,
                len,
                wanted,
                quiet,
                writes: last.writes,
                rise: ahead.rise,
                ..*head
            };
        }
    }

    /// The current block, if the run that begins there is known.
    #[inline]
    pub(in crate::verify) fn first_run(&self) -> Option<Head> {
        let head = *self.heads.get(self.met.head as usize)?;
        (head.len > 0).then_some(head)
    }

    /// The last repeat that begins with the first instruction of a block.
    #[inline]
    pub(in crate::verify) fn first_repeat(&self, head: &Head) -> u32 {
        let first = self.instructions.get(head.start as usize);
        first.map_or(NONE, |first| first.repeat)
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
