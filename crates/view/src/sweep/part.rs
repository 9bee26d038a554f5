//! The file with the rows of a shard: JSON Lines, continued after an interruption.
//!
//! The first line says what sweep it is; each file's rows end with the line of its sums, or are the
//! one line of a file that could not be checked; the last line has the sums of all. What an
//! interrupted run, or whatever else, left behind the last whole file is cut off.

use super::list::{List, ListedFile, Shard};
use super::rows::{JsonRows, Sums};
use crate::json::{CountLine, Line, OfFile, SweepLine};
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::hex::hex;
use unwind_sim_tables::proof::claims::UserChoice;
use unwind_sim_tables::proof::verdict::Assumptions;

/// The maximum length of a line that is read, bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What a part is a part of.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// All files of the sweep.
    pub list: &'a List,
    /// Which of them.
    pub shard: Shard,
    /// What proofs may rest on.
    pub assume: Assumptions,
    /// The conventions and claims that the user chose.
    pub choice: UserChoice,
}

impl Plan<'_> {
    /// The first line of the part.
    pub fn header(&self) -> Vec<u8> {
        let line = Line::Sweep(SweepLine {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            list: hex(self.list.hash()),
            list_files: self.list.entries().len(),
            shard: self.shard.number,
            shards: self.shard.count,
            files: self.list.shard(self.shard).len(),
            assume: self.assume.iter().map(|a| a.as_str()).collect(),
            abi: self.choice.convention.map(|c| c.as_str()),
            claims: self.choice.claims.map(|c| c.names()),
        });
        let mut text = Vec::new();
        line.write(&mut text)
            .expect("writing to memory does not fail");
        text
    }
}

/// A part being written.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    kept: ResumePoint,
}

/// What an earlier run left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResumePoint {
    /// The number of files whose rows are whole.
    pub files: usize,
    /// Their numbers.
    pub sums: Sums,
    /// The length of what is whole, bytes.
    pub bytes: u64,
    /// The length of what is cut off, bytes.
    pub cut: u64,
    /// Whether the part is whole.
    pub is_whole: bool,
}

/// Why a part cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Reading or writing fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process holds the file.
    #[error("another process is writing this file")]
    Busy,
    /// The file is something else.
    #[error("this is no part of a sweep; name another file")]
    Else,
    /// It is a part of another sweep.
    #[error(
        "this is a part of another sweep (another list, shard, version, --assume, --abi or --claims); \
         remove it, or name another file"
    )]
    Another,
}

impl PartFile {
    /// Opens or creates the part of `plan` at `path`. What is there is kept as far as it is whole.
    /// A device or pipe is written from the start.
    ///
    /// # Errors
    /// If the file cannot be written, or is something else.
    pub fn open(path: &Path, plan: &Plan<'_>) -> Result<PartFile, PartError> {
        let earlier = fs::metadata(path).ok();
        let header = plan.header();

        // A pipe or device can be neither read back nor cut.
        if earlier.is_some_and(|e| !e.is_file() && !e.is_dir()) {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.write_all(&header)?;
            let kept = ResumePoint::default();
            return Ok(PartFile { file, kept });
        }

        // Neither truncated nor appended to: what is whole in it is kept.
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        // On file systems without locks, concurrent writers are not detected.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(PartError::Busy);
        }

        let length = file.metadata()?.len();
        let files = plan.list.shard(plan.shard);
        let mut kept = read(BufReader::new(&file), &header, &files)?;

        // What is behind the last whole file is cut off now, so that what is written next follows
        // it.
        kept.cut = length.saturating_sub(kept.bytes);
        if kept.cut > 0 {
            file.set_len(kept.bytes)?;
        }

        // A new part starts with the line that says what sweep it is.
        file.seek(SeekFrom::Start(kept.bytes))?;
        if kept.bytes == 0 {
            file.write_all(&header)?;
        }
        Ok(PartFile { file, kept })
    }

    /// What was kept of an earlier run.
    pub fn kept(&self) -> &ResumePoint {
        &self.kept
    }

    /// Adds the rows of the next file.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, rows: &JsonRows) -> io::Result<()> {
        self.file.write_all(rows.text())
    }

    /// Adds the last line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self, sums: &Sums) -> io::Result<()> {
        self.file.write_all(&sums.line())
    }
}

