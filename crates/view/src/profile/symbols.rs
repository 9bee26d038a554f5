//! Maps addresses of a process to frames of a profile.
//!
//! An address is looked up once for each address space, and a name is demangled once.

use super::table::{Frame, Image, Table};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use unwind_sim_perf_data::KernelCode;
use unwind_sim_perf_script::symbols::{KernelSymbols, Symbols};
use unwind_sim_recordings::names::{demangle, file_name, kernel_generated};
use unwind_sim_unwind::image::{self, AddressSpace, Contents, ImageId};

/// The number of entries in the cache in front of the map.
const RECENT: usize = 1 << 12;
/// The maximum number of addresses that are remembered, at 32 bytes each.
const KNOWN_MAX: usize = 1 << 20;

/// The maximum number of states of the kernel's code that are remembered.
const KERNELS_MAX: usize = 1 << 10;
/// The name of a kernel frame where the recording does not say what is there.
pub(super) const KERNEL: &str = "[kernel]";

/// An address and the number of its address space.
type SpaceAddress = (u64, u32);

/// The lookups done so far.
pub(super) struct Lookup<'f> {
    images: HashMap<ImageId, u32>,
    /// Name numbers by the start of the function.
    symbols: HashMap<(ImageId, u64), (u32, u32)>,
    /// The numbers of address spaces, by what they have mapped.
    spaces: HashMap<Contents, u32>,
    known: HashMap<SpaceAddress, u32>,
    /// The frames of the kernel's code, by what it has mapped there.
    kernel: HashMap<(u64, u32), u32>,
    kernels: Vec<Arc<KernelCode>>,
    files: &'f Mutex<KernelSymbols>,
    recent: Vec<(SpaceAddress, u32)>,
}

impl<'f> Lookup<'f> {
    /// Nothing is looked up yet. The kernel's symbols come from `files`.
    pub(super) fn new(files: &'f Mutex<KernelSymbols>) -> Lookup<'f> {
        Lookup {
            images: HashMap::new(),
            symbols: HashMap::new(),
            spaces: HashMap::new(),
            known: HashMap::new(),
            kernel: HashMap::new(),
            kernels: Vec::new(),
            files,
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
    fn find(&mut self, table: &mut Table, space: &AddressSpace, place: SpaceAddress) -> u32 {
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
            // Memory without an image may be code that the kernel generated; else it is named by
            // its mapping.
            let generated = mapping.and_then(kernel_generated);
            let name = match (generated, mapping) {
                (Some((name, _)), _) => name.to_owned(),
                (None, Some(mapping)) => bracketed(&mapping.name),
                (None, None) => "[unknown]".to_owned(),
            };

            let name = table.intern(&name);
            return table.add(Frame {
                name,
                symbol: name,
                image: None,
                address,
                function: None,
            });
        };

        // Symbols have addresses of the file, whatever the image was moved by.
        let svma = mapping.svma(address);
        let symbol = image.symbol(svma);

        let (name, own) = match symbol {
            None => {
                let name = table.intern(&bracketed(image.name()));
                (name, name)
            }
            // Demangling is slow, and many addresses are of one function.
            Some(symbol) => *self
                .symbols
                .entry((image.id(), symbol.address))
                .or_insert_with(|| {
                    let own = demangled_from(&symbol.name);
                    (table.intern(&demangle(&symbol.name)), table.intern(own))
                }),
        };

        // The number of the image in the profile; images of all spaces are in one list.
        let image = self.image(table, image);
        table.add(Frame {
            name,
            symbol: own,
            image: Some(image),
            address: svma,
            function: symbol.map(|s| (s.address, s.size)),
        })
    }

    /// The number of the kernel's frame at `address`.
    pub(super) fn kernel_frame(
        &mut self,
        table: &mut Table,
        kernel: &Arc<KernelCode>,
        address: u64,
    ) -> u32 {
        // Usually there is one state for the whole recording.
        let is_it = |known: &Arc<KernelCode>| Arc::ptr_eq(known, kernel);
        let number = match self.kernels.iter().rposition(is_it) {
            Some(number) => number,
            None => {
                // Numbers of kernels are in the keys of the other cache, so both are emptied.
                if self.kernels.len() >= KERNELS_MAX {
                    self.kernels.clear();
                    self.kernel.clear();
                }
                self.kernels.push(kernel.clone());
                self.kernels.len() - 1
            }
        };

        // Addresses of different kernel states do not mean the same, so the state is part of the
        // key.
        let place = (address, number as u32);
        if let Some(&frame) = self.kernel.get(&place) {
            return frame;
        }

        // All workers share the kernel's symbols.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = kernel_frame(table, kernel, address, &mut *files);
        drop(files);

        // The cache is only emptied when it is full: a recording may have any number of addresses.
        if self.kernel.len() >= KNOWN_MAX {
            self.kernel.clear();
        }
        self.kernel.insert(place, frame);

        frame
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

/// The frame of the kernel at `address`. Addresses are offsets from the start of the kernel, the
/// module or the generated code: where they are differs from boot to boot.
fn kernel_frame(
    table: &mut Table,
    kernel: &KernelCode,
    address: u64,
    symbols: &mut dyn Symbols,
) -> u32 {
    // Outside of all that is known of the kernel, the address itself is all that can be given.
    let Some(map) = kernel.find(address, || symbols.kernel_range()) else {
        let name = table.intern(KERNEL);
        return table.add(Frame {
            name,
            symbol: name,
            image: None,
            address,
            function: None,
        });
    };

    let base = map.range.start;
    let path = String::from_utf8_lossy(&map.shown()).into_owned();

    // Code of the kernel and of modules is looked up by address, what was generated by its offset.
    let (object, at) = map.place(address);
    let symbol = symbols.symbol(&object, at);

    let name = match &symbol {
        Some(symbol) => table.intern(&String::from_utf8_lossy(symbol.name)),
        None => table.intern(&bracketed(&path)),
    };
    // Addresses of what was generated count from its start already.
    let base = if at == address { base } else { 0 };
    let function = symbol.map(|symbol| {
        let size = symbol.range.end.saturating_sub(symbol.range.start);
        (symbol.range.start.wrapping_sub(base), size)
    });

    // Images of a profile are known by path and build ID.
    let image = table.image(&Image {
        path,
        build_id: map.build_id.clone(),
    });
    table.add(Frame {
        name,
        symbol: name,
        image: Some(image),
        address: at.wrapping_sub(base),
        function,
    })
}

/// The symbol without its version.
fn demangled_from(symbol: &str) -> &str {
    symbol.split_once('@').map_or(symbol, |(name, _)| name)
}

/// The name of a frame without a symbol, from that of its image or mapping: `[libc.so.6]`.
pub fn bracketed(name: &str) -> String {
    match file_name(name) {
        "" => "[unknown]".to_owned(),
        name if name.starts_with('[') => name.to_owned(),
        name => format!("[{name}]"),
    }
}
