//! A walk once more, in plain steps: the registers of its frames, and the step at which it ended.
//!
//! A chain holds the frames that were found. What a reader wants to see most is the step that found
//! none: the row that was applied to the last frame, the words that it read, and what it gave.

use crate::listing;
use unwind_sim_judge::engine::{Engine, Outcome, Setting};
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Frame, ReadWords};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::frame as unwind;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::rule::{Base, Value};
use unwind_sim_unwind::step::{Stepped, step};
use unwind_sim_unwind::walk::WalkTarget;

/// The step that found no frame.
#[derive(Clone, Debug)]
pub(crate) struct LastStep {
    /// The row of the last frame.
    pub(crate) row: Row,
    /// The stack words that it read.
    pub(crate) words: ReadWords,
    /// The CFA that it gave, if any.
    pub(crate) cfa: Option<u64>,
    /// The register that the CFA is computed from, with its value in the last frame.
    pub(crate) base: Option<(Reg, u64)>,
    /// Whether it says that this is the outermost frame.
    pub(crate) is_root: bool,
    /// The return address that it gave, which was refused, and the address of its word.
    pub(crate) refused: Option<(u64, Option<u64>)>,
}

/// A walk that was followed again.
#[derive(Default)]
pub(crate) struct Again {
    /// The registers that the walk knows in each of its frames; `None` for a frame that no rule gave.
    pub(crate) regs: Vec<Option<Regs>>,
    /// The step at which it ended, if a row was applied there.
    pub(crate) last: Option<LastStep>,
}

/// The number of the frame in a walk whose row is to blame, which may lie before the frame that is
/// wrong. `rows` are those of the walk's listing.
pub(crate) fn blamed_frame(outcome: &Outcome, rows: &[listing::Row]) -> Option<usize> {
    let wanted = outcome.diagnosis.as_ref()?.frame;
    let is_it =
        |row: &&listing::Row| matches!(**row, listing::Row::Same { truth, .. } if truth == wanted);
    rows.iter().find(is_it)?.found()
}

/// The distance from rsp, in bytes, up to which an address is given by it.
const NEAR: u64 = 1 << 20;

/// The distance of an address from the live rsp, bytes; `None` if it is far away, such as on another
/// stack.
pub(crate) fn distance_from_rsp(view: &View<'_>, address: u64) -> Option<i64> {
    let distance = address.wrapping_sub(view.live().rsp()) as i64;
    (distance.unsigned_abs() < NEAR).then_some(distance)
}

/// Follows the walk of `outcome` again, by applying the rules of its unwinder.
pub(crate) fn again(
    view: &View<'_>,
    engine: &Engine,
    setting: &Setting,
    outcome: &Outcome,
    cache: &mut Cache,
) -> Again {
    let frames = &outcome.chain.frames;
    let mut out = Again {
        regs: vec![None; frames.len()],
        last: None,
    };

    let started = outcome.chain.events.iter().find_map(|event| match event {
        Event::Started { regs, .. } => Some(*regs),
        _ => None,
    });
    // Without a finder there are no rows to apply again.
    let (Some(finder), Some(regs)) = (engine.finder(), started) else {
        return out;
    };

    let memory = view.memory(setting.view);
    let place = WalkTarget {
        space: view.space,
        memory: &memory,
    };
    // As in the walk: it loses the registers that its unwinder does not carry.
    let carries = RegMask(finder.carries().0 | RegMask::FRAME.0);
    let mut frame = unwind::Frame::top(regs.restricted(carries));

    // As many steps as the walk itself may have made.
    let mut next = 0;
    for _ in 0..setting.limits.frames_max {
        // pc alone is not enough: a recursion has it many times.
        let is_this = |f: &Frame| f.pc == frame.pc && f.sp == frame.regs.rsp();
        // Frames that were skipped are not in the chain.
        if frames.get(next).is_some_and(is_this) {
            out.regs[next] = Some(frame.regs);
            next += 1;
        }

        let stepped = step(finder, &place, &frame, cache);
        match stepped.caller {
            Ok(caller) if next < frames.len() => frame = caller,
            _ => {
                if next == frames.len() && next > 0 {
                    out.last = last_step(stepped, &frame.regs, outcome.chain.end.reason);
                }
                break;
            }
        }
    }

    out
}

/// The last step, if it is the one for which the walk ended. With a fallback it may not be.
fn last_step(stepped: Stepped, regs: &Regs, end: Reason) -> Option<LastStep> {
    let row = stepped.row.ok()?;

    let refused = match (stepped.caller, end) {
        (Err(reason), _) if reason == end => None,
        // Programs mark the outermost frame with a zero rbp, which the walk alone asks for.
        (Err(_), Reason::RootReached) if row.rule.by_frame_pointer => None,
        // The walk looks at sp before it reads what lies there.
        (Err(_), Reason::SpDidNotAdvance { to, .. }) if stepped.cfa == Some(to) => None,
        (Ok(caller), Reason::NotText { address }) if caller.pc.value() == address => {
            Some((address, caller.slot))
        }
        (Ok(caller), Reason::Cycle { .. } | Reason::SpDidNotAdvance { .. }) => {
            Some((caller.pc.value(), caller.slot))
        }
        _ => return None,
    };

    let base = match row.rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            ..
        }
        | Value::Load {
            base: Base::Reg(reg),
            ..
        } => regs.get(reg).map(|value| (reg, value)),
        _ => None,
    };

    Some(LastStep {
        row,
        words: stepped.words,
        cfa: stepped.cfa,
        base,
        is_root: end == Reason::RootReached,
        refused,
    })
}
