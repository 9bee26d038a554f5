//! BTF, the type format of the Linux kernel: the section `.BTF` of a kernel or of a BPF object, or
//! the feature `HEADER_BPF_BTF` of a perf.data, which holds the types of loaded BPF programs.
//!
//! [`Btf::extent`] finds a member by its path, [`Btf::variables`] and [`Btf::members`] list the
//! contents of a section and a structure, [`Btf::parameters`] those of a function. The split BTF of
//! modules is not supported.
//!
//! Source: Linux 7.2, `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h`.

mod path;
#[cfg(test)]
mod tests;

use crate::le::{u32_at, until_nul};
use std::fmt;
use std::ops::{Deref, Range};

/// Bytes of `struct btf_header`, as of version 1.
const HEADER_LEN: usize = 24;
/// The first word of `.BTF` and `.BTF.ext`: `BTF_MAGIC`, version 1, no flags.
pub const MAGIC_AND_VERSION: u32 = 0x0001_eb9f;
/// Bytes of `struct btf_type`.
const TYPE_LEN: usize = 12;
/// Bytes of `struct btf_member` and of `struct btf_var_secinfo`.
const ENTRY_LEN: usize = 12;
/// Bytes of `struct btf_param`.
const PARAM_LEN: usize = 8;
/// Offset of `nelems` in `struct btf_array`.
const ARRAY_COUNT: usize = 8;
/// Maximum number of typedefs, qualifiers, arrays and structures followed by one lookup.
const DEPTH_MAX: u32 = 32;

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
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// What is wrong with BTF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BtfErrorKind {
    /// Another magic number, version or byte order; holds the first word.
    Header(u32),
    /// The header's stated length in bytes, if shorter than version 1's.
    HeaderLen(u32),
    /// This part extends beyond the end of the section.
    CutShort(&'static str),
    /// A type of this unknown kind, which therefore has no known length.
    UnknownKind(u32),
    /// The type with this number does not exist, has the wrong kind, or refers to itself.
    Type(u32),
}

impl fmt::Display for BtfErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(word) => write!(
                f,
                "not little-endian BTF of version 1 (it starts with {word:#x})"
            ),
            Self::HeaderLen(len) => write!(f, "a header of {len} bytes is too short"),
            Self::CutShort(what) => write!(f, "{what} is truncated"),
            Self::UnknownKind(kind) => write!(f, "unknown type kind {kind}"),
            Self::Type(id) => write!(f, "type {id} does not exist or has the wrong kind"),
        }
    }
}

/// BTF that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BtfError {
    /// What is wrong.
    pub kind: BtfErrorKind,
    /// Offset in the section, bytes.
    pub offset: u64,
}

impl BtfError {
    const fn new(kind: BtfErrorKind, offset: usize) -> Self {
        BtfError {
            kind,
            offset: offset as u64,
        }
    }
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".BTF at offset {:#x}: {}", self.offset, self.kind)
    }
}

impl std::error::Error for BtfError {}

/// A section `.BTF`.
#[derive(Clone, Debug)]
pub struct Btf<D> {
    section: D,
    strings: Range<usize>,
    /// Offset of each type in the section; the first type has the number 1.
    starts: Vec<u32>,
    /// The numbers of the structures and unions that have members.
    structures: Vec<u32>,
}

/// A type: `struct btf_type`.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Offset in the section, bytes.
    at: usize,
    /// Offset of its name in the strings.
    name: u32,
    kind: u32,
    /// Number of members, elements or parameters that follow.
    count: usize,
    has_bit_fields: bool,
    /// A size in bytes, or the number of another type.
    value: u32,
}

impl Type {
    fn read(section: &[u8], at: usize) -> Option<Type> {
        let bytes: &[u8; TYPE_LEN] = section.get(at..)?.first_chunk()?;
        let (words, _) = bytes.as_chunks();
        let [name, info, value] = [0, 1, 2].map(|i: usize| u32::from_le_bytes(words[i]));
        Some(Type {
            at,
            name,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bit_fields: info >> 31 == 1,
            value,
        })
    }

    /// Offset of the data after `struct btf_type`.
    const fn rest(&self) -> usize {
        self.at + TYPE_LEN
    }

    /// Size in bytes of the data after `struct btf_type`; `None` if the kind is unknown.
    const fn rest_len(&self) -> Option<usize> {
        Some(match self.kind {
            KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => self.count * ENTRY_LEN,
            KIND_ENUM | KIND_FUNC_PROTO => self.count * PARAM_LEN,
            0 | 20.. => return None,
            _ => 0,
        })
    }

