//! What memory holds before it is written: the bytes of a file, each page read when it is needed.
//!
//! Not here: which files there are, and where their pages come from. Each kind of file implements
//! [`Source`].

use super::limits::PAGE_SIZE;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A page that a file no longer has: it became shorter, or cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gone;

/// Where the pages of a file come from.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fills `to`, which lies inside one page of the file, from the byte `offset` on; zeros follow
    /// the last byte.
    ///
    /// # Errors
    /// If the file ends before the page starts, or the page cannot be read.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Gone>;
}

/// The bytes of a file, or of a part of it. A copy refers to the same file.
#[derive(Clone, Debug)]
pub struct Content {
    source: Arc<dyn Source>,
    size: u64,
}

impl Content {
    /// The first `size` bytes of a source; zeros follow.
    pub fn new(source: Arc<dyn Source>, size: u64) -> Content {
        Content { source, size }
    }

    /// Bytes that are in memory, of whoever holds them.
    pub fn held(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Content {
        let size = bytes.as_ref().len() as u64;
        Content::new(Arc::new(Held(bytes)), size)
    }

    /// No bytes: all is zero.
    pub fn empty() -> Content {
        Content::from(Vec::new())
    }

    /// The number of bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The same without the bytes from `size` on.
    #[must_use]
    pub fn truncated(&self, size: u64) -> Content {
        Content::new(self.source.clone(), self.size.min(size))
    }

    /// A copy of some of the bytes, of which the caller limits the number. `None` if they are not
    /// all there.
    pub fn part(&self, range: Range<u64>) -> Option<Vec<u8>> {
        if range.start > range.end || range.end > self.size {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        self.read(range.start, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Fills `to` from the byte `offset` on, with zeros past the end.
    ///
    /// # Errors
    /// At the first page that the file no longer has; the pages before it are filled.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Gone> {
        let held = self.size.saturating_sub(offset).min(to.len() as u64);
        let (mut rest, behind) = to.split_at_mut(held as usize);
        behind.fill(0);
        let mut at = offset;
        while !rest.is_empty() {
            let in_page = PAGE_SIZE - at % PAGE_SIZE;
            let page;
            (page, rest) = rest.split_at_mut(in_page.min(rest.len() as u64) as usize);
            self.source.read(at, page)?;
            at += page.len() as u64;
        }
        Ok(())
    }
}

/// Bytes that are in memory already.
struct Held<T>(T);

impl<T: AsRef<[u8]>> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.as_ref().len())
    }
}

impl<T: AsRef<[u8]> + Send + Sync> Source for Held<T> {
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Gone> {
        let start = usize::try_from(offset).ok();
        let from = start.and_then(|start| self.0.as_ref().get(start..));
        let from = from.unwrap_or_default();
        let (held, behind) = to.split_at_mut(from.len().min(to.len()));
        held.copy_from_slice(&from[..held.len()]);
        behind.fill(0);
        Ok(())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::held(bytes)
    }
}
