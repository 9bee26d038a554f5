//! `perf_callchain_kernel` (Linux `arch/x86/events/core.c`): the addresses of a sample's kernel
//! part, from real or fake registers.

use super::{FindCache, FpState, Kernel, RegsPtr, StartFrom, State, Unwind, UnwinderKind, glide};
use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::Reg;
use crate::start::Start;
use alloc::vec::Vec;

/// An event while a callchain is collected.
#[derive(Debug)]
pub enum Visit<'u, M: ?Sized> {
    /// A state that was skipped on the way to the mark.
    Skipped(&'u Unwind<'u, M>),
    /// The sampled ip, stored before the walk.
    Ip(u64),
    /// A state whose return address was stored.
    Stored(&'u Unwind<'u, M>, u64),
    /// The state with which the callchain ends, because it has no return address.
    Last(&'u Unwind<'u, M>),
}

/// The arguments of `__unwind_start`, and the ip stored before the walk.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'r> {
    /// Where the walk starts.
    pub from: StartFrom<'r>,
    /// The mark up to which frames are skipped.
    pub first_frame: u64,
    /// The ip that perf stores before the walk.
    pub ip: Option<u64>,
}

impl<'r> Begin<'r> {
    /// How the kernel uses `start`: with its registers, with the unwinder's own registers up to a
    /// mark, or with those of a task that does not run.
    ///
    /// # Errors
    /// If ip or sp is unknown.
    pub fn new<M: ?Sized>(kernel: Kernel<'_, M>, start: &'r Start) -> Result<Begin<'r>, Reason> {
        let regs = &start.regs;
        for reg in [Reg::Rip, Reg::Rsp] {
            regs.get(reg).ok_or(Reason::RegistersMissing { reg })?;
        }
        let (from, first_frame, ip) = match start.first_frame {
            None if kernel.task.is_current => (StartFrom::Regs(regs), regs.rsp(), Some(regs.rip())),
            None => (StartFrom::Inactive, kernel.task.thread_sp, None),
            Some(mark) => (StartFrom::Own(regs), mark, start.sampled_ip),
        };
        Ok(Begin {
            from,
            first_frame,
            ip,
        })
    }
}

/// Walks as perf does, from a start computed from the sample's registers for some version: either
/// from the registers, whose ip comes first, or from the unwinder's own, up to the mark. Stores at
/// most `frames_max` addresses. Returns the last state and why the walk ended.
///
/// # Errors
/// If the registers that it starts from are unknown.
pub fn callchain<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    start: &Start,
    frames_max: u32,
    finds: &mut FindCache,
    visit: &mut dyn FnMut(Visit<'_, M>),
) -> Result<(State, Reason), Reason> {
    let Begin {
        from,
        first_frame,
        ip,
    } = Begin::new(kernel, start)?;

    let mut left = frames_max;
    // Where `perf_callchain_kernel` stores the sampled ip, it does so before it unwinds.
    if let Some(ip) = ip {
        visit(Visit::Ip(ip));
        left = left.saturating_sub(1);
    }

    let mut unwind = Unwind::start(kind, kernel, from, first_frame, finds, &mut |unwind| {
        visit(Visit::Skipped(unwind));
    });
    let limit = Reason::FrameLimit { limit: frames_max };

    // An address of 0 or outside of kernel text ends the chain, even if the unwinder could go on.
    while !unwind.state().is_done() {
        match unwind.return_address() {
            None => {
                visit(Visit::Last(&unwind));
                return Ok((*unwind.state(), unwind.end_without_address()));
            }
            // `perf_callchain_store` refuses what it has no room for.
            Some(_) if left == 0 => return Ok((*unwind.state(), limit)),
            Some(address) => visit(Visit::Stored(&unwind, address)),
        }

        left -= 1;
        unwind.next_frame();
    }

    // The last state is visited although it stores nothing: it may have the registers of user
    // space.
    visit(Visit::Last(&unwind));
    Ok((*unwind.state(), unwind.end_of_walk()))
}

/// Like [`callchain`], but only appends the addresses to `out`: several times as fast.
///
/// # Errors
/// See [`callchain`].
pub fn addresses<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    start: &Start,
    frames_max: u32,
    finds: &mut FindCache,
    out: &mut Vec<u64>,
) -> Result<(State, Reason), Reason> {
    let Begin {
        from,
        first_frame,
        ip,
    } = Begin::new(kernel, start)?;

    let mut left = frames_max;

    // The sampled ip takes one of the places.
    if let Some(ip) = ip {
        out.push(ip);
        left = left.saturating_sub(1);
    }

    let mut unwind = Unwind::start(kind, kernel, from, first_frame, finds, &mut |_| {});

    while !unwind.state().is_done() {
        // As many common steps as possible, then a full one.
        glide::glide(&mut unwind, &mut left, out);
        match unwind.return_address() {
            None => return Ok((*unwind.state(), unwind.end_without_address())),
            Some(_) if left == 0 => {
                let limit = Reason::FrameLimit { limit: frames_max };
                return Ok((*unwind.state(), limit));
            }
            Some(address) => out.push(address),
        }

        left -= 1;
        unwind.next_frame();
    }

    Ok((*unwind.state(), unwind.end_of_walk()))
}

impl<M: Memory + ?Sized> Unwind<'_, M> {
    /// Why a callchain ends in a state without return address.
    fn end_without_address(&self) -> Reason {
        // The kernel returns no address for user space's registers: that is a root.
        if self.in_user_regs() {
            Reason::RootReached
        } else {
            Reason::NotText { address: self.ip() }
        }
    }

    /// Why a walk that is done ended.
    fn end_of_walk(&self) -> Reason {
        self.ended().map_or(Reason::NotAtRoot, |e| e.reason())
    }
}

