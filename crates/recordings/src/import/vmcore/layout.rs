//! Offsets of members in the kernel's structs: from the image's BTF, or specified by the user.

use super::error::Problem;
use crate::kernel::Btf;
use std::collections::BTreeMap;

/// Offsets of struct members.
pub(super) struct Layout<'a> {
    btf: Option<&'a Btf>,
    told: &'a BTreeMap<String, u64>,
}

impl<'a> Layout<'a> {
    /// Uses the types of an image; `told` has offsets by `STRUCT.MEMBER`.
    pub(super) fn new(btf: Option<&'a Btf>, told: &'a BTreeMap<String, u64>) -> Self {
        Layout { btf, told }
    }

    /// The offset of `member` in the struct `of`, bytes.
    pub(super) fn find(&self, of: &str, member: &str) -> Option<u64> {
        let told = self.told.get(&format!("{of}.{member}")).copied();
        told.or_else(|| self.btf?.offset(of, member))
    }

    /// Offset and size of `member` in the struct `of`, bytes.
    pub(super) fn extent(&self, of: &str, member: &str) -> Option<(u64, u64)> {
        self.btf?.extent(of, member)
    }

    /// The size of the struct `of`, bytes.
    pub(super) fn size_of(&self, of: &str) -> Option<u64> {
        self.btf?.size_of(of)
    }

    /// [`Layout::find`] for a required member.
    pub(super) fn needed(&self, of: &'static str, member: &'static str) -> Result<u64, Problem> {
        self.find(of, member).ok_or(match self.btf {
            Some(_) => Problem::NoMember { of, member },
            None => Problem::NoBtf { of, member },
        })
    }
}
