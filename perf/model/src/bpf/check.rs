//! The check of a program when it is loaded: the parts of the kernel's verifier that do not need
//! values.
//!
//! Operation codes exist, reserved fields are zero, registers are r0 to r10, jumps stay in their
//! function and lead to the beginning of an instruction, functions end in a jump or an exit,
//! helpers and maps are there. What depends on values (bounds, types, initialisation) the
//! interpreter checks at each access. Source: `kernel/bpf/verifier.c`, Linux 6.18.

use super::error::{LoadError, LoadErrorKind as Kind};
use super::helpers::{self, Availability};
use super::insn::{CALL, EXIT, Insn, R10, alu, atomic, class, jmp, mode, pseudo};
use super::maps::Maps;
use super::object::ProgramDef;

/// The size bits of a load or store of 8 bytes.
const DW: u8 = 0x18;
/// The size bits of a load or store of 4 bytes.
const W: u8 = 0x00;

/// The things that a program may use.
struct LoadContext<'a> {
    maps: &'a Maps,
    is_gpl: bool,
}

/// Checks a program that uses these maps. `is_gpl`: its license allows helpers for the GPL only.
pub(super) fn check(program: &ProgramDef, maps: &Maps, is_gpl: bool) -> Result<(), LoadError> {
    let world = &LoadContext { maps, is_gpl };
    let insns = &program.insns;
    let fail = |insn: Option<usize>, kind| LoadError {
        name: program.name.clone(),
        insn,
        kind,
    };

    if insns.is_empty() {
        return Err(fail(None, Kind::Empty));
    }

    let begins = beginnings(insns);
    // The function of each instruction is the last that begins at or before it.
    let mut bounds: Vec<usize> = program.functions.iter().map(|f| f.start).collect();
    bounds.push(insns.len());

    let mut function = 0;
    for (at, insn) in insns.iter().enumerate() {
        // The second half of a wide instruction.
        if !begins[at] {
            continue;
        }
        while bounds.get(function + 1).is_some_and(|next| *next <= at) {
            function += 1;
        }

        let start = bounds.get(function).copied().unwrap_or(0);
        let end = bounds.get(function + 1).copied().unwrap_or(insns.len());
        let place = InsnContext {
            insns,
            begins: &begins,
            at,
            function: start..end,
        };

        place
            .check(*insn, world)
            .map_err(|kind| fail(Some(at), kind))?;

        // Control must not run from one function into the next (`check_subprogs` in
        // `kernel/bpf/verifier.c`).
        let length = if insn.is_ld_imm64() { 2 } else { 1 };
        let ends_function = insn.code == EXIT || (insn.jump().is_some() && insn.op() == jmp::JA);
        if at + length == end && !ends_function {
            return Err(fail(Some(at), Kind::NoEnd));
        }
    }

    Ok(())
}

/// Whether each slot is the start of an instruction, not the second half of `ld_imm64`.
fn beginnings(insns: &[Insn]) -> Vec<bool> {
    let mut begins = vec![true; insns.len()];
    let mut at = 0;
    while at < insns.len() {
        if insns[at].is_ld_imm64() && at + 1 < insns.len() {
            begins[at + 1] = false;
            at += 1;
        }
        at += 1;
    }
    begins
}

/// An instruction and what surrounds it.
struct InsnContext<'a> {
    insns: &'a [Insn],
    begins: &'a [bool],
    at: usize,
    function: std::ops::Range<usize>,
}

fn zero(fields: &[i64]) -> Result<(), Kind> {
    if fields.iter().all(|field| *field == 0) {
        Ok(())
    } else {
        Err(Kind::Reserved)
    }
}

