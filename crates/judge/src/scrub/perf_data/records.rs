//! Copies the records and sections of a perf.data, without those that no unwinder needs.

use super::LeftOut;
use super::features::{self, BUILD_ID_PATH};
use crate::scrub::address::is_address;
use crate::scrub::names::Names;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use unwind_sim_perf_data::{Event, Mode, Order, PerfFile, RawRecord, le, record_type as rt};

/// Size of the header with its feature bits, of an attribute's list of IDs, and of a record's
/// header, bytes.
const HEADER: usize = 104;
const SECTION: usize = 16;
const RECORD: usize = 8;
/// Where the header has the size of an attribute, the attributes, the records and the feature bits.
const ATTR_SIZE: usize = 16;
const ATTRS: usize = 24;
const DATA: usize = 40;
const FEATURES: usize = 72;
/// The longest body of a record: the size in its header has 16 bits.
const BODY_MAX: usize = u16::MAX as usize - RECORD;

/// Offsets of the names in the bodies of records.
const MMAP_PATH: usize = 32;
const MMAP2_PATH: usize = 64;
const COMM_NAME: usize = 8;
const CGROUP_PATH: usize = 8;

/// Record types that are copied: mappings, tasks, and what describes the recording.
const KEPT: [u32; 31] = [
    rt::MMAP,
    rt::LOST,
    rt::COMM,
    rt::EXIT,
    rt::THROTTLE,
    rt::UNTHROTTLE,
    rt::FORK,
    rt::READ,
    rt::SAMPLE,
    rt::MMAP2,
    rt::LOST_SAMPLES,
    rt::SWITCH,
    rt::SWITCH_CPU_WIDE,
    rt::NAMESPACES,
    rt::KSYMBOL,
    rt::BPF_EVENT,
    rt::CGROUP,
    rt::TEXT_POKE,
    rt::CALLCHAIN_DEFERRED,
    rt::HEADER_ATTR,
    rt::HEADER_TRACING_DATA,
    rt::HEADER_BUILD_ID,
    rt::FINISHED_ROUND,
    rt::ID_INDEX,
    rt::THREAD_MAP,
    rt::CPU_MAP,
    rt::EVENT_UPDATE,
    rt::TIME_CONV,
    rt::HEADER_FEATURE,
    rt::FINISHED_INIT,
    rt::STAT_ROUND,
];

pub(super) struct Copier<'f, 'a, 'n> {
    bytes: &'a [u8],
    file: &'f PerfFile<'a>,
    names: Option<&'n mut Names>,
    pub(super) left_out: LeftOut,
}

impl<'f, 'a, 'n> Copier<'f, 'a, 'n> {
    pub(super) fn new(
        bytes: &'a [u8],
        file: &'f PerfFile<'a>,
        names: Option<&'n mut Names>,
    ) -> Self {
        Copier {
            bytes,
            file,
            names,
            left_out: LeftOut::default(),
        }
    }

    pub(super) fn copy<W: Write + Seek>(&mut self, out: &mut W) -> io::Result<()> {
        match self.file.mode() {
            Mode::Pipe => {
                let start = self.file.data_range().start as usize;
                out.write_all(&self.bytes[..start.min(SECTION)])?;
                self.records(out).map(drop)
            }
            Mode::File => self.file_mode(out),
        }
    }

