//! Structured values out of bytes: an image with its sections, registers, pieces of memory.
//!
//! Every input means something, and a changed byte changes little of the rest, so that a fuzzer
//! gets on. Integers are little-endian; where the bytes end, zeros follow. `corpus/make-seeds.py`
//! writes the same.

use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::regs::{Reg, Regs};

/// Most bytes of text of an image.
const TEXT_MAX: u64 = 1 << 20;
/// Most sections of an image.
const SECTIONS_MAX: usize = 8;

/// Bytes that are taken from the front.
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

    /// A length of 16 bits and so many bytes.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(len.into())
    }

    /// An image: its text (start and length, 32 bits each), how many sections (8 bits), and for
    /// each its kind (8 bits), address (32 bits) and bytes (a piece).
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

    /// An address: inside `text` or `stack` (16 bits each, from the start), or any 64 bits, as
    /// the tag before it says; `None` if the tag says unknown.
    pub(crate) fn address(&mut self, text: &Range<u64>, stack: u64) -> Option<u64> {
        match self.u8() % 8 {
            0 => None,
            1..4 => Some(stack.wrapping_add(self.u16().into())),
            4..6 => Some(text.start.wrapping_add(self.u16().into())),
            6 => Some(self.u64()),
            _ => Some(self.u8().into()),
        }
    }

    /// A value, tagged as an address is, for every register.
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