impl InsnContext<'_> {
    fn check(&self, insn: Insn, world: &LoadContext<'_>) -> Result<(), Kind> {
        // Calls and wide instructions use the source field for something else.
        let is_plain = !insn.is_ld_imm64() && insn.code != CALL;
        if insn.dst > R10 || (insn.src > R10 && is_plain) {
            return Err(Kind::Register(insn.dst.max(insn.src)));
        }

        // A field that an instruction does not use is reserved and has to be 0.
        match insn.class() {
            class::ALU | class::ALU64 => {
                alu_fields(insn)?;
                writes(insn.dst)
            }
            class::LDX => {
                zero(&[i64::from(insn.imm)])?;
                match insn.mode() {
                    mode::MEM => {}
                    // 64 bits have nothing to extend.
                    mode::MEMSX if insn.code & DW != DW => {}
                    _ => return Err(Kind::Opcode(insn.code)),
                }
                writes(insn.dst)
            }
            // A store of an immediate has no source register, and there is no atomic one.
            class::ST => match insn.mode() {
                mode::MEM => zero(&[i64::from(insn.src)]),
                _ => Err(Kind::Opcode(insn.code)),
            },
            class::STX => match insn.mode() {
                mode::MEM => zero(&[i64::from(insn.imm)]),
                mode::ATOMIC => atomic_fields(insn),
                _ => Err(Kind::Opcode(insn.code)),
            },
            class::LD => match insn.mode() {
                mode::IMM if insn.is_ld_imm64() => self.ld_imm64(insn, world),
                // These read a packet, which only programs of the network have.
                mode::ABS | mode::IND => Err(Kind::PacketAccess(insn.code)),
                _ => Err(Kind::Opcode(insn.code)),
            },
            _ => self.jump(insn, world),
        }
    }

    fn jump(&self, insn: Insn, world: &LoadContext<'_>) -> Result<(), Kind> {
        let (dst, src, off, imm) = (
            i64::from(insn.dst),
            i64::from(insn.src),
            i64::from(insn.off),
            i64::from(insn.imm),
        );

        let is_32 = insn.class() == class::JMP32;
        match insn.op() {
            jmp::CALL | jmp::JA if insn.is_x() => return Err(Kind::Indirect(insn.code)),
            jmp::CALL | jmp::EXIT if is_32 || insn.is_x() => return Err(Kind::Opcode(insn.code)),
            jmp::CALL => {
                // For a kernel function the offset is used; for all other calls it is reserved.
                zero(&[
                    dst,
                    if insn.src == pseudo::KFUNC_CALL {
                        0
                    } else {
                        off
                    },
                ])?;
                return self.call(insn, world);
            }
            jmp::EXIT => return zero(&[dst, src, off, imm]),
            // In the 32-bit class, the displacement is the immediate (RFC 9669, section 4.3).
            jmp::JA => zero(&[dst, src, if is_32 { off } else { imm }])?,
            jmp::JCOND if insn.code == class::JMP | jmp::JCOND => zero(&[dst, src, imm])?,
            jmp::JCOND | 0xf0 => return Err(Kind::Opcode(insn.code)),
            // Either the register or the immediate is compared; the other one is unused.
            _ if insn.is_x() => zero(&[imm])?,
            _ => zero(&[src])?,
        }

        // Displacements count from the next instruction (RFC 9669, section 4.3).
        let target = self.at as i64 + 1 + insn.jump().unwrap_or(0);
        self.begins_at(target)?;

        // A jump may not leave its function: only calls and returns change frames.
        if !self.function.contains(&(target as usize)) {
            return Err(Kind::LeavesFunction(target));
        }
        Ok(())
    }

    fn call(&self, insn: Insn, world: &LoadContext<'_>) -> Result<(), Kind> {
        match insn.src {
            0 => match helpers::availability(insn.imm) {
                Availability::Modelled { gpl_only, name } => {
                    if gpl_only && !world.is_gpl {
                        Err(Kind::GplOnly(name))
                    } else {
                        Ok(())
                    }
                }
                Availability::Missing(name) => Err(Kind::Helper(insn.imm, name)),
            },
            pseudo::CALL => self.begins_at(self.at as i64 + 1 + i64::from(insn.imm)),
            pseudo::KFUNC_CALL => Err(Kind::KernelFunction(insn.imm)),
            _ => Err(Kind::Reserved),
        }
    }

    fn ld_imm64(&self, insn: Insn, world: &LoadContext<'_>) -> Result<(), Kind> {
        writes(insn.dst)?;

        // A wide instruction has the upper half of its immediate in a second slot, where all other
        // fields are 0 (RFC 9669, section 3.2).
        let second = self
            .insns
            .get(self.at + 1)
            .filter(|_| !self.begins[self.at + 1]);
        let second = second.ok_or(Kind::LdImm64)?;
        if (second.code, second.dst, second.src, second.off) != (0, 0, 0, 0) {
            return Err(Kind::LdImm64);
        }

        // The first slot is checked like any other instruction.
        zero(&[i64::from(insn.off)])?;
        let map = i64::from(insn.imm);
        let definition = || {
            let index = usize::try_from(insn.imm).ok();
            let found = index.and_then(|index| world.maps.get(index));
            found.ok_or(Kind::Map(map))
        };

        match insn.src {
            // The source field says what the immediates are (RFC 9669, section 5.4).
            0 => Ok(()),
            pseudo::MAP_FD | pseudo::MAP_IDX => {
                definition()?;
                zero(&[i64::from(second.imm)])
            }
            pseudo::MAP_VALUE | pseudo::MAP_IDX_VALUE => {
                // The second immediate is an offset in the map's value (RFC 9669, section 5.4).
                let offset = i64::from(second.imm as u32);
                match definition()?.direct_value_size() {
                    Some(size) if offset < i64::from(size) => Ok(()),
                    _ => Err(Kind::MapValue(offset)),
                }
            }
            // The target of a function pointer counts from the next instruction, like a call's.
            pseudo::FUNC => {
                zero(&[i64::from(second.imm)])?;
                self.begins_at(self.at as i64 + 1 + i64::from(insn.imm))
            }
            source => Err(Kind::LdImm64Source(source)),
        }
    }

    fn begins_at(&self, target: i64) -> Result<(), Kind> {
        let begins = usize::try_from(target)
            .ok()
            .and_then(|target| self.begins.get(target));
        match begins {
            Some(true) => Ok(()),
            _ => Err(Kind::Target(target)),
        }
    }
}

