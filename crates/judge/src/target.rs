//! Decides whether a row describes another frame than the true one on purpose: the one that its code
//! is about to jump to.
//!
//! `longjmp` and `__builtin_eh_return` take registers from a buffer or from save slots that they
//! wrote themselves, load rsp and jump. Their rows describe the state after the jump before it
//! happens. A sample does not show the jump, but the code does, and the target is one of the true
//! frames further out.
//!
//! Where rsp is loaded first, as `__builtin_longjmp` does, the row describes the frame that rsp has
//! left until the jump. And the rows of `__morestack` describe the frame behind the single `ret` that
//! it returns to (libgcc, `config/i386/morestack.S`).

use crate::check::{Contradiction, Subject};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::step::step;
use unwind_sim_unwind::walk::WalkTarget;

/// The maximum number of instructions from the load of rsp to the jump.
const TO_JUMP_MAX: usize = 8;
/// The maximum number of bytes of a function that are decoded.
const FUNCTION_MAX: u64 = 1 << 14;

/// Whether the row of true frame `index`, which has the contradictions `found`, describes a frame
/// further out that its code jumps to.
pub(crate) fn is_described(
    subject: &Subject<'_>,
    finder: &dyn Finder,
    (frame, index): (&Frame, usize),
    found: &[Contradiction],
    cache: &mut Cache,
) -> bool {
    let by_frame_pointer = |c: &Contradiction| {
        let row = c.row.as_ref();
        row.is_none_or(|row| row.rule.by_frame_pointer)
    };

    // A frame-pointer walk has no rows: it cannot describe another frame on purpose.
    if found.iter().any(by_frame_pointer) {
        return false;
    }

    // A step that gives no value, or one that is only looked up wrongly, describes no frame.
    let is_whole = found.iter().all(|c| c.given.is_some() && !c.misread);
    if found.is_empty() || !is_whole {
        return false;
    }

    if passes_return(subject, finder, (frame, index), found, cache) {
        return true;
    }

    if !loads_rsp_and_jumps(subject.space, frame.pc) {
        // Without such a jump in its code, the function cannot leave for another frame.
        return false;
    }

    if is_left(subject, (frame, index), found) {
        return true;
    }

    let place = WalkTarget {
        space: subject.space,
        memory: subject.memory,
    };
    let Ok(caller) = step(finder, &place, frame, cache).caller else {
        return false;
    };

    let frames = subject.truth.frames();
    let pc = caller.pc.value();
    let mut targets = (index + 1)..frames.len();
    // What the row gives must be the rsp, the function and the registers of one frame further out.
    targets.any(|target| {
        let is_there = pc == frames[index + 1].pc
            || same_function(
                subject.space,
                caller.pc,
                CodeAddress::Return(frames[target].pc),
            );

        let saved = frames[target].saved.unwrap_or_default();
        let agrees = |c: &Contradiction| match c.reg {
            // A frame's rsp is the CFA of the frame that it called.
            Reg::Rsp => c.given == Some(frames[target - 1].cfa),
            Reg::Rip => true,
            reg => {
                let at = Reg::CALLEE_SAVED.iter().position(|&r| r == reg);
                at.is_some_and(|at| frames[target].saved.is_some() && c.given == Some(saved[at]))
            }
        };

        is_there && found.iter().all(agrees)
    })
}

/// Whether the row describes a frame below rsp, in the instructions between the load of rsp and the
/// jump. What is below rsp may be overwritten (psABI, section 3.2.2), but nothing was jumped to yet.
fn is_left(
    subject: &Subject<'_>,
    (frame, index): (&Frame, usize),
    found: &[Contradiction],
) -> bool {
    let is_top = index == 0 && matches!(frame.pc, CodeAddress::Instruction(_));
    let below =
        |c: &Contradiction| c.reg == Reg::Rsp && c.given.is_some_and(|cfa| cfa <= frame.regs.rsp());
    is_top && found.iter().any(below) && is_behind_load(subject.space, frame.pc.value())
}

/// Whether the instruction at `pc` is behind a load of rsp, and only a few before a jump through a
/// register or memory.
fn is_behind_load(space: &AddressSpace, pc: u64) -> bool {
    let Some((start, code)) = function(space, CodeAddress::Instruction(pc)) else {
        return false;
    };
    let pc = space.find(pc).map_or(pc, |mapping| mapping.svma(pc));
    let (mut left, mut is_inside) = (0, false);
    for insn in &mut Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        is_inside |= insn.ip() == pc && left > 0;
        left = match insn.flow_control() {
            FlowControl::IndirectBranch if left > 0 && is_inside => return true,
            FlowControl::Next if loads_rsp(&insn) => TO_JUMP_MAX,
            FlowControl::Next => left.saturating_sub(1),
            _ => 0,
        };
        is_inside &= left > 0;
    }
    false
}