    /// Whether it only refers to another type: a typedef, a qualifier or a variable.
    const fn is_alias(&self) -> bool {
        matches!(
            self.kind,
            KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_VAR | KIND_TYPE_TAG
        )
    }

    const fn has_members(&self) -> bool {
        matches!(self.kind, KIND_STRUCT | KIND_UNION)
    }
}

/// A member of a structure or union.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// The number of its type.
    pub type_id: u32,
    /// Offset of its `struct btf_member` in the section, bytes.
    pub at: u64,
    /// Its offset in the structure, bits.
    pub bits: u32,
    /// Width of a bit-field in bits; 0 for any other member.
    pub width: u32,
}

impl<D: Deref<Target = [u8]>> Btf<D> {
    /// Reads the section.
    ///
    /// # Errors
    /// If it is not BTF, has another byte order or version, or is truncated.
    pub fn parse(section: D) -> Result<Self, BtfError> {
        let cut = |what, at| BtfError::new(BtfErrorKind::CutShort(what), at);
        let field = |at| u32_at(&section, at).ok_or_else(|| cut("the header", at));

        let first = field(0)?;
        // One word, so that the other byte order is refused too.
        if first != MAGIC_AND_VERSION {
            return Err(BtfError::new(BtfErrorKind::Header(first), 0));
        }

        let header = field(4)?;
        if (header as usize) < HEADER_LEN {
            return Err(BtfError::new(BtfErrorKind::HeaderLen(header), 4));
        }

        // Offsets of the parts count from the end of the header.
        let part = |at: usize, what| {
            let start = (header as usize).saturating_add(field(at)? as usize);
            let end = start.saturating_add(field(at + 4)? as usize);
            if end <= section.len() {
                Ok(start..end)
            } else {
                Err(cut(what, at))
            }
        };

        let types = part(8, "the type section")?;
        let strings = part(16, "the string section")?;

        // A type with what follows it has 30 bytes on average.
        // Types refer to each other by number, so the start of each one is kept.
        let mut starts = Vec::with_capacity(types.len() / 32);
        let mut structures = Vec::new();
        let mut at = types.start;

        // A type has no length of its own; it follows from the kind, so an unknown kind ends the
        // section.
        while at < types.end {
            let short = || cut("a type", at);
            let found = Type::read(&section[..types.end], at).ok_or_else(short)?;
            let len = found.rest_len();
            let unknown = || BtfError::new(BtfErrorKind::UnknownKind(found.kind), at + 4);
            let end = found.rest() + len.ok_or_else(unknown)?;
            if end > types.end {
                return Err(short());
            }

            starts.push(u32::try_from(at).map_err(|_| short())?);
            if found.has_members() && found.count > 0 {
                // Ids count from 1: 0 is `void`, which is not in the section.
                structures.push(starts.len() as u32);
            }
            at = end;
        }

        Ok(Btf {
            section,
            strings,
            starts,
            structures,
        })
    }

