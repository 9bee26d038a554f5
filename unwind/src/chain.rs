//! The result of a walk: its frames and why it ended.
//!
//! A walk never returns "frames or an error". It returns the frames it found and the reason why it
//! ended. The sink decides what is kept: [`Addresses`] keeps only the pcs, [`Chain`] keeps the full
//! provenance. Both see the same frames.
//!
//! A chain stores each row of a cache once, however many frames it found, and keeps its rows when
//! it is emptied for the next walk. So a frame takes 56 bytes and 16 for each word read, and
//! [`Chain::steps`] puts the parts together.

mod rows;

pub use rows::RowRef;

use crate::address::CodeAddress;
use crate::event::Event;
#[cfg(feature = "kernel")]
use crate::kernel::UserRegs;
use crate::reason::Reason;
use alloc::vec::Vec;
use core::ops::Range;
use rows::Rows;

/// A stack word that was read to find a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Word {
    /// The word's address.
    pub address: u64,
    /// The word's value.
    pub value: u64,
}

/// The capacity of [`ReadWords`]: cfa, ra, sp and six registers.
pub const WORDS_MAX: usize = 9;

/// The words that one rule read, in order, without those read by expressions.
#[derive(Clone, Copy)]
pub struct ReadWords {
    len: usize,
    words: [Word; WORDS_MAX],
}

impl ReadWords {
    /// No words.
    #[inline]
    pub const fn new() -> ReadWords {
        let none = Word {
            address: 0,
            value: 0,
        };
        ReadWords {
            len: 0,
            words: [none; WORDS_MAX],
        }
    }

    /// Adds a word; words beyond [`WORDS_MAX`] are dropped.
    #[inline]
    pub fn push(&mut self, word: Word) {
        if let Some(place) = self.words.get_mut(self.len) {
            *place = word;
            self.len += 1;
        }
    }

    /// Removes all words.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl Default for ReadWords {
    fn default() -> Self {
        Self::new()
    }
}

impl core::ops::Deref for ReadWords {
    type Target = [Word];
    #[inline]
    fn deref(&self) -> &[Word] {
        self.words.get(..self.len).unwrap_or(&[])
    }
}

impl<'a> IntoIterator for &'a ReadWords {
    type Item = &'a Word;
    type IntoIter = core::slice::Iter<'a, Word>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for ReadWords {
    fn eq(&self, other: &ReadWords) -> bool {
        **self == **other
    }
}

impl Eq for ReadWords {}

impl core::fmt::Debug for ReadWords {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// How a frame was found, as a chain keeps it; [`How`] has the rule, its source and the words.
#[derive(Clone, Copy, Debug)]
pub enum FoundBy {
    /// The walk started here.
    Start,
    /// The sampled ip, reported before the walk (start variant `always-ip`).
    SampledIp,
    /// By a rule, applied to the previous frame.
    Rule(ByRule),
    /// By a scan: a word on the stack that happens to be a code address.
    Guess,
    /// By the branch record of the call at `from`.
    Branch {
        /// The address of the call.
        from: u64,
        /// Whether the record was stitched in from an earlier sample.
        stitched: bool,
    },
    /// By an external unwinder or a recording; the provenance is unknown.
    External,
}

/// Where a chain keeps a frame's row and words. It means nothing in another chain, nor in this one
/// after [`Chain::emptied`]: to take over a frame of another chain, pass its [`Step`] to
/// [`Sink::frame`].
#[derive(Clone, Copy, Debug)]
pub struct ByRule {
    row: u32,
    words: u32,
    words_end: u32,
}

/// One frame of a chain, innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The instruction address or return address.
    pub pc: CodeAddress,
    /// The stack pointer in this frame (the callee's CFA); 0 if unknown.
    pub sp: u64,
    /// The address of the word that `pc` was read from. Chains are aligned by it.
    pub slot: Option<u64>,
    /// How the frame was found.
    pub found: FoundBy,
}

const _: () = assert!(size_of::<Frame>() <= 56);

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// What the walk met: a root, an obstacle or a limit.
    pub reason: Reason,
    /// Why the fallback failed, if one was tried.
    pub fallback: Option<Reason>,
    /// Whether the format that the walk ended with can mark a root. A scan of the stack, branch
    /// records and early versions of SFrame cannot.
    pub marks_roots: bool,
}

impl End {
    /// The end of a walk with a format that cannot mark a root.
    pub fn unmarked(reason: Reason) -> Self {
        End {
            marks_roots: false,
            ..End::from(reason)
        }
    }
}

impl From<Reason> for End {
    fn from(reason: Reason) -> Self {
        End {
            reason,
            fallback: None,
            marks_roots: true,
        }
    }
}

/// A frame with all that is known of it: what a walk passes to the sink, and what
/// [`Chain::steps`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step<'a> {
    /// The instruction address or return address.
    pub pc: CodeAddress,
    /// The stack pointer in this frame (the callee's CFA); 0 if unknown.
    pub sp: u64,
    /// The address of the word that `pc` was read from.
    pub slot: Option<u64>,
    /// How the frame was found.
    pub how: How<'a>,
}

/// How a frame was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How<'a> {
    /// The walk started here.
    Start,
    /// The sampled ip, reported before the walk (start variant `always-ip`).
    SampledIp,
    /// By a rule, applied to the previous frame.
    Rule {
        /// The rule, and the table and row it came from.
        row: RowRef<'a>,
        /// The words read; empty if [`Sink::DETAIL`] is false.
        words: &'a [Word],
    },
    /// By a scan: a word on the stack that happens to be a code address.
    Guess,
    /// By the branch record of the call at `from`.
    Branch {
        /// The address of the call.
        from: u64,
        /// Whether the record was stitched in from an earlier sample.
        stitched: bool,
    },
    /// By an external unwinder or a recording; the provenance is unknown.
    External,
}