/// Whether the row describes the caller of the function whose prologue called `__morestack`: nothing
/// is left to do in the prologue but the `ret` at the return address.
pub(crate) fn passes_return(
    subject: &Subject<'_>,
    finder: &dyn Finder,
    (frame, index): (&Frame, usize),
    found: &[Contradiction],
    cache: &mut Cache,
) -> bool {
    /// `ret`, and `mov $imm32, %r10d; mov $imm32, %r11d; call` before it.
    const RET: u8 = 0xc3;
    const SIZES: [(usize, [u8; 2]); 2] = [(17, [0x41, 0xba]), (11, [0x41, 0xbb])];
    const BEFORE: usize = 17;

    if found.is_empty() {
        return false;
    }
    let frames = subject.truth.frames();
    let (Some(this), Some(next)) = (frames.get(index), frames.get(index + 1)) else {
        return false;
    };
    let place = WalkTarget {
        space: subject.space,
        memory: subject.memory,
    };
    let Ok(caller) = step(finder, &place, frame, cache).caller else {
        return false;
    };
    // What `ret` does with the true caller's registers.
    let returned = subject.memory.read_u64(this.cfa).ok();
    let is_behind =
        returned == Some(caller.pc.value()) && caller.regs.rsp() == this.cfa.wrapping_add(8);
    if !is_behind || found.iter().any(|c| !matches!(c.reg, Reg::Rsp | Reg::Rip)) {
        return false;
    }
    let Some(mapping) = subject.space.find(next.pc) else {
        return false;
    };
    let Some(image) = &mapping.image else {
        return false;
    };
    let svma = mapping.svma(next.pc);

    // `__morestack` calls the rest of the function behind this `ret`, one byte further on (libgcc,
    // `config/i386/morestack.S`).
    if image.text_bytes(svma, 1) != [RET] {
        return false;
    }
    let before = image.text_bytes(svma.wrapping_sub(BEFORE as u64), BEFORE);

    // It takes the size of the frame in r10 and that of the arguments in r11, so the prologue loads
    // both just before the call.
    let is_prologue = SIZES.iter().all(|&(back, bytes)| {
        let at = BEFORE.checked_sub(back).filter(|_| before.len() == BEFORE);
        at.is_some_and(|at| before[at..].starts_with(&bytes))
    });
    is_prologue || is_named_morestack(subject.space, frame.pc)
}

fn is_named_morestack(space: &AddressSpace, pc: CodeAddress) -> bool {
    let symbol = space.find(pc.symbol_address()).and_then(|mapping| {
        let image = mapping.image.as_ref()?;
        image.symbol(mapping.svma(pc.symbol_address()))
    });
    symbol.is_some_and(|symbol| symbol.name.starts_with("__morestack"))
}

/// The function at `pc`, by its start and bytes.
fn function(space: &AddressSpace, pc: CodeAddress) -> Option<(u64, &[u8])> {
    let mapping = space.find(pc.symbol_address())?;
    let image = mapping.image.as_ref()?;
    let svma = mapping.svma(pc.symbol_address());
    let (start, size) = match image.symbol(svma) {
        Some(symbol) if symbol.size > 0 => (symbol.address, symbol.size),
        _ => (svma, FUNCTION_MAX),
    };
    Some((
        start,
        image.text_bytes(start, size.min(FUNCTION_MAX) as usize),
    ))
}

fn same_function(space: &AddressSpace, one: CodeAddress, other: CodeAddress) -> bool {
    let function = |pc: CodeAddress| {
        let mapping = space.find(pc.symbol_address())?;
        let image = mapping.image.as_ref()?;
        let symbol = image.symbol(mapping.svma(pc.symbol_address()))?;
        Some((image.id(), mapping.bias, symbol.address))
    };
    function(one).is_some_and(|this| function(other) == Some(this))
}

/// Whether the function loads rsp with that of another frame and then returns, or jumps through a
/// register or memory.
fn loads_rsp_and_jumps(space: &AddressSpace, pc: CodeAddress) -> bool {
    let Some((start, code)) = function(space, pc) else {
        return false;
    };
    let mut left = 0;
    for insn in &mut Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        left = match insn.flow_control() {
            FlowControl::IndirectBranch | FlowControl::Return if left > 0 => return true,
            FlowControl::Next if loads_rsp(&insn) => TO_JUMP_MAX,
            FlowControl::Next => left.saturating_sub(1),
            _ => 0,
        };
    }
    false
}

/// Whether rsp is loaded from memory, or from a register that does not hold this function's frame.
fn loads_rsp(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Mov
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register() == Register::RSP
        && (insn.op1_kind() == OpKind::Memory || insn.op1_register() != Register::RBP)
}
