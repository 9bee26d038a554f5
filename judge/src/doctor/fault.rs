//! What broke one stack.

use super::kind::Kind;

use super::recorded::{has_frame_pointer, is_named_root, read_word, row};
use crate::check::Contradiction;
use crate::engine::Outcome;
use crate::ground::Ending;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::trace::Engine;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::rule::Value;
use unwind_sim_unwind::verdict::Verdict;

/// What became of one stack.
#[derive(Clone, Debug)]
pub(super) enum Judged {
    /// Nothing is known to be wrong with it.
    Whole,
    /// Frames are lost or wrong.
    Broken(Box<Fault>),
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
        }
    }
}

/// How the walks of an unwinder are to be understood.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// The unwinder follows frame pointers.
    pub(super) is_by_frame_pointer: bool,
    /// How the recording was made.
    pub(super) made: &'a Made,
    /// Why the frames that the code proves end.
    pub(super) proof_ended: Option<Ending>,
}

/// The number of innermost frames by which endless recursion is known, and how many different
/// return addresses they may have at most.
const RECURSION_FRAMES: usize = 1000;
const RECURSION_CALLS_MAX: usize = 16;
/// The depths of Intel's rings (Intel SDM, volume 3, "Last branch records").
const RING_DEPTHS: [usize; 3] = [8, 16, 32];
/// Nothing is mapped below (`vm.mmap_min_addr`), so code there is a null pointer with an offset.
const NULL_PAGE: u64 = 4096;

/// What became of an unwinder's walk.
pub(super) fn judge(
    view: &View<'_>,
    outcome: &Outcome,
    reading: Reading<'_>,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Judged {
    let is_by_frame_pointer = reading.is_by_frame_pointer;
    let end = &outcome.chain.end;
    let ground = &outcome.ground;
    match outcome.verdict {
        // All frames are there; only the table does not mark the root.
        Verdict::Truncated { at } if ground.complete && at == ground.known => return Judged::Whole,
        Verdict::Unsupported => return Judged::NotWalked,
        Verdict::Ok | Verdict::OkUnproven => return Judged::Whole,
        // A root that no known frame contradicts, or an end that its format cannot mark.
        Verdict::Unjudged if end.reason == Reason::RootReached => return Judged::Whole,
        // The records of all calls are there, or more calls than that would be.
        Verdict::Unjudged if !end.marks_roots && !is_ring_full(view, outcome) => {
            return Judged::Whole;
        }
        _ => {}
    }
    if let Some(fault) = bad_jump(view, outcome, reading) {
        return Judged::Broken(Box::new(fault));
    }
    let last = outcome.chain.frames.last();
    let last = last.map_or(CodeAddress::Instruction(view.live().rip()), |f| f.pc);
    let (code, pc) = match &outcome.diagnosis {
        Some(diagnosis) => (diagnosis.code, diagnosis.pc),
        None => (outcome.ended(), last),
    };
    let contradiction = outcome
        .diagnosis
        .as_ref()
        .and_then(|d| d.contradiction.as_ref());
    let mut kind = match contradiction.and_then(|c| c.reason) {
        // The row is right, but what it needs is not there.
        Some(reason) if !matches!(code, Code::NoRowForExecuted) => {
            Kind::of(reason.code(), view.space, pc)
        }
        _ => Kind::of(code, view.space, pc),
    };
    // A walk by frame pointers that went astray: by the row, the code has none.
    let is_unclear = matches!(
        kind,
        Kind::Other | Kind::NotRecorded | Kind::WrongRow | Kind::CopyTooShort
    );
    if is_unclear && is_by_frame_pointer {
        let row = row(view.space, pc, finder, cache);
        if row.is_some_and(|row| !has_frame_pointer(&row)) {
            kind = Kind::NoFramePointer;
        }
    }
    let (mut note, mut if_proven) = (None, None);
    match (kind, end.reason) {
        (Kind::FrameLimit, _) if is_endless(outcome) => kind = Kind::EndlessRecursion,
        (Kind::NotRecorded | Kind::CopyTooShort, _) if reading.made.is_cut => kind = Kind::CutCore,
        // A core has the stack, not a copy of its top.
        (Kind::CopyTooShort, _) if reading.made.engine == Engine::Core => kind = Kind::NotRecorded,
        (Kind::Other, Reason::NotText { address })
            if !is_by_frame_pointer && is_overwritten(outcome, reading) =>
        {
            kind = Kind::OverwrittenReturn;
            note = Some(overwritten_by(address));
        }
        // The slot is the true one, but another word is there: if the code proves the row, it was
        // overwritten.
        (Kind::WrongRow, Reason::NotText { address })
            if code == Code::WrongReturnAddress && contradiction.is_some_and(has_usual_slot) =>
        {
            if_proven = Some(overwritten_by(address));
        }
        _ => {}
    }
    let is_missing = matches!(outcome.verdict, Verdict::Missing { .. });
    let row = contradiction.and_then(|c| c.row.as_ref());
    Judged::Broken(Box::new(Fault {
        kind,
        code,
        pc,
        row: row.map(|row| row.source).filter(|_| kind == Kind::WrongRow),
        values: contradiction.map(ToString::to_string),
        is_leaf: is_missing && is_by_frame_pointer && pc.is_instruction(),
        note,
        if_proven,
        lost: (ground.known > 1).then(|| u64::from(ground.known.saturating_sub(ground.found))),
    }))
}

