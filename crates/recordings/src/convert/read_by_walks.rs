//! Which of a process's memory goes into a trace: what walks read, and what lies around it.
//!
//! A core has all memory of its process, a trace what unwinders need. The stack that rsp points into
//! is written anyway; walks that leave it (a signal handler's stack, split stacks, coroutines) say
//! what else is needed. Stacks are read upwards, so what follows is taken, too.

use crate::import::ImportItem;
use crate::model::{Item, Region, RegionRole, Sample};
use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::fp::FramePointer;
use unwind_sim_unwind::image::{AddressSpace, Image};
use unwind_sim_unwind::memory::{MappedMemory, Memory, MemoryError, Regions};
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::sframe::{Profile, Sframe};
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::{Stack, Unwinder, WithFallback};

/// Unit in which memory is taken, bytes.
const PAGE: u64 = 4096;
/// How much memory after the last page that was read is taken, too, bytes. Pages that are nearer to
/// each other become one region.
const MORE_BYTES: u64 = 64 << 10;
/// Maximum number of pages that walks of one sample read outside its regions.
const PAGES_MAX: usize = 1 << 12;
/// Maximum number of regions added to a sample; a trace holds 255 in all.
const REGIONS_MAX: usize = 200;

/// Gives samples whose process memory a trace cannot hold regions with the part that walks read.
pub struct ReadByWalks {
    unwinders: Vec<(Box<dyn Unwinder>, Cache)>,
    images: Vec<Arc<Image>>,
    world: World,
}

impl ReadByWalks {
    /// For the samples of one recording.
    #[expect(clippy::new_without_default, reason = "it is a tool, not a value")]
    pub fn new() -> ReadByWalks {
        let with_fp = WithFallback::new(Box::new(Dwarf::new()), Box::new(FramePointer));
        let unwinders: [Box<dyn Unwinder>; 4] = [
            Box::new(with_fp),
            Box::new(FramePointer),
            Box::new(Sframe::new(Profile::default(), Tables::default())),
            Box::new(Orc::new(None, Tables::default())),
        ];
        ReadByWalks {
            unwinders: unwinders.map(|unwinder| (unwinder, Cache::new())).into(),
            images: Vec::new(),
            world: World::new(),
        }
    }

    /// Follows the mappings. A sample with process memory gets regions for what walks read there.
    pub(super) fn take(&mut self, item: &mut ImportItem<'_>) {
        match item {
            ImportItem::Image { image, .. } => self.images.push(image.clone()),
            ImportItem::Item(Item::Event(event)) => self.world.apply(event, &self.images),
            ImportItem::Item(Item::Sample(sample)) => {
                let space = self.world.shared_space(sample.pid);
                self.complete(sample, &space);
            }
        }
    }

    /// Replaces the process memory of `sample`, whose mappings are `space`, with regions.
    pub fn complete(&mut self, sample: &mut Sample<'_>, space: &AddressSpace) {
        let Some(process) = sample.process_memory.take() else {
            return;
        };
        let mut stacks = Vec::new();
        let pages = self.pages(sample, &process.memory, space, &mut stacks);
        let regions = regions(&process.memory, &pages, &stacks);
        sample.regions.extend(regions);
    }

    /// The pages that walks read outside the sample's regions. `stacks` gets the sp of all frames.
    fn pages(
        &mut self,
        sample: &Sample<'_>,
        process: &MappedMemory,
        space: &AddressSpace,
        stacks: &mut Vec<u64>,
    ) -> BTreeSet<u64> {
        let watched = Watched {
            copies: sample.memory(),
            process,
            pages: RefCell::default(),
        };
        for (unwinder, cache) in &mut self.unwinders {
            let Ok(start) = sample.regs.start(Variant::Hardware, false, &watched) else {
                continue;
            };
            let chain = unwinder.walk(&Stack::new(&start, space, &watched), cache);
            stacks.extend(chain.steps().map(|step| step.sp));
        }
        watched.pages.into_inner()
    }
}

