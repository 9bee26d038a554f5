//! BTF: the types that a kernel carries in its section `.BTF`, as far as offsets of members need
//! them.
//!
//! Source: Linux `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h`. Not here: functions,
//! split BTF of modules, and what a member's type is.

use std::cell::Cell;
use std::fmt;
use unwind_sim_unwind::image::Bytes;

/// Bytes of `struct btf_header`, as of version 1.
const HEADER_LEN: usize = 24;
/// `BTF_MAGIC`
const MAGIC: u16 = 0xeb9f;
/// Bytes of `struct btf_type`, `struct btf_member`, `struct btf_array`.
const TYPE_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
/// Structs within structs that are entered, and types behind names that are followed.
const DEPTH_MAX: u32 = 32;
/// Members that one question may look at.
const LOOKS_MAX: u32 = 1 << 20;

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
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// BTF that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BtfError {
    /// What is wrong.
    pub what: &'static str,
    /// Where in the section, bytes.
    pub offset: u64,
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".BTF at offset {:#x}: {}", self.offset, self.what)
    }
}

impl std::error::Error for BtfError {}

/// A section `.BTF`.
#[derive(Clone, Debug)]
pub struct Btf {
    types: Bytes,
    strings: Bytes,
    /// Where each type begins in `types`; the first has the number 1.
    starts: Vec<u32>,
}

