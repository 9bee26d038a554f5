//! The text of each place and of each row, made once: most frames differ from an earlier one only
//! in where they are.

use super::field;
use crate::json::{found_name, place, row_line};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher as _;
use unwind_sim_judge::diagnose::Diagnosis;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{How, Step};
use unwind_sim_unwind::image::{AddressSpace, Contents};
use unwind_sim_unwind::row::Row;

/// The number of texts of each kind that are kept: some 30 MB at most, unless names are long.
const KEPT_MAX: usize = 1 << 16;

/// The parts of frames that are kept as text.
#[derive(Default)]
pub(super) struct Texts {
    /// `"pc":..,"image":..`
    places: HashMap<(Contents, CodeAddress), Box<[u8]>>,
    rows: HashTable<(Row, Box<[u8]>)>,
    hasher: DefaultHashBuilder,
}

impl Texts {
    /// Adds the text of [`crate::json::frame_line`].
    pub(super) fn frame(
        &mut self,
        space: &AddressSpace,
        frame: &Step<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        // Written by hand, byte for byte as serde would: this runs for every frame of every sample.
        out.push(b'{');
        self.place(space, frame.pc, out)?;
        out.extend_from_slice(if frame.pc.is_instruction() {
            b",\"exact\":true,\"sp\":"
        } else {
            b",\"exact\":false,\"sp\":"
        });
        hex(frame.sp, out);

        if let Some(slot) = frame.slot {
            out.extend_from_slice(b",\"slot\":");
            hex(slot, out);
        }

        field(",\"found\":", found_name(frame), out)?;
        if let How::Rule { row, words } = frame.how {
            out.extend_from_slice(b",\"row\":");
            self.row(&row.row(), out)?;

            // The array is opened with its first element, since serde leaves out an empty one.
            for (i, word) in words.iter().enumerate() {
                out.extend_from_slice(if i == 0 { b",\"words\":[[" } else { b",[" });
                hex(word.address, out);
                out.push(b',');
                hex(word.value, out);
                out.push(b']');
            }
            if !words.is_empty() {
                out.push(b']');
            }
        }

        out.push(b'}');
        Ok(())
    }

    /// Adds the text of [`crate::json::cause_line`].
    pub(super) fn cause(
        &mut self,
        space: &AddressSpace,
        diagnosis: &Diagnosis,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        field("{\"code\":", diagnosis.code.as_str(), out)?;
        field(",\"frame\":", &diagnosis.frame, out)?;
        out.extend_from_slice(b",\"place\":{");
        self.place(space, diagnosis.pc, out)?;
        out.push(b'}');

        // A cause without a contradiction is one of the walk, such as a missing image.
        if let Some(contradiction) = &diagnosis.contradiction {
            field(",\"register\":", contradiction.reg.as_str(), out)?;
            if let Some(given) = contradiction.given {
                out.extend_from_slice(b",\"given\":");
                hex(given, out);
            }
            out.extend_from_slice(b",\"truth\":");
            hex(contradiction.truth, out);
            if let Some(row) = &contradiction.row {
                out.extend_from_slice(b",\"row\":");
                self.row(row, out)?;
            }
        }

        out.push(b'}');
        Ok(())
    }

    /// Adds the fields of a place.
    fn place(
        &mut self,
        space: &AddressSpace,
        pc: CodeAddress,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        let key = (space.contents(), pc);
        if let Some(text) = self.places.get(&key) {
            out.extend_from_slice(text);
            return Ok(());
        }
        let text = serde_json::to_vec(&place(space, pc))?;
        let text = &text[1..text.len() - 1];
        out.extend_from_slice(text);
        if self.places.len() >= KEPT_MAX {
            self.places.clear();
        }
        self.places.insert(key, text.into());
        Ok(())
    }

    fn row(&mut self, row: &Row, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let hasher = &self.hasher;
        let hash = |row: &Row| {
            let source = &row.source;
            hasher.hash_one((source.image, source.row_offset, source.start))
        };
        let hash_of_row = hash(row);
        if let Some((_, text)) = self.rows.find(hash_of_row, |(kept, _)| kept == row) {
            out.extend_from_slice(text);
            return Ok(());
        }
        let text = serde_json::to_vec(&row_line(row))?;
        out.extend_from_slice(&text);
        if self.rows.len() >= KEPT_MAX {
            self.rows.clear();
        }
        let rehash = |(row, _): &(Row, _)| hash(row);
        self.rows
            .insert_unique(hash_of_row, (*row, text.into()), rehash);
        Ok(())
    }
}

/// Adds [`unwind_sim_judge::hex::hex`] as a string.
pub(super) fn hex(value: u64, out: &mut Vec<u8>) {
    let mut text = *b"\"0x................\"";
    let digits = (u64::BITS - (value | 1).leading_zeros()).div_ceil(4) as usize;
    for (i, digit) in text[3..3 + digits].iter_mut().enumerate() {
        let nibble = value >> (4 * (digits - 1 - i)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    text[3 + digits] = b'"';
    out.extend_from_slice(&text[..digits + 4]);
}
