//! The state of the CFI machine with a column for every register of the format, not only for those
//! that a [`Rule`](unwind_sim_unwind::rule::Rule) keeps.
//!
//! Source: DWARF 5, section 6.4.2; x86-64 psABI, figure "DWARF Register Number Mapping".

use super::super::DumpError;
use gimli::{CallFrameInstruction as Op, Register};
use unwind_sim_unwind::dwarf::STATES_MAX;

/// The number of registers that the x86-64 psABI numbers: 0 to 145, of which those of APX are the last.
pub(super) const REGISTERS: usize = 146;

/// What the table says about a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    /// `DW_CFA_undefined`, and every register before its first rule.
    Undefined,
    /// `DW_CFA_same_value`.
    Same,
    /// At CFA + offset.
    Offset(i64),
    /// Is CFA + offset.
    ValOffset(i64),
    /// In another register.
    Register(u16),
    /// At the result of an expression.
    Expression,
    /// Is the result of an expression.
    ValExpression,
}

/// The rule for the CFA, as the instructions have left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cfa {
    pub(super) register: u16,
    pub(super) offset: i64,
    pub(super) is_expression: bool,
}

/// The factors and rules that the FDEs of a CIE share.
#[derive(Clone, Debug)]
pub(super) struct CieState {
    pub(super) code_align: u64,
    pub(super) data_align: i64,
    /// The return address's register number.
    pub(super) ra: u16,
    pub(super) cfa: Cfa,
    /// The registers that the CIE has rules for, by number.
    pub(super) registers: Vec<(u16, Column)>,
}

/// The machine's state.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) cfa: Cfa,
    /// The registers that have a column, by number.
    registers: Vec<u16>,
    values: Vec<Column>,
    /// The place of each register in `values`.
    slots: [u8; REGISTERS],
    saved: Vec<(Cfa, Vec<Column>)>,
    pub(super) address: u64,
    code_align: u64,
    data_align: i64,
}

/// The mark of a register without a column.
const NONE: u8 = u8::MAX;

/// What an instruction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The state is complete for the addresses before this one (svma).
    Row(u64),
    /// Something changed.
    Rule,
    /// Nothing: padding.
    Nop,
}

type Instruction = Op<usize>;

impl Columns {
    pub(super) fn new() -> Self {
        Columns {
            cfa: Cfa::default(),
            registers: Vec::new(),
            values: Vec::new(),
            slots: [NONE; REGISTERS],
            saved: Vec::new(),
            address: 0,
            code_align: 1,
            data_align: 1,
        }
    }

    /// Starts an entry at `address` with the CIE's rules, and with a column for every register
    /// that the CIE or the entry's own instructions name.
    pub(super) fn start(
        &mut self,
        address: u64,
        common: &CieState,
        named: impl Iterator<Item = Instruction>,
    ) {
        // Only what the last entry used: there are far more slots than an entry names.
        for register in self.registers.drain(..) {
            self.slots[usize::from(register)] = NONE;
        }

        // The rules are those of the CIE again, whatever the last entry did.
        self.values.clear();
        self.saved.clear();
        self.cfa = common.cfa;
        self.address = address;
        self.code_align = common.code_align;
        self.data_align = common.data_align;

        // A column for each register that is named anywhere in the entry: readelf's heading has
        // them all.
        let own = named.filter_map(|op| register_of(&op));
        for register in common.registers.iter().map(|(r, _)| *r).chain(own) {
            let slot = self.slots.get_mut(usize::from(register));
            if let Some(slot) = slot.filter(|slot| **slot == NONE) {
                // A mark only: places follow the registers' numbers, once all are known.
                *slot = 0;
                self.registers.push(register);
            }
        }

        // readelf orders columns by register number.
        self.registers.sort_unstable();
        for (place, &register) in self.registers.iter().enumerate() {
            // There are fewer than 255 registers.
            self.slots[usize::from(register)] = place as u8;
        }

        // What has no rule is undefined in readelf's output, shown as `u`.
        self.values.resize(self.registers.len(), Column::Undefined);
        for &(register, column) in &common.registers {
            self.set(register, column);
        }
    }

    /// The columns, by register number.
    pub(super) fn columns(&self) -> impl Iterator<Item = (u16, Column)> {
        self.registers
            .iter()
            .copied()
            .zip(self.values.iter().copied())
    }

    fn set(&mut self, register: u16, column: Column) {
        let slot = self.slots.get(usize::from(register));
        if let Some(value) = slot.and_then(|&slot| self.values.get_mut(usize::from(slot))) {
            *value = column;
        }
    }