/// All states of a walk, whatever their addresses, from the very first to the one that is done, at
/// most `max`. Also returns how many of them `__unwind_start` passed before the one that it
/// returned.
pub fn states<M: Memory + ?Sized>(
    kind: UnwinderKind,
    kernel: Kernel<'_, M>,
    begin: Begin<'_>,
    max: usize,
    finds: &mut FindCache,
) -> (Vec<State>, usize) {
    let Begin {
        from, first_frame, ..
    } = begin;
    let mut states = Vec::new();
    let mut unwind = Unwind::start(kind, kernel, from, first_frame, finds, &mut |unwind| {
        states.push(*unwind.state());
    });
    let skipped = states.len();
    states.push(*unwind.state());
    while !unwind.state().is_done() && states.len() < max {
        unwind.next_frame();
        states.push(*unwind.state());
    }
    (states, skipped)
}

/// The first of our states that differs from the kernel's recording. The recording may omit the
/// first states, at most the `skipped` ones that `__unwind_start` passed, and the one that is done.
/// A state without bounds is brief, see [`State`].
pub fn first_difference(ours: &[State], recorded: &[State], skipped: usize) -> Option<Difference> {
    let difference = |skip: usize| {
        // Both lists are compared from the same state on; a list that ends early agrees up to its
        // end.
        let pairs = ours.iter().skip(skip).zip(recorded);
        let differs = pairs.clone().position(|(a, b)| !agrees(a, b));

        let rest = ours.get(skip + recorded.len()..);
        let is_whole = match rest {
            Some([]) => true,
            Some([last]) => last.is_done(),
            Some(_) | None => false,
        };

        // If all that both have agrees, a state too many or too few is the difference.
        let end = (!is_whole).then_some(ours.len().min(skip + recorded.len()));
        let ours = differs.map(|i| i + skip).or(end)?;
        let recorded = ours.saturating_sub(skip);
        Some(Difference { ours, recorded })
    };

    // A reading that agrees in full ends the search; otherwise the one that agrees longest says
    // where they differ.
    let mut furthest = difference(0)?;
    for skip in 1..=skipped {
        let other = difference(skip)?;
        // A reading that agrees on nothing but the omitted states is no better.
        if other.recorded > furthest.recorded {
            furthest = other;
        }
    }

    Some(furthest)
}

/// The first state in which two walks differ, by its index in each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Index among our states.
    pub ours: usize,
    /// Index among the recorded states.
    pub recorded: usize,
}

fn agrees(ours: &State, recorded: &State) -> bool {
    let (stack, _) = recorded.stack();
    let brief = stack.end == 0;
    // Our start registers have no address; those of the kernel have one.
    let pointer = |ours: RegsPtr, recorded: RegsPtr| {
        brief || ours == recorded || ours == RegsPtr::Start && recorded.is_some()
    };

    match (ours, recorded) {
        (State::Orc(a), State::Orc(b)) => {
            let plain = (
                a.stack.kind,
                a.error,
                a.signal,
                a.full_regs,
                a.ip,
                a.sp,
                a.bp,
            ) == (
                b.stack.kind,
                b.error,
                b.signal,
                b.full_regs,
                b.ip,
                b.sp,
                b.bp,
            );
            // The unit of graph_idx changed in 6.10.
            let graph = (a.cursors.graph_idx == 0) == (b.cursors.graph_idx == 0);
            let rest = a.stack == b.stack && a.stack_mask == b.stack_mask && graph;
            let pointers = pointer(a.regs, b.regs) && pointer(a.prev_regs, b.prev_regs);
            plain && (brief || rest) && pointers
        }
        // A recording without bounds has nothing but these.
        (State::Fp(a), State::Fp(b)) if brief => {
            (a.stack.kind, a.error, a.ip, a.bp) == (b.stack.kind, b.error, b.ip, b.bp)
        }
        (State::Guess(a), State::Guess(b)) if brief => (a.stack.kind, a.sp) == (b.stack.kind, b.sp),
        (State::Fp(a), State::Fp(b)) => {
            let same = FpState {
                regs: b.regs,
                cursors: b.cursors,
                ..*a
            };
            same == *b && pointer(a.regs, b.regs)
        }
        (State::Guess(a), State::Guess(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GuessState, StackInfo, StackType};
    use super::*;

    fn states() -> Vec<State> {
        let state = |sp: u64| {
            State::Guess(GuessState {
                stack: StackInfo {
                    kind: StackType::Task,
                    begin: 0,
                    end: 0x1000,
                    next_sp: 0,
                },
                stack_mask: 2,
                sp,
            })
        };
        (0..12).map(|n| state(8 * n)).collect()
    }

    #[test]
    fn a_recording_may_leave_out_what_the_start_passed() {
        let ours = states();
        assert_eq!(first_difference(&ours, &ours, 9), None);
        for skip in 1..=9 {
            assert_eq!(first_difference(&ours, &ours[skip..], 9), None);
        }
        // One more omitted state than were passed is a difference, and so is one in the middle.
        assert!(first_difference(&ours, &ours[10..], 9).is_some());
        assert!(first_difference(&ours, &ours[1..], 0).is_some());
        let mut recorded = ours[9..].to_vec();
        recorded[1] = ours[0];
        let difference = first_difference(&ours, &recorded, 9);
        let expected = Difference {
            ours: 10,
            recorded: 1,
        };
        assert_eq!(difference, Some(expected));
    }
}
