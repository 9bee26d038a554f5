//! Operations that execute several instructions: a comparison with its branch, a load with the
//! test of its result, and pairs of moves, pushes and pops.
//!
//! Most of an interpreter's time goes from one operation to the next, so frequent neighbours share
//! one. They run where nobody observes, or an observer does not want to see what they do. An operation
//! stops before it has changed anything but what executing it again changes in the same way: at its
//! first instruction, or with [`Stop::Apart`] if it is not known which instruction could not be
//! executed.

use super::alu::{Add, And, Binary, Cmp, Sub, Test, to_memory, to_register};
use super::condition::by_condition;
use crate::core::Core;
use crate::flags::Flags;
use crate::op::{Flow, Op, Run, stop};
use crate::operands::{Form, form, width};
use crate::state::{mask, reg};
use crate::stop::Stop;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Joins operations while a block is decoded.
#[derive(Default)]
pub(crate) struct Fuser {
    /// The last two instructions that are operations by themselves, the last one first.
    last: [Option<Instruction>; 2],
}

impl Fuser {
    /// Joins the operation of `insn`, the last one of `ops`, with those before it. `block` is the
    /// start of the block.
    pub(crate) fn add(&mut self, insn: &Instruction, block: u64, ops: &mut Vec<Op>) {
        let [last, before] = self.last;

        // An address that is computed by an operation of its own belongs to the instruction.
        if ops.iter().nth_back(1).is_some_and(|op| op.len == 0) {
            self.last = [None; 2];
            return;
        }

        // Three at once are better than two and one.
        let joined = match &ops[..] {
            [.., one, two, three] if let (Some(before), Some(last)) = (before, last) => {
                let three = triple([&before, &last, insn], [one, two, three], block);
                three.map(|op| (op, 3))
            }
            _ => None,
        };

        let joined = joined.or_else(|| match &ops[..] {
            [.., one, two] => {
                let two = pair([&last?, insn], [one, two], block);
                two.map(|op| (op, 2))
            }
            _ => None,
        });

        match joined {
            Some((op, count)) => {
                ops.truncate(ops.len() - count);
                ops.push(Op {
                    more: count as u8 - 1,
                    ..op
                });
                self.last = [None; 2];
            }
            None => self.last = [Some(*insn), last],
        }
    }
}

/// The operation of two instructions, the second of which is the last one so far.
fn pair(insns: [&Instruction; 2], ops: [&Op; 2], block: u64) -> Option<Op> {
    let [first, second] = insns;
    let [one, two] = ops;

    if second.is_jcc_short_or_near() {
        return compare_and_branch(first, second, one, two, block);
    }

    let is_64 = |insn| width(insn, 0) == 64;
    let is_wide = |insn| matches!(width(insn, 0), 32 | 64);

    let run: Run = match (first.mnemonic(), second.mnemonic()) {
        (Mnemonic::Mov, Mnemonic::Mov) if is_wide(first) && is_wide(second) => {
            return moves(insns, ops);
        }
        // From here on only pushes and pops of a register.
        _ if form(first) != Form::R || form(second) != Form::R => return None,
        _ if !is_64(first) || !is_64(second) => return None,
        (Mnemonic::Push, Mnemonic::Push) if is_general(first) && is_general(second) => push_push,
        (Mnemonic::Pop, Mnemonic::Pop) if is_general(first) && is_general(second) => {
            // It would change the address of the second word.
            if usize::from(one.dst) == reg::RSP {
                return None;
            }
            pop_pop
        }
        _ => return None,
    };

    Some(Op {
        run,
        src: two.dst,
        ..*one
    })
}

/// The operation of three instructions, the last of which is the last one so far.
fn triple(insns: [&Instruction; 3], ops: [&Op; 3], block: u64) -> Option<Op> {
    let [load, test, branch] = insns;
    let [one, two, three] = ops;
    let same = test.mnemonic() == Mnemonic::Test
        && form(test) == Form::RR
        && (two.dst, two.src) == (one.dst, one.dst)
        && branch.is_jcc_short_or_near()
        && form(load) == Form::RM;
    if !same {
        return None;
    }
    let run = match (load.mnemonic(), width(load, 0), width(test, 0)) {
        (Mnemonic::Mov, 64, 64) => load_test::<64>(branch)?,
        (Mnemonic::Mov, 32, 32) => load_test::<32>(branch)?,
        (Mnemonic::Movzx, 32, 8) if width(load, 1) == 8 => load_test::<8>(branch)?,
        _ => return None,
    };
    Some(Op {
        run,
        imm: distance(block, three.disp)?,
        ..*one
    })
}

/// Whether the operand is a general register, and not a segment register.
fn is_general(insn: &Instruction) -> bool {
    insn.op_register(0).is_gpr64()
}

