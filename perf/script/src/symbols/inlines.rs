//! The inlined functions at an address of a file, from `.debug_info`.

use super::elf::Parts;
use super::helper::Helper;
use super::lines::section;
use addr2line::Context;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::Endianness;
use object::read::elf::FileHeader;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of functions shown for an address. No compiler inlines as deeply.
const FUNCTIONS_MAX: usize = 64;
/// Maximum number of addresses whose functions are kept; beyond it, all are looked up again.
const ADDRESSES_MAX: usize = 1 << 20;

type Reader = EndianArcSlice<LittleEndian>;

/// The inlined functions of a file.
pub(super) struct Inlines {
    /// `None` if the file has no debug information, or if it cannot be read.
    context: Option<Context<Reader>>,
    /// Code of the mapped file ([`Parts::code`]).
    code: Vec<(Range<u64>, u64)>,
    known: HashMap<u64, Vec<Vec<u8>>>,
    helper: &'static dyn Helper,
}

impl Inlines {
    /// The functions of the file `mapped`, as far as `parts` describes them.
    pub(super) fn load<E: FileHeader<Endian = Endianness>>(
        parts: Option<&Parts<'_, E>>,
        mapped: &Parts<'_, E>,
        helper: &'static dyn Helper,
    ) -> Self {
        Self {
            context: parts.and_then(|parts| context(parts, helper)),
            code: mapped.code(),
            known: HashMap::new(),
            helper,
        }
    }

    /// The functions at an offset in the mapped file, demangled: the innermost first, and the one
    /// that the others were inlined into last. Empty if that is not known.
    pub(super) fn at(&mut self, offset: u64) -> &[Vec<u8>] {
        if self.known.len() >= ADDRESSES_MAX {
            self.known.clear();
        }
        if !self.known.contains_key(&offset) {
            let found = self.look(offset).unwrap_or_default();
            self.known.insert(offset, found);
        }
        self.known.get(&offset).map_or(&[], Vec::as_slice)
    }

    fn look(&self, offset: u64) -> Option<Vec<Vec<u8>>> {
        let place = self.code.iter().find(|(at, _)| at.contains(&offset));
        let address = place.map_or(offset, |(_, bias)| offset.wrapping_add(*bias));
        let context = self.context.as_ref()?;
        let mut frames = context.find_frames(address).skip_all_loads().ok()?;
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            if names.len() >= FUNCTIONS_MAX {
                return None;
            }
            // Without the name of one the others would be in the wrong place.
            let name = frame.function?;
            let name = self.helper.demangle(&name.raw_name().ok()?);
            names.push(name.into_bytes());
        }
        Some(names)
    }
}

/// What is needed of the debug information of a file.
fn context<E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'_, E>,
    helper: &'static dyn Helper,
) -> Option<Context<Reader>> {
    parts.section(b".debug_info")?;
    let load = |id: SectionId| -> Result<Reader, gimli::Error> {
        let bytes: Arc<[u8]> = section(parts, id.name().as_bytes(), helper)
            .unwrap_or_default()
            .into();
        Ok(Reader::new(bytes, LittleEndian))
    };
    Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}
