//! What broke one stack.

use super::kind::Kind;
use super::recorded::{has_frame_pointer, row};
use crate::engine::Outcome;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::row::RowSource;
use unwind_sim_unwind::verdict::Verdict;

/// What became of one stack.
#[derive(Clone, Debug)]
pub(super) enum Judged {
    /// Nothing is known to be wrong with it.
    Whole,
    /// Frames are lost or wrong.
    Broken(Fault),
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
            lost: None,
        }
    }
}

/// What became of an unwinder's walk.
pub(super) fn judge(
    view: &View<'_>,
    outcome: &Outcome,
    is_by_frame_pointer: bool,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> Judged {
    let end = &outcome.chain.end;
    let ground = &outcome.ground;
    match outcome.verdict {
        // All frames are there; only the table does not mark the root.
        Verdict::Truncated { at } if ground.complete && at == ground.known => return Judged::Whole,
        Verdict::Unsupported => return Judged::NotWalked,
        Verdict::Ok | Verdict::OkUnproven => return Judged::Whole,
        // A root that no known frame contradicts, or an end that its format cannot mark.
        Verdict::Unjudged if end.reason == Reason::RootReached || !end.marks_roots => {
            return Judged::Whole;
        }
        _ => {}
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
    let row = contradiction.and_then(|c| c.row.as_ref());
    Judged::Broken(Fault {
        kind,
        code,
        pc,
        row: row.map(|row| row.source).filter(|_| kind == Kind::WrongRow),
        values: contradiction.map(ToString::to_string),
        lost: (ground.known > 1).then(|| u64::from(ground.known.saturating_sub(ground.found))),
    })
}
