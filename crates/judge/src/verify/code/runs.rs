//! Finds the instructions of a block that have the outcome of the first one, and notes those with
//! which the block begins.

use super::{Code, Effect, HOOK, Known};
use crate::verify::claim::{Claim, Parts, RSP};
use crate::verify::numbered::NONE;
use unwind_sim_emulator::effects::{Stack, Stores};
use unwind_sim_unwind::insn::Insn;

/// In [`Known::run`]: the run has a [closing](Code::closes) instruction.
const CLOSES: u8 = 1 << 7;

/// A block of code.
#[derive(Clone, Copy, Debug)]
pub(in crate::verify) struct Head {
    /// The index of its first operation in [`Code::instructions`].
    pub(super) start: u32,
    /// The set of claims of the first instruction of the [run](Code::run) that begins there.
    pub(in crate::verify) first: u32,
    /// That of its last instruction.
    pub(in crate::verify) end: u32,
    /// The length of that run; 0 if it is not known, or is only one instruction.
    pub(in crate::verify) len: u8,
    /// The index in the block of its first instruction, which may have two operations.
    index: u8,
    /// What the last instruction of the run writes.
    pub(in crate::verify) writes: u8,
    /// Whether the run has a [closing](Code::closes) instruction. Then `end` and `writes` are of that, which
    /// has not written anything when it is checked.
    pub(in crate::verify) closes: bool,
    /// Those that come before the first one that pushes.
    pub(in crate::verify) ahead: Ahead,
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
            index: 0,
            writes: 0,
            closes: false,
            ahead: Ahead::UNKNOWN,
        }
    }

    /// The index in the block of the first operation of the run that pushes, or of the run's end; 0 if that
    /// is the first one, or not known.
    #[inline]
    pub(in crate::verify) fn wanted(&self) -> u32 {
        match self.ahead.count {
            0 => 0,
            _ => u32::from(self.index) + u32::from(self.ahead.last) + 1,
        }
    }
}

/// The instructions from one on, up to the next one in its run that is not [quiet](Effect::is_quiet).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verify) struct Ahead {
    /// Their number; 0 if it is not known.
    pub(in crate::verify) count: u8,
    /// The index of the last one, counted from the first.
    pub(super) last: u8,
    /// By how many bytes rsp rises at most.
    pub(in crate::verify) rise: u16,
}

impl Ahead {
    pub(super) const UNKNOWN: Ahead = Ahead {
        count: 0,
        last: 0,
        rise: 0,
    };

    /// The index of the last one, if that of the first one is `index`.
    #[inline]
    pub(in crate::verify) fn last_from(self, index: u32) -> u32 {
        index + u32::from(self.last)
    }
}

