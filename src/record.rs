//! Recording under ptrace: what the host sees goes into a trace, its images with it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::sync::Arc;
use unwind_sim_corpus::files::{FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_corpus::model::{self, ImageIndex, Region, RegionRole};
use unwind_sim_corpus::trace::{TraceWriter, WriteError};
use unwind_sim_corpus::world::World;
use unwind_sim_host::{
    Event, Mapping, Next, ProcessMemory, Recorder, RecorderError, Sample, StackRole,
};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Owner, Section, SectionKind};

/// Largest piece of memory that is read for an image without a file (the vdso), bytes.
const MEMORY_IMAGE_MAX: u64 = 1 << 24;

/// Writes a recording into a trace.
pub struct TraceRecorder<'a, W: Write> {
    writer: &'a mut TraceWriter<W>,
    finder: ImageFinder,
    world: World,
    images: Vec<Arc<Image>>,
    /// Which lines of text are wanted, by image.
    lines: BTreeMap<ImageIndex, BTreeSet<u64>>,
    seen: HashSet<(u32, u64)>,
    /// For each sample so far, which of [`unwind_sim_host::At::Points`] it was taken at.
    pub points: Vec<Option<usize>>,
}

impl<'a, W: Write> TraceRecorder<'a, W> {
    /// Into `writer`.
    pub fn new(writer: &'a mut TraceWriter<W>) -> Self {
        let options = FinderOptions {
            live: true,
            ..FinderOptions::system()
        };
        let finder = ImageFinder::new(options);
        TraceRecorder {
            writer,
            finder,
            world: World::new(),
            images: Vec::new(),
            lines: BTreeMap::new(),
            seen: HashSet::new(),
            points: Vec::new(),
        }
    }

    fn map(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        memory: Option<&ProcessMemory>,
    ) -> Result<(), WriteError> {
        let (image, bias) = find_image(&mut self.finder, mapping, memory);
        let index = match &image {
            Some(image) => Some(self.add_image(image)?),
            None => None,
        };
        self.event_to_trace(model::Event::Map {
            pid,
            range: mapping.range.clone(),
            bias,
            image: index,
            name: mapping.name.clone(),
        })
    }

    fn event_to_trace(&mut self, event: model::Event) -> Result<(), WriteError> {
        self.world.apply(&event, &self.images);
        self.writer.event(&event)
    }

    /// Adds an image without its text, of which only what is sampled will be kept.
    fn add_image(&mut self, image: &Arc<Image>) -> Result<ImageIndex, WriteError> {
        let sections = image
            .sections()
            .iter()
            .filter(|s| s.kind != SectionKind::Text);
        let bare = Image::new(ImageParts {
            name: image.name().to_owned(),
            build_id: image.build_id().to_vec(),
            text: image.text().to_vec(),
            sections: sections.cloned().collect(),
            symbols: image.symbols().to_vec(),
        });
        let index = self.writer.add_image(&bare)?;
        let at = index.0 as usize;
        if at == self.images.len() {
            self.images.push(image.clone());
        }
        Ok(index)
    }

    /// Remembers that the code around these addresses is wanted, and the begin of its functions:
    /// explanations show the one, and the frame pointer is judged by the other.
    fn want_text(&mut self, pid: u32, addresses: impl Iterator<Item = u64>) {
        const AROUND: std::ops::Range<u64> = 16..48;
        for address in addresses {
            if !self.seen.insert((pid, address)) {
                continue;
            }
            let Some(mapping) = self.world.space(pid).find(address) else {
                continue;
            };
            let Some(image) = &mapping.image else {
                continue;
            };
            let Some(index) = self.images.iter().position(|i| Arc::ptr_eq(i, image)) else {
                continue;
            };
            let lines = self.lines.entry(ImageIndex(index as u32)).or_default();
            let svma = mapping.svma(address);
            let begin = image
                .symbol(svma.saturating_sub(1))
                .map_or(svma, |s| s.address);
            for at in [svma, begin] {
                let range = at.saturating_sub(AROUND.start)..at.saturating_add(AROUND.end);
                lines.extend(
                    (range.start / TEXT_LINE..=range.end / TEXT_LINE).map(|l| l * TEXT_LINE),
                );
            }
        }
    }

    /// Writes the code that was wanted. Call it once, when nothing more is recorded.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub fn write_text(&mut self) -> Result<(), WriteError> {
        for (index, lines) in std::mem::take(&mut self.lines) {
            let image = &self.images[index.0 as usize];
            let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
            for line in lines {
                let bytes = image.text_bytes(line, TEXT_LINE as usize);
                match pieces.last_mut() {
                    Some((start, piece)) if *start + piece.len() as u64 == line => {
                        piece.extend_from_slice(bytes);
                    }
                    _ if bytes.is_empty() => {}
                    _ => pieces.push((line, bytes.to_vec())),
                }
            }
            let sections = pieces.into_iter().map(|(address, bytes)| Section {
                kind: SectionKind::Text,
                address,
                data: Bytes::from_vec(bytes),
            });
            let parts = ImageParts {
                sections: sections.collect(),
                ..ImageParts::default()
            };
            self.writer.extend_image(index, &parts)?;
        }
        Ok(())
    }
}

