//! Generated code that the program has registered: for gdb, or its unwind tables for libgcc.

use super::Importer;
use crate::gdb_jit::{self, SymbolFile};
use crate::model::{Event, Item};
use crate::registered;
use crate::runtime;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};

/// Maximum number of bytes of code that an image keeps.
const TEXT_MAX: u64 = 1 << 20;
/// The name of a mapping with registered code, also in recordings of the emulator.
const NAME: &str = "[jit]";
/// Maximum size of the data of one file in which libgcc's lists are looked for, and of all files, bytes.
const DATA_MAX: u64 = 16 << 20;
const ALL_DATA_MAX: u64 = 64 << 20;

/// An executable mapping as it was announced.
pub(super) struct Announced {
    pub(super) range: Range<u64>,
    pub(super) name: String,
    pub(super) bias: u64,
    pub(super) image: Option<Arc<Image>>,
}

impl Announced {
    /// Whether there are no rows for it.
    fn is_bare(&self) -> bool {
        let kinds = [SectionKind::EhFrame, SectionKind::DebugFrame];
        let has_rows = |image: &Arc<Image>| {
            let mut sections = image.sections().iter();
            sections.any(|s| kinds.contains(&s.kind) && s.data.len() > 4)
        };
        !self.image.as_ref().is_some_and(has_rows)
    }
}

impl Importer<'_, '_, '_, '_> {
    /// Maps the code in gdb's lists, and what libgcc knows, over the memory that it lies in.
    pub(super) fn generated(&mut self, pid: u32) -> ControlFlow<()> {
        let memory = self.memory;
        let (mut described, mut symbols) = (Vec::new(), Vec::new());
        for descriptor in std::mem::take(&mut self.descriptors) {
            let read = |address, size| memory.bytes(address, size).to_vec();
            let (files, problems) = gdb_jit::registered(descriptor, read);
            let problems = problems.into_iter().map(Into::into);
            self.output.imported.problems.extend(problems);
            for file in files {
                match file.table {
                    Some(_) => described.extend(file.code()),
                    None => symbols.extend(file.symbols.iter().cloned()),
                }
                self.map_generated(pid, file)?;
            }
        }
        self.registered(pid, described, &symbols)
    }

    /// Maps code whose rows libgcc knows: `described` is what has rows from elsewhere, `symbols` are names
    /// of code without rows.
    fn registered(
        &mut self,
        pid: u32,
        mut described: Vec<Range<u64>>,
        symbols: &[Symbol],
    ) -> ControlFlow<()> {
        // Of a file that is not here, and whose code was not dumped, nothing is made.
        let is_generated = |name: &str| runtime::generated_name(name).is_some();
        let is_wanted = |a: &Announced| a.is_bare() && (a.image.is_some() || is_generated(&a.name));

        let announced = std::mem::take(&mut self.announced);
        // Images that have rows describe their code themselves.
        let (bare, others): (Vec<_>, Vec<_>) = announced.into_iter().partition(is_wanted);
        if bare.is_empty() {
            return ControlFlow::Continue(());
        }

        described.extend(others.into_iter().map(|a| a.range));
        // `overlaps` searches by the starts.
        described.sort_by_key(|range| range.start);
        let memory = self.memory;
        let data = self.data();

        for table in registered::tables(&data, &|address, size| memory.bytes(address, size)) {
            let mut file = SymbolFile {
                symbols: Vec::new(),
                table: Some(table.clone()),
            };

            let mut code = file.code();
            // The rows of code that is described elsewhere are not needed twice.
            code.retain(|range| !overlaps(&described, range));
            let is_in = |a: &&Announced| code.iter().any(|range| a.range.contains(&range.start));
            let image = bare.iter().find(is_in).and_then(|a| a.image.clone());
            if let Some(image) = image {
                self.complete_image(pid, &bare, &image, &table)?;
                continue;
            }

            let is_named = |s: &&Symbol| code.iter().any(|range| range.contains(&s.address));
            file.symbols = symbols.iter().filter(is_named).cloned().collect();
            self.map_code(pid, file, code)?;
        }
        ControlFlow::Continue(())
    }

