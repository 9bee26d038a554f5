//! What broke one stack.

pub(super) use super::explanation::{Lack, Reading};

use super::explanation::{BrokenWalk, Explanation, OVERWRITTEN_OR_WRONG, lacks_mapping};
use super::jump::bad_jump;
use super::kind::Kind;
use super::stack::{is_near_root, row, stack_bounds};
use crate::engine::Outcome;
use crate::ground::{Ending, Lost};
use crate::whole::{self, Break, Doubt, Root, Seen, Whole, Why};
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_tables::ground::NoProof;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::End;
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::memory::MemoryError;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::rule::{Base, Rule, Value};
use unwind_sim_unwind::verdict::{Ground, Verdict};

/// What became of one stack.
#[derive(Clone, Debug)]
pub(super) enum Judged {
    /// Nothing is known to be wrong with it.
    Whole,
    /// Frames are lost or wrong.
    Broken(Box<Fault>),
    /// All frames of the program are there; those of the C library that started it are not.
    ToMain,
    /// It is not known whether frames are lost, for this reason.
    Unknown(Box<Fault>),
    /// The sample has nothing to walk.
    NotWalked,
}

/// What broke a stack.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) code: Code,
    /// The frame to blame.
    pub(super) pc: CodeAddress,
    /// Its row, if that is to blame.
    pub(super) row: Option<RowSource>,
    /// What the row gave and what is true.
    pub(super) values: Option<String>,
    /// Only the innermost function is to blame: the chain lacks its caller and nothing else.
    pub(super) is_leaf: bool,
    /// What else is to be said of it.
    pub(super) note: Option<String>,
    /// What to say if the code proves the row that is to blame: then the word was overwritten.
    pub(super) if_proven: Option<String>,
    /// The number of known frames that the chain lacks, if they are known.
    pub(super) lost: Option<u64>,
    /// How far above rsp the word is that the walk needed, beyond the copy, bytes.
    pub(super) needed: Option<u64>,
    /// What the sample lacks, if that is known.
    pub(super) lack: Option<Lack>,
}

impl Fault {
    /// A fault at `pc` without a row.
    pub(super) fn at(kind: Kind, code: Code, pc: CodeAddress) -> Fault {
        Fault {
            kind,
            code,
            pc,
            row: None,
            values: None,
            is_leaf: false,
            note: None,
            if_proven: None,
            lost: None,
            needed: None,
            lack: None,
        }
    }
}

/// The depths of Intel's rings (Intel SDM, volume 3, "Last branch records").
const RING_DEPTHS: [usize; 3] = [8, 16, 32];

/// What became of an unwinder's walk.
pub(super) fn judge(
    view: &View<'_>,
    outcome: &Outcome,
    reading: Reading<'_>,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Judged {
    if let Some(judged) = settled(view, outcome, reading, cache) {
        return judged;
    }

    // A pc without code is in no table: nothing that follows from rows is to blame for it.
    if let Some(gone) = bad_jump(view, reading.is_profile()) {
        return Judged::Broken(Box::new(Fault {
            note: Some(gone.note),
            ..Fault::at(gone.kind, outcome.ended(), gone.pc)
        }));
    }

    let last = outcome.chain.frames.last();
    let last = last.map_or(CodeAddress::Instruction(view.live().rip()), |f| f.pc);
    // A diagnosis names the frame to blame. Without one, it is the frame that lost a register, or
    // else the last.
    let (code, pc) = match &outcome.diagnosis {
        Some(diagnosis) => (diagnosis.code, diagnosis.pc),
        None => (outcome.ended(), lost_at(outcome).unwrap_or(last)),
    };
    let contradiction = outcome.contradiction();
    let walk = BrokenWalk {
        view,
        outcome,
        reading,
        code,
        pc,
    };

    // What the recording lacks or the program did explains more than the row. The order counts: what is
    // not there at all comes before what is wrong with it, and that before how much of it there is.
    let kind = walk.kind(finder, cache);
    let explained = walk.is_not_there(kind);
    let explained = explained.or_else(|| walk.is_done_by_program(kind, finder, cache));
    let explained = explained.or_else(|| walk.is_cut_off(kind));
    let Explanation {
        kind,
        note,
        if_proven,
        lack,
    } = explained.unwrap_or(Explanation::of(kind));

    let is_missing = matches!(outcome.verdict, Verdict::Missing { .. });
    let row = contradiction.and_then(|c| c.row.as_ref());

    Judged::Broken(Box::new(Fault {
        kind,
        code,
        pc,
        // Any other kind blames something else, so the row is not reported as wrong.
        row: row.map(|row| row.source).filter(|_| kind == Kind::WrongRow),
        values: contradiction.map(ToString::to_string),
        // A function that has not pushed rbp hides its caller: rbp leads to the caller's caller.
        is_leaf: is_missing && reading.is_by_frame_pointer && pc.is_instruction(),
        note,
        if_proven,
        lack,
        // How long a copy would have to be: the missing word, counted from the sampled rsp.
        needed: match outcome.chain.end.reason {
            Reason::Memory(MemoryError::BeyondCopy { address, .. })
                if kind == Kind::CopyTooShort =>
            {
                let rsp = view.live().get(Reg::Rsp);
                rsp.and_then(|rsp| address.checked_sub(rsp)).map(|n| n + 8)
            }
            _ => None,
        },
        lost: lost(&outcome.ground),
    }))
}

