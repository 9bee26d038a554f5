//! Records programs: writes what an engine observes, and the program's images, to a trace.
//!
//! [`TraceRecorder`] is shared by all engines. `ptrace` runs a program on the host's processor,
//! [`emulator`] in the emulated machine, and `gdb` records a kernel through a gdb stub.
//! [`reversible`] goes to any instruction of a run, forwards and backwards.

#![forbid(unsafe_code)]

pub mod answers;
pub mod boot;
pub mod emulate;
pub mod emulator;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod gdb;
pub mod jit;
mod kernel;
pub mod kernel_generated;
pub mod kernel_modules;
pub mod kernel_stacks;
mod linked;
pub mod machine;
mod mapping;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod ptrace;
pub mod registers;
pub mod reversible;
pub mod reversible_kernel;
pub mod ring0;
mod rings;
pub mod shadow;
mod state;

pub use linked::{NotLinked, not_linked};
pub use unwind_sim_host::plan::{self, At, FetchFrame, Plan, Point};

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::files::{FileProblem, FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_recordings::model::{self, ImageIndex};
use unwind_sim_recordings::progress::Progress;
use unwind_sim_recordings::trace::{TraceWriter, WriteError};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};

/// A name that needs no symbol: the first argument of the first call after the entry point
/// (`__libc_start_main`, Linux Standard Base 5.0, baselib).
const MAIN: &str = "main";

/// Writes a recording to a trace.
pub struct TraceRecorder<'a, W: Write> {
    writer: &'a mut TraceWriter<W>,
    finder: ImageFinder,
    world: World,
    images: Vec<Arc<Image>>,
    /// The wanted lines of text, by image.
    lines: BTreeMap<ImageIndex, BTreeSet<u64>>,
    seen: HashSet<(u32, u64)>,
    progress: Progress,
    /// For each sample so far, the index of the [`At::Points`] point at which it was taken.
    pub points: Vec<Option<usize>>,
}

impl<'a, W: Write> TraceRecorder<'a, W> {
    /// The first image file that is there but could not be read: without it, places are missing.
    pub fn unread(&self) -> Option<&FileProblem> {
        let mut problems = self.finder.problems().iter();
        problems.find(|problem| problem.is_unread())
    }

    /// Records to `writer`. `options` tell where to find image files.
    pub fn new(writer: &'a mut TraceWriter<W>, options: FinderOptions) -> Self {
        TraceRecorder {
            writer,
            finder: ImageFinder::new(options),
            world: World::new(),
            images: Vec::new(),
            lines: BTreeMap::new(),
            seen: HashSet::new(),
            progress: Progress::new("samples", false),
            points: Vec::new(),
        }
    }

    /// Records a mapping of executable memory.
    fn map(
        &mut self,
        request: &MappingRequest<'_>,
        (image, bias): (Option<Arc<Image>>, u64),
    ) -> Result<(), WriteError> {
        let index = match &image {
            Some(image) => Some(self.add_image(image)?),
            None => None,
        };
        self.event(&model::Event::Map {
            pid: request.pid,
            range: request.range.clone(),
            bias,
            image: index,
            name: request.name.to_owned(),
        })
    }

    fn event(&mut self, event: &model::Event) -> Result<(), WriteError> {
        self.world.apply(event, &self.images);
        self.writer.event(event)
    }

    fn sample(
        &mut self,
        sample: &model::Sample<'_>,
        point: Option<usize>,
    ) -> Result<(), WriteError> {
        self.points.push(point);
        self.progress.tell(self.points.len() as u64);
        let pcs = sample.truth.frames().iter().map(|f| f.pc);
        let live = sample.regs.live().map(|regs| regs.rip());
        let calls = sample.branches.iter().flat_map(|ring| &ring.entries);
        let calls = calls.map(|branch| branch.from);
        self.want_text(sample.pid, pcs.chain(live).chain(calls));

        // Without the true frames any word on the stack that is an address of code may be a frame's:
        // whether a chain is whole is decided by the code there.
        if !sample.truth.is_complete() {
            let space = self.world.space(sample.pid);
            let words = sample.regions.iter().flat_map(words_of);
            let addresses: Vec<u64> = words.filter(|&word| space.is_text(word)).collect();
            self.want_text(sample.pid, addresses.into_iter());
        }
        self.writer.sample(sample)
    }

    /// Adds an image without its text. Only the sampled text is added later.
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

    /// The index of an image that was added.
    fn index_of(&self, image: &Arc<Image>) -> Option<ImageIndex> {
        let at = self.images.iter().position(|i| Arc::ptr_eq(i, image))?;
        Some(ImageIndex(at as u32))
    }

    /// Adds parts to an image.
    fn extend(&mut self, index: ImageIndex, parts: &ImageParts) -> Result<(), WriteError> {
        self.writer.extend_image(index, parts)
    }