/// The distance of a branch's target from the start of its block.
fn distance(block: u64, target: u64) -> Option<i32> {
    i32::try_from(target.wrapping_sub(block).cast_signed()).ok()
}

fn compare_and_branch(
    first: &Instruction,
    branch: &Instruction,
    one: &Op,
    two: &Op,
    block: u64,
) -> Option<Op> {
    let width = width(first, 0);
    let form = form(first);

    // Only the frequent pairs: each one is a function for each condition.
    let run = match (first.mnemonic(), width) {
        (Mnemonic::Cmp, 8) => compare::<Cmp, 8>(form, branch),
        (Mnemonic::Cmp, 32) => compare::<Cmp, 32>(form, branch),
        (Mnemonic::Cmp, 64) => compare::<Cmp, 64>(form, branch),
        (Mnemonic::Test, 8) => compare::<Test, 8>(form, branch),
        (Mnemonic::Test, 32) => compare::<Test, 32>(form, branch),
        (Mnemonic::Test, 64) => compare::<Test, 64>(form, branch),
        (Mnemonic::Sub, 32) => compute::<Sub, 32>(form, branch),
        (Mnemonic::Sub, 64) => compute::<Sub, 64>(form, branch),
        (Mnemonic::Add, 32) => compute::<Add, 32>(form, branch),
        (Mnemonic::Add, 64) => compute::<Add, 64>(form, branch),
        (Mnemonic::And, 32) => compute::<And, 32>(form, branch),
        (Mnemonic::And, 64) => compute::<And, 64>(form, branch),
        _ => None,
    }?;

    // With a memory operand, `disp` is its displacement, and the target has to fit elsewhere.
    let op = match form {
        Form::RR | Form::RI => Op {
            run,
            disp: two.disp,
            ..*one
        },
        Form::RM | Form::MR => Op {
            run,
            imm: distance(block, two.disp)?,
            ..*one
        },
        _ => Op {
            run,
            src: i8::try_from(one.imm).ok()?.cast_unsigned(),
            imm: distance(block, two.disp)?,
            ..*one
        },
    };

    Some(op)
}

fn compare<B: Binary, const W: u32>(form: Form, branch: &Instruction) -> Option<Run> {
    Some(match form {
        Form::RR => by_condition!(branch, rr, B, W),
        Form::RI => by_condition!(branch, ri, B, W),
        Form::RM => by_condition!(branch, rm, B, W),
        Form::MR => by_condition!(branch, mr, B, W),
        Form::MI => by_condition!(branch, mi, B, W),
        _ => return None,
    })
}

fn compute<B: Binary, const W: u32>(form: Form, branch: &Instruction) -> Option<Run> {
    Some(match form {
        Form::RR => by_condition!(branch, rr, B, W),
        Form::RI => by_condition!(branch, ri, B, W),
        _ => return None,
    })
}

fn load_test<const W: u32>(branch: &Instruction) -> Option<Run> {
    Some(by_condition!(branch, load_test_branch, W))
}

/// Jumps to `target` if the flags say so.
#[inline(always)]
fn branch<const CC: u8>(core: &mut Core, target: u64) -> Flow {
    if core.state.flags.condition::<CC>() {
        core.state.rip = target;
        Flow::Jump
    } else {
        Flow::Next
    }
}

/// The target at a distance from the start of the block, which is rip.
#[inline(always)]
fn target(core: &Core, op: &Op) -> u64 {
    core.state.rip.wrapping_add(op.imm())
}

fn rr<const CC: u8, B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.src);
    to_register::<B, W>(core, op, b);
    branch::<CC>(core, op.disp)
}

fn ri<const CC: u8, B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    to_register::<B, W>(core, op, op.imm() & mask::<W>());
    branch::<CC>(core, op.disp)
}

fn rm<const CC: u8, B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    to_register::<B, W>(core, op, b);
    branch::<CC>(core, target(core, op))
}

fn mr<const CC: u8, B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.src);
    match to_memory::<B, W>(core, op, b) {
        Flow::Next => branch::<CC>(core, target(core, op)),
        flow => flow,
    }
}

/// The immediate is in `src`.
fn mi<const CC: u8, B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = op.src.cast_signed() as u64 & mask::<W>();
    match to_memory::<B, W>(core, op, b) {
        Flow::Next => branch::<CC>(core, target(core, op)),
        flow => flow,
    }
}

/// Loads `W` bits, zero-extended, and tests them.
fn load_test_branch<const CC: u8, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    core.state.set::<64>(op.dst, value);
    core.state.flags = Flags::logic::<W>(value);
    branch::<CC>(core, target(core, op))
}