/// A type: `struct btf_type`.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    len: usize,
    has_bit_fields: bool,
    /// A size, or the number of another type.
    value: u32,
    /// Where what follows it begins.
    rest: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Type {
    fn read(types: &[u8], at: usize) -> Option<Type> {
        let info = u32_at(types, at + 4)?;
        Some(Type {
            name: u32_at(types, at)?,
            kind: info >> 24 & 0x1f,
            len: (info & 0xffff) as usize,
            has_bit_fields: info >> 31 == 1,
            value: u32_at(types, at + 8)?,
            rest: at + TYPE_LEN,
        })
    }

    /// Bytes of what follows it; `None` of a kind that we do not know.
    const fn rest_len(&self) -> Option<usize> {
        Some(match self.kind {
            KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => self.len * MEMBER_LEN,
            KIND_ENUM | KIND_FUNC_PROTO => self.len * 8,
            0 | 20.. => return None,
            _ => 0,
        })
    }

    /// Another type under a name, or qualified.
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

/// A member that was found.
struct Member {
    /// From the beginning of the outermost struct, bytes.
    offset: u64,
    /// The number of its type.
    of: u32,
}

impl Btf {
    /// Reads the section.
    ///
    /// # Errors
    /// If it is none, is of another byte order or version, or is cut short.
    pub fn parse(bytes: Bytes) -> Result<Btf, BtfError> {
        let bad = |offset: usize, what| BtfError {
            what,
            offset: offset as u64,
        };
        let magic = bytes
            .first_chunk()
            .ok_or_else(|| bad(0, "the header is cut short"))?;
        if u16::from_le_bytes(*magic) != MAGIC {
            return Err(bad(0, "no BTF of a little-endian machine"));
        }
        if bytes.get(2).is_some_and(|version| *version != 1) {
            return Err(bad(2, "unknown version"));
        }
        let field = |at| u32_at(&bytes, at).ok_or_else(|| bad(at, "the header is cut short"));
        let header = field(4)? as usize;
        if header < HEADER_LEN {
            return Err(bad(4, "the header is too short"));
        }
        let part = |at: usize, what| {
            let start = header.saturating_add(field(at)? as usize);
            let end = start.saturating_add(field(at + 4)? as usize);
            bytes.part(start..end).ok_or_else(|| bad(at, what))
        };
        let types = part(8, "the types do not lie in the section")?;
        let strings = part(16, "the strings do not lie in the section")?;
        let base = header.saturating_add(field(8)? as usize);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < types.len() {
            let cut = || bad(base + at, "a type is cut short");
            let found = Type::read(&types, at).ok_or_else(cut)?;
            let len = found.rest_len();
            let len = len.ok_or_else(|| bad(base + at, "a type of unknown kind"))?;
            starts.push(u32::try_from(at).map_err(|_| cut())?);
            at = found.rest + len;
            if at > types.len() {
                return Err(bad(base + at - len, "a type is cut short"));
            }
        }
        Ok(Btf {
            types,
            strings,
            starts,
        })
    }

    /// Where the member `path` is: [`Btf::extent`] without the size.
    pub fn offset(&self, name: &str, path: &str) -> Option<u64> {
        self.extent(name, path).map(|(offset, _)| offset)
    }

    /// Where the member `path` ("thread.sp") of the struct or union `name` is, and how large it
    /// is, bytes. Members of members without a name count as its own; of an array of structs the
    /// first element is meant. `None` if there is no such member, or if it is a bit-field.
    pub fn extent(&self, name: &str, path: &str) -> Option<(u64, u64)> {
        let found = self.at_path(name, path)?;
        Some((found.offset, self.size(found.of)?))
    }

    fn at_path(&self, name: &str, path: &str) -> Option<Member> {
        let looks = Cell::new(LOOKS_MAX);
        let mut of = self.named(name)?;
        let mut offset = 0u64;
        for part in path.split('.') {
            let inside = self.element(of)?;
            let found = self.member(inside, part, DEPTH_MAX, &looks)?;
            offset = offset.checked_add(found.offset)?;
            of = found.of;
        }
        Some(Member { offset, of })
    }

    /// The size of the struct or union `name`, bytes.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.size(self.named(name)?)
    }

    /// The number of the first struct or union of that name that has members.
    fn named(&self, name: &str) -> Option<u32> {
        let is_it = |number: &u32| {
            self.get(*number).is_some_and(|found| {
                found.has_members() && found.len > 0 && self.is_name(found.name, name)
            })
        };
        (1..=self.starts.len() as u32).find(is_it)
    }

    fn get(&self, number: u32) -> Option<Type> {
        let index = (number as usize).checked_sub(1)?;
        Type::read(&self.types, *self.starts.get(index)? as usize)
    }

    fn is_name(&self, at: u32, name: &str) -> bool {
        let rest = self.strings.get(at as usize..);
        let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The type without the names and qualifiers before it.
    fn plain(&self, mut number: u32) -> Option<(u32, Type)> {
        for _ in 0..DEPTH_MAX {
            let found = self.get(number)?;
            if !found.is_alias() {
                return Some((number, found));
            }
            number = found.value;
        }
        None
    }

    /// The struct itself, or that of which it is an array.
    fn element(&self, mut number: u32) -> Option<Type> {
        for _ in 0..DEPTH_MAX {
            let (_, found) = self.plain(number)?;
            match found.kind {
                KIND_ARRAY => number = u32_at(&self.types, found.rest)?,
                KIND_STRUCT | KIND_UNION => return Some(found),
                _ => return None,
            }
        }
        None
    }

    fn member(&self, of: Type, name: &str, depth: u32, looks: &Cell<u32>) -> Option<Member> {
        let depth = depth.checked_sub(1)?;
        for i in 0..of.len {
            looks.set(looks.get().checked_sub(1)?);
            let at = of.rest + i * MEMBER_LEN;
            let (name_at, number) = (u32_at(&self.types, at)?, u32_at(&self.types, at + 4)?);
            let bits = u32_at(&self.types, at + 8)?;
            let (bits, width) = match of.has_bit_fields {
                true => (bits & 0x00ff_ffff, bits >> 24),
                false => (bits, 0),
            };
            let offset = u64::from(bits / 8);
            if self.is_name(name_at, name) {
                let whole = width == 0 && bits % 8 == 0;
                return whole.then_some(Member { offset, of: number });
            }
            let is_unnamed = self.is_name(name_at, "");
            let Some((_, inner)) = self.plain(number).filter(|_| is_unnamed) else {
                continue;
            };
            if !inner.has_members() {
                continue;
            }
            if let Some(found) = self.member(inner, name, depth, looks) {
                let offset = offset + found.offset;
                return Some(Member { offset, ..found });
            }
        }
        None
    }

    fn size(&self, mut number: u32) -> Option<u64> {
        let mut count = 1u64;
        for _ in 0..DEPTH_MAX {
            let (_, found) = self.plain(number)?;
            let one = match found.kind {
                KIND_PTR => 8,
                KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_FLOAT | KIND_ENUM64 => {
                    u64::from(found.value)
                }
                KIND_ARRAY => {
                    number = u32_at(&self.types, found.rest)?;
                    let len = u32_at(&self.types, found.rest + 8)?;
                    count = count.checked_mul(u64::from(len))?;
                    continue;
                }
                _ => return None,
            };
            return count.checked_mul(one);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with these types and strings.
    fn section(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_le_bytes()).collect();
        let len = types.len() as u32;
        let header = [24, 0, len, len, strings.len() as u32];
        let mut out = vec![0x9f, 0xeb, 1, 0];
        out.extend(header.iter().flat_map(|w| w.to_le_bytes()));
        out.extend(types);
        out.extend(strings);
        out
    }

    const STRINGS: &[u8] = b"\0int\0s\0a\0b\0c\0d\0t\0p\0";
    const INT: u32 = 1;
    const S: u32 = 5;
    const A: u32 = 7;
    const B: u32 = 9;
    const C: u32 = 11;
    const D: u32 = 13;
    const T: u32 = 15;
    const P: u32 = 17;

    /// `struct s { int a; union { int b; }; const t c[3]; int d : 3; t *p; }` with
    /// `typedef struct { int a; int b; } t`.
    fn example() -> Vec<u8> {
        let kind = |kind: u32, len: u32| kind << 24 | len;
        let types = [
            &[INT, kind(KIND_INT, 0), 4, 32][..],
            &[0, kind(KIND_UNION, 1), 4, B, 1, 0],
            &[0, kind(KIND_STRUCT, 2), 8, A, 1, 0, B, 1, 32],
            &[T, kind(KIND_TYPEDEF, 0), 3],
            &[0, kind(KIND_CONST, 0), 4],
            &[0, kind(KIND_ARRAY, 0), 0, 5, 1, 3],
            &[S, kind(KIND_STRUCT, 5) | 1 << 31, 48],
            &[A, 1, 0, 0, 2, 32, C, 6, 64, D, 1, 3 << 24 | 256, P, 8, 320],
            &[0, kind(KIND_PTR, 0), 4],
        ];
        section(&types.concat(), STRINGS)
    }

    #[test]
    fn members_are_found_by_path_through_arrays_and_unnamed_unions() {
        let bytes = example();
        let btf = Btf::parse(Bytes::from_vec(bytes)).expect("sound");
        assert_eq!(btf.extent("s", "a"), Some((0, 4)));
        assert_eq!(btf.extent("s", "b"), Some((4, 4)));
        assert_eq!(btf.extent("s", "c"), Some((8, 24)));
        assert_eq!(btf.extent("s", "c.b"), Some((12, 4)));
        assert_eq!(btf.extent("s", "d"), None, "a bit-field");
        assert_eq!(btf.extent("s", "e"), None);
        assert_eq!(btf.extent("t", "a"), None, "no struct of its own");
        assert_eq!(btf.extent("s", "p"), Some((40, 8)));
        assert_eq!(btf.size_of("s"), Some(48));
    }

    #[test]
    fn a_type_that_holds_itself_ends() {
        let kind = KIND_STRUCT << 24 | 2;
        let own = section(&[S, kind, 8, 0, 1, 0, 0, 1, 0], STRINGS);
        let btf = Btf::parse(Bytes::from_vec(own)).expect("readable");
        assert_eq!(btf.extent("s", "a"), None);
        let alias = section(&[S, KIND_TYPEDEF << 24, 1], STRINGS);
        let btf = Btf::parse(Bytes::from_vec(alias)).expect("readable");
        assert_eq!(btf.size(1), None);
    }

    #[test]
    fn what_is_cut_short_or_overwritten_is_an_error_and_no_panic() {
        let whole = example();
        for len in 0..whole.len() {
            let _ = Btf::parse(Bytes::from_vec(whole[..len].to_vec())).expect_err("cut short");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Ok(btf) = Btf::parse(Bytes::from_vec(bytes)) {
                    let _ = (btf.extent("s", "c.b"), btf.size_of("s"));
                }
            }
        }
    }
}
