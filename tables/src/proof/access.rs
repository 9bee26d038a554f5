//! What instructions write that have no rule of their own in [`super::exec`].

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess, OpKind, Register,
};
use unwind_sim_unwind::regs::Reg;

/// What an instruction with this code writes, whatever its operands are.
#[derive(Clone, Copy, Default)]
struct Writes {
    /// Whether this entry has been filled.
    known: bool,
    /// Bit n: operand n is written.
    operands: u8,
    /// Bit n: the general register with DWARF number n is written, though no operand names it.
    implied: u16,
}

/// Remembers what each instruction writes: asking the decoder's library every time takes longer
/// than everything else.
pub struct Accesses {
    factory: InstructionInfoFactory,
    by_code: Vec<Writes>,
}

/// What one instruction writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Bit n: the general register with DWARF number n.
    pub regs: u16,
    /// Whether its memory operand is written.
    pub memory: bool,
}

/// The number of registers that the decoder has names for, at most.
const NAMES_MAX: usize = 256;

/// For each name: the general register that it is a part of.
const GENERAL: [Option<Reg>; NAMES_MAX] = {
    let mut table = [None; NAMES_MAX];
    let mut n = 0;
    while n < 16 {
        let reg = Some(Reg::BY_NUMBER[n]);
        // The names of bytes are al, cl, dl, bl, ah, ch, dh, bh, spl and so on.
        table[Register::AL as usize + if n < 4 { n } else { n + 4 }] = reg;
        if n < 4 {
            table[Register::AH as usize + n] = reg;
        }
        table[Register::AX as usize + n] = reg;
        table[Register::EAX as usize + n] = reg;
        table[Register::RAX as usize + n] = reg;
        n += 1;
    }
    table
};

/// The general register that `register` is a part of.
#[inline]
pub fn general(register: Register) -> Option<Reg> {
    GENERAL[register as usize & (NAMES_MAX - 1)]
}

fn bit(register: Register) -> u16 {
    general(register).map_or(0, |reg| 1 << reg as u16)
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

impl Accesses {
    /// Nothing is known yet.
    pub fn new() -> Accesses {
        Accesses {
            factory: InstructionInfoFactory::new(),
            by_code: vec![Writes::default(); Code::values().len()],
        }
    }

    /// What `insn` writes.
    pub fn of(&mut self, insn: &Instruction) -> Written {
        let index = insn.code() as usize;
        let known = self.by_code.get(index).copied().unwrap_or_default();
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let writes = if known.known && !repeated {
            known
        } else {
            let asked = self.ask(insn);
            if !repeated && let Some(entry) = self.by_code.get_mut(index) {
                *entry = asked;
            }
            asked
        };
        let mut written = Written {
            regs: writes.implied,
            memory: false,
        };
        for operand in 0..insn.op_count().min(5) {
            if writes.operands & 1 << operand == 0 {
                continue;
            }
            match insn.op_kind(operand) {
                OpKind::Register => written.regs |= bit(insn.op_register(operand)),
                OpKind::Memory
                | OpKind::MemoryESDI
                | OpKind::MemoryESEDI
                | OpKind::MemoryESRDI
                | OpKind::MemorySegDI
                | OpKind::MemorySegEDI
                | OpKind::MemorySegRDI => written.memory = true,
                _ => {}
            }
        }
        written
    }

    fn ask(&mut self, insn: &Instruction) -> Writes {
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let info = self.factory.info_options(insn, options);
        let mut out = Writes {
            known: true,
            ..Writes::default()
        };
        let mut named = 0;
        for operand in 0..insn.op_count().min(5) {
            if writes(info.op_access(operand)) {
                out.operands |= 1 << operand;
                if insn.op_kind(operand) == OpKind::Register {
                    named |= bit(insn.op_register(operand));
                }
            }
        }
        for used in info.used_registers() {
            if writes(used.access()) {
                out.implied |= bit(used.register());
            }
        }
        out.implied &= !named;
        out
    }
}

impl Default for Accesses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_names_is_that_of_the_decoder() {
        assert!(Register::values().len() <= NAMES_MAX);
        for register in Register::values() {
            let whole = register.full_register();
            let expected = whole
                .is_gpr64()
                .then(|| Reg::BY_NUMBER[whole.number() & 15]);
            assert_eq!(general(register), expected, "{register:?}");
        }
    }
}