/// Memory that remembers which pages were read outside the copies.
struct Watched<'a> {
    copies: Regions<'a>,
    process: &'a MappedMemory,
    pages: RefCell<BTreeSet<u64>>,
}

impl Memory for Watched<'_> {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let copied = self.copies.read(address, buf);
        if copied.is_ok() || self.process.read(address, buf).is_err() {
            return copied;
        }
        let mut pages = self.pages.borrow_mut();
        let last = address.saturating_add(buf.len() as u64).saturating_sub(1);
        for page in address / PAGE..=last / PAGE {
            if pages.len() < PAGES_MAX {
                pages.insert(page);
            }
        }
        Ok(())
    }
}

/// The regions that hold `pages`, each within one extent of `memory`. One that an sp of `stacks`
/// points into is a stack.
fn regions(memory: &MappedMemory, pages: &BTreeSet<u64>, stacks: &[u64]) -> Vec<Region<'static>> {
    let mut pages = pages.iter().map(|page| page * PAGE).peekable();
    let mut out: Vec<Region<'static>> = Vec::new();
    for bounds in memory.extents() {
        while let Some(first) = pages.next_if(|page| *page < bounds.end) {
            let start = first.max(bounds.start);
            let mut end = first + PAGE;
            while let Some(next) =
                pages.next_if(|page| *page < bounds.end && *page - end <= MORE_BYTES)
            {
                end = next + PAGE;
            }
            if out.len() >= REGIONS_MAX {
                return out;
            }
            let end = end.saturating_add(MORE_BYTES).min(bounds.end);
            out.extend(region(memory, start..end, &bounds, stacks));
        }
    }
    out
}

fn region(
    memory: &MappedMemory,
    range: Range<u64>,
    bounds: &Range<u64>,
    stacks: &[u64],
) -> Option<Region<'static>> {
    let size = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    let bytes = memory.bytes_from(range.start).get(..size)?.to_vec();
    let is_stack = stacks.iter().any(|sp| range.contains(sp));
    Some(Region {
        role: if is_stack {
            RegionRole::OtherStack
        } else {
            RegionRole::Data
        },
        bounds: if is_stack { bounds.clone() } else { 0..0 },
        next_sp: 0,
        address: range.start,
        bytes: bytes.into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::convert::{OpenOptions, into, meta};
    use crate::input_file::InputFile;
    use crate::model::RegionRole;
    use crate::trace::{Trace, TraceWriter};
    use unwind_sim_unwind::memory::Memory as _;

    /// A fault on a stack of the program's own, handled on an alternate signal stack: the walk goes
    /// through both of them to the stack of the process.
    #[test]
    fn a_trace_has_the_stacks_that_walks_of_a_core_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/cores");
        let unpacked = |name: &str| {
            let packed = std::fs::read(folder.join(name)).expect("the corpus");
            zstd::decode_all(&packed[..]).expect("zstd")
        };
        let core = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(core.path(), unpacked("stacks.core.zst")).expect("written");
        let files = tempfile::tempdir().expect("a folder");
        let program = files.path().join("stacks");
        std::fs::write(&program, unpacked("stacks.elf.zst")).expect("written");

        // The core does not have the code, whose rows the walk needs.
        let options = OpenOptions {
            exe: Some(program),
            ..OpenOptions::default()
        };
        let input = InputFile::open(core.path()).expect("a core");
        let meta = meta(&input);
        let mut writer = TraceWriter::new(Vec::new(), &meta).expect("written");
        into(&input, &options, &mut writer).expect("a core");
        let trace = Trace::from_bytes(writer.finish().expect("written")).expect("ours");

        let sample = trace.sample(0).expect("a sample");
        let roles: Vec<_> = sample.regions.iter().map(|region| region.role).collect();
        let other = RegionRole::OtherStack;
        assert_eq!(roles, [RegionRole::Stack, other, other]);
        // The return address into the function that called the one with the own stack.
        assert_eq!(sample.memory().read_u64(0x40_2ff8), Ok(0x40_01cc));
    }
}
