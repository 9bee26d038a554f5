//! Hostile tables: DWARF, SFrame, ORC, and what is derived from them.
//!
//! Besides not panicking, a rule must not depend on earlier lookups, nor on whether the whole table
//! was compiled.

use crate::input::Input;
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::{self, Tables};
use unwind_sim_unwind::dwarf::{self, Dwarf};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};
use unwind_sim_unwind::orc::{self, Encoding, Layout, Orc, SpIndirect};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;
use unwind_sim_unwind::sframe::{self, Profile, Sframe};

/// Maximum number of addresses looked up for one input.
const PCS_MAX: usize = 24;
/// Difference between the image's mapped and own addresses.
pub(crate) const BIAS: u64 = 0x5555_0000_0000;

/// Maps the image over its text.
pub(crate) fn mapping(image: Image) -> Mapping {
    let text = image.text()[0].clone();
    Mapping {
        range: text.start + BIAS..text.end + BIAS,
        bias: BIAS,
        image: Some(Arc::new(image)),
        name: "fuzzed".into(),
    }
}

/// The addresses to look up: some that the table names, and 16 bits each from the rest.
fn pcs(image: &Image, named: impl Iterator<Item = u64>, input: &mut Input<'_>) -> Vec<u64> {
    let start = image.text()[0].start;
    let edges = named.take(PCS_MAX / 4);
    let edges = edges.flat_map(|pc| [pc.wrapping_sub(1), pc, pc.wrapping_add(1)]);
    let mut pcs: Vec<u64> = edges.collect();
    while pcs.len() < PCS_MAX && !input.is_empty() {
        pcs.push(start.wrapping_add(input.u16().into()));
    }
    pcs
}

fn rule(
    finder: &dyn Finder,
    mapping: &Mapping,
    pc: u64,
    cache: &mut Cache,
) -> Result<Rule, Reason> {
    finder.find(mapping, pc, cache).map(|row| *cache.rule(row))
}

/// Rules found in sequence, alone, and a second time must be the same.
fn ask(finder: &dyn Finder, mapping: &Mapping, pcs: &[u64], whole: &mut Cache) {
    let mut cache = Cache::new();
    for &pc in pcs {
        let first = rule(finder, mapping, pc, &mut cache);
        let name = finder.name();
        assert_eq!(
            first,
            rule(finder, mapping, pc, &mut Cache::new()),
            "{name} alone at {pc:#x}"
        );
        assert_eq!(
            first,
            rule(finder, mapping, pc, &mut cache),
            "{name} again at {pc:#x}"
        );
        assert_eq!(
            first,
            rule(finder, mapping, pc, whole),
            "{name}, whole table, at {pc:#x}"
        );
    }
}

/// `.eh_frame`, `.eh_frame_hdr` and `.debug_frame`, and the rows derived from them. The input is an
/// image and addresses.
pub fn eh_frame(data: &[u8]) {
    let mut input = Input::new(data);
    let mapping = mapping(input.image());
    let Some(image) = mapping.image.as_deref() else {
        return;
    };

    let mut whole = Cache::new();
    let mut starts = Vec::new();
    for kind in [TableKind::EhFrame, TableKind::DebugFrame] {
        let units: Vec<_> = dwarf::units(image, kind).collect();
        let compiled = dwarf::compile_all(image, kind, &mut whole);
        // Each FDE is compiled or malformed, or both if it is malformed only after some address.
        let most = compiled.units + compiled.malformed;
        assert!(
            (compiled.units..=most).contains(&units.len()),
            "{compiled:?}"
        );
        assert!(compiled.units > 0 || compiled.rows == 0, "{compiled:?}");
        let units = units.into_iter().flatten();
        starts.extend(units.map(|unit| unit.range.start).take(PCS_MAX));
    }

    derived::derive_all::<sframe::derived::SframeV3>(image, &mut whole);
    derived::derive_all::<orc::derived::OrcEntry>(image, &mut whole);

    let pcs = pcs(image, starts.into_iter(), &mut input);
    ask(&Dwarf::new(), &mapping, &pcs, &mut whole);
    ask(
        &Sframe::new(Profile::Spec, Tables::Derived),
        &mapping,
        &pcs,
        &mut whole,
    );
    ask(&Orc::new(None, Tables::Derived), &mapping, &pcs, &mut whole);
}

