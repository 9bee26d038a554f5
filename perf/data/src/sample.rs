//! Samples, decoded on demand.
//!
//! A [`Sample`] is a view. Fixed fields are read at offsets computed once for the event, other
//! fields by skipping the ones before them. The bytes of a stack copy are never read, only
//! returned.

use super::attr::EventAttr;
use super::error::{PerfError, PerfErrorKind};
use super::layout::sample_type as st;
use super::le::{self, Cursor};
use super::sample_parts::{BranchStack, ReadValues, UserStack};
use super::walk::{RawRecord, misc};
use crate::callchain::Callchain;
use crate::regs::{RegsAbi, SampleRegs};

/// A sample. Methods return `None` for fields that the event does not record.
#[derive(Clone, Copy)]
pub struct Sample<'a> {
    body: &'a [u8],
    attr: &'a EventAttr,
    misc: u16,
    offset: u64,
}

impl std::fmt::Debug for Sample<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sample")
            .field("offset", &self.offset)
            .field("tid", &self.tid())
            .field("time", &self.time())
            .field("ip", &self.ip())
            .finish_non_exhaustive()
    }
}

impl<'a> Sample<'a> {
    /// A sample of a known event. Fails if the record lacks the fixed fields.
    #[inline]
    pub(crate) fn new(raw: &RawRecord<'a>, attr: &'a EventAttr) -> Result<Self, PerfError> {
        let prefix = usize::from(attr.layout.prefix);
        if raw.body.len() < prefix {
            let (need, have) = (prefix as u64, raw.body.len() as u64);
            return Err(PerfError::new(
                PerfErrorKind::Short { need, have },
                raw.offset,
                "sample",
            ));
        }
        Ok(Self {
            body: raw.body,
            attr,
            misc: raw.misc,
            offset: raw.offset,
        })
    }

