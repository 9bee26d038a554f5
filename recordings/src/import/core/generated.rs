//! Generated code that the program has registered for gdb.

use super::Importer;
use crate::gdb_jit::{self, SymbolFile};
use crate::model::{Event, Item};
use std::ops::ControlFlow;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};

/// Maximum number of bytes of code that an image keeps.
const TEXT_MAX: u64 = 1 << 20;
/// The name of a mapping with registered code, also in recordings of the emulator.
const NAME: &str = "[jit]";

impl Importer<'_, '_, '_, '_> {
    /// Maps the code in gdb's lists over the anonymous memory that it lies in.
    pub(super) fn generated(&mut self, pid: u32) -> ControlFlow<()> {
        let memory = self.memory;
        for descriptor in std::mem::take(&mut self.descriptors) {
            let read = |address, size| memory.bytes(address, size).to_vec();
            let (files, problems) = gdb_jit::registered(descriptor, read);
            let problems = problems.into_iter().map(Into::into);
            self.output.imported.problems.extend(problems);
            for file in files {
                self.map_generated(pid, file)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn map_generated(&mut self, pid: u32, file: SymbolFile) -> ControlFlow<()> {
        let memory = self.memory;
        let mut code = file.code();
        // A range that is not executable memory is not code.
        code.retain(|range| {
            let segment = memory.segment(range.start);
            segment.is_some_and(|s| s.executable && range.end <= s.range.end)
        });
        let Some(first) = code.first().map(|range| range.start) else {
            return ControlFlow::Continue(());
        };
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
                bias: 0,
                image: Some(index),
                name: NAME.to_owned(),
            }))?;
        }
        ControlFlow::Continue(())
    }
}
