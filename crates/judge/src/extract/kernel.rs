//! Reduces a kernel's image to what the walks of some samples use: ORC rows, if it has any, symbols, and
//! the code around the frames, if it has any.

use crate::engine::Engine;
use crate::run::RunError;
use crate::scrub::file_name;
use crate::spec;
use crate::unwinders;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unwind_sim_recordings::model::Sample;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::{
    AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind,
};
use unwind_sim_unwind::kernel::{KNOWN_SYMBOLS, State};
use unwind_sim_unwind::orc::Index;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Stack;

/// The lowest kernel address.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Code that is kept before and behind an address, bytes, and the size of a line of it.
const CODE_BEFORE: u64 = 16;
const CODE_BEHIND: u64 = 32;
const CODE_LINE: u64 = 16;

/// Replaces the images of kernel samples that have ORC tables or are at kernel addresses with
/// smaller ones.
///
/// # Errors
/// None in practice, since the names of the unwinders are fixed.
pub(super) fn reduce(samples: &mut [(Sample<'static>, Vec<Mapping>)]) -> Result<(), RunError> {
    let mut used = BTreeSet::new();
    let names: Vec<String> = unwinders::KERNEL.iter().map(|s| (*s).to_owned()).collect();
    let engines = spec::engines(&names)?.into_iter();
    let mut engines: Vec<(Engine, Cache)> = engines.map(|e| (e, Cache::new())).collect();

    let (mut space, mut last): (_, &[Mapping]) = (AddressSpace::new(), &[]);
    for (sample, mappings) in samples.iter() {
        // Most samples have the mappings of the one before, whose address space is then used again.
        if !super::samples::same_mappings(last, mappings) {
            (space, last) = (AddressSpace::new(), mappings);
            for mapping in mappings {
                space.map(mapping.clone());
            }
        }
        addresses(sample, &space, &mut engines, &mut used);
    }

    // Samples of one recording share the images, so each is made smaller once.
    let mut smaller: BTreeMap<_, Arc<Image>> = BTreeMap::new();
    for (sample, mappings) in samples {
        let Some(kernel) = &sample.kernel else {
            continue;
        };
        for mapping in mappings {
            let Some(image) = &mapping.image else {
                continue;
            };

            let small = smaller.entry(image.id()).or_insert_with(|| {
                let index = Index::new(image, kernel.task.encoding).ok().flatten();
                let svmas: BTreeSet<u64> = used
                    .iter()
                    .filter(|a| mapping.range.contains(a))
                    .map(|a| mapping.svma(*a))
                    .collect();

                let sections = index.and_then(|index| rows(image, &index, &svmas));
                // A kernel with another unwinder has no rows.
                let is_kernel = mapping.range.start >= KERNEL;
                match sections.or(is_kernel.then(Vec::new)) {
                    Some(sections) => Arc::new(smaller_image(image, sections, &svmas)),
                    None => image.clone(),
                }
            });

            mapping.image = Some(small.clone());

            // The folder may say whose machine it was.
            mapping.name = file_name(&mapping.name).to_owned();
        }
    }

    Ok(())
}

/// The code addresses that walks of a sample reach.
fn addresses(
    sample: &Sample<'_>,
    space: &AddressSpace,
    engines: &mut [(Engine, Cache)],
    used: &mut BTreeSet<u64>,
) {
    let Some(kernel) = &sample.kernel else {
        return;
    };

    let memory = sample.memory();

    // Each unwinder and each start may need other rows.
    for (engine, cache) in engines {
        for variant in Variant::ALL {
            let Ok(start) = sample.regs.start(variant, false, &memory) else {
                continue;
            };

            let mut stack = Stack::new(&start, space, &memory);
            stack.task = Some(&kernel.task);

            let chain = engine.walk(&stack, cache);
            used.extend(chain.frames.iter().map(|f| f.pc.value()));
            used.extend(start.regs.get(unwind_sim_unwind::regs::Reg::Rip));
            // Rows are looked up at the addresses of states, too.
            for event in &chain.events {
                if let unwind_sim_unwind::event::Event::State(State::Orc(state)) = event {
                    used.insert(state.ip);
                }
            }
        }
    }

    // The cause of a wrong walk is looked for in the rows of true frames, which no walk may have
    // found.
    used.extend(sample.truth.frames().iter().map(|f| f.pc));
    used.extend(kernel.states.iter().filter_map(|s| match s {
        State::Orc(s) => Some(s.ip),
        State::Fp(s) => Some(s.ip),
        State::Guess(_) => None,
    }));
}

/// The rows of these addresses and of the addresses before them, each with the row that ends it.
fn rows(image: &Image, index: &Index, svmas: &BTreeSet<u64>) -> Option<Vec<Section>> {
    let table = index.table().ok()?;

    // `arch/x86/kernel/unwind_orc.c`: a return address is looked up by the byte before it.
    let looked_up = svmas.iter().flat_map(|a| [a.wrapping_sub(1), *a]);
    let positions: BTreeSet<usize> = looked_up
        .filter(|a| index.text().contains(a))
        .filter_map(|a| table.find(a))
        // An ORC row has no length: it ends where the next one starts.
        .flat_map(|at| [at, at + 1])
        .collect();

    let ips_at = image.section(SectionKind::OrcUnwindIp)?.address;
    let (mut ips, mut entries) = (Vec::new(), Vec::new());

    for position in positions {
        let (Some(stored), Some(ip)) = (table.stored(position), table.ip(position)) else {
            continue;
        };

        // `orc_ip()` in that file: an entry of `.orc_unwind_ip` is relative to its own address.
        let slot = ips_at.wrapping_add(ips.len() as u64);
        ips.extend((ip.wrapping_sub(slot) as i32).to_le_bytes());
        entries.extend(table.table().bytes(stored)?);
    }

    let section = |kind, address, bytes| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    };

    let mut sections = vec![
        section(SectionKind::OrcUnwind, 0, entries),
        section(SectionKind::OrcUnwindIp, ips_at, ips),
    ];

    sections.extend(image.section(SectionKind::OrcHeader).cloned());
    Some(sections)
}

/// The code around these addresses, in whole lines.
fn code(image: &Image, svmas: &BTreeSet<u64>) -> Vec<Section> {
    let around = svmas
        .iter()
        .flat_map(|a| [a.wrapping_sub(CODE_BEFORE), *a, a + CODE_BEHIND]);
    let lines: BTreeSet<u64> = around.map(|a| a / CODE_LINE * CODE_LINE).collect();
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for line in lines {
        let bytes = image.text_bytes(line, CODE_LINE as usize);
        match pieces.last_mut() {
            // Lines that follow each other become one section.
            Some((start, piece)) if *start + piece.len() as u64 == line => piece.extend(bytes),
            _ if bytes.is_empty() => {}
            _ => pieces.push((line, bytes.to_vec())),
        }
    }
    let section = |(address, bytes)| Section {
        kind: SectionKind::Text,
        address,
        data: Bytes::from_vec(bytes),
    };
    pieces.into_iter().map(section).collect()
}

/// The image with only these sections, and the symbols and code of these addresses.
fn smaller_image(image: &Image, mut sections: Vec<Section>, svmas: &BTreeSet<u64>) -> Image {
    sections.extend(code(image, svmas));
    let named = |name: &str| KNOWN_SYMBOLS.contains(&name);
    let mut symbols: Vec<_> = image.symbols().to_vec();
    let of_code: BTreeSet<(u64, String)> = svmas
        .iter()
        .flat_map(|a| [image.symbol(a.wrapping_sub(1)), image.symbol(*a)])
        .flatten()
        .map(|s| (s.address, s.name.clone()))
        .collect();
    symbols.retain(|s| named(&s.name) || of_code.contains(&(s.address, s.name.clone())));
    Image::new(ImageParts {
        name: file_name(image.name()).to_owned(),
        build_id: image.build_id().to_vec(),
        text: image.text().to_vec(),
        sections,
        symbols,
    })
}
