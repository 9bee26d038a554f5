//! The code of a kernel as it is in memory. A kernel patches itself: alternatives, calls, jump labels,
//! and `int3` where something is probed.

use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::Core;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};

/// The bytes of a function that are looked at before and behind an instruction, at most.
const AROUND: u64 = 1 << 12;
/// The bytes that are read at once. Addresses of two pages may be mapped differently.
const PAGE: u64 = 4096;

/// The image of a kernel, with the code that was found in memory at the states that were gone to.
pub(super) struct Patched {
    image: Arc<Image>,
    /// How far the kernel is moved.
    bias: u64,
}

impl Patched {
    pub(super) fn new(image: Arc<Image>, bias: u64) -> Patched {
        Patched { image, bias }
    }

    /// The image now.
    pub(super) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Reads the functions around these addresses. Returns whether the image is another one now.
    ///
    /// Of other functions it has what was found last, or what the file says: they are not shown, and a
    /// kernel has too much code to compare all of it at each state.
    pub(super) fn read(&mut self, core: &Core, addresses: impl Iterator<Item = u64>) -> bool {
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for address in addresses {
            for page in self.pages(address.wrapping_sub(self.bias)) {
                let mut bytes = vec![0; (page.end - page.start) as usize];
                let at = page.start.wrapping_add(self.bias);
                // Code of the start is no longer executable when it was freed.
                if core.memory.fetch(at, &mut bytes).is_ok()
                    && self.image.text_bytes(page.start, bytes.len()) != bytes
                {
                    found.push((page.start, bytes));
                }
            }
        }
        if found.is_empty() {
            return false;
        }
        self.image = Arc::new(with_text(&self.image, &found));
        true
    }

    /// The ranges of pages that the function at an address has around it, as far as the image has code
    /// there.
    fn pages(&self, svma: u64) -> Vec<Range<u64>> {
        let near = svma.saturating_sub(AROUND)..svma.saturating_add(AROUND);
        let function = match self.image.symbol(svma) {
            Some(symbol) if symbol.size > 0 => {
                let end = symbol.address.saturating_add(symbol.size);
                symbol.address.max(near.start)..end.min(near.end)
            }
            _ => near,
        };
        let sections = self.image.sections().iter();
        let text = sections.filter(|section| section.kind == SectionKind::Text);
        let mut pages = Vec::new();
        for section in text {
            let end = section.address.saturating_add(section.data.len() as u64);
            let mut at = function.start.max(section.address);
            while at < function.end.min(end) {
                let next = (at / PAGE + 1) * PAGE;
                pages.push(at..next.min(function.end).min(end));
                at = next;
            }
        }
        pages
    }
}

/// The same image, with other bytes of code at some addresses.
fn with_text(image: &Image, found: &[(u64, Vec<u8>)]) -> Image {
    let section = |section: &Section| {
        let mut data = None;
        for (address, bytes) in found {
            let start = address.checked_sub(section.address);
            let start = start.and_then(|start| usize::try_from(start).ok());
            let Some(start) = start.filter(|_| section.kind == SectionKind::Text) else {
                continue;
            };
            let data = data.get_or_insert_with(|| section.data.to_vec());
            if let Some(to) = data.get_mut(start..start + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        }
        Section {
            data: data.map_or_else(|| section.data.clone(), Bytes::from_vec),
            ..section.clone()
        }
    };
    Image::new(ImageParts {
        name: image.name().to_owned(),
        build_id: image.build_id().to_vec(),
        text: image.text().to_vec(),
        sections: image.sections().iter().map(section).collect(),
        symbols: image.symbols().to_vec(),
    })
}
