//! The parts of a stop: registers, stacks, words, return addresses taken by tracers.

use super::json::{Object, Problem, UNPACKED_MAX};
use super::states;
use crate::import::error::ImportError;
use crate::kernel::KernelImage;
use crate::model::{CallchainRequest, Region, RegionRole};
use crate::trace::URETPROBES_MAX;
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::kernel::{
    GraphReturn, GraphSearch, StackInfo, StackType, State, Task, Uretprobes, UserSpace, Version,
};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;

/// Return addresses taken by the function graph tracer, oldest first: `ret_stack` up to
/// `curr_ret_stack`.
pub(super) fn graph(from: &Object<'_>, version: Version) -> Result<Vec<GraphReturn>, Problem> {
    let bytes = from.memory("ret_stack")?;
    let words = bytes.as_chunks::<8>().0.iter();
    let words: Vec<u64> = words.map(|b| u64::from_le_bytes(*b)).collect();
    let current = from.signed("curr_ret_stack")?.unwrap_or(-1);
    Ok(match version.graph_search() {
        GraphSearch::Oldest => entries(&words, usize::try_from(current + 1).unwrap_or(0)),
        GraphSearch::Newest => shadow_stack(&words, usize::try_from(current).unwrap_or(0)),
    })
}

/// Before 6.10: `count` entries of `struct ftrace_ret_stack` {ret, func, calltime, retp}.
fn entries(words: &[u64], count: usize) -> Vec<GraphReturn> {
    let entries = words.as_chunks::<4>().0.iter().take(count);
    let taken = entries.map(|&[ret, _, _, retp]| GraphReturn { ret, retp });
    taken.collect()
}

/// Since 6.10 (Linux `kernel/trace/fgraph.c`): words, `top` of them in use. The lowest ten bits of
/// the word on top of each entry are the distance down to the entry's start. Directly after the
/// `struct ftrace_ret_stack`, whose last member is `retp`, is a word of type 1 (bits 10 and 11)
/// with the struct's length.
fn shadow_stack(words: &[u64], top: usize) -> Vec<GraphReturn> {
    const OFFSET: u64 = (1 << 10) - 1;
    const TYPE_BITMAP: u64 = 1 << 10;
    const TYPE: u64 = 3 << 10;
    let mut taken = Vec::new();
    let mut top = top.min(words.len());
    while let Some(head) = top.checked_sub(1).and_then(|at| words.get(at)) {
        let begin = (top - 1).checked_sub((head & OFFSET) as usize);
        let Some(begin) = begin.filter(|begin| begin + 1 < top) else {
            break;
        };
        let length = (3..=5).find(|&length| {
            let bitmap = words.get(begin + length).copied().unwrap_or(0);
            bitmap & TYPE == TYPE_BITMAP && bitmap & OFFSET == length as u64
        });
        let Some(length) = length else { break };
        let (ret, retp) = (words[begin], words[begin + length - 1]);
        taken.push(GraphReturn { ret, retp });
        top = begin;
    }
    taken.reverse();
    taken
}

