//! Encodes `.eh_frame` and `.eh_frame_hdr` for a table.
//!
//! Where a row can be encoded in several ways, a random one is used: changing part of the CFA
//! definition or all of it, `same_value` or `restore`, remembering a state or repeating it.

use super::row::{Cfa, Fde, FrameLayout, Gpr, SAVED, Slot, Table};
use crate::random::Random;
use gimli::constants::{DW_EH_PE_pcrel, DW_EH_PE_sdata4};
use gimli::write::{
    Address, CallFrameInstruction, CommonInformationEntry, EhFrame, EndianVec, Expression,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{Encoding, Format, LittleEndian, Register};

/// The psABI's number of the return address.
const RA: Register = Register(16);
const DATA_ALIGNMENT: i8 = -8;

/// Both sections.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) eh_frame: Vec<u8>,
    pub(super) eh_frame_hdr: Vec<u8>,
}

/// A general register's number in the psABI (figure 3.36).
pub(super) fn dwarf_number(register: Gpr) -> u16 {
    const NUMBERS: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    NUMBERS[usize::from(register & 15)]
}

fn dwarf(register: Gpr) -> Register {
    Register(dwarf_number(register))
}

/// Encodes the sections for a table, with `.eh_frame` and the header at the given addresses.
///
/// # Errors
/// If a row cannot be encoded.
pub(super) fn encode(
    table: &Table,
    at: u64,
    header_at: u64,
    rng: &mut Random,
) -> Result<Sections, gimli::write::Error> {
    let mut frames = FrameTable::default();
    let encoding = Encoding {
        format: Format::Dwarf32,
        version: 1,
        address_size: 8,
    };

    let mut cie = CommonInformationEntry::new(encoding, 1, DATA_ALIGNMENT, RA);
    cie.fde_address_encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4;

    // Cloned before the rules are added: in the frame of a signal they do not hold.
    let mut signal = cie.clone();
    signal.signal_trampoline = true;

    // At an entry, the CFA is rsp (number 4) plus 8, and the return address lies just below it.
    cie.add_instruction(CallFrameInstruction::Cfa(dwarf(4), 8));
    cie.add_instruction(CallFrameInstruction::Offset(RA, -8));
    let [ordinary, signal] = [cie, signal].map(|cie| frames.add_cie(cie));

    for unit in &table.0 {
        let address = Address::Constant(unit.range.start.wrapping_sub(at));
        let length = (unit.range.end - unit.range.start) as u32;
        let mut fde = FrameDescriptionEntry::new(address, length);
        program(unit, &mut fde, rng);
        frames.add_fde(if unit.signal { signal } else { ordinary }, fde);
    }

    let mut out = EhFrame::from(EndianVec::new(LittleEndian));
    frames.write_eh_frame(&mut out)?;
    let mut eh_frame = out.0.into_vec();
    // A length of 0 ends the section.
    eh_frame.extend([0; 4]);

    let eh_frame_hdr = header(table, &eh_frame, at, header_at);
    Ok(Sections {
        eh_frame,
        eh_frame_hdr,
    })
}

/// A binary search table: `DW_EH_PE_pcrel | sdata4`, `udata4`, `datarel | sdata4`.
fn header(table: &Table, eh_frame: &[u8], at: u64, header_at: u64) -> Vec<u8> {
    let word = |offset: usize| {
        let bytes = eh_frame.get(offset..offset + 4);
        bytes
            .and_then(|b| b.try_into().ok())
            .map(u32::from_le_bytes)
    };

    let mut offsets = Vec::new();
    let mut offset = 0;
    while let (Some(length @ 1..), Some(id)) = (word(offset), word(offset + 4)) {
        // In `.eh_frame`, the id of a CIE is 0.
        if id != 0 {
            offsets.push(offset as u64);
        }
        // The length does not count its own field.
        offset += 4 + length as usize;
    }

    let mut entries: Vec<(u64, u64)> = Vec::new();
    // FDEs are grouped by CIE, so they are sorted by their own addresses, not by the table's order.
    for fde in offsets {
        let start = word(fde as usize + 8).map_or(0, |pc| pc as i32);
        entries.push(((at + fde + 8).wrapping_add_signed(start.into()), at + fde));
    }
    entries.sort_unstable();
    debug_assert_eq!(entries.len(), table.0.len());

    let relative = |address: u64| (address.wrapping_sub(header_at) as u32).to_le_bytes();
    // Version 1, then the encodings of the section's address, of the count and of the entries (LSB,
    // `.eh_frame_hdr`).
    let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
    // The address of the section is relative to this field, at offset 4.
    bytes.extend((at.wrapping_sub(header_at + 4) as u32).to_le_bytes());
    bytes.extend((entries.len() as u32).to_le_bytes());
    for (start, fde) in entries {
        bytes.extend(relative(start));
        bytes.extend(relative(fde));
    }
    bytes
}