/// What the verdict alone says, or, without a truth, the code.
fn settled(
    view: &View<'_>,
    outcome: &Outcome,
    reading: Reading<'_>,
    cache: &mut Cache,
) -> Option<Judged> {
    let ground = &outcome.ground;
    match (outcome.verdict, outcome.whole) {
        (Verdict::Unjudged, Some(Whole::Yes(_))) => return Some(Judged::Whole),
        (Verdict::Unjudged, Some(Whole::Unknown(doubt))) => {
            return Some(Judged::Unknown(Box::new(of_doubt(view, doubt))));
        }
        (Verdict::Unjudged, Some(Whole::No(found))) => {
            let rest = || leaf_rest(view, outcome, cache);
            // If the walk ended for a reason of its own, that reason is judged later.
            let frames = Seen::of_chain(&outcome.chain);
            if let Some(mut fault) = of_break(view, (found, &frames), reading, rest) {
                // The proof followed the same rules to the same frame, and has no rule for it.
                let is_proven = reading.proof_ended == Some(Ending::Code(NoProof::NotBehindCall))
                    && ground.known as usize == found.frame + 1;
                if let Some(what) = fault.if_proven.take_if(|_| is_proven) {
                    (fault.kind, fault.note) = (Kind::OverwrittenReturn, Some(what));
                }
                return Some(Judged::Broken(Box::new(fault)));
            }
        }
        _ => {}
    }

    match outcome.verdict {
        // All frames are there; only the table does not mark the root.
        Verdict::Truncated { at } if ground.complete && at == ground.known => Some(Judged::Whole),
        Verdict::Unsupported => Some(Judged::NotWalked),
        Verdict::Ok | Verdict::OkUnproven => Some(Judged::Whole),
        // The records of all calls are there, or more calls than that would be.
        Verdict::Unjudged
            if outcome.whole.is_none()
                && !outcome.chain.end.marks_roots
                && !is_ring_full(view, outcome) =>
        {
            Some(Judged::Whole)
        }
        _ => None,
    }
}

/// The number of known frames that a chain lacks. Where only some are known, none of them may be
/// missing.
fn lost(ground: &Ground) -> Option<u64> {
    let lost = u64::from(ground.known.saturating_sub(ground.found));
    let is_known = ground.known > 1 && (ground.complete || lost > 0);
    is_known.then_some(lost)
}

/// What is not known of a stack.
pub(super) fn of_doubt(view: &View<'_>, doubt: Doubt) -> Fault {
    let kind = match doubt.why {
        Why::NoCode if lacks_mapping(view, doubt.pc) => {
            return Fault {
                lack: Some(Lack::Mappings),
                ..Fault::at(Kind::NotRecorded, Code::EndUnknown, doubt.pc)
            };
        }
        Why::NoCode => match Kind::of(Code::NoImage, view.space, doubt.pc) {
            kind @ (Kind::NoFile | Kind::Jit | Kind::NotElf) => kind,
            // The file is known, but the recording has only pieces of its code.
            _ => {
                return Fault {
                    lack: Some(Lack::Code),
                    ..Fault::at(Kind::NotRecorded, Code::EndUnknown, doubt.pc)
                };
            }
        },
        Why::FramePointer => Kind::UnclearFramePointer,
        Why::OtherFile => Kind::OtherFile,
        Why::Guess => Kind::Guessed,
        Why::StackEnd => Kind::StackEnd,
    };
    Fault::at(kind, Code::EndUnknown, doubt.pc)
}

/// Whether the chain is whole but for the caller of its innermost function.
fn leaf_rest(view: &View<'_>, outcome: &Outcome, cache: &mut Cache) -> bool {
    let frames = Seen::of_chain(&outcome.chain);
    is_rest_whole(view, &frames, &outcome.chain.end, cache)
}

