//! The interpreter: every instruction of RFC 9669 and of Linux 7.2 that needs no running kernel.
//!
//! Every access is checked when it is made; what the kernel's verifier proves beforehand is a
//! [`Fault`] here, at the instruction where it would have mattered. Not here: the checks that
//! need no values ([`super::check`]), and helpers ([`Helpers`]).

pub(super) mod address;
mod alu;
mod atomic;
mod memory;

use super::context::Context;
use super::env::Env;
use super::fault::{Fault, FaultKind};
use super::insn::{Insn, R10, alu as op, class, jmp, mode, pseudo};
use super::maps::{Maps, Storage};
use super::object::ProgramDef as Program;
use address::{Region, encode};

/// Size of the stack of a call, bytes (`MAX_BPF_STACK`).
pub const STACK_SIZE: usize = 512;
/// The most nested calls, including the program itself (`MAX_CALL_FRAMES`).
const CALL_DEPTH_MAX: usize = 8;
/// The most tail calls in a row (`MAX_TAIL_CALL_CNT`).
const TAIL_CALLS_MAX: u32 = 33;
/// The most rounds of `may_goto` in a run (`BPF_MAX_LOOPS`).
const MAY_GOTO_MAX: u32 = 8 << 20;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// r0 at the end; the kernel takes its lower half.
    pub r0: u64,
    /// Instructions that were executed.
    pub insns: u64,
}

impl Outcome {
    /// The return value of the program.
    pub fn value(&self) -> u32 {
        self.r0 as u32
    }
}

/// The stack of one call.
#[derive(Clone)]
struct Stack {
    bytes: [u8; STACK_SIZE],
    /// One bit for each byte that was written.
    written: [u64; STACK_SIZE / 64],
}

impl Stack {
    const fn new() -> Self {
        Self {
            bytes: [0; STACK_SIZE],
            written: [0; STACK_SIZE / 64],
        }
    }
}

/// A call in progress.
struct Frame {
    stack: Stack,
    /// r6 to r9 of the caller, and the set of its registers that were written.
    saved: [u64; 4],
    written: u16,
    /// The return address: program and instruction.
    back: (usize, usize),
}

/// Memory that a helper gave to the program.
pub(crate) struct HeldMemory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) owner: Owner,
}

/// The owner of memory that a helper gave to the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A ring buffer, and the number of the record there.
    Ring { map: u32, number: u64 },
    /// The helper, which lets the program read it.
    Helper,
    /// Nobody: it was given back and has no bytes any more.
    Nobody,
}

/// The targets of `call` instructions outside the program. They are given to the interpreter, as
/// helpers depend on it: they read and change a running program.
#[derive(Clone, Copy)]
pub(crate) struct Helpers {
    /// Calls the helper with a number. Returns its result for r0.
    pub(crate) call: fn(&mut Vm<'_>, i32) -> Result<u64, FaultKind>,
    /// The number of the helper `tail_call`.
    pub(crate) tail_call: i32,
    /// The program that a tail call goes to, if its slot has one.
    pub(crate) tail_call_target: fn(&mut Vm<'_>) -> Result<Option<usize>, FaultKind>,
}

/// A running program.
pub(crate) struct Vm<'a> {
    programs: &'a [Program],
    helpers: &'a Helpers,
    pub(crate) maps: &'a mut Maps,
    pub(crate) env: &'a mut dyn Env,
    pub(crate) context: Context<'a>,
    regs: [u64; 11],
    /// One bit for each register that was written.
    written: u16,
    frames: Vec<Frame>,
    pub(crate) held: Vec<HeldMemory>,
    /// Instructions executed.
    insns: u64,
    budget: u64,
    program: usize,
    pc: usize,
    tail_calls: u32,
    may_goto: u32,
}

const R1_TO_R5: u16 = 0b11_1110;
const R6_TO_R9: u16 = 0b11_1100_0000;

/// Runs a program of a list; `maps` are those that its instructions name.
pub(crate) fn run(
    programs: &[Program],
    program: usize,
    helpers: &Helpers,
    maps: &mut Maps,
    env: &mut dyn Env,
    context: Context<'_>,
    budget: u64,
) -> Result<Outcome, Fault> {
    // A new machine for each run: only the maps outlive it.
    let mut vm = Vm {
        programs,
        helpers,
        maps,
        env,
        context,
        regs: [0; 11],
        written: 0,
        frames: Vec::with_capacity(1),
        held: Vec::new(),
        insns: 0,
        budget,
        program,
        pc: 0,
        tail_calls: 0,
        may_goto: 0,
    };

    // At the start, R1 is the context, and all other registers are undefined.
    vm.set(1, encode(Region::Context, 0));
    vm.enter((program, 0));

    loop {
        let kind = match vm.counted_step() {
            Ok(None) => continue,
            // The verifier refuses a program that may end with a record of a ring.
            Ok(Some(r0)) => match vm.unreleased() {
                None => {
                    let insns = vm.insns;
                    return Ok(Outcome { r0, insns });
                }
                Some(record) => FaultKind::Unreleased(record),
            },
            Err(kind) => kind,
        };

        let at = vm.pc;

        // A stopped program must not block a ring with its records.
        vm.release_all();

        let program = &programs[vm.program];

        // Functions are sorted by start, so the last one that starts before the fault contains it.
        let functions = program.functions.iter().rev();
        let function = functions.clone().find(|function| function.start <= at);

        return Err(Fault {
            program: program.name.clone(),
            function: function.map_or_else(String::new, |function| function.name.clone()),
            insn: at,
            code: program.insns.get(at).copied().unwrap_or_default(),
            kind,
        });
    }
}

impl Vm<'_> {
    /// A register that was written.
    pub(crate) fn reg(&self, register: u8) -> Result<u64, FaultKind> {
        match self.written >> register & 1 {
            1 => Ok(self.regs[usize::from(register)]),
            _ => Err(FaultKind::UninitialisedRegister(register)),
        }
    }

