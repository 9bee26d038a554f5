//! Scrubs a whole recording into a new file, which gets its name when it was checked.

use super::check;
use super::error::ScrubError;
use super::kept::Kept;
use super::names::{self, Names};
use super::perf_data::{self, LeftOut};
use super::scrubber::Scrubber;
use crate::input::{FileKind, Input, InputError, file_kind};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_recordings::convert::{self, OpenOptions};
use unwind_sim_recordings::file_kind::WrongKind;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::model::{Event, ImageIndex, Item};
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::trace::{Trace, TraceWriter, WriteError};
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;
use unwind_sim_tables::ground::Shelf;
use unwind_sim_unwind::image::{Image, ImageParts};

/// What to do besides scrubbing memory and registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Replace the names of files, threads and hosts by numbers.
    pub names: bool,
}

/// The kinds of files that hold what a program held. A case does not.
const RECORDED: [FileKind; 4] = [
    FileKind::Trace,
    FileKind::PerfData,
    FileKind::Core,
    FileKind::Capture,
];

/// The kind of file that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// A trace.
    Trace,
    /// A perf.data without compression.
    PerfData,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// The kind of the recording.
    pub from: FileKind,
    /// The kind of the output.
    pub written: Written,
    /// What was kept.
    pub kept: Kept,
    /// The number of samples in which all results were compared.
    pub checked: u64,
    /// What was left out of a perf.data.
    pub left_out: LeftOut,
    /// The number of words left out of command lines.
    pub words: usize,
    /// The number of names that were replaced.
    pub names: usize,
}

/// Scrubs the recording at `path` into `output`. Calls `tell` with the number of samples so far, in
/// each of two passes.
///
/// # Errors
/// If the recording cannot be read, the output cannot be written, or an unwinder would give another
/// result; the output is then as it was before.
pub fn scrub(
    path: &Path,
    open: &OpenOptions,
    output: &Path,
    options: Options,
    tell: &mut dyn FnMut(u64),
) -> Result<Done, ScrubError> {
    let from = file_kind(path)?;
    if !RECORDED.contains(&from) {
        return Err(InputError::Kind(WrongKind {
            path: path.into(),
            kind: from,
            wanted: "a recording of a program: a trace, a perf.data, an ELF core or a kernel's \
                     capture (JSON)",
        })
        .into());
    }
    let open = OpenOptions {
        chains: from == FileKind::PerfData,
        ..open.clone()
    };
    let of_output = |source| ScrubError::Output {
        path: output.into(),
        source,
    };
    // Whether it can be written is known before the work is done.
    let mut out = OutputFile::create(output).map_err(of_output)?;
    let shelf = Shelf::default();
    let before = Input::open(path, &open)?;
    let mut scrubber = Scrubber::new(&shelf, before.files())?;
    let mut names = Names::default();
    let temporary = || tempfile::NamedTempFile::new().map_err(ScrubError::Temporary);
    let mut scrubbed = temporary()?;
    let (written, digests, left_out, words) = match from {
        FileKind::PerfData => {
            let (digests, left_out) =
                perf(path, &open, &mut scrubber, tell, scrubbed.as_file_mut())?;
            let words = left_out.words;
            (Written::PerfData, digests, left_out, words)
        }
        kind => {
            let trace = match kind {
                FileKind::Trace => Trace::open(path)?,
                kind => convert::to_trace(path, kind, &open)?.0,
            };
            let names = options.names.then_some(&mut names);
            let out = scrubbed.as_file_mut();
            let (digests, words) = of_trace(&trace, &mut scrubber, names, tell, out)?;
            (Written::Trace, digests, LeftOut::default(), words)
        }
    };
    let kept = scrubber.kept().clone();
    let after = Input::open(scrubbed.path(), &open)?;
    check::samples(&before, &after, &digests, &mut scrubber, tell)?;
    check::doctor(
        &before,
        &after,
        written == Written::PerfData || !options.names,
    )?;
    drop(after);
    // Files are found by their names, so those of a perf.data are replaced when it was checked.
    if options.names && written == Written::PerfData {
        let mut renamed = temporary()?;
        perf_data::copy(scrubbed.path(), Some(&mut names), renamed.as_file_mut())?;
        scrubbed = renamed;
    }
    let mut reader = scrubbed.reopen().map_err(ScrubError::Temporary)?;
    io::copy(&mut reader, &mut out).map_err(of_output)?;
    out.finish().map_err(of_output)?;
    Ok(Done {
        from,
        written,
        kept,
        checked: digests.len() as u64,
        left_out,
        words,
        names: names.count(),
    })
}