/// Stores two words, with one access if they are in a page that was written recently.
fn push_push(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let slot = rsp.wrapping_sub(16);

    let first = core.state.get::<64>(op.dst);
    // `push %rsp` stores the value before it.
    let second = if usize::from(op.src) == reg::RSP {
        rsp.wrapping_sub(8)
    } else {
        core.state.get::<64>(op.src)
    };

    // One store for both, if the page has just been used.
    let words = u128::from(second) | u128::from(first) << 64;
    if core
        .memory
        .store_recent(slot, words.to_le_bytes())
        .is_none()
    {
        if core.store::<64>(rsp.wrapping_sub(8), first).is_none() {
            return Flow::Stop;
        }
        // The first push is done: the two have to be executed one by one.
        if core.store::<64>(slot, second).is_none() {
            return apart(core);
        }
    }

    core.state.gpr[reg::RSP] = slot;
    Flow::Next
}

/// Loads two words.
fn pop_pop(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let Some(first) = core.load::<64>(rsp) else {
        return Flow::Stop;
    };
    let Some(second) = core.load::<64>(rsp.wrapping_add(8)) else {
        return apart(core);
    };
    // `pop %rsp` leaves the popped value in rsp.
    core.state.gpr[reg::RSP] = rsp.wrapping_add(16);
    core.state.set::<64>(op.dst, first);
    core.state.set::<64>(op.src, second);
    Flow::Next
}

/// Two moves of 32 or 64 bits. The second one's operands are in other fields: its register operand
/// in `extra`, and in `index` the other register, or the base of its address. The displacements are
/// the halves of `disp`.
fn moves(insns: [&Instruction; 2], ops: [&Op; 2]) -> Option<Op> {
    let [one, two] = ops;
    let widths = insns.map(|insn| width(insn, 0));
    let forms = insns.map(form);

    macro_rules! by_widths {
        ($run:ident) => {
            match widths {
                [32, 32] => $run::<32, 32>,
                [32, _] => $run::<32, 64>,
                [_, 32] => $run::<64, 32>,
                _ => $run::<64, 64>,
            }
        };
    }

    // `mov` also has segment, control and debug registers.
    let is_general = |insn: &&Instruction| {
        (0..2).all(|n| insn.op_kind(n) != OpKind::Register || insn.op_register(n).is_gpr())
    };
    if !insns.iter().all(is_general) {
        return None;
    }

    let run: Run = match forms {
        [Form::RR, Form::RR] => {
            return Some(Op {
                run: by_widths!(mov_mov),
                extra: two.dst,
                index: two.src,
                ..*one
            });
        }
        [Form::RM, Form::RM] => by_widths!(load_load),
        [Form::MR, Form::MR] => by_widths!(store_store),
        _ => return None,
    };

    // The second base takes the place of the index.
    let is_indexed = |op: &Op| usize::from(op.index) != reg::ZERO;
    if is_indexed(one) || is_indexed(two) {
        return None;
    }

    // Two displacements of 32 bits share the field.
    let small = |op: &Op| i32::try_from(op.disp.cast_signed()).ok();
    let (low, high) = (small(one)?.cast_unsigned(), small(two)?.cast_unsigned());

    Some(Op {
        run,
        disp: u64::from(low) | u64::from(high) << 32,
        extra: if forms[0] == Form::RM {
            two.dst
        } else {
            two.src
        },
        index: two.base,
        ..*one
    })
}

fn mov_mov<const V: u32, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<V>(op.src);
    core.state.set::<V>(op.dst, value);
    let value = core.state.get::<W>(op.index);
    core.state.set::<W>(op.extra, value);
    Flow::Next
}

/// The address of the first or second access of [`moves`].
#[inline(always)]
fn half<const SECOND: bool>(core: &Core, op: &Op) -> u64 {
    let (base, disp) = if SECOND {
        (op.index, (op.disp >> 32) as i32)
    } else {
        (op.base, op.disp as i32)
    };
    core.state.gpr[(base & 31) as usize].wrapping_add_signed(disp.into())
}

fn load_load<const V: u32, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(first) = core.load::<V>(half::<false>(core, op)) else {
        return Flow::Stop;
    };
    let before = core.state.gpr[(op.dst & 31) as usize];
    core.state.set::<V>(op.dst, first);
    let Some(second) = core.load::<W>(half::<true>(core, op)) else {
        core.state.gpr[(op.dst & 31) as usize] = before;
        return apart(core);
    };
    core.state.set::<W>(op.extra, second);
    Flow::Next
}

fn store_store<const V: u32, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let first = core.state.get::<V>(op.src);
    if core.store::<V>(half::<false>(core, op), first).is_none() {
        return Flow::Stop;
    }
    let second = core.state.get::<W>(op.extra);
    if core.store::<W>(half::<true>(core, op), second).is_none() {
        return apart(core);
    }
    Flow::Next
}

/// Stops after the second access was refused.
#[cold]
fn apart(core: &mut Core) -> Flow {
    core.memory.take_refusal();
    stop(core, Stop::Apart)
}
