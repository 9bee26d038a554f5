//! Claims that are not checked: those on registers that are not callee-saved.
//!
//! Walks do not carry such registers ([`Rule`](unwind_sim_unwind::rule::Rule) has none of them), and
//! the psABI lets every callee change them. Rows of signal frames and of hand-written functions name
//! them, all the same.

use crate::table::Table;
use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame,
    EndianSlice, LittleEndian, Register, UnwindSection,
};
use std::collections::BTreeSet;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The DWARF numbers of xmm0 and xmm15 (psABI, figure 3.36).
const XMM_FIRST: u16 = 17;
const XMM_LAST: u16 = 32;

/// The functions of one file whose rows claim something that is not checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unchecked {
    /// The starts (svma) of the functions, in the order of the tables.
    pub functions: Vec<u64>,
    /// The DWARF numbers of the registers.
    pub registers: BTreeSet<u16>,
}

impl Unchecked {
    /// The names of the registers.
    pub fn names(&self) -> Vec<String> {
        let names = self.registers.iter();
        names.map(|&number| name(number)).collect()
    }

    /// What the instructions of all FDEs of `tables` claim that no proof looks at. Instructions that
    /// cannot be read are skipped: whoever reads the rows reports them.
    pub(super) fn of<'t>(tables: impl Iterator<Item = &'t Table>) -> Unchecked {
        let mut out = Unchecked::default();
        for table in tables {
            let bases = BaseAddresses::default().set_eh_frame(table.address());
            match table.kind() {
                TableKind::EhFrame => {
                    let section = EhFrame::new(table.section(), LittleEndian);
                    out.read(&section, &bases);
                }
                TableKind::DebugFrame => {
                    let mut section = DebugFrame::new(table.section(), LittleEndian);
                    section.set_address_size(8);
                    out.read(&section, &bases);
                }
                _ => {}
            }
        }
        out
    }

    fn read<'a, S: UnwindSection<Slice<'a>>>(&mut self, section: &S, bases: &BaseAddresses) {
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(fde) = entry else {
                continue;
            };
            let Ok(fde) = fde.parse(S::cie_from_offset) else {
                continue;
            };
            let mut claimed = BTreeSet::new();
            claims(fde.cie().instructions(section, bases), &mut claimed);
            claims(fde.instructions(section, bases), &mut claimed);
            if !claimed.is_empty() && fde.len() > 0 {
                self.functions.push(fde.initial_address());
                self.registers.append(&mut claimed);
            }
        }
    }
}

/// The name of the register with this DWARF number: `rdi`, `xmm3`, `r67` if it has no other.
fn name(number: u16) -> String {
    match number {
        XMM_FIRST..=XMM_LAST => format!("xmm{}", number - XMM_FIRST),
        number => match Reg::ALL.get(usize::from(number)) {
            Some(reg) => reg.to_string(),
            None => format!("r{number}"),
        },
    }
}

/// Adds the registers that `instructions` say something of and that are not checked.
fn claims<'a>(
    mut instructions: CallFrameInstructionIter<'_, Slice<'a>>,
    claimed: &mut BTreeSet<u16>,
) {
    use CallFrameInstruction as I;
    while let Ok(Some(instruction)) = instructions.next() {
        let register = match instruction {
            I::SameValue { register }
            | I::Offset { register, .. }
            | I::OffsetExtendedSf { register, .. }
            | I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::Expression { register, .. }
            | I::ValExpression { register, .. } => register,
            I::Register { dest_register, .. } => dest_register,
            _ => continue,
        };
        if !is_checked(register) {
            claimed.insert(register.0);
        }
    }
}

/// Whether claims on this register are checked: the callee-saved ones, rsp and the return address.
fn is_checked(register: Register) -> bool {
    let mut checked = Reg::CALLEE_SAVED.into_iter().chain([Reg::Rsp, Reg::Rip]);
    checked.any(|reg| register.0 == reg as u16)
}
