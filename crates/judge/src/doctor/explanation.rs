//! What explains a broken walk better than the row at which it ended: what the recording lacks, or what
//! the program did.

use super::jump::{is_debuggers_call, overwritten_by, unmapped_code};
use super::kind::Kind;
use super::stack::{has_stack_end, is_at_return, is_endless, row};
use crate::check::Contradiction;
use crate::engine::Outcome;
use crate::ground::Ending;
use crate::whole::{self, is_canonical};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::trace::Engine;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::rule::{Base, Rule, Value};

/// What is to be said of a word that should be a return address, if the code does not prove the row that
/// led to it.
pub(super) const OVERWRITTEN_OR_WRONG: &str = "it was overwritten, or a row is wrong";

/// What a sample lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lack {
    /// A register that a rule needs.
    Register,
    /// The copy of its stack.
    Copy,
    /// The code at an address of the stack.
    Code,
    /// The mappings of its process.
    Mappings,
    /// The memory to which rsp points: there is none.
    Stack,
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

impl<'a> Reading<'a> {
    /// That of the unwinder with this name.
    pub(super) fn of(name: &str, made: &'a Made) -> Reading<'a> {
        Reading {
            is_by_frame_pointer: name == "fp" || name.starts_with("fp:"),
            made,
            proof_ended: None,
        }
    }

    /// Whether perf made the recording.
    pub(super) fn is_profile(&self) -> bool {
        self.made.engine == Engine::Import(FileKind::PerfData)
    }
}

/// A walk that ended too early, or went astray.
#[derive(Clone, Copy)]
pub(super) struct BrokenWalk<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) outcome: &'a Outcome,
    pub(super) reading: Reading<'a>,
    pub(super) code: Code,
    /// The frame to blame.
    pub(super) pc: CodeAddress,
}

/// What explains it.
pub(super) struct Explanation {
    pub(super) kind: Kind,
    pub(super) note: Option<String>,
    pub(super) if_proven: Option<String>,
    pub(super) lack: Option<Lack>,
}

impl Explanation {
    /// The kind says all.
    pub(super) fn of(kind: Kind) -> Explanation {
        Explanation {
            kind,
            note: None,
            if_proven: None,
            lack: None,
        }
    }

    /// The sample lacks something.
    fn lack(lack: Lack) -> Explanation {
        Explanation {
            lack: Some(lack),
            ..Explanation::of(Kind::NotRecorded)
        }
    }

    fn with(self, note: impl Into<String>) -> Explanation {
        Explanation {
            note: Some(note.into()),
            ..self
        }
    }
}

