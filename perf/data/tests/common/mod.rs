//! Small perf.data files built word by word, and the recordings of the corpus.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;

use unwind_sim_perf_data::{Event, Order, PerfFile, Summary};

/// The path of a file in `corpus/perfdata`.
pub(crate) fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/perfdata")
        .join(name)
}

/// The bytes of a recording of the corpus.
pub(crate) fn recording(name: &str) -> Vec<u8> {
    std::fs::read(corpus(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The attribute of an event, 136 bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attr {
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) regs_user: u64,
    pub(crate) regs_intr: u64,
}

impl Attr {
    fn bytes(&self) -> Vec<u8> {
        let mut words = [0u64; 17];
        words[0] = (8 * words.len() as u64) << 32 | 1;
        words[3] = self.sample_type;
        words[4] = self.read_format;
        words[5] = self.flags;
        words[9] = self.branch_sample_type;
        words[10] = self.regs_user;
        words[12] = self.regs_intr;
        le(&words)
    }
}

/// Little-endian words.
pub(crate) fn le(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A record with its header.
pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len() + 8).expect("a record is below 64 KiB");
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(misc.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(body);
    out
}

/// A file-mode file: events with their IDs, and the data.
pub(crate) fn file(attrs: &[(Attr, &[u64])], data: &[u8]) -> Vec<u8> {
    let mut ids_at = 104u64;
    let ids: Vec<u8> = attrs.iter().flat_map(|(_, ids)| le(ids)).collect();
    let attrs_at = ids_at + ids.len() as u64;
    let mut table = Vec::new();
    for (attr, ids) in attrs {
        table.extend(attr.bytes());
        table.extend(le(&[ids_at, 8 * ids.len() as u64]));
        ids_at += 8 * ids.len() as u64;
    }

    // The data come last, so their place follows from all that is before them.
    // Each entry of the table is an attribute and the place of its IDs.
    let data_at = attrs_at + table.len() as u64;
    let mut out = b"PERFILE2".to_vec();
    out.extend(le(&[
        104,
        136 + 16,
        attrs_at,
        table.len() as u64,
        data_at,
        data.len() as u64,
    ]));
    // The sections that are not there: event types and features.
    out.extend([0; 16 + 32]);
    out.extend(ids);
    out.extend(table);
    out.extend(data);
    out
}

/// A pipe-mode file: events with their IDs as records, then the data.
pub(crate) fn pipe(attrs: &[(Attr, &[u64])], data: &[u8]) -> Vec<u8> {
    let mut out = b"PERFILE2".to_vec();
    out.extend(le(&[16]));
    for (attr, ids) in attrs {
        let body = [attr.bytes(), le(ids)].concat();
        out.extend(record(64, 0, &body));
    }
    out.extend(data);
    out
}

/// Passes every event to `see` and returns the summary.
pub(crate) fn each(bytes: &[u8], order: Order, mut see: impl FnMut(&Event<'_>)) -> Summary {
    let file = PerfFile::parse(bytes).expect("the file parses");
    file.for_each(order, |event| {
        see(&event);
        std::ops::ControlFlow::Continue(())
    })
}