/// r10 is the frame pointer, which nothing may change.
fn writes(register: u8) -> Result<(), Kind> {
    match register {
        R10 => Err(Kind::FramePointer),
        _ => Ok(()),
    }
}

fn alu_fields(insn: Insn) -> Result<(), Kind> {
    let is_64 = insn.class() == class::ALU64;
    let (src, off, imm) = (
        i64::from(insn.src),
        i64::from(insn.off),
        i64::from(insn.imm),
    );

    // The operand is a register or the immediate, and the field of the other one must be 0.
    let operand = || {
        if insn.is_x() {
            zero(&[imm])
        } else {
            zero(&[src])
        }
    };

    match insn.op() {
        alu::NEG if insn.is_x() => Err(Kind::Reserved),
        alu::NEG => zero(&[src, off, imm]),
        alu::END => {
            zero(&[src, off])?;
            // The 64-bit class swaps unconditionally, so there is no byte order to choose.
            match (insn.imm, is_64 && insn.is_x()) {
                (16 | 32 | 64, false) => Ok(()),
                _ => Err(Kind::Reserved),
            }
        }
        // The offset is the number of bits that are sign-extended; 0 is a plain move.
        alu::MOV if insn.is_x() => match (off, is_64) {
            (0 | 8 | 16, _) | (32, true) => zero(&[imm]),
            _ => Err(Kind::Reserved),
        },
        alu::DIV | alu::MOD => {
            operand()?;
            match off {
                // Division by a register that is 0 gives 0; a constant 0 is refused.
                0 | 1 if !insn.is_x() && imm == 0 => Err(Kind::DivideByZero),
                0 | 1 => Ok(()),
                _ => Err(Kind::Reserved),
            }
        }
        alu::LSH | alu::RSH | alu::ARSH => {
            operand()?;
            zero(&[off])?;
            let width = if is_64 { 64 } else { 32 };
            if insn.is_x() || (0..width).contains(&imm) {
                Ok(())
            } else {
                Err(Kind::Shift(insn.imm))
            }
        }
        0xe0 | 0xf0 => Err(Kind::Opcode(insn.code)),
        // All other operations have no use for the offset.
        _ => {
            operand()?;
            zero(&[off])
        }
    }
}

fn atomic_fields(insn: Insn) -> Result<(), Kind> {
    let is_word = matches!(insn.code & DW, W | DW);
    let is_arithmetic = matches!(
        insn.imm & !atomic::FETCH,
        atomic::ADD | atomic::OR | atomic::AND | atomic::XOR
    );
    match insn.imm {
        imm if is_arithmetic && is_word => match imm & atomic::FETCH {
            0 => Ok(()),
            _ => writes(insn.src),
        },
        _ if is_arithmetic => Err(Kind::Opcode(insn.code)),
        atomic::XCHG if is_word => writes(insn.src),
        atomic::CMPXCHG if is_word => Ok(()),
        atomic::LOAD_ACQ => writes(insn.dst),
        atomic::STORE_REL => Ok(()),
        atomic::XCHG | atomic::CMPXCHG => Err(Kind::Opcode(insn.code)),
        _ => Err(Kind::Reserved),
    }
}