/// Whether the frames from the second outwards are a whole chain, or end in the C library's start
/// code.
pub(super) fn is_rest_whole(
    view: &View<'_>,
    frames: &[Seen],
    end: &End,
    cache: &mut Cache,
) -> bool {
    let rest = frames.get(1..).unwrap_or_default();
    match whole::judge(view, rest, end, cache) {
        Some(Whole::Yes(_)) => true,
        Some(Whole::No(found)) => is_start_code(view, found.pc),
        Some(Whole::Unknown(_)) | None => false,
    }
}

/// What the code shows to be wrong with a chain of `frames`. `None` if the walk ended for a reason that
/// the unwinder gave.
pub(super) fn of_break(
    view: &View<'_>,
    (found, frames): (Break, &[Seen]),
    reading: Reading<'_>,
    is_rest_whole: impl FnOnce() -> bool,
) -> Option<Fault> {
    use whole::Fault as Wrong;
    let pc = found.pc;
    let plain = |kind, code| Fault::at(kind, code, pc);

    // First: these registers do not belong to this address, so nothing that follows from them
    // counts.
    if found.what == Wrong::AfterInstruction {
        return Some(plain(Kind::Precise, Code::AfterInstruction));
    }

    let is_by_rbp = matches!(
        found.what,
        Wrong::NoFramePointer | Wrong::FramePointersEnd | Wrong::Ended(Reason::RootReached)
    );

    // Most C libraries' start code keeps no frame pointer; what is missing there is no frame of the
    // program.
    let is_start = found.frame > 0 && is_start_code(view, pc)
        || found.what == Wrong::FramePointersEnd && is_main(view, pc);
    if (reading.is_by_frame_pointer || is_by_rbp) && is_start {
        return Some(plain(Kind::StartCode, Code::NoFramePointer));
    }

    let callee = found.frame.checked_sub(1).and_then(|at| frames.get(at));
    let callee = callee.map(|frame| frame.pc);

    Some(match found.what {
        Wrong::NoFramePointer => Fault {
            is_leaf: found.frame == 0 && is_rest_whole(),
            ..plain(Kind::NoFramePointer, Code::NoFramePointer)
        },
        Wrong::FramePointersEnd => Fault {
            note: Some("rbp leads no further than this function, which has a caller".to_owned()),
            ..plain(Kind::NoFramePointer, Code::NoFramePointer)
        },
        Wrong::OtherFunction if reading.is_by_frame_pointer => Fault {
            is_leaf: found.frame == 0 && is_rest_whole(),
            ..plain(Kind::NoFramePointer, Code::NoFramePointer)
        },
        // GNU Pth and others make coroutines so (Engelschall, "Portable Multithreading", 2000).
        Wrong::OtherFunction if is_beyond_handler(view, frames, found.frame) => Fault {
            note: Some(format!(
                "{}; the frames from the signal on are on another stack than the handler: if its stack \
                 was entered again after it returned (a coroutine made with sigaltstack), they are not \
                 its callers, and the chain ends with the handler",
                found.what
            )),
            ..plain(Kind::Other, Code::WrongReturnAddress)
        },
        Wrong::OtherFunction => Fault {
            note: Some(found.what.to_string()),
            ..plain(Kind::WrongRow, Code::WrongReturnAddress)
        },
        // What follows are words that lie above the end of the stack, or that were left there.
        Wrong::OtherStack => Fault {
            note: Some(found.what.to_string()),
            ..plain(Kind::WrongRow, Code::WrongReturnAddress)
        },
        // No frame is missing: there is only no mark that tells a walk to end.
        Wrong::Unmarked | Wrong::BeyondRoot(Root::Runtime | Root::Switch | Root::Coroutine) => {
            Fault {
                lost: Some(0),
                ..plain(Kind::CoroutineEnd, Code::NotAtRoot)
            }
        }
        // The frame itself is nothing: the word that led there was read by the row of the frame inside.
        Wrong::NotBehindCall
            if !reading.is_by_frame_pointer
                && let Some(callee) = callee =>
        {
            let what = format!(
                "the return address is {:#x}, which is not behind a call",
                pc.value()
            );
            Fault {
                note: Some(format!("{what}: {OVERWRITTEN_OR_WRONG}")),
                if_proven: Some(what),
                ..Fault::at(Kind::Other, Code::WrongReturnAddress, callee)
            }
        }
        Wrong::NotBehindCall | Wrong::BeyondRoot(_) => Fault {
            note: Some(found.what.to_string()),
            ..plain(Kind::Other, Code::WrongReturnAddress)
        },
        Wrong::Ended(_) | Wrong::AfterInstruction => return None,
    })
}

