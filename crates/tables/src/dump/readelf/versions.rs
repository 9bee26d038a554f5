//! CIEs of version 4 in `.eh_frame`: GNU as writes them (`--gdwarf-cie-version=4`) and readelf reads them,
//! but LSB has only 1 and 3 there, and so has gimli.

use super::entry::{self, Item};
use std::borrow::Cow;

/// The sizes of an address and of a segment selector, which only version 4 has.
const SIZES: [u8; 2] = [8, 0];

/// The section with its CIEs of version 4 as such of version 3: without the two sizes, and with as many
/// no-operations behind the instructions. All offsets of entries stay as they are.
pub(super) fn as_3(section: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Cow::Borrowed(section);
    let mut offset = 0;
    while let Ok(item) = entry::read(section, offset, true) {
        let Item::Entry(entry) = item else {
            offset += size_of::<u32>();
            continue;
        };

        // In version 4, the two sizes stand behind the augmentation string.
        let version = entry.version_at();
        let after = version + 1 + entry.augmentation(section).len() + 1;
        let is_4 = entry.is_cie && section.get(version) == Some(&4);

        // Only with the sizes of x86-64, 8 and 0, means the entry the same without them.
        let has_sizes = after + SIZES.len() <= entry.end
            && section
                .get(after..)
                .is_some_and(|rest| rest.starts_with(&SIZES));

        // The section is copied only if there is something to change.
        if is_4 && has_sizes {
            let out = out.to_mut();
            out[version] = 3;
            // What follows moves up; the bytes left at the end become `DW_CFA_nop`, which is 0.
            out.copy_within(after + SIZES.len()..entry.end, after);
            out[entry.end - SIZES.len()..entry.end].fill(0);
        }

        offset = entry.end;
    }
    out
}
