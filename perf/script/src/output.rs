//! The interface between the walk over a recording and its output, as text or a profile.

use super::tasks::{Map, Tasks};
use crate::symbols::Symbols;
use unwind_sim_perf_data::{RecordId, Sample};

/// A sample without its frames.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The sample.
    pub sample: &'a Sample<'a>,
    /// The sample's process, thread and time.
    pub id: &'a RecordId<'a>,
    /// The index of its event among the file's attributes.
    pub event: usize,
    /// What the event counted since its last sample.
    pub period: u64,
    /// Whether chains are shown at all.
    pub chains: bool,
}

/// An address of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// All tasks at the sample's time.
    pub tasks: &'a Tasks,
    /// The index of the sample's event.
    pub event: usize,
    /// The mapping that contains the address.
    pub map: Option<&'a Map>,
    /// The address itself.
    pub value: u64,
    /// Whether it is a return address: the call is before it.
    pub is_return: bool,
}

/// Receives samples, frame by frame, innermost first.
pub trait Output {
    /// A piece of output; may be a part of a sample whose user frames come later.
    type Piece: Default;

    /// Whether it wants samples of this event.
    fn shows(&self, event: usize) -> bool {
        let _ = event;
        true
    }

    /// Whether it wants addresses or chains of this event.
    fn shows_places(&self, event: usize) -> bool;

    /// Starts a sample.
    fn head(
        &mut self,
        head: &Head<'_>,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        out: &mut Self::Piece,
    );

    /// Starts a record of deferred user frames; returns whether to show it.
    fn deferred(
        &mut self,
        tasks: &Tasks,
        id: &RecordId<'_>,
        event: usize,
        cookie: u64,
        out: &mut Self::Piece,
    ) -> bool;

    /// The address of a sample without a chain.
    fn place(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Self::Piece);

    /// Starts a chain; returns its starting position, for [`Output::cut`].
    fn chain(&mut self, out: &mut Self::Piece) -> usize;

    /// Removes all frames of the chain that starts at `begin`.
    fn cut(&mut self, begin: usize, out: &mut Self::Piece);

    /// A frame of a chain.
    fn frame(&mut self, at: &Address<'_>, symbols: &mut dyn Symbols, out: &mut Self::Piece);

    /// The cookie of deferred frames, as a word of the chain.
    fn cookie(&mut self, event: usize, word: u64, out: &mut Self::Piece) {
        self.instead(event, word, "(cookie)", out);
    }

    /// Shows a text in place of the frames that a cookie stands for.
    fn instead(&mut self, event: usize, word: u64, text: &str, out: &mut Self::Piece);

    /// Appends what follows a sample's frames.
    fn tail(&mut self, _: &Head<'_>, _: &mut Self::Piece) {}

    /// Ends a sample or record.
    fn end(&mut self, out: &mut Self::Piece);

    /// Appends a part that was held back.
    fn append(&mut self, part: &Self::Piece, out: &mut Self::Piece);
}
