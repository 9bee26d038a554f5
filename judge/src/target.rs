//! Decides whether a row describes the frame that its code is about to jump to.
//!
//! `longjmp` and `__builtin_eh_return` take registers from a buffer or from save slots that they
//! wrote themselves, load rsp and jump. Their rows describe the state after the jump before it
//! happens. A sample does not show the jump, but the code does, and the target is one of the true
//! frames further out.

use crate::check::{Contradiction, Subject};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::step::step;
use unwind_sim_unwind::walk::Place;

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
    if found.iter().any(by_frame_pointer) {
        return false;
    }
    let is_whole = found.iter().all(|c| c.given.is_some() && !c.misread);
    if found.is_empty() || !is_whole || !loads_rsp_and_jumps(subject.space, frame.pc) {
        return false;
    }
    let place = Place {
        space: subject.space,
        memory: subject.memory,
    };
    let Ok(caller) = step(finder, &place, frame, cache).caller else {
        return false;
    };
    let frames = subject.truth.frames();
    let pc = caller.pc.value();
    let mut targets = (index + 1)..frames.len();
    targets.any(|target| {
        let is_there = pc == frames[index + 1].pc
            || same_function(
                subject.space,
                caller.pc,
                CodeAddress::Return(frames[target].pc),
            );
        let saved = frames[target].saved.unwrap_or_default();
        let agrees = |c: &Contradiction| match c.reg {
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
    let Some(mapping) = space.find(pc.symbol_address()) else {
        return false;
    };
    let Some(image) = &mapping.image else {
        return false;
    };
    let svma = mapping.svma(pc.symbol_address());
    let (start, size) = match image.symbol(svma) {
        Some(symbol) if symbol.size > 0 => (symbol.address, symbol.size),
        _ => (svma, FUNCTION_MAX),
    };
    let code = image.text_bytes(start, size.min(FUNCTION_MAX) as usize);
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
