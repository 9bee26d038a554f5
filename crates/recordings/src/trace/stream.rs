//! The two streams of a chunk: its events, in several blocks, and its samples.

use super::block::Block;
use super::details::Details;
use super::error::{Bad, TraceError, TraceErrorKind};
use super::event;
use super::image::referred;
use super::layout::{BlockType, CHUNK_DECODED_BYTES_MAX, CHUNK_SAMPLES_MAX};
use super::reader::Trace;
use super::sample::decode::Decoder;
use super::varint::Cursor;
use crate::model::{Event, Sample};
use std::collections::VecDeque;
use std::ops::Range;
use unwind_sim_unwind::image::Bytes;

/// Reads the events of a chunk, each with the number of samples before it.
#[derive(Debug)]
pub(crate) struct Events<'t> {
    trace: &'t Trace,
    blocks: VecDeque<usize>,
    current: Option<(Block, Bytes)>,
    at: usize,
    left: u32,
    last: u32,
}

impl<'t> Events<'t> {
    pub(crate) fn new(trace: &'t Trace, blocks: &[usize]) -> Events<'t> {
        let blocks = blocks.iter().copied().collect();
        Events {
            trace,
            blocks,
            current: None,
            at: 0,
            left: 0,
            last: 0,
        }
    }

    /// Reports that the current event is positioned after samples that do not exist. Not an error
    /// in the `last` chunk of a trace that was cut short: the event is then dropped with the
    /// missing samples.
    pub(crate) fn misplaced(&self, last: bool) -> Result<(), TraceError> {
        match &self.current {
            Some((block, _)) if !last || self.trace.cut().is_none() => {
                let what = "an event after more samples than there are";
                Err(block.error(Bad { what, at: self.at }))
            }
            _ => Ok(()),
        }
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Event)>, TraceError> {
        // A loop, because a block may have no events.
        while self.left == 0 {
            let Some(number) = self.blocks.pop_front() else {
                return Ok(None);
            };
            let (block, payload) = self.trace.block_payload(number)?;
            (self.left, self.at) = (block.count(), 0);
            self.current = Some((block, payload));
        }

        let Some((block, payload)) = &self.current else {
            return Ok(None);
        };

        let mut cursor = Cursor::new(payload, self.at);
        let read = event::decode(&mut cursor, self.trace.images().len());
        self.left -= 1;

        let read = read.and_then(|(position, event)| {
            // Also from one block to the next: `last` is kept.
            if position < self.last {
                return Err(cursor.bad("events are not in order"));
            }
            match self.left {
                // After the last event nothing may be left over.
                0 => cursor.end().map(|()| (position, event)),
                _ => Ok((position, event)),
            }
        });

        let (position, event) = read.map_err(|bad| block.error(bad))?;
        (self.at, self.last) = (cursor.at(), position);
        Ok(Some((position, event)))
    }
}

/// Reads the samples of a chunk.
#[derive(Debug)]
pub(crate) struct Samples {
    block: Block,
    payload: Bytes,
    records: Range<usize>,
    literals: Bytes,
    literal: usize,
    decoder: Decoder,
    details: Option<Details>,
    pub(crate) count: u32,
    pub(crate) done: u32,
}

impl Samples {
    /// Opens the samples block of this number; `details` are the details blocks before it.
    pub(crate) fn open(
        trace: &Trace,
        number: usize,
        details: &[usize],
    ) -> Result<Samples, TraceError> {
        let (block, payload) = trace.block_payload(number)?;
        if block.count() > CHUNK_SAMPLES_MAX {
            let what = "more samples than a block may have";
            return Err(block.error(Bad { what, at: 0 }));
        }

        // One block is about all samples, so a second one could only contradict it.
        if details.len() > 1 {
            let what = "more than one details block before a samples block";
            return Err(block.error(Bad { what, at: 0 }));
        }

        let details = details.first().map(|number| Details::open(trace, *number));
        let head = Head::read(&payload).map_err(|bad| block.error(bad))?;
        // Literals take all that is behind the records.
        let rest = head.records.end..payload.len();

        // Without data blocks, the literals are read in place.
        let literals = if head.data.is_empty() {
            payload.part(rest)
        } else {
            Some(Bytes::from_vec(gather(
                trace,
                &block,
                &head.data,
                &payload[rest],
            )?))
        };

        Ok(Samples {
            literals: literals.unwrap_or_else(|| Bytes::from_vec(Vec::new())),
            records: head.records,
            count: block.count(),
            block,
            payload,
            literal: 0,
            decoder: Decoder::default(),
            details: details.transpose()?,
            done: 0,
        })
    }

    /// Decodes the next sample; there must be one.
    pub(crate) fn step(&mut self) -> Result<(), TraceError> {
        let mut records = Cursor::new(&self.payload[..self.records.end], self.records.start);
        let mut literals = Cursor::new(&self.literals, self.literal);
        let read = self.decoder.step(&mut records, &mut literals);
        self.done += 1;
        let read = read.and_then(|()| {
            if self.done == self.count {
                records.end().and_then(|()| literals.end())
            } else {
                Ok(())
            }
        });
        read.map_err(|bad| self.block.error(bad))?;
        (self.records.start, self.literal) = (records.at(), literals.at());
        self.take_details()
    }

    /// Gives the sample that was decoded its details.
    fn take_details(&mut self) -> Result<(), TraceError> {
        let Some(details) = &mut self.details else {
            return Ok(());
        };
        while let Some(detail) = details.of(self.done - 1)? {
            self.decoder
                .detail(detail)
                .map_err(|what| details.error(what))?;
        }
        if self.done == self.count {
            details.end()
        } else {
            Ok(())
        }
    }

    /// The current sample.
    pub(crate) fn sample(&self) -> Sample<'_> {
        self.decoder.sample()
    }
}

/// The part of a samples block before the records.
struct Head {
    data: Vec<u64>,
    records: Range<usize>,
}

impl Head {
    fn read(payload: &[u8]) -> Result<Head, Bad> {
        let mut cursor = Cursor::new(payload, 0);
        let length = cursor.count(payload.len(), "the records are longer than the block")?;
        let most = CHUNK_DECODED_BYTES_MAX as usize;
        let count = cursor.count(cursor.left().min(most), "more references than bytes")?;
        let mut data = Vec::new();
        for _ in 0..count {
            let distance = cursor.u64()?;
            if data.last().is_some_and(|last| *last <= distance) {
                return Err(cursor.bad("data blocks are not in order"));
            }
            data.push(distance);
        }
        let start = cursor.at();
        cursor.take(length)?;
        Ok(Head {
            data,
            records: start..cursor.at(),
        })
    }
}

/// Concatenates the literals of the data blocks and of the samples block itself.
fn gather(
    trace: &Trace,
    block: &Block,
    distances: &[u64],
    own: &[u8],
) -> Result<Vec<u8>, TraceError> {
    let file = (*trace.file).as_ref();
    let mut literals = Vec::new();
    for &distance in distances {
        let data = referred(file, &trace.entries, block, distance, BlockType::Data)?;
        literals.extend_from_slice(&data.payload(&trace.file)?);
        if literals.len() as u64 > CHUNK_DECODED_BYTES_MAX {
            let what = "the samples of a block come to more than 64 MiB";
            return Err(block.error(TraceErrorKind::Malformed { what, at: 0 }));
        }
    }
    literals.extend_from_slice(own);
    Ok(literals)
}

#[cfg(test)]
mod tests;
