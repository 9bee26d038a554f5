//! What a frame is: the name of its function, and where a profile keeps addresses, its place in
//! its image.
//!
//! An address is looked up once for each address space that it occurs in, a name demangled once.

use crate::names::{demangle, file_name};
use std::collections::HashMap;
use std::sync::Arc;
use unwind_sim_unwind::image::{AddressSpace, Image, ImageId};

/// How finely frames are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Detail {
    /// By the name of the function.
    Name,
    /// By address.
    Address,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FrameInfo {
    /// The number of its name.
    pub(super) name: u32,
    /// The number of its image; `None` without one, and where only names matter.
    pub(super) image: Option<u32>,
    /// Its address: the image's own (svma) with an image, the process's without; 0 where only
    /// names matter. Of a return address: inside the call.
    pub(super) address: u64,
    /// Begin and size of the function, in the same terms.
    pub(super) function: Option<(u64, u64)>,
}

/// Places of the cache before the map.
const RECENT: usize = 1 << 12;
/// Addresses remembered; the memory is 32 bytes each.
const KNOWN_MAX: usize = 1 << 20;

/// An address of a space; spaces are numbered here.
type Place = (u64, u32);

/// The frames met so far, by number.
#[derive(Debug)]
pub(super) struct Frames {
    detail: Detail,
    names: Vec<String>,
    name_ids: HashMap<String, u32>,
    images: Vec<Arc<Image>>,
    image_ids: HashMap<ImageId, u32>,
    symbols: HashMap<(ImageId, u64), u32>,
    frames: Vec<FrameInfo>,
    frame_ids: HashMap<FrameInfo, u32>,
    /// Numbers of address spaces, by stamp and number of mappings.
    spaces: HashMap<(u64, u32, usize), u32>,
    known: HashMap<Place, u32>,
    recent: Vec<(Place, u32)>,
}

impl Frames {
    pub(super) fn new(detail: Detail) -> Frames {
        Frames {
            detail,
            names: Vec::new(),
            name_ids: HashMap::new(),
            images: Vec::new(),
            image_ids: HashMap::new(),
            symbols: HashMap::new(),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            spaces: HashMap::new(),
            known: HashMap::new(),
            recent: vec![((0, u32::MAX), 0); RECENT],
        }
    }

    /// All frames.
    pub(super) fn all(&self) -> &[FrameInfo] {
        &self.frames
    }

    /// The name of that number.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// The images met.
    pub(super) fn images(&self) -> &[Arc<Image>] {
        &self.images
    }

    /// The number of a space, for [`Frames::frame`].
    pub(super) fn space(&mut self, stamp: (u64, u32, usize)) -> u32 {
        let next = self.spaces.len() as u32;
        *self.spaces.entry(stamp).or_insert(next)
    }

    /// A frame that is only a name.
    pub(super) fn label(&mut self, name: &str) -> u32 {
        let name = self.intern(name);
        self.add(FrameInfo {
            name,
            image: None,
            address: 0,
            function: None,
        })
    }

    /// The frame at `address` of `space`, which has this number.
    #[inline]
    pub(super) fn frame(&mut self, space: &AddressSpace, number: u32, address: u64) -> u32 {
        let place = (address, number);
        let hash = (address ^ u64::from(number) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> 52) as usize & (RECENT - 1);
        match self.recent[at] {
            (known, frame) if known == place => frame,
            _ => {
                let frame = self.find(space, place);
                self.recent[at] = (place, frame);
                frame
            }
        }
    }

    #[inline(never)]
    fn find(&mut self, space: &AddressSpace, place: Place) -> u32 {
        if let Some(&frame) = self.known.get(&place) {
            return frame;
        }
        let frame = self.look(space, place.0);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(place, frame);
        frame
    }

    fn look(&mut self, space: &AddressSpace, address: u64) -> u32 {
        let Some(mapping) = space.find(address) else {
            let name = self.intern("[unknown]");
            return self.add(FrameInfo {
                name,
                image: None,
                address,
                function: None,
            });
        };
        let Some(image) = &mapping.image else {
            let name = self.intern(&bracketed(&mapping.name));
            return self.add(FrameInfo {
                name,
                image: None,
                address,
                function: None,
            });
        };
        let svma = mapping.svma(address);
        let symbol = image.symbol(svma);
        let name = match symbol {
            None => self.intern(&bracketed(image.name())),
            Some(symbol) => {
                let key = (image.id(), symbol.address);
                match self.symbols.get(&key) {
                    Some(&name) => name,
                    None => {
                        let name = self.intern(&demangle(&symbol.name));
                        self.symbols.insert(key, name);
                        name
                    }
                }
            }
        };
        let image = Some(self.image(image));
        let function = symbol.map(|s| (s.address, s.size));
        self.add(FrameInfo {
            name,
            image,
            address: svma,
            function,
        })
    }

    fn image(&mut self, image: &Arc<Image>) -> u32 {
        let images = &mut self.images;
        *self.image_ids.entry(image.id()).or_insert_with(|| {
            images.push(image.clone());
            (images.len() - 1) as u32
        })
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.name_ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    fn add(&mut self, frame: FrameInfo) -> u32 {
        let frame = match self.detail {
            Detail::Address => frame,
            Detail::Name => FrameInfo {
                image: None,
                address: 0,
                function: None,
                ..frame
            },
        };
        let frames = &mut self.frames;
        *self.frame_ids.entry(frame).or_insert_with(|| {
            frames.push(frame);
            (frames.len() - 1) as u32
        })
    }

    /// Adds what `other` met, and returns the new number of each of its frames.
    pub(super) fn merge(&mut self, other: &Frames) -> Vec<u32> {
        let names: Vec<u32> = other.names.iter().map(|name| self.intern(name)).collect();
        let images: Vec<u32> = other.images.iter().map(|image| self.image(image)).collect();
        let new = |frame: &FrameInfo| {
            let name = names[frame.name as usize];
            let image = frame.image.map(|image| images[image as usize]);
            self.add(FrameInfo {
                name,
                image,
                ..*frame
            })
        };
        other.frames.iter().map(new).collect()
    }

    /// The rank of each frame by its name, then image and address: the same whatever the order
    /// in which they were met.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let key = |&at: &u32| {
            let frame = self.frames[at as usize];
            let image = frame.image.map(|i| &self.images[i as usize]);
            (
                self.name(frame.name),
                image.map(|i| (i.name(), i.build_id())),
                frame.address,
            )
        };
        let mut order: Vec<u32> = (0..self.frames.len() as u32).collect();
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        let mut ranks = vec![0; order.len()];
        for (rank, &frame) in order.iter().enumerate() {
            ranks[frame as usize] = rank as u32;
        }
        ranks
    }
}

/// The image's or mapping's name where there is no symbol: `[libc.so.6]`.
fn bracketed(name: &str) -> String {
    match file_name(name) {
        "" => "[unknown]".to_owned(),
        name if name.starts_with('[') => name.to_owned(),
        name => format!("[{name}]"),
    }
}
