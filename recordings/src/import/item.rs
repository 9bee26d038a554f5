//! What importers hand out: items of our own model, and counts of what was left out.

use super::error::ImportError;
use crate::files::{FileProblem, FinderOptions, ImageFinder};
use crate::kernel;
use crate::model::{ImageIndex, Item};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use unwind_sim_unwind::image::{Image, ImageId};

/// What to import, and from where to take images.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Where images are.
    pub files: FinderOptions,
    /// Most bytes of stack taken from a core, from rsp upwards. perf.data has its own limit.
    pub stack_bytes_max: u64,
    /// The kernel's image, for captures and dumps of a machine.
    pub kernel: Option<PathBuf>,
    /// What belongs to it.
    pub kernel_files: kernel::OpenOptions,
    /// How far the kernel was moved, if that is known.
    pub kaslr: Option<u64>,
    /// Take the kernel's image whatever release or build id a capture names.
    pub force: bool,
    /// Offsets in structs of a dump's kernel, bytes, by `STRUCT.MEMBER`: they go before its BTF.
    pub offsets: BTreeMap<String, u64>,
}

impl Default for ImportOptions {
    /// The files of this machine, and stacks of 16 MiB.
    fn default() -> Self {
        ImportOptions {
            files: FinderOptions::system(),
            stack_bytes_max: 16 << 20,
            kernel: None,
            kernel_files: kernel::OpenOptions::default(),
            kaslr: None,
            force: false,
            offsets: BTreeMap::new(),
        }
    }
}

/// A piece of an import.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "handed on at once, never stored")]
pub enum ImportItem<'a> {
    /// An image, before the first event with its index. Indexes count from 0.
    Image {
        /// Its number from now on.
        index: ImageIndex,
        /// The image.
        image: Arc<Image>,
    },
    /// An event or a sample.
    Item(Item<'a>),
}

/// Takes the items; may end the import.
pub type Sink<'s> = dyn FnMut(ImportItem<'_>) -> ControlFlow<()> + 's;

/// Why a sample or a record was left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Skip {
    /// No process: the idle task, or the hardware did not tell.
    NoProcess,
    /// A kernel thread: there are no user registers.
    KernelThread,
    /// The event does not record user registers.
    NoRegisters,
    /// rip or rsp is not among the registers recorded.
    NoIpOrSp,
    /// A 32-bit program.
    Bits32,
    /// Registers of a mode that this reader does not know.
    UnknownAbi,
    /// A guest of a hypervisor.
    Guest,
    /// The record is damaged.
    Damaged,
    /// Lost by the recorder.
    Lost,
}

impl Skip {
    /// A stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Skip::NoProcess => "no-process",
            Skip::KernelThread => "kernel-thread",
            Skip::NoRegisters => "no-registers",
            Skip::NoIpOrSp => "no-ip-or-sp",
            Skip::Bits32 => "32-bit",
            Skip::UnknownAbi => "unknown-abi",
            Skip::Guest => "guest",
            Skip::Damaged => "damaged",
            Skip::Lost => "lost",
        }
    }

    /// What it means, and what to do.
    pub const fn description(self) -> &'static str {
        match self {
            Skip::NoProcess => "no process: the idle task, or unknown",
            Skip::KernelThread => "a kernel thread has no user stack",
            Skip::NoRegisters => {
                "no user registers were recorded; record with `perf record --call-graph dwarf`"
            }
            Skip::NoIpOrSp => {
                "the instruction or stack pointer was not recorded; add ip and sp to --user-regs"
            }
            Skip::Bits32 => "a 32-bit program; only x86-64 is supported",
            Skip::UnknownAbi => "registers of an unknown mode",
            Skip::Guest => "a guest of a hypervisor",
            Skip::Damaged => "the record is damaged",
            Skip::Lost => "lost by the recorder",
        }
    }
}

/// What an import did.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Images announced.
    pub images: u64,
    /// Events handed out.
    pub events: u64,
    /// Samples handed out.
    pub samples: u64,
    /// Samples without any stack memory among them.
    pub without_stack: u64,
    /// What was left out, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// What was wrong with files: the first thousand.
    pub file_problems: Vec<FileProblem>,
    /// How many things were wrong with files.
    pub file_problem_count: u64,
    /// What was wrong with the recording, but could be done without. If its rest could not be
    /// read, the last of them says why.
    pub problems: Vec<ImportError>,
}

/// What all importers share: the sink, image numbers and counts.
pub(super) struct Output<'o, 's> {
    pub(super) sink: &'o mut Sink<'s>,
    pub(super) finder: &'o mut ImageFinder,
    indexes: HashMap<ImageId, ImageIndex>,
    pub(super) imported: Imported,
}

impl<'o, 's> Output<'o, 's> {
    pub(super) fn new(finder: &'o mut ImageFinder, sink: &'o mut Sink<'s>) -> Self {
        Output {
            sink,
            finder,
            indexes: HashMap::new(),
            imported: Imported::default(),
        }
    }

    pub(super) fn skip(&mut self, why: Skip, count: u64) {
        *self.imported.skipped.entry(why).or_default() += count;
    }

    pub(super) fn item(&mut self, item: Item<'_>) -> ControlFlow<()> {
        match &item {
            Item::Event(_) => self.imported.events += 1,
            Item::Sample(sample) => {
                self.imported.samples += 1;
                if sample.regions.is_empty() {
                    self.imported.without_stack += 1;
                }
            }
        }
        (self.sink)(ImportItem::Item(item))
    }

    /// The number of an image, announcing it at first.
    pub(super) fn index(&mut self, image: Arc<Image>) -> (ImageIndex, ControlFlow<()>) {
        if let Some(&index) = self.indexes.get(&image.id()) {
            return (index, ControlFlow::Continue(()));
        }
        let next = u32::try_from(self.indexes.len()).unwrap_or(u32::MAX);
        let index = ImageIndex(next);
        self.indexes.insert(image.id(), index);
        self.imported.images += 1;
        (index, (self.sink)(ImportItem::Image { index, image }))
    }

    pub(super) fn finish(mut self) -> Imported {
        self.imported.file_problems = self.finder.problems().to_vec();
        self.imported.file_problem_count = self.finder.problem_count();
        self.imported
    }
}
