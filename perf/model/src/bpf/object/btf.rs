//! BTF, as far as the definitions of maps need it.
//!
//! Source: `Documentation/bpf/btf.rst`, Linux 7.2.

use super::super::error::{ObjectError, ObjectErrorKind as Kind};
use super::elf::{Section, word};

/// `0xeb9f`, version 1, no flags.
const MAGIC_AND_VERSION: u32 = 0x0001_eb9f;
/// The header's length as it must at least be.
const HEADER_SIZE: u64 = 24;
/// Typedefs, qualifiers and arrays that may stand in a row.
const CHAIN_MAX: usize = 32;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// The type information of an object.
pub(super) struct Btf<'a> {
    section: Section<'a>,
    /// Where each type stands in the section; type 1 is the first.
    types: Vec<u32>,
    strings: u64,
    strings_size: u64,
}

/// The head of a type.
#[derive(Clone, Copy)]
pub(super) struct Type {
    /// Where it stands in the section.
    at: u64,
    name: u32,
    kind: u32,
    count: u32,
    /// The size of a value, or the type that it refers to.
    size_or_type: u32,
}

/// A member of a structure.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) type_id: u32,
    /// Where it stands in the section.
    pub(super) at: u64,
    /// Where it is in the structure, bytes.
    pub(super) offset: u64,
}

impl<'a> Btf<'a> {
    pub(super) fn parse(section: Section<'a>) -> Result<Self, ObjectError> {
        let magic = word(&section, 0)?;
        if magic != MAGIC_AND_VERSION {
            let kind = Kind::BtfHeader(magic);
            return Err(ObjectError::new(kind, section.offset, section.name));
        }
        let header_size = u64::from(word(&section, 4)?);
        if header_size < HEADER_SIZE {
            let kind = Kind::Short {
                need: HEADER_SIZE,
                have: header_size,
            };
            return Err(ObjectError::new(kind, section.offset + 4, section.name));
        }
        let types_at = header_size + u64::from(word(&section, 8)?);
        let end = types_at + u64::from(word(&section, 12)?);
        let strings = header_size + u64::from(word(&section, 16)?);
        let mut btf = Self {
            section,
            types: Vec::new(),
            strings,
            strings_size: u64::from(word(&section, 20)?),
        };
        let mut at = types_at;
        while at < end {
            let head = btf.head(at)?;
            let extra = btf.extra(&head)?;
            // Sections are below 4 GiB: `head` would have failed otherwise.
            btf.types.push(u32::try_from(at).unwrap_or(u32::MAX));
            at += 12 + extra;
        }
        Ok(btf)
    }

    fn error(&self, kind: Kind, at: u64) -> ObjectError {
        ObjectError::new(
            kind,
            self.section.offset.saturating_add(at),
            self.section.name,
        )
    }

    /// An error of another part of the object at a place of this section.
    pub(super) fn error_at(&self, kind: Kind, at: u64) -> ObjectError {
        self.error(kind, at)
    }

    fn head(&self, at: u64) -> Result<Type, ObjectError> {
        let info = word(&self.section, at + 4)?;
        Ok(Type {
            at,
            name: word(&self.section, at)?,
            kind: info >> 24 & 0x1f,
            count: info & 0xffff,
            size_or_type: word(&self.section, at + 8)?,
        })
    }

    /// Bytes that follow the head of a type.
    fn extra(&self, head: &Type) -> Result<u64, ObjectError> {
        let count = u64::from(head.count);
        Ok(match head.kind {
            KIND_INT | KIND_VAR | 17 => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * count,
            KIND_ENUM | 13 => 8 * count,
            KIND_PTR | 7..=12 | KIND_FLOAT | KIND_TYPE_TAG => 0,
            kind => return Err(self.error(Kind::BtfKind(kind), head.at + 4)),
        })
    }

