//! Encodes and decodes what samples have beside their records, field by field.

use crate::model::{CallchainRequest, Sample};
use crate::trace::error::{Bad, WriteError};
use crate::trace::layout::{RECORDED_CHAINS_MAX, URETPROBES_MAX};
use crate::trace::varint::{Cursor, put, put_bytes};
use unwind_sim_unwind::kernel::{UnwinderKind, Uretprobes};

/// The numbers of fields in the file.
mod field {
    /// What the kernel was asked for, for a recorded chain.
    pub(super) const REQUEST: u64 = 1;
    /// The return addresses that return probes took.
    pub(super) const URETPROBES: u64 = 2;
    /// The unwinder that the kernel was built with.
    pub(super) const UNWINDER: u64 = 3;
}

/// Bits of a request.
mod request {
    pub(super) const KERNEL: u64 = 1;
    pub(super) const USER: u64 = 2;
    pub(super) const ADD_MARK: u64 = 4;
    pub(super) const CROSSTASK: u64 = 8;
    /// The cookie follows.
    pub(super) const DEFERRED: u64 = 16;
    pub(super) const ALL: u64 = 0x1f;
}

/// A detail of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// What the kernel was asked for, for the recorded chain of this index.
    Request(usize, CallchainRequest),
    /// The return addresses that return probes took.
    Uretprobes(Uretprobes),
    /// The unwinder that the kernel was built with.
    Unwinder(UnwinderKind),
}

/// Rejects details that the format cannot hold.
pub(crate) fn check(sample: &Sample<'_>) -> Result<(), WriteError> {
    let taken = uretprobes(sample).map_or(0, |u| u.originals.len());
    WriteError::check(
        "return addresses taken by return probes",
        taken,
        URETPROBES_MAX,
    )
}

fn uretprobes<'a>(sample: &'a Sample<'_>) -> Option<&'a Uretprobes> {
    sample.kernel.as_ref()?.user.as_ref()?.uretprobes.as_ref()
}

/// The details of the samples of one block, as they are gathered.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
    /// The place of the sample that the last one is of.
    last: u32,
}

impl Gathered {
    /// Starts the next block, with the same buffer.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.last) = (0, 0);
    }

    /// Appends the details of a sample, which is number `place` of its block.
    pub(crate) fn sample(&mut self, place: u32, sample: &Sample<'_>) {
        for (index, chain) in sample.recorded.iter().enumerate() {
            if let Some(request) = &chain.request {
                self.put(place, field::REQUEST, &put_request(index, request));
            }
        }
        if let Some(kind) = sample.kernel.as_ref().and_then(|kernel| kernel.unwinder) {
            self.put(place, field::UNWINDER, &[kind as u8]);
        }
        if let Some(taken) = uretprobes(sample) {
            self.put(place, field::URETPROBES, &put_uretprobes(taken));
        }
    }

    fn put(&mut self, place: u32, field: u64, content: &[u8]) {
        put(&mut self.bytes, u64::from(place - self.last));
        put(&mut self.bytes, field);
        put_bytes(&mut self.bytes, content);
        self.last = place;
        self.count += 1;
    }
}

fn put_request(chain: usize, asked: &CallchainRequest) -> Vec<u8> {
    let bits = [
        (request::KERNEL, asked.kernel),
        (request::USER, asked.user),
        (request::ADD_MARK, asked.add_mark),
        (request::CROSSTASK, asked.crosstask),
        (request::DEFERRED, asked.cookie.is_some()),
    ];
    let set = bits.iter().filter(|(_, set)| *set);
    let mut out = Vec::new();
    put(&mut out, chain as u64);
    put(&mut out, set.map(|(bit, _)| bit).sum());
    put(&mut out, u64::from(asked.max_stack));
    if let Some(cookie) = asked.cookie {
        put(&mut out, cookie);
    }
    out
}

fn read_request(content: &mut Cursor<'_>) -> Result<Detail, Bad> {
    let chain = content.count(
        RECORDED_CHAINS_MAX - 1,
        "a request for a chain that cannot be",
    )?;
    let bits = content.u64()?;
    if bits & !request::ALL != 0 {
        return Err(content.bad("a request for a callchain has unknown bits"));
    }
    let asked = CallchainRequest {
        kernel: bits & request::KERNEL != 0,
        user: bits & request::USER != 0,
        add_mark: bits & request::ADD_MARK != 0,
        crosstask: bits & request::CROSSTASK != 0,
        max_stack: content.u32()?,
        cookie: match bits & request::DEFERRED {
            0 => None,
            _ => Some(content.u64()?),
        },
    };
    Ok(Detail::Request(chain, asked))
}

fn put_uretprobes(taken: &Uretprobes) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, taken.trampoline);
    put(&mut out, taken.originals.len() as u64);
    for original in &taken.originals {
        put(&mut out, *original);
    }
    out
}

fn read_uretprobes(content: &mut Cursor<'_>) -> Result<Detail, Bad> {
    let trampoline = content.u64()?;
    let count = content.count(URETPROBES_MAX, "too many return addresses taken by probes")?;
    let originals: Result<_, Bad> = (0..count).map(|_| content.u64()).collect();
    Ok(Detail::Uretprobes(Uretprobes {
        trampoline,
        originals: originals?,
    }))
}

impl Detail {
    /// The detail in the field of this number; `None` for an unknown one.
    pub(crate) fn read(field: u64, content: &mut Cursor<'_>) -> Result<Option<Detail>, Bad> {
        match field {
            field::REQUEST => read_request(content).map(Some),
            field::URETPROBES => read_uretprobes(content).map(Some),
            field::UNWINDER => {
                let number = content.u8()?;
                let kind = UnwinderKind::ALL.into_iter().find(|k| *k as u8 == number);
                let kind = kind.ok_or_else(|| content.bad("a kernel of an unknown unwinder"))?;
                Ok(Some(Detail::Unwinder(kind)))
            }
            _ => Ok(None),
        }
    }
}
