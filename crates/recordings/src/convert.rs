//! Converts imports to traces: reads a perf.data or core once, as a stream, and writes a temporary
//! or named trace.

use crate::case_limits::CaseLimits;
use crate::file_kind::{FileKind, WrongKind};
use crate::import::{self as corpus, ImportItem, ImportOptions, Imported};
use crate::input_file::InputFile;
use crate::leftovers::TemporaryFile;
use crate::model::{Event, ImageIndex, Item};
use crate::trace::{self, Meta, OutputOptions, Trace, TraceError, TraceWriter, WriteError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use unwind_sim_unwind::image::Image;

mod read_by_walks;

pub use read_by_walks::ReadByWalks;

/// Where an import finds its images.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Folder in which paths are looked up first. What is not there is taken from its original
    /// path if the build ID is the recorded one.
    pub symfs: Option<PathBuf>,
    /// The program that wrote a core, if its file is not at the path that the core names.
    pub exe: Option<PathBuf>,
    /// The kernel image, for captures and dumps of a machine.
    pub kernel: Option<InputFile>,
    /// Options for opening the kernel image.
    pub kernel_files: crate::kernel::OpenOptions,
    /// KASLR offset, if known.
    pub kaslr: Option<u64>,
    /// Use the image even if a capture names another release or build id.
    pub force: bool,
    /// Of a perf.data, also take samples that have a user callchain but no registers.
    pub chains: bool,
    /// Report files without recorded build ID that were changed later than the recording; of cores, they
    /// always are.
    pub check_age: bool,
    /// How far a case runs.
    pub case_limits: CaseLimits,
    /// Struct member offsets in a dump's kernel, bytes, by `STRUCT.MEMBER`.
    pub offsets: BTreeMap<String, u64>,
}

impl OpenOptions {
    /// When the recording was last written, if files are to be compared with it. Those of cores always
    /// are: a core is of one program, which is often built again.
    pub(crate) fn recorded_at(&self, input: &InputFile) -> Option<std::time::SystemTime> {
        let is_wanted = self.check_age || input.kind() == FileKind::Core;
        input.modified().filter(|_| is_wanted)
    }
}

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Corpus(#[from] corpus::ImportError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The written trace cannot be read back.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The temporary trace file cannot be created.
    #[error("cannot create a temporary file: {0}")]
    Temporary(std::io::Error),
    /// The file is of a kind that cannot be imported.
    #[error(transparent)]
    Kind(#[from] WrongKind),
}

/// The trace metadata that describes the import.
pub fn meta(input: &InputFile) -> Meta {
    let command = ["unwind-sim", "import"].map(str::to_owned);
    let path = input.path().to_string_lossy().into_owned();
    Meta {
        command: command.into_iter().chain([path]).collect(),
        engine: trace::Engine::Import(input.kind()),
        ..Meta::default()
    }
}

/// Imports a recording into `writer`.
///
/// # Errors
/// If the recording cannot be read, or the trace cannot be written.
pub fn into<W: Write>(
    input: &InputFile,
    options: &OpenOptions,
    writer: &mut TraceWriter<W>,
) -> Result<Imported, ImportError> {
    // A trace does not store the memory of a process.
    let mut walks = ReadByWalks::new();
    let add = |writer: &mut TraceWriter<W>, image: Arc<Image>| writer.add_image(&image);
    convert(input, options, writer, add, &mut |item| {
        walks.take(item);
    })
}

/// Imports a recording into `writer`, to which `add` adds each image. `change` sees each item
/// before it is written.
fn convert<W: Write>(
    input: &InputFile,
    options: &OpenOptions,
    writer: &mut TraceWriter<W>,
    mut add: impl FnMut(&mut TraceWriter<W>, Arc<Image>) -> Result<ImageIndex, WriteError>,
    change: &mut dyn FnMut(&mut ImportItem<'_>),
) -> Result<Imported, ImportError> {
    let wrong = || input.is_not(FileKind::list(FileKind::is_imported));
    if !input.kind().is_imported() {
        return Err(wrong().into());
    }

    let mut import = ImportOptions::default();
    import.files.symfs.clone_from(&options.symfs);
    // A file that is newer than the recording may be another one.
    import.files.recorded = options.recorded_at(input);
    import.exe.clone_from(&options.exe);
    import.kernel.clone_from(&options.kernel);
    import.kernel_files.clone_from(&options.kernel_files);
    import.kaslr = options.kaslr;
    import.force = options.force;
    import.offsets.clone_from(&options.offsets);

    // The writer numbers equal images alike, so its numbers may differ from those of the import.
    let mut numbers: HashMap<ImageIndex, ImageIndex> = HashMap::new();
    let mut failed = None;
    // The import only knows that it was stopped; why is kept here.
    let imported = corpus::import(input, &import, &mut |mut item| {
        change(&mut item);
        match write(writer, &mut numbers, &mut add, item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });

    match (imported, failed) {
        (_, Some(error)) => Err(error.into()),
        (Err(corpus::ImportError::UnknownFormat), None) => Err(wrong().into()),
        (imported, None) => Ok(imported?),
    }
}

fn write<W: Write>(
    writer: &mut TraceWriter<W>,
    numbers: &mut HashMap<ImageIndex, ImageIndex>,
    add: &mut impl FnMut(&mut TraceWriter<W>, Arc<Image>) -> Result<ImageIndex, WriteError>,
    item: ImportItem<'_>,
) -> Result<(), WriteError> {
    match item {
        ImportItem::Image { index, image } => {
            // An image comes before all mappings that refer to it.
            let number = add(writer, image)?;
            numbers.insert(index, number);
            Ok(())
        }
        ImportItem::Item(Item::Event(Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        })) => {
            // The import's number, which is not that of the writer.
            let image = image.and_then(|i| numbers.get(&i).copied());
            writer.event(&Event::Map {
                pid,
                range,
                bias,
                image,
                name,
            })
        }
        ImportItem::Item(item) => writer.item(&item),
    }
}

/// Converts a recording to a temporary trace, which is deleted on drop. Also returns what
/// was imported.
///
/// # Errors
/// See [`into`].
pub fn to_trace(
    input: &InputFile,
    options: &OpenOptions,
) -> Result<(Trace, Imported), ImportError> {
    let file = TemporaryFile::new().map_err(ImportError::Temporary)?;
    let out = std::io::BufWriter::with_capacity(1 << 20, file.as_file());
    let mut writer = TraceWriter::with_options(out, &meta(input), OutputOptions::fast())?;

    // It is read by this process, which has the images already.
    let keep = |writer: &mut TraceWriter<_>, image| writer.keep_image(image);

    // The memory of a core is read where it is: no stack is copied.
    let mut process = None;
    let imported = convert(input, options, &mut writer, keep, &mut |item| {
        if let ImportItem::Item(Item::Sample(sample)) = item
            && let Some(memory) = sample.process_memory.take()
        {
            sample
                .regions
                .iter_mut()
                .for_each(|r| r.bytes = Cow::Borrowed(&[]));
            process = Some(memory);
        }
    })?;

    let images = writer.finish_kept()?;
    Ok((Trace::open_with(file.path(), images, process)?, imported))
}
