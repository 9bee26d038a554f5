//! A compact log of contradictions. Among thousands at neighbouring addresses, most content is
//! equal or similar.
//!
//! Shared content is stored once; addresses and values are stored as differences from the last
//! ones, in LEB128. The log is written once for each new outcome, and read after the run.

use super::numbered::NONE;
use super::numbered::{Numbered, reserve_tight};
use super::places::PlaceId;
use crate::check::Contradiction;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::Row;

/// The maximum length of a 64-bit LEB128, in bytes.
const LEB_MAX: usize = 10;
/// More than the contradictions of a frame, which has at most one for each claimed register.
const COUNTS: u64 = 16;
/// The number of register numbers.
const REGS: usize = u8::MAX as usize + 1;

/// What many contradictions have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    code: Code,
    reg: Reg,
    is_return: bool,
    is_given: bool,
    misread: bool,
    has_reason: bool,
    row: Option<u32>,
}

/// What is alike in outcomes that are counted together: the content of the contradictions but the
/// last one, the kind of the last one, and its reason but for values.
type Content = (u32, u32, Option<(Discriminant<Reason>, Code)>);

/// The last values, from which differences are stored.
struct Last {
    address: u64,
    first: u64,
    truth: [u64; REGS],
}

const BEGIN: Last = Last {
    address: 0,
    first: 0,
    truth: [0; REGS],
};

/// The contradictions of outcomes, in order.
pub(super) struct Log {
    bytes: Vec<u8>,
    kinds: Numbered<Kind>,
    reasons: Numbered<Reason>,
    rows: Numbered<Row>,
    contents: Numbered<Content>,
    last: Box<Last>,
}

/// An outcome as read from the log.
pub(super) struct Entry {
    /// What was mapped at the address.
    pub(super) place: PlaceId,
    /// The address of the code.
    pub(super) address: u64,
    /// The number of the instruction at which it was first met.
    pub(super) first: u64,
    pub(super) contradictions: Vec<Contradiction>,
}

impl Log {
    pub(super) fn new() -> Log {
        Log {
            bytes: Vec::new(),
            kinds: Numbered::new(),
            reasons: Numbered::new(),
            rows: Numbered::new(),
            contents: Numbered::new(),
            last: Box::new(BEGIN),
        }
    }

    /// The number of the content of contradictions. They are the same but for values if it is the
    /// same.
    pub(super) fn content(&mut self, contradictions: &[Contradiction]) -> u32 {
        contradictions.iter().fold(NONE - 1, |before, found| {
            let kind = self.kind(found);
            let reason = found.reason.map(|r| (discriminant(&r), r.code()));
            self.contents.number((before, kind, reason))
        })
    }

    /// Whether all contradictions of this content gave values, which were not misread.
    pub(super) fn is_plain(&self, mut content: u32) -> bool {
        let mut is_plain = content < NONE - 1;
        while let Some(&(before, kind, _)) = self.contents.get(content) {
            let kind = self.kinds.get(kind);
            is_plain &= kind.is_some_and(|kind| kind.is_given && !kind.misread);
            content = before;
        }
        is_plain
    }

    fn kind(&mut self, found: &Contradiction) -> u32 {
        let kind = Kind {
            code: found.code,
            reg: found.reg,
            is_return: matches!(found.pc, CodeAddress::Return(_)),
            is_given: found.given.is_some(),
            misread: found.misread,
            has_reason: found.reason.is_some(),
            row: found.row.as_deref().map(|&row| self.rows.number(row)),
        };
        self.kinds.number(kind)
    }

    /// Adds the contradictions of an outcome at `address`, all in the same frame.
    pub(super) fn add(
        &mut self,
        (place, address): (PlaceId, u64),
        first: u64,
        contradictions: &[Contradiction],
    ) {
        // Differences to what was written before are small numbers, which take fewer bytes.
        self.put(place.into());
        let difference = address.wrapping_sub(self.last.address);
        self.put(zigzag(difference));
        self.put(first.wrapping_sub(self.last.first));
        (self.last.address, self.last.first) = (address, first);

        // The number of contradictions is below `COUNTS`, so both are one number.
        let frame = contradictions.first().map_or(0, |found| found.frame);
        self.put(frame as u64 * COUNTS + contradictions.len() as u64);

        for found in contradictions {
            let kind = self.kind(found);
            self.put(kind.into());

            if let Some(reason) = found.reason {
                let reason = self.reasons.number(reason);
                self.put(reason.into());
            }

            // Of each register its own: the values of one are near each other, those of two are
            // not.
            let last = &mut self.last.truth[found.reg as usize];
            let difference = found.truth.wrapping_sub(*last);
            *last = found.truth;
            self.put(zigzag(difference));

            // Counted from the true value, since a wrong one is mostly near it.
            if let Some(given) = found.given {
                self.put(zigzag(given.wrapping_sub(found.truth)));
            }
        }
    }