/// What of a line is looked at.
#[derive(Deserialize)]
struct CountedLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    file: Cow<'a, str>,
    #[serde(default)]
    all: CountLine,
    #[serde(default)]
    proven: CountLine,
    #[serde(default)]
    contradicted: CountLine,
    #[serde(default)]
    unproven: CountLine,
    #[serde(default)]
    rows_proven: u64,
    #[serde(default)]
    index: u64,
    #[serde(default)]
    files: u64,
    #[serde(default)]
    unreadable: u64,
}

impl<'a> CountedLine<'a> {
    /// Reads a line. All of it must be UTF-8: serde_json does not look into what it skips.
    fn read(line: &'a [u8]) -> Option<CountedLine<'a>> {
        serde_json::from_str(std::str::from_utf8(line).ok()?).ok()
    }

    fn sums(&self) -> Sums {
        Sums {
            files: self.files,
            unreadable: self.unreadable,
            all: self.all,
            proven: self.proven,
            contradicted: self.contradicted,
            unproven: self.unproven,
            rows_proven: self.rows_proven,
            index: self.index,
        }
    }
}

impl Sums {
    /// Reads the last line of a part.
    #[cfg(feature = "parquet")]
    pub(crate) fn read(line: &[u8]) -> Option<Sums> {
        let known = CountedLine::read(line)?;
        (known.kind == "summary").then(|| known.sums())
    }
}

/// Reads a part as far as it is whole.
fn read(
    mut input: impl BufRead,
    header: &[u8],
    files: &[&ListedFile],
) -> Result<ResumePoint, PartError> {
    // The first line names the sweep, so a part with another first line is not continued.
    let mut line = Vec::new();
    next_line(&mut input, &mut line)?;
    if line != header {
        // Interrupted within the first line, or before it.
        if header.starts_with(&line) {
            return Ok(ResumePoint::default());
        }
        // The part of another sweep gets another message than a file of any other kind.
        let is_part = CountedLine::read(&line).is_some_and(|line| line.kind == "sweep");
        return Err(if is_part {
            PartError::Another
        } else {
            PartError::Else
        });
    }

    let mut bytes = line.len() as u64;
    let mut kept = ResumePoint {
        bytes,
        ..ResumePoint::default()
    };
    let mut expected = files.iter();

    // The files are expected in the order of the list; a part is a beginning of it.
    let mut next = expected.next().map(|e| OfFile::listed(e.bytes(), None));
    let mut functions = 0;

    loop {
        // Any line that does not fit ends what is whole, whatever the reason: the rest is made
        // again.
        next_line(&mut input, &mut line)?;
        // The piece of a line that was being written.
        let Some(b'\n') = line.last() else {
            return Ok(kept);
        };

        bytes += line.len() as u64;
        let Some(known) = CountedLine::read(&line) else {
            return Ok(kept);
        };

        // What another sweep wrote is for files in another order.
        let is_next = next.as_ref().is_some_and(|n| n.file() == known.file);
        let sums = match &*known.kind {
            "function" if is_next => {
                functions += 1;
                continue;
            }
            "wrong_row" | "index" if is_next => continue,
            // A file counts only if all its lines are there.
            "check" if is_next && known.all.functions == functions => Sums {
                files: 1,
                ..known.sums()
            },
            "unreadable" if is_next && functions == 0 => Sums::UNREADABLE,
            "summary" if next.is_none() && known.sums() == kept.sums => {
                kept.bytes = bytes;
                kept.is_whole = true;
                return Ok(kept);
            }
            _ => return Ok(kept),
        };

        // Only here, at the end of a file's lines, is a place from which a sweep can go on.
        kept.sums.add(&sums);
        kept.files += 1;
        kept.bytes = bytes;
        functions = 0;
        next = expected.next().map(|e| OfFile::listed(e.bytes(), None));
    }
}

/// Reads a line with its end. Without an end: the file ends within it, or it is too long.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    input.take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    Ok(())
}

#[cfg(test)]
mod tests;