/// Scrubs a perf.data into `out`.
fn perf(
    path: &Path,
    open: &OpenOptions,
    scrubber: &mut Scrubber<'_>,
    tell: &mut dyn FnMut(u64),
    out: &mut File,
) -> Result<(Vec<u64>, LeftOut), ScrubError> {
    let mut plain = tempfile::NamedTempFile::new().map_err(ScrubError::Temporary)?;
    let left_out = perf_data::copy(path, None, plain.as_file_mut())?;
    io::copy(plain.as_file_mut(), out).map_err(ScrubError::Temporary)?;
    let files = FinderOptions {
        symfs: open.symfs.clone(),
        ..FinderOptions::system()
    };
    let digests = perf_data::samples(plain.path(), files, scrubber, tell, out)?;
    Ok((digests, left_out))
}

/// Scrubs a trace into `out`. Returns the digests of its samples, and the number of words left out.
fn of_trace(
    trace: &Trace,
    scrubber: &mut Scrubber<'_>,
    mut names: Option<&mut Names>,
    tell: &mut dyn FnMut(u64),
    out: &mut File,
) -> Result<(Vec<u64>, usize), ScrubError> {
    let mut meta = trace.meta().clone();
    let words = names::meta(&mut meta);
    if let Some(names) = names.as_deref_mut() {
        // Any other word may be the name of a file.
        meta.command.truncate(2);
        for program in &mut meta.program {
            *program = names.file(program);
        }
    }
    let mut writer = TraceWriter::new(io::BufWriter::with_capacity(1 << 20, out), &meta)?;
    let mut world = World::new();
    let mut images = Images::default();
    let mut digests = Vec::new();
    for chunk in trace.chunks() {
        let mut reader = chunk.read()?;
        while let Some(item) = reader.next() {
            match item? {
                Item::Event(event) => {
                    world.apply(&event, trace.images());
                    let event = match names.as_deref_mut() {
                        Some(names) => renamed(event, names),
                        None => event,
                    };
                    let event = images.numbered(event, trace, names.is_some(), &mut writer)?;
                    writer.event(&event)?;
                }
                Item::Sample(sample) => {
                    let number = digests.len() as u64;
                    tell(number + 1);
                    let view = View {
                        number,
                        sample: &sample,
                        space: world.space(sample.pid),
                        pristine: None,
                        stitched: &[],
                        world: Some(&world),
                    };
                    let (scrubbed, digest) = scrubber.sample(&view)?;
                    digests.push(digest);
                    writer.sample(&scrubbed)?;
                }
            }
        }
    }
    let mut out = writer.finish()?;
    io::Write::flush(&mut out).map_err(ScrubError::Temporary)?;
    Ok((digests, words))
}

fn renamed(event: Event, names: &mut Names) -> Event {
    match event {
        Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        } => Event::Map {
            name: names.file(&name),
            pid,
            range,
            bias,
            image,
        },
        Event::Comm { pid, tid, name } => Event::Comm {
            name: names.thread(&name),
            pid,
            tid,
        },
        other => other,
    }
}

/// The numbers of a trace's images in its copy.
#[derive(Default)]
struct Images(HashMap<ImageIndex, ImageIndex>);

impl Images {
    /// The event with the image's new number. An image is added before it is first used, with the
    /// mapping's name if names are replaced.
    fn numbered<W: io::Write>(
        &mut self,
        event: Event,
        trace: &Trace,
        rename: bool,
        writer: &mut TraceWriter<W>,
    ) -> Result<Event, WriteError> {
        let Event::Map {
            pid,
            range,
            bias,
            image: Some(index),
            name,
        } = event
        else {
            return Ok(event);
        };
        let image = match (self.0.get(&index), trace.images().get(index.0 as usize)) {
            (Some(&known), _) => Some(known),
            (None, None) => None,
            (None, Some(image)) => {
                let named;
                let image: &Image = match rename {
                    true => {
                        named = with_name(image, &name);
                        &named
                    }
                    false => image,
                };
                let new = writer.add_image(image)?;
                self.0.insert(index, new);
                Some(new)
            }
        };
        Ok(Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        })
    }
}

fn with_name(image: &Arc<Image>, name: &str) -> Image {
    Image::new(ImageParts {
        name: name.to_owned(),
        build_id: image.build_id().to_vec(),
        text: image.text().to_vec(),
        sections: image.sections().to_vec(),
        symbols: image.symbols().to_vec(),
    })
}
