//! Places: what was mapped at an address when it was met. An address belongs to the image that was
//! there at the time, whatever is mapped there later.

use super::memory::list_bytes;
use crate::hex::hex_bytes;
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageId, ImageParts, Mapping, Symbol};

/// The number of a place.
pub type PlaceId = u32;
/// Stands for no mapping.
pub const NOWHERE: PlaceId = PlaceId::MAX;

/// The places of a run: images at their addresses, and executable memory without an image, for as
/// long as each was mapped.
#[derive(Debug, Default)]
pub struct Places {
    all: Vec<Mapping>,
    images: HashMap<(ImageId, u64), PlaceId>,
    /// The currently mapped memory without an image.
    bare: Vec<(Range<u64>, PlaceId)>,
}

/// The mapped memory without images of a process that does not run.
#[derive(Debug, Default)]
pub(super) struct Bare(Vec<(Range<u64>, PlaceId)>);

impl Places {
    /// The place of `address` in `space`, the current address space.
    pub(super) fn at(&mut self, space: &AddressSpace, address: u64) -> PlaceId {
        let Some(mapping) = space.find(address) else {
            return NOWHERE;
        };
        let Some(image) = &mapping.image else {
            let mut bare = self.bare.iter();
            let bare = bare.find(|(range, _)| range.contains(&address));
            return bare.map_or(NOWHERE, |(_, id)| *id);
        };
        let next = self.all.len() as PlaceId;
        let key = (image.id(), mapping.bias);
        let id = *self.images.entry(key).or_insert(next);
        if id == next {
            self.all.push(mapping.clone());
        }
        id
    }

    /// Records a new mapping, which replaces what was there.
    pub(super) fn mapped(&mut self, mapping: &Mapping) {
        self.unmapped(&mapping.range);
        if mapping.image.is_none() {
            let id = self.all.len() as PlaceId;
            self.all.push(mapping.clone());
            self.bare.push((mapping.range.clone(), id));
        }
    }

    /// Whether this range is memory without an image that has been executable at some time since it
    /// was mapped.
    pub(super) fn is_bare(&self, range: &Range<u64>) -> bool {
        let mut bare = self.bare.iter();
        bare.any(|(r, _)| r.start <= range.start && range.end <= r.end)
    }

    /// Records that `range` was unmapped.
    pub(super) fn unmapped(&mut self, range: &Range<u64>) {
        let cut = |(bare, id): (Range<u64>, PlaceId)| {
            let left = bare.start..bare.end.min(range.start);
            let right = bare.start.max(range.end)..bare.end;
            let parts = [left, right].into_iter().filter(|part| !part.is_empty());
            parts.map(move |part| (part, id))
        };
        self.bare = self.bare.drain(..).flat_map(cut).collect();
    }

    /// Records that everything was unmapped.
    pub(super) fn clear(&mut self) {
        self.bare.clear();
    }

    /// Exchanges the mapped memory without images, which belongs to a process.
    pub(super) fn exchange(&mut self, bare: &mut Bare) {
        std::mem::swap(&mut self.bare, &mut bare.0);
    }

    /// A copy of the mapped memory without images, for a new process.
    pub(super) fn bare(&self) -> Bare {
        Bare(self.bare.clone())
    }

    /// The mapping of a place.
    pub fn mapping(&self, id: PlaceId) -> Option<&Mapping> {
        self.all.get(id as usize)
    }

    /// Adds the names of generated code to a place.
    pub(super) fn name(&mut self, id: PlaceId, symbols: &[Symbol]) {
        let Some(mapping) = self.all.get_mut(id as usize) else {
            return;
        };

        // They are in order of address, so those inside the mapping are one slice.
        let first = symbols.partition_point(|s| s.address < mapping.range.start);
        let last = symbols.partition_point(|s| s.address < mapping.range.end);
        let own = mapping.image.as_deref();
        let known = own.map_or(&[][..], Image::symbols);

        // A new image has a copy of all symbols, so it is made only if there are new ones.
        let inside = symbols[first..last].iter();
        let new: Vec<Symbol> = inside.filter(|s| !known.contains(s)).cloned().collect();
        if new.is_empty() {
            return;
        }

        let parts = match own {
            Some(image) => ImageParts {
                name: image.name().to_owned(),
                build_id: image.build_id().to_vec(),
                text: image.text().to_vec(),
                sections: image.sections().to_vec(),
                symbols: [known, &new].concat(),
            },
            None => ImageParts {
                name: "[jit]".to_owned(),
                text: vec![mapping.range.clone()],
                symbols: new,
                ..ImageParts::default()
            },
        };

        mapping.image = Some(Arc::new(Image::new(parts)));
    }