    fn factored(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.data_align)
    }

    /// The rules so far, as those of a CIE.
    pub(super) fn common(&self, ra: u16) -> CieState {
        CieState {
            code_align: self.code_align,
            data_align: self.data_align,
            ra,
            cfa: self.cfa,
            registers: self.columns().collect(),
        }
    }

    /// Executes an instruction of an entry whose CIE is `common`.
    pub(super) fn step(&mut self, op: &Instruction, common: &CieState) -> Result<Step, DumpError> {
        // The number comes from the file, and is an index below.
        let number = register_of(op);
        if number.is_some_and(|number| usize::from(number) >= REGISTERS) {
            return Err(DumpError::Reader("x86-64 has no register of this number"));
        }

        // A row ends where the address advances: everything before applies to the addresses up to
        // there.
        match *op {
            Op::Nop => return Ok(Step::Nop),
            Op::SetLoc { address } => return Ok(Step::Row(address)),
            Op::AdvanceLoc { delta } => {
                let delta = u64::from(delta).wrapping_mul(self.code_align);
                return Ok(Step::Row(self.address.wrapping_add(delta)));
            }
            // A remembered state is a copy of all columns, and DWARF sets no limit to their number.
            Op::RememberState if self.saved.len() >= STATES_MAX => {
                return Err(DumpError::Reader("too many remembered states"));
            }
            Op::RememberState => self.saved.push((self.cfa, self.values.clone())),
            Op::RestoreState => {
                let state = self.saved.pop();
                let state = state.ok_or(DumpError::Reader(
                    "restores a state that was not remembered",
                ));
                (self.cfa, self.values) = state?;
            }
            // Neither is about a column: the size of arguments, and AArch64's signed addresses.
            Op::ArgsSize { .. } | Op::NegateRaState => {}
            _ => match number {
                Some(number) => self.set(number, self.column(op, number, common)),
                None => self.set_cfa(op),
            },
        }

        Ok(Step::Rule)
    }

    /// The column that an instruction gives to its register.
    fn column(&self, op: &Instruction, number: u16, common: &CieState) -> Column {
        // Some instructions are factored by the CIE's data alignment, others have plain offsets.
        match *op {
            Op::SameValue { .. } => Column::Same,
            Op::Offset {
                factored_offset, ..
            } => Column::Offset(self.factored(factored_offset.cast_signed())),
            Op::OffsetExtendedSf {
                factored_offset, ..
            } => Column::Offset(self.factored(factored_offset)),
            Op::ValOffset {
                factored_offset, ..
            } => Column::ValOffset(self.factored(factored_offset.cast_signed())),
            Op::ValOffsetSf {
                factored_offset, ..
            } => Column::ValOffset(self.factored(factored_offset)),
            Op::Register { src_register, .. } => Column::Register(src_register.0),
            Op::Expression { .. } => Column::Expression,
            Op::ValExpression { .. } => Column::ValExpression,
            Op::Restore { .. } => {
                // Back to the rule that the CIE gave, if it gave one (DWARF 5, 6.4.2.3).
                let rule = common.registers.iter().find(|(r, _)| *r == number);
                rule.map_or(Column::Undefined, |(_, column)| *column)
            }
            _ => Column::Undefined,
        }
    }

    fn set_cfa(&mut self, op: &Instruction) {
        let (register, offset) = (self.cfa.register, self.cfa.offset);
        let plain = |Register(register), offset| Cfa {
            register,
            offset,
            is_expression: false,
        };

        // An instruction that gives only one of the two keeps the other.
        self.cfa = match *op {
            Op::DefCfa { register, offset } => plain(register, offset.cast_signed()),
            Op::DefCfaSf {
                register,
                factored_offset,
            } => plain(register, self.factored(factored_offset)),
            Op::DefCfaRegister { register } => plain(register, offset),
            Op::DefCfaOffset { offset } => plain(Register(register), offset.cast_signed()),
            Op::DefCfaOffsetSf { factored_offset } => {
                plain(Register(register), self.factored(factored_offset))
            }
            Op::DefCfaExpression { .. } => Cfa {
                is_expression: true,
                ..self.cfa
            },
            _ => return,
        };
    }
}

/// The register that an instruction has a rule for. (The CFA's base register is not one.)
fn register_of(op: &Instruction) -> Option<u16> {
    match *op {
        Op::Undefined { register }
        | Op::SameValue { register }
        | Op::Offset { register, .. }
        | Op::OffsetExtendedSf { register, .. }
        | Op::ValOffset { register, .. }
        | Op::ValOffsetSf { register, .. }
        | Op::Expression { register, .. }
        | Op::ValExpression { register, .. }
        | Op::Restore { register }
        | Op::Register {
            dest_register: register,
            ..
        } => Some(register.0),
        _ => None,
    }
}