    /// The types with their numbers.
    fn types(&self) -> impl Iterator<Item = (u32, Type)> + '_ {
        let types = self.starts.iter().zip(1..);
        types.filter_map(|(&at, id)| Some((id, Type::read(&self.section, at as usize)?)))
    }

    /// The type with this number.
    fn get(&self, id: u32) -> Result<Type, BtfError> {
        let start = (id as usize).checked_sub(1).map(|i| self.starts.get(i));
        let start = start.flatten();
        let found = start.and_then(|&at| Type::read(&self.section, at as usize));
        found.ok_or_else(|| BtfError::new(BtfErrorKind::Type(id), 0))
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, id: u32) -> Result<Type, BtfError> {
        let mut number = id;
        for _ in 0..DEPTH_MAX {
            let found = self.get(number)?;
            if !found.is_alias() {
                return Ok(found);
            }
            number = found.value;
        }
        Err(BtfError::new(BtfErrorKind::Type(id), 0))
    }

    fn string(&self, at: u32) -> &[u8] {
        let strings = &self.section[self.strings.clone()];
        until_nul(strings.get(at as usize..).unwrap_or_default())
    }

    /// Whether `name` is the string at `at`.
    fn is_string(&self, at: u32, name: &[u8]) -> bool {
        let strings = &self.section[self.strings.clone()];
        let rest = strings.get(at as usize..).unwrap_or_default();
        let behind = rest.strip_prefix(name);
        behind.is_some_and(|behind| matches!(behind, [] | [0, ..])) && !name.contains(&0)
    }

    fn name(&self, at: u32) -> &str {
        str::from_utf8(self.string(at)).unwrap_or("(not UTF-8)")
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let cut = || BtfError::new(BtfErrorKind::CutShort("a type"), at);
        u32_at(&self.section, at).ok_or_else(cut)
    }

    /// Element type and length of an array.
    fn array(&self, of: &Type) -> Result<(u32, u32), BtfError> {
        Ok((self.word(of.rest())?, self.word(of.rest() + ARRAY_COUNT)?))
    }

    /// The variables of the section `name`: their names and structures.
    ///
    /// # Errors
    /// If an entry is not a variable, or a variable not a structure.
    pub fn variables(&self, name: &str) -> Result<Vec<(&str, Type)>, BtfError> {
        let wrong = |id, at| BtfError::new(BtfErrorKind::Type(id), at);
        let is_it = |found: &Type| found.kind == KIND_DATASEC && self.name(found.name) == name;
        let mut variables = Vec::new();
        for (_, section) in self.types().filter(|(_, found)| is_it(found)) {
            for index in 0..section.count {
                let at = section.rest() + index * ENTRY_LEN;
                let id = self.word(at)?;
                let variable = self.get(id)?;
                if variable.kind != KIND_VAR {
                    return Err(wrong(id, at));
                }
                let found = self.resolve(variable.value)?;
                if found.kind != KIND_STRUCT {
                    return Err(wrong(variable.value, variable.at));
                }
                variables.push((self.name(variable.name), found));
            }
        }
        Ok(variables)
    }

    /// The names of a function's parameters, in order. `None` if there is no such function.
    pub fn parameters(&self, function: &str) -> Option<Vec<&str>> {
        let is_it = |found: &Type| {
            found.kind == KIND_FUNC && self.is_string(found.name, function.as_bytes())
        };
        let (_, found) = self.types().find(|(_, found)| is_it(found))?;
        let prototype = self.get(found.value).ok()?;
        if prototype.kind != KIND_FUNC_PROTO {
            return None;
        }
        let places = (0..prototype.count).map(|i| prototype.rest() + i * PARAM_LEN);
        places
            .map(|at| self.word(at).ok().map(|name| self.name(name)))
            .collect()
    }

    /// The members of a structure or union; other types have none.
    pub fn members(&self, of: &Type) -> impl Iterator<Item = Member<'_>> + use<'_, D> {
        let of = *of;
        let count = if of.has_members() { of.count } else { 0 };
        (0..count).map_while(move |index| {
            let at = of.rest() + index * ENTRY_LEN;
            let bits = u32_at(&self.section, at + 8)?;
            let (bits, width) = if of.has_bit_fields {
                (bits & 0x00ff_ffff, bits >> 24)
            } else {
                (bits, 0)
            };
            Some(Member {
                name: self.name(u32_at(&self.section, at)?),
                type_id: u32_at(&self.section, at + 4)?,
                at: at as u64,
                bits,
                width,
            })
        })
    }

    /// The length of the array that the pointer `id` points to: definitions of maps encode numbers
    /// as `int (*member)[number]`.
    ///
    /// # Errors
    /// If `id` is not a pointer to an array.
    pub fn pointed_len(&self, id: u32) -> Result<u32, BtfError> {
        let array = self.resolve(self.pointer(id)?)?;
        if array.kind != KIND_ARRAY {
            return Err(BtfError::new(BtfErrorKind::Type(id), array.at));
        }
        Ok(self.array(&array)?.1)
    }

    /// The size of the type that the pointer `id` points to, bytes.
    ///
    /// # Errors
    /// If `id` is not a pointer, or points to a type without a size.
    pub fn pointed_size(&self, id: u32) -> Result<u64, BtfError> {
        self.size(self.pointer(id)?)
    }

    fn pointer(&self, id: u32) -> Result<u32, BtfError> {
        let pointer = self.resolve(id)?;
        if pointer.kind != KIND_PTR {
            return Err(BtfError::new(BtfErrorKind::Type(id), pointer.at));
        }
        Ok(pointer.value)
    }

    /// The size of the type `id`, bytes.
    fn size(&self, mut id: u32) -> Result<u64, BtfError> {
        let mut count = 1u64;
        for _ in 0..DEPTH_MAX {
            let found = self.resolve(id)?;
            let wrong = || BtfError::new(BtfErrorKind::Type(id), found.at);
            let (len, inner) = match found.kind {
                KIND_PTR => (8, None),
                KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_FLOAT | KIND_ENUM64 => {
                    (u64::from(found.value), None)
                }
                KIND_ARRAY => {
                    let (element, len) = self.array(&found)?;
                    (u64::from(len), Some(element))
                }
                _ => return Err(wrong()),
            };
            count = count.checked_mul(len).ok_or_else(wrong)?;
            match inner {
                None => return Ok(count),
                Some(inner) => id = inner,
            }
        }
        Err(BtfError::new(BtfErrorKind::Type(id), 0))
    }
}