    /// The sample's event.
    pub fn attr(&self) -> &'a EventAttr {
        self.attr
    }

    /// File offset of its record, or of the compressed record that contained it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The cpumode in its header ([`misc`]): the mode in which the sample was taken.
    pub fn cpumode(&self) -> u16 {
        self.misc & misc::CPUMODE_MASK
    }

    /// Is `ip` exactly the instruction that caused the event?
    pub fn is_exact_ip(&self) -> bool {
        self.misc & misc::EXACT_IP != 0
    }

    #[inline]
    fn word(&self, at: u16) -> Option<u64> {
        le::u64_at(self.body, usize::from(at))
    }

    /// Instruction pointer.
    #[inline]
    pub fn ip(&self) -> Option<u64> {
        self.word(self.attr.layout.ip)
    }

    /// Process ID; -1 for none.
    #[inline]
    pub fn pid(&self) -> Option<i32> {
        self.word(self.attr.layout.tid).map(|word| word as i32)
    }

    /// Thread ID; -1 for none.
    #[inline]
    pub fn tid(&self) -> Option<i32> {
        self.word(self.attr.layout.tid)
            .map(|word| (word >> 32) as i32)
    }

    /// Time in nanoseconds of the recording's clock.
    #[inline]
    pub fn time(&self) -> Option<u64> {
        self.word(self.attr.layout.time)
    }

    /// Data address.
    pub fn address(&self) -> Option<u64> {
        self.word(self.attr.layout.addr)
    }

    /// Event ID.
    pub fn id(&self) -> Option<u64> {
        self.word(self.attr.layout.id)
    }

    /// Stream ID.
    pub fn stream_id(&self) -> Option<u64> {
        self.word(self.attr.layout.stream_id)
    }

    /// CPU number.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        self.word(self.attr.layout.cpu).map(|word| word as u32)
    }

    /// Number of events that this sample represents.
    pub fn period(&self) -> Option<u64> {
        self.word(self.attr.layout.period)
    }

    /// A cursor at the start of a field after the prefix; `None` if the field is not recorded.
    #[inline(always)]
    pub(super) fn seek(&self, field: u64) -> Result<Option<Cursor<'a>>, PerfError> {
        if self.attr.sample_type & field == 0 {
            return Ok(None);
        }
        let prefix = usize::from(self.attr.layout.prefix);
        let start = self.offset + 8 + prefix as u64;
        let mut cursor = Cursor::new(&self.body[prefix..], start, "sample");
        for &present in self.attr.layout.tail() {
            if present & field != 0 {
                return Ok(Some(cursor));
            }
            self.skip(present, &mut cursor)?;
        }
        Ok(None)
    }

    /// Skips one field.
    #[inline]
    fn skip(&self, field: u64, c: &mut Cursor<'a>) -> Result<(), PerfError> {
        match field {
            // The common ones; the rest is out of line.
            st::CALLCHAIN => drop(take_callchain(c)?),
            st::REGS_USER => drop(take_regs(c, self.attr.layout.regs_user)?),
            _ => self.skip_rare(field, c)?,
        }
        Ok(())
    }

    fn skip_rare(&self, field: u64, c: &mut Cursor<'a>) -> Result<(), PerfError> {
        match field {
            st::READ => drop(self.take_read(c)?),
            st::RAW => drop(take_raw(c)?),
            st::BRANCH_STACK => drop(self.take_branches(c)?),
            st::REGS_INTR => drop(take_regs(c, self.attr.layout.regs_intr)?),
            st::STACK_USER => {
                let size = c.u64()?;
                c.take_many(size, 1)?;
                if size != 0 {
                    c.take(8)?;
                }
            }
            st::AUX => {
                let size = c.u64()?;
                c.take_many(size, 1)?;
            }
            _ => drop(c.u64()?),
        }
        Ok(())
    }

    pub(super) fn tail_word(&self, field: u64) -> Result<Option<u64>, PerfError> {
        self.seek(field)?.map(|mut c| c.u64()).transpose()
    }

    /// Counter values.
    ///
    /// # Errors
    /// If the record is too short for its contents. The same holds for all following fields.
    pub fn read_values(&self) -> Result<Option<ReadValues<'a>>, PerfError> {
        self.seek(st::READ)?
            .map(|mut c| self.take_read(&mut c))
            .transpose()
    }

    /// The callchain, with context markers.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    #[inline]
    pub fn callchain(&self) -> Result<Option<Callchain<'a>>, PerfError> {
        self.seek(st::CALLCHAIN)?
            .map(|mut c| take_callchain(&mut c))
            .transpose()
    }

    /// Raw data, with the kernel's padding.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn raw_data(&self) -> Result<Option<&'a [u8]>, PerfError> {
        self.seek(st::RAW)?
            .map(|mut c| take_raw(&mut c))
            .transpose()
    }

    /// Last branch records.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn branch_stack(&self) -> Result<Option<BranchStack<'a>>, PerfError> {
        self.seek(st::BRANCH_STACK)?
            .map(|mut c| self.take_branches(&mut c))
            .transpose()
    }

    /// User registers.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    #[inline]
    pub fn user_regs(&self) -> Result<Option<SampleRegs<'a>>, PerfError> {
        let mask = self.attr.layout.regs_user;
        self.seek(st::REGS_USER)?
            .map(|mut c| take_regs(&mut c, mask))
            .transpose()
    }

    /// The copy of the user stack, from rsp upwards.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    #[inline]
    pub fn user_stack(&self) -> Result<Option<UserStack<'a>>, PerfError> {
        self.seek(st::STACK_USER)?
            .map(|mut c| take_stack(&mut c))
            .transpose()
    }

    /// User registers and stack copy, found in one pass over the record. `None` if the event does
    /// not record both.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    #[inline]
    pub fn user_regs_and_stack(&self) -> Result<Option<RegsAndStack<'a>>, PerfError> {
        if self.attr.sample_type & st::STACK_USER == 0 {
            return Ok(None);
        }
        let Some(mut c) = self.seek(st::REGS_USER)? else {
            return Ok(None);
        };
        let regs = take_regs(&mut c, self.attr.layout.regs_user)?;
        Ok(Some((regs, take_stack(&mut c)?)))
    }

    /// Where a field of [`sample_type`](super::sample_type) after the fixed ones is: a range of the
    /// record's body, with the field's own count or size. `None` if it is not recorded.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn place(&self, field: u64) -> Result<Option<std::ops::Range<usize>>, PerfError> {
        let Some(mut cursor) = self.seek(field)? else {
            return Ok(None);
        };
        let at = |cursor: &Cursor<'_>| self.body.len() - cursor.rest().len();
        let start = at(&cursor);
        self.skip(field, &mut cursor)?;
        Ok(Some(start..at(&cursor)))
    }

    /// Checks that all fields are complete, in one pass over the record.
    ///
    /// # Errors
    /// See [`Sample::read_values`].
    pub fn check(&self) -> Result<(), PerfError> {
        let prefix = usize::from(self.attr.layout.prefix);
        let start = self.offset + 8 + prefix as u64;
        let mut cursor = Cursor::new(&self.body[prefix..], start, "sample");
        for &field in self.attr.layout.tail() {
            self.skip(field, &mut cursor)?;
        }
        Ok(())
    }
}

/// User registers and the copy of the user stack.
pub type RegsAndStack<'a> = (SampleRegs<'a>, UserStack<'a>);

#[inline(always)]
fn take_callchain<'a>(c: &mut Cursor<'a>) -> Result<Callchain<'a>, PerfError> {
    let count = c.u64()?;
    c.take_many(count, 8).map(Callchain::new)
}

fn take_raw<'a>(c: &mut Cursor<'a>) -> Result<&'a [u8], PerfError> {
    let size = c.u32()?;
    c.take(size as usize)
}

#[inline(always)]
pub(super) fn take_regs<'a>(c: &mut Cursor<'a>, mask: u64) -> Result<SampleRegs<'a>, PerfError> {
    let abi = RegsAbi::from(c.u64()?);
    let mask = if abi == RegsAbi::None { 0 } else { mask };
    let values = c.take(8 * mask.count_ones() as usize)?;
    Ok(SampleRegs::new(abi, mask, values))
}

#[inline]
fn take_stack<'a>(c: &mut Cursor<'a>) -> Result<UserStack<'a>, PerfError> {
    let size = c.u64()?;
    let copy = c.take_many(size, 1)?;
    if size == 0 {
        return Ok(UserStack { bytes: copy, size });
    }
    // The kernel reserves `size` bytes and then states how many it could read.
    let valid = usize::try_from(c.u64()?)
        .unwrap_or(usize::MAX)
        .min(copy.len());
    Ok(UserStack {
        bytes: &copy[..valid],
        size,
    })
}
