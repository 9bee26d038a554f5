//! Locates the kernel in a dump: its page tables, and its KASLR offset.
//!
//! A guess is verified by the kernel's banner, which must be at the address stated by the image.

use super::dump::Dump;
use super::error::Problem;
use super::pages::{KernelMemory, Virtual};
use super::symbols::Symbols;
use crate::kernel::{PTI_USER, PageTables};

/// `__START_KERNEL_map`: the kernel's text is in the GiB from here, at multiples of 2 MiB.
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
const KERNEL_MAP_LEN: u64 = 1 << 30;
const STEP: u64 = 2 << 20;
/// The address in cr3. Bits 0 to 11 are flags, or a PCID.
const CR3_FRAME: u64 = 0x000f_ffff_ffff_f000;
const BANNER: &str = "Linux version ";
const BANNER_LEN_MAX: usize = 256;

/// A kernel found in a dump.
pub(super) struct DumpedKernel<'d, 'm> {
    pub(super) memory: Virtual<'d, 'm>,
    /// Addresses in the dump minus addresses in the image.
    pub(super) bias: u64,
}

/// Finds the kernel with the release `release`.
pub(super) fn find<'d, 'm>(
    dump: &'d Dump<'m>,
    symbols: &Symbols,
    release: Option<&str>,
    told: Option<u64>,
) -> Result<DumpedKernel<'d, 'm>, Problem> {
    let banner = symbols.needed("linux_banner")?;
    let mut other = None;
    // The kernel writes its own offset into VMCOREINFO.
    let told = told.or_else(|| dump.info_hex("KERNELOFFSET"));

    let mut attempt = |tables| {
        let memory = Virtual::new(dump, tables);
        let start = symbols.get("_text").unwrap_or(KERNEL_MAP) & !(STEP - 1);
        // KASLR moves the kernel by multiples of 2 MiB within this GiB.
        let offsets = (KERNEL_MAP..KERNEL_MAP + KERNEL_MAP_LEN)
            .step_by(STEP as usize)
            .map(|at| at.wrapping_sub(start));

        let is_it = |bias: &u64| {
            let found = memory.text(banner.wrapping_add(*bias), BANNER_LEN_MAX);
            match is_of(&found, release) {
                Some(true) => true,
                Some(false) => {
                    // Not the place, but it says best why nothing was found.
                    other.get_or_insert(found);
                    false
                }
                None => false,
            }
        };

        let bias = match told {
            Some(bias) => Some(bias).filter(is_it),
            // Every place that KASLR may choose.
            None => offsets.into_iter().find(is_it),
        };
        bias.map(|bias| DumpedKernel { memory, bias })
    };

    if let Some(place) = candidates(dump, symbols).find_map(&mut attempt) {
        return Ok(place);
    }

    // Only if the notes do not help: this goes through the whole dump.
    let searched = by_search(dump, symbols, banner, release);
    if let Some(place) = searched.into_iter().find_map(&mut attempt) {
        return Ok(place);
    }

    let named = dump.info("OSRELEASE").map(str::to_owned);
    // If the note names the right release, that is not why nothing was found.
    let named = named.filter(|named| release != Some(named));
    match other.or(named) {
        Some(other) => Err(Problem::OtherKernel {
            dump: release_of(&other).to_owned(),
            image: release.unwrap_or("another release").to_owned(),
        }),
        None => Err(Problem::NoPageTable),
    }
}

/// Is this text a kernel's banner, and if so, of this release?
fn is_of(text: &str, release: Option<&str>) -> Option<bool> {
    let found = text.strip_prefix(BANNER).map(|_| release_of(text))?;
    Some(release.is_none_or(|release| release == found))
}

fn release_of(banner: &str) -> &str {
    let rest = banner.strip_prefix(BANNER).unwrap_or(banner);
    rest.split([' ', '\n']).next().unwrap_or(rest)
}

/// The page tables that the notes give.
fn candidates(dump: &Dump<'_>, symbols: &Symbols) -> impl Iterator<Item = PageTables> {
    let systems = dump.cpus.iter().filter_map(|c| c.system);
    let by_cr3 = systems.flat_map(|s| {
        let levels = if s.five_levels { 5 } else { 4 };
        let root = s.cr3 & CR3_FRAME;
        [root & !PTI_USER, root].map(|root| PageTables { root, levels })
    });
    let root = || {
        let offset = dump.info_hex("KERNELOFFSET").unwrap_or(0);
        let table = dump.info_hex("SYMBOL(swapper_pg_dir)");
        let table = table.or_else(|| Some(symbols.get("init_top_pgt")?.wrapping_add(offset)))?;
        let base = dump.info_number("NUMBER(phys_base)")?;
        Some(table.wrapping_sub(KERNEL_MAP).wrapping_add(base))
    };
    by_cr3.chain(root().into_iter().flat_map(both))
}

/// The number of levels is unknown: returns both.
fn both(root: u64) -> [PageTables; 2] {
    [4, 5].map(|levels| PageTables { root, levels })
}

/// The page tables, derived from the banner's physical address: the kernel is physically
/// contiguous.
fn by_search(
    dump: &Dump<'_>,
    symbols: &Symbols,
    banner: u64,
    release: Option<&str>,
) -> Vec<PageTables> {
    /// Maximum number of banner copies tried: there are some in the log and in files.
    const COPIES_MAX: usize = 64;
    let Some(table) = symbols.get("init_top_pgt") else {
        return Vec::new();
    };
    let found = dump.pieces().flat_map(|(physical, data)| {
        let places = memchr::memmem::find_iter(data, BANNER.as_bytes());
        places.filter_map(move |at| {
            let text = &data[at..data.len().min(at + BANNER_LEN_MAX)];
            let text = text.utf8_chunks().next()?.valid();
            let is_it = is_of(text, release)?;
            is_it.then_some(physical + at as u64)
        })
    });
    let roots = found.map(|at| at.wrapping_add(table.wrapping_sub(banner)));
    let roots = roots.filter(|root| root % 4096 == 0);
    roots.take(COPIES_MAX).flat_map(both).collect()
}
