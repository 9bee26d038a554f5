//! Writes about every outcome, in the order of the samples whatever the number of threads.

use super::parts::{Parts, Watch};
use super::{Frames, Run, RunError};
use crate::compare::Comparison;
use crate::engine::Outcome;
use crate::input::Input;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use unwind_sim_recordings::view::{Filter, View};

/// Threads beyond this would wait for the output.
const THREADS_MAX: usize = 8;
/// What is written at a time, bytes.
const PIECE_BYTES: usize = 256 << 10;
/// How many pieces all threads together may be ahead of the output, so 256 MB. A block of 4096
/// samples can have some 50 MB of chains.
const PIECES_MAX: usize = 1024;
/// How many of these are for each thread at most.
const PIECES_OF_THREAD: usize = 256;

/// Adds what is to be written about an outcome.
pub trait Describe {
    /// Adds the text for the outcome of `column` on a sample. Columns come in order, from 0.
    ///
    /// # Errors
    /// If it cannot be written.
    fn describe(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
        out: &mut Vec<u8>,
    ) -> Result<(), RunError>;
}

impl Run {
    /// Writes to `out` about every outcome, and counts the outcomes. Works on as many threads; 0
    /// means one for each processor. `new` is called once for each. What is written is the same.
    ///
    /// # Errors
    /// If the recording cannot be read or `out` cannot be written. What comes before was written.
    pub fn write_on<D: Describe>(
        &self,
        threads: usize,
        input: &Input,
        filter: &Filter,
        new: impl Fn() -> D + Sync,
        out: &mut dyn Write,
    ) -> Result<Comparison, RunError> {
        // One block of the recording for each part: a thread must not be far ahead of the output.
        let Some((threads, parts)) = self.parts(threads, usize::MAX, input, filter) else {
            return self.write_whole(input, filter, new(), out);
        };

        let parts = Parts::new(self, &parts, filter, Frames::Kept);
        let threads = threads.min(THREADS_MAX);
        let turn = Turn::default();

        // Workers announce each part that they begin, with the channel for its pieces.
        let (begun, begins) = channel();
        let (parts_ref, new, turn_ref) = (&parts, &new, &turn);
        let worker = move || {
            parts_ref.work(Writer {
                describe: new(),
                piece: Vec::new(),
                threads,
                turn: turn_ref,
                begun,
                pieces: None,
            })
        };

        parts.run(threads, worker, || {
            // However the writing ends, the threads that wait for their turn must end, too.
            let _end = End(&turn);
            let written = write_in_order(begins, &turn, out);
            if written.is_err() {
                parts.stop();
            }
            written
        })
    }

    fn write_whole<D: Describe>(
        &self,
        input: &Input,
        filter: &Filter,
        mut describe: D,
        out: &mut dyn Write,
    ) -> Result<Comparison, RunError> {
        let mut comparison = Comparison::new(self.columns().len());
        let mut piece = Vec::new();
        let read = self.for_each(input, filter, &mut |view, column, outcome| {
            if column == 0 {
                comparison.add_sample(view);
            }
            comparison.add(column, view, outcome, self.group_by);
            describe.describe(view, column, outcome, &mut piece)?;
            if piece.len() >= PIECE_BYTES {
                out.write_all(&piece)?;
                piece.clear();
            }
            Ok(())
        });
        out.write_all(&piece)?;
        read.map(|()| comparison)
    }
}

/// A piece of a part, or that the part failed after the ones before.
type Piece = Option<Vec<u8>>;

/// The part that is being written, for which the others wait.
#[derive(Default)]
struct Turn {
    part: Mutex<usize>,
    changed: Condvar,
    /// Pieces that were written, to be used again: new memory costs a page fault for each 4 KiB.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Turn {
    /// Waits until it is the turn of one of the `ahead` parts before part `index`.
    fn wait(&self, index: usize, ahead: usize) {
        let part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        let is_far = |part: &mut usize| index >= part.saturating_add(ahead);
        drop(self.changed.wait_while(part, is_far));
    }

    /// An empty piece.
    fn piece(&self) -> Vec<u8> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let room = || Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        spare.pop().unwrap_or_else(room)
    }

    fn put_back(&self, mut piece: Vec<u8>) {
        piece.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(piece);
    }

    fn set(&self, index: usize) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = index;
        self.changed.notify_all();
    }
}

/// When it is dropped, nothing more is written, so there is nothing to wait for.
struct End<'t>(&'t Turn);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set(usize::MAX);
    }
}

/// Writes the pieces of all parts, part by part.
fn write_in_order(
    begins: Receiver<(usize, Receiver<Piece>)>,
    turn: &Turn,
    out: &mut dyn Write,
) -> Result<(), RunError> {
    let mut begun = BTreeMap::new();
    for index in 0.. {
        turn.set(index);
        // The part after this one may be announced first.
        let pieces = loop {
            match begun.remove(&index) {
                Some(pieces) => break pieces,
                None => match begins.recv() {
                    Ok((index, pieces)) => drop(begun.insert(index, pieces)),
                    // All workers have ended.
                    Err(_) => return Ok(()),
                },
            }
        };

        for piece in pieces {
            match piece {
                Some(piece) => {
                    out.write_all(&piece)?;
                    turn.put_back(piece);
                }
                None => return Ok(()),
            }
        }
    }

    Ok(())
}

/// Makes the pieces of the parts that one thread takes.
struct Writer<'t, D> {
    describe: D,
    piece: Vec<u8>,
    threads: usize,
    turn: &'t Turn,
    begun: Sender<(usize, Receiver<Piece>)>,
    /// Where the pieces of this part go.
    pieces: Option<SyncSender<Piece>>,
}

impl<D> Writer<'_, D> {
    fn send(&self, piece: Piece) -> Result<(), RunError> {
        // Nobody listens after an error of the output, and that is the error that `run` returns.
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let sent = self.pieces.as_ref().and_then(|p| p.send(piece).ok());
        sent.ok_or_else(|| gone().into())
    }
}

impl<D: Describe> Watch for Writer<'_, D> {
    fn begin(&mut self, index: usize) {
        self.turn.wait(index, self.threads);
        let ahead = (PIECES_MAX / self.threads).min(PIECES_OF_THREAD);
        let (send, pieces) = sync_channel(ahead);
        self.pieces = Some(send);
        // If nobody listens, to send the pieces fails.
        let _ = self.begun.send((index, pieces));
    }

    fn outcome(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        let Writer {
            describe, piece, ..
        } = self;
        describe.describe(view, column, outcome, piece)?;
        if self.piece.len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, self.turn.piece());
        self.send(Some(piece))
    }

    fn end(&mut self, failed: bool) -> Result<(), RunError> {
        let piece = std::mem::replace(&mut self.piece, self.turn.piece());
        let sent = self.send(Some(piece));
        let sent = if failed { self.send(None) } else { sent };
        self.pieces = None;
        sent
    }
}
