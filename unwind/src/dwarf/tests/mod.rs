//! Hand-made sections: every instruction, every augmentation, malformed ones.

mod hostile;
mod instructions;
mod lookup;
mod sections;
mod tables;

use super::{compile_unit, units};
use crate::cache::Cache;
use crate::image::{Bytes, Image, ImageParts, Section, SectionKind};
use crate::reason::Reason;
use crate::row::TableKind;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The address of the hand-made `.eh_frame`.
const ADDRESS: u64 = 0x8000;
/// The function that its FDE covers.
const FUNCTION: core::ops::Range<u64> = 0x1000..0x1100;
/// DW_CFA_def_cfa rsp+8, DW_CFA_offset ra at cfa-8: the same in every compiler's CIE.
const USUAL: &[u8] = &[0x0c, 7, 8, 0x90, 1];

/// An entry of `.eh_frame` or `.debug_frame`: its length, then `body`, padded with nops.
fn entry(body: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(8) - body.len();
    let mut out = Vec::new();
    out.extend(((body.len() + padding) as u32).to_le_bytes());
    out.extend(body);
    out.extend(core::iter::repeat_n(0, padding));
    out
}

/// The fields of a CIE.
struct Cie<'a> {
    version: u8,
    augmentation: &'a str,
    data: &'a [u8],
    code_align: u8,
    ra: u8,
    program: &'a [u8],
}

impl Default for Cie<'_> {
    fn default() -> Self {
        Cie {
            version: 1,
            augmentation: "",
            data: &[],
            code_align: 1,
            ra: 16,
            program: USUAL,
        }
    }
}

impl Cie<'_> {
    /// The entry with this id; the data alignment is -8.
    fn bytes(&self, id: u32) -> Vec<u8> {
        let mut body = id.to_le_bytes().to_vec();
        body.push(self.version);
        body.extend(self.augmentation.as_bytes());
        body.push(0);
        if self.version == 4 {
            body.extend([8, 0]);
        }
        body.extend([self.code_align, 0x78, self.ra]);
        body.extend(self.data);
        body.extend(self.program);
        entry(&body)
    }

    /// An `.eh_frame` with this CIE and an FDE for [`FUNCTION`] with `program`.
    fn eh_frame(&self, program: &[u8]) -> Vec<u8> {
        let mut out = self.bytes(0);
        let mut body = (out.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend(FUNCTION.start.to_le_bytes());
        body.extend((FUNCTION.end - FUNCTION.start).to_le_bytes());
        if self.augmentation.starts_with('z') {
            body.push(0);
        }
        body.extend(program);
        out.extend(entry(&body));
        out
    }

    /// The offset of the FDE's program in [`Cie::eh_frame`].
    fn program_offset(&self) -> u64 {
        let data = self.augmentation.starts_with('z');
        self.bytes(0).len() as u64 + 24 + u64::from(data)
    }
}

fn image(kind: SectionKind, address: u64, bytes: Vec<u8>) -> Image {
    let data = Bytes::from_vec(bytes);
    Image::new(ImageParts {
        text: alloc::vec![0..u64::MAX],
        sections: alloc::vec![Section {
            kind,
            address,
            data
        }],
        ..ImageParts::default()
    })
}

/// A table's first FDE: its rows as `address: rule`, the offsets of what made them, and its error.
#[derive(PartialEq, Eq, Debug)]
struct Compiled {
    rows: Vec<String>,
    offsets: Vec<u64>,
    error: Option<(u64, Reason)>,
}

/// Compiles the first FDE of `image`.
fn compile(image: &Image, kind: TableKind) -> Result<Compiled, Reason> {
    let mut cache = Cache::new();
    let unit = units(image, kind).next().expect("an FDE")?;
    let id = compile_unit(image, kind, unit.offset, &mut cache)?;
    let row = |row| {
        let start = cache.source(row).start;
        alloc::format!("{start:x}: {}", cache.rule(row)).to_string()
    };
    Ok(Compiled {
        rows: cache.unit_rows(id).map(row).collect(),
        offsets: cache
            .unit_rows(id)
            .map(|r| cache.source(r).row_offset)
            .collect(),
        error: cache.unit_error(id),
    })
}

fn compile_eh_frame(cie: &Cie<'_>, program: &[u8]) -> Result<Compiled, Reason> {
    let image = image(SectionKind::EhFrame, ADDRESS, cie.eh_frame(program));
    compile(&image, TableKind::EhFrame)
}