impl BrokenWalk<'_> {
    /// What the code of the chain, or the reason of the row, stands for.
    pub(super) fn kind(&self, finder: &dyn Finder, cache: &mut Cache) -> Kind {
        let space = self.view.space;

        // A rule that gave nothing has a reason of its own, which says more than the code of the chain.
        let gave_nothing = self.outcome.contradiction().filter(|c| c.given.is_none());
        let kind = match gave_nothing.and_then(|c| c.reason) {
            // The row is right, but what it needs is not there.
            Some(reason) if !matches!(self.code, Code::NoRowForExecuted) => {
                Kind::of(reason.code(), space, self.pc)
            }
            _ => Kind::of(self.code, space, self.pc),
        };

        // A walk by frame pointers that went astray: by the row, the code has none.
        let is_unclear = matches!(
            kind,
            Kind::Other | Kind::NotRecorded | Kind::WrongRow | Kind::CopyTooShort
        );
        if is_unclear && self.reading.is_by_frame_pointer {
            let row = row(space, self.pc, finder, cache);
            if row.is_some_and(|row| !whole::has_frame_pointer(&row)) {
                return Kind::NoFramePointer;
            }
        }
        kind
    }

    /// What the walk needed was not recorded, or had been replaced.
    pub(super) fn is_not_there(&self, kind: Kind) -> Option<Explanation> {
        let (view, made) = (self.view, self.reading.made);
        match (kind, self.outcome.chain.end.reason) {
            (
                Kind::Other | Kind::NotRecorded,
                Reason::RegisterNotCarried { reg } | Reason::RegistersMissing { reg },
            ) if !self.reading.is_by_frame_pointer && view.live().get(reg).is_none() => {
                let note = format!("the rule needs {reg}, which the samples do not have");
                Some(Explanation::lack(Lack::Register).with(note))
            }
            // The kernel copies without waiting for a page that is not in memory.
            (Kind::NotRecorded, Reason::Memory(_))
                if made.stack_copy > 0 && view.sample.regions.is_empty() =>
            {
                let note = "the kernel could copy nothing of this stack";
                Some(Explanation::lack(Lack::Copy).with(note))
            }
            // execve has unmapped the old program, whose registers the sample still has.
            (_, Reason::NoImage { .. }) if is_exec(view, self.outcome, self.reading) => {
                Some(Explanation::of(Kind::Exec))
            }
            (_, Reason::NoImage { .. })
                if self.reading.is_profile()
                    && lacks_mapping(view, CodeAddress::Instruction(view.live().rip())) =>
            {
                Some(Explanation::lack(Lack::Mappings))
            }
            _ => None,
        }
    }

    /// The program overwrote what the walk needed, calls itself for ever, or is at a debugger's call.
    pub(super) fn is_done_by_program(
        &self,
        kind: Kind,
        finder: &dyn Finder,
        cache: &mut Cache,
    ) -> Option<Explanation> {
        let BrokenWalk {
            view,
            outcome,
            reading,
            ..
        } = *self;
        let is_by_frame_pointer = reading.is_by_frame_pointer;

        match (kind, outcome.chain.end.reason) {
            // The limit is ours; that the recursion has no end is the program's fault.
            (Kind::FrameLimit, _) if is_endless(view, outcome) => {
                Some(Explanation::of(Kind::EndlessRecursion))
            }
            // No memory has such an address: what was read on the way is not a frame pointer or an address.
            (Kind::NotRecorded | Kind::CopyTooShort, Reason::Memory(error))
                if !is_by_frame_pointer && !is_canonical(error.address()) =>
            {
                let is_proven = outcome.ground.known as usize >= outcome.chain.frames.len();
                let what = format!(
                    "the next word would be at {:#x}, which is not an address",
                    error.address()
                );
                Some(overwritten_register(Kind::Other, is_proven, &what))
            }
            // The same, where the value of the register is an address, but none of this stack.
            (Kind::Other, Reason::SpDidNotAdvance { to, .. })
                if !is_by_frame_pointer && counts_from_saved(view, self.pc, finder, cache) =>
            {
                let is_proven = is_last_proven(outcome, reading);
                let what = format!("the caller's frame would be at {to:#x}, below this one");
                Some(overwritten_register(kind, is_proven, &what))
            }
            (Kind::Other, Reason::NotText { address }) if is_debuggers_call(view, address) => {
                Some(Explanation::of(kind).with(format!(
                    "the return address is {address:#x}, a breakpoint on the stack: a debugger called \
                     this function, and the frames where it had stopped lie beyond"
                )))
            }
            (Kind::Other, Reason::NotText { address })
                if !is_by_frame_pointer && is_overwritten(view, outcome, reading) =>
            {
                Some(match unmapped_code(view, address) {
                    Some(what) => Explanation::of(Kind::UnmappedCode).with(what),
                    None => Explanation::of(Kind::OverwrittenReturn).with(overwritten_by(address)),
                })
            }
            (Kind::Other, Reason::NotText { address }) if !is_by_frame_pointer => {
                let what = overwritten_by(address);
                Some(Explanation::of(kind).with(format!("{what}: {OVERWRITTEN_OR_WRONG}")))
            }
            // The slot is the true one, but another word is there: if the code proves the row, it was
            // overwritten.
            (Kind::WrongRow, Reason::NotText { address })
                if self.code == Code::WrongReturnAddress
                    && outcome.contradiction().is_some_and(has_usual_slot) =>
            {
                Some(Explanation {
                    if_proven: Some(overwritten_by(address)),
                    ..Explanation::of(kind)
                })
            }
            _ => None,
        }
    }

    /// What the walk needed lies beyond what the recording has of the stack.
    pub(super) fn is_cut_off(&self, kind: Kind) -> Option<Explanation> {
        let (view, made) = (self.view, self.reading.made);
        let is_core = made.engine == Engine::Import(FileKind::Core);
        let rsp = view.live().rsp();

        match (kind, self.outcome.chain.end.reason) {
            // A core lists what is mapped: what is not there was not left out.
            (Kind::BelowCopy, _) if is_core && is_unmapped(view, rsp) => {
                Some(Explanation::lack(Lack::Stack).with(unmapped_stack(rsp)))
            }
            (Kind::BelowCopy, _) if is_core => {
                let note = "the core has no memory where the stack pointer is";
                Some(Explanation::of(Kind::NotRecorded).with(note))
            }
            (Kind::NotRecorded, Reason::Memory(_)) if is_unmapped(view, rsp) => {
                Some(Explanation::lack(Lack::Stack).with(unmapped_stack(rsp)))
            }
            // Before the arm for whole cores: here the word may be in the part that was not written.
            (Kind::NotRecorded | Kind::CopyTooShort, _) if made.is_cut => {
                Some(Explanation::of(Kind::CutCore))
            }
            // A core has the stack, not a copy of its top.
            (Kind::CopyTooShort, _) if is_core => Some(Explanation::of(Kind::NotRecorded)),
            // A copy that is shorter than perf asked for ends where the stack does, or at a page that
            // was not in memory: one that a large frame never touched.
            (Kind::CopyTooShort, _) if has_stack_end(view) => {
                let copied = view.sample.regions.first().map_or(0, |r| r.bytes.len());
                let note = format!(
                    "the copy ends after {copied} bytes, fewer than perf asked for: the next page was \
                     not in memory, or the stack ends there and the row is wrong"
                );
                Some(Explanation::lack(Lack::Copy).with(note))
            }
            _ => None,
        }
    }
}