impl Effect {
    /// Whether rsp does not fall, and it stores nothing but to an operand, where slots are guarded. Then
    /// all that matters is how far rsp rises.
    #[inline]
    pub(in crate::verify) fn is_quiet(self) -> bool {
        matches!(self.stores, Stores::Nothing | Stores::At(_)) && self.stack.moves() >= 0
    }
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
        match run & !CLOSES {
            0 => self.find_run(index),
            run => u32::from(run) - 1,
        }
    }

    /// Whether the instruction behind the [run](Code::run) from `index` on has its outcome, too, though it
    /// has to be seen when it is executed: it closes the run. That is how most calls and returns are
    /// checked.
    #[inline]
    pub(in crate::verify) fn closes(&mut self, index: u32) -> bool {
        self.known(index)
            .is_some_and(|known| known.run & CLOSES != 0)
    }

    /// The instructions from that at `index` on, at most `most`, up to the next one that lowers rsp, or
    /// raises it by more than `room` bytes above what it is now: the index of the last one, and their
    /// number. They are in one [run](Code::run).
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

    /// Like [`Code::quiet_from`], and notes what it finds if that does not depend on `most` or `room`,
    /// and fits.
    #[inline(never)]
    fn find_quiet(&mut self, index: u32, most: u32, room: u64) -> (u32, u32) {
        let known = |at: u32| self.instructions.get((self.met.current + at) as usize);
        let effect = |known: &Known| self.effect(known.effect());

        let (mut last, mut count) = (index, 1);
        let mut rise = known(index).map_or(0, |known| effect(known).stack.moves());

        let is_found = loop {
            let next = self.next_index(last);
            let Some(next_known) = known(next).filter(|_| next < self.met.operations) else {
                break self.has_end();
            };
            let effect = effect(next_known);
            // What has not been executed yet may be quiet, too, so nothing is noted.
            if next_known.claims == NONE || !effect.is_quiet() {
                break next_known.claims != NONE;
            }
            let higher = rise + effect.stack.moves();

            // A limit of this question says nothing of the instructions, and is not noted.
            if count == most || u64::try_from(higher).is_ok_and(|higher| higher > room) {
                break false;
            }
            (last, count, rise) = (next, count + 1, higher);
        };

        // Kept in three small numbers: a longer stretch is found anew each time.
        let numbers = (
            u8::try_from(count),
            u8::try_from(last - index),
            u16::try_from(rise.max(0)),
        );

        // What ended because the run does is as good: that is a limit of the code, not of the
        // question.
        if (is_found || self.is_whole_run(index, count))
            && let (Ok(count), Ok(last), Ok(rise)) = numbers
            && let Some(known) = self.known(index)
        {
            known.ahead = Ahead { count, last, rise };
        }

        (last, count)
    }

    /// Whether the run from the instruction at `index` on has `count` instructions, for certain.
    fn is_whole_run(&mut self, index: u32, count: u32) -> bool {
        self.run(index) == count && self.known(index).is_some_and(|known| known.run != 0)
    }

    #[cold]
    fn find_run(&mut self, index: u32) -> u32 {
        let first = self.met.current as usize + index as usize;
        let (mut len, mut at) = (0, index);
        let mut before: Option<&Known> = None;

        // The length is kept in seven bits, one higher.
        while at < self.met.operations && len < u32::from(CLOSES) - 2 {
            let known = &self.instructions[self.met.current as usize + at as usize];
            if known.claims == NONE {
                // What follows has not been executed yet.
                return len;
            }

            let effect = self.effect(known.effect());
            let is_quiet = match (known.class, effect.stack) {
                (Insn::Push, Stack::Push(_)) | (Insn::Pop, Stack::Pop(_)) => true,
                // A load of rsp may leave frames, so the shadow stack has to see it.
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

        let mut end = before.copied();
        let closing = self
            .instructions
            .get(self.met.current as usize + at as usize);
        let closing = closing.filter(|known| {
            at < self.met.operations
                && known.claims != NONE
                && known.effect() & HOOK == 0
                && before.is_some_and(|before| self.carries(before, known))
        });
        let closing = closing.copied();
        if let (Some(end), Some(closing)) = (&mut end, closing) {
            (end.claims, end.writes) = (closing.claims, 0);
        }

        // 0 means that it is not known, so the length is stored one higher.
        let closes = if closing.is_some() { CLOSES } else { 0 };
        self.instructions[first].run = (len as u8 + 1) | closes;
        if self.is_first(index) {
            self.note_first(index, len, end);
        }

        len
    }

    /// Whether no instruction of the current block is before that at `index`.
    fn is_first(&self, index: u32) -> bool {
        let first = self.instructions.get(self.met.current as usize);
        index == 0 || index == 1 && first.is_some_and(|known| known.claims == NONE)
    }

    /// The current block begins with a run of `len` instructions: the first one is at `index`. `end` is the
    /// last one, or has the claims of the one that closes it.
    fn note_first(&mut self, index: u32, len: u32, end: Option<Known>) {
        let Some(&mut first) = self.known(index) else {
            return;
        };
        let mut ahead = Ahead::UNKNOWN;
        if self.effect(first.effect()).is_quiet() {
            self.quiet_from(index, len, u64::MAX);
            ahead = self.known(index).map_or(ahead, |known| known.ahead);
        }
        let closes = self.closes(index);
        // One instruction alone is a run only if it is checked with the one that closes it.
        if len + u32::from(closes && ahead.count != 0) < 2 {
            return;
        }
        if let (Some(end), Ok(len), Ok(index)) = (end, u8::try_from(len), u8::try_from(index))
            && let Some(head) = self.heads.get_mut(self.met.head as usize)
        {
            *head = Head {
                first: first.claims,
                end: end.claims,
                len,
                index,
                writes: end.writes,
                closes,
                ahead,
                ..*head
            };
        }
    }

    /// The current block, if the run that begins there is known.
    #[inline]
    pub(in crate::verify) fn first_run(&self) -> Option<Head> {
        let head = self.met.blocks.get(self.met.number as usize)?.head;
        (head.len > 0).then_some(head)
    }

    /// The last repeat that begins with the first instruction of a block.
    #[inline]
    pub(in crate::verify) fn first_repeat(&self, head: &Head) -> u32 {
        let at = head.start as usize + usize::from(head.index);
        self.instructions.get(at).map_or(NONE, |first| first.repeat)
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
