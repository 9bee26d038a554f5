//! Generated code in a recording: its registered tables are images, and its functions get their
//! names at the end.

use super::Session;
use crate::jit::Jit;
use crate::locate;
use crate::mapping::{give_image, mapping_of};
use hashbrown::HashMap;
use std::io::Write;
use std::ops::Range;
use unwind_sim_emulator::linux::MappedFile;
use unwind_sim_emulator::{Access, Core, Permissions};
use unwind_sim_recordings::files::MappingRequest;
use unwind_sim_recordings::model::{self, ImageIndex};
use unwind_sim_unwind::image::{ImageParts, Mapping};

/// The generated code of all processes.
#[derive(Default)]
pub(super) struct Generated {
    /// That of the running process.
    pub(super) own: Jit,
    others: HashMap<u32, Jit>,
    ended: Vec<(u32, Jit)>,
    /// The images of generated code, with their processes and addresses.
    images: Vec<(u32, ImageIndex, Range<u64>)>,
}

impl Generated {
    /// The running process has made another one.
    pub(super) fn forked(&mut self, child: u32) {
        self.others.insert(child, self.own.clone());
    }

    /// A process or its program has ended.
    pub(super) fn process_ended(&mut self, process: u32) {
        let ended = self.others.remove(&process);
        let ended = ended.unwrap_or_else(|| std::mem::take(&mut self.own));
        if self.images.iter().any(|(owner, ..)| *owner == process) {
            self.ended.push((process, ended));
        }
    }

    /// Another thread runs from here on.
    pub(super) fn switched(&mut self, last: u32, next: u32) {
        if last != next
            && let Some(next) = self.others.remove(&next)
        {
            let own = std::mem::replace(&mut self.own, next);
            self.others.insert(last, own);
        }
    }
}

impl<W: Write> Session<'_, '_, W> {
    /// Memory was mapped, or its permissions changed: records it if it is executable.
    pub(super) fn remap(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        if !permissions.allow(Access::Execute) {
            return self.forget(range);
        }
        let pid = self.pid();
        let mapping = mapping_of(&mut self.recorder.finder, pid, range, file);
        self.generated.own.mapped(&mapping);
        self.record_mapping(mapping);
    }

    fn record_mapping(&mut self, mut mapping: Mapping) {
        let is_generated = give_image(&self.generated.own, &mut mapping);
        let Mapping {
            range,
            bias,
            image,
            name,
        } = mapping;

        let request = MappingRequest {
            pid: self.pid(),
            name: &name,
            range: range.clone(),
            file_offset: 0,
            executable: true,
            // The image is given, so nothing has to identify its file.
            build_id: &[],
        };
        let written = self.recorder.map(&request, (image.clone(), bias));
        self.check(written);

        // Its functions are named at the end.
        if is_generated && let Some(index) = image.as_ref().and_then(|i| self.recorder.index_of(i))
        {
            self.generated
                .images
                .push((self.pid(), index, range.clone()));
        }

        // Places that no image had may be in this one.
        self.place_missing(|name| locate(image.as_deref(), bias, &range, name));
    }

    /// Nothing executable is in this range any more.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        let pid = self.pid();
        let space = self.recorder.world.space(pid);
        let touches = |m: &Mapping| m.range.start < range.end && range.start < m.range.end;
        if !space.mappings().iter().any(touches) {
            return;
        }
        self.places.at.retain(|address, _| !range.contains(address));
        self.event(&model::Event::Unmap { pid, range });
    }

    /// Handles the entry of a function that registers unwind tables.
    #[inline]
    pub(super) fn maybe_hook(&mut self, core: &Core, rip: u64) {
        if self.generated.own.is_hook(rip) {
            const ARGUMENTS: [usize; 4] = [7, 6, 2, 1];
            let args = ARGUMENTS.map(|register| core.state.gpr(register));
            let changed = self.generated.own.entered(rip, args, &core.memory);
            self.lay(&changed);
        }
    }

    /// Records the registered tables of memory whose permissions changed, if there are any.
    pub(super) fn lay_again(&mut self, range: Range<u64>) {
        if self.generated.own.covers(&range) {
            self.lay(&[range]);
        }
    }

    /// Records the registered tables of these parts of the memory, or that there are none any more.
    pub(super) fn lay(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            let space = self.recorder.world.space(self.pid());
            for mapping in self.generated.own.layout(space, range) {
                self.record_mapping(mapping);
            }
        }
    }

    /// Names the functions of generated code. `file` reads a file as the program sees it.
    pub(super) fn name_generated(&mut self, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) {
        let pid = self.pid();
        let Generated {
            own,
            others,
            ended,
            images,
        } = std::mem::take(&mut self.generated);

        let ended = ended.iter().map(|(process, jit)| (*process, jit));
        let running = others.iter().map(|(process, jit)| (*process, jit));
        let mut named = std::collections::BTreeSet::new();
        for (process, jit) in [(pid, &own)].into_iter().chain(running).chain(ended) {
            let mine = images.iter().filter(|(owner, ..)| *owner == process);
            // A child may have the images of its parent, which are named once.
            let mine: Vec<_> = mine
                .filter(|image| named.insert((image.1.0, image.2.start)))
                .collect();

            if mine.is_empty() {
                continue;
            }

            let names = jit.names(process, file);
            for (_, index, range) in mine {
                // `names` are sorted by address.
                let first = names.partition_point(|s| s.address < range.start);
                let last = names.partition_point(|s| s.address < range.end);
                // Names of a symbol file are there already.
                let known = self.recorder.images[index.0 as usize].symbols();
                let new = names[first..last].iter().filter(|s| !known.contains(s));
                let parts = ImageParts {
                    symbols: new.cloned().collect(),
                    ..ImageParts::default()
                };

                if !parts.symbols.is_empty() {
                    let written = self.recorder.extend(*index, &parts);
                    self.check(written);
                }
            }
        }
    }
}
