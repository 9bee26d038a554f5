//! Instructions that the machine does not execute.

use super::{everything, file};
use iced_x86::{
    Code, Decoder, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};
use std::collections::HashMap;
use unwind_sim_emulator_compare::differential::{Emulated, Encodings, Random, supported};
use unwind_sim_tables::proof::access::general;
use unwind_sim_tables::proof::exec::Machine;
use unwind_sim_tables::proof::state::State;
use unwind_sim_tables::proof::value::Value;
use unwind_sim_unwind::regs::Reg;

/// Where all registers lead: rsp at entry plus this, bytes.
const PLACE: i32 = -128;
/// How often an instruction is drawn of each code.
const DRAWN: usize = 24;

/// The number of instructions that the machine does not execute, and what is still said to be as before
/// although the decoder says that they write it.
pub fn declared() -> (usize, Vec<String>) {
    let file = file::empty();
    let mut factory = InstructionInfoFactory::new();
    let mut faults = Vec::new();
    let all = instructions();
    for insn in all.values() {
        let mut machine = Machine::new(&file);
        let mut state = before();

        // What is not executed must at least forget what the instruction may write.
        machine.execute(insn, &mut state);

        let info = factory.info(insn);
        let written = info
            .used_memory()
            .iter()
            .filter(|used| writes(used.access()));
        for used in written {
            let Some(at) = place(insn, used) else {
                continue;
            };
            // Where the size is not known, a word.
            let size = match used.memory_size().size() {
                0 => 8,
                size => size as i64,
            };

            // A slot that overlaps the written bytes, and is still said to hold the caller's rbx.
            let kept = state.slots().find(|slot| {
                let Value::Entry { offset, .. } = slot.at else {
                    return false;
                };
                let (start, end) = (i64::from(offset), i64::from(offset) + 8);
                start < at + size && at < end && slot.value == Value::entry(Reg::Rbx)
            });
            if let Some(slot) = kept {
                faults.push(format!(
                    "{:?}: {insn}: the slot at {}",
                    insn.code(),
                    slot.at
                ));
            }
        }

        for used in info.used_registers().iter().filter(|u| writes(u.access())) {
            let Some(reg) = general(used.register()) else {
                continue;
            };

            if reg != Reg::Rsp && state.reg(reg) == Value::frame(PLACE) {
                faults.push(format!("{:?}: {insn}: {reg}", insn.code()));
            }
        }
    }

    // The map has another order in each run.
    faults.sort();
    (all.len(), faults)
}

/// All registers lead to a place among slots.
fn before() -> State {
    let mut state = State::entry();
    for reg in Reg::ALL.into_iter().take(16) {
        state.set(reg, Value::frame(PLACE));
    }
    for word in 0..16 {
        state.store(
            Value::frame(PLACE - 24 + 8 * word),
            8,
            Value::entry(Reg::Rbx),
        );
    }
    state
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// The offset from rsp at entry of memory that an instruction uses, if only a register says it.
fn place(insn: &Instruction, used: &UsedMemory) -> Option<i64> {
    let is_plain = used.base().is_gpr64()
        && used.index() == Register::None
        && !matches!(used.segment(), Register::FS | Register::GS)
        && !insn.is_vsib();
    let offset = i64::from(PLACE) + used.displacement().cast_signed();
    (is_plain && (-200..0).contains(&offset)).then_some(offset)
}

/// One instruction of each code that the machine does not execute, those with an EVEX prefix among
/// them, with a memory operand that a register says if there is one.
fn instructions() -> HashMap<Code, Instruction> {
    let encodings = Encodings::new(everything());
    let mut emulated = Emulated::new(everything());
    let executed = supported(&encodings, &mut emulated).into_iter();
    // What the machine executes is compared with it in other tests.
    let executed: Vec<Code> = executed
        .filter(|(_, is)| *is)
        .map(|(code, _)| code)
        .collect();
    // A fixed seed: which instructions are checked must not change from run to run.
    let mut random = Random::new(1);
    let mut all: HashMap<Code, Instruction> = HashMap::new();

    let mut add = |insn: Instruction| {
        let code = insn.code();
        if insn.is_invalid() || executed.contains(&code) || !super::is_interpreted(code) {
            return;
        }

        // Of several encodings of a code, one with a memory operand says more.
        let is_better = |old: &Instruction| !has_place(old) && has_place(&insn);
        if all.get(&code).is_none_or(is_better) {
            all.insert(code, insn);
        }
    };

    let codes: Vec<Code> = encodings.codes().collect();
    for code in codes {
        // Some draws have a memory operand, some have not.
        for _ in 0..DRAWN {
            let mut bytes = [0; 15];
            if let Some(insn) = encodings.random(code, 0x1000, &mut random, &mut bytes) {
                add(insn);
            }
        }
    }

    // The fields of an EVEX prefix (Intel SDM volume 2), then (%rdi) and a register.
    for fields in 0..7u32 * 4 * 2 * 4 {
        let (map, pp, wide, length) = (fields % 7, fields / 7 % 4, fields / 28 % 2, fields / 56);
        for opcode in 0..=255 {
            for modrm in (0..8).map(|reg| reg << 3 | 7).chain([0xc7]) {
                let bytes = [
                    0x62,
                    0xf0 | map as u8,
                    0x7c | (wide << 7) as u8 | pp as u8,
                    0x08 | (length << 5) as u8,
                    opcode,
                    modrm,
                    0,
                    0,
                    0,
                    0,
                    0,
                ];
                let options = everything().decoder_options();
                add(Decoder::with_ip(64, &bytes, 0x1000, options).decode());
            }
        }
    }

    all
}

fn has_place(insn: &Instruction) -> bool {
    insn.memory_base().is_gpr64() && insn.memory_index() == Register::None
}