    /// The function at an address, or the mapping if no name is known.
    pub(super) fn function(&self, id: PlaceId, address: u64) -> String {
        let Some(mapping) = self.mapping(id) else {
            return format!("{address:#x}");
        };
        let image = mapping.image.as_ref();
        match image.and_then(|image| image.symbol(mapping.svma(address))) {
            Some(symbol) => symbol.name.clone(),
            None => format!("[anonymous {:#x}]", mapping.range.start),
        }
    }

    /// The first place of the same image.
    pub(super) fn image(&self, id: PlaceId) -> PlaceId {
        let image = |mapping: &Mapping| mapping.image.as_ref().map(|image| image.id());
        let Some(wanted) = self.mapping(id).and_then(image) else {
            return id;
        };
        let first = self.all.iter().position(|m| image(m) == Some(wanted));
        first.map_or(id, |first| first as PlaceId)
    }

    /// The build id of the image, in hex.
    pub fn build_id(&self, id: PlaceId) -> Option<String> {
        let image = self.mapping(id)?.image.as_ref()?;
        let bytes = image.build_id();
        (!bytes.is_empty()).then(|| hex_bytes(bytes))
    }

    /// The function, offset and image of an address.
    pub fn location(&self, id: PlaceId, address: u64) -> Location {
        Location::in_mapping(self.mapping(id), address, address)
    }

    /// Like [`Places::location`] for a return address, whose function is that of the call.
    pub fn caller(&self, id: PlaceId, address: u64) -> Location {
        let inside = CodeAddress::Return(address).symbol_address();
        Location::in_mapping(self.mapping(id), inside, address)
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        list_bytes(&self.all) + self.images.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Image, ImageParts};

    #[test]
    fn memory_mapped_anew_is_another_place() {
        let mapping = |range: Range<u64>| Mapping {
            range,
            bias: 0,
            image: None,
            name: String::new(),
        };
        let (mut places, mut space) = (Places::default(), AddressSpace::new());
        let mut map = |places: &mut Places, range: Range<u64>| {
            space.map(mapping(range.clone()));
            places.mapped(&mapping(range));
            [0x1000, 0x1fff, 0x2000, 0x2fff, 0x3000].map(|at| places.at(&space, at))
        };
        let [first, same, .., nothing] = map(&mut places, 0x1000..0x3000);
        assert_eq!((first == same, nothing), (true, NOWHERE));
        let [kept, _, other, end, _] = map(&mut places, 0x2000..0x3000);
        assert_eq!(kept, first);
        assert_eq!(other, end);
        assert_ne!(other, first);
        let [again, .., behind] = map(&mut places, 0x1000..0x4000);
        assert!(again != first && again != other && again == behind);
        assert!(places.is_bare(&(0x1000..0x4000)) && !places.is_bare(&(0x1000..0x4001)));
    }

    /// A mapping of an image with this build id at `bias`.
    fn of_image(image: &Arc<Image>, bias: u64) -> Mapping {
        Mapping {
            range: bias..bias + 0x1000,
            bias,
            image: Some(image.clone()),
            name: String::new(),
        }
    }

    #[test]
    fn an_image_has_a_place_for_each_of_its_addresses() {
        let image = |build_id: &[u8]| {
            Arc::new(Image::new(ImageParts {
                build_id: build_id.to_vec(),
                ..ImageParts::default()
            }))
        };

        let (named, other) = (image(&[0xab, 1]), image(&[]));
        let (mut places, mut space) = (Places::default(), AddressSpace::new());
        for mapping in [
            of_image(&other, 0x1000),
            of_image(&named, 0x2000),
            of_image(&named, 0x3000),
        ] {
            space.map(mapping);
        }

        let ids = [0x1000, 0x1fff, 0x2000, 0x3000, 0x2001];
        let ids = ids.map(|address| places.at(&space, address));
        assert_eq!(ids, [0, 0, 1, 2, 1]);

        // One image at two addresses is two places; the first of them stands for the image.
        let first = [0, 1, 2, NOWHERE].map(|id| places.image(id));
        assert_eq!(first, [0, 1, 1, NOWHERE]);
        let build_ids = [0, 1, 2, NOWHERE].map(|id| places.build_id(id));
        let named = Some("ab01".to_owned());
        assert_eq!(build_ids, [None, named.clone(), named, None]);

        let bytes = places.bytes();
        assert!((3 * size_of::<Mapping>()..4096).contains(&bytes), "{bytes}");

        // A mapping without an image is not the first place of an image.
        let bare = Mapping {
            image: None,
            ..of_image(&other, 0x4000)
        };
        space.map(bare.clone());
        places.mapped(&bare);
        assert_eq!(places.at(&space, 0x4000), 3);
        assert_eq!((places.image(3), places.build_id(3)), (3, None));

        // As when another program starts.
        places.clear();
        assert!(!places.is_bare(&(0x4000..0x4001)));
        assert_eq!(places.at(&space, 0x4000), NOWHERE);
    }
}
