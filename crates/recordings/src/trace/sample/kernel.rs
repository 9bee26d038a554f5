//! Encodes a sample's kernel part as integers, independently of other samples.

use crate::model::KernelSample;
use crate::trace::error::{Bad, WriteError};
use crate::trace::layout::NAME_BYTES_MAX;
use crate::trace::varint::{Cursor, put, put_bytes, put_difference};
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GraphReturn, GuessState, OrcState, RegsPtr, Rethook, StackInfo, StackType,
    State, Task, UnwinderKind, UserBoundary, UserSpace, Version,
};
use unwind_sim_unwind::orc::Encoding;
use unwind_sim_unwind::regs::{RegMask, Regs};

/// Maximum stacks of a task, and maximum return addresses taken by tracers.
const STACKS_MAX: usize = 64;
const TAKEN_MAX: usize = 256;
/// Maximum states; each takes at most about 120 bytes.
const STATES_MAX: usize = 256;

/// Bits of the task's head.
const CURRENT: u64 = 1;
const OTHER_CPU: u64 = 2;
/// User-space information follows.
const USER: u64 = 4;
/// The truth at the user boundary follows, and whether the processor pushed a frame there.
const BOUNDARY: u64 = 8;
const PUSHED: u64 = 16;
const HEAD_ALL: u64 = 0x1f;
/// Bits of the user-space information: the registers follow; the first bytes of the instruction
/// under a uprobe follow.
const USER_REGS: u64 = 1;
const UPROBE: u64 = 2;
const USER_ALL: u64 = 3;

/// Combines the bits whose flag is set.
fn bits(flags: &[(u64, bool)]) -> u64 {
    let set = flags.iter().filter(|(_, set)| *set);
    set.map(|(bit, _)| bit).sum()
}

/// Bytes that the kernel part counts towards `CHUNK_DECODED_BYTES_MAX`.
pub(super) fn weight(kernel: &KernelSample) -> u64 {
    let task = &kernel.task;
    let pairs = task.graph.len() + task.rethooks.len();
    let bytes = size_of_val(kernel.states.as_slice()) + pairs * 16 + kernel.release.len();
    (bytes + size_of_val(task.stacks.as_slice()) + size_of::<KernelSample>()) as u64
}

/// Rejects what the format cannot hold.
pub(super) fn check(kernel: &KernelSample) -> Result<(), WriteError> {
    let task = &kernel.task;
    let max = NAME_BYTES_MAX / 16;
    WriteError::check("bytes in a kernel's release", kernel.release.len(), max)?;
    WriteError::check("stacks of a task", task.stacks.len(), STACKS_MAX)?;
    let taken = task.graph.len() + task.rethooks.len();
    WriteError::check("return addresses taken by tracers", taken, TAKEN_MAX)?;
    WriteError::check(
        "states of a kernel's unwinder",
        kernel.states.len(),
        STATES_MAX,
    )
}

/// Appends the kernel part to `out`.
pub(super) fn put_kernel(kernel: &KernelSample, out: &mut Vec<u8>) {
    let task = &kernel.task;
    // The version is not written: it follows from the release.
    put_bytes(out, kernel.release.as_bytes());

    let head = [
        (CURRENT, task.is_current),
        (OTHER_CPU, task.on_other_cpu),
        (USER, kernel.user.is_some()),
        (BOUNDARY, kernel.boundary.is_some()),
        (
            PUSHED,
            kernel.boundary.is_some_and(|b| b.pushed_at.is_some()),
        ),
    ];
    put(out, bits(&head));

    put(out, encoding_number(task.encoding));
    put(out, task.thread_sp);
    put(out, task.top_padding);

    put(out, task.stacks.len() as u64);
    // Each stack is relative to the one before, those of the states too.
    let mut before = 0;
    for stack in &task.stacks {
        put_stack(stack, &mut before, out);
    }

    let graph = task.graph.iter().map(|g| [g.ret, g.retp]);
    let rethooks = task.rethooks.iter().map(|r| [r.ret_addr, r.frame]);
    // Both numbers first, then the addresses of both.
    put(out, task.graph.len() as u64);
    put(out, task.rethooks.len() as u64);
    for [ret, at] in graph.chain(rethooks) {
        put(out, ret);
        put(out, at);
    }

    put(out, kernel.states.len() as u64);
    for state in &kernel.states {
        put_state(state, &mut before, out);
    }

    // What may be absent comes last; bits of the head say whether it is there.
    if let Some(user) = &kernel.user {
        put_user(user, out);
    }

    if let Some(boundary) = &kernel.boundary {
        put(out, boundary.ip);
        put(out, boundary.sp);
        // Without it the entry was a system call, for which the processor pushes nothing.
        if let Some(at) = boundary.pushed_at {
            put(out, at);
        }
    }
}