    /// Header, IDs, attributes, records, and the feature sections with their table.
    fn file_mode<W: Write + Seek>(&mut self, out: &mut W) -> io::Result<()> {
        let word = |at| le::u64_at(self.bytes, at).unwrap_or(0);
        // The header says how large its attributes are: later versions of perf have larger ones.
        let attr_size = usize::try_from(word(ATTR_SIZE)).unwrap_or(usize::MAX);
        let table = slice(self.bytes, word(ATTRS), word(ATTRS + 8));
        let mut header = self.bytes[..FEATURES].to_vec();
        header.resize(HEADER, 0);
        header[8..16].copy_from_slice(&(HEADER as u64).to_le_bytes());
        // Event types, which perf has not written since 2013.
        header[DATA + 16..FEATURES].fill(0);

        let (mut ids, mut attrs) = (Vec::new(), Vec::new());
        // `max`: a damaged size may be 0, or too small for the section at the end of the entry.
        for entry in table.chunks_exact(attr_size.max(SECTION)) {
            let (attr, list) = entry.split_at(entry.len() - SECTION);
            let list = slice(
                self.bytes,
                le::u64_at(list, 0).unwrap_or(0),
                le::u64_at(list, 8).unwrap_or(0),
            );
            attrs.extend(attr);
            attrs.extend(((HEADER + ids.len()) as u64).to_le_bytes());
            attrs.extend((list.len() as u64).to_le_bytes());
            ids.extend(list);
        }
        let attrs_at = (HEADER + ids.len()) as u64;
        let data_at = attrs_at + attrs.len() as u64;
        put(&mut header, ATTRS, attrs_at);
        put(&mut header, ATTRS + 8, attrs.len() as u64);
        // The size of the data is not known yet: the header is written again at the end.
        put(&mut header, DATA, data_at);
        out.write_all(&header)?;
        out.write_all(&ids)?;
        out.write_all(&attrs)?;

        let size = self.records(out)?;
        put(&mut header, DATA + 8, size);
        let mut sections = Vec::new();
        let mut numbers: Vec<u8> = self.file.features().numbers().collect();
        // The sections have no numbers in the file: their order is that of the bits in the header.
        numbers.sort_unstable();
        for number in numbers {
            let bytes = self.file.features().section(number).unwrap_or_default();
            match self.section(number, bytes) {
                Some(bytes) => {
                    header[FEATURES + usize::from(number) / 8] |= 1 << (number % 8);
                    sections.push(bytes);
                }
                None => self.left_out.features.push(number),
            }
        }
        // The table of the feature sections follows the data, and they follow the table.
        let mut at = data_at + size + (SECTION * sections.len()) as u64;
        for bytes in &sections {
            out.write_all(&at.to_le_bytes())?;
            out.write_all(&(bytes.len() as u64).to_le_bytes())?;
            at += bytes.len() as u64;
        }
        sections.iter().try_for_each(|bytes| out.write_all(bytes))?;
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&header)
    }

    fn section(&mut self, number: u8, bytes: &[u8]) -> Option<Vec<u8>> {
        let names = self.names.as_deref_mut();
        features::section(number, bytes, names, &mut self.left_out.words)
    }

    /// Copies the records. Returns their size, bytes.
    fn records<W: Write>(&mut self, out: &mut W) -> io::Result<u64> {
        let (mut size, mut result) = (0, Ok(()));
        let file = self.file;
        let summary = file.for_each(Order::File, |event| {
            let is_kept = KEPT.contains(&event.raw.kind);
            let body = if is_kept { self.body(&event) } else { None };
            let Some(body) = body.filter(|body| body.len() <= BODY_MAX) else {
                // A feature is counted as one.
                if event.raw.kind != rt::HEADER_FEATURE {
                    *self.left_out.records.entry(event.raw.kind).or_default() += 1;
                }
                return ControlFlow::Continue(());
            };
            // A record states these apart from its own size: without them, readers would skip as
            // many bytes of the records behind it.
            let trailing = self.trailing(&event.raw);
            result = record(out, &event.raw, &body).and_then(|()| out.write_all(trailing));
            size += (RECORD + body.len() + trailing.len()) as u64;
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        self.left_out.damaged = summary.skipped;
        result.map(|()| size)
    }

    /// The bytes that follow a record and are not in its size.
    fn trailing(&self, raw: &RawRecord<'_>) -> &'a [u8] {
        if raw.kind != rt::HEADER_TRACING_DATA || raw.unpacked {
            return &[];
        }
        let size = u64::from(le::u32_at(raw.body, 0).unwrap_or(0)).next_multiple_of(8);
        let start = raw.offset + (RECORD + raw.body.len()) as u64;
        slice(self.bytes, start, size)
    }

    /// The body of a record; `None` to leave it out.
    fn body(&mut self, event: &Event<'_>) -> Option<Vec<u8>> {
        let (raw, body) = (&event.raw, event.raw.body);
        // perf's own records have no trailer; the kernel's may have one (`sample_id_all`).
        let trailer = if raw.kind < rt::USER_TYPE_START {
            event.attr.trailer_bytes()
        } else {
            0
        };

        let is_named = self.names.is_some();
        let mut file = |name: &str| match &mut self.names {
            Some(names) => names.file(name),
            None => name.to_owned(),
        };

        Some(match raw.kind {
            rt::MMAP => named(body, MMAP_PATH, trailer, file),
            rt::MMAP2 => named(body, MMAP2_PATH, trailer, file),
            rt::CGROUP => named(body, CGROUP_PATH, trailer, file),
            rt::HEADER_BUILD_ID => named(body, BUILD_ID_PATH, 0, file),
            rt::COMM => named(body, COMM_NAME, trailer, |name| match &mut self.names {
                Some(names) => names.thread(name),
                None => name.to_owned(),
            }),
            rt::THREAD_MAP if is_named => thread_map(body, &mut file),
            rt::HEADER_TRACING_DATA if is_named => return None,
            rt::HEADER_FEATURE => {
                // `struct perf_record_header_feature`: the number, then the bytes of the section.
                let number = u8::try_from(le::u64_at(body, 0)?).ok()?;
                let Some(bytes) = self.section(number, &body[8..]) else {
                    self.left_out.features.push(number);
                    return None;
                };
                [&body[..8], &bytes].concat()
            }
            // The user part of a sample's chain, in a record of its own.
            rt::CALLCHAIN_DEFERRED => deferred(body, trailer),
            _ => body.to_vec(),
        })
    }
}

/// The body with another name in place of that at `at`. What was behind the name's end is zero.
pub(super) fn named(
    body: &[u8],
    at: usize,
    trailer: usize,
    mut new: impl FnMut(&str) -> String,
) -> Vec<u8> {
    let end = body.len().saturating_sub(trailer);
    let Some(field) = body.get(at..end) else {
        return body.to_vec();
    };

    let old = String::from_utf8_lossy(le::until_nul(field)).into_owned();
    let mut text = new(&old).into_bytes();

    if text == old.as_bytes() && le::until_nul(field).len() < field.len() {
        // The same room, so that nothing moves.
        text.resize(field.len(), 0);
    } else {
        // `perf_event_comm_event` in `kernel/events/core.c` aligns names to 8 bytes, too.
        text.resize((text.len() + 1).next_multiple_of(8), 0);
    }

    let mut out = [&body[..at], &text, &body[end..]].concat();

    // An entry of the feature section has its own size in front.
    if at == RECORD + BUILD_ID_PATH
        && trailer == 0
        && le::u16_at(body, 6) == Some(body.len() as u16)
    {
        let size = (out.len() as u16).to_le_bytes();
        out[6..8].copy_from_slice(&size);
    }

    out
}

/// The names of recorded threads: a count, then for each a number and 16 bytes of name.
fn thread_map(body: &[u8], new: &mut dyn FnMut(&str) -> String) -> Vec<u8> {
    let mut out = body.to_vec();
    for entry in out.get_mut(8..).unwrap_or_default().chunks_exact_mut(24) {
        let name = String::from_utf8_lossy(le::until_nul(&entry[8..])).into_owned();
        let text = new(&name).into_bytes();
        entry[8..].fill(0);
        let len = text.len().min(15);
        entry[8..8 + len].copy_from_slice(&text[..len]);
    }
    out
}

/// Deferred chains: their words that are no addresses, as those of frame pointers that hold text,
/// become others. The first two words are the cookie and the count.
fn deferred(body: &[u8], trailer: usize) -> Vec<u8> {
    let mut out = body.to_vec();
    let end = out.len().saturating_sub(trailer);
    for word in out.get_mut(16..end).unwrap_or_default().chunks_exact_mut(8) {
        let address = le::u64_at(word, 0).unwrap_or(0);
        if !is_address(address) {
            word.copy_from_slice(&super::sample::no_address(address).to_le_bytes());
        }
    }
    out
}

fn record(out: &mut impl Write, raw: &RawRecord<'_>, body: &[u8]) -> io::Result<()> {
    out.write_all(&raw.kind.to_le_bytes())?;
    out.write_all(&raw.misc.to_le_bytes())?;
    out.write_all(&((RECORD + body.len()) as u16).to_le_bytes())?;
    out.write_all(body)
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// A part of the file; empty if it does not have it.
fn slice(bytes: &[u8], offset: u64, size: u64) -> &[u8] {
    let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
    let found = range.and_then(|(start, size)| bytes.get(start..start.checked_add(size)?));
    found.unwrap_or_default()
}