    /// The type of that number.
    fn get(&self, id: u32) -> Result<Type, ObjectError> {
        let index = (id as usize).checked_sub(1);
        match index.and_then(|index| self.types.get(index)) {
            Some(at) => self.head(u64::from(*at)),
            None => Err(self.error(Kind::BtfType(id), 0)),
        }
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, id: u32) -> Result<Type, ObjectError> {
        let mut found = self.get(id)?;
        for _ in 0..CHAIN_MAX {
            match found.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    found = self.get(found.size_or_type)?;
                }
                _ => return Ok(found),
            }
        }
        Err(self.error(Kind::BtfType(id), found.at))
    }

    fn name(&self, offset: u32) -> Result<&'a str, ObjectError> {
        let at = self.strings.saturating_add(u64::from(offset));
        let bytes = usize::try_from(at)
            .ok()
            .filter(|_| u64::from(offset) < self.strings_size)
            .and_then(|at| self.section.bytes.get(at..))
            .ok_or_else(|| self.error(Kind::Short { need: 1, have: 0 }, at))?;
        let text = unwind_sim_perf_data::le::until_nul(bytes);
        Ok(str::from_utf8(text).unwrap_or("(not UTF-8)"))
    }

    /// The variables of the section `name`: their names and structures.
    pub(super) fn variables(&self, name: &str) -> Result<Vec<(&'a str, Type)>, ObjectError> {
        let mut variables = Vec::new();
        for id in 1..=self.types.len() as u32 {
            let section = self.get(id)?;
            if section.kind != KIND_DATASEC || self.name(section.name)? != name {
                continue;
            }
            for index in 0..u64::from(section.count) {
                let id = word(&self.section, section.at + 12 + 12 * index)?;
                let variable = self.get(id)?;
                if variable.kind != KIND_VAR {
                    return Err(self.error(Kind::BtfType(id), section.at));
                }
                let found = self.resolve(variable.size_or_type)?;
                if found.kind != KIND_STRUCT {
                    return Err(self.error(Kind::BtfType(variable.size_or_type), variable.at));
                }
                variables.push((self.name(variable.name)?, found));
            }
        }
        Ok(variables)
    }

    /// The members of a structure.
    pub(super) fn members(
        &self,
        of: &Type,
    ) -> impl Iterator<Item = Result<Member<'a>, ObjectError>> + '_ {
        let first = of.at + 12;
        (0..u64::from(of.count)).map(move |index| {
            let at = first + 12 * index;
            Ok(Member {
                name: self.name(word(&self.section, at)?)?,
                type_id: word(&self.section, at + 4)?,
                at,
                offset: u64::from(word(&self.section, at + 8)? & 0xff_ffff) / 8,
            })
        })
    }

    /// The number that a definition of a map says by `int (*member)[number]`.
    pub(super) fn number(&self, id: u32) -> Result<u32, ObjectError> {
        let array = self.resolve(self.pointer(id)?)?;
        if array.kind != KIND_ARRAY {
            return Err(self.error(Kind::BtfType(id), array.at));
        }
        word(&self.section, array.at + 12 + 8)
    }

    /// The size of what `type *member` points to, bytes.
    pub(super) fn pointed_size(&self, id: u32) -> Result<u32, ObjectError> {
        self.size(self.pointer(id)?)
    }

    fn pointer(&self, id: u32) -> Result<u32, ObjectError> {
        let pointer = self.resolve(id)?;
        if pointer.kind != KIND_PTR {
            return Err(self.error(Kind::BtfType(id), pointer.at));
        }
        Ok(pointer.size_or_type)
    }

    fn size(&self, id: u32) -> Result<u32, ObjectError> {
        let mut id = id;
        let mut count = 1u32;
        for _ in 0..CHAIN_MAX {
            let found = self.resolve(id)?;
            let size = match found.kind {
                KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => {
                    found.size_or_type
                }
                KIND_PTR => 8,
                KIND_ARRAY => {
                    id = word(&self.section, found.at + 12)?;
                    let length = word(&self.section, found.at + 12 + 8)?;
                    count = count
                        .checked_mul(length)
                        .ok_or_else(|| self.error(Kind::BtfType(id), found.at))?;
                    continue;
                }
                _ => return Err(self.error(Kind::BtfType(id), found.at)),
            };
            return count
                .checked_mul(size)
                .ok_or_else(|| self.error(Kind::BtfType(id), found.at));
        }
        Err(self.error(Kind::BtfType(id), 0))
    }
}

/// Refuses an object that has relocations against a kernel's types.
pub(super) fn refuse_core(ext: Section<'_>) -> Result<(), ObjectError> {
    let magic = word(&ext, 0)?;
    if magic != MAGIC_AND_VERSION {
        let kind = Kind::BtfHeader(magic);
        return Err(ObjectError::new(kind, ext.offset, ext.name));
    }
    // Offset and length of functions and lines come first; older headers end there.
    if word(&ext, 4)? < 32 {
        return Ok(());
    }
    match word(&ext, 28)? {
        // The size of an entry alone.
        0..=4 => Ok(()),
        bytes => Err(ObjectError::new(
            Kind::Core(bytes),
            ext.offset + 28,
            ext.name,
        )),
    }
}