/// The unwinder's own registers inside `__unwind_start`: for ORC, ip, sp and bp of its first state;
/// for the frame pointer unwinder, those after its prologue, which saved rbp. That word is written
/// into the memory, which was captured at the function's entry.
pub(super) fn own_regs(states: &[State], entry: &Regs, regions: &mut [Region<'_>]) -> Regs {
    let sp = entry.rsp();
    let bp = entry.get_or_zero(Reg::Rbp);
    let ret = word_at(regions, sp);
    match (states.first(), ret) {
        (Some(State::Orc(first)), _) => Regs::frame(first.ip, first.sp, first.bp),
        (Some(State::Fp(_)), Some(ret)) => {
            let frame = sp.wrapping_sub(8);
            put_word(regions, frame, bp);
            Regs::frame(ret, frame, frame)
        }
        (_, Some(ret)) => Regs::frame(ret, sp.wrapping_add(8), bp),
        (_, None) => *entry,
    }
}

/// Writes a word, if a region contains it.
pub(super) fn put_word(regions: &mut [Region<'_>], address: u64, word: u64) {
    let place = regions.iter_mut().find_map(|region| {
        let at = usize::try_from(address.checked_sub(region.address)?).ok()?;
        region.bytes.to_mut().get_mut(at..at.checked_add(8)?)
    });
    if let Some(place) = place {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// The registers of an inactive task: `struct inactive_task_frame`.
pub(super) fn inactive_regs(sp: u64, regions: &[Region<'_>]) -> SampleRegs {
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rsp, sp.wrapping_add(56));
    for (reg, offset) in [(Reg::Rbp, 40), (Reg::Rip, 48)] {
        if let Some(value) = word_at(regions, sp.wrapping_add(offset)) {
            regs.set(reg, value);
        }
    }
    SampleRegs::hardware(regs)
}

/// The word at offset `offset` of `bytes`.
pub(super) fn word(bytes: &[u8], offset: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(offset).ok()?..)?;
    bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
}

/// The word at an address in the regions.
pub(super) fn word_at(regions: &[Region<'_>], address: u64) -> Option<u64> {
    let found = |r: &Region<'_>| word(&r.bytes, address.checked_sub(r.address)?);
    regions.iter().find_map(found)
}

pub(super) fn region(
    address: u64,
    bytes: Vec<u8>,
    bounds: Range<u64>,
    next_sp: u64,
) -> Region<'static> {
    Region {
        role: RegionRole::Stack,
        bounds,
        next_sp,
        address,
        bytes: Cow::Owned(bytes),
    }
}

/// Adds the stacks listed in `from` that are not known yet.
pub(super) fn stacks(
    from: &Object<'_>,
    task: &mut Task,
    regions: &mut Vec<Region<'static>>,
) -> Result<(), Problem> {
    for stack in from.objects("stacks")? {
        let stack = stack?;
        let name = stack.string("type")?.unwrap_or_default();
        let kind = StackType::from_name(&name);
        let kind = kind.ok_or_else(|| stack.problem("type", "not a stack type"))?;

        let (begin, end) = (stack.needed("begin")?, stack.needed("end")?);
        let bytes = stack.memory("data")?;
        // Without a place of its own, the data starts where the stack does.
        let at = stack.number("data_at")?.unwrap_or(begin);

        // Where the capture does not have the link, it is a word on the stack itself.
        let linked = kind
            .next_sp_at(end)
            .and_then(|slot| word(&bytes, slot.checked_sub(at)?));
        let next_sp = stack.number("next_sp")?.or(linked).unwrap_or(0);

        match task.stacks.iter_mut().find(|s| s.kind == kind) {
            // A stack is captured once, but its link may be known only here.
            Some(known) => known.next_sp = next_sp,
            None => {
                task.stacks.push(StackInfo {
                    kind,
                    begin,
                    end,
                    next_sp,
                });
                regions.push(region(at, bytes, begin..end, next_sp));
            }
        }
    }
    Ok(())
}

/// The user-space registers, and its memory.
pub(super) fn user_space(
    from: &Object<'_>,
    regions: &mut Vec<Region<'static>>,
) -> Result<Option<UserSpace>, Problem> {
    let Some(user) = from.object("user")? else {
        return Ok(None);
    };

    let mut room = UNPACKED_MAX;
    for memory in user.objects("memory")? {
        let memory = memory?;
        let (address, bytes) = (memory.needed("at")?, memory.memory("data")?);
        room = room
            .checked_sub(bytes.len())
            .ok_or_else(|| user.problem("memory", "more than 64 MiB of memory"))?;
        // User memory has no bounds: these are for the kernel's stacks.
        let mut piece = region(address, bytes, 0..0, 0);
        piece.role = RegionRole::User;
        regions.push(piece);
    }

    let regs = user.object("regs")?;
    let pid = user.number("pid")?.unwrap_or(0);
    let uprobe = user.numbers("uprobe")?;

    // Numbers in JSON may be of any size, but each of these is a byte.
    let insn = || {
        let mut insn = [0; 4];
        for (to, from) in insn.iter_mut().zip(&uprobe) {
            *to = u8::try_from(*from).ok()?;
        }
        (uprobe.len() == insn.len()).then_some(insn)
    };
    let uprobe = if uprobe.is_empty() {
        None
    } else {
        Some(insn().ok_or_else(|| user.problem("uprobe", "not four bytes"))?)
    };

    Ok(Some(UserSpace {
        regs: regs.map(|regs| registers(&regs)).transpose()?,
        // The process whose mappings hold the user code (`docs/trace-format.md`, "Samples").
        pid: u32::try_from(pid).map_err(|_| user.problem("pid", "not a process ID"))?,
        uprobe,
        uretprobes: uretprobes(&user)?,
    }))
}

/// The return addresses that return probes took from the user stack.
fn uretprobes(user: &Object<'_>) -> Result<Option<Uretprobes>, Problem> {
    let Some(taken) = user.object("uretprobes")? else {
        return Ok(None);
    };
    let originals = taken.numbers("originals")?;
    if originals.len() > URETPROBES_MAX {
        return Err(taken.problem("originals", "more than 64, which is the kernel's limit"));
    }
    Ok(Some(Uretprobes {
        trampoline: taken.number("trampoline")?.unwrap_or(u64::MAX),
        originals,
    }))
}

/// What the kernel was asked for when it made the stop's callchain.
pub(super) fn request(from: &Object<'_>) -> Result<Option<CallchainRequest>, Problem> {
    let Some(asked) = from.object("callchain_request")? else {
        return Ok(None);
    };
    let flag = |key: &str, default: bool| {
        let number = asked.number(key)?;
        Ok::<bool, Problem>(number.map_or(default, |number| number != 0))
    };
    let max_stack = asked.number("max_stack")?.unwrap_or(0);
    Ok(Some(CallchainRequest {
        kernel: flag("kernel", true)?,
        user: flag("user", true)?,
        add_mark: flag("add_mark", true)?,
        crosstask: flag("crosstask", false)?,
        max_stack: u32::try_from(max_stack)
            .map_err(|_| asked.problem("max_stack", "more than 32 bits"))?,
        cookie: asked.number("cookie")?,
    }))
}

/// The registers of an object, by their names in gdb; flags are `eflags`.
pub(super) fn registers(from: &Object<'_>) -> Result<Regs, Problem> {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        let name = match reg {
            Reg::Rflags => "eflags",
            other => other.as_str(),
        };
        if let Some(value) = from.number(name)? {
            regs.set(reg, value);
        }
    }
    Ok(regs)
}

/// The KASLR offset: the one at which most return addresses in the capture directly follow a call;
/// 0 if there is none.
pub(super) fn kaslr(root: &Object<'_>, image: &KernelImage) -> Result<u64, ImportError> {
    let mut addresses = Vec::new();
    for point in root.objects("points")? {
        let states = states::all(&point?, "kernel", None)?;
        addresses.extend(states.iter().filter_map(|s| match s {
            State::Orc(s) if !s.signal => Some(s.ip),
            _ => None,
        }));
    }
    for sample in root.objects("samples")? {
        addresses.extend(sample?.numbers("result")?.into_iter().skip(1));
    }
    Ok(image.kaslr(&addresses).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unwind_sim_unwind::kernel::UnwinderKind;

    fn memory(address: u64, words: &[u64]) -> Vec<Region<'static>> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        vec![Region {
            role: RegionRole::Stack,
            bounds: 0..0,
            next_sp: 0,
            address,
            bytes: Cow::Owned(bytes),
        }]
    }

    /// `curr_ret_stack` is the index of the newest entry in use.
    #[test]
    fn as_many_entries_of_the_old_stack_are_taken_as_are_in_use() {
        let words: [u64; 8] = [0x10, 0xf, 7, 0x1000, 0x20, 0xf, 8, 0x2000];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let packed = crate::import::capture::tests::packed(&bytes);
        let version = Version::from_name("6.1").expect("a version");
        let taken = [(0x10, 0x1000), (0x20, 0x2000)];
        let taken = taken.map(|(ret, retp)| GraphReturn { ret, retp });
        for (current, n) in [(-1, 0), (0, 1), (1, 2)] {
            let task = json!({"ret_stack": packed, "curr_ret_stack": current}).to_string();
            let task = Object::root(task.as_bytes()).unwrap_or_else(|_| panic!("an object"));
            let found = graph(&task, version).unwrap_or_else(|_| panic!("a stack"));
            assert_eq!(found, taken[..n], "{current}");
        }
    }

    /// ip, sp and bp of ORC's first state; for the frame pointer unwinder those after its prologue;
    /// otherwise those in the caller after `__unwind_start` has returned.
    #[test]
    fn the_unwinders_own_registers_are_those_of_its_first_state() {
        // The word at rsp, 0x50, is the return address; 0xbad below it has not been written yet.
        let entry = Regs::frame(0x40, 0x1008, 0x2000);
        let state = |kind| {
            let first = json!({"type": 1, "ip": "0x1", "sp": "0x2", "bp": "0x3"});
            let text = json!({"kernel": [first]}).to_string();
            let root = Object::root(text.as_bytes()).unwrap_or_else(|_| panic!("an object"));
            states::all(&root, "kernel", Some(kind)).unwrap_or_else(|_| panic!("states"))
        };
        let stack = || memory(0x1000, &[0xbad, 0x50]);
        let regs = |states: &[State], memory: &mut Vec<Region<'static>>| {
            let regs = own_regs(states, &entry, memory);
            [regs.rip(), regs.rsp(), regs.get_or_zero(Reg::Rbp)]
        };
        let mut untouched = stack();
        assert_eq!(regs(&state(UnwinderKind::Orc), &mut untouched), [1, 2, 3]);
        assert_eq!(regs(&[], &mut untouched), [0x50, 0x1010, 0x2000]);
        assert_eq!(word_at(&untouched, 0x1000), Some(0xbad));
        let mut pushed = stack();
        assert_eq!(
            regs(&state(UnwinderKind::Fp), &mut pushed),
            [0x50, 0x1000, 0x1000]
        );
        assert_eq!(word_at(&pushed, 0x1000), Some(0x2000), "rbp was pushed");
        // Without the return address, the registers of the entry are all that is known.
        assert_eq!(regs(&[], &mut Vec::new()), [0x40, 0x1008, 0x2000]);
    }

    /// `struct inactive_task_frame`: six registers, the last of them rbp, and the return address.
    #[test]
    fn an_inactive_task_continues_after_its_frame() {
        let words = [1, 2, 3, 4, 5, 0xb, 0x1f, 0xbad];
        let regs = inactive_regs(0x1000, &memory(0x1000, &words)).sampled;
        let found = [Reg::Rip, Reg::Rsp, Reg::Rbp].map(|reg| regs.get(reg));
        assert_eq!(found, [Some(0x1f), Some(0x1038), Some(0xb)]);
        let regs = inactive_regs(0x1000, &memory(0x1000, &words[..6])).sampled;
        assert_eq!([regs.get(Reg::Rip), regs.get(Reg::Rbp)], [None, Some(0xb)]);
    }

    #[test]
    fn the_shadow_stack_of_today_is_read_from_its_top() {
        let bitmap = |length: u64| 3 << 12 | 1 << 10 | length;
        // The first entry has no data; the second has two words of data and a word on top.
        let first = [0x10, 0xf, 7, 0x1000, bitmap(4)];
        let data = 2 << 10 | 7;
        let second = [0x20, 0xf, 8, 0x2000, bitmap(4), 0xdead, 0xbeef, data];
        let words = [first.as_slice(), &second].concat();
        let taken = [(0x10, 0x1000), (0x20, 0x2000)];
        let expected = taken.map(|(ret, retp)| GraphReturn { ret, retp });
        assert_eq!(shadow_stack(&words, words.len()), expected);
        assert_eq!(shadow_stack(&words, first.len()), expected[..1]);
        assert!(shadow_stack(&words, 0).is_empty());
        // Without calltime.
        let short = [0x10, 0xf, 0x1000, bitmap(3)];
        assert_eq!(shadow_stack(&short, 4), expected[..1]);
        assert!(shadow_stack(&[u64::MAX; 9], 9).is_empty());
        assert!(shadow_stack(&[0; 9], 999).is_empty());
    }
}
