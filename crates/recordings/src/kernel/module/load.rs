//! The load addresses of a module's sections.

use super::Header;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{SectionHeader as _, SectionTable};
use std::collections::BTreeMap;

/// Maximum number of sections of a module.
const SECTIONS_MAX: usize = 65_536;

/// Where a module was loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModuleLoad {
    /// The address of its `.text`. Other code follows in file order, as laid out by the kernel's
    /// loader (`layout_sections`, Linux `kernel/module/main.c`).
    Text(u64),
    /// The address of each section, as in `/sys/module/NAME/sections`. Sections not listed are not
    /// loaded.
    Sections(BTreeMap<String, u64>),
}

/// The address of each section of code that stays loaded.
pub(super) fn addresses(table: &SectionTable<'_, Header>, load: &ModuleLoad) -> Vec<Option<u64>> {
    let sections = || table.iter().take(SECTIONS_MAX);
    let stays = |s: &elf::SectionHeader64<LE>| {
        let name = table.section_name(LE, s).unwrap_or_default();
        let wanted = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        let is_code = s.sh_flags(LE).0 & wanted == wanted && s.sh_size(LE) != 0;
        // The kernel frees this code once the module is initialized.
        (is_code && !name.starts_with(b".init")).then_some(name)
    };

    match load {
        ModuleLoad::Sections(given) => sections()
            .map(|s| {
                let name = std::str::from_utf8(stays(s)?).ok()?;
                given.get(name).copied()
            })
            .collect(),
        ModuleLoad::Text(text) => {
            // `layout_sections` (`kernel/module/main.c`) puts them one behind the other, aligned.
            let mut end = 0_u64;
            let mut text_at = None;
            let mut offset = |s| {
                let name = stays(s)?;
                // 0 means that there is no alignment (gABI, "Section Header").
                let align = s.sh_addralign(LE).clamp(1, 1 << 21);
                let start = end.checked_next_multiple_of(align)?;
                end = start.checked_add(s.sh_size(LE))?;
                if name == b".text" {
                    text_at.get_or_insert(start);
                }
                Some(start)
            };

            let offsets: Vec<_> = sections().map(&mut offset).collect();
            // If .text is empty, the code that follows it starts at its address.
            let base = text.wrapping_sub(text_at.unwrap_or(0));
            let at = |offset: Option<u64>| base.checked_add(offset?);
            offsets.into_iter().map(at).collect()
        }
    }
}