/// The rows that occur again later, after others, and may be remembered: each one's index, and that
/// of its recurrence. Properly nested.
fn remembered(rows: &[(u64, FrameLayout)], rng: &mut Random) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (index, (_, row)) in rows.iter().enumerate() {
        open.retain(|&end| end > index);
        let again = rows
            .iter()
            .skip(index + 2)
            .position(|(_, other)| other == row);
        let Some(end) = again.map(|at| at + index + 2) else {
            continue;
        };
        if open.last().is_none_or(|&outer| end < outer) && rng.chance(3, 4) {
            open.push(end);
            out.push((index, end));
        }
    }
    out
}

fn program(unit: &Fde, fde: &mut FrameDescriptionEntry, rng: &mut Random) {
    let mut before = (!unit.signal).then_some(FrameLayout::ENTRY);
    let remembered = remembered(&unit.rows, rng);
    for (index, (address, row)) in unit.rows.iter().enumerate() {
        let offset = (address - unit.range.start) as u32;
        let comes_back = remembered.iter().any(|&(_, end)| end == index);
        if comes_back {
            fde.add_instruction(offset, CallFrameInstruction::RestoreState);
        } else {
            if index > 0 && remembered.iter().any(|&(start, _)| start == index - 1) {
                fde.add_instruction(offset, CallFrameInstruction::RememberState);
            }
            change(before.as_ref(), row, offset, fde, rng);
        }
        // The restored state would have to be remembered again.
        if comes_back && index > 0 && remembered.iter().any(|&(start, _)| start == index - 1) {
            debug_assert!(false, "a restored row follows a remembered one");
        }
        before = Some(*row);
    }
}

fn change(
    before: Option<&FrameLayout>,
    row: &FrameLayout,
    offset: u32,
    fde: &mut FrameDescriptionEntry,
    rng: &mut Random,
) {
    let mut add = |instruction| fde.add_instruction(offset, instruction);
    if before.is_none_or(|before| before.cfa != row.cfa) {
        add(cfa(before.map(|before| before.cfa), row.cfa, rng));
    }
    for (index, slot) in row.saved.into_iter().enumerate() {
        let old = before.map_or(Slot::Same, |before| before.saved[index]);
        if old != slot {
            add(register(dwarf(SAVED[index]), slot, rng));
        }
    }
    if before.is_none_or(|before| before.ra != row.ra) {
        add(register(RA, row.ra, rng));
    }
}

fn cfa(before: Option<Cfa>, cfa: Cfa, rng: &mut Random) -> CallFrameInstruction {
    match (before, cfa) {
        (Some(Cfa::Offset(old, _)), Cfa::Offset(new, offset)) if old == new && rng.chance(3, 4) => {
            CallFrameInstruction::CfaOffset(offset)
        }
        (Some(Cfa::Offset(_, old)), Cfa::Offset(base, offset))
            if old == offset && rng.chance(3, 4) =>
        {
            CallFrameInstruction::CfaRegister(dwarf(base))
        }
        (_, Cfa::Offset(base, offset)) => CallFrameInstruction::Cfa(dwarf(base), offset),
        (_, Cfa::Load(base, offset)) => {
            let mut expression = address(base, offset);
            expression.op_deref();
            CallFrameInstruction::CfaExpression(expression)
        }
    }
}

fn address(base: Gpr, offset: i32) -> Expression {
    let mut expression = Expression::new();
    expression.op_breg(dwarf(base), offset.into());
    expression
}

fn register(register: Register, slot: Slot, rng: &mut Random) -> CallFrameInstruction {
    match slot {
        Slot::Same if rng.chance(1, 2) => CallFrameInstruction::SameValue(register),
        Slot::Same => CallFrameInstruction::Restore(register),
        Slot::Undefined => CallFrameInstruction::Undefined(register),
        Slot::At(offset) => CallFrameInstruction::Offset(register, offset),
        Slot::Load(base, offset) => {
            CallFrameInstruction::Expression(register, address(base, offset))
        }
        Slot::Code(place) => {
            let mut expression = Expression::new();
            expression.op_addr(Address::Constant(place));
            CallFrameInstruction::ValExpression(register, expression)
        }
        Slot::Register(other) => CallFrameInstruction::Register(register, dwarf(other)),
    }
}
