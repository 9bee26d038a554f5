//! Derives what a capture lacks from the kernel's own states in it: the addresses of ftrace's
//! trampolines, and the return addresses taken by kretprobes.
//!
//! Replays are compared with the same states. So only facts missing from the capture are derived
//! from them, never how the kernel continued.

use unwind_sim_unwind::image::{AddressSpace, Mapping};
use unwind_sim_unwind::kernel::{
    Code, FindCache, Generated, Kernel, PAGE_SIZE, RegsPtr, Rethook, StartFrom, State, Task,
    Unwind, UnwinderKind, Version,
};
use unwind_sim_unwind::memory::{Memory, Regions};
use unwind_sim_unwind::regs::Regs;

/// The area of modules and generated code (Linux `Documentation/arch/x86/x86_64/mm.rst`).
const MODULES_START: u64 = 0xffff_ffff_c000_0000;
const MODULES_END: u64 = 0xffff_ffff_ff00_0000;

/// Addresses of generated code: those that the kernel passed through and that are in no image.
pub(super) fn unknown_code(states: &[State], code: &Code) -> Vec<u64> {
    let inner = states.split_last().map_or(states, |(_, inner)| inner);
    let ips = inner.iter().filter_map(|s| match s {
        State::Orc(s) => Some(s.ip),
        _ => None,
    });
    ips.filter(|ip| (MODULES_START..MODULES_END).contains(ip) && !code.is_text(*ip))
        .collect()
}

/// The trampoline that contains `from`, a state with an ip in unknown code. It starts at its page.
/// Of the two kinds of trampoline, it is the one with which a step leads to the kernel's `next`
/// state.
pub(super) fn trampoline(
    space: &AddressSpace,
    version: Version,
    task: &Task,
    memory: &Regions<'_>,
    [from, next]: [&State; 2],
) -> Option<Mapping> {
    let State::Orc(state) = from else { return None };
    let page = state.ip / PAGE_SIZE * PAGE_SIZE;
    [true, false].into_iter().find_map(|saves_regs| {
        let mapping = Mapping {
            range: page..page + PAGE_SIZE,
            bias: 0,
            image: None,
            name: Generated::ftrace_name(saves_regs),
        };

        // A copy, because the trampoline is only tried.
        let mut space = space.clone();
        space.map(mapping.clone());
        let code = Code::new(&space, version, task.encoding);
        let kernel = Kernel {
            code: &code,
            task,
            memory,
        };

        let regs = Regs::frame(state.ip, state.sp, state.bp);
        let mut finds = FindCache::default();
        // The first frame is below sp, so no frame is skipped.
        let mut unwind = Unwind::start(
            UnwinderKind::Orc,
            kernel,
            StartFrom::Own(&regs),
            state.sp.saturating_sub(8),
            &mut finds,
            &mut |_| {},
        );

        unwind.next_frame();
        let (State::Orc(ours), State::Orc(next)) = (unwind.state(), next) else {
            return None;
        };
        // Only the right kind leads to the sp of the kernel's next state.
        (ours.sp == next.sp && !ours.error).then_some(mapping)
    })
}

/// The return addresses taken by kretprobes, newest first: where the stack has the trampoline's
/// address and the kernel found another one.
pub(super) fn rethooks(states: &[State], code: &Code, memory: &Regions<'_>) -> Vec<Rethook> {
    let trampoline = code.known().arch_rethook_trampoline;
    let taken = states.iter().filter_map(|state| {
        let State::Orc(state) = state else {
            return None;
        };
        let frame = state.sp.checked_sub(8)?;
        let is_call = state.regs == RegsPtr::None;
        let word = is_call.then(|| memory.read_u64(frame).ok())??;
        let is_taken = word == trampoline && state.ip != word && state.ip != 0;
        is_taken.then_some(Rethook {
            ret_addr: state.ip,
            frame,
        })
    });
    match trampoline {
        0 => Vec::new(),
        _ => taken.collect(),
    }
}
