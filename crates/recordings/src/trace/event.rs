//! Encodes and decodes the payload of events blocks.
//!
//! Each event stores the number of samples of the next samples block that precede it. Events are in
//! order across all blocks between two samples blocks.

use super::error::{Bad, WriteError};
use super::layout::{CHUNK_SAMPLES_MAX, NAME_BYTES_MAX};
use super::varint::{Cursor, put, put_bytes, put_difference};
use crate::model::{Event, ImageIndex};

/// The numbers of event kinds in the file.
mod kind {
    pub(super) const MAP: u8 = 0;
    pub(super) const UNMAP: u8 = 1;
    pub(super) const EXEC: u8 = 2;
    pub(super) const FORK: u8 = 3;
    pub(super) const EXIT: u8 = 4;
    pub(super) const COMM: u8 = 5;
}

/// Rejects an event that the format cannot hold in a trace with `images` images.
pub(crate) fn check(event: &Event, images: u32) -> Result<(), WriteError> {
    let (name, image) = match event {
        Event::Map { name, image, .. } => (name.len(), *image),
        Event::Comm { name, .. } => (name.len(), None),
        _ => (0, None),
    };
    WriteError::check("bytes in the name of an event", name, NAME_BYTES_MAX)?;
    match image {
        Some(ImageIndex(index)) if index >= images => Err(WriteError::NoImage(index)),
        _ => Ok(()),
    }
}

/// Appends an event that [`check`] has accepted. `position` is the number of samples before it.
pub(crate) fn encode(out: &mut Vec<u8>, position: u32, event: &Event) {
    // Events and samples are in different blocks, so each event says before which sample it
    // happened.
    put(out, u64::from(position));
    match event {
        Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        } => {
            // The end is written as a difference: the length of a mapping takes fewer bytes than
            // its end.
            out.push(kind::MAP);
            put(out, u64::from(*pid));
            put(out, range.start);
            put_difference(out, range.end, range.start);
            // The bias is the address of the file's offset 0, usually just below the mapping.
            put_difference(out, *bias, range.start);
            // Plus 1, because 0 stands for no image.
            put(out, image.map_or(0, |i| u64::from(i.0) + 1));
            put_bytes(out, name.as_bytes());
        }
        Event::Unmap { pid, range } => {
            out.push(kind::UNMAP);
            put(out, u64::from(*pid));
            put(out, range.start);
            put_difference(out, range.end, range.start);
        }
        Event::Exec { pid } => {
            out.push(kind::EXEC);
            put(out, u64::from(*pid));
        }
        Event::Fork {
            pid,
            tid,
            parent_pid,
        } => {
            out.push(kind::FORK);
            // For a new thread, the process and its parent are the same.
            [pid, tid, parent_pid]
                .into_iter()
                .for_each(|id| put(out, u64::from(*id)));
        }
        Event::Exit { pid, tid } => {
            out.push(kind::EXIT);
            [pid, tid]
                .into_iter()
                .for_each(|id| put(out, u64::from(*id)));
        }
        Event::Comm { pid, tid, name } => {
            out.push(kind::COMM);
            [pid, tid]
                .into_iter()
                .for_each(|id| put(out, u64::from(*id)));
            put_bytes(out, name.as_bytes());
        }
    }
}

/// Decodes the next event and its position, in a trace with `images` images.
pub(crate) fn decode(cursor: &mut Cursor<'_>, images: usize) -> Result<(u32, Event), Bad> {
    let what = "an event after more samples than a block may have";
    // Of samples of the next samples block.
    let position = cursor.count(CHUNK_SAMPLES_MAX as usize, what)? as u32;
    let number = cursor.u8()?;
    // Every kind of event starts with its process.
    let pid = cursor.u32()?;

    let event = match number {
        kind::MAP => {
            let start = cursor.u64()?;
            let range = start..cursor.difference(start)?;
            let bias = cursor.difference(start)?;
            let image = cursor.count(images, "a mapping of a missing image")?;
            // 0 means that there is no image.
            let image = image.checked_sub(1).map(|i| ImageIndex(i as u32));
            let name = cursor.string(NAME_BYTES_MAX)?.to_owned();
            Event::Map {
                pid,
                range,
                bias,
                image,
                name,
            }
        }
        kind::UNMAP => {
            let start = cursor.u64()?;
            Event::Unmap {
                pid,
                range: start..cursor.difference(start)?,
            }
        }
        kind::EXEC => Event::Exec { pid },
        kind::FORK => Event::Fork {
            pid,
            tid: cursor.u32()?,
            parent_pid: cursor.u32()?,
        },
        kind::EXIT => Event::Exit {
            pid,
            tid: cursor.u32()?,
        },
        kind::COMM => {
            let tid = cursor.u32()?;
            Event::Comm {
                pid,
                tid,
                name: cursor.string(NAME_BYTES_MAX)?.to_owned(),
            }
        }
        // An event has no length, so one of unknown kind cannot be skipped.
        _ => return Err(cursor.bad("an event of unknown kind")),
    };

    Ok((position, event))
}

#[cfg(test)]
mod tests;