    /// Marks the code around these addresses and at the start of their functions as wanted.
    /// Explanations show the former; the frame pointer unwinder is judged by the latter.
    fn want_text(&mut self, pid: u32, addresses: impl Iterator<Item = u64>) {
        const AROUND: std::ops::Range<u64> = 16..48;
        for address in addresses {
            // Most addresses come again and again.
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
            // A return address may be just behind its function.
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

    /// Writes the wanted code. Call it once, at the end of the recording.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub fn write_text(&mut self) -> Result<(), WriteError> {
        for (index, lines) in std::mem::take(&mut self.lines) {
            let image = &self.images[index.0 as usize];
            let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
            for line in lines {
                let bytes = image.text_bytes(line, TEXT_LINE as usize);
                // Lines that follow each other become one section.
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

/// The words of a region, as far as they are whole, each at a multiple of 8 bytes.
fn words_of(region: &model::Region<'_>) -> impl Iterator<Item = u64> {
    let ahead = region.address.wrapping_neg() as usize % 8;
    let bytes = region.bytes.get(ahead..).unwrap_or_default();
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// Size of a line of text, bytes. Text is kept in whole lines.
const TEXT_LINE: u64 = 64;

/// The addresses (AVMA) of `SYMBOL`, `SYMBOL+OFFSET` or a bare hexadecimal address in a mapping.
fn locate(image: Option<&Image>, bias: u64, range: &Range<u64>, name: &str) -> Vec<u64> {
    if let Some(address) = name
        .strip_prefix("0x")
        .and_then(|h| u64::from_str_radix(h, 16).ok())
    {
        return if range.contains(&address) {
            vec![address]
        } else {
            Vec::new()
        };
    }

    let Some(image) = image else {
        return Vec::new();
    };

    // A name may have a `+` of its own, such as that of a C++ operator.
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

    let mut found: Vec<u64> = addresses.filter(|a| range.contains(a)).collect();
    // Aliases have the same address.
    found.sort_unstable();
    found.dedup();
    found
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
pub fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use unwind_sim_recordings::model::{Region, RegionRole, Sample};
    use unwind_sim_recordings::trace::{Meta, Trace};
    use unwind_sim_unwind::regs::Regs;
    use unwind_sim_unwind::start::SampleRegs;
    use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

    /// The image of a trace with one sample, whose stack has one address of its code.
    fn image_of(truth: Truth) -> Arc<Image> {
        const BIAS: u64 = 0x7f00_0000_0000;
        let image = Image::new(ImageParts {
            name: "/bin/prog".into(),
            text: std::iter::once(0x1000..0x9000).collect(),
            sections: vec![Section {
                kind: SectionKind::Text,
                address: 0x1000,
                data: Bytes::from_vec(vec![0x90; 0x8000]),
            }],
            ..ImageParts::default()
        });

        let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).expect("memory");
        let mut recorder = TraceRecorder::new(&mut writer, FinderOptions::default());
        let request = MappingRequest {
            pid: 1,
            name: "/bin/prog",
            range: BIAS + 0x1000..BIAS + 0x9000,
            file_offset: 0,
            executable: true,
            build_id: &[],
        };
        let mapped = recorder.map(&request, (Some(Arc::new(image)), BIAS));
        mapped.expect("it is written to memory");

        // The region does not begin at a multiple of 8, as the stack's words do.
        let mut bytes = vec![0; 4];
        // Only the word in the middle is an address of code.
        for word in [7, BIAS + 0x5000, u64::MAX] {
            bytes.extend(word.to_le_bytes());
        }
        let sample = Sample {
            pid: 1,
            tid: 1,
            time: 0,
            regs: SampleRegs::hardware(Regs::frame(BIAS + 0x2000, 0x7004, 0)),
            regions: vec![Region {
                role: RegionRole::Stack,
                bounds: 0..0,
                next_sp: 0,
                address: 0x7004,
                bytes: Cow::Owned(bytes),
            }],
            truth,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: None,
            process_memory: None,
        };
        recorder
            .sample(&sample, None)
            .expect("it is written to memory");
        recorder.write_text().expect("it is written to memory");
        let bytes = writer.finish().expect("it is written to memory");
        let trace = Trace::from_bytes(bytes).expect("it was written just now");
        trace.images()[0].clone()
    }

    #[test]
    fn without_truth_the_code_at_all_addresses_on_the_stack_is_kept() {
        let image = image_of(Truth::Unknown);
        let has = |svma| !image.text_bytes(svma, 1).is_empty();
        assert!(has(0x2000), "the sampled instruction");
        assert!(
            has(0x4fff) && has(0x5000),
            "around the address on the stack"
        );
        assert!(!has(0x8000), "code that nothing leads to");
    }

    #[test]
    fn with_truth_only_its_code_is_kept() {
        let frame = TrueFrame {
            pc: 0x7f00_0000_2000,
            cfa: 0x7010,
            kind: TrueKind::Top,
            saved: None,
        };
        let image = image_of(Truth::Complete(vec![frame]));
        let has = |svma| !image.text_bytes(svma, 1).is_empty();
        assert!(has(0x2000) && !has(0x5000));
    }
}
