//! Maps addresses of a process to frames of a profile.
//!
//! An address is looked up once for each address space, and a name is demangled once.

use super::table::{Frame, Image, Table};
use std::collections::HashMap;
use unwind_sim_recordings::names::{demangle, file_name};
use unwind_sim_unwind::image::{self, AddressSpace, Contents, ImageId};

/// The number of entries in the cache in front of the map.
const RECENT: usize = 1 << 12;
/// The maximum number of addresses that are remembered, at 32 bytes each.
const KNOWN_MAX: usize = 1 << 20;

/// An address and the number of its address space.
type Place = (u64, u32);

/// The lookups done so far.
#[derive(Debug)]
pub(super) struct Lookup {
    images: HashMap<ImageId, u32>,
    /// Name numbers by the start of the function.
    symbols: HashMap<(ImageId, u64), u32>,
    /// The numbers of address spaces, by what they have mapped.
    spaces: HashMap<Contents, u32>,
    known: HashMap<Place, u32>,
    recent: Vec<(Place, u32)>,
}

impl Lookup {
    pub(super) fn new() -> Lookup {
        Lookup {
            images: HashMap::new(),
            symbols: HashMap::new(),
            spaces: HashMap::new(),
            known: HashMap::new(),
            recent: vec![((0, u32::MAX), 0); RECENT],
        }
    }

    /// The number of an address space, for [`Lookup::frame`].
    pub(super) fn space(&mut self, contents: Contents) -> u32 {
        let next = self.spaces.len() as u32;
        *self.spaces.entry(contents).or_insert(next)
    }

    /// The number of the frame at `address` in `space`, whose number is given.
    #[inline]
    pub(super) fn frame(
        &mut self,
        table: &mut Table,
        space: &AddressSpace,
        number: u32,
        address: u64,
    ) -> u32 {
        let place = (address, number);
        let hash = (address ^ u64::from(number) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> 52) as usize & (RECENT - 1);
        match self.recent[at] {
            (known, frame) if known == place => frame,
            _ => {
                let frame = self.find(table, space, place);
                self.recent[at] = (place, frame);
                frame
            }
        }
    }

    #[inline(never)]
    fn find(&mut self, table: &mut Table, space: &AddressSpace, place: Place) -> u32 {
        if let Some(&frame) = self.known.get(&place) {
            return frame;
        }
        let frame = self.look(table, space, place.0);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(place, frame);
        frame
    }

    fn look(&mut self, table: &mut Table, space: &AddressSpace, address: u64) -> u32 {
        let mapping = space.find(address);
        let image = mapping.and_then(|mapping| Some((mapping, mapping.image.as_ref()?)));
        let Some((mapping, image)) = image else {
            let name = mapping.map_or("[unknown]".to_owned(), |m| bracketed(&m.name));
            let name = table.intern(&name);
            return table.add(Frame {
                name,
                image: None,
                address,
                function: None,
            });
        };
        let svma = mapping.svma(address);
        let symbol = image.symbol(svma);
        let name = match symbol {
            None => table.intern(&bracketed(image.name())),
            Some(symbol) => *self
                .symbols
                .entry((image.id(), symbol.address))
                .or_insert_with(|| table.intern(&demangle(&symbol.name))),
        };
        let image = self.image(table, image);
        table.add(Frame {
            name,
            image: Some(image),
            address: svma,
            function: symbol.map(|s| (s.address, s.size)),
        })
    }

    fn image(&mut self, table: &mut Table, image: &image::Image) -> u32 {
        *self.images.entry(image.id()).or_insert_with(|| {
            table.image(&Image {
                path: image.name().to_owned(),
                build_id: image.build_id().to_vec(),
            })
        })
    }
}

/// The name of a frame without a symbol, from that of its image or mapping: `[libc.so.6]`.
pub fn bracketed(name: &str) -> String {
    match file_name(name) {
        "" => "[unknown]".to_owned(),
        name if name.starts_with('[') => name.to_owned(),
        name => format!("[{name}]"),
    }
}