/// A saved register was overwritten, if the code proves the rows up to there; otherwise the kind is `kind`.
/// `what` shows it.
fn overwritten_register(kind: Kind, is_proven: bool, what: &str) -> Explanation {
    let (kind, doubt) = if is_proven {
        (Kind::OverwrittenReturn, "")
    } else {
        (kind, ", or a row is wrong")
    };
    Explanation::of(kind).with(format!(
        "{what}: a saved register was overwritten on the stack{doubt}"
    ))
}

/// Whether a profile's sample fell into `execve`: the registers are those of the old program, of which
/// nothing is mapped any more, and hardly anything of the new one.
fn is_exec(view: &View<'_>, outcome: &Outcome, reading: Reading<'_>) -> bool {
    const MAPPINGS_MAX: usize = 4;
    let pid = view.sample.pid;
    view.space.find(view.live().rip()).is_none()
        && view.world.is_none_or(|world| world.has_executed(pid))
        && reading.made.engine == Engine::Import(FileKind::PerfData)
        && outcome.chain.frames.len() <= 1
        && view.space.mappings().len() <= MAPPINGS_MAX
}

/// Whether the recording names no mapping at `pc`.
pub(super) fn lacks_mapping(view: &View<'_>, pc: CodeAddress) -> bool {
    view.space.find(pc.symbol_address()).is_none()
}

/// Whether a core lists no mapping at `address`.
fn is_unmapped(view: &View<'_>, address: u64) -> bool {
    let process = view.sample.process_memory.as_ref();
    process.is_some_and(|process| process.is_whole && !process.is_mapped(address))
}

fn unmapped_stack(rsp: u64) -> String {
    format!("rsp is {rsp:#x}, where nothing is mapped")
}

/// Whether the row at `pc` counts from a register that an inner frame saved, not from rsp.
fn counts_from_saved(
    view: &View<'_>,
    pc: CodeAddress,
    finder: &dyn Finder,
    cache: &mut Cache,
) -> bool {
    let row = row(view.space, pc, finder, cache);
    row.is_some_and(|row| {
        let (Value::Offset { base, .. } | Value::Load { base, .. }) = row.rule.cfa else {
            return false;
        };
        matches!(base, Base::Reg(reg) if Rule::saved_index(reg).is_some())
    })
}

/// Whether the code proves the rule of the last frame, too: the proof ended only with what the rule led
/// to.
fn is_last_proven(outcome: &Outcome, reading: Reading<'_>) -> bool {
    let ended = matches!(
        reading.proof_ended,
        Some(Ending::NotRecorded(_) | Ending::NotCode | Ending::Limit)
    );
    ended && outcome.ground.known as usize >= outcome.chain.frames.len()
}

/// Whether the row has the return address at the top of the frame, where a call pushes it. A wrong
/// CFA has a code of its own.
fn has_usual_slot(contradiction: &Contradiction) -> bool {
    let row = contradiction.row.as_ref();
    row.is_some_and(|row| row.rule.ra == Value::at_cfa(-8))
}

/// Whether the last return address was overwritten, rather than read from a wrong place: the code
/// proves the place, or the program crashed when it returned there.
fn is_overwritten(view: &View<'_>, outcome: &Outcome, reading: Reading<'_>) -> bool {
    let is_proven = reading.proof_ended == Some(Ending::NotCode)
        && outcome.ground.known as usize >= outcome.chain.frames.len();
    is_proven
        || reading.made.engine == Engine::Import(FileKind::Core) && is_at_return(view, outcome)
}

#[cfg(test)]
mod tests;