/// Takes the frames and events of a walk.
pub trait Sink {
    /// Whether the sink wants provenance. If not, the walk takes its fast path, and `how` is
    /// meaningless.
    const DETAIL: bool;
    /// Receives a frame.
    fn frame(&mut self, step: Step<'_>);
    /// Receives an event. Called only if [`Sink::DETAIL`] is true.
    #[inline]
    fn event(&mut self, _event: Event) {}
}

/// A sink that keeps only the pcs.
#[derive(Clone, Debug, Default)]
pub struct Addresses(pub Vec<u64>);

impl Sink for Addresses {
    const DETAIL: bool = false;
    #[inline]
    fn frame(&mut self, step: Step<'_>) {
        self.0.push(step.pc.value());
    }
}

/// Where a frame is: what a verdict needs to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The instruction address or return address.
    pub pc: u64,
    /// The address of the word that `pc` was read from.
    pub slot: Option<u64>,
    /// The stack pointer in the frame, if known.
    pub sp: Option<u64>,
    /// Whether `pc` is a return address.
    pub is_return: bool,
}

/// A sink that keeps only where the frames are.
#[derive(Clone, Debug, Default)]
pub struct Links(pub Vec<Link>);

impl Sink for Links {
    const DETAIL: bool = false;
    #[inline]
    fn frame(&mut self, step: Step<'_>) {
        self.0.push(Link {
            pc: step.pc.value(),
            slot: step.slot,
            sp: (step.sp != 0).then_some(step.sp),
            is_return: !step.pc.is_instruction(),
        });
    }
}

/// A sink that keeps everything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chain {
    /// The frames, innermost first. To use the chain again, empty it with [`Chain::emptied`], which
    /// also frees the words of these frames.
    pub frames: Vec<Frame>,
    /// Why the walk ended.
    pub end: End,
    /// The events of the walk.
    pub events: Vec<Event>,
    /// Whether the unwinder itself reports the chain as unreliable.
    pub refused: bool,
    /// The registers with which a kernel unwinder left the kernel. If it is right, these are the
    /// registers of user space.
    #[cfg(feature = "kernel")]
    pub user_regs: Option<UserRegs>,
    rows: Rows,
    words: Vec<Word>,
}

impl Chain {
    /// A chain without frames that ended as `end` says.
    pub fn ended(end: impl Into<End>) -> Chain {
        Chain {
            frames: Vec::new(),
            end: end.into(),
            events: Vec::new(),
            refused: false,
            #[cfg(feature = "kernel")]
            user_regs: None,
            rows: Rows::default(),
            words: Vec::new(),
        }
    }

    /// An empty chain with the memory of this one.
    pub fn emptied(mut self) -> Chain {
        self.frames.clear();
        self.events.clear();
        self.rows.start_anew();
        self.words.clear();
        Chain {
            frames: self.frames,
            events: self.events,
            rows: self.rows,
            words: self.words,
            ..Chain::default()
        }
    }

    /// The frames with their rules, sources and words, innermost first.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = Step<'_>> + ExactSizeIterator {
        (0..self.frames.len()).map(|index| self.step(index))
    }

    /// A frame with its rule, source and words. Panics if there is no such frame. If the frame was
    /// made by another chain, what is said of its rule may be wrong, or it is
    /// [`How::External`].
    pub fn step(&self, index: usize) -> Step<'_> {
        let Frame {
            pc,
            sp,
            slot,
            found,
        } = self.frames[index];
        let how = match found {
            FoundBy::Start => How::Start,
            FoundBy::SampledIp => How::SampledIp,
            FoundBy::Rule(by) => match (self.rows.get(by.row), self.words.get(by.words())) {
                (Some(row), Some(words)) => How::Rule { row, words },
                _ => How::External,
            },
            FoundBy::Guess => How::Guess,
            FoundBy::Branch { from, stitched } => How::Branch { from, stitched },
            FoundBy::External => How::External,
        };
        Step { pc, sp, slot, how }
    }
}

impl ByRule {
    fn words(self) -> Range<usize> {
        self.words as usize..self.words_end as usize
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain::ended(Reason::NotAtRoot)
    }
}

impl PartialEq for Chain {
    /// Whether the same was found in the same way, wherever the chains keep it.
    fn eq(&self, other: &Chain) -> bool {
        #[cfg(feature = "kernel")]
        if self.user_regs != other.user_regs {
            return false;
        }
        (self.end, self.refused) == (other.end, other.refused)
            && self.events == other.events
            && self.steps().eq(other.steps())
    }
}

impl Eq for Chain {}

impl Sink for Chain {
    const DETAIL: bool = true;

    #[inline(always)]
    fn frame(&mut self, step: Step<'_>) {
        let Step { pc, sp, slot, how } = step;

        let found = match how {
            How::Rule { row, words } => {
                // The words of all frames lie in one vector; a frame has only its range in it.
                let first = self.words.len() as u32;
                // A rule reads one word or two nearly always: the return address, and rbp.
                match *words {
                    [word] => self.words.push(word),
                    [first, second] => self.words.extend_from_slice(&[first, second]),
                    _ => self.words.extend_from_slice(words),
                }
                FoundBy::Rule(ByRule {
                    row: self.rows.place(row),
                    words: first,
                    words_end: self.words.len() as u32,
                })
            }
            How::Start => FoundBy::Start,
            How::SampledIp => FoundBy::SampledIp,
            How::Guess => FoundBy::Guess,
            How::Branch { from, stitched } => FoundBy::Branch { from, stitched },
            How::External => FoundBy::External,
        };

        self.frames.push(Frame {
            pc,
            sp,
            slot,
            found,
        });
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

#[cfg(test)]
mod tests;