    fn put(&mut self, mut value: u64) {
        reserve_tight(&mut self.bytes, LEB_MAX);
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Reads all outcomes.
    pub(super) fn entries(&self) -> Entries<'_> {
        Entries {
            log: self,
            bytes: self.bytes.iter(),
            rows: (0..)
                .map_while(|id| self.rows.get(id))
                .map(|&row| Arc::new(row))
                .collect(),
            last: Box::new(BEGIN),
        }
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let shared = self.kinds.bytes() + self.reasons.bytes() + self.rows.bytes();
        let shared = shared + self.contents.bytes();
        self.bytes.capacity() + shared + size_of::<Last>()
    }
}

/// The outcomes of a log.
pub(super) struct Entries<'a> {
    log: &'a Log,
    bytes: std::slice::Iter<'a, u8>,
    rows: Vec<Arc<Row>>,
    last: Box<Last>,
}

impl Entries<'_> {
    fn take(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..).step_by(7).take(LEB_MAX) {
            let byte = *self.bytes.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn contradiction(&mut self, address: u64, frame: usize) -> Option<Contradiction> {
        // In the order in which [`Log::add`] wrote it.
        let kind = self.take()?;
        // `Numbered` counts in 32 bits, so the cast loses nothing.
        let kind = *self.log.kinds.get(kind as u32)?;
        let reason = if kind.has_reason {
            Some(*self.log.reasons.get(self.take()? as u32)?)
        } else {
            None
        };

        // A difference to the last value of the same register, which may be negative.
        let difference = unzigzag(self.take()?);
        let last = &mut self.last.truth[kind.reg as usize];
        let truth = last.wrapping_add(difference);
        *last = truth;

        let given = if kind.is_given {
            Some(truth.wrapping_add(unzigzag(self.take()?)))
        } else {
            None
        };

        Some(Contradiction {
            frame,
            pc: if kind.is_return {
                CodeAddress::Return(address)
            } else {
                CodeAddress::Instruction(address)
            },
            code: kind.code,
            reg: kind.reg,
            given,
            truth,
            misread: kind.misread,
            reason,
            row: kind.row.map(|row| self.rows[row as usize].clone()),
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let place = self.take()? as PlaceId;
        let address = unzigzag(self.take()?).wrapping_add(self.last.address);
        let first = self.take()?.wrapping_add(self.last.first);
        (self.last.address, self.last.first) = (address, first);
        let count = self.take()?;
        let (frame, count) = ((count / COUNTS) as usize, count % COUNTS);
        let contradictions = (0..count).map_while(|_| self.contradiction(address, frame));
        Some(Entry {
            place,
            address,
            first,
            contradictions: contradictions.collect(),
        })
    }
}

/// Maps small differences of either sign to small numbers.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pc: CodeAddress, reg: Reg, given: Option<u64>, truth: u64) -> Contradiction {
        Contradiction {
            frame: if reg == Reg::Rbx { 70 } else { 0 },
            pc,
            code: Code::WrongRegister,
            reg,
            given,
            truth,
            misread: given == Some(7),
            reason: given.is_none().then_some(Reason::NoRow { pc: truth }),
            row: None,
        }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let (here, behind) = (CodeAddress::Instruction(0x40_1000), CodeAddress::Return(3));
        // Values whose differences are of both signs, and wrap around.
        let outcomes = [
            (5, vec![]),
            (
                5,
                vec![
                    found(here, Reg::Rsp, Some(u64::MAX), 0),
                    found(here, Reg::Rip, None, 1 << 63),
                    found(here, Reg::Rsp, Some(7), 0x7fff_ffff_e000),
                ],
            ),
            (u64::MAX, vec![found(behind, Reg::Rsp, Some(0), u64::MAX)]),
            (u64::MAX, vec![found(behind, Reg::Rbx, Some(1 << 62), 3)]),
        ];

        let mut log = Log::new();
        for (first, found) in &outcomes {
            let address = found.first().map_or(u64::MAX, |c| c.pc.value());
            log.add((7, address), *first, found);
        }

        let held = log.bytes();
        // Without the tables that the entries share.
        let own = held - size_of::<Last>() - log.kinds.bytes() - log.reasons.bytes();
        assert_eq!(own, log.rows.bytes() + log.bytes.capacity());
        assert!(log.bytes.len() > 30 && log.kinds.bytes() >= 3 * size_of::<Kind>());

        let read: Vec<Entry> = log.entries().collect();
        assert_eq!(read.len(), outcomes.len());
        for (entry, (first, found)) in read.iter().zip(&outcomes) {
            assert_eq!((entry.place, entry.first), (7, *first));
            assert_eq!(
                format!("{:?}", entry.contradictions),
                format!("{found:?}"),
                "at {:#x}",
                entry.address
            );
        }

        assert_eq!(read[0].address, u64::MAX);
        assert_eq!(read[1].address, 0x40_1000);
    }
}