fn put_user(user: &UserSpace, out: &mut Vec<u8>) {
    let head = [
        (USER_REGS, user.regs.is_some()),
        (UPROBE, user.uprobe.is_some()),
    ];
    put(out, bits(&head));
    put(out, u64::from(user.pid));
    if let Some(regs) = &user.regs {
        put(out, u64::from(regs.known().0));
        for reg in regs.known().iter() {
            put(out, regs.get_or_zero(reg));
        }
    }
    if let Some(insn) = user.uprobe {
        out.extend(insn);
    }
}

fn read_user(records: &mut Cursor<'_>) -> Result<UserSpace, Bad> {
    let head = records.u64()?;
    // `USER_ALL` is all bits, so any other bit makes a greater number.
    if head > USER_ALL {
        return Err(records.bad("user space has unknown bits"));
    }

    let mut user = UserSpace {
        pid: records.u32()?,
        // `uretprobes` is a detail, which stands in another block.
        ..UserSpace::default()
    };

    if head & USER_REGS != 0 {
        let known = RegMask(records.u32()?);
        // Registers are numbered from 0 to 18 (`docs/trace-format.md`, "Samples").
        if known.and(RegMask::ALL) != known {
            return Err(records.bad("registers that do not exist"));
        }
        let mut regs = Regs::UNKNOWN;
        for reg in known.iter() {
            regs.set(reg, records.u64()?);
        }
        user.regs = Some(regs);
    }

    if head & UPROBE != 0 {
        let mut insn = [0; 4];
        for byte in &mut insn {
            *byte = records.u8()?;
        }
        user.uprobe = Some(insn);
    }

    Ok(user)
}

/// 0 if unknown, otherwise one plus its index in [`Encoding::ALL`].
fn encoding_number(encoding: Option<Encoding>) -> u64 {
    let place = |wanted| Encoding::ALL.iter().position(|e| *e == wanted);
    encoding.and_then(place).map_or(0, |place| place as u64 + 1)
}

fn encoding_of(number: u64) -> Option<Option<Encoding>> {
    let Some(place) = number.checked_sub(1) else {
        return Some(None);
    };
    let encoding = Encoding::ALL.get(usize::try_from(place).ok()?)?;
    Some(Some(*encoding))
}

fn put_stack(stack: &StackInfo, before: &mut u64, out: &mut Vec<u8>) {
    out.push(stack.kind as u8);
    put_difference(out, stack.begin, *before);
    put_difference(out, stack.end, stack.begin);
    put(out, stack.next_sp);
    *before = stack.begin;
}

/// Encodes a pointer to registers: 0 for none, 1 for the start registers, otherwise its address. An
/// address is aligned, so it is never 1.
const fn regs_word(regs: RegsPtr) -> u64 {
    match regs {
        RegsPtr::None => 0,
        RegsPtr::Start => 1,
        RegsPtr::At(address) => address,
    }
}

fn put_state(state: &State, before: &mut u64, out: &mut Vec<u8>) {
    let (kind, cursors, flags) = match state {
        State::Orc(s) => {
            let flags = [(1, s.error), (2, s.signal), (4, s.full_regs)];
            (UnwinderKind::Orc, s.cursors, bits(&flags))
        }
        State::Fp(s) => {
            let flags = [(1, s.error), (2, s.got_irq)];
            (UnwinderKind::Fp, s.cursors, bits(&flags))
        }
        State::Guess(_) => (UnwinderKind::Guess, Cursors::default(), 0),
    };

    out.push(kind as u8);
    let (stack, mask) = state.stack();
    // Relative to the stack before: for two states on one stack the difference is 0.
    put_stack(stack, before, out);
    put(out, mask);
    put(out, flags);
    put(out, u64::from(cursors.graph_idx));
    put(out, u64::from(cursors.rethook));

    // Five words in any case, so that a reader needs no other form for each unwinder.
    let near = match *state {
        State::Orc(s) => [s.sp, s.bp, s.ip, regs_word(s.regs), regs_word(s.prev_regs)],
        State::Fp(s) => [s.bp, s.orig_sp, s.ip, s.next_bp, regs_word(s.regs)],
        State::Guess(s) => [s.sp, 0, 0, 0, 0],
    };
    for word in near {
        put(out, word);
    }
}

