//! Generated code: what a JIT compiler wrote of it, in a jitdump file or in `perf-PID.map`.

use super::{FileProblemKind, ImageFinder, LOADED_MAX, MappingRequest, candidates, jit};
use crate::jitdump;
use crate::mapped::map_open_file;
use crate::open;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts};

impl ImageFinder {
    /// The code that a JIT compiler wrote to the jitdump file of a mapping. `has_times` says which
    /// clocks the times of the samples can be compared with.
    pub fn jitdump(
        &mut self,
        request: &MappingRequest<'_>,
        has_times: impl Fn(jitdump::Clock) -> bool,
    ) -> Option<Arc<jitdump::Layout>> {
        let key = (request.pid, request.name.to_owned());
        if let Some(known) = self.jitdumps.get(&key) {
            return known.clone();
        }

        let mut seen = FileProblemKind::NotFound;
        let mut found = None;
        let options = self.options.clone();
        for path in candidates::candidates(&options, request) {
            let bytes = open::file(&path);
            let bytes = bytes.and_then(|(file, data)| map_open_file(&path, &file, &data));
            let parsed = match bytes.map_err(FileProblemKind::from_io) {
                Ok(owner) => {
                    let length = (*owner).as_ref().len();
                    let bytes = Bytes::new(owner, 0..length);
                    let bytes = bytes.ok_or(jitdump::Problem::Magic);
                    let parsed = bytes.and_then(jitdump::Dump::parse);
                    parsed.map_err(FileProblemKind::Jitdump)
                }
                Err(kind) => Err(kind),
            };

            match parsed {
                Ok(dump) => {
                    found = Some(dump);
                    break;
                }
                // The first problem counts: the best candidate comes first.
                Err(kind) if seen == FileProblemKind::NotFound => seen = kind,
                Err(_) => {}
            }
        }

        let layout = found.map(|dump| {
            // Only the file says by which clock its times are.
            let has_times = has_times(dump.clock);
            Arc::new(jitdump::Layout::new(&dump, request.name, has_times))
        });

        match &layout {
            Some(layout) => {
                for problem in &layout.problems {
                    let kind = FileProblemKind::Jitdump(*problem);
                    self.problem(request.name, &[], kind);
                }
            }
            None => self.problem(request.name, &[], seen),
        }

        // A recording may name any number of files.
        if self.jitdumps.len() >= LOADED_MAX {
            self.jitdumps.clear();
        }
        // A missing file is remembered, too, so that it is reported once.
        self.jitdumps.insert(key, layout.clone());
        layout
    }

    /// An image of generated code: the symbols of `perf-PID.map` in the mapping.
    pub(super) fn jit_image(&mut self, request: &MappingRequest<'_>) -> Option<Arc<Image>> {
        let pid = request.pid;
        if !self.jit.contains_key(&pid) {
            let (symbols, problem) = jit::read(&self.options, pid);
            if let Some((path, kind)) = problem {
                self.problem(&path, &[], kind);
            }
            // A recording may name any number of processes.
            if self.jit.len() >= LOADED_MAX {
                self.jit.clear();
            }
            self.jit.insert(pid, Arc::new(symbols));
        }
        let symbols = self.jit.get(&pid)?;

        // The map has the whole process; `symbols` are sorted.
        let Range { start, end } = request.range;
        let first = symbols.partition_point(|s| s.address < start);
        let last = symbols.partition_point(|s| s.address < end);
        let inside = symbols
            .get(first..last)
            .filter(|inside| !inside.is_empty())?;

        let mut inside = inside.to_vec();
        // In a list without sizes, each symbol reaches to the next one.
        jit::fill_sizes(&mut inside, end);
        Some(Arc::new(Image::new(ImageParts {
            name: format!("perf-{pid}.map"),
            text: std::iter::once(request.range.clone()).collect(),
            symbols: inside,
            ..ImageParts::default()
        })))
    }
}
