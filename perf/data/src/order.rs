//! Delivers events in file order or in time order, and unpacks compressed ones.
//!
//! Buffering of records for time order is in `queue`.

use std::ops::ControlFlow;

use super::error::{PerfError, PerfErrorKind};
use super::file::PerfFile;
use super::queue::Queue;
use super::record::Event;
use super::unpack::{Unpacked, Unpacker};
use super::walk::{RawRecord, record_type as rt};

/// The order in which events are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of the file.
    File,
    /// By time. Equal times, and records without a time, are in file order.
    Time,
}

/// Why the iteration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the end of the data.
    End,
    /// The callback asked for it.
    Asked,
    /// The rest cannot be read. Everything before it has been delivered.
    Error(PerfError),
}

/// Result of an iteration over the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of events delivered.
    pub events: u64,
    /// Number of records skipped because their bodies could not be read.
    pub skipped: u64,
    /// The error of the first skipped record.
    pub first_skipped: Option<PerfError>,
    /// Number of records with an earlier time than one already delivered.
    pub late: u64,
    /// Number of times that records were delivered before their round was finished, because too
    /// many were buffered.
    pub early_flushes: u64,
    /// Why the iteration ended.
    pub stop: Stop,
    /// Why records after the last one are missing, if the header tells; see [`PerfFile::cut`].
    pub cut: Option<PerfError>,
}

impl PerfFile<'_> {
    /// Passes every event to `take` until it breaks. Unpacks compressed records.
    pub fn for_each(
        &self,
        order: Order,
        take: impl FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Summary {
        match order {
            Order::File => self.run(None, take),
            Order::Time => self.run(Some(Queue::default()), take),
        }
    }

    fn run(&self, queue: Option<Queue>, take: impl FnMut(Event<'_>) -> ControlFlow<()>) -> Summary {
        let mut out = Deliverer {
            file: self,
            take,
            summary: Summary::default(),
            stopped: false,
        };
        let stop = match queue {
            None => self.drive(|raw| out.deliver(raw)),
            Some(mut queue) => {
                let stop = self.drive(|raw| queue.add(raw, &mut out));
                if !out.stopped {
                    let _ = queue.flush(u64::MAX, &mut out);
                }
                stop
            }
        };
        out.summary.cut = self.data_problem();
        out.summary.stop = if out.stopped { Stop::Asked } else { stop };
        out.summary
    }

    /// [`PerfFile::for_each`] in time order.
    pub fn for_each_ordered(&self, take: impl FnMut(Event<'_>) -> ControlFlow<()>) -> Summary {
        self.for_each(Order::Time, take)
    }

    /// Iterates over the records in file order and unpacks compressed ones.
    fn drive(&self, mut take: impl FnMut(RawRecord<'_>) -> ControlFlow<()>) -> Stop {
        let mut unpacker: Option<Unpacker> = None;
        for record in self.records() {
            let raw = match record {
                Ok(raw) => raw,
                Err(error) => return Stop::Error(error),
            };

            // Records that are not compressed are passed on as they are.
            if !matches!(raw.kind, rt::COMPRESSED | rt::COMPRESSED2) {
                if take(raw).is_break() {
                    return Stop::Asked;
                }
                continue;
            }

            // Made at the first compressed record: most files have none.
            let fed = self
                .unpacker(&mut unpacker, raw.offset)
                .and_then(|unpacker| unpacker.feed(&raw, &mut take));
            match fed {
                Ok(Unpacked::All) => {}
                Ok(Unpacked::Stopped) => return Stop::Asked,
                Err(error) => return Stop::Error(error),
            }
        }

        // A record may continue in the next compressed one; at the end, none may be open.
        match unpacker.map_or(Ok(()), |unpacker| unpacker.finish(self.data_range().end)) {
            Ok(()) => Stop::End,
            Err(error) => Stop::Error(error),
        }
    }

    /// The unpacker, created at the first compressed record.
    fn unpacker<'u>(
        &self,
        slot: &'u mut Option<Unpacker>,
        offset: u64,
    ) -> Result<&'u mut Unpacker, PerfError> {
        let made = match slot.take() {
            Some(unpacker) => unpacker,
            None => {
                let parameters = self.features().compression().ok().flatten();
                if let Some(other) = parameters.filter(|parameters| parameters.kind != 1) {
                    let kind = PerfErrorKind::CompressionType(other.kind);
                    return Err(PerfError::new(kind, offset, "compressed record"));
                }
                Unpacker::new(parameters.map(|parameters| parameters.mmap_len), offset)?
            }
        };
        Ok(slot.insert(made))
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            events: 0,
            skipped: 0,
            first_skipped: None,
            late: 0,
            early_flushes: 0,
            stop: Stop::End,
            cut: None,
        }
    }
}

/// Decodes records, passes them to the callback and counts them.
pub(super) struct Deliverer<'f, 'a, F> {
    pub(super) file: &'f PerfFile<'a>,
    take: F,
    pub(super) summary: Summary,
    stopped: bool,
}

impl<F: FnMut(Event<'_>) -> ControlFlow<()>> Deliverer<'_, '_, F> {
    #[inline]
    pub(super) fn deliver(&mut self, raw: RawRecord<'_>) -> ControlFlow<()> {
        match self.file.decode(raw) {
            Ok(event) => {
                self.summary.events += 1;
                let flow = (self.take)(event);
                self.stopped = flow.is_break();
                flow
            }
            Err(error) => {
                self.summary.skipped += 1;
                self.summary.first_skipped.get_or_insert(error);
                ControlFlow::Continue(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_type;

    /// A pipe-mode file whose samples have only a time.
    fn file(times: &[u64], pack: bool) -> Vec<u8> {
        let word = |word: u64| word.to_le_bytes();
        let mut out = [*b"PERFILE2", word(16), word(64 | 72 << 48), word(64 << 32)].concat();
        out.extend([0; 16]);
        out.extend(word(sample_type::TIME));
        out.extend([0; 32]);
        let sample = |&time| [word(9 | 16 << 48), word(time)].concat();
        let samples: Vec<u8> = times.iter().flat_map(sample).collect();
        if pack {
            let packed = zstd::encode_all(&samples[..], 1).unwrap();
            out.extend(word(81 | (packed.len() as u64 + 8) << 48));
            out.extend(packed);
        } else {
            out.extend(samples);
        }
        out
    }

    #[test]
    fn held_back_samples_are_bounded() {
        let times = [50, 40, 30, 20, 10, 60, 70];
        for (pack, queue) in [
            (false, Queue::new(4, usize::MAX)),
            // 24 bytes per copy.
            (true, Queue::new(usize::MAX, 4 * 24)),
        ] {
            let bytes = file(&times, pack);
            let perf = PerfFile::parse(&bytes).unwrap();
            let mut seen = Vec::new();
            let summary = perf.run(Some(queue), |event| {
                seen.extend(event.time());
                ControlFlow::Continue(())
            });
            // At the fifth, four are buffered, so two of them are delivered; then 10 is late.
            assert_eq!(seen, [20, 30, 10, 40, 50, 60, 70]);
            assert_eq!(
                (summary.late, summary.early_flushes, summary.stop),
                (1, 2, Stop::End)
            );
        }
    }
}
