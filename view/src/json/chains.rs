//! Writes the chains of many samples. To serialize each frame anew costs far more than the walks,
//! and most frames differ from an earlier one only in where they are. So the text of each place and
//! of each row is made once.

use super::{Line, chain_line, found_name, place, row_line};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use serde::Serialize;
use std::hash::BuildHasher as _;
use std::io::Write;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::run::RunError;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{Found, Frame};
use unwind_sim_unwind::image::{AddressSpace, Stamp};
use unwind_sim_unwind::row::Row;

/// The number of texts of each kind that are kept: some 30 MB at most, unless names are long.
const KEPT_MAX: usize = 1 << 16;

/// Writes the lines of [`super::chain`].
#[derive(Default)]
pub struct ChainWriter {
    texts: Texts,
    line: Vec<u8>,
    frames: Vec<u8>,
}

impl ChainWriter {
    /// Writes the line of one walk of one sample.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(
        &mut self,
        out: &mut (impl Write + ?Sized),
        view: &View<'_>,
        unwinder: &str,
        start: &'static str,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        // In a string, quotes are escaped, so this is the field.
        const NO_FRAMES: &[u8] = b"\"frames\":[]";
        self.line.clear();
        let line = chain_line(view, unwinder, start, outcome, Vec::new());
        serde_json::to_writer(&mut self.line, &Line::Chain(Box::new(line)))?;
        self.line.push(b'\n');
        let mut windows = self.line.windows(NO_FRAMES.len());
        let at = windows.position(|bytes| bytes == NO_FRAMES);
        let at = at.expect("a chain without frames has this field");
        let (head, tail) = self.line.split_at(at + NO_FRAMES.len() - 1);
        self.frames.clear();
        for (i, frame) in outcome.chain.frames.iter().enumerate() {
            if i > 0 {
                self.frames.push(b',');
            }
            self.texts.frame(view.space, frame, &mut self.frames)?;
        }
        for part in [head, &self.frames, tail] {
            out.write_all(part)?;
        }
        Ok(())
    }
}

/// The parts of frames that are kept as text.
#[derive(Default)]
struct Texts {
    /// `"pc":..,"exact":..`
    places: HashMap<(Stamp, CodeAddress), Box<[u8]>>,
    /// `"found":..,"row":..`
    rows: HashTable<(Row, Box<[u8]>)>,
    hasher: DefaultHashBuilder,
}

impl Texts {
    /// Adds the text of [`super::frame_line`].
    fn frame(
        &mut self,
        space: &AddressSpace,
        frame: &Frame,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        out.push(b'{');
        self.place(space, frame.pc, out)?;
        out.extend_from_slice(b",\"sp\":");
        hex(frame.sp, out);
        if let Some(slot) = frame.slot {
            out.extend_from_slice(b",\"slot\":");
            hex(slot, out);
        }
        out.push(b',');
        match &frame.found {
            Found::Rule {
                rule,
                source,
                words,
            } => {
                let row = Row {
                    rule: *rule,
                    source: *source,
                };
                self.row(frame, row, out)?;
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
            _ => field("found", found_name(frame), out)?,
        }
        out.push(b'}');
        Ok(())
    }

    fn place(
        &mut self,
        space: &AddressSpace,
        pc: CodeAddress,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        let key = (space.stamp(), pc);
        if let Some(text) = self.places.get(&key) {
            out.extend_from_slice(text);
            return Ok(());
        }
        let text = serde_json::to_vec(&place(space, pc))?;
        let mut text = text[1..text.len() - 1].to_vec();
        text.push(b',');
        field("exact", &pc.is_instruction(), &mut text)?;
        out.extend_from_slice(&text);
        if self.places.len() >= KEPT_MAX {
            self.places.clear();
        }
        self.places.insert(key, text.into());
        Ok(())
    }

    fn row(&mut self, frame: &Frame, row: Row, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let hasher = &self.hasher;
        let hash = |row: &Row| {
            let source = &row.source;
            hasher.hash_one((source.image, source.row_offset, source.start))
        };
        let hash_of_row = hash(&row);
        if let Some((_, text)) = self.rows.find(hash_of_row, |(kept, _)| *kept == row) {
            out.extend_from_slice(text);
            return Ok(());
        }
        let mut text = Vec::new();
        field("found", found_name(frame), &mut text)?;
        text.push(b',');
        field("row", &row_line(&row), &mut text)?;
        out.extend_from_slice(&text);
        if self.rows.len() >= KEPT_MAX {
            self.rows.clear();
        }
        let rehash = |(row, _): &(Row, _)| hash(row);
        self.rows
            .insert_unique(hash_of_row, (row, text.into()), rehash);
        Ok(())
    }
}

/// Adds a field of an object.
fn field(
    name: &str,
    value: &(impl Serialize + ?Sized),
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *out, name)?;
    out.push(b':');
    serde_json::to_writer(out, value)
}

/// Adds [`unwind_sim_judge::hex::hex`] as a string.
fn hex(value: u64, out: &mut Vec<u8>) {
    let mut text = *b"\"0x................\"";
    let digits = (u64::BITS - (value | 1).leading_zeros()).div_ceil(4) as usize;
    for (i, digit) in text[3..3 + digits].iter_mut().enumerate() {
        let nibble = value >> (4 * (digits - 1 - i)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    text[3 + digits] = b'"';
    out.extend_from_slice(&text[..digits + 4]);
}

#[cfg(test)]
mod tests;
