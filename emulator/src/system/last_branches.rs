//! Last branch records: the latest 32 branches that pass a filter, or, in call-stack mode, the calls that have
//! not returned.

use iced_x86::{Code, FlowControl, Instruction};

/// How many records there are.
const COUNT: usize = 32;

/// Numbers of model-specific registers: MSR_LBR_SELECT, MSR_LASTBRANCH_TOS, and the first of the records' three.
mod msr {
    pub(super) const SELECT: u32 = 0x1c8;
    pub(super) const TOP: u32 = 0x1c9;
    pub(super) const FROM: u32 = 0x680;
    pub(super) const TO: u32 = 0x6c0;
    pub(super) const INFO: u32 = 0xdc0;
}

/// MSR_LBR_SELECT: what is not recorded, and the mode.
mod select {
    pub(super) const RING_0: u64 = 1;
    pub(super) const OTHER_RINGS: u64 = 1 << 1;
    pub(super) const CALL_STACK: u64 = 1 << 9;
    pub(super) const ALL: u64 = 0x3ff;
}

/// MSR_LBR_INFO: the cycles since the last record, at most this.
const CYCLES_MAX: u64 = 0xffff;

/// A kind of branch: its bit in MSR_LBR_SELECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Conditional = 2,
    Call = 3,
    IndirectCall = 4,
    Return = 5,
    IndirectJump = 6,
    Jump = 7,
    /// Also interrupts and exceptions, and the returns from them.
    Far = 8,
}

impl Kind {
    /// The kind of an instruction that branches.
    pub(super) fn of(insn: &Instruction) -> Option<Kind> {
        if matches!(insn.code(), Code::Syscall | Code::Sysenter) {
            return Some(Kind::Far);
        }
        let is_far = insn.is_jmp_far()
            || insn.is_jmp_far_indirect()
            || insn.is_call_far()
            || insn.is_call_far_indirect();
        Some(match insn.flow_control() {
            FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => {
                return None;
            }
            _ if is_far => Kind::Far,
            FlowControl::ConditionalBranch => Kind::Conditional,
            FlowControl::UnconditionalBranch => Kind::Jump,
            FlowControl::IndirectBranch => Kind::IndirectJump,
            FlowControl::Call => Kind::Call,
            FlowControl::IndirectCall => Kind::IndirectCall,
            FlowControl::Return => match insn.code() {
                Code::Retnq | Code::Retnq_imm16 | Code::Retnw | Code::Retnw_imm16 => Kind::Return,
                _ => Kind::Far,
            },
            FlowControl::Interrupt => Kind::Far,
        })
    }
}

/// A branch that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Branch {
    pub(super) kind: Kind,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The address behind the instruction: a call of it is none of a function.
    pub(super) next: u64,
    /// The privilege level at which it goes on.
    pub(super) privilege: u8,
    /// Instructions executed so far.
    pub(super) executed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Record {
    from: u64,
    to: u64,
    info: u64,
}

/// The field of a record that a model-specific register is.
fn field(number: u32) -> Option<(u32, usize)> {
    let first = [msr::FROM, msr::TO, msr::INFO];
    let first = first
        .into_iter()
        .find(|first| (*first..first + COUNT as u32).contains(&number))?;
    Some((first, (number - first) as usize))
}

/// The records.
#[derive(Clone, Debug, Default)]
pub(super) struct LastBranches {
    records: [Record; COUNT],
    /// The newest.
    top: usize,
    select: u64,
    /// Instructions executed when the newest record was made.
    recorded: u64,
}

impl LastBranches {
    /// Whether a model-specific register is one of these.
    pub(super) fn is_msr(number: u32) -> bool {
        matches!(number, msr::SELECT | msr::TOP) || field(number).is_some()
    }

    pub(super) fn read(&self, number: u32) -> Option<u64> {
        Some(match number {
            msr::SELECT => self.select,
            msr::TOP => self.top as u64,
            _ => {
                let (first, index) = field(number)?;
                let record = &self.records[index];
                match first {
                    msr::FROM => record.from,
                    msr::TO => record.to,
                    _ => record.info,
                }
            }
        })
    }

    /// `None`: #GP, and nothing was written.
    pub(super) fn write(&mut self, number: u32, value: u64) -> Option<()> {
        match number {
            msr::SELECT if value & !select::ALL == 0 => self.select = value,
            msr::TOP if value < COUNT as u64 => self.top = value as usize,
            _ => {
                let (first, index) = field(number)?;
                let is_address = first != msr::INFO;
                if is_address && !super::registers::is_canonical(value) {
                    return None;
                }
                let record = &mut self.records[index];
                match first {
                    msr::FROM => record.from = value,
                    msr::TO => record.to = value,
                    _ => record.info = value,
                }
            }
        }
        Some(())
    }

    /// Records a branch, if it passes the filter.
    pub(super) fn record(&mut self, branch: Branch) {
        let level = if branch.privilege == 0 {
            select::RING_0
        } else {
            select::OTHER_RINGS
        };
        if self.select & (level | 1 << branch.kind as u32) != 0 {
            return;
        }
        if self.select & select::CALL_STACK != 0 {
            match branch.kind {
                Kind::Return => {
                    // What has returned is no record any longer.
                    self.records[self.top] = Record::default();
                    self.top = (self.top + COUNT - 1) % COUNT;
                    return;
                }
                Kind::Call if branch.to == branch.next => return,
                _ => {}
            }
        }
        self.top = (self.top + 1) % COUNT;
        self.records[self.top] = Record {
            from: branch.from,
            to: branch.to,
            info: (branch.executed - self.recorded).min(CYCLES_MAX),
        };
        self.recorded = branch.executed;
    }
}