/// Whether the frame with the number `at` is one that a signal interrupted, or a caller of it, and the
/// handler ran on another stack.
fn is_beyond_handler(view: &View<'_>, frames: &[Seen], at: usize) -> bool {
    let stack = |frame: &Seen| stack_bounds(view, frame.sp);
    let pairs = frames.iter().zip(frames.iter().skip(1)).take(at);
    pairs
        .filter(|(_, outer)| outer.pc.is_instruction())
        .any(|(inner, outer)| match (stack(inner), stack(outer)) {
            (Some(inner), Some(outer)) => inner != outer,
            _ => false,
        })
}

/// Whether `pc` is in what runs between the entry and `main`: glibc's or musl's code, or the function
/// that the entry calls.
pub(super) fn is_start_code(view: &View<'_>, pc: CodeAddress) -> bool {
    let function = Location::of(view.space, pc).function;
    function.is_some_and(|name| whole::is_start_code(&name))
        || whole::is_called_by_entry(view, pc, &mut Cache::new())
}

/// Whether `pc` is in `main`, which only start code calls.
fn is_main(view: &View<'_>, pc: CodeAddress) -> bool {
    Location::of(view.space, pc).function.as_deref() == Some("main")
}

/// Where the register was lost that the last rule needed: there the row names a word that is not
/// there.
fn lost_at(outcome: &Outcome) -> Option<CodeAddress> {
    let Reason::Memory(cause) = outcome.chain.end.reason else {
        return None;
    };
    outcome.chain.events.iter().find_map(|event| match event {
        Event::RegisterLost {
            pc,
            cause: Reason::Memory(of),
            ..
        } if *of == cause => Some(*pc),
        _ => None,
    })
}

/// Whether a chain by branch records ends because the ring had no room for more: it is full, and the
/// last function is not one that roots call.
fn is_ring_full(view: &View<'_>, outcome: &Outcome) -> bool {
    if outcome.ended() != Code::LbrDepth {
        return false;
    }
    let is_full = |stack: &BranchStack| match stack.depth {
        0 => RING_DEPTHS.contains(&stack.entries.len()),
        depth => stack.entries.len() >= depth as usize,
    };
    let last = outcome.chain.frames.last();
    view.sample.branches.iter().any(is_full)
        && !last.is_some_and(|frame| is_near_root(view.space, frame.pc))
}

/// A row that hands on a register which the code there has overwritten, so that the last proven frame's
/// row, which needs it, went on with a wrong value. The right one cannot be had.
pub(super) fn of_lost(
    view: &View<'_>,
    outcome: &Outcome,
    lost: &[Option<Lost>],
    (finder, cache): (&dyn Finder, &mut Cache),
) -> Option<Fault> {
    let frames = &outcome.chain.frames;
    let last = (outcome.ground.known as usize).checked_sub(1)?;
    let needs = row(view.space, frames.get(last)?.pc, finder, cache)?;

    // Only a CFA that depends on a callee-saved register can be wrong by what inner frames did.
    let (Value::Offset { base, .. } | Value::Load { base, .. }) = needs.rule.cfa else {
        return None;
    };
    let Base::Reg(reg) = base else { return None };
    let index = Rule::saved_index(reg)?;

    let lost = lost.get(index).copied().flatten()?;
    // The row where the register was lost, not that of the frame that needs it.
    let row = row(view.space, lost.pc, finder, cache)?;
    let said = row.rule.saved[index];

    // The register must have been lost in a frame further in than the one that needs it.
    let has_been = frames.get(lost.frame)?.pc == lost.pc && lost.frame < last;
    // A row that says that the register is undefined tells the truth about a lost one.
    if !has_been || said == Value::Undefined {
        return None;
    }

    if !matches!(said, Value::Same | Value::Unspecified) {
        // It was kept there, and the function has written something else to the place.
        return Some(Fault {
            note: Some(format!(
                "the function overwrites {reg} of its caller, which it has saved: {reg}={said}"
            )),
            ..Fault::at(Kind::OverwrittenReturn, Code::WrongRegister, lost.pc)
        });
    }

    Some(Fault {
        row: Some(row.source),
        note: Some(format!(
            "the code has overwritten {reg}, and keeps the caller's where no rule finds it; the row \
             takes it for unchanged"
        )),
        ..Fault::at(Kind::WrongRow, Code::WrongRegister, lost.pc)
    })
}

#[cfg(test)]
mod tests;
