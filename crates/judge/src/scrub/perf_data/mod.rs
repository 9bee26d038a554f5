//! Scrubs a perf.data: into a perf.data without compression, record by record.
//!
//! It takes two passes. The first copies the file without what no unwinder needs (`records`), the
//! second replaces the samples (`sample`) as [`Scrubber`] says.

mod features;
mod records;
mod sample;

use super::error::ScrubError;
use super::names::Names;
use super::scrubber::Scrubber;
use records::Copier;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Seek as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use unwind_sim_perf_data::{PerfFile, record_type as rt};
use unwind_sim_recordings::files::{FinderOptions, ImageFinder};
use unwind_sim_recordings::import::{ImportItem, perf};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::model::Item;
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;

/// What was left out of a perf.data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// The numbers of records, by type.
    pub records: BTreeMap<u32, u64>,
    /// The numbers of feature sections.
    pub features: Vec<u8>,
    /// The number of words of perf's command line.
    pub words: usize,
    /// The number of records that cannot be read.
    pub damaged: u64,
}

/// Copies a perf.data to `out` without what no unwinder needs. With `names`, also
/// replaces names.
pub(super) fn copy(
    recording: &InputFile,
    names: Option<&mut Names>,
    out: &mut File,
) -> Result<LeftOut, ScrubError> {
    let bytes = recording.bytes().map_err(ScrubError::Read)?;
    let bytes: &[u8] = (*bytes).as_ref();
    let file = perf::parse(bytes).map_err(ScrubError::perf)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &mut *out);
    let mut copier = Copier::new(bytes, &file, names);
    copier.copy(&mut writer).map_err(ScrubError::Temporary)?;
    writer.flush().map_err(ScrubError::Temporary)?;
    let left_out = copier.left_out;
    drop(writer);
    out.rewind().map_err(ScrubError::Temporary)?;
    Ok(left_out)
}

/// Scrubs the samples of the uncompressed perf.data `plain` in its copy `out`. Returns the digest
/// of each sample that can be walked.
pub(super) fn samples(
    plain: &InputFile,
    files: FinderOptions,
    scrubber: &mut Scrubber<'_>,
    tell: &mut dyn FnMut(u64),
    out: &File,
) -> Result<Vec<u64>, ScrubError> {
    let bytes = plain.bytes().map_err(ScrubError::Read)?;
    let file = perf::parse((*bytes).as_ref()).map_err(ScrubError::perf)?;

    let (mut world, mut images) = (World::new(), Vec::new());
    let mut finder = ImageFinder::new(files);
    let (mut digests, mut done) = (Vec::new(), HashSet::new());
    let mut failed: Option<ScrubError> = None;
    // A cell: the reader sets it for each item, and the closure reads it.
    let at = Cell::new(0);

    // As a recording is opened: some samples have their address from the part that came later.
    let deferred = perf::Deferred::read(&file);
    let options = perf::ItemOptions {
        chains: true,
        deferred: Some(&deferred),
        at: Some(&at),
    };

    perf::items(&file, &mut finder, &options, &mut |item| {
        match item {
            ImportItem::Image { image, .. } => images.push(image),
            ImportItem::Item(Item::Event(event)) => world.apply(&event, &images),
            ImportItem::Item(Item::Sample(sample)) => {
                let view = View {
                    number: digests.len() as u64,
                    sample: &sample,
                    space: world.space(sample.pid),
                    pristine: None,
                    stitched: &[],
                    world: Some(&world),
                };

                tell(view.number + 1);
                let scrubbed = scrubber.sample(&view).map_err(ScrubError::from);
                let written = scrubbed.and_then(|(after, digest)| {
                    digests.push(digest);
                    // The offset of its record, by which the loop below knows it.
                    done.insert(at.get());
                    put(&file, at.get(), Some((&sample, &after)), out)
                });
                if let Err(error) = written {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });

    // The closure can only stop the reader, so its error is returned here.
    if let Some(error) = failed {
        return Err(error);
    }

    // Of a sample that nothing walks, nothing is read.
    for raw in file.records().map_while(Result::ok) {
        if raw.kind == rt::SAMPLE && !done.contains(&raw.offset) {
            put(&file, raw.offset, None, out)?;
        }
    }

    Ok(digests)
}

/// Writes the sample at `offset` as it is after scrubbing.
fn put(
    file: &PerfFile<'_>,
    offset: u64,
    scrubbed: Option<sample::BeforeAndAfter<'_>>,
    out: &File,
) -> Result<(), ScrubError> {
    const HEADER: u64 = 8;
    let raw = file.record_at(offset).map_err(ScrubError::perf_data)?;
    let sample = file.sample(&raw).map_err(ScrubError::perf_data)?;
    let body = match sample {
        Some(sample) => sample::body(&raw, &sample, scrubbed).map_err(ScrubError::perf_data)?,
        None => return Ok(()),
    };
    out.write_all_at(&body, offset + HEADER)
        .map_err(ScrubError::Temporary)
}
