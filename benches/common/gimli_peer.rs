//! Bare gimli: for every frame a search in `.eh_frame_hdr`, the row, and all 17 registers, with
//! nothing kept between frames. Also evaluates all rows of a table.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr,
    Register, RegisterRule, UnwindContext, UnwindSection,
};

use super::image::{Elf, Image};
use super::snapshot::{REGS, RIP, RSP, Stack};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

struct Tables<'a> {
    image: &'a Image,
    bases: BaseAddresses,
    eh_frame: EhFrame<Reader<'a>>,
    hdr: ParsedEhFrameHdr<Reader<'a>>,
}

/// The base addresses for relative pointers in these sections.
pub(crate) fn bases(elf: &Elf) -> BaseAddresses {
    let start = |s: &Option<super::image::Section>| s.as_ref().map_or(0, |s| s.svma.start);
    BaseAddresses::default()
        .set_eh_frame(start(&elf.eh_frame))
        .set_eh_frame_hdr(start(&elf.eh_frame_hdr))
        .set_text(start(&elf.text))
        .set_got(start(&elf.got))
}

/// The images' tables and gimli's scratch space.
pub(crate) struct Gimli<'a> {
    tables: Vec<Tables<'a>>,
    context: UnwindContext<usize>,
}

impl<'a> Gimli<'a> {
    pub(crate) fn new(images: &'a [Image]) -> Self {
        let tables = images.iter().filter_map(|image| {
            let bases = bases(&image.elf);
            let hdr = &image.elf.eh_frame_hdr.as_ref()?.bytes;
            let hdr = EhFrameHdr::new(hdr, LittleEndian).parse(&bases, 8).ok()?;
            let eh_frame = EhFrame::new(&image.elf.eh_frame.as_ref()?.bytes, LittleEndian);
            Some(Tables {
                image,
                bases,
                eh_frame,
                hdr,
            })
        });
        Gimli {
            tables: tables.collect(),
            context: UnwindContext::new(),
        }
    }

    /// Appends the addresses of a walk to `out`, like framehop's walk.
    pub(crate) fn walk(&mut self, start: &[u64; REGS], stack: Stack<'_>, out: &mut Vec<u64>) {
        let mut regs = *start;
        let mut lookup = regs[RIP];
        out.push(lookup);
        while let Some(caller) = self.step(lookup, &regs, stack) {
            if caller[RIP] == 0 || caller[RSP] <= regs[RSP] {
                break;
            }
            regs = caller;
            out.push(regs[RIP]);
            lookup = regs[RIP] - 1;
        }
    }

    fn step(&mut self, pc: u64, regs: &[u64; REGS], stack: Stack<'_>) -> Option<[u64; REGS]> {
        let t = self.tables.iter().find(|t| t.image.range.contains(&pc))?;
        let svma = pc.wrapping_sub(t.image.bias);

        // The binary search table of `.eh_frame_hdr` leads to the FDE.
        let fde = t.hdr.table()?.lookup(svma, &t.bases).ok()?;
        let offset = t.hdr.table()?.pointer_to_offset(fde).ok()?;
        let fde = t
            .eh_frame
            .fde_from_offset(&t.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        let row = fde
            .unwind_info_for_address(&t.eh_frame, &t.bases, &mut self.context, svma)
            .ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return None;
        };

        let cfa = regs
            .get(usize::from(register.0))?
            .wrapping_add_signed(offset);

        // The CFA is the value of rsp before the call (psABI, DWARF definition), so it is the
        // caller's rsp.
        let mut caller = *regs;
        caller[RSP] = cfa;
        // If the row says nothing of the return address, there is no caller.
        caller[RIP] = 0;
        for (number, value) in caller.iter_mut().enumerate() {
            match row.register(Register(number as u16)) {
                Some(RegisterRule::Offset(n)) => {
                    *value = stack.read(cfa.wrapping_add_signed(n))?;
                }
                Some(RegisterRule::ValOffset(n)) => *value = cfa.wrapping_add_signed(n),
                Some(RegisterRule::Register(other)) => *value = *regs.get(usize::from(other.0))?,
                // Without a rule, callee-saved registers are unchanged. The others mean nothing in
                // the caller.
                Some(RegisterRule::SameValue) | None => {}
                Some(RegisterRule::Undefined) => *value = 0,
                Some(_) => return None,
            }
        }

        Some(caller)
    }
}

/// Evaluates every row of a file's `.eh_frame`; returns (FDEs, rows).
pub(crate) fn count_rows(elf: &Elf) -> (u64, u64) {
    let Some(section) = &elf.eh_frame else {
        return (0, 0);
    };
    let (bases, eh_frame) = (bases(elf), EhFrame::new(&section.bytes, LittleEndian));
    let mut context = UnwindContext::new();
    let (mut fdes, mut rows) = (0, 0);
    let mut entries = eh_frame.entries(&bases);

    // An entry that cannot be read ends this: where the next one starts is not known then.
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };

        // What gimli cannot read is not counted.
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let Ok(mut table) = fde.rows(&eh_frame, &bases, &mut context) else {
            continue;
        };
        fdes += 1;
        while let Ok(Some(row)) = table.next_row() {
            // Otherwise the compiler could leave out what makes the row.
            std::hint::black_box(row);
            rows += 1;
        }
    }

    (fdes, rows)
}
