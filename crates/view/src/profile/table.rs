//! The frames of a profile: their names, images, and addresses in them.

use std::collections::HashMap;

/// What distinguishes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The name of the function.
    Name,
    /// The address.
    Address,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// The number of its name.
    pub name: u32,
    /// The number of the function's symbol, mangled; the same as `name` where there is none.
    pub symbol: u32,
    /// The number of its image; `None` without one, or if only names matter.
    pub image: Option<u32>,
    /// Its address: in the image, or in the process without one; 0 if only names matter. For a
    /// return address, an address inside the call.
    pub address: u64,
    /// The start and size of the function, in the same terms.
    pub function: Option<(u64, u64)>,
}

/// An image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Image {
    /// Its path, or the kernel's name for it.
    pub path: String,
    /// Its build id; empty if not known.
    pub build_id: Vec<u8>,
}

/// The frames met so far, by number.
#[derive(Debug)]
pub struct Table {
    detail: Detail,
    names: Vec<String>,
    name_ids: HashMap<String, u32>,
    images: Vec<Image>,
    image_ids: HashMap<Image, u32>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
}

impl Table {
    /// An empty table.
    pub fn new(detail: Detail) -> Table {
        Table {
            detail,
            names: Vec::new(),
            name_ids: HashMap::new(),
            images: Vec::new(),
            image_ids: HashMap::new(),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
        }
    }

    /// All frames, in the order in which they were added.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The name with this number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// The images met.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// A frame that is only a name.
    pub fn label(&mut self, name: &str) -> u32 {
        let name = self.intern(name);
        self.add(Frame {
            name,
            symbol: name,
            image: None,
            address: 0,
            function: None,
        })
    }

    /// The number of an image.
    pub fn image(&mut self, image: &Image) -> u32 {
        if let Some(&number) = self.image_ids.get(image) {
            return number;
        }
        let number = self.images.len() as u32;
        self.images.push(image.clone());
        self.image_ids.insert(image.clone(), number);
        number
    }

    /// The number of a name.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.name_ids.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_ids.insert(name.to_owned(), number);
        number
    }

    /// The number of a frame.
    pub fn add(&mut self, frame: Frame) -> u32 {
        let frame = match self.detail {
            Detail::Address => frame,
            Detail::Name => Frame {
                symbol: frame.name,
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

    /// Adds the contents of `other`, and returns the new numbers of its frames.
    pub fn merge(&mut self, other: &Table) -> Vec<u32> {
        let names: Vec<u32> = other.names.iter().map(|name| self.intern(name)).collect();
        let images: Vec<u32> = other.images.iter().map(|image| self.image(image)).collect();
        let new = |frame: &Frame| {
            let (name, symbol) = (names[frame.name as usize], names[frame.symbol as usize]);
            let image = frame.image.map(|image| images[image as usize]);
            self.add(Frame {
                name,
                symbol,
                image,
                ..*frame
            })
        };
        other.frames.iter().map(new).collect()
    }

    /// The numbers of the frames sorted by name, then image and address. The order does not depend
    /// on the order in which they were met.
    pub fn ordered(&self) -> Vec<u32> {
        let key = |&at: &u32| {
            let frame = self.frames[at as usize];
            let image = frame.image.map(|image| &self.images[image as usize]);
            let names = (self.name(frame.name), self.name(frame.symbol));
            (names, image, frame.address, frame.function)
        };
        let mut order: Vec<u32> = (0..self.frames.len() as u32).collect();
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        order
    }
}
