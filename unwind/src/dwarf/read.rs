//! The entries of `.eh_frame` and `.debug_frame`: CIEs and FDEs.
//!
//! Sources: DWARF 5, sections 6.4.1 and 7.24; LSB 5.0 Core, "Exception Frames" (for what differs in
//! `.eh_frame`: 4-byte CIE pointers relative to themselves, augmentation data, encoded pointers).
//!
//! The instructions are in `program`; finding the FDE of an address is in `index`.

use crate::image::{Image, SectionKind};
use crate::reason::Reason;
use crate::row::TableKind;
use core::ops::Range;
use gimli::{DwEhPe, EndianSlice, LittleEndian, Reader as _, constants as dw};

/// The unread bytes of an entry.
pub(super) type Input<'a> = EndianSlice<'a, LittleEndian>;

/// The maximum length of an augmentation string; known ones have up to six letters.
const AUGMENTATION_MAX: usize = 15;

/// One section of call frame information.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) kind: TableKind,
    pub(super) data: &'a [u8],
    /// The section's address (svma).
    pub(super) address: u64,
    /// The address (svma) of the global offset table, the base of data-relative pointers.
    got: Option<u64>,
}

/// What the FDEs of one CIE share.
#[derive(Clone, Debug)]
pub(super) struct Cie {
    pub(super) offset: usize,
    pub(super) code_align: u64,
    pub(super) data_align: i64,
    /// The column of the return address.
    pub(super) ra: u64,
    /// 'S': the frame of a signal handler's caller.
    pub(super) signal: bool,
    /// 'z': FDEs have augmentation data.
    has_data: bool,
    /// 'L': the encoding of the pointer to language-specific data.
    lsda_encoding: DwEhPe,
    pub(super) encoding: DwEhPe,
    /// The range of its instructions in the section.
    pub(super) program: Range<usize>,
}

/// A function's entry.
#[derive(Clone, Debug)]
pub(super) struct Fde {
    pub(super) offset: usize,
    /// The addresses (svma) that it covers.
    pub(super) range: Range<u64>,
    /// The range of its instructions in the section.
    pub(super) program: Range<usize>,
    /// The range of its augmentation data in the section.
    data: Range<usize>,
}

/// The meaning of an entry's first word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// The entry is a CIE.
    None,
    /// The entry is an FDE whose CIE is at this offset.
    At(usize),
    /// The entry is malformed.
    Bad(&'static str),
}

/// The header of a CIE or FDE.
#[derive(Clone, Copy)]
pub(super) struct EntryHeader<'a> {
    pub(super) offset: usize,
    /// The offset after its last byte.
    pub(super) end: usize,
    parent: Parent,
    rest: Input<'a>,
}

impl EntryHeader<'_> {
    /// Whether it is a CIE.
    pub(super) fn is_cie(&self) -> bool {
        self.parent == Parent::None
    }
}

impl<'a> Table<'a> {
    /// The table of this kind in `image`, if there is one.
    pub(super) fn of(image: &'a Image, kind: TableKind) -> Option<Table<'a>> {
        let section = image.section(kind.section()?)?;
        Some(Table {
            kind,
            data: &section.data,
            address: section.address,
            got: image.section(SectionKind::Got).map(|s| s.address),
        })
    }

    /// The section's name.
    pub(super) fn name(&self) -> &'static str {
        self.kind.section().map_or("", SectionKind::as_str)
    }

    /// The reason "malformed at `offset`".
    #[cold]
    pub(super) fn malformed(&self, offset: usize, what: &'static str) -> Reason {
        Reason::MalformedRow {
            section: self.name(),
            offset: offset as u64,
            what,
        }
    }