    fn set(&mut self, register: u8, value: u64) {
        self.regs[usize::from(register)] = value;
        self.written |= 1 << register;
    }

    /// Executes one instruction of the budget; `Some` at the end of the program.
    fn counted_step(&mut self) -> Result<Option<u64>, FaultKind> {
        if self.insns >= self.budget {
            return Err(FaultKind::Budget(self.budget));
        }
        self.insns += 1;
        self.step()
    }

    /// The first record of a ring buffer that the program has not given back.
    fn unreleased(&self) -> Option<u32> {
        let is_of_ring = |held: &HeldMemory| matches!(held.owner, Owner::Ring { .. });
        self.held.iter().position(is_of_ring).map(|at| at as u32)
    }

    /// Releases the records that a stopped program still held, so that the ring is not blocked.
    fn release_all(&mut self) {
        for held in &self.held {
            if let Owner::Ring { map, number } = held.owner
                && let Some(map) = self.maps.get_mut(map as usize)
                && let Storage::Ring(ring) = &mut map.storage
            {
                ring.commit(number, None);
            }
        }
    }

    /// Calls a function of the running program for a helper. Returns its result.
    pub(crate) fn call_function(
        &mut self,
        start: usize,
        arguments: &[u64],
    ) -> Result<u64, FaultKind> {
        let depth = self.frames.len();
        if depth >= CALL_DEPTH_MAX {
            return Err(FaultKind::CallDepth);
        }
        self.written &= !R1_TO_R5;
        for (register, argument) in (1..).zip(arguments) {
            self.set(register, *argument);
        }
        self.enter((self.program, self.pc));
        self.pc = start;
        while self.frames.len() > depth {
            self.counted_step()?;
        }
        self.reg(0)
    }

    /// Begins a call; its arguments are in r1 to r5.
    fn enter(&mut self, back: (usize, usize)) {
        let [.., r6, r7, r8, r9, _] = self.regs;
        self.frames.push(Frame {
            stack: Stack::new(),
            saved: [r6, r7, r8, r9],
            written: self.written & R6_TO_R9,
            back,
        });
        self.written &= R1_TO_R5;
        let frame = (self.frames.len() - 1) as u32;
        self.set(R10, encode(Region::Stack(frame), STACK_SIZE as u32));
    }

    /// Ends a call, and with the first the program.
    fn leave(&mut self) -> Result<Option<u64>, FaultKind> {
        let r0 = self.reg(0)?;
        let Some(frame) = self.frames.pop() else {
            return Ok(Some(r0));
        };
        let Some(depth) = self.frames.len().checked_sub(1) else {
            return Ok(Some(r0));
        };
        self.regs[6..10].copy_from_slice(&frame.saved);
        self.written = frame.written | 1;
        self.set(R10, encode(Region::Stack(depth as u32), STACK_SIZE as u32));
        (self.program, self.pc) = frame.back;
        Ok(None)
    }