/// Text is kept in lines of so many bytes.
const TEXT_LINE: u64 = 64;

fn find_image(
    finder: &mut ImageFinder,
    mapping: &Mapping,
    memory: Option<&ProcessMemory>,
) -> (Option<Arc<Image>>, u64) {
    let request = MappingRequest {
        pid: mapping.pid as u32,
        name: &mapping.name,
        range: mapping.range.clone(),
        file_offset: mapping.offset,
        executable: mapping.execute,
        build_id: &[],
    };
    let length = mapping.range.end - mapping.range.start;
    if mapping.name == "[vdso]" && length <= MEMORY_IMAGE_MAX {
        let mut bytes = vec![0; length as usize];
        let read = memory.map_or(0, |m| m.read(mapping.range.start, &mut bytes));
        bytes.truncate(read);
        let owner: Owner = Arc::new(bytes);
        if let Some((image, bias)) = finder.memory_image("[vdso]", mapping.range.start, owner) {
            return (Some(image), bias);
        }
    }
    finder.mapping_for(&request)
}

/// The addresses (avma) of `SYMBOL`, `SYMBOL+OFFSET` or a bare hex address in a mapping.
fn locate(image: &Image, bias: u64, mapping: &Mapping, name: &str) -> Vec<u64> {
    let (symbol, offset) = match name.rsplit_once('+') {
        Some((symbol, offset)) => match parse_number(offset) {
            Some(offset) => (symbol, offset),
            None => (name, 0),
        },
        None => (name, 0),
    };
    let addresses = image
        .symbols()
        .iter()
        .filter(|s| s.name == symbol || s.name.split('@').next() == Some(symbol))
        .map(|s| s.address.wrapping_add(offset).wrapping_add(bias));
    let mut found: Vec<u64> = addresses.filter(|a| mapping.range.contains(a)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A number in decimal, or in hex with `0x`.
pub fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl<W: Write> Recorder for TraceRecorder<'_, W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), RecorderError> {
        let event = match event {
            Event::Map {
                pid,
                mapping,
                memory,
            } => {
                return Ok(self.map(*pid, mapping, Some(memory))?);
            }
            Event::Unmap { pid, range } => model::Event::Unmap {
                pid: *pid,
                range: range.clone(),
            },
            Event::Exec { pid } => model::Event::Exec { pid: *pid },
            Event::Fork {
                pid,
                tid,
                parent_pid,
            } => model::Event::Fork {
                pid: *pid,
                tid: *tid,
                parent_pid: *parent_pid,
            },
            Event::Exit { pid, tid } => model::Event::Exit {
                pid: *pid,
                tid: *tid,
            },
            Event::Comm { pid, tid, name } => model::Event::Comm {
                pid: *pid,
                tid: *tid,
                name: (*name).to_owned(),
            },
            _ => return Ok(()),
        };
        Ok(self.event_to_trace(event)?)
    }

    fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError> {
        self.points.push(sample.point);
        let pcs = sample.truth.frames().iter().map(|f| f.pc);
        let live = sample.regs.live().map(|regs| regs.rip());
        self.want_text(sample.pid, pcs.chain(live));
        let regions = sample.stacks.into_iter().map(|piece| Region {
            role: match piece.role {
                StackRole::Stack => RegionRole::Stack,
                StackRole::OtherStack => RegionRole::OtherStack,
            },
            bounds: piece.bounds,
            next_sp: 0,
            address: piece.address,
            bytes: piece.bytes.into(),
        });
        self.writer.sample(&model::Sample {
            pid: sample.pid,
            tid: sample.tid,
            time: sample.time,
            regs: sample.regs,
            regions: regions.collect(),
            truth: sample.truth,
            recorded: Vec::new(),
        })?;
        Ok(Next::Go)
    }

    fn locate(&mut self, mapping: &Mapping, name: &str) -> Vec<u64> {
        if let Some(address) = name
            .strip_prefix("0x")
            .and_then(|h| u64::from_str_radix(h, 16).ok())
        {
            return if mapping.range.contains(&address) {
                vec![address]
            } else {
                Vec::new()
            };
        }
        let (Some(image), bias) = find_image(&mut self.finder, mapping, None) else {
            return Vec::new();
        };
        locate(&image, bias, mapping, name)
    }
}
