//! A kernel's type information (`.BTF`): where the members of its structures are.
//!
//! Source: Linux `Documentation/bpf/btf.rst`, `include/uapi/linux/btf.h`. Not here: anything but
//! structures and unions.

use std::collections::HashMap;
use unwind_sim_unwind::image::Bytes;

const MAGIC: u16 = 0xeb9f;
/// Most types taken; 6.12 has 150,000.
const TYPES_MAX: usize = 4 << 20;
/// Structures without a name and typedefs may nest so deep.
const DEPTH_MAX: u32 = 32;

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const DATASEC: u32 = 15;

/// The types of a kernel.
#[derive(Clone, Debug)]
pub struct Btf {
    bytes: Bytes,
    /// Begin of each type; the first one has the number 1.
    types: Vec<u32>,
    strings: usize,
    /// Structures by name.
    structures: HashMap<Vec<u8>, u32>,
}

impl Btf {
    /// Reads the section; `None` if it is none, or damaged.
    pub fn read(bytes: Bytes) -> Option<Btf> {
        if read_u32(&bytes, 0)? & 0xffff != u32::from(MAGIC) {
            return None;
        }
        let field = |at| Some(read_u32(&bytes, at)? as usize);
        let header = field(4)?;
        let begin = header.checked_add(field(8)?)?;
        let end = begin.checked_add(field(12)?)?;
        let strings = header.checked_add(field(16)?)?;
        let mut at = begin;
        let (mut types, mut structures) = (Vec::new(), HashMap::new());
        while at < end {
            if types.len() == TYPES_MAX {
                return None;
            }
            let info = read_u32(&bytes, at + 4)?;
            let (kind, count) = (kind(info), (info & 0xffff) as usize);
            types.push(u32::try_from(at).ok()?);
            if kind == STRUCT {
                let name = name(&bytes, strings, read_u32(&bytes, at)?)?;
                let number = types.len() as u32;
                structures.entry(name.to_vec()).or_insert(number);
            }
            at += 12
                + match kind {
                    // An integer, a variable, a declaration's tag.
                    1 | 14 | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATASEC | 19 => 12 * count,
                    // Enumerations, and parameters.
                    6 | 13 => 8 * count,
                    0 | 2 | 7..=12 | 16 | 18 => 0,
                    _ => return None,
                };
        }
        Some(Btf {
            bytes,
            types,
            strings,
            structures,
        })
    }

    /// The offset of a member of `struct structure`, in bytes; of a member of a member with a dot
    /// between (`thread.sp`).
    pub fn offset(&self, structure: &str, path: &str) -> Option<u64> {
        let mut number = *self.structures.get(structure.as_bytes())?;
        let mut offset = 0;
        for member in path.split('.') {
            let (bits, inner) = self.member(number, member.as_bytes(), DEPTH_MAX)?;
            offset += bits / 8;
            number = inner;
        }
        Some(offset)
    }

    /// A member's offset in bits, and its type.
    fn member(&self, number: u32, wanted: &[u8], depth: u32) -> Option<(u64, u32)> {
        let depth = depth.checked_sub(1)?;
        let at = *self.types.get(number.checked_sub(1)? as usize)? as usize;
        let info = read_u32(&self.bytes, at + 4)?;
        match kind(info) {
            STRUCT | UNION => {}
            // A typedef, and what qualifies.
            8..=11 | 18 => return self.member(read_u32(&self.bytes, at + 8)?, wanted, depth),
            _ => return None,
        }
        (0..(info & 0xffff) as usize).find_map(|index| {
            let at = at + 12 + 12 * index;
            let field = |n| read_u32(&self.bytes, at + n);
            let (name_at, inner, offset) = (field(0)?, field(4)?, field(8)?);
            let is_bit_field = info >> 31 != 0;
            let bits = u64::from(if is_bit_field {
                offset & 0xff_ffff
            } else {
                offset
            });
            let name = name(&self.bytes, self.strings, name_at)?;
            match name.is_empty() {
                true => {
                    let (more, inner) = self.member(inner, wanted, depth)?;
                    Some((bits + more, inner))
                }
                false => (name == wanted).then_some((bits, inner)),
            }
        })
    }
}

const fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

fn name(bytes: &[u8], strings: usize, at: u32) -> Option<&[u8]> {
    let rest = bytes.get(strings.checked_add(at as usize)?..)?;
    rest.split(|b| *b == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// struct a { int x; union { long y; struct b z; }; }; struct b { int p; int q; };
    fn section() -> Vec<u8> {
        let strings = b"\0int\0a\0x\0y\0b\0z\0p\0q\0";
        let at = |name: &str| {
            let name = [&[0], name.as_bytes(), &[0]].concat();
            let found = strings.windows(name.len()).position(|w| w == name);
            found.expect("a name of the table") as u32 + 1
        };
        let mut types: Vec<u32> = vec![at("int"), 1 << 24, 4, 32];
        types.extend([at("a"), STRUCT << 24 | 2, 16]);
        types.extend([at("x"), 1, 0, 0, 3, 64]);
        types.extend([0, UNION << 24 | 2, 8]);
        types.extend([at("y"), 1, 0, at("z"), 5, 0]);
        types.extend([at("q"), 8 << 24, 5]);
        types.extend([at("b"), STRUCT << 24 | 2, 8]);
        types.extend([at("p"), 1, 0, at("q"), 1, 32]);
        let len = types.len() as u32 * 4;
        let header = [0x1_eb9f, 24, 0, len, len, strings.len() as u32];
        let words = header.iter().chain(&types).flat_map(|w| w.to_le_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn members_are_found_through_structures_without_a_name() {
        let btf = Btf::read(Bytes::from_vec(section())).expect("a section");
        assert_eq!(btf.offset("a", "x"), Some(0));
        assert_eq!(btf.offset("a", "y"), Some(8));
        assert_eq!(btf.offset("a", "z.q"), Some(12));
        assert_eq!(btf.offset("b", "q"), Some(4));
        assert_eq!(btf.offset("a", "q"), None);
        assert_eq!(btf.offset("int", "q"), None);
    }

    #[test]
    fn damaged_sections_are_none_and_end() {
        let whole = section();
        for len in 0..whole.len() {
            if let Some(btf) = Btf::read(Bytes::from_vec(whole[..len].to_vec())) {
                let _ = btf.offset("a", "z.q");
            }
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[len] ^= 1 << bit;
                if let Some(btf) = Btf::read(Bytes::from_vec(bytes)) {
                    let _ = btf.offset("a", "z.q");
                }
            }
        }
    }
}