    /// Executes one instruction; `Some` at the end of the program.
    fn step(&mut self) -> Result<Option<u64>, FaultKind> {
        let insns = &self.programs[self.program].insns;
        // The verifier refuses a program that runs past its end.
        let insn = insns.get(self.pc).copied().ok_or(FaultKind::Opcode(0))?;

        let displaced = |base: u64| base.wrapping_add(i64::from(insn.off) as u64);
        match insn.class() {
            class::ALU | class::ALU64 => {
                let src = self.operand(insn)?;
                // A move does not read its destination, which need not have been written.
                let dst = match insn.op() {
                    op::MOV => 0,
                    _ => self.reg(insn.dst)?,
                };
                let result = alu::arithmetic(insn, dst, src);
                self.set(insn.dst, result.ok_or(FaultKind::Opcode(insn.code))?);
            }
            class::JMP | class::JMP32 => return self.jump(insn),
            class::LDX => {
                let size = insn.access_size();
                let value = self.load(displaced(self.reg(insn.src)?), size)?;
                // Loads extend with zeros, except in the mode `MEMSX`.
                let value = match (insn.mode(), size) {
                    (mode::MEM, _) => value,
                    (_, 1) => value as i8 as i64 as u64,
                    (_, 2) => value as i16 as i64 as u64,
                    _ => value as i32 as i64 as u64,
                };
                self.set(insn.dst, value);
            }
            class::ST => {
                // The immediate is extended with its sign.
                let address = displaced(self.reg(insn.dst)?);
                self.store(address, insn.access_size(), i64::from(insn.imm) as u64)?;
            }
            class::STX if insn.mode() == mode::ATOMIC => self.atomic(insn)?,
            class::STX => {
                let address = displaced(self.reg(insn.dst)?);
                let value = self.reg(insn.src)?;
                self.store(address, insn.access_size(), value)?;
            }
            _ => {
                // The upper half of the immediate is in the next slot, which is not executed.
                let second = insns.get(self.pc + 1).map_or(0, |second| second.imm as u32);
                let value = self.ld_imm64(insn, second);
                self.set(insn.dst, value);
                self.pc += 1;
            }
        }

        self.pc += 1;
        Ok(None)
    }

    /// The second operand of arithmetic and of comparisons.
    fn operand(&self, insn: Insn) -> Result<u64, FaultKind> {
        let has_none = matches!(insn.op(), op::END | op::NEG)
            && matches!(insn.class(), class::ALU | class::ALU64);
        if insn.is_x() && !has_none {
            self.reg(insn.src)
        } else {
            Ok(i64::from(insn.imm) as u64)
        }
    }

    fn ld_imm64(&self, insn: Insn, second: u32) -> u64 {
        let map = insn.imm as u32;
        match insn.src {
            pseudo::MAP_FD | pseudo::MAP_IDX => encode(Region::Map(map), 0),
            pseudo::MAP_VALUE | pseudo::MAP_IDX_VALUE => {
                encode(Region::Value { map, slot: 0 }, second)
            }
            pseudo::FUNC => {
                let target = self.pc as i64 + 1 + i64::from(insn.imm);
                encode(Region::Code, target as u32)
            }
            _ => u64::from(insn.imm as u32) | u64::from(second) << 32,
        }
    }

    fn jump(&mut self, insn: Insn) -> Result<Option<u64>, FaultKind> {
        let next = self.pc + 1;
        // The check at loading made sure that the target exists.
        let target = |displacement: i64| (next as i64 + displacement) as usize;

        match insn.op() {
            jmp::CALL if insn.src == pseudo::CALL => {
                if self.frames.len() >= CALL_DEPTH_MAX {
                    return Err(FaultKind::CallDepth);
                }
                self.enter((self.program, next));
                self.pc = target(i64::from(insn.imm));
            }
            jmp::CALL => {
                // A tail call that succeeds does not return here.
                if insn.imm == self.helpers.tail_call && self.tail_call()? {
                    return Ok(None);
                }
                let result = (self.helpers.call)(self, insn.imm)?;
                // After a call these have no defined value, and reading them is a fault.
                self.written &= !R1_TO_R5;
                self.set(0, result);
                self.pc = next;
            }
            jmp::EXIT => return self.leave(),
            jmp::JA => self.pc = target(insn.jump().unwrap_or(0)),
            jmp::JCOND => {
                // The jump is taken once the limit of rounds is reached.
                self.may_goto += 1;
                let is_over = self.may_goto > MAY_GOTO_MAX;
                self.pc = if is_over {
                    target(i64::from(insn.off))
                } else {
                    next
                };
            }
            _ => {
                let (dst, src) = (self.reg(insn.dst)?, self.operand(insn)?);
                let is_taken = alu::is_taken(insn, dst, src);
                let is_taken = is_taken.ok_or(FaultKind::Opcode(insn.code))?;
                self.pc = if is_taken {
                    target(i64::from(insn.off))
                } else {
                    next
                };
            }
        }

        Ok(None)
    }

    /// Goes on with another program if the slot of the map has one: it takes over this call.
    fn tail_call(&mut self) -> Result<bool, FaultKind> {
        let Some(program) = (self.helpers.tail_call_target)(self)? else {
            return Ok(false);
        };
        if program >= self.programs.len() || self.tail_calls >= TAIL_CALLS_MAX {
            return Ok(false);
        }
        self.tail_calls += 1;
        self.program = program;
        self.pc = 0;
        self.written = 0;
        self.set(1, encode(Region::Context, 0));
        let frame = self.frames.len() - 1;
        self.frames[frame].stack = Stack::new();
        self.set(R10, encode(Region::Stack(frame as u32), STACK_SIZE as u32));
        Ok(true)
    }
}
