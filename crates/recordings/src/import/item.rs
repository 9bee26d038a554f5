//! The output of importers: items, and counts of what was skipped.

use super::error::ImportError;
use crate::files::{FileProblem, FinderOptions, ImageFinder};
use crate::input_file::InputFile;
use crate::kernel;
use crate::model::{ImageIndex, Item};
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use unwind_sim_unwind::image::{Image, ImageId};

/// Default of [`ImportOptions::stack_bytes_max`], and the most of one stack that is read as a region.
pub(crate) const STACK_BYTES_MAX: u64 = 16 << 20;

/// What to import, and where to find images.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Where to find images.
    pub files: FinderOptions,
    /// The program that wrote a core, if its file is not at the path that the core names.
    pub exe: Option<PathBuf>,
    /// Maximum bytes of stack taken from a core, from rsp upwards. perf.data has its own limit.
    pub stack_bytes_max: u64,
    /// The kernel image, for captures and dumps of a machine.
    pub kernel: Option<InputFile>,
    /// Options for opening the kernel image.
    pub kernel_files: kernel::OpenOptions,
    /// KASLR offset, if known.
    pub kaslr: Option<u64>,
    /// Use the kernel image even if a capture names another release or build ID.
    pub force: bool,
    /// Struct member offsets in a dump's kernel, bytes, by `STRUCT.MEMBER`. They take precedence
    /// over BTF.
    pub offsets: BTreeMap<String, u64>,
}

impl Default for ImportOptions {
    /// Finds files on this machine and takes stacks of up to 16 MiB.
    fn default() -> Self {
        ImportOptions {
            files: FinderOptions::system(),
            exe: None,
            stack_bytes_max: STACK_BYTES_MAX,
            kernel: None,
            kernel_files: kernel::OpenOptions::default(),
            kaslr: None,
            force: false,
            offsets: BTreeMap::new(),
        }
    }
}

/// An element of an import.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "passed on at once, never stored")]
pub enum ImportItem<'a> {
    /// An image, before the first event with its index. Indices start at 0.
    Image {
        /// The image's index from now on.
        index: ImageIndex,
        /// The image.
        image: Arc<Image>,
    },
    /// An event or a sample.
    Item(Item<'a>),
}

/// Receives the items; may stop the import.
pub type Sink<'s> = dyn FnMut(ImportItem<'_>) -> ControlFlow<()> + 's;

/// Why a sample or a record was skipped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Skip {
    /// No process: the idle task, or unknown to the hardware.
    NoProcess,
    /// A kernel thread, which has no user registers.
    KernelThread,
    /// The event does not record user registers.
    NoRegisters,
    /// rip or rsp was not recorded.
    NoIpOrSp,
    /// A 32-bit program.
    Bits32,
    /// Registers of an unknown ABI.
    UnknownAbi,
    /// A guest of a hypervisor.
    Guest,
    /// The record is damaged.
    Damaged,
    /// The recorder lost it.
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

    /// The meaning, and what to do about it.
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
            Skip::UnknownAbi => "the registers have an unknown ABI",
            Skip::Guest => "sampled in a hypervisor's guest",
            Skip::Damaged => "the record is damaged",
            Skip::Lost => "lost by the recorder",
        }
    }
}

/// Result of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Number of images yielded.
    pub images: u64,
    /// Number of events yielded.
    pub events: u64,
    /// Number of samples yielded.
    pub samples: u64,
    /// Number of these samples without stack memory.
    pub without_stack: u64,
    /// Number of skipped samples and records, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Problems with files, at most 1000.
    pub file_problems: Vec<FileProblem>,
    /// Total number of problems with files.
    pub file_problem_count: u64,
    /// Mappings of files that a core lists without describing them: whether they were executable is
    /// not known, and the files are not available.
    pub without_segment: Vec<Range<u64>>,
    /// Non-fatal problems with the recording. If its rest could not be read, the last one says why.
    pub problems: Vec<ImportError>,
}

/// State shared by all importers: the sink, image indices and counts.
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

    /// The index of an image. Yields the image if it is new.
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
