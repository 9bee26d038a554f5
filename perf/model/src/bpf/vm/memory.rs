//! Loads and stores: each is checked against what its pointer points to.

use super::address::{Region, decode};
use super::{Owner, STACK_SIZE, Stack, Vm};
use crate::bpf::fault::FaultKind;

impl Stack {
    fn mark(&mut self, start: usize, length: usize) {
        for at in start..start + length {
            self.written[at / 64] |= 1 << (at % 64);
        }
    }

    /// The first byte of a range that was never written.
    fn unwritten(&self, start: usize, length: usize) -> Option<usize> {
        (start..start + length).find(|at| self.written[at / 64] >> (at % 64) & 1 == 0)
    }
}

/// The target of a checked access.
enum Target {
    Stack(usize, usize),
    Value(u32, u32, usize),
    Held(usize, usize),
    Context(i64),
}

impl Vm<'_> {
    /// The target of an access to `size` bytes at an address.
    fn target(&self, address: u64, size: usize) -> Result<Target, FaultKind> {
        let bytes = size as u64;
        let Some((region, offset)) = decode(address) else {
            // Within the distance of a field of a structure at a null pointer.
            return Err(if address.wrapping_add(1 << 16) < 1 << 17 {
                FaultKind::Null {
                    address,
                    size: bytes,
                }
            } else {
                FaultKind::NotAPointer {
                    address,
                    size: bytes,
                }
            });
        };

        // The sum may overflow: offsets come from the program.
        let bounds = |length: usize| {
            let outside = FaultKind::OutOfBounds {
                region,
                offset,
                size: bytes,
                length: length as u64,
            };
            let start = usize::try_from(offset).map_err(|_| outside)?;
            if start.checked_add(size).is_some_and(|end| end <= length) {
                Ok(start)
            } else {
                Err(outside)
            }
        };

        // A frame, element or record that is gone has length 0, so that every access to it is out
        // of bounds.
        match region {
            Region::Context => Ok(Target::Context(offset)),
            Region::Stack(frame) => {
                let length = if (frame as usize) < self.frames.len() {
                    STACK_SIZE
                } else {
                    0
                };
                Ok(Target::Stack(frame as usize, bounds(length)?))
            }
            Region::Value { map, slot } => {
                let found = self.maps.get(map as usize);
                let value = found.and_then(|found| found.value(slot));
                let start = bounds(value.map_or(0, <[u8]>::len))?;
                Ok(Target::Value(map, slot, start))
            }
            Region::Record(number) => {
                let held = self.held.get(number as usize);
                let start = bounds(held.map_or(0, |held| held.bytes.len()))?;
                Ok(Target::Held(number as usize, start))
            }
            // Only passed on, never read.
            Region::Map(_) | Region::Code => bounds(0).map(|_| Target::Context(0)),
        }
    }

    /// Loads of instructions from the stack are aligned.
    fn check_stack_alignment(start: usize, size: usize) -> Result<(), FaultKind> {
        if start.is_multiple_of(size) {
            Ok(())
        } else {
            Err(FaultKind::MisalignedStack {
                offset: start as i64 - STACK_SIZE as i64,
                size: size as u64,
            })
        }
    }

    /// Loads 1, 2, 4 or 8 bytes.
    pub(super) fn load(&self, address: u64, size: usize) -> Result<u64, FaultKind> {
        let mut word = [0; 8];
        match self.target(address, size)? {
            Target::Context(offset) => return self.context.read(offset, size),
            Target::Stack(frame, start) => {
                Self::check_stack_alignment(start, size)?;
                self.read_stack(frame, start, &mut word[..size])?;
            }
            Target::Value(map, slot, start) => {
                self.read_value(map, slot, start, &mut word[..size]);
            }
            Target::Held(number, start) => {
                word[..size].copy_from_slice(&self.held[number].bytes[start..start + size]);
            }
        }
        Ok(u64::from_le_bytes(word))
    }

    /// Stores 1, 2, 4 or 8 bytes.
    pub(super) fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), FaultKind> {
        if let Target::Stack(_, start) = self.target(address, size)? {
            Self::check_stack_alignment(start, size)?;
        }
        self.write(address, &value.to_le_bytes()[..size])
    }

    fn read_stack(&self, frame: usize, start: usize, into: &mut [u8]) -> Result<(), FaultKind> {
        let stack = &self.frames[frame].stack;
        if let Some(at) = stack.unwritten(start, into.len()) {
            return Err(FaultKind::UninitialisedStack {
                frame: frame as u32,
                offset: at as i64 - STACK_SIZE as i64,
            });
        }
        into.copy_from_slice(&stack.bytes[start..start + into.len()]);
        Ok(())
    }

    fn read_value(&self, map: u32, slot: u32, start: usize, into: &mut [u8]) {
        let found = self.maps.get(map as usize);
        if let Some(value) = found.and_then(|found| found.value(slot)) {
            into.copy_from_slice(&value[start..start + into.len()]);
        }
    }

    /// Reads bytes for a helper.
    pub(crate) fn read(&self, address: u64, size: usize) -> Result<Vec<u8>, FaultKind> {
        // The bounds are checked first, so that nothing is allocated for an impossible size.
        match self.target(address, size)? {
            Target::Stack(frame, start) => {
                let mut bytes = vec![0; size];
                self.read_stack(frame, start, &mut bytes)?;
                Ok(bytes)
            }
            Target::Value(map, slot, start) => {
                let mut bytes = vec![0; size];
                self.read_value(map, slot, start, &mut bytes);
                Ok(bytes)
            }
            Target::Held(number, start) => {
                Ok(self.held[number].bytes[start..start + size].to_vec())
            }
            Target::Context(offset) => Err(FaultKind::Context {
                offset,
                size: size as u64,
            }),
        }
    }

    /// Fails unless `size` bytes can be written.
    pub(crate) fn check_writable(&self, address: u64, size: usize) -> Result<(), FaultKind> {
        match self.target(address, size)? {
            Target::Context(_) => Err(FaultKind::ReadOnly(Region::Context)),
            Target::Stack(..) => Ok(()),
            Target::Held(number, _) => match self.held[number].owner {
                Owner::Helper => Err(FaultKind::ReadOnly(Region::Record(number as u32))),
                Owner::Ring { .. } | Owner::Nobody => Ok(()),
            },
            Target::Value(map, slot, _) => {
                let found = self.maps.get(map as usize);
                if found.is_some_and(crate::bpf::maps::Map::is_read_only) {
                    Err(FaultKind::ReadOnly(Region::Value { map, slot }))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Writes bytes, for an instruction or a helper.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        self.check_writable(address, bytes.len())?;
        match self.target(address, bytes.len())? {
            Target::Context(_) => {}
            Target::Stack(frame, start) => {
                let stack = &mut self.frames[frame].stack;
                stack.bytes[start..start + bytes.len()].copy_from_slice(bytes);
                stack.mark(start, bytes.len());
            }
            Target::Held(number, start) => {
                let held = &mut self.held[number].bytes;
                held[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Target::Value(map, slot, start) => {
                let found = self.maps.get_mut(map as usize);
                if let Some(value) = found.and_then(|found| found.value_mut(slot)) {
                    value[start..start + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}
