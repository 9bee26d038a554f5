//! Directories that `perf record --threads` writes, read as one perf.data file.
//!
//! Source: Linux `tools/perf/util/data.c` (6.12). `data` has the header, the attributes and the
//! features; `data.0`, `data.1` .. have records only, one file for each reading thread, each in the
//! order of time and, with `-z`, each a zstd stream of its own. They are joined in a temporary file
//! without a name: the file `data`, all records, and its table of features.

use crate::mapped::{map_file, map_open_file};
use crate::open;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use unwind_sim_unwind::image::Owner;
use zstd::stream::raw::{Decoder, Operation};

/// `PERFILE2`.
const MAGIC: &[u8] = b"PERFILE2";
/// Size of the header of a file, bytes.
const HEADER_SIZE: usize = 104;
/// Where the header says where the records are: offset and size.
const DATA_AT: usize = 40;
/// Where the bits of the features are, and how many bytes.
const FEATURES: std::ops::Range<usize> = 72..104;
/// Size of an entry of the table of features, bytes.
const FEATURE_SIZE: usize = 16;
/// Maximum number of files in a directory; perf writes one for each processor or thread.
const FILES_MAX: usize = 4096;
/// `PERF_RECORD_COMPRESSED`, `PERF_RECORD_COMPRESSED2`.
const COMPRESSED: [u32; 2] = [81, 83];
/// Size of the header of a record, bytes.
const RECORD: usize = 8;
/// Maximum bytes that the compressed records of a directory may unpack to, above [`RATIO_MAX`] times
/// the size of their files. A record of 64 KiB can hold 2 GiB of zeros, and there is no limit to the
/// number of records.
const UNPACKED_MAX: u64 = 1 << 30;
/// Bytes that each byte of the files adds to the limit.
const RATIO_MAX: u64 = 256;

/// Such a directory, whose file `data` is open.
pub(crate) struct PerfDirectory {
    data: File,
    metadata: Metadata,
}

impl PerfDirectory {
    /// Opens the directory at `path`, if it is one of perf.
    pub(crate) fn open(path: &Path) -> Option<PerfDirectory> {
        let mut head = [0; MAGIC.len()];
        let (data, metadata) = open::file(&path.join("data")).ok()?;
        data.read_exact_at(&mut head, 0).ok()?;
        (head == MAGIC).then_some(PerfDirectory { data, metadata })
    }

    /// Joins the files of the directory, which is at `path`.
    ///
    /// # Errors
    /// If a file cannot be read, the temporary one cannot be written, `data` has no usable header, or the
    /// compressed records unpack to more than the limit.
    pub(crate) fn map(&self, path: &Path) -> io::Result<Owner> {
        self.map_at_most(path, UNPACKED_MAX)
    }

    /// [`PerfDirectory::map`] with another limit than [`UNPACKED_MAX`].
    fn map_at_most(&self, path: &Path, max: u64) -> io::Result<Owner> {
        let owner = map_open_file(&path.join("data"), &self.data, &self.metadata)?;
        join(path, &owner, max)
    }
}

/// Joins the file `data`, which is open, with the others of the directory at `path`.
fn join(path: &Path, data: &Owner, max: u64) -> io::Result<Owner> {
    let first: &[u8] = (**data).as_ref();
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let header = first.get(..HEADER_SIZE).filter(|h| h.starts_with(MAGIC));
    let header = header.ok_or_else(|| invalid("the file `data` has no perf.data header"))?;
    let [start, size] = [DATA_AT, DATA_AT + 8].map(|at| word(header, at));
    let records = place(start, size).and_then(|range| first.get(range));
    let records = records.ok_or_else(|| invalid("the records of `data` lie outside of it"))?;
    // Behind the records there is a table with an entry for each feature bit.
    let features: u32 = header[FEATURES].iter().map(|byte| byte.count_ones()).sum();
    let table_at = place(start, size).map_or(0, |range| range.end);
    let table = first.get(table_at..).unwrap_or_default();
    let table = &table[..table.len().min(features as usize * FEATURE_SIZE)];

    let mut out = BufWriter::new(tempfile::tempfile()?);
    out.write_all(first)?;
    let mut written = whole(records)?;
    out.write_all(&records[..written])?;
    let mut left = max;
    // A file that was cut can only stand at the end, where that is noticed.
    let mut cut: Option<Owner> = None;
    for file in files(path)? {
        let owner = map_file(&file)?;
        let bytes: &[u8] = (*owner).as_ref();
        let end = whole(bytes)?;
        // A large recording may unpack to more than a small one.
        left = left.saturating_add(RATIO_MAX * bytes.len() as u64);
        written += copy(&bytes[..end], &mut left, &mut out)?;
        if end < bytes.len() {
            cut = Some(owner);
        }
    }
    if let Some(owner) = cut {
        let bytes: &[u8] = (*owner).as_ref();
        let rest = &bytes[whole(bytes)?..];
        out.write_all(rest)?;
        written += rest.len();
    }
    out.write_all(table)?;

    let mut file = out.into_inner().map_err(|error| error.into_error())?;
    // The header now points behind the old file, to the records of all files.
    file.seek(SeekFrom::Start(DATA_AT as u64))?;
    file.write_all(&(first.len() as u64).to_le_bytes())?;
    file.write_all(&(written as u64).to_le_bytes())?;
    let metadata = file.metadata()?;
    map_open_file(path, &file, &metadata)
}