/// `.sframe`, under every profile. The input is an image and addresses.
pub fn sframe(data: &[u8]) {
    let mut input = Input::new(data);
    let mapping = mapping(input.image());
    let Some(image) = mapping.image.as_deref() else {
        return;
    };

    let section = image.section(SectionKind::Sframe);
    let table = section.and_then(|s| sframe::Table::parse(&s.data, s.address).ok());
    let starts = table
        .iter()
        .flat_map(|t| t.fdes().flatten().map(|fde| fde.start));

    let pcs = pcs(image, starts, &mut input);

    // The reader itself, before any rule is made from it.
    if let Some(table) = table {
        let order = table.order();
        for fde in table.fdes().flatten().take(PCS_MAX) {
            let rows = table.rows(&fde).flatten().count();

            // An FDE must not give more rows than it says, or a hostile count would cost time and
            // memory.
            assert!(
                rows <= fde.num_fres.max(1) as usize,
                "{rows} rows in {fde:?}"
            );
            sframe::text_rows(&table, &fde).flatten().for_each(drop);
        }

        for &pc in &pcs {
            // A lookup may find nothing, but not another function.
            let found = table.find(pc, order.as_ref());
            assert!(
                !matches!(found, Ok(Some(fde)) if !fde.contains(pc)),
                "{pc:#x}"
            );
        }
    }

    for profile in Profile::ALL {
        let finder = Sframe::new(profile, Tables::RealOrDerived);
        ask(&finder, &mapping, &pcs, &mut Cache::new());
    }
}

/// `.orc_unwind`, `.orc_unwind_ip` and `.orc_header`, in every layout. The input is an image and
/// addresses.
pub fn orc(data: &[u8]) {
    let mut input = Input::new(data);
    let mapping = mapping(input.image());
    let Some(image) = mapping.image.as_deref() else {
        return;
    };

    let section = |kind| image.section(kind);
    let sections = section(SectionKind::OrcUnwind).zip(section(SectionKind::OrcUnwindIp));

    // Both sections are needed: addresses are in one, what they mean in the other.
    let table = sections.and_then(|(e, ip)| orc::Table::new(&e.data, &ip.data, ip.address).ok());
    let starts = table
        .iter()
        .flat_map(|t| (0..t.len()).filter_map(|index| t.ip(index)));

    let pcs = pcs(image, starts, &mut input);
    if let Some(table) = &table {
        let text = &image.text()[0];
        for layout in Layout::ALL {
            // A table that is not sorted is searched by way of an order.
            let order = table.order(layout);
            let sorted = orc::Sorted::new(*table, order.as_deref());
            let blocks = orc::Blocks::new(&sorted, text.start, text.end);

            // The lookup by blocks must find what a search through all entries finds.
            for &pc in pcs.iter().filter(|pc| text.contains(pc)) {
                let found = blocks.as_ref().map(|blocks| blocks.find(&sorted, pc));
                assert_eq!(
                    found,
                    found.map(|_| sorted.find(pc)),
                    "by its block, {pc:#x}"
                );
            }

            // Written and read again, an entry says the same, under both meanings of an indirect
            // sp.
            for entry in (0..table.len()).filter_map(|index| table.entry(index, layout)?.ok()) {
                let again = orc::Entry::decode(entry.encode(layout), layout);
                for meaning in [SpIndirect::LoadAtOffset, SpIndirect::LoadThenAdd] {
                    let rule = again.map(|again| again.rule(meaning));
                    assert_eq!(
                        rule,
                        Ok(entry.rule(meaning)),
                        "written and read as {layout:?}"
                    );
                }
            }
        }
        let _ = orc::detect(image, table);
    }

    // With each layout given, and with none: then it is detected.
    let encodings = Layout::ALL.map(|layout| Some(Encoding::since_5_12(layout)));
    for encoding in encodings.into_iter().chain([None]) {
        let finder = Orc::new(encoding, Tables::RealOrDerived);
        ask(&finder, &mapping, &pcs, &mut Cache::new());
    }
}
