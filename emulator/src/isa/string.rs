//! String instructions, single and repeated: movs, cmps, stos, lods, scas; and xlat.
//!
//! A repeated instruction that faults leaves rcx, rsi and rdi at the faulting iteration and rip at
//! the instruction, so that it continues after the fault is handled. Ascending instructions work on
//! whole pages where the difference is not visible.

use crate::address_space::PAGE_SIZE;
use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run, stop};
use crate::operands::{by_width, segment};
use crate::processor::Vendor;
use crate::state::{mask, reg};
use crate::stop::Stop;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    if insn.mnemonic() == Xlatb {
        return Some(xlat);
    }

    if !insn.is_string_instruction() {
        return None;
    }

    let width = insn.memory_size().size() as u32 * 8;
    // The segment of the source; the destination has none.
    op.base = segment(insn) as u8;
    op.extra = match (insn.has_rep_prefix(), insn.has_repne_prefix()) {
        (false, false) => ONCE,
        (_, false) => REPEAT_EQUAL,
        (_, true) => REPEAT_NOT_EQUAL,
    };

    op.src = u8::from(insn.op_kinds().any(is_small));
    Some(match insn.mnemonic() {
        Movsb | Movsw | Movsd | Movsq => by_width!(width, string, Movs),
        Cmpsb | Cmpsw | Cmpsd | Cmpsq => by_width!(width, string, Cmps),
        Stosb | Stosw | Stosd | Stosq => by_width!(width, string, Stos),
        Lodsb | Lodsw | Lodsd | Lodsq => by_width!(width, string, Lods),
        Scasb | Scasw | Scasd | Scasq => by_width!(width, string, Scas),
        _ => return None,
    })
}

fn is_small(kind: iced_x86::OpKind) -> bool {
    use iced_x86::OpKind::{MemoryESEDI, MemorySegESI};
    matches!(kind, MemorySegESI | MemoryESEDI)
}

// The repetition, in `extra`.
const ONCE: u8 = 0;
const REPEAT_EQUAL: u8 = 1;
const REPEAT_NOT_EQUAL: u8 = 2;

/// One iteration of a string instruction.
trait Iteration {
    /// Whether it reads memory at rsi.
    const SOURCE: bool;
    /// Whether it uses memory at rdi.
    const DESTINATION: bool;
    /// Whether it writes memory.
    const WRITES: bool = false;
    /// Whether it sets flags, which can end the repetition.
    const COMPARES: bool = false;

    /// Processes one element of `W` bits. `None`, without any effect, if memory cannot be accessed.
    fn one<const W: u32>(core: &mut Core, from: u64, to: u64) -> Option<()>;

    /// Processes up to `count` elements at once, ascending; returns their number.
    fn many<const W: u32>(_: &mut Core, _from: u64, _to: u64, _count: u64) -> u64 {
        0
    }
}

struct Movs;
impl Iteration for Movs {
    const SOURCE: bool = true;
    const DESTINATION: bool = true;
    const WRITES: bool = true;

    #[inline(always)]
    fn one<const W: u32>(core: &mut Core, from: u64, to: u64) -> Option<()> {
        let value = core.load::<W>(from)?;
        core.store::<W>(to, value)
    }

    fn many<const W: u32>(core: &mut Core, from: u64, to: u64, count: u64) -> u64 {
        let size = u64::from(W / 8);
        // An element that overlaps itself is not copied byte by byte: it is read before it is
        // written.
        if (1..size).contains(&to.wrapping_sub(from)) {
            return 0;
        }
        let room = whole_elements::<W>(from).min(whole_elements::<W>(to));
        let count = count.min(room);
        if count == 0 {
            return 0;
        }
        let copied = core.memory.copy_in_pages(to, from, count * size);
        copied.map_or(0, |bytes| bytes / size)
    }
}

struct Stos;
impl Iteration for Stos {
    const SOURCE: bool = false;
    const DESTINATION: bool = true;
    const WRITES: bool = true;

    #[inline(always)]
    fn one<const W: u32>(core: &mut Core, _: u64, to: u64) -> Option<()> {
        let value = core.state.get::<W>(reg::RAX as u8);
        core.store::<W>(to, value)
    }

    fn many<const W: u32>(core: &mut Core, _: u64, to: u64, count: u64) -> u64 {
        let value = core.state.get::<W>(reg::RAX as u8).to_le_bytes();
        let element = &value[..W as usize / 8];
        let count = count.min(whole_elements::<W>(to));
        let Some(bytes) = core.memory.writable(to) else {
            return 0;
        };
        let bytes = &mut bytes[..count as usize * element.len()];
        if W == 8 {
            bytes.fill(element[0]);
        } else {
            for place in bytes.chunks_exact_mut(element.len()) {
                place.copy_from_slice(element);
            }
        }
        count
    }
}

struct Lods;
impl Iteration for Lods {
    const SOURCE: bool = true;
    const DESTINATION: bool = false;

    #[inline(always)]
    fn one<const W: u32>(core: &mut Core, from: u64, _: u64) -> Option<()> {
        let value = core.load::<W>(from)?;
        core.state.set::<W>(reg::RAX as u8, value);
        Some(())
    }
}

struct Cmps;
impl Iteration for Cmps {
    const SOURCE: bool = true;
    const DESTINATION: bool = true;
    const COMPARES: bool = true;

