//! A synthetic stack through a real library: functions spread evenly over its whole table, each
//! stopped in a row whose CFA is based on rsp. None of it is cached: every walk is a first one.

use std::path::Path;

use gimli::{CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection};

use super::gimli_peer::bases;
use super::image::{Elf, Image};
use super::snapshot::{REGS, RIP, RSP, Snapshot};

const BIAS: u64 = 0x7f12_3450_0000;
const STACK_BASE: u64 = 0x7ffc_0000_0000;
const CFA_OFFSET_MAX: i64 = 4096;
const X86_RSP: Register = Register(7);
const X86_RA: Register = Register(16);

/// (address within a row, the row's CFA offset from rsp) for every function that has one.
fn stops(elf: &Elf) -> Vec<(u64, u64)> {
    let Some(section) = &elf.eh_frame else {
        return Vec::new();
    };
    let (bases, eh_frame) = (bases(elf), EhFrame::new(&section.bytes, LittleEndian));

    let mut context = UnwindContext::new();
    let mut stops = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let Ok(mut rows) = fde.rows(&eh_frame, &bases, &mut context) else {
            continue;
        };

        // One stop per function, in its longest row.
        let mut widest: Option<(u64, u64, u64)> = None;
        while let Ok(Some(row)) = rows.next_row() {
            let len = row.end_address().saturating_sub(row.start_address());
            let CfaRule::RegisterAndOffset {
                register: X86_RSP,
                offset,
            } = *row.cfa()
            else {
                continue;
            };

            // Only rows that a stack can be made for without more than rsp: the CFA is rsp plus an
            // offset, and the return address is right below it.
            let plain = row.register(X86_RA) == Some(RegisterRule::Offset(-8));
            if plain && len > 2 && (16..CFA_OFFSET_MAX).contains(&offset) && offset % 8 == 0 {
                // An address inside the row, which has more than 2 bytes.
                let candidate = (len, row.start_address() + 2, offset as u64);
                widest = widest.max(Some(candidate));
            }
        }
        stops.extend(widest.map(|(_, pc, offset)| (pc, offset)));
    }

    stops
}

/// A stack of `frames` frames through the file at `path`, over all of its functions but the first
/// `skip`.
pub(crate) fn stack(name: &str, path: &Path, frames: usize, skip: usize) -> Option<Snapshot> {
    let elf = Elf::open(path)?;
    let stops = stops(&elf);
    let stride = (stops.len() / frames).max(1);
    let mut stops = stops
        .iter()
        .skip(skip)
        .step_by(stride)
        .take(frames)
        .collect::<Vec<_>>();

    // A shuffled order, so that guessing the next function from the previous one gains nothing.
    stops.sort_by_key(|(pc, _)| pc.wrapping_mul(0x9e37_79b9_7f4a_7c15));

    let image = Image::at_bias(elf, BIAS)?;
    let mut words: Vec<u64> = Vec::new();
    for (i, (_, cfa_offset)) in stops.iter().enumerate() {
        // The CFA lies right above the return address, so one slot fewer holds data.
        let slots = (cfa_offset / 8 - 1) as usize;
        words.extend(std::iter::repeat_n(STACK_BASE + 0x5550, slots));
        words.push(stops.get(i + 1).map_or(0, |(pc, _)| pc + BIAS));
    }

    // Only rip and rsp matter: each CFA is relative to rsp.
    let mut regs = [0x1111; REGS];
    regs[RIP] = stops.first()?.0 + BIAS;
    regs[RSP] = STACK_BASE;
    let stack = words.iter().flat_map(|w| w.to_le_bytes()).collect();

    Some(Snapshot {
        name: name.to_owned(),
        regs,
        stack,
        images: vec![image],
    })
}