    /// Where libgcc's lists may start: what files have of writable memory, with the zeroed part behind
    /// it.
    fn data(&self) -> Vec<Range<u64>> {
        let mut left = ALL_DATA_MAX;
        let mut out = Vec::new();
        let segments = self.memory.segments();
        for (index, segment) in segments.iter().enumerate() {
            let is_data = segment.writable && !segment.executable;
            if !is_data || self.notes.files.find(segment.range.start).is_none() {
                continue;
            }
            let mut whole = vec![segment.range.clone()];
            let behind = segments.get(index + 1).filter(|next| {
                next.range.start == segment.range.end
                    && next.writable
                    && self.notes.files.find(next.range.start).is_none()
            });
            whole.extend(behind.map(|next| next.range.clone()));
            for range in whole {
                let size = (range.end - range.start).min(DATA_MAX).min(left);
                left -= size;
                out.push(range.start..range.start + size);
            }
        }
        out
    }

    /// Maps an image again that has no rows, now with those of the program's start files. `table` is at
    /// its place in memory.
    fn complete_image(
        &mut self,
        pid: u32,
        bare: &[Announced],
        image: &Arc<Image>,
        table: &Section,
    ) -> ControlFlow<()> {
        // An image may be mapped in pieces, all of which get the new one.
        let mut own = bare
            .iter()
            .filter(|a| a.image.as_ref().map(|i| i.id()) == Some(image.id()))
            .peekable();
        let bias = own.peek().map_or(0, |a| a.bias);

        let mut sections = image.sections().to_vec();
        sections.push(Section {
            // Sections have SVMAs, but the table was found in memory.
            address: table.address.wrapping_sub(bias),
            ..table.clone()
        });

        let image = Arc::new(Image::new(ImageParts {
            name: image.name().to_owned(),
            build_id: image.build_id().to_vec(),
            text: image.text().to_vec(),
            sections,
            symbols: image.symbols().to_vec(),
        }));

        // An image does not change once it was announced, so this is another one.
        let (index, flow) = self.output.index(image);
        flow?;
        for a in own {
            self.output.item(Item::Event(Event::Map {
                pid,
                range: a.range.clone(),
                bias: a.bias,
                image: Some(index),
                name: a.name.clone(),
            }))?;
        }
        ControlFlow::Continue(())
    }

    fn map_generated(&mut self, pid: u32, file: SymbolFile) -> ControlFlow<()> {
        let code = file.code();
        self.map_code(pid, file, code)
    }

    fn map_code(
        &mut self,
        pid: u32,
        file: SymbolFile,
        mut code: Vec<Range<u64>>,
    ) -> ControlFlow<()> {
        let memory = self.memory;
        // A range that is not executable memory is not code.
        code.retain(|range| {
            let segment = memory.segment(range.start);
            segment.is_some_and(|s| s.executable && range.end <= s.range.end)
        });

        let Some(first) = code.first().map(|range| range.start) else {
            return ControlFlow::Continue(());
        };

        // Bounded for all ranges together.
        let mut left = TEXT_MAX;
        let mut sections: Vec<Section> = file.table.into_iter().collect();
        for range in &code {
            let bytes = memory.bytes(range.start, (range.end - range.start).min(left));
            left -= bytes.len() as u64;
            if !bytes.is_empty() {
                sections.push(Section {
                    kind: SectionKind::Text,
                    address: range.start,
                    data: Bytes::from_vec(bytes.to_vec()),
                });
            }
        }

        let image = Arc::new(Image::new(ImageParts {
            name: format!("[jit {first:#x}]"),
            text: code.clone(),
            symbols: file.symbols,
            sections,
            ..ImageParts::default()
        }));

        let (index, flow) = self.output.index(image);
        flow?;
        for range in code {
            self.output.item(Item::Event(Event::Map {
                pid,
                range,
                // Tables and symbols have the addresses in memory.
                bias: 0,
                image: Some(index),
                name: NAME.to_owned(),
            }))?;
        }
        ControlFlow::Continue(())
    }
}

/// Whether one of `sorted`, by their starts, has a part of `range`.
fn overlaps(sorted: &[Range<u64>], range: &Range<u64>) -> bool {
    let after = sorted.partition_point(|known| known.start < range.end);
    sorted[..after].iter().any(|known| known.end > range.start)
}
