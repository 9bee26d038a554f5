//! Copies a trace with other samples, or with other names.

use super::error::ScrubError;
use super::names::{self, Names};
use super::scrubber::Scrubber;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use unwind_sim_recordings::convert::{self, OpenOptions};
use unwind_sim_recordings::import::Imported;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::model::{Event, ImageIndex, Item};
use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter, WriteError};
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{Image, ImageParts};

/// The writer of a copy.
type Writer<'o> = TraceWriter<io::BufWriter<&'o mut File>>;

/// Converts a recording to a trace in `out`.
pub(super) fn import(
    input: &InputFile,
    open: &OpenOptions,
    out: &mut File,
) -> Result<Imported, ScrubError> {
    let mut writer = writer(&convert::meta(input), out)?;
    let imported = convert::into(input, open, &mut writer)?;
    finish(writer)?;
    Ok(imported)
}

/// Scrubs a trace into `out`. Returns the digests of its samples, and the number of words left out.
pub(super) fn scrub(
    trace: &Trace,
    scrubber: &mut Scrubber<'_>,
    tell: &mut dyn FnMut(u64),
    out: &mut File,
) -> Result<(Vec<u64>, usize), ScrubError> {
    let mut meta = trace.meta().clone();
    let words = names::meta(&mut meta);

    let mut digests = Vec::new();
    let mut world = World::new();

    copy(trace, &meta, out, |item, images, writer| {
        match item {
            Item::Event(event) => {
                // By the old number of its image: samples are walked in the world of the input.
                world.apply(&event, trace.images());
                let event = images.numbered(event, trace, false, writer)?;
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

                // The digest is of what all unwinders give before scrubbing; the check compares the
                // written file with it.
                let (scrubbed, digest) = scrubber.sample(&view)?;
                digests.push(digest);
                writer.sample(&scrubbed)?;
            }
        }
        Ok(())
    })?;

    Ok((digests, words))
}

/// Copies a scrubbed trace into `out`, with other names.
pub(super) fn rename(trace: &Trace, names: &mut Names, out: &mut File) -> Result<(), ScrubError> {
    let mut meta = trace.meta().clone();
    // Any other word may be the name of a file.
    meta.command.truncate(2);
    for program in &mut meta.program {
        *program = names.file(program);
    }
    copy(trace, &meta, out, |item, images, writer| {
        match item {
            Item::Event(event) => {
                let event = renamed(event, names);
                let event = images.numbered(event, trace, true, writer)?;
                writer.event(&event)?;
            }
            Item::Sample(sample) => writer.sample(&sample)?,
        }
        Ok(())
    })
}

fn copy(
    trace: &Trace,
    meta: &Meta,
    out: &mut File,
    mut take: impl FnMut(Item<'_>, &mut Images, &mut Writer<'_>) -> Result<(), ScrubError>,
) -> Result<(), ScrubError> {
    let mut writer = writer(meta, out)?;
    let mut images = Images::default();
    for chunk in trace.chunks() {
        let mut reader = chunk.read()?;
        while let Some(item) = reader.next() {
            take(item?, &mut images, &mut writer)?;
        }
    }
    finish(writer)
}

fn writer<'o>(meta: &Meta, out: &'o mut File) -> Result<Writer<'o>, ScrubError> {
    let out = io::BufWriter::with_capacity(1 << 20, out);
    Ok(TraceWriter::new(out, meta)?)
}

fn finish(writer: Writer<'_>) -> Result<(), ScrubError> {
    let mut out = writer.finish()?;
    io::Write::flush(&mut out).map_err(ScrubError::Temporary)
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
        // Only mappings have an image, and not all of them.
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

        // Several mappings may show one image: it is written once.
        let image = match (self.0.get(&index), trace.images().get(index.0 as usize)) {
            (Some(&known), _) => Some(known),
            // A damaged trace may name an image that it does not have.
            (None, None) => None,
            (None, Some(image)) => {
                let named;
                let image: &Image = if rename {
                    named = with_name(image, &name);
                    &named
                } else {
                    image
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
