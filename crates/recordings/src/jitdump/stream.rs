//! A jitdump file while it is written.

use super::records::{Header, MAGIC, Records};
use super::{Function, HEADER_SIZE, Problem, u32_at};
use unwind_sim_unwind::image::Bytes;

/// Maximum size of a record that is waited for, bytes.
const RECORD_MAX: usize = 128 << 20;

/// Reads a jitdump file while it is written, in pieces of any size.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// What is not a whole record yet.
    rest: Vec<u8>,
    /// The number of bytes before it.
    offset: u64,
    /// The header's bytes, and what they say.
    header: Option<(Vec<u8>, Header)>,
    records: Records,
    problem: Option<Problem>,
}

impl Stream {
    /// Can these bytes be the start of a jitdump file of this byte order?
    pub fn starts(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Adds what was written, and returns the number of functions before it.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let before = self.records.functions.len();
        if self.problem.is_none() && !self.records.is_closed {
            self.rest.extend_from_slice(bytes);
            self.problem = self.read().err();
        }
        if self.problem.is_some() || self.records.is_closed {
            self.rest = Vec::new();
        }
        before
    }

    fn read(&mut self) -> Result<(), Problem> {
        let mut at = 0;
        if self.header.is_none() {
            if self.rest.len() < HEADER_SIZE {
                return Ok(());
            }
            let header = Header::read(&self.rest)?;
            // The header may be longer than what is read of it.
            if self.rest.len() < header.size {
                return self.wait();
            }
            at = header.size;
            self.header = Some((self.rest[..HEADER_SIZE].to_vec(), header));
        }

        // Most pieces complete no record.
        let size = u32_at(&self.rest, at + 4).map(|size| size as usize);
        if size.is_none_or(|size| self.rest.len() - at < size) {
            if at > 0 {
                self.rest.drain(..at);
                self.offset += at as u64;
            }
            return self.wait();
        }

        // Functions keep their parts of these bytes.
        let bytes = Bytes::from_vec(std::mem::take(&mut self.rest));
        let known = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let known = known.saturating_add(bytes.len());
        let end = self.records.read(&bytes, self.offset, at, known)?;

        self.rest = bytes[end..].to_vec();
        self.offset += end as u64;
        self.wait()
    }

    /// Whether the rest may become a record.
    fn wait(&self) -> Result<(), Problem> {
        if self.rest.len() > RECORD_MAX {
            Err(self
                .records
                .cut(usize::try_from(self.offset).unwrap_or(usize::MAX)))
        } else {
            Ok(())
        }
    }

    /// The functions so far, also those that were moved, in the order of the file.
    pub fn functions(&self) -> &[Function] {
        &self.records.functions
    }

    /// The header, once it is complete: a file that is written through two ways has the same in
    /// both.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_ref().map(|(bytes, _)| &bytes[..])
    }

    /// Is everything read that was given?
    pub fn is_between_records(&self) -> bool {
        self.rest.is_empty()
    }

    /// Why nothing more is read.
    pub fn problem(&self) -> Option<Problem> {
        self.problem
    }
}
