//! The result of a walk: the frames so far and why it ended.
//!
//! A walk never returns "frames or an error": what it found before it failed is the result, and
//! the reason stands beside it. Sinks decide what is kept: [`Addresses`] keeps the pcs only,
//! [`Chain`] the whole provenance, and both see the same frames.

use crate::address::CodeAddress;
use crate::event::Event;
#[cfg(feature = "kernel")]
use crate::kernel::UserRegs;
use crate::reason::Reason;
use crate::row::RowSource;
use crate::rule::Rule;
use alloc::vec::Vec;

/// A word that was read to find a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Word {
    /// Its address.
    pub address: u64,
    /// Its value.
    pub value: u64,
}

/// How many words [`Words`] holds: cfa, ra, sp and six registers.
pub const WORDS_MAX: usize = 9;

/// The words that one rule read, in order; an expression's further reads are not kept. Plain
/// data, as one is copied for every frame of a chain.
#[derive(Clone, Copy)]
pub struct Words {
    len: u8,
    words: [Word; WORDS_MAX],
}

impl Words {
    /// None.
    #[inline]
    pub const fn new() -> Words {
        let none = Word {
            address: 0,
            value: 0,
        };
        Words {
            len: 0,
            words: [none; WORDS_MAX],
        }
    }

    /// Adds a word; one more than [`WORDS_MAX`] is dropped.
    #[inline]
    pub fn push(&mut self, word: Word) {
        if let Some(place) = self.words.get_mut(usize::from(self.len)) {
            *place = word;
            self.len += 1;
        }
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}

impl core::ops::Deref for Words {
    type Target = [Word];
    #[inline]
    fn deref(&self) -> &[Word] {
        self.words.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl<'a> IntoIterator for &'a Words {
    type Item = &'a Word;
    type IntoIter = core::slice::Iter<'a, Word>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        **self == **other
    }
}

impl Eq for Words {}

impl core::fmt::Debug for Words {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// How a frame was found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every frame is found by a rule"
)]
pub enum Found {
    /// It is where the walk began.
    Start,
    /// It is the sampled ip, reported before the walk (start variant `always-ip`).
    SampledIp,
    /// By this rule, applied to the frame before.
    Rule {
        /// The rule.
        rule: Rule,
        /// The table and row it came from.
        source: RowSource,
        /// The words read.
        words: Words,
    },
    /// A word on the stack that happens to be a code address.
    Guess,
    /// By the record of the call at `from`.
    Branch {
        /// The address of the call.
        from: u64,
        /// Of a sample before, put together with this one's.
        stitched: bool,
    },
    /// By an unwinder that is not ours, or a recording: no provenance.
    External,
}

/// One frame of a chain, innermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The instruction, or the return address.
    pub pc: CodeAddress,
    /// The stack pointer in this frame (the CFA of the frame it called); 0 if unknown.
    pub sp: u64,
    /// The address of the word that `pc` was read from; chains are aligned by it.
    pub slot: Option<u64>,
    /// How it was found.
    pub found: Found,
}

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The reason.
    pub reason: Reason,
    /// The fallback, if one was tried, failed with this.
    pub fallback: Option<Reason>,
    /// Can the format that the walk ended with mark a root? A scan of the stack cannot, nor can
    /// branch records, nor early versions of SFrame.
    pub marks_roots: bool,
}

impl End {
    /// The end of a walk by a format that cannot mark a root.
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

/// A walk's frames, as the sink is told of them.
#[derive(Debug)]
pub struct Step<'a> {
    /// The instruction, or the return address.
    pub pc: CodeAddress,
    /// The stack pointer in this frame.
    pub sp: u64,
    /// The address of the word that `pc` was read from.
    pub slot: Option<u64>,
    /// How it was found.
    pub how: How<'a>,
}

/// [`Found`], borrowed.
#[derive(Debug)]
pub enum How<'a> {
    /// Where the walk began.
    Start,
    /// The sampled ip.
    SampledIp,
    /// By a rule.
    Rule {
        /// The rule.
        rule: &'a Rule,
        /// Its table and row.
        source: RowSource,
        /// The words read; empty if [`Sink::DETAIL`] is false.
        words: &'a Words,
    },
    /// By scanning.
    Guess,
    /// By a branch record.
    Branch {
        /// The address of the call.
        from: u64,
        /// Of a sample before.
        stitched: bool,
    },
    /// By somebody else.
    External,
}

/// Takes the frames and events of a walk.
pub trait Sink {
    /// Does the sink want provenance? If not, the walk takes its fast path, and `how` is
    /// meaningless.
    const DETAIL: bool;
    /// A frame that is reported.
    fn frame(&mut self, step: Step<'_>);
    /// Something happened. Only called if [`Sink::DETAIL`].
    #[inline]
    fn event(&mut self, _event: Event) {}
}

/// Keeps the pcs only.
#[derive(Clone, Debug, Default)]
pub struct Addresses(pub Vec<u64>);

impl Sink for Addresses {
    const DETAIL: bool = false;
    #[inline]
    fn frame(&mut self, step: Step<'_>) {
        self.0.push(step.pc.value());
    }
}

/// Keeps everything.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Chain {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
    /// Why the walk ended.
    pub end: End,
    /// What happened on the way.
    pub events: Vec<Event>,
    /// The unwinder itself says that the chain is not reliable.
    pub refused: bool,
    /// The registers by which a kernel's unwinder left the kernel: those of user space, if it is
    /// right.
    #[cfg(feature = "kernel")]
    pub user_regs: Option<UserRegs>,
}

impl Chain {
    /// A chain without frames that ended for this reason.
    pub fn ended(end: impl Into<End>) -> Chain {
        Chain {
            frames: Vec::new(),
            end: end.into(),
            events: Vec::new(),
            refused: false,
            #[cfg(feature = "kernel")]
            user_regs: None,
        }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain::ended(Reason::NotAtRoot)
    }
}

impl Chain {
    /// Adds the words read to the last frame. One by one: a copy of them all in one piece would
    /// wait for the pieces just written.
    #[inline]
    fn add_words(&mut self, words: &Words) {
        if let Some(frame) = self.frames.last_mut()
            && let Found::Rule { words: last, .. } = &mut frame.found
        {
            words.iter().for_each(|&word| last.push(word));
        }
    }
}

impl Sink for Chain {
    const DETAIL: bool = true;

    #[inline(always)]
    fn frame(&mut self, step: Step<'_>) {
        let Step { pc, sp, slot, how } = step;
        let found = match how {
            How::Rule {
                rule,
                source,
                words,
            } => {
                self.frames.push(Frame {
                    pc,
                    sp,
                    slot,
                    found: Found::Rule {
                        rule: *rule,
                        source,
                        words: Words::new(),
                    },
                });
                self.add_words(words);
                return;
            }
            How::Start => Found::Start,
            How::SampledIp => Found::SampledIp,
            How::Guess => Found::Guess,
            How::Branch { from, stitched } => Found::Branch { from, stitched },
            How::External => Found::External,
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
