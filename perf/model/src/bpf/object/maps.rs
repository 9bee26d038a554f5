//! The maps that an object defines, and the sections of global data, which are maps as well.

use super::super::error::{ObjectError, ObjectErrorKind as Kind};
use super::{Elf, MAPS_MAX, MapDef, Maps, Meaning, Section, Symbol, Types, at_most, word};
use crate::bpf::maps::kind;
use unwind_sim_perf_data::btf::{BtfErrorKind, Type};

/// The smallest definition in `maps`, bytes: type, key, value, entries.
const LEGACY_SIZE_MIN: u64 = 16;
/// `BPF_F_RDONLY_PROG`: programs cannot write it.
const RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// A definition that lists maps.
struct MapOfMaps {
    /// Its range in its section, and the start of its list.
    range: std::ops::Range<u64>,
    start: u64,
    map: usize,
}

impl Maps {
    pub(super) fn collect(elf: &Elf<'_>, types: Option<&Types<'_>>) -> Result<Self, ObjectError> {
        let mut maps = Self {
            definitions: Vec::new(),
            places: Vec::new(),
            data: Vec::new(),
        };
        for section in &elf.sections {
            match section.name {
                "maps" | ".maps" => maps.add_defined(elf, types, section)?,
                name if is_data(name) && section.size != 0 => maps.add_data(section)?,
                _ => {}
            }
            at_most(
                maps.definitions.len(),
                MAPS_MAX,
                section.offset,
                section.name,
            )?;
        }
        Ok(maps)
    }

    fn add_defined(
        &mut self,
        elf: &Elf<'_>,
        types: Option<&Types<'_>>,
        section: &Section<'_>,
    ) -> Result<(), ObjectError> {
        let mut symbols: Vec<&Symbol<'_>> = elf
            .symbols
            .iter()
            .filter(|symbol| symbol.section == section.index && symbol.is_object)
            .collect();
        // In order, because an old definition may end where the next one starts.
        symbols.sort_by_key(|symbol| symbol.value);
        at_most(symbols.len(), MAPS_MAX, section.offset, section.name)?;

        // Only the new form needs types; an object without BTF can have the old one.
        let variables = match types {
            Some(types) if section.name == ".maps" => {
                let found = types.btf.variables(".maps");
                found.map_err(|error| types.at(error))?
            }
            _ => Vec::new(),
        };

        let mut listed = Vec::new();
        for (index, symbol) in symbols.iter().enumerate() {
            let offset = section.offset.saturating_add(symbol.value);
            let malformed = || {
                let kind = Kind::MapDefinition(symbol.name.to_owned());
                ObjectError::new(kind, offset, section.name)
            };

            // The section's name tells the form of its definitions.
            let (definition, values) = if section.name == "maps" {
                let next = symbols.get(index + 1).map(|next| next.value);
                let end = next.unwrap_or(section.size).min(section.size);
                (legacy(section, symbol, end)?.ok_or_else(malformed)?, None)
            } else {
                let found = variables.iter().find(|(name, _)| *name == symbol.name);
                let (types, (_, found)) = types.zip(found).ok_or_else(malformed)?;
                by_types(types, symbol.name, found)?
            };

            // The number of the map is its place in the list of definitions.
            let place = (section.index, symbol.value, self.definitions.len());
            if let Some(offset) = values {
                let range = symbol.value..symbol.value.saturating_add(symbol.size);
                let start = symbol.value.saturating_add(offset);
                let map = self.definitions.len();
                listed.push(MapOfMaps { range, start, map });
            }

            self.places.push(place);
            self.definitions.push(definition);
        }

        self.add_inner(elf, section, &listed)
    }

    /// Relocations of definitions say which maps are in maps of maps at first.
    fn add_inner(
        &mut self,
        elf: &Elf<'_>,
        section: &Section<'_>,
        listed: &[MapOfMaps],
    ) -> Result<(), ObjectError> {
        let of_section = elf
            .relocations
            .iter()
            .filter(|r| r.section == section.index);

        for relocation in of_section {
            let at = relocation.insn.saturating_mul(8);
            let error = |kind| ObjectError::new(kind, relocation.offset, section.name);

            // A list has pointers: its slots are 8 bytes apart.
            let list = listed.iter().find(|list| list.range.contains(&at));
            let slot = list.and_then(|list| at.checked_sub(list.start));
            let slot = slot.and_then(|bytes| u32::try_from(bytes / 8).ok());
            let (Some(list), Some(slot)) = (list, slot) else {
                return Err(error(Kind::RelocationTarget));
            };

            // A slot can only have a map of the same object.
            let symbol = elf.symbol_of(relocation)?;
            let Some(Meaning::Map(inner)) = self.meaning(symbol) else {
                return Err(error(Kind::ReferTo(symbol.name.to_owned())));
            };
            self.definitions[list.map].inner.push((slot, inner));
        }

        Ok(())
    }