/// Decodes the kernel part; the counterpart of [`put_kernel`].
pub(super) fn read(records: &mut Cursor<'_>) -> Result<KernelSample, Bad> {
    let release = records.string(NAME_BYTES_MAX / 16)?.to_owned();

    let head = records.u64()?;
    // The address is that of a boundary, which must be there.
    let pushed_nowhere = head & PUSHED != 0 && head & BOUNDARY == 0;
    if head > HEAD_ALL || pushed_nowhere {
        return Err(records.bad("a task has unknown bits"));
    }

    let mut task = Task {
        // Not written, because the release says it.
        version: Version::from_name(&release),
        is_current: head & CURRENT != 0,
        on_other_cpu: head & OTHER_CPU != 0,
        encoding: encoding_of(records.u64()?)
            .ok_or_else(|| records.bad("ORC entries of an unknown encoding"))?,
        thread_sp: records.u64()?,
        top_padding: records.u64()?,
        ..Task::default()
    };

    // Kept from the task's stacks to those of the states.
    let mut before = 0;
    for _ in 0..records.count(STACKS_MAX, "too many stacks")? {
        task.stacks.push(read_stack(&mut before, records)?);
    }

    let what = "too many return addresses taken by tracers";
    // The bound is of both together.
    let graph = records.count(TAKEN_MAX, what)?;
    let rethooks = records.count(TAKEN_MAX - graph, what)?;

    // Those of the function graph tracer are oldest first, those of kretprobes newest first.
    for _ in 0..graph {
        let (ret, retp) = (records.u64()?, records.u64()?);
        task.graph.push(GraphReturn { ret, retp });
    }
    for _ in 0..rethooks {
        let (ret_addr, frame) = (records.u64()?, records.u64()?);
        task.rethooks.push(Rethook { ret_addr, frame });
    }

    let mut states = Vec::new();
    for _ in 0..records.count(STATES_MAX, "too many states")? {
        states.push(read_state(&mut before, records)?);
    }

    let user = (head & USER != 0).then(|| read_user(records)).transpose()?;
    let boundary = match head & BOUNDARY {
        0 => None,
        _ => Some(UserBoundary {
            ip: records.u64()?,
            sp: records.u64()?,
            pushed_at: match head & PUSHED {
                0 => None,
                _ => Some(records.u64()?),
            },
        }),
    };

    Ok(KernelSample {
        release,
        // It is a detail, which stands in another block.
        unwinder: None,
        task,
        states,
        boundary,
        user,
    })
}

fn read_stack(before: &mut u64, records: &mut Cursor<'_>) -> Result<StackInfo, Bad> {
    let kind = StackType::from_number(u64::from(records.u8()?));
    let kind = kind.ok_or_else(|| records.bad("a stack of unknown type"))?;
    let begin = records.difference(*before)?;
    *before = begin;
    Ok(StackInfo {
        kind,
        begin,
        end: records.difference(begin)?,
        next_sp: records.u64()?,
    })
}

fn read_state(before: &mut u64, records: &mut Cursor<'_>) -> Result<State, Bad> {
    let kind = records.u8()?;
    let kind = UnwinderKind::ALL.into_iter().find(|k| *k as u8 == kind);
    let kind = kind.ok_or_else(|| records.bad("a state of an unknown unwinder"))?;

    let stack = read_stack(before, records)?;
    let (stack_mask, flags) = (records.u64()?, records.u64()?);
    let cursors = Cursors {
        graph_idx: records.u32()?,
        rethook: records.u32()?,
    };

    let mut word = || records.u64();
    // Five words for every unwinder; the guess uses only the first.
    let words = [word()?, word()?, word()?, word()?, word()?];

    // Only bit 0 means the same for all unwinders that have flags.
    let bit = |n: u64| flags >> n & 1 != 0;
    // Registers are never at 0 or 1, so these two stand for something else.
    let regs = |word: u64| match word {
        0 => RegsPtr::None,
        1 => RegsPtr::Start,
        address => RegsPtr::At(address),
    };

    Ok(match kind {
        UnwinderKind::Orc => State::Orc(OrcState {
            stack,
            stack_mask,
            cursors,
            error: bit(0),
            signal: bit(1),
            full_regs: bit(2),
            sp: words[0],
            bp: words[1],
            ip: words[2],
            regs: regs(words[3]),
            prev_regs: regs(words[4]),
        }),
        UnwinderKind::Fp => State::Fp(FpState {
            stack,
            stack_mask,
            cursors,
            error: bit(0),
            got_irq: bit(1),
            bp: words[0],
            orig_sp: words[1],
            ip: words[2],
            next_bp: words[3],
            regs: regs(words[4]),
        }),
        UnwinderKind::Guess => State::Guess(GuessState {
            stack,
            stack_mask,
            sp: words[0],
        }),
    })
}

#[cfg(test)]
mod tests;