/// The files with records, in the order of their numbers.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) {
            found.push((number, entry.path()));
        }
        if found.len() > FILES_MAX {
            let message = "the directory has more than 4096 files of records";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The length of the whole records in `bytes`.
fn whole(bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some((_, size)) = record(bytes, at) {
        if size < RECORD {
            let message = format!("impossible record size {size} at offset {at:#x} of a file");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if bytes.len() - at < size {
            break;
        }
        at += size;
    }
    Ok(at)
}

/// The kind and the size of the record at `at`.
fn record(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let header = bytes.get(at..)?.first_chunk::<RECORD>()?;
    let kind = u32::from_le_bytes(*header.first_chunk()?);
    Some((kind, u16::from_le_bytes([header[6], header[7]]).into()))
}

/// Appends whole records, unpacked. Returns how many bytes they are. `left` are the bytes that may
/// still be unpacked.
fn copy(bytes: &[u8], left: &mut u64, out: &mut impl Write) -> io::Result<usize> {
    let mut decoder: Option<Decoder<'_>> = None;
    let mut written = 0;
    let (mut plain, mut at) = (0, 0);

    while let Some((kind, size)) = record(bytes, at) {
        if COMPRESSED.contains(&kind) {
            out.write_all(&bytes[plain..at])?;
            written += at - plain;
            // What stands before it was not compressed, and is copied in one piece.
            let mut payload = &bytes[at + RECORD..at + size];
            if kind == COMPRESSED[1] {
                // The size without padding, and then the bytes.
                let length = place(8, word(payload, 0));
                payload = length
                    .and_then(|range| payload.get(range))
                    .unwrap_or_default();
            }

            // All compressed records of a file are one stream.
            let decoder = match &mut decoder {
                Some(decoder) => decoder,
                None => decoder.insert(Decoder::new()?),
            };
            written += unpack(decoder, payload, left, out)?;
            plain = at + size;
        }
        at += size;
    }

    out.write_all(&bytes[plain..at])?;
    Ok(written + at - plain)
}

/// Unpacks what one compressed record has of the stream.
fn unpack(
    decoder: &mut Decoder<'_>,
    mut input: &[u8],
    left: &mut u64,
    out: &mut impl Write,
) -> io::Result<usize> {
    // A block of zstd unpacks to no more (RFC 8878, 3.1.1.2.4).
    let mut buffer = vec![0; 128 << 10];
    let mut written = 0;
    loop {
        let step = decoder.run_on_buffers(input, &mut buffer)?;
        input = &input[step.bytes_read..];
        written += step.bytes_written;

        // A few compressed bytes may unpack to any number of them.
        let Some(rest) = left.checked_sub(step.bytes_written as u64) else {
            let message = format!(
                "the compressed records unpack to more than 1 GiB and {RATIO_MAX} times their files"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };

        *left = rest;
        out.write_all(&buffer[..step.bytes_written])?;

        // If the buffer is full, the decoder may hold more.
        let is_full = step.bytes_written == buffer.len();
        if !is_full && (input.is_empty() || step.bytes_read == 0) {
            return Ok(written);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

fn place(start: u64, size: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(start).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
    use unwind_sim_perf_data::{PerfFile, sample_type as st};

    /// A directory, removed on drop.
    struct Dir(PathBuf);

    impl Dir {
        fn new(test: &str, files: &[(&str, &[u8])]) -> Dir {
            let path = std::env::temp_dir();
            let path = path.join(format!("unwind-sim-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a temporary directory");
            for (name, bytes) in files {
                std::fs::write(path.join(name), bytes).expect("a temporary file");
            }
            Dir(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A file with samples of these times.
    fn recording(times: &[u64]) -> Vec<u8> {
        let event = EventSpec {
            sample_type: st::IP | st::TID | st::TIME,
            ..EventSpec::software("cpu-clock", 0)
        };
        let mut writer = Writer::new(vec![event]);
        for &time in times {
            let id = Id {
                pid: 7,
                tid: 7,
                time,
                ..Id::default()
            };
            let sample = Body::Sample(SampleData::default());
            writer.record(&sample, &id).expect("a record");
        }
        writer.finish()
    }

    /// Only the records of such a file.
    fn records(times: &[u64]) -> Vec<u8> {
        let file = recording(times);
        let range = place(word(&file, DATA_AT), word(&file, DATA_AT + 8)).expect("a range");
        file[range].to_vec()
    }

    /// The records as perf compresses them: a stream that is never ended, in two pieces.
    fn compressed(times: &[u64]) -> Vec<u8> {
        let packed = zstd::encode_all(&records(times)[..], 1).expect("zstd");
        let (one, two) = packed.split_at(packed.len() / 2);
        [piece(one), piece(two)].concat()
    }

    /// A compressed record.
    fn piece(bytes: &[u8]) -> Vec<u8> {
        let size = (RECORD + bytes.len()) as u64;
        let header = (u64::from(COMPRESSED[0]) | size << 48).to_le_bytes();
        [&header[..], bytes].concat()
    }

    fn times(dir: &Dir) -> (Vec<u64>, bool) {
        let owner = map_file(&dir.0).expect("a directory of perf");
        let file = PerfFile::parse((*owner).as_ref()).expect("perf.data");
        assert_eq!(
            file.attrs()[0].name.as_deref(),
            Some("cpu-clock"),
            "from a feature"
        );
        let mut times = Vec::new();
        let summary = file.for_each_ordered(|event| {
            times.extend(event.time());
            std::ops::ControlFlow::Continue(())
        });
        let is_cut = !matches!(summary.stop, unwind_sim_perf_data::Stop::End);
        (times, is_cut)
    }

    #[test]
    fn the_files_of_a_directory_are_one_recording() {
        let files: [(&str, &[u8]); 5] = [
            ("data", &recording(&[10, 60])),
            ("data.0", &[]),
            ("data.2", &compressed(&[20, 50])),
            ("data.10", &compressed(&[30, 40])),
            ("other", b"of no importance"),
        ];
        let dir = Dir::new("perf-directory", &files);
        assert!(PerfDirectory::open(&dir.0).is_some());
        assert_eq!(times(&dir), (vec![10, 20, 30, 40, 50, 60], false));
    }

    #[test]
    fn a_file_that_was_cut_is_noticed() {
        let cut = records(&[20, 30]);
        let files: [(&str, &[u8]); 3] = [
            ("data", &recording(&[10])),
            ("data.0", &cut[..cut.len() - 1]),
            ("data.1", &records(&[40])),
        ];
        let dir = Dir::new("perf-directory-cut", &files);
        assert_eq!(times(&dir), (vec![10, 20, 40], true));
    }

    #[test]
    fn what_is_no_directory_of_perf_is_refused() {
        let dir = Dir::new("perf-directory-none", &[("data", b"PERFILE1")]);
        assert!(PerfDirectory::open(&dir.0).is_none());
        assert!(map_file(&dir.0).is_err());
        std::fs::write(dir.0.join("data"), b"PERFILE2").expect("a temporary file");
        assert!(PerfDirectory::open(&dir.0).is_some());
        let error = map_file(&dir.0).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "the file `data` has no perf.data header");
        std::fs::write(dir.0.join("data"), recording(&[1])).expect("a temporary file");
        std::fs::write(dir.0.join("data.0"), [0; 8]).expect("a temporary file");
        let error = map_file(&dir.0).map(drop).unwrap_err();
        assert!(
            error.to_string().contains("impossible record size 0"),
            "{error}"
        );
    }

    #[test]
    fn many_records_that_each_unpack_to_little_are_limited_together() {
        let first = recording(&[]);
        let mib = zstd::encode_all(&vec![0; 1 << 20][..], 1).expect("packed");
        let of = |test, count| {
            let records = piece(&mib).repeat(count);
            Dir::new(test, &[("data", &first), ("data.0", &records)])
        };
        let (few, many) = (of("few-packed", 4), of("many-packed", 40));
        let map_at_most = |dir: &Dir, max| {
            let opened = PerfDirectory::open(&dir.0).expect("one of perf");
            opened.map_at_most(&dir.0, max)
        };
        assert!(map_at_most(&few, 4 << 20).is_ok());

        let error = map_at_most(&many, 4 << 20).err().expect("too much");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("256 times"), "{error}");
        assert!(map_at_most(&many, 40 << 20).is_ok());
    }
}