    fn add_data(&mut self, section: &Section<'_>) -> Result<(), ObjectError> {
        let value_size = u32::try_from(section.size).map_err(|_| {
            let kind = Kind::MapDefinition(section.name.to_owned());
            ObjectError::new(kind, section.offset, section.name)
        })?;
        let is_constant = section.name.starts_with(".rodata");
        self.data.push((section.index, self.definitions.len()));
        self.definitions.push(MapDef {
            name: section.name.to_owned(),
            kind: kind::ARRAY,
            key_size: 4,
            value_size,
            max_entries: 1,
            flags: MMAPABLE | if is_constant { RDONLY_PROG } else { 0 },
            initial: section.bytes.to_vec(),
            inner: Vec::new(),
        });
        Ok(())
    }

    /// The meaning of a symbol.
    pub(super) fn meaning(&self, symbol: &Symbol<'_>) -> Option<Meaning> {
        let defined = self
            .places
            .iter()
            .find(|(section, value, _)| (*section, *value) == (symbol.section, symbol.value));
        if let Some((_, _, map)) = defined {
            return Some(Meaning::Map(*map));
        }
        let data = self
            .data
            .iter()
            .find(|(section, _)| *section == symbol.section);
        data.map(|(_, map)| Meaning::Value(*map))
    }
}

/// Whether a section of that name holds global data.
fn is_data(name: &str) -> bool {
    [".data", ".rodata", ".bss"].iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A definition as a structure of words; `None` if it is malformed.
fn legacy(
    section: &Section<'_>,
    symbol: &Symbol<'_>,
    end: u64,
) -> Result<Option<MapDef>, ObjectError> {
    // A symbol without a size ends where the next one starts.
    let size = match symbol.size {
        0 => end.saturating_sub(symbol.value),
        size => size,
    };
    if size < LEGACY_SIZE_MIN {
        return Ok(None);
    }

    let at = |index: u64| word(section, symbol.value.saturating_add(4 * index));
    let words = (size / 4).min(section.size / 4);

    // The flags are the fifth word, which may be missing.
    let flags = if words > 4 { at(4)? } else { 0 };
    for index in 5..words {
        // Inner maps and pinning, which are not supported.
        if at(index)? != 0 {
            return Ok(None);
        }
    }

    Ok(Some(MapDef {
        name: symbol.name.to_owned(),
        kind: at(0)?,
        key_size: at(1)?,
        value_size: at(2)?,
        max_entries: at(3)?,
        flags,
        initial: Vec::new(),
        inner: Vec::new(),
    }))
}

/// A definition as a structure whose members' types encode the numbers, with the offset of the list
/// of the maps that are in it at first.
fn by_types(
    types: &Types<'_>,
    name: &str,
    found: &Type,
) -> Result<(MapDef, Option<u64>), ObjectError> {
    let mut definition = MapDef {
        name: name.to_owned(),
        kind: 0,
        key_size: 0,
        value_size: 0,
        max_entries: 0,
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    };
    let mut values = None;

    // Numbers are encoded as the length of an array that the member points to (`__uint` in libbpf's
    // `bpf_helpers.h`).
    let len = |id| types.btf.pointed_len(id).map_err(|error| types.at(error));
    let size = |id| {
        let found = types
            .btf
            .pointed_size(id)
            .map_err(|error| types.at(error))?;
        u32::try_from(found).map_err(|_| types.error(Kind::Btf(BtfErrorKind::Type(id)), 0))
    };

    for member in types.btf.members(found) {
        let id = member.type_id;
        match member.name {
            "type" => definition.kind = len(id)?,
            "key_size" => definition.key_size = len(id)?,
            "value_size" => definition.value_size = len(id)?,
            "max_entries" => definition.max_entries = len(id)?,
            "map_flags" => definition.flags = len(id)?,
            "key" => definition.key_size = size(id)?,
            "value" => definition.value_size = size(id)?,
            // Where a map is pinned, and on which node it lies, changes nothing here.
            "pinning" | "numa_node" => {}
            "values" => values = Some(member),
            other => {
                let kind = Kind::MapMember(other.to_owned());
                return Err(types.error(kind, member.at));
            }
        }
    }

    // Without a list there are no inner maps at first.
    let Some(values) = values else {
        return Ok((definition, None));
    };

    if !kind::is_of_maps(definition.kind) {
        return Err(types.error(Kind::MapMember("values".to_owned()), values.at));
    }

    // What is in a slot has the size of a descriptor, whatever the object says.
    definition.value_size = 4;
    Ok((definition, Some(u64::from(values.bits / 8))))
}