/// A sample whose pc is not in code: the program jumped or called there. If it called, the return
/// address is at rsp, and its caller is to blame.
fn bad_jump(view: &View<'_>, outcome: &Outcome, reading: Reading<'_>) -> Option<Fault> {
    let rip = view.sample.regs.live()?.get(Reg::Rip)?;
    // A profile may lack the mapping; nothing is ever mapped at 0.
    let is_profile = reading.made.engine == Engine::PerfData;
    let is_elsewhere = !view.space.is_text(rip) && (!is_profile || rip < NULL_PAGE);
    if !is_elsewhere || view.sample.kernel.is_some() {
        return None;
    }
    let word = read_word(view, view.live().get(Reg::Rsp)?);
    let called_from = word.filter(|&word| view.space.is_text(word));
    let pc = called_from.map_or(CodeAddress::Instruction(rip), CodeAddress::Return);
    let from = match called_from {
        Some(_) => format!(
            "; the return address at rsp is that of {}",
            Location::of(view.space, pc)
        ),
        None if word.is_none() => "; the word at rsp was not recorded".to_owned(),
        None => "; the word at rsp is not a return address".to_owned(),
    };
    let what = if rip < NULL_PAGE {
        "a null pointer"
    } else {
        "not an address of code"
    };
    Some(Fault {
        note: Some(format!("the pc is {rip:#x}, {what}{from}")),
        ..Fault::at(Kind::BadJump, outcome.ended(), pc)
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
        && !last.is_some_and(|frame| is_named_root(view.space, frame.pc))
}

/// Whether the frames in which a walk reached its limit are those of a few calls.
fn is_endless(outcome: &Outcome) -> bool {
    let frames = &outcome.chain.frames;
    let Some(start) = frames.len().checked_sub(RECURSION_FRAMES) else {
        return false;
    };
    let mut calls: Vec<u64> = frames[start..].iter().map(|f| f.pc.value()).collect();
    calls.sort_unstable();
    calls.dedup();
    calls.len() <= RECURSION_CALLS_MAX
}

fn overwritten_by(address: u64) -> String {
    format!("the return address is {address:#x}, which is not in code")
}

/// Whether the row has the return address at the top of the frame, where a call pushes it. A wrong
/// CFA has a code of its own.
fn has_usual_slot(contradiction: &Contradiction) -> bool {
    let row = contradiction.row.as_ref();
    row.is_some_and(|row| row.rule.ra == Value::at_cfa(-8))
}

/// Whether the last return address was overwritten, rather than read from a wrong place: the code
/// proves the place, or the program crashed there.
fn is_overwritten(outcome: &Outcome, reading: Reading<'_>) -> bool {
    let is_proven = reading.proof_ended == Some(Ending::NotCode)
        && outcome.ground.known as usize >= outcome.chain.frames.len();
    is_proven || reading.made.engine == Engine::Core
}
