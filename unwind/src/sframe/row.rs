//! Decoded rows in the format's own terms, and their conversion to a [`Rule`].
//!
//! See "The SFrame format", sections "SFrame FRE" and "Flexible FDEs". Where the specification's
//! pseudo-code for flexible rows disagrees with its readers (libsframe, Linux), this follows the
//! readers: rbp's control word comes after the return address's pair, or after one padding word.

use super::fde::Fde;
use super::fre::Fre;
use super::header::{Header, Malformed, Version};
use crate::regs::Reg;
use crate::rule::{Base, Rule, RuleKind, Value};

/// A location in a flexible row: a register or the CFA, plus an offset, possibly dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The base register; `None` means the CFA.
    pub reg: Option<Reg>,
    /// Whether the value is loaded from the resulting address.
    pub deref: bool,
    /// Offset, bytes.
    pub offset: i32,
}

/// How a row describes rbp or the return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Track {
    /// No word: at the header's fixed offset, or unchanged.
    Absent,
    /// A padding word, with the same meaning as [`Track::Absent`].
    Padded,
    /// At this location.
    At(Location),
}

/// A decoded row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SframeRow {
    /// No data words: the return address is undefined, so this is the outermost frame.
    RaUndefined,
    /// CFA, return address and rbp.
    Tracked {
        /// The CFA; `reg` is never `None`.
        cfa: Location,
        /// The return address.
        ra: Track,
        /// The caller's rbp.
        fp: Track,
    },
}

impl Location {
    const fn slot(offset: i32) -> Location {
        Location {
            reg: None,
            deref: true,
            offset,
        }
    }

    /// The location as a rule's value.
    pub const fn value(self) -> Value {
        let base = match self.reg {
            Some(reg) => Base::Reg(reg),
            None => Base::Cfa,
        };
        let offset = self.offset;
        if self.deref {
            Value::Load {
                base,
                offset,
                addend: 0,
            }
        } else {
            Value::Offset { base, offset }
        }
    }
}

impl SframeRow {
    /// Decodes a stored row of `fde`.
    pub fn decode(header: &Header, fde: &Fde, fre: &Fre<'_>) -> Result<SframeRow, Malformed> {
        if fre.count() == 0 {
            // V1 has no rows without words; V2 got them with the second errata.
            if header.version == Version::V1 {
                return Err(Malformed::new(fre.offset, "a V1 row without a CFA offset"));
            }
            return Ok(SframeRow::RaUndefined);
        }
        let mut words = DataWords { fre, next: 0 };
        let row = if fde.flex {
            words.flex()
        } else {
            words.default(header)
        };
        let row = row.map_err(|what| Malformed::new(fre.offset, what))?;
        if words.next < fre.count() {
            return Err(Malformed::new(
                fre.offset,
                "the row has too many data words",
            ));
        }
        Ok(row)
    }

    /// The row as a rule. rbp without a word is unchanged; the format cannot describe the other
    /// callee-saved registers.
    pub fn rule(&self, header: &Header, signal: bool) -> Rule {
        let SframeRow::Tracked { cfa, ra, fp } = *self else {
            return Rule::OUTERMOST;
        };
        let fixed = |offset: i8, without| match offset {
            0 => without,
            offset => Value::at_cfa(offset.into()),
        };
        let ra = match ra {
            Track::At(location) => location.value(),
            _ => fixed(header.cfa_fixed_ra_offset, Value::Undefined),
        };
        let fp = match fp {
            Track::At(location) => location.value(),
            _ => fixed(header.cfa_fixed_fp_offset, Value::Same),
        };
        let mut rule = Rule::call(cfa.value()).with_saved(Reg::Rbp, fp);
        rule.ra = ra;
        if signal {
            rule.kind = RuleKind::Signal;
        }
        rule
    }
}

struct DataWords<'a> {
    fre: &'a Fre<'a>,
    next: usize,
}

impl DataWords<'_> {
    fn signed(&mut self) -> Option<i32> {
        let word = self.fre.signed(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// Decodes a default row: the CFA, then what the header does not fix, the return address before
    /// rbp.
    fn default(&mut self, header: &Header) -> Result<SframeRow, &'static str> {
        let base = if self.fre.base_is_sp() {
            Reg::Rsp
        } else {
            Reg::Rbp
        };
        let cfa = Location {
            reg: Some(base),
            deref: false,
            offset: self.signed().ok_or("the row has no CFA offset")?,
        };
        let mut track = |fixed: i8| match fixed {
            0 => self
                .signed()
                .map_or(Track::Absent, |o| Track::At(Location::slot(o))),
            _ => Track::Absent,
        };
        let ra = track(header.cfa_fixed_ra_offset);
        let fp = track(header.cfa_fixed_fp_offset);
        Ok(SframeRow::Tracked { cfa, ra, fp })
    }

    /// Decodes a flexible row: pairs of a control word and an offset. A control word of 0 is
    /// padding and has no offset.
    fn flex(&mut self) -> Result<SframeRow, &'static str> {
        let Track::At(cfa) = self.track()? else {
            return Err("a flexible row without a CFA rule");
        };
        if cfa.reg.is_none() {
            return Err("the CFA is defined relative to itself");
        }
        let ra = self.track()?;
        let fp = self.track()?;
        Ok(SframeRow::Tracked { cfa, ra, fp })
    }

    fn track(&mut self) -> Result<Track, &'static str> {
        let Some(control) = self.fre.unsigned(self.next) else {
            return Ok(Track::Absent);
        };
        self.next += 1;
        if control == 0 {
            return Ok(Track::Padded);
        }
        if control & 4 != 0 {
            return Err("a reserved bit of a control word is set");
        }
        let reg = if control & 1 != 0 {
            let number = u16::try_from(control >> 3).ok();
            let reg = number.and_then(Reg::from_dwarf);
            Some(reg.ok_or("a control word names an unknown register")?)
        } else {
            None
        };
        Ok(Track::At(Location {
            reg,
            deref: control & 2 != 0,
            offset: self.signed().ok_or("a control word has no offset")?,
        }))
    }
}
