//! The memory of a state: all of a program's, and of a sample what was recorded, and code.

use super::Debuggee;
use crate::error::Error;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::{Memory, Regions};

impl Debuggee<'_> {
    /// Fills `to` with the memory from `address` on. Returns the number of bytes before the first one
    /// that is not known.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<usize, Error> {
        if let Some(len) = self.states.peek(address, to) {
            return Ok(len);
        }
        let Some(sample) = &self.here.sample else {
            return Ok(0);
        };
        let memory = sample.memory();
        if memory.read(address, to).is_ok() {
            return Ok(to.len());
        }

        let mut len = 0;
        self.states.with(self.here.number, &mut |at| {
            len = pieced(&memory, at.view.space, address, to);
        })?;
        Ok(len)
    }
}

/// Fills `to` from what was recorded of memory and, where nothing was, from the code of images.
fn pieced(memory: &Regions<'_>, space: &AddressSpace, address: u64, to: &mut [u8]) -> usize {
    for at in 0..to.len() {
        let Some(place) = address.checked_add(at as u64) else {
            return at;
        };
        if memory.read(place, &mut to[at..=at]).is_ok() {
            continue;
        }
        let Some(byte) = code_byte(space, place) else {
            return at;
        };
        to[at] = byte;
    }
    to.len()
}

/// The byte of an image's code at an address.
fn code_byte(space: &AddressSpace, address: u64) -> Option<u8> {
    let mapping = space.find(address)?;
    let image = mapping.image.as_ref()?;
    image.text_bytes(mapping.svma(address), 1).first().copied()
}
