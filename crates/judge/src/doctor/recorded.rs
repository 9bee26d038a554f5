//! The user chain that perf recorded with frame pointers: judged by the truth as far as it is known,
//! and otherwise by which of its functions have frame pointers.

use super::advice::CHAIN_MAX;
use super::fault::{Fault, Judged, Reading, is_rest_whole, of_break, of_doubt};
use super::kind::Kind;
use super::stack::row;
use crate::run::user_part;
use crate::whole::{self, Seen, Whole};
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::End;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::rule::RuleKind;
use unwind_sim_unwind::verdict::{Verdict, judge_addresses};

/// Addresses from here upwards are context markers.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// What became of the recorded chain. `None` if there is none, or it was left to the stack copy.
pub(super) fn judge(
    view: &View<'_>,
    made: &Made,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Option<Judged> {
    let recorded = view.sample.recorded.iter().find(|r| r.source == "perf")?;
    let user = user_part(&recorded.ips);

    // Beside a stack copy or branch records, the sample's own address alone means that the rest was
    // left to them.
    let has_more = !view.sample.regions.is_empty() || !view.sample.branches.is_empty();
    if user.is_empty() || user.len() == 1 && has_more {
        return None;
    }

    let truth = &view.sample.truth;
    let known: Vec<u64> = truth.frames().iter().map(|f| f.pc).collect();
    let (verdict, ground) = judge_addresses(&user, &known, truth.is_complete());

    // One known frame is the sample itself.
    if known.len() > 1 && verdict.is_wrong() {
        let at = verdict.at().unwrap_or(0) as usize;
        let before = &known[..at.clamp(1, known.len())];
        // Only the frames up to the divergence can have lost the chain.
        let fault = by_code(view.space, before, finder, cache);
        let last = return_or_top(&known, at.saturating_sub(1));
        let unknown = || Fault::at(Kind::Other, Code::WrongReturnAddress, last);
        let mut fault = fault.unwrap_or_else(unknown);
        fault.lost = Some(u64::from(ground.known.saturating_sub(ground.found)));
        return Some(Judged::Broken(Box::new(fault)));
    }

    if known.len() > 1 && verdict == Verdict::Ok {
        return Some(Judged::Whole);
    }

    // `perf_event.h`: what is not below `PERF_CONTEXT_MAX` is a marker, not an address.
    let stored = recorded.ips.iter().filter(|&&ip| ip < CONTEXT_MAX).count() as u64;
    // The kernel's default limit may have been raised: a longer chain was not cut there.
    let is_full = match made.max_stack {
        0 => stored == CHAIN_MAX,
        asked => stored >= asked.into(),
    };

    // Without a truth that contradicts the chain, the code has to say whether it is whole.
    judge_alone(view, &user, is_full, made, cache)
}

/// Judges a chain without a truth. `is_full` if the kernel had no room for more.
fn judge_alone(
    view: &View<'_>,
    user: &[u64],
    is_full: bool,
    made: &Made,
    cache: &mut Cache,
) -> Option<Judged> {
    let frames = Seen::of_addresses(user);
    // The kernel follows rbp until it is 0, or leads to what cannot be read.
    let end = End::from(Reason::RootReached);
    let whole = whole::judge(view, &frames, &end, cache)?;

    // Not empty: without frames, `whole::judge` has no answer.
    let last = return_or_top(user, user.len() - 1);
    if whole.is_yes() {
        return Some(Judged::Whole);
    }

    // A full chain may end there by chance: it was cut only if its outermost frame is not a root.
    let outermost = whole::judge(view, &frames[user.len() - 1..], &end, cache);
    if is_full && !outermost.is_some_and(|whole| whole.is_yes()) {
        let fault = Fault::at(Kind::ChainCut, Code::FrameLimit, last);
        return Some(Judged::Broken(Box::new(fault)));
    }

    // The kernel's walk of user space is one by frame pointers (`perf_callchain_user`).
    let reading = Reading {
        is_by_frame_pointer: true,
        made,
        proof_ended: None,
    };

    let rest = || is_rest_whole(view, &frames, &end, cache);
    Some(match whole {
        Whole::Yes(_) => Judged::Whole,
        Whole::Unknown(doubt) => Judged::Unknown(Box::new(of_doubt(view, doubt))),
        Whole::No(found) => {
            let unknown = || Fault::at(Kind::Other, Code::NotAtRoot, last);
            let fault = of_break(view, (found, &frames), reading, rest).unwrap_or_else(unknown);
            match (fault.kind, whole::doubtful(view, &frames)) {
                (Kind::StartCode, None) => Judged::ToMain,
                (Kind::StartCode, Some((doubt, _))) => {
                    Judged::Unknown(Box::new(of_doubt(view, doubt)))
                }
                _ => Judged::Broken(Box::new(fault)),
            }
        }
    })
}

/// The innermost of these frames that has no frame pointer, or that lies in no known code.
fn by_code(
    space: &AddressSpace,
    pcs: &[u64],
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Option<Fault> {
    (0..pcs.len()).find_map(|index| {
        let pc = return_or_top(pcs, index);
        let row = row(space, pc, finder, cache);
        let (kind, code) = match &row {
            Some(row) if whole::has_frame_pointer(row) => return None,
            Some(row) if row.rule.kind != RuleKind::Call => return None,
            Some(_) => (Kind::NoFramePointer, Code::NoFramePointer),
            // Without a row, the code may have one or not. What is mapped nowhere is no address.
            None if index == 0 || space.find(pc.symbol_address()).is_some() => return None,
            None => (Kind::Other, Code::NotText),
        };
        Some(Fault::at(kind, code, pc))
    })
}

fn return_or_top(pcs: &[u64], index: usize) -> CodeAddress {
    match index {
        0 => CodeAddress::Instruction(pcs[0]),
        index => CodeAddress::Return(pcs[index]),
    }
}

#[cfg(test)]
mod tests;
