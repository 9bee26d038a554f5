//! `DW_CFA_GNU_args_size`: how many bytes of arguments lie on the stack at a call. An exception
//! continues at its landing pad without them (libgcc, `uw_install_context`).

use crate::table::Table;
use gimli::{BaseAddresses, CallFrameInstruction, EhFrame, LittleEndian, UnwindSection as _};
use unwind_sim_unwind::row::TableKind;

/// The sizes of a function's arguments on the stack: from which address (svma) on, and how many
/// bytes. Empty if it never pushes any.
pub fn args_sizes(table: &Table, function: u64, offset: u64) -> Vec<(u64, u64)> {
    if table.kind() != TableKind::EhFrame {
        return Vec::new();
    }
    read(table, function, offset).unwrap_or_default()
}

fn read(table: &Table, function: u64, offset: u64) -> gimli::Result<Vec<(u64, u64)>> {
    let section = EhFrame::new(table.section(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(table.address());
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let fde = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)?;
    let mut instructions = fde.instructions(&section, &bases);
    let (mut at, mut sizes) = (function, Vec::new());
    while let Some(instruction) = instructions.next()? {
        match instruction {
            CallFrameInstruction::AdvanceLoc { delta } => {
                let factor = fde.cie().code_alignment_factor();
                at = at.wrapping_add(u64::from(delta).wrapping_mul(factor));
            }
            CallFrameInstruction::SetLoc { address } => at = address,
            CallFrameInstruction::ArgsSize { size } => sizes.push((at, size)),
            _ => {}
        }
    }
    Ok(sizes)
}

/// The size at `pc`, bytes.
pub fn size_at(sizes: &[(u64, u64)], pc: u64) -> u64 {
    let after = sizes.partition_point(|s| s.0 <= pc);
    after.checked_sub(1).map_or(0, |i| sizes[i].1)
}