    /// The bytes `range` of the section; empty if the range lies outside it.
    pub(super) fn input(&self, range: Range<usize>) -> Input<'a> {
        let none = &self.data[self.data.len()..];
        EndianSlice::new(self.data.get(range).unwrap_or(none), LittleEndian)
    }

    /// The offset in the section of what `input` reads next.
    fn offset_of(&self, input: Input<'a>) -> usize {
        input.offset_from(EndianSlice::new(self.data, LittleEndian))
    }

    /// Makes a reason that says that what `input` reads next is malformed.
    fn fail<E: Into<ParseError>>(&self, input: Input<'a>) -> impl Fn(E) -> Reason + use<'a, E> {
        let (table, offset) = (*self, self.offset_of(input));
        move |error| table.malformed(offset, error.into().0)
    }

    /// The entry at `offset`; `None` for a terminator, i.e. a length of zero.
    #[inline]
    pub(super) fn entry(&self, offset: usize) -> Result<Option<EntryHeader<'a>>, Reason> {
        match self.usual_entry(offset) {
            Some(entry) => Ok(Some(entry)),
            None => self.any_entry(offset),
        }
    }

    /// The entry at `offset`, which must not be a terminator.
    #[inline(never)]
    pub(super) fn fde_entry(&self, offset: usize) -> Result<EntryHeader<'a>, Reason> {
        let entry = self.entry(offset)?;
        entry.ok_or_else(|| self.malformed(offset, "expected an FDE"))
    }

    /// The entry at `offset`, if it is an FDE of `.eh_frame` with a length of 4 bytes.
    #[inline(always)]
    pub(super) fn usual_entry(&self, offset: usize) -> Option<EntryHeader<'a>> {
        let bytes = self.data.get(offset..)?;
        let (&[a, b, c, d, e, f, g, h], _) = bytes.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes([a, b, c, d]);
        let back = u32::from_le_bytes([e, f, g, h]) as usize;
        let cie = (offset + 4).checked_sub(back)?;
        if self.kind == TableKind::DebugFrame || length >= 0xffff_fff0 || back == 0 {
            return None;
        }
        let rest = bytes.get(8..4 + length as usize)?;
        Some(EntryHeader {
            offset,
            end: offset + 4 + length as usize,
            parent: Parent::At(cie),
            rest: EndianSlice::new(rest, LittleEndian),
        })
    }

    /// The entry at `offset`, whatever it is.
    #[inline(never)]
    fn any_entry(&self, offset: usize) -> Result<Option<EntryHeader<'a>>, Reason> {
        let mut input = self.input(offset..self.data.len());
        let fail = self.fail(input);

        let length = input.read_u32().map_err(&fail)?;
        // Zero ends the section; 0xffffffff announces a length of 64 bits (DWARF 5, 7.4).
        let (length, wide) = match length {
            0 => return Ok(None),
            0xffff_fff0..0xffff_ffff => {
                return Err(self.malformed(offset, "reserved entry length"));
            }
            0xffff_ffff => (input.read_u64().map_err(&fail)?, true),
            length => (u64::from(length), false),
        };

        // Checked before anything is read: a length may point behind the section, or overflow.
        let length = usize::try_from(length).ok().filter(|&l| l <= input.len());
        let Some(length) = length else {
            return Err(self.malformed(offset, "the entry is longer than its section"));
        };

        // A damaged CIE pointer still leaves the length, so the entries behind it can be read.
        let start = self.offset_of(input);
        let mut rest = self.input(start..start + length);
        let parent = self.parent(&mut rest, start, wide);

        Ok(Some(EntryHeader {
            offset,
            end: start + length,
            parent: parent.unwrap_or(Parent::Bad("the entry ends too early")),
            rest,
        }))
    }

    /// Reads the first word of an entry, at `start`.
    #[inline]
    fn parent(&self, rest: &mut Input<'a>, start: usize, wide: bool) -> gimli::Result<Parent> {
        const OUTSIDE: Parent = Parent::Bad("its CIE lies outside the section");
        if self.kind != TableKind::DebugFrame {
            let back = rest.read_u32()? as usize;
            let cie = start.checked_sub(back);
            return Ok(match back {
                0 => Parent::None,
                _ => cie.map_or(OUTSIDE, Parent::At),
            });
        }
        let (id, none) = if wide {
            (rest.read_u64()?, u64::MAX)
        } else {
            (rest.read_u32()?.into(), u32::MAX.into())
        };
        let cie = usize::try_from(id).ok().filter(|&at| at < self.data.len());
        Ok(if id == none {
            Parent::None
        } else {
            cie.map_or(OUTSIDE, Parent::At)
        })
    }

    /// The offset of the CIE of `entry`, which must be an FDE.
    #[inline]
    pub(super) fn cie_of(&self, entry: &EntryHeader<'_>) -> Result<usize, Reason> {
        match entry.parent {
            Parent::At(cie) => Ok(cie),
            Parent::None => Err(self.malformed(entry.offset, "expected an FDE")),
            Parent::Bad(what) => Err(self.malformed(entry.offset, what)),
        }
    }

    /// Whether `cie` is the CIE of `entry`.
    #[inline]
    pub(super) fn has_cie(&self, entry: &EntryHeader<'_>, cie: &Cie) -> bool {
        matches!(entry.parent, Parent::At(at) if at == cie.offset)
    }

    /// The CIE at `offset`.
    pub(super) fn cie(&self, offset: usize) -> Result<Cie, Reason> {
        let entry = self.entry(offset)?.filter(EntryHeader::is_cie);
        let Some(entry) = entry else {
            return Err(self.malformed(offset, "expected a CIE"));
        };
        let mut input = entry.rest;
        let fail = self.fail(input);

        let version = input.read_u8().map_err(&fail)?;
        // DWARF 2 has version 1, DWARF 3 has 3, DWARF 4 and 5 have 4.
        if !matches!(version, 1 | 3 | 4) {
            return Err(self.malformed(offset, "unknown CIE version"));
        }

        let letters = input.slice().iter().take(AUGMENTATION_MAX + 1);
        let Some(letters) = letters.into_iter().position(|&letter| letter == 0) else {
            return Err(self.malformed(offset, "unknown augmentation"));
        };
        let augmentation = input.split(letters).map_err(&fail)?;
        // The zero that ends the augmentation.
        input.skip(1).map_err(&fail)?;

        // The sizes of an address and of a segment selector, new in DWARF 4 (6.4.1).
        if version == 4 {
            let sizes = (
                input.read_u8().map_err(&fail)?,
                input.read_u8().map_err(&fail)?,
            );
            if sizes != (8, 0) {
                return Err(self.malformed(offset, "addresses are not 8 bytes wide"));
            }
        }

        let fail = self.fail(input);
        let mut cie = Cie {
            offset,
            code_align: input.read_uleb128().map_err(&fail)?,
            data_align: input.read_sleb128().map_err(&fail)?,
            ra: 0,
            signal: false,
            has_data: false,
            lsda_encoding: dw::DW_EH_PE_omit,
            encoding: dw::DW_EH_PE_absptr,
            program: 0..0,
        };

        // The return address column was one byte before DWARF 3.
        cie.ra = if version == 1 {
            input.read_u8().map(u64::from).map_err(&fail)?
        } else {
            input.read_uleb128().map_err(&fail)?
        };

        // The augmentation's data come between the header and the instructions.
        self.augmentation(&mut cie, augmentation.slice(), &mut input)?;
        cie.program = self.offset_of(input)..entry.end;
        Ok(cie)
    }

    /// Interprets the letters of the augmentation string (LSB 5.0, "Augmentation String Format").
    fn augmentation(
        &self,
        cie: &mut Cie,
        letters: &[u8],
        input: &mut Input<'a>,
    ) -> Result<(), Reason> {
        let mut data = self.input(self.data.len()..self.data.len());

        for (i, letter) in letters.iter().enumerate() {
            let fail = self.fail(if i == 0 { *input } else { data });
            match letter {
                // Only as the first letter does it announce the length of the data (LSB 5.0).
                b'z' if i == 0 => {
                    let length = input.read_uleb128().map_err(&fail)?;
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    data = input.split(length).map_err(&fail)?;
                    cie.has_data = true;
                }
                b'S' => cie.signal = true,
                b'L' => cie.lsda_encoding = DwEhPe(data.read_u8().map_err(&fail)?),
                b'R' => cie.encoding = DwEhPe(data.read_u8().map_err(&fail)?),
                b'P' => {
                    // Read only to pass it: rules do not depend on the personality routine.
                    let encoding = DwEhPe(data.read_u8().map_err(&fail)?);
                    self.encoded(&mut data, encoding).map_err(&fail)?;
                }
                _ => return Err(self.malformed(cie.offset, "unknown augmentation")),
            }
        }

        Ok(())
    }

    /// The FDE with the header `entry` and the CIE `cie`.
    #[inline]
    pub(super) fn fde(&self, entry: EntryHeader<'a>, cie: &Cie) -> Result<Fde, Reason> {
        match self.usual_fde(&entry, cie) {
            Some(fde) => Ok(fde),
            None => self.any_fde(entry, cie),
        }
    }

    /// The FDE, if it has the encoding that x86-64 compilers use: relative to itself, 4 bytes.
    #[inline(always)]
    pub(super) fn usual_fde(&self, entry: &EntryHeader<'a>, cie: &Cie) -> Option<Fde> {
        const USUAL: u8 = dw::DW_EH_PE_pcrel.0 | dw::DW_EH_PE_sdata4.0;
        let bytes = entry.rest.slice();

        // Nearly all tables have this encoding: a start relative to its own field, and 32 bits
        // each.
        let (&[a, b, c, d, e, f, g, h], rest) = bytes.split_first_chunk::<8>()?;
        if cie.encoding.0 != USUAL {
            return None;
        }

        let start = i64::from(i32::from_le_bytes([a, b, c, d]));
        // The length has the format of the address, without the base.
        let length = i64::from(i32::from_le_bytes([e, f, g, h]));
        let at = entry.end - bytes.len();
        let start = self
            .address
            .wrapping_add(at as u64)
            .wrapping_add_signed(start);
        let end = start.checked_add(length.cast_unsigned())?;

        let (data, program) = match rest.split_first() {
            _ if !cie.has_data => (0, 0),
            // A longer length continues in the next byte.
            Some((&len @ ..0x80, rest)) if usize::from(len) <= rest.len() => {
                (1, 1 + usize::from(len))
            }
            _ => return None,
        };

        let at = at + 8;
        Some(Fde {
            offset: entry.offset,
            range: start..end,
            program: at + program..entry.end,
            data: at + data..at + program,
        })
    }

    /// The FDE in any encoding.
    #[cold]
    fn any_fde(&self, entry: EntryHeader<'a>, cie: &Cie) -> Result<Fde, Reason> {
        let mut input = entry.rest;
        let fail = self.fail(input);
        let start = self.pointer(&mut input, cie.encoding, None).map_err(fail)?;
        let fail = self.fail(input);
        let length = self.encoded(&mut input, cie.encoding).map_err(&fail)?;
        let Some(end) = start.checked_add(length) else {
            return Err(self.malformed(entry.offset, "the function's range wraps around"));
        };
        let mut data = 0..0;
        if cie.has_data {
            let length = input.read_uleb128().map_err(&fail)?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let at = self.offset_of(input);
            input.skip(length).map_err(&fail)?;
            data = at..self.offset_of(input);
        }
        Ok(Fde {
            offset: entry.offset,
            range: start..end,
            program: self.offset_of(input)..entry.end,
            data,
        })
    }

    /// The address (svma) of the language-specific data, if the FDE names any: a stored zero means
    /// none. Rows do not depend on it, so an unreadable one is none either.
    pub(super) fn lsda(&self, fde: &Fde, cie: &Cie) -> Option<u64> {
        let encoding = cie.lsda_encoding;
        if !cie.has_data || encoding == dw::DW_EH_PE_omit || encoding.is_indirect() {
            return None;
        }
        let mut data = self.input(fde.data.clone());
        if self.encoded(&mut data.clone(), encoding).ok()? == 0 {
            return None;
        }
        self.pointer(&mut data, encoding, None).ok()
    }

    /// Reads an encoded address (svma); `function` is the base of function-relative ones.
    pub(super) fn pointer(
        &self,
        input: &mut Input<'a>,
        encoding: DwEhPe,
        function: Option<u64>,
    ) -> Result<u64, ParseError> {
        let base = match encoding.application() {
            _ if encoding == dw::DW_EH_PE_omit => Err(ParseError("an address is omitted")),
            dw::DW_EH_PE_absptr => Ok(0),
            dw::DW_EH_PE_pcrel => Ok(self.address.wrapping_add(self.offset_of(*input) as u64)),
            dw::DW_EH_PE_datarel => self
                .got
                .ok_or(ParseError("data-relative address without a GOT")),
            dw::DW_EH_PE_funcrel => function.ok_or(ParseError(
                "function start is encoded relative to the function",
            )),
            _ => Err(ParseError("unsupported pointer encoding")),
        };
        Ok(base?.wrapping_add(self.encoded(input, encoding)?))
    }

    /// Reads a value in the encoding's format; signed values are sign-extended.
    fn encoded(&self, input: &mut Input<'a>, encoding: DwEhPe) -> gimli::Result<u64> {
        match encoding.format() {
            dw::DW_EH_PE_absptr | dw::DW_EH_PE_udata8 | dw::DW_EH_PE_sdata8 => input.read_u64(),
            dw::DW_EH_PE_uleb128 => input.read_uleb128(),
            dw::DW_EH_PE_sleb128 => input.read_sleb128().map(|v| v as u64),
            dw::DW_EH_PE_udata2 => input.read_u16().map(u64::from),
            dw::DW_EH_PE_sdata2 => input.read_i16().map(|v| v as u64),
            dw::DW_EH_PE_udata4 => input.read_u32().map(u64::from),
            dw::DW_EH_PE_sdata4 => input.read_i32().map(|v| v as u64),
            _ => Err(gimli::Error::UnknownPointerEncoding(encoding)),
        }
    }
}

/// What is wrong with the bytes; the caller adds where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ParseError(pub(super) &'static str);

impl From<gimli::Error> for ParseError {
    #[cold]
    fn from(error: gimli::Error) -> Self {
        ParseError(match error {
            gimli::Error::UnexpectedEof(_) => "the entry ends too early",
            gimli::Error::BadUnsignedLeb128 | gimli::Error::BadSignedLeb128 => "number too large",
            gimli::Error::UnknownPointerEncoding(_) => "unknown pointer encoding",
            _ => "unreadable",
        })
    }
}

/// Reads an unsigned LEB128 number; nearly all have one byte.
#[inline]
pub(super) fn uleb(input: &mut Input<'_>) -> gimli::Result<u64> {
    if let Some(&byte @ 0..0x80) = input.slice().first() {
        input.skip(1)?;
        return Ok(byte.into());
    }
    input.read_uleb128()
}
