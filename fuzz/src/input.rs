//! Structured values from bytes: an image with its sections, registers, pieces of memory.
//!
//! Every input is valid, and changing a byte affects little of the rest, which helps a fuzzer make
//! progress. Integers are little-endian; after the end come zeros. `make-seeds.py` writes the same
//! format.

use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::regs::{Reg, Regs};

/// Maximum bytes of text of an image.
const TEXT_MAX: u64 = 1 << 20;
/// Maximum number of sections of an image.
const SECTIONS_MAX: usize = 8;

/// The input, consumed from the front.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Input { rest: data }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn integer<const N: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(N);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.integer::<1>() as u8
    }

    pub(crate) fn u16(&mut self) -> u16 {
        self.integer::<2>() as u16
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.integer::<4>() as u32
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.integer::<8>()
    }

    /// A 16-bit length and that many bytes.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(len.into())
    }

    /// An image: its text (start and length, 32 bits each), the number of sections (8 bits), and
    /// for each its kind (8 bits), address (32 bits) and bytes (a piece).
    pub(crate) fn image(&mut self) -> Image {
        let start = u64::from(self.u32());
        let text = start..start + u64::from(self.u32()) % TEXT_MAX;
        let count = usize::from(self.u8()) % (SECTIONS_MAX + 1);
        let mut sections = Vec::new();
        for _ in 0..count {
            let kind = SectionKind::ALL[usize::from(self.u8()) % SectionKind::ALL.len()];
            let address = self.u32().into();
            let data = Bytes::from_vec(self.piece().to_vec());
            sections.push(Section {
                kind,
                address,
                data,
            });
        }
        Image::new(ImageParts {
            name: "fuzzed".into(),
            text: vec![text],
            sections,
            ..ImageParts::default()
        })
    }

    /// An address: a tag, then a 16-bit offset into `text` or `stack`, or any 64 bits, as the tag
    /// says. `None` if the tag says unknown.
    pub(crate) fn address(&mut self, text: &Range<u64>, stack: u64) -> Option<u64> {
        match self.u8() % 8 {
            0 => None,
            1..4 => Some(stack.wrapping_add(self.u16().into())),
            4..6 => Some(text.start.wrapping_add(self.u16().into())),
            6 => Some(self.u64()),
            _ => Some(self.u8().into()),
        }
    }

    /// A value for every register, each tagged like an address.
    pub(crate) fn regs(&mut self, text: &Range<u64>, stack: u64) -> Regs {
        let mut regs = Regs::UNKNOWN;
        for reg in Reg::ALL {
            if let Some(value) = self.address(text, stack) {
                regs.set(reg, value);
            }
        }
        regs
    }
}
