//! What is mapped in the running process, and which tables are in force there.

use crate::verify::blocks::PlaceOf;
use crate::verify::images::Images;
use crate::verify::places::{Bare, PlaceId, Places};
use std::ops::Range;
use unwind_sim_emulator::linux::{MappedFile, SystemCall};
use unwind_sim_emulator::{Access, AddressSpace, Core, Permissions};
use unwind_sim_record::jit::{Jit, has_no_file};
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_unwind::image::{self, Mapping, Stamp};

/// A mapping without a file.
fn bare(range: Range<u64>) -> Mapping {
    Mapping {
        range,
        bias: 0,
        image: None,
        name: String::new(),
    }
}

/// What is mapped in the running process. `space` says which table is in force at an address; `places`
/// has a number for whatever is mapped at one, and `jit` what the program told of the code that it
/// generated.
///
/// After every change of `space`, `is_stale` is set until [`Mapped::take_stale`]: rows that were looked up
/// before may be used in the rest of a block, but not in the next one.
pub(super) struct Mapped {
    images: Images,
    pub(super) space: image::AddressSpace,
    pub(super) places: Places,
    pub(super) jit: Jit,
    is_stale: bool,
}

impl Mapped {
    /// Nothing is mapped yet. Images will be found by `images`.
    pub(super) fn new(images: Images) -> Mapped {
        Mapped {
            images,
            space: image::AddressSpace::new(),
            places: Places::default(),
            jit: Jit::default(),
            is_stale: false,
        }
    }

    /// The first file of the program that could not be read.
    pub(super) fn unread(&self) -> Option<&FileProblem> {
        self.images.unread()
    }

    /// The place of an address.
    #[inline]
    pub(super) fn place(&mut self, address: u64) -> PlaceId {
        self.places.at(&self.space, address)
    }

    /// The places of addresses, including those of mappings that are not code.
    pub(super) fn place_of(&mut self) -> PlaceOf<'_> {
        PlaceOf::new(&mut self.places, &self.space)
    }

    /// Another program starts: nothing is mapped.
    pub(super) fn clear(&mut self) {
        self.space.clear();
        self.places.clear();
    }

    /// Memory is mapped anew. Returns whether the images have changed.
    pub(super) fn add(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) -> bool {
        // New memory is other code than what a JIT compiler had there.
        self.jit.unmapped(&range);

        let mapping = match file {
            Some(file) => {
                self.jit.file_mapped(file.path);
                self.images.mapping(range, permissions, file)
            }
            None => bare(range),
        };

        if permissions.allow(Access::Execute) {
            self.places.mapped(&mapping);
            self.jit.mapped(&mapping);
        } else {
            // Memory that is not code: what was code there before is gone.
            self.places.unmapped(&mapping.range)
        }

        self.map(mapping, permissions)
    }

    /// Mapped memory gets other permissions. Returns whether the images have changed.
    pub(super) fn protect(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) -> bool {
        let mapping = match file {
            Some(file) if !has_no_file(&String::from_utf8_lossy(file.path)) => {
                return self.add(range, permissions, Some(file));
            }
            Some(file) => self.images.mapping(range.clone(), permissions, file),
            None => bare(range.clone()),
        };

        // Code that was writable for a while stays the same place.
        let is_code = permissions.allow(Access::Execute);
        if is_code && !self.places.is_bare(&mapping.range) {
            self.places.mapped(&mapping);
        }

        let is_changed = self.map(mapping, permissions);
        let is_laid = self.jit.covers(&range) && self.lay(&[range]);
        is_changed || is_laid
    }

    /// Memory is unmapped. Returns whether the images have changed.
    pub(super) fn remove(&mut self, range: Range<u64>) -> bool {
        let before = self.space.stamp();
        self.jit.unmapped(&range);
        self.places.unmapped(&range);
        self.space.unmap(range);
        self.note(before)
    }

    /// Records a mapping. Memory without a file is code if it is executable. Returns whether the images
    /// have changed.
    pub(super) fn map(&mut self, mapping: Mapping, permissions: Permissions) -> bool {
        let before = self.space.stamp();
        if mapping.name.is_empty() && !permissions.allow(Access::Execute) {
            self.space.unmap(mapping.range);
        } else {
            self.space.map(mapping);
        }
        self.note(before)
    }

    /// The function at `rip`, which registers unwind tables, is entered. Returns whether the images have
    /// changed.
    pub(super) fn entered_hook(&mut self, core: &Core, rip: u64) -> bool {
        const ARGUMENTS: [usize; 4] = [7, 6, 2, 1];
        let args = ARGUMENTS.map(|register| core.state.gpr(register));
        let changed = self.jit.entered(rip, args, &core.memory);
        self.lay(&changed)
    }

    /// A system call may have written to a jitdump file. Returns whether the images have changed.
    pub(super) fn called(&mut self, call: &SystemCall, memory: &AddressSpace) -> bool {
        let changed = self.jit.called(call, memory);
        self.lay(&changed)
    }

    /// Puts the registered tables in force for these parts of the memory. Returns whether the images have
    /// changed.
    fn lay(&mut self, ranges: &[Range<u64>]) -> bool {
        let before = self.space.stamp();
        for range in ranges {
            for mapping in self.jit.layout(&self.space, range) {
                self.space.map(mapping);
            }
        }
        self.note(before)
    }

    /// Whether `space` is another one than that with this stamp: then looked-up rows are no longer those
    /// of the images. A registered table changes them in the middle of a block, the rest of which is
    /// still needed.
    fn note(&mut self, before: Stamp) -> bool {
        let is_changed = self.space.stamp() != before;
        self.is_stale |= is_changed;
        is_changed
    }

    /// Whether rows that were looked up are no longer those of the images. They have to be forgotten now.
    #[inline]
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// What a new process has mapped: the same.
    pub(super) fn fork(&self) -> ParkedMap {
        ParkedMap {
            space: self.space.clone(),
            bare: self.places.bare(),
            jit: self.jit.clone(),
        }
    }

    /// Exchanges what is mapped with that of another process.
    pub(super) fn exchange(&mut self, other: &mut ParkedMap) {
        std::mem::swap(&mut self.space, &mut other.space);
        std::mem::swap(&mut self.jit, &mut other.jit);
        self.places.exchange(&mut other.bare);
    }
}

/// What is mapped in a process that does not run. Rows that were looked up there are not stale:
/// [`Mapped::take_stale`] comes before the exchange.
pub(super) struct ParkedMap {
    space: image::AddressSpace,
    bare: Bare,
    pub(super) jit: Jit,
}
