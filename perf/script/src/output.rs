//! What becomes of samples: the interface between the walk over a recording and what is made of
//! it, text or a profile.

use super::tasks::{Map, Tasks};
use unwind_sim_perf_data::{RecordId, Sample};
use unwind_sim_recordings::symbols::Symbols;

/// A sample without its frames.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The sample.
    pub sample: &'a Sample<'a>,
    /// Whose it is, and when it was taken.
    pub id: &'a RecordId<'a>,
    /// The number of its event among the file's attributes.
    pub event: usize,
    /// What the event counted since its last sample.
    pub period: u64,
    /// Whether chains are shown at all.
    pub chains: bool,
}

/// An address of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// All tasks at its time.
    pub tasks: &'a Tasks,
    /// The number of the sample's event.
    pub event: usize,
    /// What is mapped there.
    pub map: Option<&'a Map>,
    /// The address.
    pub value: u64,
}

/// Takes samples, frame by frame, innermost first.
pub trait Output {
    /// Samples as they are handed on; also a part of one, whose user frames come later.
    type Piece: Default;

    /// Whether it wants samples of this event.
    fn shows(&self, event: usize) -> bool {
        let _ = event;
        true
    }

    /// Whether it wants addresses or chains of this event.
    fn shows_places(&self, event: usize) -> bool;

    /// Begins a sample.
    fn head(
        &mut self,
        head: &Head<'_>,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        out: &mut Self::Piece,
    );

    /// Begins a record of deferred user frames; says whether it wants them.
    fn deferred(
        &mut self,
        tasks: &Tasks,
        id: &RecordId<'_>,
        event: usize,
        cookie: u64,
        out: &mut Self::Piece,
    ) -> bool;

    /// The address of a sample that has no chain.
    fn place(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Self::Piece);

    /// A chain follows; returns where it begins, for [`Output::cut`].
    fn chain(&mut self, out: &mut Self::Piece) -> usize;

    /// Takes back all frames of the chain that begins here.
    fn cut(&mut self, begin: usize, out: &mut Self::Piece);

    /// A frame of a chain.
    fn frame(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Self::Piece);

    /// The cookie of deferred frames, as a word of the chain.
    fn cookie(&mut self, event: usize, word: u64, out: &mut Self::Piece) {
        self.instead(event, word, "(cookie)", out);
    }

    /// Something in place of the frames that a cookie stands for, and what it is.
    fn instead(&mut self, event: usize, word: u64, text: &str, out: &mut Self::Piece);

    /// What a sample says behind its frames.
    fn tail(&mut self, _: &Head<'_>, _: &mut Self::Piece) {}

    /// Ends a sample or record.
    fn end(&mut self, out: &mut Self::Piece);

    /// Appends what was held back.
    fn append(&mut self, part: &Self::Piece, out: &mut Self::Piece);
}