    #[inline(always)]
    fn one<const W: u32>(core: &mut Core, from: u64, to: u64) -> Option<()> {
        // The order decides which of two unreadable operands faults.
        let b = core.load::<W>(to)?;
        let a = core.load::<W>(from)?;
        core.state.flags = Flags::sub::<W>(a, b, a.wrapping_sub(b));
        Some(())
    }
}

struct Scas;
impl Iteration for Scas {
    const SOURCE: bool = false;
    const DESTINATION: bool = true;
    const COMPARES: bool = true;

    #[inline(always)]
    fn one<const W: u32>(core: &mut Core, _: u64, to: u64) -> Option<()> {
        let a = core.state.get::<W>(reg::RAX as u8);
        let b = core.load::<W>(to)?;
        core.state.flags = Flags::sub::<W>(a, b, a.wrapping_sub(b));
        Some(())
    }
}

/// Number of whole elements up to the end of the page.
fn whole_elements<const W: u32>(address: u64) -> u64 {
    (PAGE_SIZE - address % PAGE_SIZE) / u64::from(W / 8)
}

fn string<I: Iteration, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if op.src == 0 {
        sized::<I, 64, W>(core, op)
    } else {
        sized::<I, 32, W>(core, op)
    }
}

/// Runs it with rcx, rsi and rdi of `A` bits.
#[inline(always)]
fn sized<I: Iteration, const A: u32, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if op.extra != ONCE {
        return repeat::<I, A, W>(core, op);
    }
    let (from, to) = pointers::<A>(core, op);
    match I::one::<W>(core, from, to) {
        Some(()) => {
            advance::<I, A>(core, step::<W>(core));
            Flow::Next
        }
        None => Flow::Stop,
    }
}

/// The addresses of the source and the destination.
#[inline(always)]
fn pointers<const A: u32>(core: &Core, op: &Op) -> (u64, u64) {
    let segment = core.state.gpr[(op.base & 31) as usize];
    let from = core.state.get::<A>(reg::RSI as u8).wrapping_add(segment);
    (from, core.state.get::<A>(reg::RDI as u8))
}

/// The distance from one element to the next, bytes.
#[inline(always)]
fn step<const W: u32>(core: &Core) -> u64 {
    let size = u64::from(W / 8);
    if core.state.other_flags & flags::DF == 0 {
        size
    } else {
        size.wrapping_neg()
    }
}

/// Advances the pointers.
#[inline(always)]
fn advance<I: Iteration, const A: u32>(core: &mut Core, by: u64) {
    if I::SOURCE {
        let at = core.state.get::<A>(reg::RSI as u8).wrapping_add(by);
        core.state.set::<A>(reg::RSI as u8, at);
    }
    if I::DESTINATION {
        let at = core.state.get::<A>(reg::RDI as u8).wrapping_add(by);
        core.state.set::<A>(reg::RDI as u8, at);
    }
}

/// With 32-bit addresses, Intel's processors clear upper halves before they check the count: that
/// of rcx and, for instructions that write, those of the pointers.
fn cut_registers<I: Iteration>(core: &mut Core) {
    if core.processor.vendor() != Vendor::Intel {
        return;
    }
    core.state.gpr[reg::RCX] &= mask::<32>();
    if I::WRITES {
        core.state.gpr[reg::RDI] &= mask::<32>();
        if I::SOURCE {
            core.state.gpr[reg::RSI] &= mask::<32>();
        }
    }
}

fn repeat<I: Iteration, const A: u32, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if A == 32 {
        cut_registers::<I>(core);
    }

    // An interrupted instruction leaves the flags as it found them (SDM volume 2, REP); on AMD's
    // processors, as the last iteration left them (seen on an EPYC, family 25, model 17).
    let found = (core.processor.vendor() == Vendor::Intel).then_some(core.state.flags);

    let by = step::<W>(core);
    let up = by.cast_signed() > 0;

    let mut left = core.state.get::<A>(reg::RCX as u8);
    while left != 0 {
        let (from, to) = pointers::<A>(core, op);

        // 32-bit addresses can wrap around.
        let bulk = up && !core.state.single_iteration && A == 64;
        let done = if bulk {
            I::many::<W>(core, from, to, left)
        } else {
            0
        };

        if done != 0 {
            advance::<I, A>(core, by.wrapping_mul(done));
            left -= done;
            core.state.set::<A>(reg::RCX as u8, left);
            continue;
        }

        // Completed iterations stay done: the registers say where to go on after the fault.
        if I::one::<W>(core, from, to).is_none() {
            core.state.flags = found.unwrap_or(core.state.flags);
            return Flow::Stop;
        }

        advance::<I, A>(core, by);
        left -= 1;
        core.state.set::<A>(reg::RCX as u8, left);

        if I::COMPARES && core.state.flags.zf() != (op.extra == REPEAT_EQUAL) {
            break;
        }

        if core.state.single_iteration && left != 0 {
            core.state.flags = found.unwrap_or(core.state.flags);
            return stop(core, Stop::Again);
        }
    }

    Flow::Next
}

/// Loads al from the table at rbx.
fn xlat(core: &mut Core, op: &Op) -> Flow {
    let index = core.state.get::<8>(reg::RAX as u8);
    match core.load::<8>(op.address_moved(core, index)) {
        Some(value) => {
            core.state.set::<8>(reg::RAX as u8, value);
            Flow::Next
        }
        None => Flow::Stop,
    }
}
