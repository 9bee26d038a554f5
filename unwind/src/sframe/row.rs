//! What a row says, in the format's own words; and as a [`Rule`].
//!
//! "The SFrame format", sections "SFrame FRE" and "Flexible FDEs"; where the specification's
//! pseudo-code for flexible rows and its readers (libsframe, Linux) disagree, the readers are
//! followed: rbp's control word comes after the return address's pair, or after one padding word.

use super::fde::Fde;
use super::fre::Fre;
use super::header::{Header, Malformed, Version};
use crate::regs::Reg;
use crate::rule::{Base, Rule, RuleKind, Value};

/// A location of a flexible row: a register or the CFA, plus an offset, perhaps loaded from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The register that the offset counts from; `None`: the CFA.
    pub reg: Option<Reg>,
    /// Is the value loaded from there?
    pub deref: bool,
    /// Bytes.
    pub offset: i32,
}

/// What a row says of rbp or the return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Track {
    /// No word: the header's fixed offset, or unchanged.
    Absent,
    /// A padding word stands in its place; means the same.
    Padded,
    /// It is here.
    At(Location),
}

/// A decoded row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SframeRow {
    /// No data words: the return address is undefined, this is the outermost frame.
    RaUndefined,
    /// CFA, return address, rbp.
    Tracked {
        /// Where the CFA is; its `reg` is never `None`.
        cfa: Location,
        /// Where the return address is.
        ra: Track,
        /// Where the caller's rbp is.
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

    /// As a rule's value.
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
            // V1 knows no row without words; in V2 it came with the second errata.
            if header.version == Version::V1 {
                return Err(Malformed::new(fre.offset, "a V1 row without a CFA offset"));
            }
            return Ok(SframeRow::RaUndefined);
        }
        let mut words = Words { fre, next: 0 };
        let row = if fde.flex {
            words.flex()
        } else {
            words.default(header)
        };
        let row = row.map_err(|what| Malformed::new(fre.offset, what))?;
        if words.next < fre.count() {
            return Err(Malformed::new(
                fre.offset,
                "the row has data words too many",
            ));
        }
        Ok(row)
    }

    /// As the rule that every unwinder applies. rbp without a word is unchanged; of the other
    /// callee-saved registers the format cannot speak.
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

struct Words<'a> {
    fre: &'a Fre<'a>,
    next: usize,
}

impl Words<'_> {
    fn signed(&mut self) -> Option<i32> {
        let word = self.fre.signed(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// CFA; then what the header does not fix, the return address before rbp.
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

    /// Pairs of a control word and an offset; a control word 0 is padding and has no offset.
    fn flex(&mut self) -> Result<SframeRow, &'static str> {
        let Track::At(cfa) = self.track()? else {
            return Err("a flexible row without a CFA rule");
        };
        if cfa.reg.is_none() {
            return Err("the CFA counts from the CFA");
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
            Some(reg.ok_or("a control word names no register of this machine")?)
        } else {
            None
        };
        Ok(Track::At(Location {
            reg,
            deref: control & 2 != 0,
            offset: self.signed().ok_or("a control word without its offset")?,
        }))
    }
}
